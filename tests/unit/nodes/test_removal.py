"""A removal as a row of loops: each step by itself, and whole removals played through with restarts."""

import pytest
from msgspec import Struct
from msgspec.structs import replace

from nobiru.kernel.reason import BlockingPodReason
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import EvictionTry, Memory, RemovalKind, RemovalNote, Rights
from nobiru.nodes.plan.marks import CANDIDATE_TAINT
from tests.unit.nodes.builders_down import (
    NOW_MS,
    World,
    acts,
    budget,
    candidate,
    daemon_pod,
    flags,
    group,
    marked,
    node,
    plan,
    pod,
    world,
)
from tests.unit.nodes.playing import Play

SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
DELAY = "delay-deletion.cluster-autoscaler.kubernetes.io/backup"
DS = "cluster-autoscaler.kubernetes.io/enable-ds-eviction"
TERMINATE = "autoscaling:TerminateInstanceInAutoScalingGroup"
ROOM = node("room", cpu="8000m")
ROOM_POD = pod("r", "room", "5000m")


def at(ago_s: float) -> int:
    return NOW_MS - round(ago_s * 1000)


def note(kind: RemovalKind = "underutilized", begun_s: float = 60, **moments_s: float) -> Memory:
    """A Memory with a note for node "a"; moments in seconds ago: draining=10."""
    moments = {f"{name}_ms": at(ago_s) for name, ago_s in moments_s.items()}
    return Memory(removing={"a": RemovalNote(begun_ms=at(begun_s), kind=kind, **moments)})


def tried(
    first_s: float, last_s: float, count: int = 1, message: str = "refused", uid: str = "uid-p"
) -> dict[str, EvictionTry]:
    return {uid: EvictionTry(first_ms=at(first_s), last_ms=at(last_s), count=count, message=message)}


class Case(Struct, frozen=True, kw_only=True):
    """Node "a" with a delete mark and what is on it; what is done, why, and when the plan wakes, in seconds from now."""

    name: str
    given: World
    acts: list[str]
    reason: str
    detail: str = ""
    wake_s: float | None = None
    config: NodesConfig = flags()
    note: RemovalNote | None = None  # what is remembered of "a", where the case is about it


def check(case: Case) -> None:
    got = plan(case.given, case.config)
    wake_s = None if got.wake_at_ms is None else (got.wake_at_ms - NOW_MS) / 1000
    why = got.nodes["a"]
    assert (acts(got.actions), why.reason.name, wake_s) == (case.acts, case.reason, case.wake_s)
    assert case.detail in str(why)
    if case.note is not None:
        assert got.memory.removing["a"] == case.note


NOTHING = Memory()


def one(base_s: float = 60, *pods: object, memory: Memory = NOTHING, ours: bool = True, **more: object) -> World:
    """Node "a", marked so many seconds ago, with these pods, beside a node with room."""
    a = marked(node("a", annotations=more.pop("annotations", None)), base_s, ours=ours)  # type: ignore[arg-type]
    return world([a, ROOM], [*pods, ROOM_POD], memory=memory, **more)  # type: ignore[list-item]


REPLICA = pod("p", "a")
SAFE_POD = pod("p", "a", labels={"app": "x"}, annotations={SAFE: "true"})
CLOSED = (budget("x", 0, labels={"app": "x"}),)

