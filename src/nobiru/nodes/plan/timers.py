"""Since when nodes are unneeded: a timer that restarts do not reset and that a loop without a judgement leaves alone.

It refuses to know: how long is long enough.  Invariant: a timer starts over only when the node was judged and found needed; a
mark on the node that is older than that judgement counts no more, however late it is taken off.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from nobiru.kernel.reason import Reason, Why
from nobiru.nodes.model import Memory, NodeName, Snapshot
from nobiru.nodes.plan.begin import Unneeded
from nobiru.nodes.plan.state import ClusterState, NodeFact

# With these a loop says nothing about whether the node is needed.
_NOT_JUDGED = frozenset({Reason.GROUP_PROBLEM, Reason.RECENTLY_UNREMOVABLE, Reason.BEING_DELETED})


class Timers(Struct, frozen=True, kw_only=True):
    """The timers after this loop; `kept` are nodes that were not judged, whose marks stay too."""

    since_ms: dict[NodeName, int]
    needed_ms: dict[NodeName, int]
    kept: frozenset[NodeName]


def unneeded_since_ms(fact: NodeFact, memory: Memory, now_ms: int) -> int:
    """Since when the node is unneeded, if it is now: by Memory or by the node's own mark, whichever is older."""
    known_ms = memory.unneeded_since_ms.get(fact.name, now_ms)
    mark_ms = fact.candidate_since_ms
    if mark_ms is None or mark_ms <= memory.needed_ms.get(fact.name, -1):
        return min(known_ms, now_ms)
    # A mark has whole seconds: the one we made ourselves is not older than what we know.
    return min(known_ms, now_ms) if mark_ms // 1000 >= known_ms // 1000 else mark_ms


def run_timers(
    snap: Snapshot, state: ClusterState, memory: Memory, *, whys: Mapping[int, Why], unneeded: Sequence[Unneeded]
) -> Timers:
    """The timers once every node was judged."""
    since = {each.fact.name: each.since_ms for each in unneeded}
    needed: dict[NodeName, int] = {}
    kept: set[NodeName] = set()
    for index, fact in enumerate(state.nodes):
        if fact.name in since:
            voided_ms = memory.needed_ms.get(fact.name)
            if voided_ms is not None and fact.candidate_since_ms is not None:
                needed[fact.name] = voided_ms
            continue
        why = whys.get(index)
        if _judged(why, snap):
            if fact.candidate_since_ms is not None:
                needed[fact.name] = snap.now_ms
            continue
        kept.add(fact.name)
        if fact.name in memory.unneeded_since_ms:
            since[fact.name] = memory.unneeded_since_ms[fact.name]
        if fact.name in memory.needed_ms and fact.candidate_since_ms is not None:
            needed[fact.name] = memory.needed_ms[fact.name]
    return Timers(since_ms=dict(sorted(since.items())), needed_ms=needed, kept=frozenset(kept))


def _judged(why: Why | None, snap: Snapshot) -> bool:
    """Whether this loop found the node needed; a node under removal has no Why here."""
    if why is None or why.reason in _NOT_JUDGED:
        return False
    return not (why.reason is Reason.NOT_AUTOSCALED and snap.group_problem)
