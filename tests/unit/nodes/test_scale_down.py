"""Which nodes are unneeded, since when, and what begins: whole plans, with a Reason for every node left alone."""

import pytest
from msgspec import Struct
from msgspec.structs import replace

from nobiru.kernel.reason import BlockingPodReason, Reason
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import BeginRemoval, Freshness, Memory, RemovalNote, Rights
from nobiru.nodes.plan.conditions import GPU_LABEL
from nobiru.nodes.plan.scale_options import OPTION_TAG
from tests.unit.nodes.builders_down import (
    HOUR_S,
    NOW_MS,
    World,
    acts,
    budget,
    candidate,
    daemon_pod,
    due,
    flags,
    group,
    marked,
    node,
    plan,
    pod,
    reasons,
    unneeded,
    world,
)

SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
NO_SOFT = {"max_bulk_soft_taint_count": "0"}


class Case(Struct, frozen=True, kw_only=True):
    """A world, and the whole plan for it: actions in order, and the Reason of every node left alone."""

    name: str
    given: World
    acts: list[str]
    left: dict[str, str]
    config: NodesConfig = flags()


def check(case: Case) -> None:
    """Compare the whole plan; every node is acted on or has its Reason."""
    got = plan(case.given, case.config)
    assert (acts(got.actions), reasons(got)) == (case.acts, case.left)
    begun = {action.node for action in got.actions if isinstance(action, BeginRemoval)}
    assert begun | got.nodes.keys() == {each.name for each in case.given.nodes}


busy = pod("busy", "busy", "800m")
FULL = (node("busy"), busy)