STEPS = [
    Case(
        name="the taint settles first",
        given=one(3, REPLICA),
        acts=[],
        reason="BEING_DELETED",
        detail="settles",
        wake_s=2,
    ),
    Case(
        name="then pods are evicted",
        given=one(5, REPLICA),
        acts=["evict p off a 30s"],
        reason="BEING_DELETED",
        wake_s=10,
    ),
    Case(
        name="whoever of our replicas marked it",
        given=replace(one(60, REPLICA), nodes=(marked(node("a"), 60), ROOM)),
        acts=["evict p off a 30s"],
        reason="BEING_DELETED",
        wake_s=10,
    ),
    Case(
        name="an empty node is terminated at once",
        given=one(5),
        acts=["terminate a empty"],
        reason="BEING_DELETED",
        wake_s=10,
    ),
    Case(
        name="a drained one for another reason",
        given=one(60, memory=note(draining=50)),
        acts=["terminate a underutilized"],
        reason="BEING_DELETED",
        wake_s=10,
    ),
    Case(
        name="an unready one for its own",
        given=replace(one(60), nodes=(marked(node("a", unready_s=3_000, age_s=3_000), 60), ROOM)),
        acts=["terminate a unready"],
        reason="BEING_DELETED",
        wake_s=10,
    ),
    Case(
        name="static, DaemonSet and hung pods keep nobody",
        given=one(
            60,
            daemon_pod("d", "a"),
            pod("m", "a", by=None, annotations={"kubernetes.io/config.mirror": "x"}),
            pod("h", "a", deleted_s=61),
        ),
        acts=["terminate a empty"],
        reason="BEING_DELETED",
        wake_s=10,
    ),
    Case(
        name="an eviction is tried again after 10 s, not before",
        given=one(60, REPLICA, memory=replace(note(draining=9), evictions=tried(9, 9))),
        acts=[],
        reason="BEING_DELETED",
        wake_s=1,
    ),
    Case(
        name="and again",
        given=one(60, REPLICA, memory=replace(note(draining=50), evictions=tried(50, 10))),
        acts=["evict p off a 30s"],
        reason="BEING_DELETED",
        wake_s=10,
    ),
    Case(
        name="until --max-pod-eviction-time",
        given=one(200, REPLICA, memory=replace(note(draining=121), evictions=tried(120.001, 10))),
        acts=["back a"],
        reason="RECENTLY_UNREMOVABLE",
        detail="pod default/p could not be evicted: refused",
    ),
    Case(
        name="a budget that gives nothing is waited for, by the next process too",
        given=one(720, SAFE_POD, memory=NOTHING, budgets=CLOSED),
        acts=[],
        reason="BEING_DELETED",
        wake_s=10,
    ),
    Case(
        name="but processes that end one after another do not wait for ever",
        given=one(721, SAFE_POD, memory=NOTHING, budgets=CLOSED),
        acts=["back a"],
        reason="RECENTLY_UNREMOVABLE",
        detail="pod default/p could not be evicted: PodDisruptionBudget x allows no disruption now",
    ),
    Case(
        name="one process gives every pod its whole time, however late its turn",
        given=one(9_999, SAFE_POD, memory=note(begun_s=9_999), budgets=CLOSED),
        acts=[],
        reason="BEING_DELETED",
        wake_s=10,
    ),
    Case(
        name="a pod on its way out is waited for",
        given=one(60, pod("p", "a", deleted_s=-12), memory=note(draining=18)),
        acts=[],
        reason="BEING_DELETED",
        detail="default/p",
        wake_s=42.001,
    ),
    Case(
        name="until 30 s after its grace",
        given=one(200, pod("p", "a", deleted_s=30), memory=note(begun_s=200, draining=60)),
        acts=[],
        reason="BEING_DELETED",
        wake_s=0.001,
    ),
    Case(
        name="then the node is kept, not terminated with the pod on it",
        given=one(200, pod("p", "a", deleted_s=30.001), memory=note(begun_s=200, draining=60)),
        acts=["back a"],
        reason="RECENTLY_UNREMOVABLE",
        detail="pod default/p is still there 30 s after its grace",
    ),
    Case(
        name="a pod that somebody deleted before the mark gets as long as ours would",
        given=one(40, pod("p", "a", deleted_s=55), memory=note(draining=30)),
        acts=[],
        reason="BEING_DELETED",
        wake_s=20.001,
    ),
    Case(
        name="one deleted with more grace than we give is evicted, which shortens it",
        given=one(40, pod("p", "a", grace_s=3_600, deleted_s=-3_000, deletion_grace_s=3_600)),
        acts=["evict p off a 600s"],
        reason="BEING_DELETED",
        wake_s=10,
    ),
    Case(
        name="without the right it is waited for",
        given=one(
            40, pod("p", "a", grace_s=3_600, deleted_s=-3_000, deletion_grace_s=3_600), rights=Rights(evict=False)
        ),
        acts=[],
        reason="BEING_DELETED",
        wake_s=3_030.001,
    ),
    Case(
        name="the scale-down-disabled annotation wins at any time",
        given=one(60, annotations={DISABLED: "true"}, memory=note(draining=50)),
        acts=["back a"],
        reason="SCALE_DOWN_DISABLED",
    ),
    Case(
        name="the group's minimum wins",
        given=one(60, groups=(group("g", "a", min_size=1),)),
        acts=["back a"],
        reason="GROUP_AT_MIN_SIZE",
        detail="at least 1",
    ),
    Case(
        name="a pod that must not be moved came meanwhile",
        given=one(60, pod("p", "a", annotations={SAFE: "false"}, age_s=3)),
        acts=["back a"],
        reason="BLOCKED_BY_POD",
        detail="default/p: it is annotated safe-to-evict: false",
    ),
    Case(
        name="even while others are being evicted",
        given=one(60, REPLICA, pod("q", "a", by=None, age_s=3), memory=note(draining=50)),
        acts=["back a"],
        reason="BLOCKED_BY_POD",
        detail="default/q",
    ),
    Case(
        name="its budget gives nothing any more before the first eviction",
        given=one(60, REPLICA, budgets=(budget("b", 0),), memory=note()),
        acts=["back a"],
        reason="BLOCKED_BY_POD",
        detail="default/p",
    ),
    Case(
        name="a budget only slows evictions that run",
        given=one(60, REPLICA, budgets=(budget("b", 0),), memory=note(draining=50)),
        acts=[],
        reason="BEING_DELETED",
        wake_s=10,
    ),
    Case(
        name="as many evictions as the budget gives",
        given=one(60, REPLICA, pod("q", "a"), budgets=(budget("b", 1),), memory=note()),
        acts=["evict p off a 30s"],
        reason="BEING_DELETED",
        detail="2 pods to go: default/p, default/q",
        wake_s=10,
    ),
    Case(
        name="the wait for a budget ends too",
        given=one(
            200,
            REPLICA,
            budgets=(budget("b", 0),),
            memory=replace(note(draining=150), evictions=tried(121, 121, count=0)),
        ),
        acts=["back a"],
        reason="RECENTLY_UNREMOVABLE",
        detail="could not be evicted",
    ),
    Case(
        name="the right to evict was taken away",
        given=one(60, REPLICA, rights=Rights(evict=False)),
        acts=["back a"],
        reason="EVICTION_NOT_ALLOWED",
        detail="default/p",
    ),
    Case(
        name="an empty node needs no such right",
        given=one(60, daemon_pod("d", "a"), rights=Rights(evict=False)),
        acts=["terminate a empty"],
        reason="BEING_DELETED",
        wake_s=10,
    ),
    Case(
        name="the right to terminate was taken away",
        given=one(60, REPLICA, rights=Rights(denied_aws=frozenset({TERMINATE}))),
        acts=["back a"],
        reason="TERMINATE_NOT_ALLOWED",
    ),
    Case(
        name="without the right to patch nodes the marks stay, and that is said",
        given=one(60, annotations={DISABLED: "true"}, rights=Rights(update_nodes=False)),
        acts=[],
        reason="NODE_UPDATE_NOT_ALLOWED",
        detail="the node is annotated scale-down-disabled",
    ),
    Case(
        name="its pods fit nowhere else any more",
        given=world([marked(node("a"), 60), node("full")], [REPLICA, pod("f", "full", "950m")], memory=note()),
        acts=["back a"],
        reason="NO_PLACE_TO_MOVE_PODS",
    ),
    Case(
        name="once evictions run, turning back helps nobody",
        given=world(
            [marked(node("a"), 60), node("full")], [REPLICA, pod("f", "full", "950m")], memory=note(draining=20)
        ),
        acts=["evict p off a 30s"],
        reason="BEING_DELETED",
        wake_s=10,
    ),
    Case(
        name="pods came to a node that was empty",
        given=one(60, pod("p", "a", age_s=40), memory=note("empty")),
        acts=["back a"],
        reason="RECENTLY_UNREMOVABLE",
        detail="pods came to it while it was empty: default/p",
    ),
    Case(
        name="the same without Memory: all pods are younger than the mark",
        given=one(60, pod("p", "a", age_s=40)),
        acts=["back a"],
        reason="RECENTLY_UNREMOVABLE",
    ),
    Case(
        name="without Memory a drain goes on from the pods' own deletion times",
        given=one(60, pod("p", "a", deleted_s=-10), pod("q", "a"), budgets=(budget("b", 1),)),
        acts=["evict q off a 30s"],
        reason="BEING_DELETED",
        wake_s=10,
        note=RemovalNote(begun_ms=at(60), kind="underutilized", draining_ms=at(20)),
    ),
    Case(
        name="a delay asked for by annotation is kept",
        given=one(60, annotations={DELAY: "true"}, memory=note("empty", gone=20)),
        acts=[],
        reason="BEING_DELETED",
        detail=DELAY,
        wake_s=100,
    ),
    Case(
        name="up to --node-deletion-delay-timeout",
        given=one(300, annotations={DELAY: "true"}, memory=note("empty", gone=120)),
        acts=["terminate a empty"],
        reason="BEING_DELETED",
        wake_s=10,
    ),
    Case(
        name="the brake holds: the node stays marked",
        given=one(60, memory=replace(note("empty"), terminated_ms=(at(500),))),
        config=flags(max_terminations_per_10m="1"),
        acts=[],
        reason="BRAKE",
        wake_s=100,
    ),
    Case(
        name="a terminated machine is not terminated twice",
        given=one(60, memory=replace(note("empty", terminate=20), terminating={"i-a": at(20)})),
        acts=[],
        reason="BEING_DELETED",
        wake_s=40,
    ),
    Case(
        name="one still listed as running after a minute is asked for again",
        given=one(90, memory=replace(note("empty", terminate=60), terminating={"i-a": at(60)})),
        acts=["terminate a empty"],
        reason="BEING_DELETED",
        wake_s=10,
    ),
    Case(
        name="a call that failed waits a little",
        given=one(60, memory=replace(note("empty", terminate=4), failed_removal_ms={"a": at(4)})),
        acts=[],
        reason="BEING_DELETED",
        wake_s=6,
    ),
    Case(
        name="and is then repeated",
        given=one(60, memory=replace(note("empty", terminate=14), failed_removal_ms={"a": at(10)})),
        acts=["terminate a empty"],
        reason="BEING_DELETED",
        wake_s=10,
    ),
    Case(
        name="a cloud that refuses for two minutes gets its node back",
        given=one(300, memory=replace(note("empty", terminate=121), failed_removal_ms={"a": at(11)})),
        acts=["back a"],
        reason="RECENTLY_UNREMOVABLE",
        detail="could not be terminated for 2m0s",
    ),
    Case(
        name="the cloud is taking the machine away already",
        given=one(60, REPLICA, groups=(group("g", "a", leaving=("a",)),)),
        acts=[],
        reason="BEING_DELETED",
        detail="terminating",
    ),
    Case(
        name="the machine is gone, its node not yet",
        given=one(60, groups=(), memory=Memory(terminating={"i-a": at(200)})),
        acts=[],
        reason="BEING_DELETED",
        detail="gone",
    ),
    Case(
        name="no group lists the machine: it may be gone",
        given=one(60, groups=()),
        acts=[],
        reason="BEING_DELETED",
        detail="no group lists its machine",
        wake_s=240,
    ),
    Case(
        name="five minutes later it was taken out of its group",
        given=one(300, groups=()),
        acts=["back a"],
        reason="NOT_AUTOSCALED",
    ),
    Case(
        name="unless no group can be listed at all",
        given=one(300, groups=(), group_problem="no answer from AWS"),
        acts=[],
        reason="BEING_DELETED",
    ),
    Case(
        name="its group cannot be read",
        given=one(60, REPLICA, groups=(group("g", "a", problem="Throttling"),)),
        acts=[],
        reason="GROUP_PROBLEM",
        detail="Throttling",
    ),
    Case(
        name="Cluster Autoscaler's mark is left alone for five minutes",
        given=one(299, REPLICA, ours=False),
        acts=[],
        reason="BEING_DELETED",
        detail="not ours",
        wake_s=1,
    ),
    Case(name="then it is abandoned", given=one(300, REPLICA, ours=False), acts=["back a"], reason="BEING_DELETED"),
    Case(
        name="but not on a node that is none of ours",
        given=one(900, ours=False, groups=()),
        acts=[],
        reason="NOT_AUTOSCALED",
    ),
]


