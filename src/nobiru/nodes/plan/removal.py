"""The next step of every removal that has begun: settle, re-check, evict, wait, terminate, or roll back.

A removal is a row of loops; where it stands is read from the node's marks and its pods' deletion times, and the Memory only
makes that quicker, so any replica goes on where another stopped.  Invariant: nothing is evicted or terminated on a node that is
annotated scale-down-disabled, whose group would fall below its minimum, or while the whole is held; only marks that are
ours, or that nobody stands behind any more, are taken off.
Source: cluster-autoscaler 1.36 core/scaledown/actuation; differs: no step waits inside a loop, a restart resumes.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nobiru.kernel.cloud import GroupName
from nobiru.kernel.duration import format_duration
from nobiru.kernel.objects import Key, Node
from nobiru.kernel.reason import BlockingPodReason, Reason, Why
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import Action, EvictionTry, Memory, RemovalKind, RemovalNote, RollBack, Snapshot, Terminate
from nobiru.nodes.plan.disruption import Allowance
from nobiru.nodes.plan.drain import Drainer, DrainNode, daemon_pods_to_evict, drain_step
from nobiru.nodes.plan.health import BRAKE_WINDOW_MS
from nobiru.nodes.plan.loads import Blocked, Loads, blocked_by
from nobiru.nodes.plan.marks import DeleteMark, deletion_delays, removal_disabled
from nobiru.nodes.plan.state import ClusterState, NodeFact
from nobiru.placement.entries import PodEntry
from nobiru.placement.removals import Removal

# A delete taint of Cluster Autoscaler's that nobody goes on with: older ones do not count there either (static_autoscaler.go,
# MaxCloudProviderNodeDeletionTime).
ABANDONED_MS = 300_000
# AWS lists a terminated instance as InService for some seconds; one still there after this long is asked for again.
TERMINATED_MS_MAX = 60_000
# After a call that failed, the cache may still show the node as before.
FAILED_RETRY_MS = 10_000
# The cloud refuses to terminate for this long: the node is more use in service than marked.
TERMINATE_MS_MAX = 120_000
RIGHT_TERMINATE = "autoscaling:TerminateInstanceInAutoScalingGroup"


class Going(Struct, frozen=True, kw_only=True):
    """A node with a delete mark, and what stands on it now, pods by key."""

    index: int
    fact: NodeFact
    node: Node
    mark: DeleteMark
    note: RemovalNote
    move: tuple[PodEntry, ...] = ()
    daemons: tuple[PodEntry, ...] = ()
    blocked: Blocked | None = None

    @property
    def settled_ms(self) -> int:
        """When the mark was made; its value has whole seconds only."""
        return max(self.mark.since_ms, self.note.begun_ms)

    @property
    def moves(self) -> tuple[tuple[int, int], ...]:
        """(class index, pods) of those that still need room elsewhere."""
        counts: dict[int, int] = defaultdict(int)
        for pod in self.move:
            if not pod.deleted_ms:
                counts[pod.pod_class.index] += 1
        return tuple(sorted(counts.items()))


class Step(Struct, frozen=True, kw_only=True):
    """What becomes of one removal in this loop; `stays` where it is rolled back, `terminated` where the machine is going."""

    why: Why
    actions: tuple[Action, ...] = ()
    wake_at_ms: int | None = None
    stays: bool = False
    terminated: bool = False
    ends: bool = False  # its machine's termination is asked for in this plan
    note: RemovalNote | None = None  # what changed
    held: dict[str, EvictionTry] = {}
    blocking: tuple[Key, BlockingPodReason] | None = None


class Site(Struct, frozen=True, kw_only=True):
    """What all removals of a plan look at.

    `hold` stops everything but keeps the marks; `places` has how each node's pods would fit elsewhere; `released` are
    those that their group's minimum needs back; `brake` counts the terminations left.
    """

    snap: Snapshot
    state: ClusterState
    memory: Memory
    config: NodesConfig
    hold: Why | None
    places: Mapping[int, Removal]
    released: frozenset[int]
    allowance: Allowance
    brake: "Brake"


class Brake:
    """How many terminations the last ten minutes leave; lives for one plan."""

    def __init__(self, memory: Memory, config: NodesConfig, now_ms: int) -> None:
        self._recent = [at_ms for at_ms in memory.terminated_ms if now_ms - at_ms < BRAKE_WINDOW_MS]
        limit = config.scale_down.max_terminations_per_10m
        self._limit = limit
        self.left = limit - len(self._recent) if limit > 0 else 2**31

    def take(self) -> bool:
        """Whether one more is allowed; it then is counted."""
        if self.left <= 0:
            return False
        self.left -= 1
        return True

    def why(self) -> Why:
        return Why(reason=Reason.BRAKE, detail=f"{self._limit} in ten minutes")

    def opens_ms(self) -> int | None:
        """When the oldest termination drops out of the window."""
        return min(self._recent) + BRAKE_WINDOW_MS if self._recent else None


def goings(snap: Snapshot, state: ClusterState, memory: Memory, loads: Loads) -> tuple[Going, ...]:
    """Every node with a delete mark.

    Order: oldest mark first, then name.
    """
    found = [
        _going(index, fact, snap, memory, loads)
        for index, fact in enumerate(state.nodes)
        if fact.delete_mark is not None
    ]
    return tuple(sorted(found, key=lambda going: (going.mark.since_ms, going.fact.name)))


def _going(index: int, fact: NodeFact, snap: Snapshot, memory: Memory, loads: Loads) -> Going:
    assert fact.delete_mark is not None
    move: list[PodEntry] = []
    daemons: list[PodEntry] = []
    blocked: Blocked | None = None
    note = memory.removing.get(fact.name)
    draining = note is not None and note.draining_ms > 0
    for pod in snap.cluster.pods[index]:
        verdict = loads.verdict(pod)
        if pod.state == "nominated" or verdict.kind == "skip":
            continue
        if verdict.kind == "daemon":
            daemons.append(pod)
        elif verdict.kind == "move" or (draining and verdict.reason is BlockingPodReason.NOT_ENOUGH_PDB):
            move.append(pod)  # once evictions run, a budget only slows them down
        elif pod.deleted_ms and pod.deleted_ms - pod.grace_ms >= fact.delete_mark.since_ms:
            move.append(pod)  # deleted since the mark, by us or somebody: no rule calls it back
        else:
            blocked = blocked or blocked_by(pod, verdict)
    return Going(
        index=index,
        fact=fact,
        node=snap.cluster.nodes.nodes[index],
        mark=fact.delete_mark,
        note=note or _infer(fact, fact.delete_mark, move),
        move=tuple(move),
        daemons=tuple(daemons),
        blocked=blocked,
    )


def _infer(fact: NodeFact, mark: DeleteMark, move: Sequence[PodEntry]) -> RemovalNote:
    """The note of a removal that another process began: an empty node's pods, if any, came after the mark."""
    kind: RemovalKind = "empty"
    draining_ms = 0
    if fact.condition == "unready":
        kind = "unready"
    elif any(pod.created_ms <= mark.since_ms for pod in move):
        kind = "underutilized"
    evicted = [pod.deleted_ms - pod.grace_ms for pod in move if pod.deleted_ms]
    started = [at_ms for at_ms in evicted if at_ms >= mark.since_ms]
    if started:
        draining_ms = min(started)
    return RemovalNote(begun_ms=mark.since_ms, kind=kind, draining_ms=draining_ms)


