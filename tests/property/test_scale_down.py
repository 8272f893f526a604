"""What holds for every scale-down plan, however odd the world: limits, budgets, refusals, order, and an end."""

import random
from collections import Counter
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nobiru.kernel.objects import Node, Pod
from nobiru.kernel.reason import Reason
from nobiru.kernel.selector import selector_matches
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import BeginRemoval, Evict, MarkCandidate, Memory, RemovalNote, Rights, RollBack, Terminate
from nobiru.nodes.plan.loads import Loads
from nobiru.nodes.plan.marks import delete_mark, removal_disabled
from tests.unit.nodes.builders_down import (
    AGENT,
    HOUR_S,
    NOW_MS,
    WEB,
    GroupOf,
    World,
    budget,
    candidate,
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
Item = TypeVar("Item")
NAMES = tuple("abcdef")
KINDS = {
    "replica": {"by": WEB},
    "naked": {"by": None},
    "daemon": {"by": AGENT},
    "mirror": {"by": None, "annotations": {"kubernetes.io/config.mirror": "x"}},
    "safe": {"by": None, "annotations": {SAFE: "true"}},
    "unsafe": {"by": WEB, "annotations": {SAFE: "false"}},
    "system": {"by": WEB, "namespace": "kube-system"},
    "new system": {"by": WEB, "namespace": "kube-system", "age_s": 60},
}


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    """A node in any state that marks, annotations and conditions can show."""
    made = node(
        name,
        annotations={DISABLED: "true"} if draw(st.integers(0, 7)) == 0 else {},
        unready_s=draw(st.sampled_from([0, 0, 0, 0, HOUR_S])),
        age_s=2 * HOUR_S,
        cordoned=draw(st.integers(0, 7)) == 0,
    )
    if draw(st.booleans()):
        made = candidate(made, draw(st.sampled_from([30, 900, HOUR_S])))
    state = draw(st.sampled_from(["", "", "", "", "ours", "theirs"]))
    if state:
        made = marked(made, draw(st.sampled_from([1, 60, 400])), ours=state == "ours")
    return made


@st.composite
def pods(draw: st.DrawFn, number: int) -> Pod:
    """A pod of any kind on any node, perhaps on its way out."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    return pod(
        f"p{number}",
        draw(st.sampled_from(NAMES)),
        f"{draw(st.sampled_from([50, 100, 300, 600]))}m",
        labels={"app": draw(st.sampled_from(["x", "y", "z"]))},
        deleted_s=draw(st.sampled_from([None] * 6 + [-20, 10, 100])),
        grace_s=draw(st.sampled_from([0, 30, 900])),
        **KINDS[kind],  # type: ignore[arg-type]
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Up to six nodes in two groups or none, a dozen pods, budgets, and a Memory that may know of some of it."""
    names = NAMES[: draw(st.integers(1, len(NAMES)))]
    there = [draw(nodes(name)) for name in names]
    of_group = {name: draw(st.sampled_from(["g", "g", "g", "h", ""])) for name in names}
    groups: list[GroupOf] = [
        group(
            which,
            " ".join(name for name in names if of_group[name] == which),
            min_size=draw(st.integers(0, 3)),
        )
        for which in ("g", "h")
    ]
    some = [draw(pods(number)) for number in range(draw(st.integers(0, 12)))]
    known = [name for name in names if draw(st.booleans())]
    memory = Memory(unneeded_since_ms={name: NOW_MS - draw(st.sampled_from([1, 900, HOUR_S])) * 1000 for name in known})
    if draw(st.booleans()):
        note = RemovalNote(begun_ms=NOW_MS - 2_000, kind="empty")
        memory = replace(memory, removing={draw(st.sampled_from(names)): note})
    return world(
        there,
        [each for each in some if each.spec.node_name in names],
        groups=tuple(groups),
        budgets=tuple(budget(app, draw(st.integers(0, 2)), labels={"app": app}) for app in ("x", "y")),
        memory=memory,
        rights=Rights(evict=draw(st.integers(0, 7)) > 0),
        needed=frozenset(name for name in names if draw(st.integers(0, 9)) == 0),
    )


@st.composite
def configs(draw: st.DrawFn) -> NodesConfig:
    """Flags that bound what goes at once."""
    return flags(
        max_scale_down_parallelism=str(draw(st.integers(0, 4))),
        max_drain_parallelism=str(draw(st.integers(0, 4))),
        max_terminations_per_10m=str(draw(st.integers(0, 3))),
        max_bulk_soft_taint_count=str(draw(st.integers(0, 3))),
        scale_down_utilization_threshold=str(draw(st.sampled_from([0.3, 0.5, 1.0]))),
    )


@given(worlds(), configs())
@settings(max_examples=200, deadline=None)
def test_every_node_is_acted_on_or_has_its_reason(there: World, config: NodesConfig) -> None:
    """Nobody is left alone without a word."""
    got = plan(there, config)
    acted = {action.node for action in got.actions if isinstance(action, BeginRemoval)}
    assert acted | got.nodes.keys() == {each.name for each in there.nodes}
    assert not acted & got.nodes.keys()
    assert len(got.actions) == len({str(action) for action in got.actions})


@given(worlds(), configs())
@settings(max_examples=200, deadline=None)
def test_limits(there: World, config: NodesConfig) -> None:
    """No group falls below its minimum, no limit of what goes at once is passed, no budget is overspent."""
    got = plan(there, config)
    by_name = {each.name: each for each in there.nodes}
    begun = [action for action in got.actions if isinstance(action, BeginRemoval)]
    for each in there.groups or ():
        staying = sum(delete_mark(by_name[name]) is None for name in each.nodes)
        going = sum(action.group == each.name for action in begun)
        assert going == 0 or staying - going >= each.min_size
        marked_ours = [name for name in each.nodes if (mark := delete_mark(by_name[name])) and mark.ours]
        ended = {action.node for action in got.actions if isinstance(action, Terminate)} & set(marked_ours)
        taken_back = {action.node for action in got.actions if isinstance(action, RollBack)} & set(each.nodes)
        assert not ended or staying + len(taken_back) >= each.min_size
    flags_ = config.scale_down
    assert len(begun) <= flags_.max_parallelism
    assert sum(not action.empty for action in begun) <= flags_.max_drain_parallelism
    terminations = sum(isinstance(action, Terminate) for action in got.actions)
    assert flags_.max_terminations_per_10m == 0 or terminations <= flags_.max_terminations_per_10m
    evicted: Counter[str] = Counter()
    pods_by_key = {each.key: each for each in there.pods}
    for action in got.actions:
        if isinstance(action, Evict):
            for one in there.budgets:
                target = pods_by_key[action.pod]
                if one.metadata.namespace == action.pod[0] and selector_matches(one.spec.selector, target.labels):
                    evicted[one.name] += 1
    assert all(evicted[one.name] <= one.status.disruptions_allowed for one in there.budgets)


@given(worlds(), configs(), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_order_of_inputs_changes_nothing(there: World, config: NodesConfig, chance: random.Random) -> None:
    """The same world told in another order gives the same plan."""

    def shuffled(items: tuple[Item, ...]) -> tuple[Item, ...]:
        return tuple(chance.sample(items, len(items)))

    other = replace(
        there,
        nodes=shuffled(there.nodes),
        pods=shuffled(there.pods),
        groups=shuffled(there.groups or ()),
        budgets=shuffled(there.budgets),
        memory=replace(
            there.memory,
            unneeded_since_ms=dict(
                chance.sample(list(there.memory.unneeded_since_ms.items()), k=len(there.memory.unneeded_since_ms))
            ),
        ),
    )
    assert plan(other, config) == plan(there, config)


@given(worlds(), configs())
@settings(max_examples=200, deadline=None)
def test_refused_nodes_are_let_alone(there: World, config: NodesConfig) -> None:
    """A node annotated scale-down-disabled is never marked, emptied or terminated; without the right nobody is evicted."""
    got = plan(there, config)
    refused = {each.name for each in there.nodes if removal_disabled(each)}
    harmful = (BeginRemoval, Evict, Terminate, MarkCandidate)
    assert not [action for action in got.actions if isinstance(action, harmful) and action.node in refused]
    if not there.rights.evict:
        assert not [action for action in got.actions if isinstance(action, Evict)]
        assert not [action for action in got.actions if isinstance(action, BeginRemoval) and not action.empty]


@given(worlds())
@settings(max_examples=100, deadline=None)
def test_no_pod_is_lost_with_its_machine(there: World) -> None:
    """A machine is terminated only when nothing is left on it that would have to move or must not be moved."""
    config = flags()
    snap = there.snapshot()
    loads = Loads(snap, config)
    for action in plan(there, config).actions:
        if isinstance(action, Terminate):
            assert loads.of(snap.cluster.nodes.index[action.node]).empty


@given(worlds(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_it_comes_to_an_end(there: World, forget: bool) -> None:
    """Done as planned, from wake to wake, with or without a Memory, the world comes to rest: no mark of ours is left over."""
    play = Play(world=replace(there, needed=frozenset()), config=flags(max_drain_parallelism="3"), forget=forget)
    play.run(until_s=12 * HOUR_S, rounds=400)
    last = plan(replace(play.world, memory=Memory()) if forget else play.world, play.config)
    assert (last.actions, last.wake_at_ms) == ((), None), play.log
    marks = [each.name for each in play.world.nodes if (mark := delete_mark(each)) and mark.ours]
    assert not marks or {why.reason for why in last.nodes.values()} == {Reason.CLUSTER_UNHEALTHY}
    minimum = {each.name: each for each in there.groups or ()}
    for each in play.world.groups or ():
        assert len(each.nodes) >= min(len(minimum[each.name].nodes), each.min_size)