@pytest.mark.parametrize("case", STEPS, ids=lambda case: case.name)
def test_step(case: Case) -> None:
    """One loop's step of one removal, from its marks, its pods and what is remembered."""
    check(case)


def test_step_names_the_blocking_pod() -> None:
    """`blocking` has a pod that came to a marked node, too."""
    got = plan(one(60, pod("p", "a", annotations={SAFE: "false"})))
    assert got.blocking == {"a": (("default", "p"), BlockingPodReason.NOT_SAFE_TO_EVICT)}


def test_the_newest_marks_go_back_to_keep_a_minimum() -> None:
    """A group whose minimum rose takes back as many as it lacks, the latest first."""
    nodes = [marked(node("a"), 60), marked(node("b"), 30), marked(node("c"), 90), node("d")]
    got = plan(world(nodes, groups=(group("g", "a b c d", min_size=3),)))
    assert acts(got.actions) == ["terminate c empty", "back a", "back b"]


def test_notes_and_tries_are_kept_only_while_they_matter() -> None:
    """What is remembered of removals and evictions goes with them."""
    memory = replace(
        note(draining=50),
        evictions=tried(20, 2) | tried(20, 2, uid="uid-gone"),
        failed_removal_ms={"a-gone": at(5)},
    )
    got = plan(one(60, REPLICA, memory=memory)).memory
    assert (set(got.removing), set(got.evictions), got.failed_removal_ms) == ({"a"}, {"uid-p"}, {})
    back = plan(one(60, REPLICA, memory=memory, annotations={DISABLED: "true"})).memory
    assert (back.removing, back.evictions) == ({}, {})


