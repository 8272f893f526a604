"""The soft taint on unneeded nodes: which to put on and which to take off in this loop.

It keeps the unneeded timer over a restart and makes the scheduler prefer other nodes.  Invariant: at most
--max-bulk-soft-taint-count changes per loop, the ones that give room back first; a node that nobody judged keeps what it has.
Source: cluster-autoscaler 1.36 core/scaledown/actuation/softtaint.go.
"""

from collections.abc import Collection

from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import Action, MarkCandidate, NodeName, Snapshot, UnmarkCandidate
from nobiru.nodes.plan.marks import has_candidate_taint
from nobiru.nodes.plan.state import ClusterState
from nobiru.nodes.plan.timers import Timers

# With soft taints off, those of an earlier run are still taken away, as many per loop as the flag's default allows.
UNMARK_COUNT = 10


def soft_taints(
    snap: Snapshot, state: ClusterState, config: NodesConfig, *, timers: Timers, begun: Collection[NodeName]
) -> tuple[Action, ...]:
    """The changes to make, nodes by name; where soft taints are off the timers live in memory alone."""
    if not snap.rights.update_nodes:
        return ()
    count_max = config.scale_down.max_bulk_soft_taint_count
    off: list[Action] = []
    on: list[Action] = []
    for fact, node in zip(state.nodes, snap.cluster.nodes.nodes, strict=True):
        since_ms = timers.since_ms.get(fact.name)
        if since_ms is None and not node.spec.taints:
            continue
        if fact.delete_mark is not None or fact.name in begun or not fact.group or fact.name in timers.kept:
            continue
        marked = has_candidate_taint(node)
        void = since_ms is None or (fact.candidate_since_ms or 0) // 1000 < since_ms // 1000
        if marked and (void or count_max == 0):
            off.append(UnmarkCandidate(node=fact.name))
        elif not marked and since_ms is not None:
            on.append(MarkCandidate(node=fact.name, since_ms=since_ms))
    if count_max == 0:
        return tuple(off[:UNMARK_COUNT])
    return tuple((off + on)[:count_max])
