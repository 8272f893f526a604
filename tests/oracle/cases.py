"""Random small clusters, each from one seed: few nodes, few pods, few words, so that rules meet.

Objects are as the API server hands them out: defaulted (a missing request is the limit, a port has a protocol).
"""

from collections.abc import Callable
from random import Random

from tests.oracle.oracle import Json

ZONES = ("a", "b", "c")
APPS = ("web", "api", "db")
NAMESPACES = ("default", "other")
TEAMS = ("red", "blue")
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
RESOURCES = ("cpu", "memory", "ephemeral-storage", "example.com/gpu")
AMOUNTS = {
    "cpu": ("0", "100m", "0.5", "1", "1500m", "2", "4"),
    "memory": ("0", "64Mi", "500M", "1Gi", "2Gi", "3.5Gi"),
    "ephemeral-storage": ("0", "1Gi", "10G", "20Gi"),
    "example.com/gpu": ("0", "1", "2"),
}
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def case(seed: int) -> Json:
    """The case of a seed: one area of rules after the other, every eighth all together."""
    chance = Random(seed)
    areas = [AREAS[seed % (len(AREAS) + 1)]] if seed % (len(AREAS) + 1) < len(AREAS) else list(AREAS)
    nodes = [_node(number, chance) for number in range(chance.randint(1, 5))]
    names = [node["metadata"]["name"] for node in nodes]
    pods = [_pod(f"there-{number}", chance, node=chance.choice(names)) for number in range(chance.randint(0, 6))]
    wanted = _pod("wanted", chance)
    for area in areas:
        area(nodes, pods, wanted, chance)
    return {"nodes": nodes, "pods": pods, "wanted": [wanted], "namespaces": [_namespace(name) for name in NAMESPACES]}


def _namespace(name: str) -> Json:
    return {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, "team": TEAMS[name == "other"]}}}


def _node(number: int, chance: Random) -> Json:
    name = f"n{number}"
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": chance.choice(ZONES)}
    if chance.random() < 0.5:
        labels["disk"] = chance.choice(("ssd", "hdd", ""))
    if chance.random() < 0.5:
        labels["gen"] = chance.choice(("3", "5", "007", "x", "-2"))
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "500Gi", "pods": "110"}},
    }


def _pod(name: str, chance: Random, *, node: str = "") -> Json:
    namespace = chance.choice(NAMESPACES)
    labels = {"app": chance.choice(APPS)} if chance.random() < 0.8 else {}
    spec: Json = {"containers": [{"name": "c", "resources": {}}]}
    if node:
        spec["nodeName"] = node
    meta = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "labels": labels}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running" if node else "Pending"}}


# Areas: each changes the objects in place


def unschedulable(nodes: list[Json], pods: list[Json], wanted: Json, chance: Random) -> None:
    """Cordoned nodes, and pods that tolerate that or not."""
    for node in nodes:
        if chance.random() < 0.5:
            node["spec"]["unschedulable"] = True
    if chance.random() < 0.5:
        key = chance.choice(("node.kubernetes.io/unschedulable", "", "x"))
        wanted["spec"].setdefault("tolerations", []).append(_toleration(chance, key))


def taints(nodes: list[Json], pods: list[Json], wanted: Json, chance: Random) -> None:
    """Taints of all effects, tolerations of both operators, with and without key, value and effect."""
    for node in nodes:
        keys = chance.sample(("k", "l", "m"), chance.randint(0, 2))
        node["spec"].setdefault("taints", []).extend(
            {"key": key, "value": chance.choice(("", "1", "2")), "effect": chance.choice(EFFECTS)} for key in keys
        )
    wanted["spec"].setdefault("tolerations", []).extend(
        _toleration(chance, chance.choice(("k", "l", "m", ""))) for _ in range(chance.randint(0, 3))
    )


def _toleration(chance: Random, key: str) -> Json:
    toleration: Json = {"operator": "Exists"} if not key else {"key": key}
    if key:
        operator = chance.choice(("", "Equal", "Exists", "Gt", "Lt"))  # the last two are off by default in 1.36
        if operator:
            toleration["operator"] = operator
        if operator != "Exists":
            toleration["value"] = chance.choice(("", "1", "2"))
    if chance.random() < 0.6:
        toleration["effect"] = chance.choice(EFFECTS)
        if toleration["effect"] == "NoExecute" and chance.random() < 0.5:
            toleration["tolerationSeconds"] = 300
    return toleration