ELIGIBILITY = [
    Case(
        name="no group owns it",
        given=world([node("a"), node("b", provider_id="")], groups=(group("g", "a", min_size=1),)),
        acts=[],
        left={"a": "GROUP_AT_MIN_SIZE", "b": "NOT_AUTOSCALED"},
    ),
    Case(
        name="its group has a problem",
        given=world([node("a")], groups=(group("g", "a", problem="AccessDenied"),), memory=due("a")),
        acts=[],
        left={"a": "GROUP_PROBLEM"},
    ),
    Case(
        name="the cloud is taking the machine away",
        given=world([node("a"), node("b")], groups=(group("g", "a b", leaving=("a",)),), memory=due("a")),
        acts=["mark b 0s"],
        left={"a": "BEING_DELETED", "b": "NOT_UNNEEDED_LONG_ENOUGH"},
    ),
    Case(
        name="we terminated the machine, the cloud still lists it",
        given=world([node("a")], memory=Memory(terminating={"i-a": NOW_MS - 5_000})),
        acts=[],
        left={"a": "BEING_DELETED"},
    ),
    Case(
        name="the group is at its minimum: not even a soft taint",
        given=world([node("a")], groups=(group("g", "a", min_size=1),), memory=due("a")),
        acts=[],
        left={"a": "GROUP_AT_MIN_SIZE"},
    ),
    Case(
        name="a machine that never became a node is nobody's reserve",
        given=world(
            [node("a")],
            groups=(group("g", "a", min_size=1, extra=("ghost",)),),
            memory=Memory(unregistered_since_ms={"i-ghost": NOW_MS - HOUR_S * 1000}),
        ),
        acts=[],
        left={"a": "GROUP_AT_MIN_SIZE"},
    ),
    Case(
        name="a machine still booting is one",
        given=world([node("a")], groups=(group("g", "a", min_size=1, extra=("boot",)),), memory=due("a")),
        acts=["begin a empty"],
        left={},
    ),
    Case(
        name="desired 0 with machines running: they go, down to the minimum",
        given=world([node("a"), node("b")], groups=(group("g", "a b", desired=0, max_size=0),), memory=due("a", "b")),
        acts=["begin a empty", "begin b empty"],
        left={},
    ),
    Case(
        name="annotated scale-down-disabled",
        given=world([node("a", annotations={DISABLED: "true"})], memory=due("a")),
        acts=[],
        left={"a": "SCALE_DOWN_DISABLED"},
    ),
    Case(
        name="another value of the annotation is no refusal",
        given=world([node("a", annotations={DISABLED: "false"})], memory=due("a")),
        acts=["begin a empty"],
        left={},
    ),
    Case(
        name="still starting",
        given=world([node("a", unready_s=60, age_s=60)], memory=due("a")),
        acts=[],
        left={"a": "UNREADY_STARTING"},
    ),
    Case(
        name="not ready, and such nodes stay by flag",
        given=world([node("a", unready_s=HOUR_S, age_s=2 * HOUR_S)], memory=due("a")),
        config=flags(scale_down_unready_enabled="false"),
        acts=[],
        left={"a": "SCALE_DOWN_UNREADY_DISABLED"},
    ),
    Case(
        name="not ready for long enough",
        given=world([node("a", unready_s=HOUR_S, age_s=2 * HOUR_S)], memory=unneeded(a=20 * 60 + 0.001)),
        acts=["begin a empty"],
        left={},
    ),
    Case(
        name="not ready, not for long enough",
        given=world([node("a", unready_s=HOUR_S, age_s=2 * HOUR_S)], memory=unneeded(a=20 * 60)),
        acts=["mark a 1200s"],
        left={"a": "NOT_UNREADY_LONG_ENOUGH"},
    ),
    Case(
        name="pending pods are planned onto it",
        given=world([candidate(node("a"), 60)], memory=due("a"), needed=frozenset({"a"})),
        acts=["unmark a"],
        left={"a": "NEEDED_FOR_PENDING"},
    ),
    Case(
        name="a pending pod is nominated to it",
        given=world([node("a")], [pod("p", "a", nominated=True)], memory=due("a")),
        acts=[],
        left={"a": "NEEDED_FOR_PENDING"},
    ),
    Case(
        name="its removal failed a minute ago",
        given=world([node("a")], memory=replace(due("a"), failed_removal_ms={"a": NOW_MS - 60_000})),
        acts=[],
        left={"a": "RECENTLY_UNREMOVABLE"},
    ),
    Case(
        name="it reports no cpu",
        given=world([node("a", cpu="0")], memory=due("a")),
        acts=[],
        left={"a": "NO_ALLOCATABLE"},
    ),
    Case(
        name="used above the threshold, by cpu or by memory",
        given=world(
            [node("cpu"), node("memory", memory="1Gi")],
            [pod("p", "cpu", "501m"), pod("q", "memory", "10m", memory="513Mi")],
        ),
        acts=[],
        left={"cpu": "NOT_UNDERUTILIZED", "memory": "NOT_UNDERUTILIZED"},
    ),
    Case(
        name="at the threshold itself it is not",
        given=world([node("a"), node("b")], [pod("p", "a", "500m"), pod("q", "b", "501m")], memory=unneeded(a=1)),
        acts=[],
        left={"a": "NO_PLACE_TO_MOVE_PODS", "b": "NOT_UNDERUTILIZED"},
    ),
    Case(
        name="in release 1.2 it was",
        given=world([node("a")], [pod("p", "a", "500m")]),
        config=flags(compat_version="1.2"),
        acts=[],
        left={"a": "NOT_UNDERUTILIZED"},
    ),
    Case(
        name="nodes cannot be patched",
        given=world([node("a")], rights=Rights(update_nodes=False), memory=due("a")),
        acts=[],
        left={"a": "NODE_UPDATE_NOT_ALLOWED"},
    ),
    Case(
        name="instances cannot be terminated: a soft taint goes",
        given=world(
            [candidate(node("a"), 60)],
            rights=Rights(denied_aws=frozenset({"autoscaling:TerminateInstanceInAutoScalingGroup"})),
            memory=due("a"),
        ),
        acts=["unmark a"],
        left={"a": "TERMINATE_NOT_ALLOWED"},
    ),
    Case(
        name="pods cannot be evicted: empty nodes go, others are never marked",
        given=world(
            [node("a"), node("b"), node("c")],
            [pod("p", "a"), daemon_pod("d", "b")],
            rights=Rights(evict=False),
            memory=due("a", "b"),
        ),
        acts=["mark c 0s", "begin b empty"],
        left={"a": "EVICTION_NOT_ALLOWED", "c": "NOT_UNNEEDED_LONG_ENOUGH"},
    ),
    Case(
        name="pods on their way out need no eviction, only patience",
        given=world([node("a")], [pod("p", "a", deleted_s=-20)], rights=Rights(evict=False), memory=due("a")),
        acts=["mark a 3600s"],
        left={"a": "EVICTION_NOT_ALLOWED"},
    ),
    Case(
        name="a pod must not be moved",
        given=world([node("a"), node("b")], [pod("p", "a", annotations={SAFE: "false"}), pod("q", "b", "600m")]),
        acts=[],
        left={"a": "BLOCKED_BY_POD", "b": "NOT_UNDERUTILIZED"},
    ),
    Case(
        name="its pods fit nowhere else",
        given=world([node("a"), FULL[0]], [pod("p", "a", "300m"), busy], memory=due("a")),
        acts=[],
        left={"a": "NO_PLACE_TO_MOVE_PODS", "busy": "NOT_UNDERUTILIZED"},
    ),
    Case(
        name="one of two moves onto the other, which then stays",
        given=world([node("a"), node("b")], [pod("p", "a", "200m"), pod("q", "b", "300m")], memory=due("a")),
        acts=["begin a moving p"],
        left={"b": "TOOK_PODS"},
    ),
]


@pytest.mark.parametrize("case", ELIGIBILITY, ids=lambda case: case.name)
def test_eligibility(case: Case) -> None:
    """Each Reason that keeps a node from being unneeded."""
    check(case)


