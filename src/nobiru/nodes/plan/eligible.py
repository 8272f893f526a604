"""Which nodes may be thought of as unneeded at all, and why each other one may not.

It refuses to know: whether the pods fit elsewhere, timers, how many may go.  Invariant: every node without a delete mark
either is eligible or has its Why; a node whose removal could not be carried out (a missing right) is never eligible.
Source: cluster-autoscaler 1.36 core/scaledown/eligibility, processors/scaledowncandidates.
"""

from collections.abc import Mapping

from msgspec import Struct

from nobiru.kernel.cloud import GroupName
from nobiru.kernel.duration import format_duration
from nobiru.kernel.reason import Reason, Why
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import Memory, Snapshot
from nobiru.nodes.plan.begin import size_to_spare
from nobiru.nodes.plan.loads import Blocked, Load, Loads
from nobiru.nodes.plan.marks import removal_disabled
from nobiru.nodes.plan.removal import RIGHT_TERMINATE
from nobiru.nodes.plan.scale_options import GroupOptions, options_of_flags, options_of_group
from nobiru.nodes.plan.state import ClusterState, NodeFact
from nobiru.nodes.plan.utilization import Utilization, measure

# Cluster Autoscaler 1.2 took a node at the threshold itself for used.
_THRESHOLD_ITSELF_GOES = (1, 3)


class Eligible(Struct, frozen=True, kw_only=True, eq=False):
    """The nodes to think about, by column, with their loads; and why not each other one.

    `wakes` are the moments at which a Why ends by time alone.
    """

    loads: dict[int, Load]
    why: dict[int, Why]
    blocked: dict[int, Blocked]
    utilization: Utilization
    options: dict[GroupName, GroupOptions]
    notes: tuple[str, ...]
    wakes: tuple[int, ...]


class _Judge(Struct, frozen=True, kw_only=True, eq=False):
    """What the checks look at."""

    snap: Snapshot
    state: ClusterState
    memory: Memory
    config: NodesConfig
    needed: frozenset[int]
    unseen: Mapping[GroupName, int]
    options: dict[GroupName, GroupOptions]
    utilization: Utilization


def sort_out_nodes(
    snap: Snapshot,
    state: ClusterState,
    memory: Memory,
    config: NodesConfig,
    *,
    loads: Loads,
    needed: frozenset[int],
    unseen: Mapping[GroupName, int],
) -> Eligible:
    """Eligible nodes and Whys; `unseen` counts a group's removals that do not show as marks yet."""
    flags = options_of_flags(config.scale_down)
    options: dict[GroupName, GroupOptions] = {}
    notes: list[str] = []
    for name, group in state.groups.items():
        options[name], lines = options_of_group(group.group, flags)
        notes += lines
    utilization = measure(
        snap.cluster,
        loads,
        without_daemons=[options.get(fact.group, flags).ignore_daemonsets for fact in state.nodes],
        without_mirrors=config.scale_down.ignore_mirror_pods_utilization,
    )
    judge = _Judge(
        snap=snap,
        state=state,
        memory=memory,
        config=config,
        needed=needed,
        unseen=unseen,
        options=options,
        utilization=utilization,
    )
    found: dict[int, Load] = {}
    whys: dict[int, Why] = {}
    blocked: dict[int, Blocked] = {}
    wakes: list[int] = []
    refused = _missing_right(snap)
    for index, fact in enumerate(state.nodes):
        if fact.delete_mark is not None:
            continue
        why = _standing(index, fact, judge) or _use(index, fact, judge) or refused
        load = loads.of(index) if why is None else None
        if load is not None:
            why = _load_why(load, snap)
            if load.blocked is not None:
                blocked[index] = load.blocked
        if why is not None:
            whys[index] = why
            wakes += _ends(why, fact, load, judge)
        elif load is not None:
            found[index] = load
    return Eligible(
        loads=found,
        why=whys,
        blocked=blocked,
        utilization=utilization,
        options=options,
        notes=tuple(notes),
        wakes=tuple(wakes),
    )