def released(
    going: Sequence[Going], state: ClusterState, unseen: Mapping[GroupName, int], memory: Memory
) -> frozenset[int]:
    """The nodes that go back into service because their group would fall below its minimum: the newest marks first."""
    chosen: set[int] = set()
    by_group: dict[GroupName, list[Going]] = defaultdict(list)
    for each in going:
        if each.mark.ours and not each.fact.instance_leaving and each.fact.instance not in memory.terminating:
            by_group[each.fact.group].append(each)
    for name, members in by_group.items():
        group = state.groups.get(name)
        if group is not None:
            short = group.min_size - (group.target - unseen.get(name, 0))
            newest = sorted(members, key=lambda each: (-each.mark.since_ms, each.fact.name))
            chosen.update(each.index for each in newest[: max(0, short)])
    return frozenset(chosen)


def next_step(going: Going, site: Site) -> Step:
    """The next step of one removal: the first check that has an answer, else on with it."""
    for check in CHECKS:
        step = check(going, site)
        if step is not None:
            return step
    return _go_on(going, site)


def _waits(detail: str, wake_at_ms: int | None = None, *, terminated: bool = False) -> Step:
    return Step(why=Why(reason=Reason.BEING_DELETED, detail=detail), wake_at_ms=wake_at_ms, terminated=terminated)