DESTINATIONS = [
    Case(
        name="a starting node takes no pods",
        given=world([node("a"), node("b", unready_s=30, age_s=30)], [pod("p", "a", "200m")], memory=due("a")),
        acts=[],
        left={"a": "NO_PLACE_TO_MOVE_PODS", "b": "UNREADY_STARTING"},
    ),
    Case(
        name="an unready node takes none",
        given=world(
            [node("a"), node("b", unready_s=HOUR_S, age_s=2 * HOUR_S)],
            [pod("p", "a", "200m")],
            memory=due("a"),
            groups=(group("g", "a"), group("h", "b", min_size=1)),
        ),
        acts=[],
        left={"a": "NO_PLACE_TO_MOVE_PODS", "b": "GROUP_AT_MIN_SIZE"},
    ),
    Case(
        name="a cordoned one takes none",
        given=world(
            [node("a"), node("b", cordoned=True)],
            [pod("p", "a", "200m")],
            memory=due("a"),
            groups=(group("g", "a"), group("h", "b", min_size=1)),
        ),
        acts=[],
        left={"a": "NO_PLACE_TO_MOVE_PODS", "b": "GROUP_AT_MIN_SIZE"},
    ),
    Case(
        name="one whose machine is leaving takes none",
        given=world(
            [node("a"), node("b")],
            [pod("p", "a", "200m")],
            memory=due("a"),
            groups=(group("g", "a b", leaving=("b",)),),
        ),
        acts=[],
        left={"a": "NO_PLACE_TO_MOVE_PODS", "b": "BEING_DELETED"},
    ),
    Case(
        name="one whose own removal just failed takes none, or pods go to and fro",
        given=world(
            [node("a"), node("b")],
            [pod("p", "a", "200m")],
            memory=replace(due("a"), failed_removal_ms={"b": NOW_MS - 60_000}),
        ),
        acts=[],
        left={"a": "NO_PLACE_TO_MOVE_PODS", "b": "RECENTLY_UNREMOVABLE"},
    ),
    Case(
        name="one that we marked, though it does not show yet, takes none",
        given=world(
            [node("a"), node("b")],
            [pod("p", "a", "200m")],
            memory=replace(due("a"), removing={"b": RemovalNote(begun_ms=NOW_MS - 500, kind="empty")}),
        ),
        acts=[],
        left={"a": "NO_PLACE_TO_MOVE_PODS", "b": "BEING_DELETED"},
    ),
    Case(
        name="a node outside all groups does",
        given=world([node("a"), node("b")], [pod("p", "a", "200m")], memory=due("a"), groups=(group("g", "a"),)),
        acts=["begin a moving p"],
        left={"b": "NOT_AUTOSCALED"},
    ),
    Case(
        name="room that a removal under way needs is not given twice",
        given=world(
            [node("a"), marked(node("b"), 2), node("c")],
            [pod("p", "a", "300m"), pod("q", "b", "300m"), pod("r", "c", "600m")],
            memory=due("a"),
        ),
        config=flags(max_drain_parallelism="5"),
        acts=[],
        left={"a": "NO_PLACE_TO_MOVE_PODS", "b": "BEING_DELETED", "c": "NOT_UNDERUTILIZED"},
    ),
    Case(
        name="a pod with a node selector moves only where it holds",
        given=world(
            [node("a", labels={"disk": "ssd"}), node("b")],
            [pod("p", "a", "200m", node_selector={"disk": "ssd"}), pod("q", "b", "600m")],
            memory=due("a"),
        ),
        acts=[],
        left={"a": "NO_PLACE_TO_MOVE_PODS", "b": "NOT_UNDERUTILIZED"},
    ),
]


@pytest.mark.parametrize("case", DESTINATIONS, ids=lambda case: case.name)
def test_destinations(case: Case) -> None:
    """Moved pods are promised room only on nodes that stay and are ready for them."""
    check(case)


def four(**memory: float) -> World:
    """Four nodes: two empty ones, two with a pod; a fifth that is full of room."""
    return world(
        [node("a"), node("b"), node("c"), node("d"), node("room", cpu="8000m")],
        [pod("p", "a", "300m"), pod("q", "b", "100m"), pod("r", "room", "5000m")],
        memory=unneeded(**memory),
    )