def test_a_pod_held_back_by_its_budget_is_remembered() -> None:
    """Its wait counts from the first loop that held it back, although nobody was asked."""
    given = one(60, REPLICA, pod("q", "a"), budgets=(budget("b", 1),), memory=note(draining=30))
    got = plan(given).memory.evictions
    assert {uid: (each.first_ms, each.count) for uid, each in got.items()} == {"uid-q": (NOW_MS, 0)}


# Grace, groups of priorities, DaemonSet pods

GRACE = [
    ("the pod's own", pod("p", "a", grace_s=45), {}, "45s"),
    ("30 s where it names none", pod("p", "a", grace_s=None), {}, "30s"),
    ("at most --max-graceful-termination-sec", pod("p", "a", grace_s=3_600), {}, "600s"),
    ("0 is no cap", pod("p", "a", grace_s=3_600), {"max_graceful_termination_sec": "0"}, "3600s"),
    ("a group's own cap", pod("p", "a", grace_s=3_600, priority=5), {"drain_priority_config": "0:20,10:60"}, "20s"),
]


@pytest.mark.parametrize(("name", "of", "given", "want"), GRACE, ids=[case[0] for case in GRACE])
def test_grace(name: str, of: object, given: dict[str, str], want: str) -> None:
    """An eviction asks for the pod's own grace, but not for more than the flags allow."""
    assert acts(plan(one(60, of), flags(**given)).actions) == [f"evict p off a {want}"]