def node_affinity(nodes: list[Json], pods: list[Json], wanted: Json, chance: Random) -> None:
    """Node selectors, and required terms of labels and fields with every operator."""
    if chance.random() < 0.4:
        wanted["spec"]["nodeSelector"] = {"disk": chance.choice(("ssd", "hdd", ""))}
    if chance.random() < 0.8:
        terms = [_node_term(nodes, chance) for _ in range(chance.randint(1, 2))]
        required = {"nodeSelectorTerms": terms}
        rules = wanted["spec"].setdefault("affinity", {})
        rules["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": required}


def _node_term(nodes: list[Json], chance: Random) -> Json:
    term: Json = {}
    expressions = [_requirement(chance) for _ in range(chance.randint(0, 2))]
    if expressions:
        term["matchExpressions"] = expressions
    if chance.random() < 0.3:
        name = chance.choice([node["metadata"]["name"] for node in nodes] + ["nowhere"])
        operator = chance.choice(("In", "NotIn"))
        term["matchFields"] = [{"key": "metadata.name", "operator": operator, "values": [name]}]
    return term


def _requirement(chance: Random) -> Json:
    operator = chance.choice(OPERATORS)
    key = "gen" if operator in ("Gt", "Lt") else chance.choice(("disk", "gen", "topology.kubernetes.io/zone", "none"))
    requirement: Json = {"key": key, "operator": operator}
    if operator in ("In", "NotIn"):
        requirement["values"] = chance.sample(("ssd", "hdd", "", "5", "a", "b"), chance.randint(1, 3))
    elif operator in ("Gt", "Lt"):
        requirement["values"] = [chance.choice(("4", "0", "-3", "07"))]
    return requirement


def ports(nodes: list[Json], pods: list[Json], wanted: Json, chance: Random) -> None:
    """Host ports of few numbers, protocols and addresses."""
    for pod in [*pods, wanted]:
        if chance.random() < 0.7:
            pod["spec"]["containers"][0]["ports"] = [_port(chance) for _ in range(chance.randint(1, 2))]
    if chance.random() < 0.2:
        sidecar = {"name": "s", "restartPolicy": "Always", "resources": {}, "ports": [_port(chance)]}
        wanted["spec"]["initContainers"] = [sidecar]


def _port(chance: Random) -> Json:
    port = {"containerPort": 80, "hostPort": chance.choice((80, 81)), "protocol": chance.choice(("TCP", "UDP"))}
    address = chance.choice(("", "0.0.0.0", "10.0.0.1", "10.0.0.2"))
    return {**port, "hostIP": address} if address else port


def resources(nodes: list[Json], pods: list[Json], wanted: Json, chance: Random) -> None:
    """Small nodes; containers, init containers, sidecars, overhead and pod-level amounts of every resource."""
    for node in nodes:
        allocatable = {"pods": chance.choice(("1", "2", "3", "110"))}
        for name in RESOURCES:
            if chance.random() < 0.85:
                allocatable[name] = chance.choice(AMOUNTS[name])
        node["status"]["allocatable"] = allocatable
    for pod in [*pods, wanted]:
        spec = pod["spec"]
        spec["containers"] = [_container(f"c{number}", chance) for number in range(chance.randint(1, 2))]
        if chance.random() < 0.3:
            spec["initContainers"] = [_init(f"i{number}", chance) for number in range(chance.randint(1, 3))]
        if chance.random() < 0.15:
            spec["overhead"] = {"cpu": chance.choice(AMOUNTS["cpu"]), "memory": chance.choice(AMOUNTS["memory"])}
        if chance.random() < 0.15:
            spec["resources"] = {"requests": {"cpu": chance.choice(AMOUNTS["cpu"]), "memory": "2Gi"}}


def _container(name: str, chance: Random) -> Json:
    requests = {each: chance.choice(AMOUNTS[each]) for each in RESOURCES if chance.random() < 0.4}
    return {"name": name, "resources": {"requests": requests} if requests else {}}


def _init(name: str, chance: Random) -> Json:
    container = _container(name, chance)
    return {**container, "restartPolicy": "Always"} if chance.random() < 0.5 else container


