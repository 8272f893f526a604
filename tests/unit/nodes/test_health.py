"""How nodes and groups are judged: machines on the way, failures, back-off, orphans."""

from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from nobiru.kernel.cloud import Activity, NodeGroup
from nobiru.kernel.objects import Node, Taint
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import Backoff, Freshness, Memory, Raise, Rights, Terminate
from nobiru.nodes.plan.health import MISSING_MS_MAX, assess
from nobiru.placement.books import Books
from tests.unit.nodes.builders_down import NOW_MS, flags, marked, node
from tests.unit.nodes.builders_up import failed, group, pending, plan_for, raises, whys, world

NOT_READY = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")


class Case(Struct, frozen=True, kw_only=True):
    name: str
    group: NodeGroup
    nodes: list[Node] = []
    memory: Memory = Memory()
    config: NodesConfig | None = None
    want: dict[str, int]


def seen(**at_ms: int) -> dict[str, int]:
    return {f"i-{name}": NOW_MS - ago for name, ago in at_ms.items()}


CASES = [
    Case(name="nothing", group=group("a"), want={"target": 0, "upcoming": 0}),
    Case(
        name="ready, starting, unready",
        group=group("a", 3, nodes=["r", "s", "u"]),
        nodes=[node("r"), node("s", unready_s=60, age_s=60), node("u", unready_s=60, age_s=9000)],
        want={"ready": 1, "starting": 1, "unready": 1, "upcoming": 1, "target": 3},
    ),
    Case(
        name="startup taint is starting",
        group=group("a", 1, nodes=["s"]),
        nodes=[
            node(
                "s",
                age_s=60,
                taints=[Taint(key="startup-taint.cluster-autoscaler.kubernetes.io/x", effect="NoSchedule")],
            )
        ],
        want={"ready": 0, "starting": 1, "upcoming": 1},
    ),
    Case(
        name="not-ready taint outweighs the condition",
        group=group("a", 1, nodes=["s"]),
        nodes=[node("s", age_s=60, taints=[NOT_READY])],
        want={"ready": 0, "starting": 1},
    ),
    Case(
        name="booting without a node",
        group=group("a", 2, booting=["x", "y"]),
        want={"unregistered": 2, "upcoming": 2, "target": 2, "missing": 0},
    ),
    Case(
        name="too long without a node is not on the way",
        group=group("a", 1, booting=["x"]),
        memory=Memory(unregistered_since_ms=seen(x=901_000)),
        want={"unregistered": 0, "long_unregistered": 1, "upcoming": 0, "target": 1},
    ),
    Case(name="wanted, not listed", group=group("a", 4), want={"missing": 4, "upcoming": 4, "target": 4}),
    Case(
        name="a failed activity of today ends the hope (B5)",
        group=group("a", 4, activities=[failed(30)]),
        want={"missing": 4, "upcoming": 0, "target": 0},
    ),
    Case(
        name="an old failure says nothing",
        group=group("a", 4, activities=[failed(86_400)]),
        want={"missing": 4, "upcoming": 4},
    ),
    Case(
        name="a failure before our request says nothing",
        group=group("a", 4, activities=[failed(30)]),
        memory=Memory(raises={"a": Raise(at_ms=NOW_MS - 10_000, start=0, target=4)}),
        want={"missing": 4, "upcoming": 4},
    ),
    Case(
        name="a success after the failure says it works",
        group=group(
            "a",
            4,
            activities=[Activity(id="b", status="Successful", message="", started_ms=NOW_MS - 10_000), failed(30)],
        ),
        want={"upcoming": 4},
    ),
    Case(
        name="missing for two minutes is a stock-out without any right to ask",
        group=group("a", 4),
        memory=Memory(missing_since_ms={"a": NOW_MS - MISSING_MS_MAX}),
        want={"missing": 4, "upcoming": 0},
    ),
    Case(
        name="our own raise counts while Describe still shows the old value",
        group=group("a", 0),
        memory=Memory(raises={"a": Raise(at_ms=NOW_MS - 3_000, start=0, target=5)}),
        want={"target": 5, "upcoming": 5},
    ),
    Case(
        name="but not for ever: somebody may have lowered it",
        group=group("a", 0),
        memory=Memory(raises={"a": Raise(at_ms=NOW_MS - 120_000, start=0, target=5)}),
        want={"target": 0, "upcoming": 0},
    ),
    Case(
        name="a node being removed is neither capacity nor upcoming (B39a)",
        group=group("a", 2, nodes=["r", "d"]),
        nodes=[node("r"), marked(node("d"), 60)],
        want={"ready": 1, "being_deleted": 1, "upcoming": 0, "target": 1},
    ),
    Case(
        name="an instance that we just terminated is gone though still listed",
        group=group("a", 2, nodes=["r", "d"]),
        nodes=[node("r"), marked(node("d"), 60)],
        memory=Memory(terminating=seen(d=2_000)),
        want={"ready": 1, "being_deleted": 0, "upcoming": 0, "target": 1, "missing": 0},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_group_state(case: Case) -> None:
    """How many machines of the group are what; only the fields that the case names are compared."""
    state = assess(world([case.group], [], case.nodes), case.memory, case.config or flags()).state.groups["a"]

    assert {name: getattr(state, name) for name in case.want} == case.want


def test_failure_rests_the_group_and_pods_go_elsewhere() -> None:
    """B4: a group below its minimum and out of stock hides no pod; its desired capacity stays."""
    dead = group("dead", 35, 409, min_size=30, nodes=["n"], activities=[failed(20)])
    plan = plan_for([dead, group("live")], [pending("p")], [node("n", cpu="10m")])

    assert raises(plan) == {"live": 1}
    assert [(each.group, each.code) for each in plan.failures] == [("dead", "placeholder-cannot-be-fulfilled")]
    assert "sufficient" in plan.memory.backoff["dead"].message


def test_backoff_doubles_and_ends() -> None:
    """5 m, 10 m, 20 m, 30 m, 30 m; forgotten three hours after the last failure."""
    memory = Memory()
    durations = []
    now_ms = NOW_MS
    for _ in range(5):
        activity = Activity(id="x", status="Failed", message="no", started_ms=now_ms - 1000)
        snap = replace(world([group("a", 1, activities=[activity])], []), now_ms=now_ms)
        memory = assess(snap, memory, flags()).memory
        durations.append(memory.backoff["a"].duration_ms // 60_000)
        now_ms = memory.backoff["a"].until_ms + 1
    quiet = replace(world([group("a")], []), now_ms=now_ms + 3 * 3_600_000)

    assert durations == [5, 10, 20, 30, 30]
    assert assess(quiet, memory, flags()).memory.backoff == {}


def test_one_failure_is_told_once() -> None:
    """While the group rests, the same trouble is no new failure."""
    first = plan_for([group("a", 1, activities=[failed(5)])], [])
    second = plan_for([group("a", 1, activities=[failed(5)])], [], memory=first.memory)

    assert len(first.failures) == 1
    assert second.failures == ()


def test_success_ends_the_backoff() -> None:
    """Machines that arrive end the rest at once."""
    resting = Backoff(until_ms=NOW_MS + 1, duration_ms=300_000, failed_ms=NOW_MS - 100_000, code="x", message="")
    memory = Memory(backoff={"a": resting}, raises={"a": Raise(at_ms=NOW_MS - 90_000, start=0, target=1)})
    after = assess(world([group("a", 1, nodes=["n"])], [], [node("n")]), memory, flags()).memory

    assert after.backoff == {}
    assert after.raises == {}


def test_orphan_is_terminated_and_rests_its_group() -> None:
    """B10, B47: an instance whose node never appeared goes, with a line that says what to look at; others go on."""
    memory = Memory(unregistered_since_ms=seen(x=901_000))
    plan = plan_for([group("a", 1, booting=["x"]), group("b")], [pending("p")], memory=memory)

    assert Terminate(instance="i-x", group="a", node="", reason="unregistered") in plan.actions
    assert raises(plan) == {"b": 1}
    assert plan.failures[0].code == "timeout"
    assert "CSR approval" in plan.failures[0].message


def test_orphan_at_minimum_stays() -> None:
    """The minimum holds, unless the flag says otherwise."""
    memory = Memory(unregistered_since_ms=seen(x=901_000))
    at_min = group("a", 1, min_size=1, booting=["x"])
    forced = flags(force_delete_unregistered_nodes="true")

    assert plan_for([at_min], [], memory=memory).actions == ()
    assert len(plan_for([at_min], [], memory=memory, config=forced).actions) == 1


def test_unhealthy_cluster_stops_scaling() -> None:
    """More than three and more than 45 % unready: nothing moves."""
    nodes = [node(f"n{number}", unready_s=1800, age_s=9000) for number in range(4)]
    plan = plan_for([group("a", 4, nodes=[each.name for each in nodes])], [pending("p")], nodes)

    assert not plan.healthy
    assert plan.actions == ()
    assert whys(plan) == {"p": "CLUSTER_UNHEALTHY"}


def test_no_orphan_goes_where_a_node_names_no_machine() -> None:
    """B44: a node without providerID may be the very machine that seems to have none; it is said, and nothing ends."""
    memory = Memory(unregistered_since_ms=seen(x=901_000))
    plan = plan_for([group("a", 1, booting=["x"])], [], [node("bare", provider_id="")], memory=memory)

    assert plan.actions == ()
    assert [note for note in plan.notes if "bare has no providerID" in note]


@pytest.mark.parametrize(
    "more",
    [
        {"freshness": Freshness(kube_age_ms=200_000)},
        {"freshness": Freshness(cloud_age_ms=200_000)},
        {"rights": Rights(unreadable=frozenset({"nodes"}))},
        {"paused": frozenset({"down"})},
    ],
    ids=["stale cluster", "stale cloud", "nodes unreadable", "paused"],
)
def test_no_orphan_goes_by_doubtful_knowledge(more: dict[str, Any]) -> None:
    """What is not known for sure ends no machine."""
    memory = Memory(unregistered_since_ms=seen(x=901_000))

    assert plan_for([group("a", 1, booting=["x"])], [], memory=memory, **more).actions == ()


def test_brake_counts_orphans() -> None:
    """Terminations of the last ten minutes leave room for this many more."""
    memory = Memory(unregistered_since_ms=seen(x=901_000, y=901_000), terminated_ms=(NOW_MS - 1000,))
    braked = flags(max_terminations_per_10m="2")
    plan = plan_for([group("a", 2, booting=["x", "y"])], [], memory=memory, config=braked)

    assert len([each for each in plan.actions if isinstance(each, Terminate)]) == 1


def test_timeouts_of_one_group_do_not_hide_anothers() -> None:
    """Two groups whose machines never join: each one's failure is its own."""
    memory = Memory(
        unregistered_since_ms=seen(x=901_000),
        backoff={
            "b": Backoff(until_ms=NOW_MS + 1000, duration_ms=300_000, failed_ms=NOW_MS, code="timeout", message="")
        },
    )
    plan = plan_for([group("a", 1, booting=["x"]), group("b")], [], memory=memory)

    assert [(each.group, each.code) for each in plan.failures] == [("a", "timeout")]


CALL_FAILED = Backoff(
    until_ms=NOW_MS + 4_000, duration_ms=5_000, failed_ms=NOW_MS - 1_000, code="apiCallError", message="no answer"
)


def test_machines_of_a_raise_whose_answer_was_lost_are_on_their_way() -> None:
    """The group rests after the lost answer, yet what AWS now wants of it hosts the pods: no other group grows for them."""
    plan = plan_for([group("a", 1), group("b")], [pending("p")], memory=Memory(backoff={"a": CALL_FAILED}))

    assert raises(plan) == {}
    assert whys(plan) == {"p": "FITS_ON_UPCOMING_NODE"}


def test_stock_out_is_seen_while_a_failed_call_rests_the_group() -> None:
    """A call that failed hides no stock-out: the pods go elsewhere at once."""
    dry = group("a", 1, activities=[failed(0.5)])
    plan = plan_for([dry, group("b")], [pending("p")], memory=Memory(backoff={"a": CALL_FAILED}))

    assert raises(plan) == {"b": 1}
    assert [each.code for each in plan.failures] == ["placeholder-cannot-be-fulfilled"]


def test_machine_on_standby_is_its_owners_affair() -> None:
    """Desired capacity does not count it, so ending it with a decrement would cost another machine its place."""
    base = group("a", 1, nodes=["s"])
    standby = replace(base, desired=0, instances=tuple(replace(each, lifecycle="Standby") for each in base.instances))
    memory = Memory(unneeded_since_ms={"s": NOW_MS - 3_600_000})
    plan = plan_for([standby], [], [node("s")], memory=memory)

    assert plan.actions == ()
    assert plan.nodes["s"].reason.name == "NOT_AUTOSCALED"


def test_what_is_known_of_a_node_is_of_that_node_alone() -> None:
    """Loop after loop over one account of the cluster judges as a first loop would: time, node, group and flags may change."""
    steps: list[tuple[Node, NodeGroup, dict[str, str], int]] = [
        (node("n"), group("a", 1, nodes=["n"]), {}, 0),
        (node("n", unready_s=60, age_s=60), group("a", 1, nodes=["n"]), {}, 0),
        (node("n", unready_s=60, age_s=60), group("a", 1, nodes=["n"]), {}, 3_600_000),
        (marked(node("n"), 60), group("a", 1, nodes=["n"]), {}, 0),
        (node("n"), group("b", 1, nodes=["n"]), {}, 0),
        (node("n"), group("b", 0), {}, 0),
        (node("n", taints=[Taint(key="x", effect="NoSchedule")]), group("b", 1, nodes=["n"]), {}, 0),
        (
            node("n", taints=[Taint(key="x", effect="NoSchedule")]),
            group("b", 1, nodes=["n"]),
            {"startup_taint": "x"},
            0,
        ),
    ]
    books = Books()
    for found, of_group, given, later_ms in steps:
        books.upsert_node(found)
        fresh = replace(world([of_group], [], [found]), now_ms=NOW_MS + later_ms)
        again = replace(fresh, cluster=books.freeze())

        assert (
            assess(again, Memory(), flags(**given)).state.nodes == assess(fresh, Memory(), flags(**given)).state.nodes
        )
