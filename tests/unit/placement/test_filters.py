"""Filters one by one: where a pod may run, and what is said where it may not."""

import pytest

from nobiru.kernel.objects import Pod
from nobiru.placement.columns import TemplateNode, columns_of_templates, request_matrix, resource_names
from nobiru.placement.filters import Refusal, fits, refusals, room
from tests.unit.placement.builders import (
    DAEMON_SET,
    HOSTNAME,
    Json,
    anti_affinity,
    books_of,
    class_of,
    cluster_of,
    node,
    node_affinity,
    pod,
    taint,
    waiting,
)


def need(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, "values": list(values)}


def expressions(*requirements: Json) -> Json:
    return {"matchExpressions": list(requirements)}


def fields(*requirements: Json) -> Json:
    return {"matchFields": list(requirements)}


NODES = (
    node("a", labels={"zone": "1", "cpus": "4"}),
    node("b", labels={"zone": "2", "cpus": "16"}, taints=[taint("team", "x")]),
    node("c", labels={"zone": "2"}, cordoned=True, taints=[taint("soft", effect="PreferNoSchedule")]),
    node("d", taints=[taint("gone", effect="NoExecute"), taint("team", "x")]),
)
BEARS_ALL = [{"operator": "Exists"}]
BEARS_TEAM = [{"key": "team", "value": "x"}]
CORDON = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]

CASES = [
    ("no rule", pod(), "a"),
    ("bears every taint, the cordon's too", pod(tolerations=BEARS_ALL), "abcd"),
    ("bears one taint", pod(tolerations=BEARS_TEAM), "ab"),
    ("bears the cordon", pod(tolerations=CORDON), "ac"),
    ("selector", pod(nodeSelector={"zone": "2"}, tolerations=BEARS_ALL), "bc"),
    ("two selectors", pod(nodeSelector={"zone": "2", "cpus": "16"}, tolerations=BEARS_ALL), "b"),
    ("selector nobody has", pod(nodeSelector={"x": "y"}, tolerations=BEARS_ALL), ""),
    ("no terms", pod(affinity=node_affinity(), tolerations=BEARS_ALL), ""),
    ("empty term", pod(affinity=node_affinity({}), tolerations=BEARS_ALL), ""),
    ("Gt", pod(affinity=node_affinity(expressions(need("cpus", "Gt", "4"))), tolerations=BEARS_ALL), "b"),
    ("Lt", pod(affinity=node_affinity(expressions(need("cpus", "Lt", "5"))), tolerations=BEARS_ALL), "a"),
    ("NotIn", pod(affinity=node_affinity(expressions(need("zone", "NotIn", "2"))), tolerations=BEARS_ALL), "ad"),
    ("Exists", pod(affinity=node_affinity(expressions(need("zone", "Exists"))), tolerations=BEARS_ALL), "abc"),
    (
        "DoesNotExist",
        pod(affinity=node_affinity(expressions(need("zone", "DoesNotExist"))), tolerations=BEARS_ALL),
        "d",
    ),
    (
        "terms are alternatives",
        pod(
            affinity=node_affinity(expressions(need("zone", "In", "1")), expressions(need("cpus", "In", "16"))),
            tolerations=BEARS_ALL,
        ),
        "ab",
    ),
    (
        "requirements all hold",
        pod(
            affinity=node_affinity(expressions(need("zone", "In", "2"), need("cpus", "Exists"))), tolerations=BEARS_ALL
        ),
        "b",
    ),
    (
        "selector and affinity both",
        pod(
            nodeSelector={"zone": "2"},
            affinity=node_affinity(expressions(need("cpus", "DoesNotExist"))),
            tolerations=BEARS_ALL,
        ),
        "c",
    ),
    ("field", pod(affinity=node_affinity(fields(need("metadata.name", "In", "d"))), tolerations=BEARS_ALL), "d"),
    (
        "field, not",
        pod(affinity=node_affinity(fields(need("metadata.name", "NotIn", "d"))), tolerations=BEARS_ALL),
        "abc",
    ),
    ("field, nobody", pod(affinity=node_affinity(fields(need("metadata.name", "In", "x"))), tolerations=BEARS_ALL), ""),
    ("field, two values", pod(affinity=node_affinity(fields(need("metadata.name", "In", "a", "b")))), ""),
    ("field, other operator", pod(affinity=node_affinity(fields(need("metadata.name", "Exists")))), ""),
    ("field, other name", pod(affinity=node_affinity(fields(need("metadata.uid", "In", "a")))), ""),
    (
        "field and label",
        pod(
            affinity=node_affinity(
                {**fields(need("metadata.name", "NotIn", "b")), **expressions(need("zone", "In", "2"))}
            ),
            tolerations=BEARS_ALL,
        ),
        "c",
    ),
    (
        "a resource that nobody has",
        pod(containers=[{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}], tolerations=BEARS_ALL),
        "",
    ),
    (
        "none of a resource that nobody has",
        pod(containers=[{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "0"}}}]),
        "a",
    ),
    ("a rule not planned for", pod(resourceClaims=[{"name": "x"}]), ""),
    ("a DaemonSet's rule not planned for", pod(resourceClaims=[{"name": "x"}], owner=DAEMON_SET), "a"),
]


