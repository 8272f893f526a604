"""One pod as the books keep it: where it is, since when, and in which state the scheduler left it.

It refuses to know: what the pod asks for (its class does).
Invariant: an entry is made from one Pod alone, so equal pods give equal entries.
"""

from typing import Literal

from msgspec import Struct

from nobiru.kernel.objects import Condition, Key, Pod, PodStatus, milliseconds
from nobiru.placement.classes import PodClass

PodState = Literal["finished", "scheduled", "deleting", "nominated", "unschedulable", "unprocessed", "gated", "other"]


class PodEntry(Struct, frozen=True, kw_only=True, gc=False):
    """A pod.

    Units:   moments in milliseconds since the epoch; `deleted_ms` and `unschedulable_since_ms` are 0 where they do not
             apply; `grace_ms` is the grace of a deletion that runs, else 0.
    `node_name` is the node it is bound to; `nominated` the one that preemption keeps for it.
    """

    key: Key
    uid: str
    pod_class: PodClass
    node_name: str
    state: PodState
    phase: str
    created_ms: int
    deleted_ms: int = 0
    grace_ms: int = 0
    nominated: str = ""
    unschedulable_since_ms: int = 0

    @property
    def seat(self) -> str:
        """The node whose room it takes, "" where it takes none."""
        if self.state == "scheduled":
            return self.node_name
        return self.nominated if self.state == "nominated" else ""


def entry_of(pod: Pod, pod_class: PodClass) -> PodEntry:
    """The entry of one pod."""
    meta, status = pod.metadata, pod.status
    waiting = scheduled_condition(status)
    state = _state(pod, waiting)
    deleted = meta.deletion_timestamp
    return PodEntry(
        key=(meta.namespace, meta.name),
        uid=meta.uid,
        pod_class=pod_class,
        node_name=pod.spec.node_name,
        state=state,
        phase=status.phase,
        created_ms=milliseconds(meta.creation_timestamp),
        deleted_ms=milliseconds(deleted),
        grace_ms=(meta.deletion_grace_period_seconds or 0) * 1000 if deleted is not None else 0,
        nominated=status.nominated_node_name,
        unschedulable_since_ms=(
            milliseconds(waiting.last_transition_time) if waiting is not None and state == "unschedulable" else 0
        ),
    )


def scheduled_condition(status: PodStatus) -> Condition | None:
    """The condition in which the scheduler says what it did."""
    for condition in status.conditions or ():
        if condition.type == "PodScheduled":
            return condition
    return None


def _state(pod: Pod, waiting: Condition | None) -> PodState:
    """Where the pod stands for planning; the first that holds.

    Source:  cluster-autoscaler 1.36 utils/kubernetes/listers.go; DESIGN's specification 2.3.
    """
    if pod.status.phase in ("Succeeded", "Failed"):
        return "finished"
    if pod.spec.node_name:
        return "scheduled"
    if pod.metadata.deletion_timestamp is not None:
        return "deleting"
    if pod.status.nominated_node_name:
        return "nominated"
    if waiting is None or (waiting.status == "False" and not waiting.reason):
        return "unprocessed"
    if waiting.status == "False" and waiting.reason == "Unschedulable":
        return "unschedulable"
    return "gated" if waiting.reason == "SchedulingGated" else "other"
