"""Which pods are alike: what a class keeps, and what it looks past."""

import pytest

from nobiru.kernel.objects import Pod
from nobiru.placement.classes import ClassTable, PodClass
from tests.unit.placement.builders import (
    DAEMON_SET,
    HOSTNAME,
    REPLICA_SET,
    STATEFUL_SET,
    Json,
    anti_affinity,
    class_of,
    node_affinity,
    pod,
)


def token(suffix: str) -> list[dict[str, object]]:
    return [{"name": f"kube-api-access-{suffix}", "projected": {"sources": []}}]


def claim(name: str) -> list[dict[str, object]]:
    return [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]


def made_for(name: str) -> Json:
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    return node_affinity({"matchFields": [field]})


MIRROR = "kubernetes.io/config.mirror"
ALIKE = [
    ("other name and uid", pod("a"), pod("b")),
    ("bound or not", pod("a"), pod("a", node="n1")),
    ("token volume's suffix", pod("a", volumes=token("abcde")), pod("b", volumes=token("xyz12"))),
    ("order of labels", pod(labels={"a": "1", "b": "2"}), pod(labels={"b": "2", "a": "1"})),
    ("annotations that do not matter", pod(annotations={"x": "1"}), pod(annotations={"x": "2"})),
    (
        "number in a StatefulSet",
        pod("db-0", owner=STATEFUL_SET, labels={"statefulset.kubernetes.io/pod-name": "db-0", "app": "db"}),
        pod("db-1", owner=STATEFUL_SET, labels={"statefulset.kubernetes.io/pod-name": "db-1", "app": "db"}),
    ),
    ("each its own claim", pod("db-0", volumes=claim("data-db-0")), pod("db-1", volumes=claim("data-db-1"))),
    (
        "index in a Job",
        pod(labels={"batch.kubernetes.io/job-completion-index": "0"}),
        pod(labels={"batch.kubernetes.io/job-completion-index": "1"}),
    ),
    (
        "made for different nodes by a DaemonSet",
        pod(owner=DAEMON_SET, affinity=made_for("n1")),
        pod(owner=DAEMON_SET, affinity=made_for("n2")),
    ),
    (
        "mirrors of one manifest on two nodes",
        pod(annotations={MIRROR: "1"}, owner={"kind": "Node", "name": "n1", "uid": "1", "controller": True}),
        pod(annotations={MIRROR: "2"}, owner={"kind": "Node", "name": "n2", "uid": "2", "controller": True}),
    ),
]
DIFFERENT = [
    ("namespace", pod(namespace="a"), pod(namespace="b")),
    ("labels", pod(labels={"a": "1"}), pod(labels={"a": "2"})),
    ("request", pod(cpu="1"), pod(cpu="2")),
    ("owner", pod(owner=REPLICA_SET), pod(owner={**REPLICA_SET, "uid": "rs-2"})),
    ("no owner", pod(owner=REPLICA_SET), pod()),
    ("priority", pod(priority=1), pod(priority=2)),
    ("node selector", pod(nodeSelector={"a": "1"}), pod()),
    ("claim of the same name", pod("a", volumes=claim("one")), pod("b", volumes=claim("two"))),
    ("affinity by node that a human wrote", pod(affinity=made_for("n1")), pod(affinity=made_for("n2"))),
    (
        "safe-to-evict",
        pod(annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}),
        pod(annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}),
    ),
    ("volumes", pod(volumes=[{"name": "v", "emptyDir": {}}]), pod(volumes=[{"name": "v", "hostPath": {"path": "/"}}])),
]


@pytest.mark.parametrize(("one", "other"), [case[1:] for case in ALIKE], ids=[case[0] for case in ALIKE])
def test_alike(one: Pod, other: Pod) -> None:
    """Pods that nothing that matters tells apart are one class."""
    table = ClassTable()

    assert table.intern(one) is table.intern(other)
    assert len(table) == 1


@pytest.mark.parametrize(("one", "other"), [case[1:] for case in DIFFERENT], ids=[case[0] for case in DIFFERENT])
def test_different(one: Pod, other: Pod) -> None:
    """What changes where a pod fits, or how it is drained, makes another class."""
    table = ClassTable()

    assert table.intern(one) is not table.intern(other)