@pytest.mark.parametrize(("given", "want"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_fits(given: Pod, want: str) -> None:
    """The nodes, by name, where one pod may run."""
    nodes = cluster_of(*NODES).nodes
    mask = fits([class_of(given)], nodes)

    assert "".join(name for name, fit in zip(nodes.names, mask[0], strict=True) if fit) == want


@pytest.mark.parametrize(("given", "want"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_refusals_agree_with_fits(given: Pod, want: str) -> None:
    """A node gives a reason exactly where the pod does not fit."""
    nodes = cluster_of(*NODES).nodes
    pod_class = class_of(given)

    assert "".join(name for place, name in enumerate(nodes.names) if not refusals(pod_class, nodes, place)) == want


def test_many_classes_at_once() -> None:
    """Each row is what the class alone would get."""
    nodes = cluster_of(*NODES).nodes
    classes = [class_of(case[1]) for case in CASES]
    together = fits(classes, nodes)

    for row, pod_class in enumerate(classes):
        assert together[row].tolist() == fits([pod_class], cluster_of(*NODES).nodes)[0].tolist()


def port(number: int, **more: Json) -> Json:
    return [{"name": "c", "ports": [{"containerPort": number, "hostPort": number, **more}]}]


def test_host_ports() -> None:
    """A node whose port is taken, on that address and protocol, takes no other pod with it."""
    nodes = cluster_of(
        node("a"),
        node("b"),
        node("c"),
        pod("p", containers=port(80), node="a"),
        pod("q", containers=port(80, protocol="UDP"), node="b"),
        pod("r", containers=port(80, hostIP="10.0.0.1"), node="c"),
    ).nodes
    plain, local = class_of(pod(containers=port(80))), class_of(pod(containers=port(80, hostIP="10.0.0.2")))

    assert fits([plain, local], nodes).tolist() == [[False, True, False], [False, True, True]]
    assert refusals(plain, nodes, 0) == (
        Refusal(
            reason="node(s) didn't have free ports for the requested pod ports", detail="host port TCP 80 is taken"
        ),
    )


def test_daemons_ports_on_a_template() -> None:
    """A port that a DaemonSet will hold on the new node is taken."""
    template = TemplateNode(name="t", allocatable={"pods": 9, "cpu": 9000}, ports=frozenset({("TCP", "0.0.0.0", 80)}))
    columns = columns_of_templates([template], resource_names([template], []))

    assert fits([class_of(pod(containers=port(80))), class_of(pod())], columns).tolist() == [[False], [True]]


def test_room() -> None:
    """One more pod fits; what is not asked for does not matter, however overdrawn."""
    nodes = cluster_of(
        node("a", cpu="1", memory="1Gi", pods="2"),
        node("full", pods="1"),
        node("over", cpu="1", memory="1Gi"),
        pod("p", "500m", node="a"),
        pod("q", node="full"),
        pod("r", "2", node="over"),
    ).nodes
    request = request_matrix(
        [class_of(pod(cpu="500m")), class_of(pod(cpu="501m")), class_of(pod(cpu="", memory="1Gi"))], nodes.resources
    )

    assert nodes.names == ("a", "full", "over")
    assert room(request, nodes).tolist() == [[True, False, False], [False, False, False], [True, False, True]]


def test_refusals_name_what_failed() -> None:
    """Kube-scheduler's texts for events, and the names and numbers for people."""
    nodes = cluster_of(
        node("a", cpu="2", pods="1", cordoned=True, labels={"zone": "2"}, taints=[taint("team", "x")]),
        pod("p", "220m", node="a"),
    ).nodes
    big = class_of(pod(cpu="1900m", memory="20Gi", nodeSelector={"zone": "1"}))

    assert refusals(big, nodes, 0) == (
        Refusal(reason="node(s) were unschedulable", detail="the node is cordoned"),
        Refusal(reason="node(s) had untolerated taint(s)", detail="untolerated taint {team: x}"),
        Refusal(
            reason="node(s) didn't match Pod's node affinity/selector",
            detail="node selector zone=1: the node has zone=2",
        ),
        Refusal(reason="Insufficient cpu", detail="cpu: needs 1900m, 1780m free"),
        Refusal(reason="Insufficient memory", detail="memory: needs 20Gi, 16Gi free"),
        Refusal(reason="Too many pods", detail="pods: needs 1, 0 free"),
    )


def test_refusals_of_affinity_and_unknown_resources() -> None:
    """The missing label, the affinity, the resource that the node does not have, the rule not planned for."""
    nodes = cluster_of(node("a")).nodes
    gpu = [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]
    odd = class_of(pod(nodeSelector={"zone": "1"}, containers=gpu, resourceClaims=[{"name": "x"}]))
    far = class_of(pod(affinity=node_affinity(expressions(need("zone", "In", "1")))))

    assert [each.detail for each in refusals(odd, nodes, 0)] == [
        "node selector zone=1: the node has no such label",
        "nvidia.com/gpu: needs 1, 0 free",
        "resource claims (dynamic resource allocation)",
    ]
    assert [each.detail for each in refusals(far, nodes, 0)] == [
        "no term of the required node affinity matches the node"
    ]


def test_what_was_worked_out_is_kept_and_bounded() -> None:
    """Masks are remembered with the nodes, and forgotten before they grow without end."""
    books = books_of(node("a", labels={"zone": "1"}))
    nodes = books.freeze().nodes
    for number in range(2_100):
        fits([class_of(pod(nodeSelector={"zone": str(number)}))], nodes)
    books.upsert_pod(waiting("p"))

    assert 0 < len(books.freeze().nodes.memo.masks) <= 2_000
    assert fits([class_of(pod(nodeSelector={"zone": "1"}))], nodes).all()


ZONES = (
    node("a", labels={"zone": "1"}),
    node("b", labels={"zone": "1"}),
    node("c", labels={"zone": "2"}),
    node("d", labels={HOSTNAME: "d"}),
)
WEB = {"app": "web"}


def test_own_anti_affinity_keeps_off_nodes_that_hold_what_it_avoids() -> None:
    """Over hostnames, in its own namespace unless it names others."""
    nodes = cluster_of(
        *ZONES, pod("p", labels=WEB, node="a"), pod("q", labels=WEB, node="b", namespace="other"), pod("r", node="c")
    ).nodes
    here = class_of(pod(affinity=anti_affinity(labels=WEB)))
    there = class_of(pod(affinity=anti_affinity(labels=WEB, namespaces=["other"])))

    assert fits([here, there], nodes).tolist() == [[False, True, True, True], [True, False, True, True]]
    assert [each.reason for each in refusals(here, nodes, 0)] == ["node(s) didn't match pod anti-affinity rules"]


def test_anti_affinity_of_pods_that_are_there_keeps_others_off_their_whole_domain() -> None:
    """Over zones too; nodes without the label are in no domain."""
    nodes = cluster_of(*ZONES, pod("p", affinity=anti_affinity("zone", WEB), node="a")).nodes
    web, other = class_of(pod(labels=WEB)), class_of(pod(labels={"app": "other"}))

    assert fits([web, other], nodes).tolist() == [[False, False, True, True], [True, True, True, True]]
    assert [each.reason for each in refusals(web, nodes, 1)] == [
        "node(s) didn't satisfy existing pods anti-affinity rules"
    ]


def test_a_namespace_selector_of_pods_that_are_there_counts_for_every_namespace() -> None:
    """Labels of namespaces are not known here: rather kept off once too often than placed wrongly."""
    nodes = cluster_of(*ZONES, pod("p", affinity=anti_affinity(labels=WEB, namespaceSelector={}), node="a")).nodes

    assert fits([class_of(pod(labels=WEB, namespace="far"))], nodes).tolist() == [[False, True, True, True]]