def _back(going: Going, site: Site, reason: Reason, detail: str = "") -> Step:
    """Into service again; without the right to patch nodes the marks stay, and that is said."""
    why = Why(reason=reason, detail=detail)
    blocking = (going.blocked.pod, going.blocked.reason) if reason is Reason.BLOCKED_BY_POD and going.blocked else None
    if not site.snap.rights.update_nodes:
        return Step(why=Why(reason=Reason.NODE_UPDATE_NOT_ALLOWED, detail=f"its marks cannot be taken off: {why}"))
    action = RollBack(node=going.fact.name, group=going.fact.group, why=str(why))
    return Step(why=why, actions=(action,), stays=True, blocking=blocking)


# Checks, in order; the first one with an answer decides


def _just_failed(going: Going, site: Site) -> Step | None:
    """A call for this node failed, or its roll-back is on its way: the cache may show it as before."""
    failed_ms = site.memory.failed_removal_ms.get(going.fact.name, 0)
    if failed_ms >= going.mark.since_ms and site.snap.now_ms - failed_ms < FAILED_RETRY_MS:
        return _waits("a call failed and is tried again", failed_ms + FAILED_RETRY_MS)
    return None


def _machine_going(going: Going, site: Site) -> Step | None:
    """The cloud is taking the machine away already."""
    if going.fact.instance_leaving:
        return _waits("its machine is terminating", terminated=True)
    at_ms = site.memory.terminating.get(going.fact.instance)
    if at_ms is None:
        return None
    if not going.fact.group:
        return _waits("its machine is gone", terminated=True)
    again_ms = at_ms + TERMINATED_MS_MAX
    return _waits("its machine is terminated", again_ms, terminated=True) if site.snap.now_ms < again_ms else None


def _held(going: Going, site: Site) -> Step | None:
    return Step(why=site.hold) if site.hold else None


def _switched_off(going: Going, site: Site) -> Step | None:
    if going.mark.ours and not site.config.scale_down.enabled:
        return _back(going, site, Reason.SCALE_DOWN_OFF)
    return None


def _not_ours(going: Going, site: Site) -> Step | None:
    """A delete taint without our name: Cluster Autoscaler's, whose lock we hold, so nobody goes on with it."""
    if going.mark.ours:
        return None
    if not going.fact.group:
        return Step(why=Why(reason=Reason.NOT_AUTOSCALED, detail="somebody else's delete taint"))
    until_ms = going.mark.since_ms + ABANDONED_MS
    if site.snap.now_ms < until_ms:
        return _waits("it carries a delete taint that is not ours", until_ms)
    return _back(going, site, Reason.BEING_DELETED, "an abandoned delete taint is taken off")


def _unowned(going: Going, site: Site) -> Step | None:
    """No group lists the machine: it is gone, or was taken out of its group."""
    group = site.state.groups.get(going.fact.group)
    if group is None:
        until_ms = going.settled_ms + ABANDONED_MS
        if site.snap.now_ms < until_ms or site.snap.group_problem:
            return _waits("no group lists its machine", until_ms if site.snap.now_ms < until_ms else None)
        return _back(going, site, Reason.NOT_AUTOSCALED)
    if group.group.problem:
        return Step(why=Why(reason=Reason.GROUP_PROBLEM, detail=group.group.problem))
    return None


def _disabled(going: Going, site: Site) -> Step | None:
    return _back(going, site, Reason.SCALE_DOWN_DISABLED) if removal_disabled(going.node) else None


def _minimum(going: Going, site: Site) -> Step | None:
    if going.index not in site.released:
        return None
    return _back(going, site, Reason.GROUP_AT_MIN_SIZE, f"at least {site.state.groups[going.fact.group].min_size}")


def _rights(going: Going, site: Site) -> Step | None:
    if RIGHT_TERMINATE in site.snap.rights.denied_aws:
        return _back(going, site, Reason.TERMINATE_NOT_ALLOWED)
    return None


def _settling(going: Going, site: Site) -> Step | None:
    """Pods that the scheduler was just placing need a moment to show."""
    until_ms = going.settled_ms + site.config.drain.node_delete_delay_after_taint_ms
    return _waits("its taint settles", until_ms) if site.snap.now_ms < until_ms else None


def _blocked(going: Going, site: Site) -> Step | None:
    return _back(going, site, Reason.BLOCKED_BY_POD, str(going.blocked)) if going.blocked else None


def _landed(going: Going, site: Site) -> Step | None:
    """An empty node that pods came to is not empty; DaemonSet pods do not count."""
    if going.note.kind != "empty" or going.note.draining_ms or not going.move:
        return None
    return _back(going, site, Reason.RECENTLY_UNREMOVABLE, f"pods came to it while it was empty: {_names(going.move)}")