ORDER = [
    Case(
        name="empty nodes first, then by how long they are unneeded",
        given=four(a=4_000, b=3_600, c=3_000, d=3_600),
        config=flags(max_drain_parallelism="9", **NO_SOFT),
        acts=["begin d empty", "begin c empty", "begin a moving p", "begin b moving q"],
        left={"room": "NOT_UNDERUTILIZED"},
    ),
    Case(
        name="at equal times the least used, then the name",
        given=four(a=3_600, b=3_600, c=3_600, d=3_600),
        config=flags(max_drain_parallelism="9", **NO_SOFT),
        acts=["begin c empty", "begin d empty", "begin b moving q", "begin a moving p"],
        left={"room": "NOT_UNDERUTILIZED"},
    ),
    Case(
        name="one drain at a time",
        given=four(a=3_600, b=3_600, c=3_600, d=3_600),
        config=flags(**NO_SOFT),
        acts=["begin c empty", "begin d empty", "begin b moving q"],
        left={"a": "DELETION_BUDGET", "room": "NOT_UNDERUTILIZED"},
    ),
    Case(
        name="so many in all",
        given=four(a=3_600, b=3_600, c=3_600, d=3_600),
        config=flags(max_scale_down_parallelism="1", **NO_SOFT),
        acts=["begin c empty"],
        left={"a": "DELETION_BUDGET", "b": "DELETION_BUDGET", "d": "DELETION_BUDGET", "room": "NOT_UNDERUTILIZED"},
    ),
    Case(
        name="removals under way count, also those that do not show yet",
        given=world(
            [node("a"), node("b"), marked(node("c"), 1)],
            memory=replace(due("a"), removing={"b": RemovalNote(begun_ms=NOW_MS - 200, kind="empty")}),
        ),
        config=flags(max_scale_down_parallelism="2", **NO_SOFT),
        acts=[],
        left={"a": "DELETION_BUDGET", "b": "BEING_DELETED", "c": "BEING_DELETED"},
    ),
    Case(
        name="a machine that is terminated counts no more",
        given=world(
            [node("a"), marked(node("b"), 60)],
            memory=replace(due("a"), terminating={"i-b": NOW_MS - 1_000}),
        ),
        config=flags(max_scale_down_parallelism="1", **NO_SOFT),
        acts=["begin a empty"],
        left={"b": "BEING_DELETED"},
    ),
    Case(
        name="never below the group's minimum",
        given=world(
            [node("a"), node("b"), node("c")],
            groups=(group("g", "a b c", min_size=2),),
            memory=due("a", "b", "c"),
        ),
        config=flags(**NO_SOFT),
        acts=["begin a empty"],
        left={"b": "GROUP_AT_MIN_SIZE", "c": "GROUP_AT_MIN_SIZE"},
    ),
    Case(
        name="the minimum counts what is going already",
        given=world(
            [node("a"), node("b"), marked(node("c"), 1)],
            groups=(group("g", "a b c", min_size=2),),
            memory=due("a", "b"),
        ),
        config=flags(**NO_SOFT),
        acts=[],
        left={"a": "GROUP_AT_MIN_SIZE", "b": "GROUP_AT_MIN_SIZE", "c": "BEING_DELETED"},
    ),
    Case(
        name="never below --cores-total",
        given=world([node("a"), node("b"), node("c")], memory=due("a", "b", "c")),
        config=flags(cores_total="2:100", **NO_SOFT),
        acts=["begin a empty"],
        left={"b": "MINIMAL_RESOURCE_LIMIT", "c": "MINIMAL_RESOURCE_LIMIT"},
    ),
    Case(
        name="never below --memory-total",
        given=world([node("a"), node("b")], memory=due("a", "b")),
        config=flags(memory_total="5:100", **NO_SOFT),
        acts=[],
        left={"a": "MINIMAL_RESOURCE_LIMIT", "b": "MINIMAL_RESOURCE_LIMIT"},
    ),
    Case(
        name="the brake counts the last ten minutes and what goes",
        given=world(
            [node("a"), node("b"), node("c")],
            memory=replace(due("a", "b", "c"), terminated_ms=(NOW_MS - 700_000, NOW_MS - 500_000)),
        ),
        config=flags(max_terminations_per_10m="2", **NO_SOFT),
        acts=["begin a empty"],
        left={"b": "BRAKE", "c": "BRAKE"},
    ),
    Case(
        name="0 is no brake",
        given=world([node("a")], memory=replace(due("a"), terminated_ms=(NOW_MS,) * 1_000)),
        config=flags(max_terminations_per_10m="0", **NO_SOFT),
        acts=["begin a empty"],
        left={},
    ),
    Case(
        name="no cordon by flag",
        given=world([node("a")], memory=due("a")),
        config=flags(cordon_node_before_terminating="false"),
        acts=["begin a empty"],
        left={},
    ),
]


@pytest.mark.parametrize("case", ORDER, ids=lambda case: case.name)
def test_order_and_budgets(case: Case) -> None:
    """What begins in this loop, in which order, and what each other unneeded node waits for."""
    check(case)


def pair(allowed: int, pods_each: int = 1, **more: object) -> World:
    """Two nodes whose pods share one PodDisruptionBudget, and a third with room for all."""
    pods = [pod(f"{on}{number}", on, "50m", labels={"app": "x"}) for on in ("a", "b") for number in range(pods_each)]
    return world(
        [node("a"), node("b"), node("room", cpu="8000m")],
        [*pods, pod("r", "room", "5000m")],
        budgets=(budget("x", allowed, labels={"app": "x"}),),
        memory=due("a", "b"),
        **more,
    )


DISRUPTION = [
    Case(
        name="a spent budget blocks",
        given=pair(0),
        config=flags(max_drain_parallelism="9"),
        acts=[],
        left={"a": "BLOCKED_BY_POD", "b": "BLOCKED_BY_POD", "room": "NOT_UNDERUTILIZED"},
    ),
    Case(
        name="what the first takes is not there for the second, whose timer runs on",
        given=pair(1),
        config=flags(max_drain_parallelism="9", **NO_SOFT),
        acts=["begin a moving a0"],
        left={"b": "BLOCKED_BY_POD", "room": "NOT_UNDERUTILIZED"},
    ),
    Case(
        name="enough for both",
        given=pair(2),
        config=flags(max_drain_parallelism="9", **NO_SOFT),
        acts=["begin a moving a0", "begin b moving b0"],
        left={"room": "NOT_UNDERUTILIZED"},
    ),
    Case(
        name="a node that asks for more than the budget gives at once may go, alone",
        given=pair(1, pods_each=2),
        config=flags(max_drain_parallelism="9", **NO_SOFT),
        acts=["begin a moving a0 a1"],
        left={"b": "BLOCKED_BY_POD", "room": "NOT_UNDERUTILIZED"},
    ),
    Case(
        name="pods still to be evicted elsewhere keep their part of the budget",
        given=replace(pair(1), nodes=(marked(node("a"), 2), node("b"), node("room", cpu="8000m"))),
        config=flags(max_drain_parallelism="9", **NO_SOFT),
        acts=[],
        left={"a": "BEING_DELETED", "b": "BLOCKED_BY_POD", "room": "NOT_UNDERUTILIZED"},
    ),
]