DAEMONS = [
    ("of an emptied node last", [REPLICA, daemon_pod("d", "a")], {}, note(), ["evict p off a 30s"]),
    ("of an emptied node, then", [daemon_pod("d", "a")], {}, note(draining=50), ["evict d off a 30s"]),
    (
        "unless the flag says no",
        [daemon_pod("d", "a")],
        {"daemonset_eviction_for_occupied_nodes": "false"},
        note(draining=50),
        ["terminate a underutilized"],
    ),
    ("of an empty node not", [daemon_pod("d", "a")], {}, note("empty"), ["terminate a empty"]),
    (
        "unless the flag says so",
        [daemon_pod("d", "a")],
        {"daemonset_eviction_for_empty_nodes": "true"},
        note("empty"),
        ["evict d off a 30s"],
    ),
    (
        "the pod's annotation wins over no",
        [daemon_pod("d", "a", annotations={DS: "true"})],
        {},
        note("empty"),
        ["evict d off a 30s"],
    ),
    (
        "and over yes",
        [daemon_pod("d", "a", annotations={DS: "false"})],
        {},
        note(draining=50),
        ["terminate a underutilized"],
    ),
    (
        "they are waited for up to their grace",
        [daemon_pod("d", "a", deleted_s=-60, grace_s=60, deletion_grace_s=60)],
        {},
        note(draining=50),
        [],
    ),
    (
        "and no longer",
        [daemon_pod("d", "a", deleted_s=0.001)],
        {},
        note(begun_s=300, draining=290),
        ["terminate a underutilized"],
    ),
    (
        "one made again after the mark is let alone",
        [daemon_pod("d", "a", age_s=20)],
        {},
        note(draining=50),
        ["terminate a underutilized"],
    ),
    (
        "one whose eviction is refused for long keeps nobody",
        [daemon_pod("p", "a")],
        {},
        replace(note(begun_s=300, draining=200), evictions=tried(121, 3)),
        ["terminate a underutilized"],
    ),
]