def test_what_a_class_says() -> None:
    """Everything a plan reads of a pod."""
    found = class_of(
        pod(
            "web-1",
            cpu="500m",
            memory="1Gi",
            labels={"app": "web"},
            annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "true", "other": "x"},
            owner=REPLICA_SET,
            priority=7,
            node="n1",
            volumes=token("abcde") + claim("shared"),
        )
    )

    assert found.request == {"cpu": 500, "memory": 2**30, "pods": 1}
    assert found.labels == {"app": "web"}
    assert found.annotations == {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    assert found.owner is not None
    assert found.owner.kind == "ReplicaSet"
    assert found.priority == 7
    assert found.spec.node_name == ""
    assert found.claims == ("shared",)
    assert (found.daemon, found.mirror, found.per_node_max, found.unplanned) == (False, False, 0, "")


def test_daemon_pods_are_of_their_templates_class() -> None:
    """A DaemonSet pod's class has the affinity of the template: without the node it was made for."""
    zone = {"key": "zone", "operator": "In", "values": ["a"]}
    name = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    table = ClassTable()
    plain = table.intern(pod(owner=DAEMON_SET))
    zoned = table.intern(pod(owner=DAEMON_SET, affinity=node_affinity({"matchExpressions": [zone]})))

    one = table.intern(
        pod("x", owner=DAEMON_SET, affinity=node_affinity({"matchExpressions": [zone], "matchFields": [name]}))
    )

    assert plain.daemon
    assert one is zoned
    assert table.intern(pod("y", owner=DAEMON_SET, affinity=made_for("n1"))) is plain


def test_classes_share_what_their_spec_says() -> None:
    """Jobs of one CronJob differ by labels and owner only: one spec in memory, as long as any of them is there."""
    table = ClassTable()
    one = table.intern(pod("a", labels={"job-name": "a"}, volumes=token("abcde")))
    two = table.intern(pod("b", labels={"job-name": "b"}, volumes=token("xyz12")))
    table.retire({0, 1})
    table.retire({1})
    again = table.intern(pod("c", labels={"job-name": "c"}, volumes=token("fghij")))

    assert one is not two
    assert one.spec is two.spec is again.spec
    assert one.request is two.request


def test_claims_of_replicas_stay_recognisable() -> None:
    """A claim that each replica has for itself ends in a star."""
    assert class_of(pod("db-3", volumes=claim("data-db-3"))).claims == ("data-*",)


SPREAD = {"maxSkew": 1, "topologyKey": "zone", "labelSelector": {}}


@pytest.mark.parametrize(
    ("given", "want"),
    [
        (pod(resourceClaims=[{"name": "gpu"}]), "resource claims"),
        (
            pod(
                affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}
            ),
            "required pod affinity",
        ),
        (pod(affinity=anti_affinity("zone")), "required pod anti-affinity over zone"),
        (pod(affinity=anti_affinity(namespaceSelector={})), "required pod anti-affinity with namespaceSelector"),
        (
            pod(topologySpreadConstraints=[{**SPREAD, "whenUnsatisfiable": "DoNotSchedule"}]),
            "topology spread over zone with DoNotSchedule",
        ),
        (pod(topologySpreadConstraints=[{**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}]), ""),
        (pod(affinity=anti_affinity(HOSTNAME)), ""),
        (pod(affinity={"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}), ""),
        (pod(cpu="many"), "spec.containers[main].resources.requests.cpu"),
    ],
)
def test_what_is_not_planned_says_so(given: Pod, want: str) -> None:
    """A rule that is not planned for is named, never ignored; a wish is no rule."""
    unplanned = class_of(given).unplanned

    assert unplanned.startswith(want)
    assert bool(unplanned) is bool(want)


@pytest.mark.parametrize(
    ("given", "want"),
    [
        (pod(labels={"app": "a"}, affinity=anti_affinity(labels={"app": "a"})), 1),
        (pod(labels={"app": "a"}, affinity=anti_affinity(labels={"app": "b"})), 0),
        (pod(labels={"app": "a"}, affinity=anti_affinity(labels={"app": "a"}, namespaces=["other"])), 0),
        (pod(containers=[{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]), 1),
        (pod(), 0),
    ],
)
def test_at_most_one_per_node(given: Pod, want: int) -> None:
    """Pods that repel their own kind, or hold a port of the host, are alone of their class on a node."""
    assert class_of(given).per_node_max == want


def sized(table: ClassTable, *sizes: int) -> list[PodClass]:
    return [table.intern(pod(cpu=f"{size}m")) for size in sizes]


def test_retired_classes_make_room() -> None:
    """A class that is neither used nor asked for goes; its index is taken again, and the old value is known to be old."""
    table = ClassTable()
    kept, asked, gone = sized(table, 1, 2, 3)
    table.retire({0, 1, 2})
    assert sized(table, 2) == [asked]

    table.retire({kept.index})

    assert table.holds(kept)
    assert table.holds(asked)
    assert not table.holds(gone)
    assert table.live == 2
    (new,) = sized(table, 3)
    assert new is not gone
    assert new.index == gone.index
    assert len(table) == 3