@pytest.mark.parametrize("case", DISRUPTION, ids=lambda case: case.name)
def test_disruption_budgets(case: Case) -> None:
    """No plan begins what a PodDisruptionBudget would then refuse."""
    check(case)


def test_safe_to_evict_does_not_overspend_a_budget() -> None:
    """The annotation makes the node unneeded, as the peer has it; what the API server would refuse is still not begun."""
    given = world(
        [node("a"), node("room", cpu="8000m")],
        [pod("p", "a", annotations={SAFE: "true"}), pod("r", "room", "5000m")],
        budgets=(budget("b", 0),),
        memory=due("a"),
    )
    got = plan(given, flags(**NO_SOFT))
    assert (acts(got.actions), got.unneeded) == ([], ("a",))
    assert got.blocking == {"a": (("default", "p"), BlockingPodReason.NOT_ENOUGH_PDB)}


def test_blocking_pod_is_named() -> None:
    """`blocking` has the pod and the reason; the Why says both in words."""
    got = plan(world([node("a"), node("b")], [pod("p", "a", by=None), pod("q", "b", "600m")]))
    assert got.blocking == {"a": (("default", "p"), BlockingPodReason.NOT_REPLICATED)}
    assert got.nodes["a"].detail == "default/p: no controller would create it again"


def test_begin_says_all_that_acting_needs() -> None:
    """Group, instance, utilisation, pods that move; DaemonSet and leaving pods do not."""
    given = world(
        [node("a"), node("b")],
        [pod("p", "a", "200m"), daemon_pod("d", "a"), pod("gone", "a", deleted_s=-10), pod("q", "b", "600m")],
        memory=due("a"),
    )
    assert plan(given, flags(cordon_node_before_terminating="false")).actions == (
        BeginRemoval(
            node="a",
            group="g",
            instance="i-a",
            empty=False,
            utilization=0.4,
            pods=(("default", "p"),),
            cordon=False,
        ),
    )


# Timers


class Timer(Struct, frozen=True, kw_only=True):
    """A world with one idle node "a", and what its timer is afterwards, in seconds ago; None: not running."""

    name: str
    given: World
    want_s: int | None
    acts: list[str]
    config: NodesConfig = flags()


def at(ago_s: float) -> int:
    return NOW_MS - round(ago_s * 1000)


TIMERS = [
    Timer(name="starts now", given=world([node("a")]), want_s=0, acts=["mark a 0s"]),
    Timer(name="goes on", given=world([node("a")], memory=unneeded(a=300)), want_s=300, acts=["mark a 300s"]),
    Timer(
        name="is read from the soft taint after a restart",
        given=world([candidate(node("a"), 540)]),
        want_s=540,
        acts=[],
    ),
    Timer(
        name="the older of Memory and taint counts",
        given=world([candidate(node("a"), 540)], memory=unneeded(a=300)),
        want_s=540,
        acts=[],
    ),
    Timer(
        name="a younger taint is only late",
        given=world([candidate(node("a"), 200)], memory=unneeded(a=300)),
        want_s=300,
        acts=[],
    ),
    Timer(
        name="a taint from the future says nothing",
        given=world([candidate(node("a"), -600)]),
        want_s=0,
        acts=[],
    ),
    Timer(
        name="a needed node has none, and loses its taint",
        given=world([candidate(node("a"), 540)], [pod("p", "a", "900m")], memory=unneeded(a=540)),
        want_s=None,
        acts=["unmark a"],
    ),
    Timer(
        name="a taint from before the node was needed counts no more, however late it goes",
        given=world([candidate(node("a"), 540)], memory=Memory(needed_ms={"a": at(60)})),
        want_s=0,
        acts=["unmark a"],
    ),
    Timer(
        name="stays while the group cannot be judged",
        given=world(
            [candidate(node("a"), 540)], groups=(group("g", "a", problem="Throttling"),), memory=unneeded(a=540)
        ),
        want_s=540,
        acts=[],
    ),
    Timer(
        name="stays while no group can be found at all",
        given=world([candidate(node("a"), 540)], groups=(), group_problem="no answer", memory=unneeded(a=540)),
        want_s=540,
        acts=[],
    ),
    Timer(
        name="ends when the node leaves all groups",
        given=world([candidate(node("a"), 540)], groups=(), memory=unneeded(a=540)),
        want_s=None,
        acts=[],
    ),
    Timer(
        name="stays while the cluster is unhealthy",
        given=world(
            [node("a"), *(node(f"x{number}", unready_s=HOUR_S, age_s=2 * HOUR_S) for number in range(4))],
            memory=unneeded(a=540),
        ),
        want_s=540,
        acts=[],
    ),
    Timer(
        name="stays with stale knowledge",
        given=world([node("a")], freshness=Freshness(kube_age_ms=120_001), memory=unneeded(a=540)),
        want_s=540,
        acts=[],
    ),
    Timer(
        name="runs while paused",
        given=world([node("a")], paused=frozenset({"down"}), memory=unneeded(a=540)),
        want_s=540,
        acts=[],
    ),
    Timer(
        name="stays after a failed removal",
        given=world([candidate(node("a"), 900)], memory=replace(unneeded(a=900), failed_removal_ms={"a": at(30)})),
        want_s=900,
        acts=[],
    ),
    Timer(
        name="ends when scale-down is switched off",
        given=world([candidate(node("a"), 540)], memory=unneeded(a=540)),
        config=flags(scale_down_enabled="false"),
        want_s=None,
        acts=["unmark a"],
    ),
    Timer(
        name="lives in Memory alone where soft taints are off, and leftovers go",
        given=world([candidate(node("a"), 540)], memory=unneeded(a=540)),
        config=flags(**NO_SOFT),
        want_s=540,
        acts=["unmark a"],
    ),
]


