"""Which pending pods want room, and how much of it existing nodes and machines on the way already give.

Pods are handled as classes with counts; a class whose pods end differently is split in key order.
Invariant: every pending pod leaves here either in a Want or in a PodGroupWhy.
Source: cluster-autoscaler 1.36 core/podlistprocessor; differs: equal pods at once, no 2 s wait (the batching window does it).
"""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from msgspec import Struct

from nobiru.kernel.duration import parse_duration
from nobiru.kernel.errors import DurationError
from nobiru.kernel.objects import Key
from nobiru.kernel.reason import Reason, Why
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import PodGroupWhy, Snapshot
from nobiru.nodes.plan.conditions import GPU_RESOURCES
from nobiru.placement.books import PodEntry
from nobiru.placement.classes import PodClass

DAEMON_ANNOTATION = "cluster-autoscaler.kubernetes.io/daemonset-pod"
DELAY_ANNOTATION = "cluster-autoscaler.kubernetes.io/pod-scale-up-delay"
# A GPU pod may wait for a device plugin that starts late: Cluster Autoscaler waits this long for pods with GPUs.
GPU_POD_AGE_MS_MIN = 30_000


class Want(Struct, frozen=True, kw_only=True):
    """Equal pods that want room: `pods` by key, and `uncreated` further ones that their controller still owes."""

    pod_class: PodClass
    pods: tuple[PodEntry, ...]
    uncreated: int = 0

    @property
    def count(self) -> int:
        return len(self.pods) + self.uncreated


class Pending(Struct, frozen=True, kw_only=True):
    """Pending pods, sorted out."""

    wants: tuple[Want, ...]
    left_alone: tuple[PodGroupWhy, ...]
    wake_at_ms: int | None


def sort_out(snap: Snapshot, config: NodesConfig) -> Pending:
    """The pods that want room, by priority (highest first), then class; and why each other pending pod does not count."""
    wants: list[Want] = []
    left_alone: list[PodGroupWhy] = []
    wakes: list[int] = []
    uncreated = {demand.pod_class.index: demand.count for demand in snap.missing}
    for pending in snap.cluster.pending:
        why = _class_why(pending.pod_class, config)
        if why is not None:
            left_alone.append(PodGroupWhy(pods=_keys(pending.pods), why=why))
            continue
        old, young, wake_at_ms = _by_age(pending.pod_class, pending.pods, snap.now_ms, config)
        if young:
            left_alone.append(PodGroupWhy(pods=_keys(young), why=Why(reason=Reason.TOO_YOUNG)))
        if wake_at_ms is not None:
            wakes.append(wake_at_ms)
        if old:
            owed = uncreated.get(pending.pod_class.index, 0)
            wants.append(Want(pod_class=pending.pod_class, pods=old, uncreated=owed))
    wants.sort(key=lambda want: (-(want.pod_class.priority or 0), _first_key(want)))
    return Pending(wants=tuple(wants), left_alone=tuple(left_alone), wake_at_ms=min(wakes, default=None))


def _first_key(want: Want) -> Key:
    return want.pods[0].key


def _keys(pods: Sequence[PodEntry]) -> tuple[Key, ...]:
    return tuple(pod.key for pod in pods)


def _class_why(pod_class: PodClass, config: NodesConfig) -> Why | None:
    """Why pods of this class never cause a scale-up, if so."""
    cutoff = config.scale_up.expendable_pods_priority_cutoff
    if pod_class.priority is not None and pod_class.priority < cutoff:
        return Why(reason=Reason.EXPENDABLE, detail=f"priority {pod_class.priority}, cutoff {cutoff}")
    if pod_class.daemon or pod_class.annotations.get(DAEMON_ANNOTATION) == "true":
        return Why(reason=Reason.DAEMON_POD)
    if pod_class.unplanned:
        return Why(reason=Reason.NOT_PLANNED, detail=pod_class.unplanned)
    allowed = config.scale_up.allowed_scheduler_names
    scheduler = pod_class.spec.scheduler_name or "default-scheduler"
    if allowed and scheduler not in allowed:
        return Why(reason=Reason.OTHER_SCHEDULER, detail=scheduler)
    return None


def _delay_ms(pod_class: PodClass, config: NodesConfig) -> int:
    """How old pods of the class must be; an annotation may only lengthen the flag's delay."""
    delay_ms: int = config.scale_up.new_pod_scale_up_delay_ms
    wanted = pod_class.annotations.get(DELAY_ANNOTATION)
    if wanted:
        with suppress(DurationError):  # the flag's delay stays, as Cluster Autoscaler has it
            delay_ms = max(delay_ms, parse_duration(wanted))
    if any(pod_class.request.get(name) for name in GPU_RESOURCES):
        delay_ms = max(delay_ms, GPU_POD_AGE_MS_MIN)
    return delay_ms


def _by_age(
    pod_class: PodClass, pods: tuple[PodEntry, ...], now_ms: int, config: NodesConfig
) -> tuple[tuple[PodEntry, ...], tuple[PodEntry, ...], int | None]:
    """(old enough, too young, when the first young one is old enough)."""
    delay_ms = _delay_ms(pod_class, config)
    if delay_ms <= 0:
        return pods, (), None
    old = tuple(pod for pod in pods if now_ms - pod.created_ms >= delay_ms)
    young = tuple(pod for pod in pods if now_ms - pod.created_ms < delay_ms)
    return old, young, min((pod.created_ms + delay_ms for pod in young), default=None)


class Ledger:
    """How many pods of each want are still without room; pods are taken in key order, uncreated ones last.

    The only mutable value of the scale-up plan; it lives for one call of `plan_scale_up`.
    """

    def __init__(self, wants: Sequence[Want]) -> None:
        self.wants = tuple(wants)
        self.left = np.array([want.count for want in wants], dtype=np.int64)

    def take(self, counts: np.ndarray) -> list[tuple[int, tuple[Key, ...]]]:
        """Give room to `counts` (K,) pods; returns (want index, keys of the existing pods among them)."""
        taken: list[tuple[int, tuple[Key, ...]]] = []
        for index in np.flatnonzero(counts).tolist():
            want = self.wants[index]
            start = want.count - int(self.left[index])
            pods = want.pods[start : start + int(counts[index])]
            taken.append((index, tuple(pod.key for pod in pods)))
        self.left = self.left - counts
        return taken

    def rest(self) -> list[tuple[int, tuple[Key, ...]]]:
        """The existing pods of each want that still have no room."""
        result = []
        for index in np.flatnonzero(self.left).tolist():
            want = self.wants[index]
            pods = want.pods[want.count - int(self.left[index]) :]
            if pods:
                result.append((index, tuple(pod.key for pod in pods)))
        return result
