"""The table of drain rules: which pods may move, which keep their node, and in which order the rules speak."""

import pytest
from msgspec import Struct

from nobiru.kernel.objects import EmptyDirVolume, HostPathVolume, Pod, PodDisruptionBudget, Volume
from nobiru.kernel.reason import BlockingPodReason
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import Controller, Rights
from nobiru.nodes.plan.disruption import Allowance, Budgets, match_budgets
from nobiru.nodes.plan.drain_rules import RULES, judge_class, subject_of, verdict_of
from nobiru.nodes.plan.loads import Load, Loads
from nobiru.placement.classes import MIRROR_ANNOTATION
from tests.unit.nodes.builders_down import (
    HOUR_S,
    NOW_MS,
    budget,
    daemon_pod,
    flags,
    node,
    owner,
    pod,
    world,
)

SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
LOCAL = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
DAEMON = "cluster-autoscaler.kubernetes.io/daemonset-pod"
SCRATCH = Volume(name="scratch", empty_dir=EmptyDirVolume())
CACHE = Volume(name="cache", empty_dir=EmptyDirVolume(medium="Memory"))
LOGS = Volume(name="logs", host_path=HostPathVolume(path="/var/log"))
PAIR = (budget("one", 1), budget("two", 1))


def controller(replicas: int = 3) -> dict[str, Controller]:
    """The ReplicaSet of every pod here, with so many replicas wanted."""
    return {
        "rs-web": Controller(kind="ReplicaSet", key=("default", "web"), uid="rs-web", replicas=replicas, existing=1)
    }


def custom(**given: str) -> NodesConfig:
    return flags(skip_nodes_with_custom_controller_pods="false", **given)


class Case(Struct, frozen=True, kw_only=True):
    """A pod, what surrounds it, and the verdict in one word: "move", "skip", "daemon" or the blocking reason's name."""

    name: str
    pod: Pod
    want: str
    config: NodesConfig = flags()
    budgets: tuple[PodDisruptionBudget, ...] = ()
    controllers: dict[str, Controller] | None = None
    unreadable: frozenset[str] = frozenset()
    rights: Rights = Rights()


