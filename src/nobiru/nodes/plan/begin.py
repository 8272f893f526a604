"""Which of the unneeded nodes begin to go in this very plan, and what each other one waits for.

It refuses to know: how a node came to be unneeded.  Invariant: however many nodes are due, no group falls below its minimum, no
total of cores or memory below its own, no more go at once than the flags, the brake and the PodDisruptionBudgets allow.
Source: cluster-autoscaler 1.36 core/scaledown/{planner,unneeded,budgets}.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from nobiru.kernel.cloud import GroupName
from nobiru.kernel.duration import format_duration
from nobiru.kernel.objects import Node
from nobiru.kernel.reason import BlockingPodReason, Reason, Why
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import BeginRemoval, RemovalKind, RemovalNote, Snapshot
from nobiru.nodes.plan.disruption import Allowance
from nobiru.nodes.plan.limits import node_amount
from nobiru.nodes.plan.loads import Blocked, Load, Loads
from nobiru.nodes.plan.removal import Brake
from nobiru.nodes.plan.scale_options import GroupOptions, Pauses
from nobiru.nodes.plan.state import ClusterState, GroupState, NodeFact


class Unneeded(Struct, frozen=True, kw_only=True):
    """A node that can go, and since when."""

    index: int
    fact: NodeFact
    load: Load
    since_ms: int
    utilization: float

    @property
    def unready(self) -> bool:
        return self.fact.condition == "unready"


class Under(Struct, frozen=True, kw_only=True):
    """What is under way already.

    `removals` are not finished; of these, `drains` have or had pods, and `ahead` have their termination still before them.
    `unseen` counts by group the marks that do not show yet.
    """

    removals: int
    drains: int
    ahead: int
    unseen: Mapping[GroupName, int]


class Begun(Struct, frozen=True, kw_only=True):
    """What begins, why the rest waits, and when that changes."""

    actions: tuple[BeginRemoval, ...]
    notes: dict[str, RemovalNote]
    why: dict[int, Why]
    blocked: dict[int, Blocked]
    wakes: tuple[int, ...]


def size_to_spare(group: GroupState, unseen: int) -> int:
    """The group's size once removals whose marks do not show yet, and machines that never became nodes, are gone."""
    return group.target - unseen - group.long_unregistered


