"""Which nodes are unneeded, since when, and what is done about it in this loop.

Removals under way go on first (`removal`); then every other node is judged (`eligible`), those whose pods fit elsewhere
are unneeded (`placement.removals`), timers run, soft taints follow, and what is due begins (`begin`).
Invariant: every node is acted on or has its Why; a loop that cannot judge a node leaves its timer as it is; what stops
scale-down (stale knowledge, an unhealthy cluster, the pause switch) stops every action at once and keeps marks and timers.
Source: cluster-autoscaler 1.36 core/scaledown; differs: timers survive restarts and unhealthy loops, candidates have a fixed
order.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from nobiru.kernel.cloud import GroupName
from nobiru.kernel.objects import Key
from nobiru.kernel.reason import BlockingPodReason, Reason, Why
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import Action, Evict, EvictionTry, Memory, NodeName, RemovalNote, Snapshot
from nobiru.nodes.plan.begin import Begun, Starter, Under, Unneeded
from nobiru.nodes.plan.disruption import Allowance
from nobiru.nodes.plan.eligible import Eligible, is_unseen, sort_out_nodes
from nobiru.nodes.plan.loads import Loads
from nobiru.nodes.plan.removal import Brake, Going, Site, Step, goings, next_step, released
from nobiru.nodes.plan.scale_options import pauses
from nobiru.nodes.plan.soft_taints import soft_taints
from nobiru.nodes.plan.staleness import stale
from nobiru.nodes.plan.state import ClusterState
from nobiru.nodes.plan.timers import Timers, run_timers, unneeded_since_ms
from nobiru.placement.affinity import conflicts
from nobiru.placement.classes import PodClass
from nobiru.placement.columns import Bools
from nobiru.placement.filters import fits
from nobiru.placement.removals import Candidate, Removal, plan_removals


class ScaleDown(Struct, frozen=True, kw_only=True):
    """What to do about nodes that are not needed, and why each other node is left alone."""

    actions: tuple[Action, ...]
    nodes: dict[NodeName, Why]
    blocking: dict[NodeName, tuple[Key, BlockingPodReason]]
    unneeded: tuple[NodeName, ...]
    memory: Memory
    wake_at_ms: int | None
    notes: tuple[str, ...] = ()


def plan_scale_down(
    snap: Snapshot,
    state: ClusterState,
    memory: Memory,
    config: NodesConfig,
    *,
    free: np.ndarray,
    needed: frozenset[int],
    scaled_up: bool,
) -> ScaleDown:
    """The next steps of removals, soft taints, and what begins to go.

    Shapes:  free (R, N) int64, what pending pods leave of each node; `needed` are the columns they were planned onto.
    Order:   empty nodes first, then by how long they are unneeded, then the least used, then by name.
    """
    hold = _hold(snap, state, config)
    if hold is not None and hold.reason is not Reason.PAUSED:
        return _nothing(snap, memory, hold)
    loads = Loads(snap, config)
    going = goings(snap, state, memory, loads)
    unseen = _unseen(snap, state, memory)
    if not config.scale_down.enabled:
        return _switched_off(_site(snap, state, memory, config, loads, hold), going)
    eligible = sort_out_nodes(snap, state, memory, config, loads=loads, needed=needed, unseen=unseen)
    candidates = _in_order(eligible, snap, state, memory)
    receives = _receives(snap, state, memory, config)
    places = _places(snap, going=going, candidates=candidates, free=free, receives=receives)
    site = replace(
        _site(snap, state, memory, config, loads, hold),
        places={place.node: place for place in places.going},
        released=released(going, state, unseen, memory),
    )
    steps = [next_step(each, site) for each in going]
    _reserve(going, steps, site.allowance)
    unneeded = [each for each, place in zip(candidates, places.candidates, strict=True) if place.goes]
    whys = eligible.why | _place_whys(places, snap)
    timers = run_timers(snap, state, memory, whys=whys, unneeded=unneeded)
    begun = Starter(snap, state, config, loads=loads, under=_under(going, steps, unseen), brake=site.brake).begin(
        unneeded,
        eligible.options,
        pauses=pauses(memory, config, state.groups, snap.now_ms, scaled_up=scaled_up),
        hold=hold,
        allowance=site.allowance,
    )
    soft = soft_taints(snap, state, config, timers=timers, begun=begun.notes) if hold is None else ()
    return ScaleDown(
        actions=tuple(action for step in steps for action in step.actions) + soft + begun.actions,
        nodes=_whys(state, whys, begun, going, steps),
        blocking=_blocking(state, eligible, begun, going, steps),
        unneeded=tuple(sorted(each.fact.name for each in unneeded)),
        memory=_remember(snap, memory, going, steps, timers, begun.notes, state),
        wake_at_ms=_wake(snap.now_ms, [*eligible.wakes, *begun.wakes], steps),
        notes=eligible.notes,
    )


# What stops all


def _hold(snap: Snapshot, state: ClusterState, config: NodesConfig) -> Why | None:
    """Why nothing at all may be done, if so."""
    old = stale(snap, config)
    if old is not None:
        return old
    if not state.healthy:
        return Why(
            reason=Reason.CLUSTER_UNHEALTHY, detail=f"{state.unready_count} not ready, {state.ready_count} ready"
        )
    return Why(reason=Reason.PAUSED) if "down" in snap.paused else None


def _nothing(snap: Snapshot, memory: Memory, why: Why) -> ScaleDown:
    """Nothing is judged, so every timer and note stays."""
    return ScaleDown(
        actions=(),
        nodes=dict.fromkeys(snap.cluster.nodes.names, why),
        blocking={},
        unneeded=(),
        memory=memory,
        wake_at_ms=None,
    )


def _switched_off(site: Site, going: Sequence[Going]) -> ScaleDown:
    """--scale-down-enabled=false: our marks are taken off, soft ones too."""
    steps = [next_step(each, site) for each in going]
    nodes = dict.fromkeys(site.snap.cluster.nodes.names, Why(reason=Reason.SCALE_DOWN_OFF))
    nodes |= {each.fact.name: step.why for each, step in zip(going, steps, strict=True)}
    timers = Timers(since_ms={}, needed_ms={}, kept=frozenset())
    soft = soft_taints(site.snap, site.state, site.config, timers=timers, begun={}) if site.hold is None else ()
    return ScaleDown(
        actions=tuple(action for step in steps for action in step.actions) + soft,
        nodes=nodes,
        blocking={},
        unneeded=(),
        memory=_remember(site.snap, site.memory, going, steps, timers, {}, site.state),
        wake_at_ms=_wake(site.snap.now_ms, [], steps),
    )


def _site(
    snap: Snapshot, state: ClusterState, memory: Memory, config: NodesConfig, loads: Loads, hold: Why | None
) -> Site:
    return Site(
        snap=snap,
        state=state,
        memory=memory,
        config=config,
        hold=hold,
        places={},
        released=frozenset(),
        allowance=Allowance(loads.budgets),
        brake=Brake(memory, config, snap.now_ms),
    )


# Who can go


def _in_order(eligible: Eligible, snap: Snapshot, state: ClusterState, memory: Memory) -> list[Unneeded]:
    """The eligible nodes in the order in which they are tried and begun."""
    value = eligible.utilization.value
    nodes = [
        Unneeded(
            index=index,
            fact=state.nodes[index],
            load=load,
            since_ms=unneeded_since_ms(state.nodes[index], memory, snap.now_ms),
            utilization=float(value[index]),
        )
        for index, load in eligible.loads.items()
    ]
    nodes.sort(key=lambda node: (not node.load.empty, node.since_ms, node.utilization, node.fact.name))
    return nodes


class _Places(Struct, frozen=True, kw_only=True, eq=False):
    """How the pods of removals under way, and then of the candidates, would fit elsewhere."""

    going: tuple[Removal, ...]
    candidates: tuple[Removal, ...]
    classes: tuple[PodClass, ...]  # by row of the removals


def _places(
    snap: Snapshot,
    *,
    going: Sequence[Going],
    candidates: Sequence[Unneeded],
    free: np.ndarray,
    receives: Bools,
) -> _Places:
    """Where the pods would go, removals under way first: room is given once."""
    if not going and not candidates:
        return _Places(going=(), candidates=(), classes=())
    moves = [each.moves if each.mark.ours else () for each in going] + [each.load.moves for each in candidates]
    rows = sorted({index for pods in moves for index, _ in pods})
    row_of = {index: row for row, index in enumerate(rows)}
    classes = tuple(snap.cluster.classes[index] for index in rows)
    suits = fits(classes, snap.cluster.nodes)
    for row, pod_class in enumerate(classes):
        if pod_class.unplanned:
            suits[row] = False  # nobody can promise such a pod another place
    indexes = [each.index for each in going] + [each.index for each in candidates]
    found = plan_removals(
        snap.cluster.request[rows],
        suits,
        free,
        [
            Candidate(node=node, rows=tuple(row_of[index] for index, _ in pods), counts=tuple(n for _, n in pods))
            for node, pods in zip(indexes, moves, strict=True)
        ],
        receives=receives,
        per_node_max=np.array([pod_class.per_node_max for pod_class in classes], dtype=np.int64),
        conflicts=conflicts(classes),
    )
    return _Places(going=found[: len(going)], candidates=found[len(going) :], classes=classes)


def _receives(snap: Snapshot, state: ClusterState, memory: Memory, config: NodesConfig) -> Bools:
    """The nodes that may take moved pods, (N,) bool: ready, staying, and not one whose own removal just failed.

    A failed drain leaves a node half empty; were its neighbours drained onto it, their pods would go to and fro.
    """
    recheck_ms = config.scale_down.unremovable_node_recheck_timeout_ms
    return np.array(
        [
            fact.condition == "ready"
            and fact.delete_mark is None
            and not fact.instance_leaving
            and fact.instance not in memory.terminating
            and not is_unseen(fact, memory, snap.now_ms)
            and snap.now_ms - memory.failed_removal_ms.get(fact.name, -recheck_ms) >= recheck_ms
            for fact in state.nodes
        ],
        dtype=np.bool_,
    )


def _place_whys(places: _Places, snap: Snapshot) -> dict[int, Why]:
    """Why candidates stay after all."""
    whys: dict[int, Why] = {}
    for place in places.candidates:
        if place.outcome == "took_pods":
            whys[place.node] = Why(reason=Reason.TOOK_PODS)
        elif not place.goes:
            whys[place.node] = _no_place(place.node, places.classes[place.blocked_by], snap)
    return whys


def _no_place(node: int, pod_class: PodClass, snap: Snapshot) -> Why:
    """The first pod that finds no room, and the rule that keeps it from being planned where there is one."""
    pods = snap.cluster.pods[node]
    key = next(pod.key for pod in pods if pod.pod_class.index == pod_class.index)
    detail = "/".join(key) + (f": {pod_class.unplanned}" if pod_class.unplanned else "")
    return Why(reason=Reason.NO_PLACE_TO_MOVE_PODS, detail=detail)


# What is under way


def _unseen(snap: Snapshot, state: ClusterState, memory: Memory) -> dict[GroupName, int]:
    """How many nodes of each group we marked although the Snapshot does not show it yet."""
    counts: dict[GroupName, int] = defaultdict(int)
    if memory.removing:
        for fact in state.nodes:
            if is_unseen(fact, memory, snap.now_ms):
                counts[fact.group] += 1
    return dict(counts)


def _reserve(going: Sequence[Going], steps: Sequence[Step], allowance: Allowance) -> None:
    """Keep for drains under way what their pods that are still to be evicted will ask of budgets."""
    for each, step in zip(going, steps, strict=True):
        if not step.stays:
            evicted = {action.pod for action in step.actions if isinstance(action, Evict)}
            for pod in each.move:
                if not pod.deleted_ms and pod.key not in evicted:
                    allowance.spend(pod.pod_class.index)


def _under(going: Sequence[Going], steps: Sequence[Step], unseen: Mapping[GroupName, int]) -> Under:
    running = [
        (each, step)
        for each, step in zip(going, steps, strict=True)
        if each.mark.ours and not step.stays and not step.terminated
    ]
    hidden = sum(unseen.values())
    return Under(
        removals=len(running) + hidden,
        drains=sum(bool(each.move) or each.note.kind == "underutilized" for each, _ in running) + hidden,
        ahead=sum(not step.ends for _, step in running) + hidden,
        unseen=unseen,
    )


# What is said and remembered


def _whys(
    state: ClusterState, whys: dict[int, Why], begun: Begun, going: Sequence[Going], steps: Sequence[Step]
) -> dict[NodeName, Why]:
    """Why each node is left alone, or how far its removal is; nodes by name."""
    said = {state.nodes[index].name: why for index, why in (whys | begun.why).items()}
    said |= {each.fact.name: step.why for each, step in zip(going, steps, strict=True)}
    return dict(sorted(said.items()))


def _blocking(
    state: ClusterState, eligible: Eligible, begun: Begun, going: Sequence[Going], steps: Sequence[Step]
) -> dict[NodeName, tuple[Key, BlockingPodReason]]:
    blocked = eligible.blocked | begun.blocked
    found = {state.nodes[index].name: (each.pod, each.reason) for index, each in blocked.items()}
    found |= {each.fact.name: step.blocking for each, step in zip(going, steps, strict=True) if step.blocking}
    return dict(sorted(found.items()))


def _remember(
    snap: Snapshot,
    memory: Memory,
    going: Sequence[Going],
    steps: Sequence[Step],
    timers: Timers,
    begun: Mapping[NodeName, RemovalNote],
    state: ClusterState,
) -> Memory:
    """The Memory with what this plan knows; tries, failures and terminations are added by their Outcomes."""
    removing = {fact.name: memory.removing[fact.name] for fact in state.nodes if is_unseen(fact, memory, snap.now_ms)}
    evictions: dict[str, EvictionTry] = {}
    for each, step in zip(going, steps, strict=True):
        if step.stays or not each.mark.ours:
            continue
        removing[each.fact.name] = step.note or each.note
        uids = {pod.uid for pod in each.move + each.daemons}
        evictions |= {uid: tried for uid, tried in memory.evictions.items() if uid in uids} | step.held
    known = snap.cluster.nodes.index
    return replace(
        memory,
        unneeded_since_ms=timers.since_ms,
        needed_ms=timers.needed_ms,
        removing={**removing, **begun},
        evictions=evictions,
        failed_removal_ms={name: at_ms for name, at_ms in memory.failed_removal_ms.items() if name in known},
    )


def _wake(now_ms: int, moments: Sequence[int], steps: Sequence[Step]) -> int | None:
    """The next moment at which something here is due by time alone."""
    ahead = [moment for moment in moments if moment > now_ms]
    ahead += [step.wake_at_ms for step in steps if step.wake_at_ms is not None and step.wake_at_ms > now_ms]
    return min(ahead, default=None)