def test_evicting_daemon_pods_does_not_make_an_empty_node_a_drained_one() -> None:
    """Pods that come to an empty node while its DaemonSet pods leave still stop the removal."""
    config = flags(daemonset_eviction_for_empty_nodes="true")
    got = plan(one(60, daemon_pod("d", "a"), memory=note("empty")), config)
    assert (acts(got.actions), got.memory.removing["a"].draining_ms) == (["evict d off a 30s"], 0)
    late = one(60, daemon_pod("d", "a", deleted_s=-20), pod("late", "a", age_s=1), memory=got.memory)
    assert acts(plan(late, config).actions) == ["back a"]


@pytest.mark.parametrize(("name", "pods", "given", "memory", "want"), DAEMONS, ids=[case[0] for case in DAEMONS])
def test_daemon_pods(name: str, pods: list[object], given: dict[str, str], memory: Memory, want: list[str]) -> None:
    """DaemonSet pods go last, by flags and annotation, and never keep a node for longer than their grace."""
    assert acts(plan(one(300, *pods, memory=memory), flags(**given)).actions) == want


def test_priorities_go_in_order() -> None:
    """With --drain-priority-config lower groups are gone before the next is evicted; DaemonSet pods belong to theirs."""
    config = flags(drain_priority_config="0:30,100:60", max_drain_parallelism="1")
    low, high = pod("low", "a", priority=-5), pod("high", "a", "50m", priority=100)
    agent = daemon_pod("agent", "a", priority=2_000, grace_s=300)
    assert acts(plan(one(60, low, high, agent), config).actions) == ["evict low off a 30s"]
    leaving = pod("low", "a", priority=-5, deleted_s=-20)
    assert acts(plan(one(60, leaving, high, agent, memory=note(draining=10)), config).actions) == []
    assert acts(plan(one(60, high, agent, memory=note(draining=40)), config).actions) == [
        "evict agent off a 60s",
        "evict high off a 30s",
    ]
    stuck = daemon_pod("agent", "a", priority=2_000, deleted_s=31)
    assert acts(plan(one(200, stuck, memory=note(begun_s=200, draining=150)), config).actions) == ["back a"]


def test_two_removals_share_a_budget() -> None:
    """Within one plan the evictions of all nodes together keep to what a budget gives."""
    nodes = [marked(node("a"), 60), marked(node("b"), 50), ROOM]
    pods = [pod("p", "a"), pod("q", "b"), ROOM_POD]
    got = plan(world(nodes, pods, budgets=(budget("x", 1, labels=None),), memory=note()))
    assert acts(got.actions) == ["evict p off a 30s"]


# Whole removals


def idle(**more: object) -> World:
    """Node "a" with two replicas, due; "room" takes them."""
    pods = [pod("p", "a", labels={"app": "x"}), pod("q", "a", labels={"app": "x"}, grace_s=60), ROOM_POD]
    memory = Memory(unneeded_since_ms={"a": at(3_600)})
    return world([candidate(node("a"), 3_600), ROOM], pods, memory=memory, **more)