def affinity(nodes: list[Json], pods: list[Json], wanted: Json, chance: Random) -> None:
    """Required affinity over nodes and zones; sometimes nobody is meant but the pod itself."""
    if chance.random() < 0.9:
        terms = [_pod_term(chance) for _ in range(chance.randint(1, 2))]
        rules = wanted["spec"].setdefault("affinity", {})
        rules["podAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    for node in nodes:
        if chance.random() < 0.15:
            node["metadata"]["labels"].pop("topology.kubernetes.io/zone", None)


def anti_affinity(nodes: list[Json], pods: list[Json], wanted: Json, chance: Random) -> None:
    """Required anti-affinity over nodes and zones, of the wanted pod and of those that are there."""
    for pod in [*pods, wanted]:
        if chance.random() < 0.5:
            terms = [_pod_term(chance) for _ in range(chance.randint(1, 2))]
            rules = pod["spec"].setdefault("affinity", {})
            rules["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    for node in nodes:
        if chance.random() < 0.15:
            node["metadata"]["labels"].pop("topology.kubernetes.io/zone", None)


def topology_spread(nodes: list[Json], pods: list[Json], wanted: Json, chance: Random) -> None:
    """Hard and soft constraints over zones and nodes, with every policy; some pods are on their way out."""
    constraints = []
    for _ in range(chance.randint(1, 2)):
        constraint: Json = {
            "maxSkew": chance.randint(1, 2),
            "topologyKey": chance.choice(("kubernetes.io/hostname", "topology.kubernetes.io/zone", "disk")),
            "whenUnsatisfiable": chance.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
        }
        if chance.random() < 0.9:
            constraint["labelSelector"] = chance.choice(
                ({"matchLabels": {"app": chance.choice(APPS)}}, {"matchLabels": wanted["metadata"]["labels"]}, {})
            )
        if chance.random() < 0.3 and constraint["whenUnsatisfiable"] == "DoNotSchedule":
            constraint["minDomains"] = chance.randint(1, 4)
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if chance.random() < 0.5:
                constraint[policy] = chance.choice(("Honor", "Ignore"))
        if chance.random() < 0.3 and "labelSelector" in constraint and "app" in wanted["metadata"]["labels"]:
            # The API server has put the pod's own value there, as it does since 1.34.
            constraint["matchLabelKeys"] = ["app"]
            value = [wanted["metadata"]["labels"]["app"]]
            selector = dict(constraint["labelSelector"])
            selector["matchExpressions"] = [{"key": "app", "operator": "In", "values": value}]
            constraint["labelSelector"] = selector
        constraints.append(constraint)
    wanted["spec"]["topologySpreadConstraints"] = constraints
    for pod in pods:
        if chance.random() < 0.15:
            pod["metadata"]["deletionTimestamp"] = "2026-12-01T00:00:00Z"
    for node in nodes:
        if chance.random() < 0.2:
            node["spec"].setdefault("taints", []).append({"key": "k", "value": "1", "effect": "NoSchedule"})


def _pod_term(chance: Random) -> Json:
    term: Json = {"topologyKey": chance.choice(("kubernetes.io/hostname", "topology.kubernetes.io/zone"))}
    if chance.random() < 0.9:
        selector: Json = {"matchLabels": {"app": chance.choice(APPS)}}
        if chance.random() < 0.4:
            operator = chance.choice(("In", "NotIn", "Exists", "DoesNotExist"))
            expression: Json = {"key": "app", "operator": operator}
            if operator in ("In", "NotIn"):
                expression["values"] = chance.sample(APPS, chance.randint(1, 2))
            selector = {"matchExpressions": [expression]}
        term["labelSelector"] = selector
    if chance.random() < 0.4:
        term["namespaces"] = chance.sample(NAMESPACES, chance.randint(1, 2))
    if chance.random() < 0.3:
        term["namespaceSelector"] = chance.choice(
            (
                {},
                {"matchLabels": {"team": chance.choice(TEAMS)}},
                {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": [chance.choice(TEAMS)]}]},
            )
        )
    return term


Area = Callable[[list[Json], list[Json], Json, Random], None]
AREAS: tuple[Area, ...] = (
    unschedulable,
    taints,
    node_affinity,
    ports,
    resources,
    affinity,
    anti_affinity,
    topology_spread,
)