def _cannot_evict(going: Going, site: Site) -> Step | None:
    if going.moves and not site.snap.rights.evict:
        return _back(going, site, Reason.EVICTION_NOT_ALLOWED, _names(going.move))
    return None


def _no_place(going: Going, site: Site) -> Step | None:
    """Before the first eviction the pods must still fit elsewhere; afterwards turning back would help nobody."""
    place = site.places.get(going.index)
    if going.note.draining_ms or place is None or place.goes:
        return None
    return _back(going, site, Reason.NO_PLACE_TO_MOVE_PODS, "since it was marked")


CHECKS: tuple[Callable[[Going, Site], Step | None], ...] = (
    _just_failed,
    _machine_going,
    _held,
    _switched_off,
    _not_ours,
    _unowned,
    _disabled,
    _minimum,
    _rights,
    _settling,
    _blocked,
    _landed,
    _cannot_evict,
    _no_place,
)


# On with it


def _go_on(going: Going, site: Site) -> Step:
    """Evict, wait for pods, wait for whoever asked to, terminate."""
    now_ms = site.snap.now_ms
    drainer = Drainer(
        config=site.config.drain,
        tries=site.memory.evictions,
        allowance=site.allowance,
        now_ms=now_ms,
        may_evict=site.snap.rights.evict,
    )
    step = drain_step(_drain_node(going, site), drainer)
    if step.failed:
        return _back(going, site, Reason.RECENTLY_UNREMOVABLE, step.failed)
    if not step.done:
        moving = {pod.uid for pod in going.move}
        begins = any(each.uid in moving for each in step.evict)  # DaemonSet pods alone leave an empty node empty
        begun = going.note.draining_ms or (now_ms if begins else 0)
        left = tuple(each.pod for each in step.evict) + step.waiting
        return Step(
            why=Why(reason=Reason.BEING_DELETED, detail=f"{len(left)} pods to go: {_keys(left)}"),
            actions=step.evict,
            wake_at_ms=step.wake_at_ms,
            note=replace(going.note, draining_ms=begun),
            held=step.held,
        )
    return _finish(replace(going, note=replace(going.note, gone_ms=going.note.gone_ms or now_ms)), site)


def _drain_node(going: Going, site: Site) -> DrainNode:
    empty = not going.move and not going.note.draining_ms
    daemons = daemon_pods_to_evict(going.daemons, site.config.drain, empty=empty, marked_ms=going.mark.since_ms)
    return DrainNode(
        name=going.fact.name,
        marked_ms=going.settled_ms,
        inherited=going.fact.name not in site.memory.removing,
        move=going.move,
        daemons=daemons if site.snap.rights.evict else (),
    )


def _finish(going: Going, site: Site) -> Step:
    """The node is empty: terminate its machine, unless somebody asked for a delay or the brake holds."""
    now_ms, note = site.snap.now_ms, going.note
    delays = deletion_delays(going.node)
    until_ms = note.gone_ms + site.config.drain.node_deletion_delay_timeout_ms
    if delays and now_ms < until_ms:
        return replace(_waits(f"waits for {', '.join(delays)}", until_ms), note=note)
    if (
        note.terminate_ms
        and now_ms - note.terminate_ms > TERMINATE_MS_MAX
        and going.fact.instance not in site.memory.terminating
    ):
        detail = f"its machine could not be terminated for {format_duration(TERMINATE_MS_MAX)}"
        return _back(going, site, Reason.RECENTLY_UNREMOVABLE, detail)
    if not site.brake.take():
        return Step(why=site.brake.why(), wake_at_ms=site.brake.opens_ms(), note=note)
    action = Terminate(instance=going.fact.instance, group=going.fact.group, node=going.fact.name, reason=note.kind)
    return Step(
        why=Why(reason=Reason.BEING_DELETED, detail="its machine is being terminated"),
        actions=(action,),
        ends=True,
        note=replace(note, terminate_ms=note.terminate_ms or now_ms),
        wake_at_ms=now_ms + FAILED_RETRY_MS,
    )


def _names(pods: Sequence[PodEntry]) -> str:
    return _keys([pod.key for pod in pods])


def _keys(keys: Sequence[Key]) -> str:
    """The first few pods, for people."""
    named = ", ".join("/".join(key) for key in keys[:3])
    return f"{named} and {len(keys) - 3} more" if len(keys) > 3 else named