def test_a_whole_removal() -> None:
    """Mark, settle, evict, wait for the last pod, terminate: each in the loop in which it is due, and no sooner."""
    play = Play(world=idle())
    play.run()
    assert play.log == [
        "   0 begin a moving p q",
        "   5 evict p off a 30s",
        "   5 evict q off a 60s",
        "  65 terminate a underutilized",
    ]
    assert [each.name for each in play.world.nodes] == ["room"]
    assert {each.spec.node_name for each in play.world.pods} == {"room"}


def test_a_whole_removal_with_a_restart_before_every_loop() -> None:
    """Without any Memory the same steps happen at the same moments: all that counts is on the node and its pods."""
    play = Play(world=idle(), forget=True)
    play.run()
    assert play.log == [
        "   0 begin a moving p q",
        "   5 evict p off a 30s",
        "   5 evict q off a 60s",
        "  65 terminate a empty",
    ]


def test_a_whole_removal_under_a_budget() -> None:
    """One pod after the other: the second is evicted once the first one's replacement runs."""
    play = Play(world=idle(budgets=(budget("x", 1, labels={"app": "x"}),)), replace_s=20)
    play.run()
    assert play.log == [
        "   0 begin a moving p q",
        "   5 evict p off a 30s",
        "  25 evict q off a 60s",
        "  85 terminate a underutilized",
    ]


def test_a_removal_that_a_budget_stops() -> None:
    """Replacements that never come: after two minutes the node is in service again, marks gone, cordon undone."""
    play = Play(world=idle(budgets=(budget("x", 1, labels={"app": "x"}),)), replace_s=10_000)
    play.run(until_s=200)
    assert play.log == [
        "   0 begin a moving p q",
        "   5 evict p off a 30s",
        " 125 back a",
    ]
    a = play.world.nodes[0]
    assert ([taint.key for taint in a.taints], a.spec.unschedulable, a.annotations) == ([CANDIDATE_TAINT], False, {})


def test_a_pod_that_lands_before_the_taint_shows_stops_the_removal() -> None:
    """A pod with safe-to-evict=false started while the node was only softly tainted: found after the taint, all undone."""
    play = Play(world=replace(idle(), pods=(ROOM_POD,)))
    play.loop()
    play.advance(1)
    late = pod("late", "a", annotations={SAFE: "false"}, age_s=-1)
    play.world = replace(play.world, pods=(*play.world.pods, late))
    play.run(until_s=60)
    assert play.log == ["   0 begin a empty", "   5 back a"]
    assert "late" in {each.name for each in play.world.pods}


def test_a_humans_cordon_stays() -> None:
    """A node that a human had cordoned is still cordoned after a removal that was rolled back."""
    play = Play(world=replace(idle(), nodes=(node("a", cordoned=True), ROOM)))
    play.loop()
    a, room = play.world.nodes
    stays = replace(a, metadata=replace(a.metadata, annotations={**a.annotations, DISABLED: "true"}))
    play.world = replace(play.world, nodes=(stays, room))
    play.advance(10)
    play.loop()
    assert play.log == ["   0 begin a moving p q", "  10 back a"]
    a = play.world.nodes[0]
    assert (a.spec.taints, a.spec.unschedulable, a.annotations) == ((), True, {DISABLED: "true"})


def test_one_node_finishes_although_its_pods_take_long() -> None:
    """Two nodes at 20 % with pods that need ten minutes: one is drained and goes, the other one's pods never move."""
    pods = [pod("p", "a", "200m", grace_s=3_600), pod("q", "b", "200m", grace_s=3_600)]
    memory = Memory(unneeded_since_ms={"a": at(3_600), "b": at(3_600)})
    play = Play(world=world([node("a"), node("b")], pods, memory=memory))
    play.run(until_s=3_000)
    acted = [line for line in play.log if "mark" not in line]
    assert acted == ["   0 begin a moving p", "   5 evict p off a 600s", " 605 terminate a underutilized"]