def _standing(index: int, fact: NodeFact, judge: _Judge) -> Why | None:
    """Why a node is left alone whatever runs on it."""
    group = judge.state.groups.get(fact.group)
    if group is None:
        return Why(reason=Reason.NOT_AUTOSCALED)
    if group.group.problem:
        return Why(reason=Reason.GROUP_PROBLEM, detail=group.group.problem)
    if fact.instance_leaving or fact.instance in judge.memory.terminating:
        return Why(reason=Reason.BEING_DELETED, detail="its machine is terminating")
    if is_unseen(fact, judge.memory, judge.snap.now_ms):
        return Why(reason=Reason.BEING_DELETED, detail="it was just marked")
    size = size_to_spare(group, judge.unseen.get(fact.group, 0))
    if size <= group.min_size:
        return Why(reason=Reason.GROUP_AT_MIN_SIZE, detail=f"{fact.group} has {size} of at least {group.min_size}")
    if removal_disabled(judge.snap.cluster.nodes.nodes[index]):
        return Why(reason=Reason.SCALE_DOWN_DISABLED)
    if fact.condition == "starting":
        return Why(reason=Reason.UNREADY_STARTING)
    if fact.condition == "unready" and not judge.config.scale_down.unready_enabled:
        return Why(reason=Reason.SCALE_DOWN_UNREADY_DISABLED)
    if index in judge.needed:
        return Why(reason=Reason.NEEDED_FOR_PENDING)
    left_ms = _failed_recently_ms(fact, judge)
    if left_ms > 0:
        return Why(reason=Reason.RECENTLY_UNREMOVABLE, detail=f"{format_duration(left_ms)} left")
    return None


def _use(index: int, fact: NodeFact, judge: _Judge) -> Why | None:
    """Why a node is worth its money."""
    use = judge.utilization
    if not use.known[index]:
        return Why(reason=Reason.NO_ALLOCATABLE)
    options = judge.options[fact.group]
    threshold = options.gpu_utilization_threshold if use.gpu[index] else options.utilization_threshold
    value = float(use.value[index])
    # The same two integers divide to the same float as in Go, so the comparison is exact, as Cluster Autoscaler's.
    used = value > threshold or (value == threshold and judge.config.compat < _THRESHOLD_ITSELF_GOES)
    if used:
        return Why(reason=Reason.NOT_UNDERUTILIZED, detail=f"{use.text(index)}; threshold {threshold:.1%}")
    return None


def _missing_right(snap: Snapshot) -> Why | None:
    """Why no node can go at all: what cannot be finished is not begun."""
    if not snap.rights.update_nodes:
        return Why(reason=Reason.NODE_UPDATE_NOT_ALLOWED)
    if RIGHT_TERMINATE in snap.rights.denied_aws:
        return Why(reason=Reason.TERMINATE_NOT_ALLOWED)
    return None


def _load_why(load: Load, snap: Snapshot) -> Why | None:
    """Why a node is kept by what runs on it."""
    if load.awaited:
        return Why(reason=Reason.NEEDED_FOR_PENDING, detail="a pod is nominated to it")
    if load.blocked is not None:
        return Why(reason=Reason.BLOCKED_BY_POD, detail=str(load.blocked))
    if load.moves and not snap.rights.evict:
        pods = sum(count for _, count in load.moves)
        return Why(reason=Reason.EVICTION_NOT_ALLOWED, detail=f"{pods} pods to move")
    return None


def _failed_recently_ms(fact: NodeFact, judge: _Judge) -> int:
    """How much longer a node whose removal failed is let alone."""
    failed_ms = judge.memory.failed_removal_ms.get(fact.name)
    if failed_ms is None:
        return 0
    return failed_ms + judge.config.scale_down.unremovable_node_recheck_timeout_ms - judge.snap.now_ms


def _ends(why: Why, fact: NodeFact, load: Load | None, judge: _Judge) -> list[int]:
    """When the Why ends by itself."""
    if why.reason is Reason.RECENTLY_UNREMOVABLE:
        return [judge.snap.now_ms + _failed_recently_ms(fact, judge)]
    if why.reason is Reason.BLOCKED_BY_POD and load and load.blocked and load.blocked.until_ms is not None:
        return [load.blocked.until_ms]
    return []


# A patch that was accepted shows in the watch within a second or two; later it did not happen, or was undone.
UNSEEN_MS_MAX = 10_000


def is_unseen(fact: NodeFact, memory: Memory, now_ms: int) -> bool:
    """Whether we marked the node and the mark does not show yet."""
    note = memory.removing.get(fact.name) if memory.removing else None
    if note is None or fact.delete_mark is not None or now_ms - note.begun_ms >= UNSEEN_MS_MAX:
        return False
    return memory.failed_removal_ms.get(fact.name, -1) < note.begun_ms
