"""One step of emptying one node: whom to evict now, whom to wait for, and when to give up.

It refuses to know: whether the node should go at all (`removal`), and where its pods go.  Invariant: nobody is evicted before those
of lower priority are gone; within one plan no PodDisruptionBudget is asked for more than it gives; the step depends on what is
seen, so after a restart it goes on from the pods' own deletion times.
Source: cluster-autoscaler 1.36 core/scaledown/actuation/drain.go; differs: DaemonSet pods go last and are waited for, up to
their grace, and the wait for a pod is counted from its own deletion.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from nobiru.kernel.objects import Key
from nobiru.nodes.config import DrainConfig
from nobiru.nodes.model import Evict, EvictionTry
from nobiru.nodes.plan.disruption import Allowance
from nobiru.nodes.plan.drain_rules import grace_ms
from nobiru.placement.entries import PodEntry

EVICTION_RETRY_MS = 10_000  # cluster-autoscaler drain.go: a refused eviction is tried again after this long
POD_GONE_MS = 30_000  # cluster-autoscaler drain.go: how long after its grace a pod may still be there
ENABLE_DAEMON_EVICTION = "cluster-autoscaler.kubernetes.io/enable-ds-eviction"


class DrainNode(Struct, frozen=True, kw_only=True):
    """A node marked at `marked_ms`, and its pods that a drain deals with, by key.

    `inherited`: another process began, and what it tried is not known.
    """

    name: str
    marked_ms: int
    inherited: bool = False
    move: tuple[PodEntry, ...] = ()
    daemons: tuple[PodEntry, ...] = ()


class DrainStep(Struct, frozen=True, kw_only=True):
    """What to do now.

    `held` are pods that wait for their budget: remembered as tries of count 0, so that the wait ends some time.
    `failed` says why the node cannot be emptied; `done` that nobody has to be waited for any more.
    """

    evict: tuple[Evict, ...] = ()
    held: dict[str, EvictionTry] = {}
    waiting: tuple[Key, ...] = ()
    failed: str = ""
    wake_at_ms: int | None = None

    @property
    def done(self) -> bool:
        return not (self.evict or self.waiting or self.failed)


class _Group(Struct, frozen=True, kw_only=True):
    """Pods that are evicted together: `cap_s` bounds their grace, 0 does not; best effort groups never fail a drain."""

    pods: tuple[PodEntry, ...]
    cap_s: int
    best_effort: bool = False


class Drainer(Struct, frozen=True, kw_only=True):
    """What a drain step needs to know beside the pods."""

    config: DrainConfig
    tries: Mapping[str, EvictionTry]
    allowance: Allowance
    now_ms: int
    may_evict: bool


def daemon_pods_to_evict(
    pods: Iterable[PodEntry], config: DrainConfig, *, empty: bool, marked_ms: int
) -> tuple[PodEntry, ...]:
    """The DaemonSet pods that the flags, or their own annotation, want evicted.

    One made after the mark bears the taint, and would come back for ever.
    """
    wanted = config.daemonset_eviction_for_empty_nodes if empty else config.daemonset_eviction_for_occupied_nodes
    words = {True: "true", False: "false"}
    return tuple(
        pod
        for pod in pods
        if pod.created_ms <= marked_ms
        and pod.pod_class.annotations.get(ENABLE_DAEMON_EVICTION, words[wanted]) == words[True]
    )


def drain_step(node: DrainNode, drainer: Drainer) -> DrainStep:
    """The next step: the first group with somebody left is the one that is worked on."""
    for group in _groups(node, drainer.config):
        step = _Round(node, group, drainer).step()
        if not step.done:
            return step
    return DrainStep()


def _groups(node: DrainNode, config: DrainConfig) -> list[_Group]:
    """The groups in the order of their going."""
    if not config.priorities:
        cap_s = config.max_graceful_termination_s
        return [_Group(pods=node.move, cap_s=cap_s), _Group(pods=node.daemons, cap_s=cap_s, best_effort=True)]
    members: list[list[PodEntry]] = [[] for _ in config.priorities]
    for pod in sorted(node.move + node.daemons, key=lambda pod: pod.key):
        members[_priority_group(pod.pod_class.priority or 0, config.priorities)].append(pod)
    return [
        _Group(pods=tuple(group), cap_s=seconds) for group, (_, seconds) in zip(members, config.priorities, strict=True)
    ]


def _priority_group(priority: int, groups: Sequence[tuple[int, int]]) -> int:
    """The last group whose priority the pod reaches; those below all belong to the first."""
    reached = [place for place, (least, _) in enumerate(groups) if priority >= least]
    return reached[-1] if reached else 0


class _Round:
    """One look at one group; lives for one call."""

    def __init__(self, node: DrainNode, group: _Group, drainer: Drainer) -> None:
        self.node, self.group, self.drainer = node, group, drainer
        self.now_ms = drainer.now_ms
        self.evict: list[Evict] = []
        self.held: dict[str, EvictionTry] = {}
        self.waiting: list[Key] = []
        self.failed: list[str] = []
        self.wakes: list[int] = []

    def step(self) -> DrainStep:
        for pod in self.group.pods:
            if pod.deleted_ms and not self._is_long(pod):
                self._wait_for(pod)
            else:
                self._send_off(pod)
        if self.failed and not self.group.best_effort:
            return DrainStep(failed="; ".join(self.failed[:3]))
        return DrainStep(
            evict=tuple(self.evict),
            held=self.held,
            waiting=tuple(self.waiting),
            wake_at_ms=min(self.wakes, default=None),
        )

    def _is_long(self, pod: PodEntry) -> bool:
        """Whether somebody deleted the pod with more grace than we give: an eviction shortens it."""
        if not self.drainer.may_evict or self.group.cap_s <= 0:
            return False
        return pod.deleted_ms - self.now_ms > self.group.cap_s * 1000

    def _wait_for(self, pod: PodEntry) -> None:
        """A pod on its way out: its deletion time is when its grace ends; one deleted before the mark gets as long as ours."""
        ends_ms = max(pod.deleted_ms, self.node.marked_ms + self._grace_s(pod) * 1000)
        deadline_ms = ends_ms + (0 if self.group.best_effort else POD_GONE_MS)
        if self.now_ms > deadline_ms:
            self.failed.append(f"pod {'/'.join(pod.key)} is still there {POD_GONE_MS // 1000} s after its grace")
            return
        self.waiting.append(pod.key)
        self.wakes.append(deadline_ms + 1)

    def _send_off(self, pod: PodEntry) -> None:
        """A pod to evict: now, again after a while, or once its budget allows."""
        tried = self.drainer.tries.get(pod.uid)
        until_ms = (tried.first_ms if tried else self.now_ms) + self.drainer.config.max_pod_eviction_time_ms
        if tried and self.now_ms > until_ms:
            self.failed.append(f"pod {'/'.join(pod.key)} could not be evicted: {tried.message or 'it did not leave'}")
            return
        self.wakes.append(until_ms + 1)
        again_ms = tried.last_ms + EVICTION_RETRY_MS if tried and tried.count else self.now_ms
        if again_ms > self.now_ms:
            self.waiting.append(pod.key)
            self.wakes.append(again_ms)
            return
        allowance = self.drainer.allowance
        short = allowance.short([pod.pod_class.index])
        if short is not None:
            budget = allowance.budgets.names([short[1]])
            if tried is None and self._is_overdue():
                self.failed.append(f"pod {'/'.join(pod.key)} could not be evicted: {_held_by(budget)}")
                return
            self.waiting.append(pod.key)
            self.wakes.append(self.now_ms + EVICTION_RETRY_MS)
            self._hold(pod, tried, budget)
            return
        allowance.spend(pod.pod_class.index)
        self.evict.append(Evict(pod=pod.key, uid=pod.uid, node=self.node.name, grace_s=self._grace_s(pod)))
        self.wakes.append(self.now_ms + EVICTION_RETRY_MS)

    def _is_overdue(self) -> bool:
        """Whether whoever began has waited long enough: processes that end one after another must not hold a node for ever."""
        config = self.drainer.config
        longest_ms = config.max_pod_eviction_time_ms + config.max_graceful_termination_s * 1000
        return self.node.inherited and self.now_ms > self.node.marked_ms + longest_ms

    def _hold(self, pod: PodEntry, tried: EvictionTry | None, budget: str) -> None:
        self.held[pod.uid] = EvictionTry(
            first_ms=tried.first_ms if tried else self.now_ms,
            last_ms=tried.last_ms if tried else self.now_ms,
            count=tried.count if tried else 0,
            message=_held_by(budget),
        )

    def _grace_s(self, pod: PodEntry) -> int:
        own_s = grace_ms(pod.pod_class) // 1000
        return min(own_s, self.group.cap_s) if self.group.cap_s > 0 else own_s


def _held_by(budget: str) -> str:
    return f"PodDisruptionBudget {budget} allows no disruption now"
