"""What a drain of each node would have to deal with: pods to move, pods on their way out, and the pod that forbids it.

It refuses to know: timers, budgets of nodes, where the pods would go.  Invariant: a node whose pods are all alike within their
classes is read from the counts per class; single pods are looked at only where a deletion runs, a nomination stands or an
age decides.
"""

from functools import cached_property
from operator import attrgetter

import numpy as np
from msgspec import Struct

from nobiru.kernel.objects import Key
from nobiru.kernel.reason import BlockingPodReason
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import Snapshot
from nobiru.nodes.plan.disruption import Budgets, match_budgets
from nobiru.nodes.plan.drain_rules import Verdict, is_long_terminating, judge_class, subject_of, verdict_of
from nobiru.placement.columns import Ints
from nobiru.placement.entries import PodEntry

_DELETED_MS = attrgetter("deleted_ms")
_NOMINATED = attrgetter("nominated")


class Blocked(Struct, frozen=True, kw_only=True):
    """The first pod, by key, that forbids a drain; `until_ms` is when it no longer does, where age decides."""

    pod: Key
    reason: BlockingPodReason
    detail: str = ""
    until_ms: int | None = None

    def __str__(self) -> str:
        text = f"{'/'.join(self.pod)}: {self.reason.sentence}"
        return f"{text} ({self.detail})" if self.detail else text


class Load(Struct, frozen=True, kw_only=True):
    """What one node holds, as a drain sees it.

    `moves` are (class index, pods) that need room elsewhere; `leaving` pods are being deleted and only waited for;
    `awaited` says that a pending pod was promised room here by preemption.
    """

    moves: tuple[tuple[int, int], ...] = ()
    leaving: int = 0
    blocked: Blocked | None = None
    awaited: bool = False

    @property
    def empty(self) -> bool:
        """Whether nothing has to leave before the machine may go."""
        return not self.moves and not self.leaving and self.blocked is None


EMPTY = Load()


class Loads:
    """The loads of a Snapshot's nodes, read when asked for; lives for one plan."""

    def __init__(self, snap: Snapshot, config: NodesConfig) -> None:
        self.snap = snap
        self.odd: frozenset[int] = _odd_nodes(snap.cluster.pods)
        self._config = config
        self._verdicts: dict[int, Verdict] = {}

    @cached_property
    def budgets(self) -> Budgets:
        """The PodDisruptionBudgets and the classes that they cover."""
        return match_budgets(self.snap.budgets, self.snap.cluster.classes)

    def of(self, node: int) -> Load:
        """What the node holds."""
        class_index, count = self.snap.cluster.held.of(node)
        classes: list[int] = class_index.tolist()
        if not classes:
            return EMPTY
        verdicts = [self._of_class(index) for index in classes]
        if node in self.odd or any(verdict.until_age_ms is not None for verdict in verdicts):
            return self._by_pod(node)
        moves = []
        blocking = set()
        for index, pods, verdict in zip(classes, count.tolist(), verdicts, strict=True):
            if verdict.kind == "move":
                moves.append((index, pods))
            elif verdict.kind == "block":
                blocking.add(index)
        return Load(moves=tuple(moves), blocked=self._first_blocking(node, blocking) if blocking else None)

    def verdict(self, pod: PodEntry) -> Verdict:
        """What a drain does with one pod that is bound to its node."""
        return verdict_of(pod, self._of_class(pod.pod_class.index), self.snap.now_ms)

    def _of_class(self, index: int) -> Verdict:
        found = self._verdicts.get(index)
        if found is None:
            found = judge_class(subject_of(self.snap, self.budgets, self._config, index))
            self._verdicts[index] = found
        return found

    def hung(self) -> list[tuple[int, PodEntry]]:
        """(node, pod) of every pod whose deletion hangs: it is not counted as using its node any more."""
        now_ms = self.snap.now_ms
        return [
            (node, pod)
            for node in sorted(self.odd)
            for pod in self.snap.cluster.pods[node]
            if is_long_terminating(pod, now_ms)
        ]

    def _first_blocking(self, node: int, blocking: set[int]) -> Blocked:
        pods = self.snap.cluster.pods[node]
        pod = next(pod for pod in pods if pod.pod_class.index in blocking)
        return blocked_by(pod, self._of_class(pod.pod_class.index))

    def _by_pod(self, node: int) -> Load:
        moves: dict[int, int] = {}
        leaving = 0
        awaited = False
        blocked: Blocked | None = None
        for pod in self.snap.cluster.pods[node]:
            if pod.state == "nominated":
                awaited = True
                continue
            verdict = self.verdict(pod)
            if verdict.kind in ("skip", "daemon"):
                continue
            if verdict.kind == "block":
                blocked = blocked or blocked_by(pod, verdict)
            elif pod.deleted_ms:
                leaving += 1
            else:
                index = pod.pod_class.index
                moves[index] = moves.get(index, 0) + 1
        return Load(moves=tuple(sorted(moves.items())), leaving=leaving, blocked=blocked, awaited=awaited)


def blocked_by(pod: PodEntry, verdict: Verdict) -> Blocked:
    """The block that the verdict on a pod is."""
    assert verdict.reason is not None, "a block has its reason"
    until_ms = None if verdict.until_age_ms is None else pod.created_ms + verdict.until_age_ms
    return Blocked(pod=pod.key, reason=verdict.reason, detail=verdict.detail, until_ms=until_ms)


def _odd_nodes(pods: tuple[tuple[PodEntry, ...], ...]) -> frozenset[int]:
    """Nodes with a pod that its class does not tell all about: one being deleted, or one only nominated."""
    return frozenset(
        node for node, here in enumerate(pods) if any(map(_DELETED_MS, here)) or any(map(_NOMINATED, here))
    )


def node_of_entries(ptr: Ints) -> Ints:
    """The node of each entry of a Held, (P',) int64."""
    return np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