CASES = [
    Case(name="a plain replica moves", pod=pod("p", "a"), want="move"),
    Case(
        name="1 a static pod goes with its node",
        pod=pod("p", "a", by=None, annotations={MIRROR_ANNOTATION: "x", SAFE: "false"}),
        want="skip",
    ),
    Case(
        name="2 a deletion that hangs is not waited for",
        pod=pod("p", "a", by=None, deleted_s=61, grace_s=30),
        want="skip",
    ),
    Case(
        name="2 a deletion that may still end is judged as the pod",
        pod=pod("p", "a", by=None, deleted_s=60, grace_s=30),
        want="NOT_REPLICATED",
    ),
    Case(
        name="2 a deletion hangs only after the pod's own grace",
        pod=pod("p", "a", by=None, deleted_s=61, grace_s=600),
        want="NOT_REPLICATED",
    ),
    Case(name="3 its controller is gone", pod=pod("p", "a"), controllers={}, want="CONTROLLER_NOT_FOUND"),
    Case(
        name="3 a gone controller outweighs safe-to-evict",
        pod=pod("p", "a", annotations={SAFE: "true"}),
        controllers={},
        want="CONTROLLER_NOT_FOUND",
    ),
    Case(name="3 controllers that cannot be read exist", pod=pod("p", "a"), controllers=None, want="move"),
    Case(
        name="3 a kind that cannot be read exists",
        pod=pod("p", "a"),
        controllers={},
        unreadable=frozenset({"ReplicaSet"}),
        want="move",
    ),
    Case(
        name="3 another kind's rights change nothing",
        pod=pod("p", "a"),
        controllers={},
        unreadable=frozenset({"Job"}),
        want="CONTROLLER_NOT_FOUND",
    ),
    Case(
        name="3 too few replicas",
        pod=pod("p", "a"),
        controllers=controller(2),
        config=flags(min_replica_count="3"),
        want="MIN_REPLICAS_REACHED",
    ),
    Case(
        name="3 replicas enough",
        pod=pod("p", "a"),
        controllers=controller(3),
        config=flags(min_replica_count="3"),
        want="move",
    ),
    Case(
        name="3 not asked without --skip-nodes-with-custom-controller-pods",
        pod=pod("p", "a"),
        controllers={},
        config=custom(),
        want="move",
    ),
    Case(
        name="4 a DaemonSet pod keeps no node",
        pod=daemon_pod("p", "a", annotations={SAFE: "false"}, volumes=[LOGS]),
        controllers={},
        want="daemon",
    ),
    Case(name="4 nor one that says it is one", pod=pod("p", "a", by=None, annotations={DAEMON: "true"}), want="daemon"),
    Case(
        name="5 safe-to-evict true outweighs all that follows",
        pod=pod("p", "a", by=None, namespace="kube-system", age_s=1, volumes=[LOGS], annotations={SAFE: "true"}),
        budgets=(budget("none", 0, namespace="kube-system"),),
        want="move",
    ),
    Case(
        name="7 on-completion waits",
        pod=pod("p", "a", by=None, annotations={SAFE: "on-completion"}),
        want="ON_COMPLETION",
    ),
    Case(name="8 nobody would create it again", pod=pod("p", "a", by=None), want="NOT_REPLICATED"),
    Case(name="8 an unknown kind of controller", pod=pod("p", "a", by=owner("Sparkler")), want="NOT_REPLICATED"),
    Case(
        name="8 any controller does without the flag",
        pod=pod("p", "a", by=owner("Sparkler")),
        config=custom(),
        want="move",
    ),
    Case(name="8 but none does not", pod=pod("p", "a", by=None), config=custom(), want="NOT_REPLICATED"),
    *(
        Case(name=f"8 a {kind} would", pod=pod("p", "a", by=owner(kind)), want="move")
        for kind in ("ReplicationController", "ReplicaSet", "Job", "StatefulSet")
    ),
    Case(
        name="10 safe-to-evict false",
        pod=pod("p", "a", annotations={SAFE: "false"}),
        want="NOT_SAFE_TO_EVICT",
    ),
    Case(
        name="10 before 9: also in kube-system, however old",
        pod=pod("p", "a", namespace="kube-system", age_s=2 * HOUR_S, annotations={SAFE: "false"}),
        want="NOT_SAFE_TO_EVICT",
    ),
    Case(
        name="10 before 9: also in kube-system, when young",
        pod=pod("p", "a", namespace="kube-system", age_s=1, annotations={SAFE: "false"}),
        want="NOT_SAFE_TO_EVICT",
    ),
    Case(name="11 emptyDir on disk", pod=pod("p", "a", volumes=[SCRATCH]), want="LOCAL_STORAGE_REQUESTED"),
    Case(name="11 hostPath", pod=pod("p", "a", volumes=[LOGS]), want="LOCAL_STORAGE_REQUESTED"),
    Case(name="11 emptyDir in memory", pod=pod("p", "a", volumes=[CACHE]), want="move"),
    Case(
        name="11 before 9: also in kube-system, however old",
        pod=pod("p", "a", namespace="kube-system", age_s=2 * HOUR_S, volumes=[SCRATCH]),
        want="LOCAL_STORAGE_REQUESTED",
    ),
    Case(
        name="11 all local volumes are let go",
        pod=pod("p", "a", volumes=[SCRATCH, LOGS], annotations={LOCAL: "logs, scratch"}),
        want="move",
    ),
    Case(
        name="11 one of them is not",
        pod=pod("p", "a", volumes=[SCRATCH, LOGS], annotations={LOCAL: "logs"}),
        want="LOCAL_STORAGE_REQUESTED",
    ),
    Case(
        name="11 switched off",
        pod=pod("p", "a", volumes=[SCRATCH, LOGS]),
        config=flags(skip_nodes_with_local_storage="false"),
        want="move",
    ),
    Case(
        name="11 release 1.2 took memory for local storage",
        pod=pod("p", "a", volumes=[CACHE]),
        config=flags(compat_version="1.2"),
        want="LOCAL_STORAGE_REQUESTED",
    ),
    Case(
        name="11 and knew no annotation",
        pod=pod("p", "a", volumes=[SCRATCH], annotations={LOCAL: "scratch"}),
        config=flags(compat_version="1.2"),
        want="LOCAL_STORAGE_REQUESTED",
    ),
    Case(
        name="9 a young kube-system pod without a budget",
        pod=pod("p", "a", namespace="kube-system", age_s=HOUR_S - 1),
        want="UNMOVABLE_KUBE_SYSTEM_POD",
    ),
    Case(name="9 an old one", pod=pod("p", "a", namespace="kube-system", age_s=HOUR_S), want="move"),
    Case(
        name="9 the age is a flag",
        pod=pod("p", "a", namespace="kube-system", age_s=60),
        config=flags(blocking_system_pod_distruption_timeout="1m"),
        want="move",
    ),
    Case(
        name="9 before release 1.33 age did not help",
        pod=pod("p", "a", namespace="kube-system", age_s=2 * HOUR_S),
        config=flags(compat_version="1.32"),
        want="UNMOVABLE_KUBE_SYSTEM_POD",
    ),
    Case(
        name="9 one with a budget",
        pod=pod("p", "a", namespace="kube-system", age_s=1),
        budgets=(budget("b", 1, namespace="kube-system"),),
        want="move",
    ),
    Case(
        name="9 a budget of another namespace is none",
        pod=pod("p", "a", namespace="kube-system", age_s=1),
        budgets=(budget("b", 1),),
        want="UNMOVABLE_KUBE_SYSTEM_POD",
    ),
    Case(
        name="9 budgets that cannot be read protect nothing",
        pod=pod("p", "a", namespace="kube-system", age_s=1),
        rights=Rights(unreadable=frozenset({"poddisruptionbudgets"})),
        want="UNMOVABLE_KUBE_SYSTEM_POD",
    ),
    Case(
        name="9 switched off",
        pod=pod("p", "a", namespace="kube-system", age_s=1),
        config=flags(skip_nodes_with_system_pods="false"),
        want="move",
    ),
    Case(name="12 its budget gives nothing", pod=pod("p", "a"), budgets=(budget("b", 0),), want="NOT_ENOUGH_PDB"),
    Case(name="12 its budget gives one", pod=pod("p", "a"), budgets=(budget("b", 1),), want="move"),
    Case(
        name="12 a budget over other labels",
        pod=pod("p", "a", labels={"app": "web"}),
        budgets=(budget("b", 0, labels={"app": "db"}),),
        want="move",
    ),
    Case(
        name="12 a budget over its labels",
        pod=pod("p", "a", labels={"app": "db"}),
        budgets=(budget("b", 0, labels={"app": "db"}),),
        want="NOT_ENOUGH_PDB",
    ),
    Case(
        name="12 a budget whose status is of an older spec gives nothing",
        pod=pod("p", "a"),
        budgets=(budget("b", 5, stale=True),),
        want="NOT_ENOUGH_PDB",
    ),
    Case(name="12 several budgets refuse for ever", pod=pod("p", "a"), budgets=PAIR, want="NOT_ENOUGH_PDB"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdict(case: Case) -> None:
    """The first rule that speaks decides; numbers are those of the specification's table."""
    snap = world(
        [node("a")],
        [case.pod],
        budgets=case.budgets,
        controllers=case.controllers,
        unreadable_owner_kinds=case.unreadable,
        rights=case.rights,
    ).snapshot()
    budgets = match_budgets(snap.budgets, snap.cluster.classes)
    entry = snap.cluster.pods[0][0]

    of_class = judge_class(subject_of(snap, budgets, case.config, entry.pod_class.index))
    got = verdict_of(entry, of_class, NOW_MS)

    assert (got.reason.name if got.kind == "block" and got.reason else got.kind) == case.want


def test_every_blocking_reason_has_a_case() -> None:
    """A BlockingPodReason that no rule gives, or no case shows, would be a word without meaning."""
    shown = {case.want for case in CASES}
    assert {reason.name for reason in BlockingPodReason} <= shown


def test_the_table_is_ordered_as_specified() -> None:
    """Order is meaning; the two deliberate moves before the kube-system rule are part of it."""
    names = [rule.__name__ for rule in RULES]
    assert names == [
        "_mirror",
        "_controller",
        "_daemon",
        "_safe",
        "_on_completion",
        "_replicated",
        "_not_safe",
        "_local_storage",
        "_system",
        "_budget",
    ]


def load_of(*pods: Pod, budgets: tuple[PodDisruptionBudget, ...] = ()) -> Load:
    """The load of one node with these pods."""
    return Loads(world([node("a")], pods, budgets=budgets).snapshot(), flags()).of(0)


def test_load_counts_classes() -> None:
    """Equal pods are one move; mirror and DaemonSet pods are none."""
    mirror = pod("m", "a", by=None, annotations={MIRROR_ANNOTATION: "x"})
    load = load_of(pod("p1", "a"), pod("p2", "a"), pod("q", "a", "50m"), mirror, daemon_pod("d", "a"))
    assert sorted(count for _, count in load.moves) == [1, 2]
    assert load.blocked is None
    assert not load.empty


def test_load_names_the_first_blocking_pod() -> None:
    """Of several blocking pods the first by key is named, whichever class it is of."""
    load = load_of(pod("z", "a", by=None), pod("b", "a", "10m", by=None), pod("a", "a", volumes=[SCRATCH]))
    assert load.blocked is not None
    assert (load.blocked.pod, load.blocked.reason) == (("default", "a"), BlockingPodReason.LOCAL_STORAGE_REQUESTED)


def test_load_waits_for_pods_on_their_way_out() -> None:
    """A replica being deleted needs no other place, but the node is not empty before it is gone."""
    load = load_of(pod("p", "a", deleted_s=-20))
    assert (load.moves, load.leaving, load.empty) == ((), 1, False)


def test_load_of_a_node_promised_to_a_pending_pod() -> None:
    """A nominated pod is not moved; the node is awaited."""
    load = load_of(pod("p", "a", nominated=True))
    assert (load.moves, load.awaited) == ((), True)


def test_load_with_pods_of_two_ages() -> None:
    """The kube-system rule looks at each pod's own age: the young one blocks until it is old enough."""
    young, old = pod("young", "a", namespace="kube-system", age_s=60), pod("old", "a", namespace="kube-system")
    load = load_of(old, young)
    assert [count for _, count in load.moves] == [1]
    assert load.blocked is not None
    assert load.blocked.pod == ("kube-system", "young")
    assert load.blocked.until_ms == NOW_MS + (HOUR_S - 60) * 1000


def test_allowance_is_spent_once() -> None:
    """What one pod takes of a budget is not there for the next, and nothing goes below zero."""
    allowance = Allowance(Budgets(keys=(("n", "b"),), allowed=(2,), covering={7: (0,)}))
    assert allowance.covers([(7, 2), (8, 9)])
    assert not allowance.covers([(7, 3)])
    allowance.spend(7)
    assert allowance.short([8, 7]) is None
    allowance.spend(7, 5)
    assert allowance.short([8, 7]) == (7, 0)
    assert allowance.left == [0]