class Starter:
    """Begins removals one after the other; lives for one plan."""

    def __init__(
        self, snap: Snapshot, state: ClusterState, config: NodesConfig, *, loads: Loads, under: Under, brake: Brake
    ) -> None:
        self.snap, self.config, self.loads = snap, config, loads
        self.room = {
            name: size_to_spare(group, under.unseen.get(name, 0)) - group.min_size
            for name, group in state.groups.items()
        }
        self.removals = config.scale_down.max_parallelism - under.removals
        self.drains = config.scale_down.max_drain_parallelism - under.drains
        self.brake = brake
        self.terminations = brake.left - under.ahead
        self.totals = _Totals(snap, state, config)
        self.actions: list[BeginRemoval] = []
        self.notes: dict[str, RemovalNote] = {}
        self.why: dict[int, Why] = {}
        self.blocked: dict[int, Blocked] = {}
        self.wakes: list[int] = []

    def begin(
        self,
        unneeded: Sequence[Unneeded],
        options: Mapping[GroupName, GroupOptions],
        *,
        pauses: Pauses,
        hold: Why | None,
        allowance: Allowance,
    ) -> Begun:
        """Begin what is due, in the order given; nodes whose pods ask more of a budget than it gives at once come last."""
        late: list[Unneeded] = []
        for node in unneeded:
            why = self._not_due(node, options[node.fact.group], pauses) or hold
            if why is not None:
                self.why[node.index] = why
            elif allowance.covers(node.load.moves):
                self._try(node, allowance)
            else:
                late.append(node)
        for node in late:
            self._try(node, allowance)
        return Begun(
            actions=tuple(self.actions),
            notes=self.notes,
            why=self.why,
            blocked=self.blocked,
            wakes=tuple(self.wakes),
        )

    def _not_due(self, node: Unneeded, options: GroupOptions, pauses: Pauses) -> Why | None:
        """Why time does not allow it yet: unneeded for long enough first, then the pauses."""
        now_ms = self.snap.now_ms
        wait_ms = options.wait_ms(unready=node.unready)
        pause = pauses.of(node.fact.group)
        due_ms = node.since_ms + wait_ms + 1  # strictly longer, as Cluster Autoscaler
        if now_ms < due_ms:
            self.wakes.append(max(due_ms, pause.until_ms if pause else 0))
            reason = Reason.NOT_UNREADY_LONG_ENOUGH if node.unready else Reason.NOT_UNNEEDED_LONG_ENOUGH
            detail = f"{format_duration(max(0, now_ms - node.since_ms))} of {format_duration(wait_ms)}"
            return Why(reason=reason, detail=detail)
        if pause is not None:
            self.wakes.append(pause.until_ms)
            return Why(reason=Reason.COOLDOWN, detail=pause.text(now_ms))
        return None

    def _try(self, node: Unneeded, allowance: Allowance) -> None:
        why = self._limit(node) or self._budget(node, allowance)
        if why is not None:
            self.why[node.index] = why
            return
        self.room[node.fact.group] -= 1
        self.removals -= 1
        self.terminations -= 1
        self.drains -= not node.load.empty
        self.totals.take(self.snap.cluster.nodes.nodes[node.index])
        for index, pods in node.load.moves:
            allowance.spend(index, pods)
        self.actions.append(self._action(node))
        kind: RemovalKind = "unready" if node.unready else "empty" if node.load.empty else "underutilized"
        self.notes[node.fact.name] = RemovalNote(begun_ms=self.snap.now_ms, kind=kind)
        self.wakes.append(self.snap.now_ms + self.config.drain.node_delete_delay_after_taint_ms)

    def _limit(self, node: Unneeded) -> Why | None:
        """Which limit holds the node back, if one does."""
        if not node.load.empty and not self.snap.rights.evict:
            detail = f"{node.load.leaving} pods on their way out, which go by themselves"
            return Why(reason=Reason.EVICTION_NOT_ALLOWED, detail=detail)
        if self.room[node.fact.group] <= 0:
            return Why(reason=Reason.GROUP_AT_MIN_SIZE, detail=f"{node.fact.group}, less those that go before")
        if self.removals <= 0:
            limit = self.config.scale_down.max_parallelism
            return Why(reason=Reason.DELETION_BUDGET, detail=f"--max-scale-down-parallelism={limit}")
        if self.drains <= 0 and not node.load.empty:
            limit = self.config.scale_down.max_drain_parallelism
            return Why(reason=Reason.DELETION_BUDGET, detail=f"--max-drain-parallelism={limit}")
        if self.terminations <= 0:
            opens_ms = self.brake.opens_ms()
            self.wakes += [] if opens_ms is None else [opens_ms]
            return self.brake.why()
        short = self.totals.short(self.snap.cluster.nodes.nodes[node.index])
        return Why(reason=Reason.MINIMAL_RESOURCE_LIMIT, detail=short) if short else None

    def _budget(self, node: Unneeded, allowance: Allowance) -> Why | None:
        """A budget that gives nothing any more: to begin would only taint the node."""
        short = allowance.short(index for index, _ in node.load.moves)
        if short is None:
            return None
        index, number = short
        pods = self.snap.cluster.pods[node.index]
        key = next(pod.key for pod in pods if pod.pod_class.index == index and not pod.deleted_ms)
        detail = allowance.budgets.names([number])
        blocked = Blocked(pod=key, reason=BlockingPodReason.NOT_ENOUGH_PDB, detail=detail)
        self.blocked[node.index] = blocked
        return Why(reason=Reason.BLOCKED_BY_POD, detail=str(blocked))

    def _action(self, node: Unneeded) -> BeginRemoval:
        moving = {index for index, _ in node.load.moves}
        return BeginRemoval(
            node=node.fact.name,
            group=node.fact.group,
            instance=node.fact.instance,
            empty=node.load.empty,
            utilization=node.utilization,
            pods=tuple(
                pod.key
                for pod in self.snap.cluster.pods[node.index]
                if pod.pod_class.index in moving and pod.state == "scheduled" and not pod.deleted_ms
            ),
            cordon=self.config.scale_down.cordon,
        )


def _is_virtual(node: Node) -> bool:
    """Whether the node is no machine: Cluster Autoscaler leaves virtual kubelets out of its totals."""
    return node.labels.get("type") == "virtual-kubelet"


class _Totals:
    """What --cores-total and --memory-total leave to take away; nothing is summed up where they ask for nothing."""

    def __init__(self, snap: Snapshot, state: ClusterState, config: NodesConfig) -> None:
        limits = config.limits
        self.least = {
            name: least
            for name, least in (("cpu", limits.cores_min * 1000), ("memory", limits.memory_gib_min * 2**30))
            if least > 0
        }
        staying = [
            node
            for node, fact in zip(snap.cluster.nodes.nodes, state.nodes, strict=True)
            if self.least and fact.delete_mark is None and not fact.instance_leaving and not _is_virtual(node)
        ]
        self.total = {name: sum(node_amount(node, name) for node in staying) for name in self.least}

    def short(self, node: Node) -> str:
        """The flag whose minimum the cluster would undercut without the node, or ""."""
        flags = {"cpu": "--cores-total", "memory": "--memory-total"}
        return next(
            (flags[name] for name, least in self.least.items() if self.total[name] - node_amount(node, name) < least),
            "",
        )

    def take(self, node: Node) -> None:
        for name in self.total:
            self.total[name] -= node_amount(node, name)