@pytest.mark.parametrize("case", TIMERS, ids=lambda case: case.name)
def test_timers(case: Timer) -> None:
    """A timer starts over only when the node was judged and found needed."""
    got = plan(case.given, case.config)
    since_ms = got.memory.unneeded_since_ms.get("a")
    assert (None if since_ms is None else (NOW_MS - since_ms) // 1000, acts(got.actions)) == (case.want_s, case.acts)


def test_strictly_longer() -> None:
    """A node goes after more than the unneeded time, and the plan wakes exactly then."""
    early, late = world([node("a")], memory=unneeded(a=600)), world([node("a")], memory=unneeded(a=600.001))
    got = plan(early)
    assert reasons(got) == {"a": "NOT_UNNEEDED_LONG_ENOUGH"}
    assert got.nodes["a"].detail == "10m0s of 10m0s"
    assert got.wake_at_ms == NOW_MS + 1
    assert acts(plan(late).actions) == ["begin a empty"]


def test_unneeded_are_the_removable_ones() -> None:
    """`unneeded` names who could go, due or not; the Memory keeps exactly their timers."""
    got = plan(four(a=1))
    assert got.unneeded == ("a", "b", "c", "d")
    assert sorted(got.memory.unneeded_since_ms) == ["a", "b", "c", "d"]


def test_soft_taints_are_bounded_and_give_room_back_first() -> None:
    """At most --max-bulk-soft-taint-count changes a loop: taints off first, then on, by name."""
    nodes = [candidate(node("z1"), 60), candidate(node("z2"), 60), node("a"), node("b"), node("c")]
    given = world(nodes, [pod("p", "z1", "900m"), pod("q", "z2", "900m")])
    assert acts(plan(given, flags(max_bulk_soft_taint_count="3")).actions) == ["unmark z1", "unmark z2", "mark a 0s"]


# Pauses


class PauseCase(Struct, frozen=True, kw_only=True):
    """What happened, whether the idle node "a" of group g then waits, and when the plan wakes, in seconds from now."""

    name: str
    memory: Memory
    waits: bool
    wake_s: float | None = None
    config: NodesConfig = flags()
    scaled_up: bool = False


PAUSES = [
    PauseCase(name="after a scale-up", memory=Memory(last_scale_up_ms=at(60)), waits=True, wake_s=540),
    PauseCase(name="until it is over", memory=Memory(last_scale_up_ms=at(600)), waits=False),
    PauseCase(name="after a failed removal", memory=Memory(last_removal_failure_ms=at(60)), waits=True, wake_s=120),
    PauseCase(name="a removal does not pause by default", memory=Memory(last_removal_ms=at(0)), waits=False),
    PauseCase(
        name="after a removal, by flag",
        memory=Memory(last_removal_ms=at(10)),
        config=flags(scale_down_delay_after_delete="30s"),
        waits=True,
        wake_s=20,
    ),
    PauseCase(
        name="the longest holds",
        memory=Memory(last_scale_up_ms=at(590), last_removal_failure_ms=at(10)),
        waits=True,
        wake_s=170,
    ),
    PauseCase(name="a scale-up in this very plan", memory=Memory(), scaled_up=True, waits=True, wake_s=600),
    PauseCase(name="no pause at the start", memory=Memory(started_ms=at(1)), waits=False),
    PauseCase(
        name="but in release 1.2",
        memory=Memory(started_ms=at(60)),
        config=flags(compat_version="1.2"),
        waits=True,
        wake_s=540,
    ),
    PauseCase(
        name="per group: its own scale-up",
        memory=Memory(group_scale_up_ms={"g": at(60)}),
        config=flags(scale_down_delay_type_local="true"),
        waits=True,
        wake_s=540,
    ),
    PauseCase(
        name="per group: another's",
        memory=Memory(last_scale_up_ms=at(60), group_scale_up_ms={"h": at(60)}),
        config=flags(scale_down_delay_type_local="true"),
        waits=False,
    ),
    PauseCase(
        name="per group: its failed removal",
        memory=Memory(group_removal_failure_ms={"g": at(60)}),
        config=flags(scale_down_delay_type_local="true"),
        waits=True,
        wake_s=120,
    ),
]


@pytest.mark.parametrize("case", PAUSES, ids=lambda case: case.name)
def test_pauses(case: PauseCase) -> None:
    """What is due waits after additions, removals and failures; removals under way do not."""
    memory = replace(case.memory, unneeded_since_ms={"a": at(HOUR_S)})
    given = world([node("a"), marked(node("b"), 60)], memory=memory, scaled_up=case.scaled_up)
    config = replace(case.config, scale_down=replace(case.config.scale_down, max_bulk_soft_taint_count=0))
    got = plan(given, config)
    begun = [] if case.waits else ["begin a empty"]
    assert acts(got.actions) == ["terminate b empty", *begun]
    assert ("a" in got.nodes) == case.waits
    if case.waits:
        assert got.nodes["a"].reason is Reason.COOLDOWN
        retry_s = 10.0  # the termination of b is looked at again
        assert got.wake_at_ms == NOW_MS + round(min(case.wake_s or retry_s, retry_s) * 1000)


def test_wakes_when_the_pause_ends() -> None:
    """A node that is due later than the pause wakes the plan when it is due; one due earlier, when the pause ends."""
    paused = Memory(last_scale_up_ms=at(60), unneeded_since_ms={"a": at(HOUR_S)})
    assert plan(world([node("a")], memory=paused)).wake_at_ms == NOW_MS + 540_000
    young = replace(paused, unneeded_since_ms={"a": at(30)})
    assert plan(world([node("a")], memory=young)).wake_at_ms == NOW_MS + 570_001


# What stops all

STOPS = [
    ("stale kube", {"freshness": Freshness(kube_age_ms=120_001)}, "STALE_KNOWLEDGE", {}),
    ("stale cloud", {"freshness": Freshness(cloud_age_ms=90_001)}, "STALE_KNOWLEDGE", {}),
    (
        "stale cloud, longer scans",
        {"freshness": Freshness(cloud_age_ms=240_001)},
        "STALE_KNOWLEDGE",
        {"scan_interval": "1m"},
    ),
    ("paused", {"paused": frozenset({"down"})}, "PAUSED", {}),
]


@pytest.mark.parametrize(("name", "more", "reason", "given"), STOPS, ids=[stop[0] for stop in STOPS])
def test_stops(name: str, more: dict[str, object], reason: str, given: dict[str, str]) -> None:
    """Nothing is begun, evicted, terminated, marked or rolled back; marks, timers and notes stay."""
    note = RemovalNote(begun_ms=at(60), kind="underutilized", draining_ms=at(50))
    memory = replace(due("a"), removing={"m": note})
    room = node("room", cpu="8000m")
    nodes = [node("a"), marked(node("m"), 60), marked(node("n", annotations={DISABLED: "true"}), 60), room]
    got = plan(world(nodes, [pod("p", "m"), pod("r", "room", "5000m")], memory=memory, **more), flags(**given))
    judged = "NOT_UNDERUTILIZED" if reason == "PAUSED" else reason
    assert (got.actions, reasons(got)) == ((), {**dict.fromkeys(("a", "m", "n"), reason), "room": judged})
    assert got.memory.unneeded_since_ms == memory.unneeded_since_ms
    assert got.memory.removing["m"] == note


def test_fresh_enough() -> None:
    """At the bounds themselves knowledge still counts."""
    given = world([node("a")], memory=due("a"), freshness=Freshness(kube_age_ms=120_000, cloud_age_ms=90_000))
    assert acts(plan(given).actions) == ["begin a empty"]


def test_only_scale_up_is_paused() -> None:
    """The switch for growing does not stop shrinking."""
    assert acts(plan(world([node("a")], memory=due("a"), paused=frozenset({"up"}))).actions) == ["begin a empty"]


def test_unhealthy_cluster() -> None:
    """With too many nodes not ready nothing goes: they may be well and the network is not."""
    nodes = [node("a"), *(node(f"x{number}", unready_s=HOUR_S, age_s=2 * HOUR_S) for number in range(4))]
    got = plan(world(nodes, memory=due("a", "x0")))
    assert (got.actions, set(reasons(got).values())) == ((), {"CLUSTER_UNHEALTHY"})
    assert got.nodes["a"].detail == "4 not ready, 1 ready"


def test_switched_off() -> None:
    """--scale-down-enabled=false takes our marks off, soft ones too, and leaves others' alone for their five minutes."""
    nodes = [node("a"), candidate(node("b"), 60), marked(node("c"), 60), marked(node("d"), 60, ours=False)]
    got = plan(world(nodes, memory=due("a", "b")), flags(scale_down_enabled="false"))
    assert acts(got.actions) == ["back c", "unmark b"]
    assert reasons(got) == {
        "a": "SCALE_DOWN_OFF",
        "b": "SCALE_DOWN_OFF",
        "c": "SCALE_DOWN_OFF",
        "d": "BEING_DELETED",
    }


# Utilisation and options of groups

USE = [
    ("DaemonSet pods count", {}, {}, "cpu 60.0%, memory 3.1%"),
    ("they are left out of what is used and of what is there", {"ignore_daemonsets_utilization": "true"}, {}, None),
    ("a group's tag leaves them out", {}, {"ignoredaemonsetsutilization": "true"}, None),
    (
        "a group's tag counts them",
        {"ignore_daemonsets_utilization": "true"},
        {"ignoredaemonsetsutilization": "false"},
        "60",
    ),
    ("a group's own threshold", {}, {"scaledownutilizationthreshold": "0.61"}, None),
    ("a tag that is no number is left out", {}, {"scaledownutilizationthreshold": "much"}, "60"),
]


@pytest.mark.parametrize(("name", "given", "tags", "used"), USE, ids=[use[0] for use in USE])
def test_utilization(name: str, given: dict[str, str], tags: dict[str, str], used: str | None) -> None:
    """A node with a DaemonSet pod of 300m and a pod of 300m; another takes its pod."""
    told = {OPTION_TAG + key: value for key, value in tags.items()}
    world_ = world(
        [node("a"), node("room", cpu="8000m")],
        [daemon_pod("d", "a", "300m"), pod("p", "a", "300m"), pod("r", "room", "5000m")],
        groups=(group("g", "a", tags=told),),
    )
    got = plan(world_, flags(**given))
    if used is None:
        assert got.unneeded == ("a",)
    else:
        assert reasons(got)["a"] == "NOT_UNDERUTILIZED"
        assert used in got.nodes["a"].detail
    assert len(got.notes) == ("much" in tags.values())


def test_ignored_daemons_leave_allocatable_too() -> None:
    """300m of 700m left is 43 %, not 30 %."""
    world_ = world(
        [node("a"), node("room", cpu="8000m")],
        [daemon_pod("d", "a", "300m"), pod("p", "a", "300m"), pod("r", "room", "5000m")],
    )
    config = flags(ignore_daemonsets_utilization="true", scale_down_utilization_threshold="0.42")
    assert plan(world_, config).nodes["a"].detail == "cpu 42.9%, memory 1.6%; threshold 42.0%"


def test_mirror_pods_are_left_out_by_flag() -> None:
    """A static pod of 600m keeps its node only without --ignore-mirror-pods-utilization."""
    static = pod("m", "a", "600m", by=None, annotations={"kubernetes.io/config.mirror": "x"})
    given = world([node("a")], [static])
    assert reasons(plan(given)) == {"a": "NOT_UNDERUTILIZED"}
    assert plan(given, flags(ignore_mirror_pods_utilization="true")).unneeded == ("a",)


def test_hung_deletions_use_nothing() -> None:
    """A pod that should be long gone takes no room, and nobody waits for it."""
    given = world([node("a")], [pod("p", "a", "900m", deleted_s=61)], memory=due("a"))
    assert acts(plan(given).actions) == ["begin a empty"]
    hung_daemon = world([node("a")], [daemon_pod("d", "a", "900m", deleted_s=61)], memory=due("a"))
    assert acts(plan(hung_daemon, flags(ignore_daemonsets_utilization="true")).actions) == ["begin a empty"]


GPU = [
    ("gpus alone count", "2", "900m", "1", "0.5", None),
    ("above the gpu threshold", "2", "100m", "2", "0.5", "gpu 100.0%; threshold 50.0%"),
    ("the gpu threshold is its own flag", "2", "100m", "1", "0.4", "gpu 50.0%; threshold 40.0%"),
]


@pytest.mark.parametrize(("name", "has", "cpu", "asks", "threshold", "used"), GPU, ids=[case[0] for case in GPU])
def test_gpu_nodes(name: str, has: str, cpu: str, asks: str, threshold: str, used: str | None) -> None:
    """On a node with GPUs only these are measured."""
    given = world([node("a", gpu=has), node("b", gpu=has)], [pod("p", "a", cpu, gpu=asks)])
    got = plan(given, flags(scale_down_gpu_utilization_threshold=threshold))
    if used is None:
        assert "a" not in reasons(got) or reasons(got)["a"] != "NOT_UNDERUTILIZED"
    else:
        assert got.nodes["a"].detail == used


def test_gpu_node_without_gpus_yet_is_starting() -> None:
    """A node with the accelerator label and no GPU is not ready; an old one counts as unused."""
    young = node("a", labels={GPU_LABEL: "nvidia-tesla-t4"}, age_s=60)
    old = node("b", labels={GPU_LABEL: "nvidia-tesla-t4"})
    got = plan(world([young, old, node("c"), node("d")], [pod("p", "b", "900m")]))
    assert reasons(got)["a"] == "UNREADY_STARTING"
    assert reasons(got)["b"] != "NOT_UNDERUTILIZED"


def test_times_of_a_group() -> None:
    """A group's tags set its own unneeded time."""
    tags = {OPTION_TAG + "scaledownunneededtime": "1m"}
    given = world(
        [node("a"), node("b")],
        groups=(group("g", "a", tags=tags), group("h", "b")),
        memory=unneeded(a=61, b=61),
    )
    assert acts(plan(given, flags(**NO_SOFT)).actions) == ["begin a empty"]


def test_bad_tags_are_said() -> None:
    """Each tag that cannot be read is one line, and the flag's value holds."""
    tags = {
        OPTION_TAG + "scaledownunneededtime": "soon",
        OPTION_TAG + "scaledownunreadytime": "-1m",
        OPTION_TAG + "scaledowngpuutilizationthreshold": "nan",
        OPTION_TAG + "ignoredaemonsetsutilization": "yes",
    }
    got = plan(world([node("a")], groups=(group("g", "a", tags=tags),), memory=unneeded(a=599)))
    assert reasons(got) == {"a": "NOT_UNNEEDED_LONG_ENOUGH"}
    assert len(got.notes) == 4
    assert all(note.startswith("group g: tag k8s.io/cluster-autoscaler/") for note in got.notes)


def test_every_node_reason_has_a_case() -> None:
    """Each Reason that a node can have is shown by a case of this file."""
    shown = {reason for case in (*ELIGIBILITY, *DESTINATIONS, *ORDER, *DISRUPTION) for reason in case.left.values()}
    shown |= {stop[2] for stop in STOPS} | {"COOLDOWN", "CLUSTER_UNHEALTHY", "SCALE_DOWN_OFF"}
    names = [reason.name for reason in Reason]
    of_nodes = names[names.index("NOT_AUTOSCALED") :]
    assert set(of_nodes) <= shown
