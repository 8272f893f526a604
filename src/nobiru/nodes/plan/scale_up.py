"""Which groups to grow, by how many machines, so that pending pods find room: all groups in one plan.

Existing nodes first, then machines on the way, then {options of every group that can grow -> the expander picks one -> its
nodes are taken as there} until nothing helps.  Invariant: a pod is counted onto at most one node; a group never passes its
maximum, its cloud's maximum, --max-nodes-total or the totals of cores and memory.
Source: cluster-autoscaler 1.36 core/scaleup/orchestrator, estimator; differs: several groups per plan, as its loops would do.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from nobiru.kernel.cloud import GroupName
from nobiru.kernel.objects import Key
from nobiru.kernel.reason import Reason, Why
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import Action, PodGroupWhy, RaiseDesired, Snapshot
from nobiru.nodes.plan.expander import Option, choose
from nobiru.nodes.plan.limits import Totals, group_capacity, node_limit, short_flag
from nobiru.nodes.plan.pending import Ledger, Pending, sort_out
from nobiru.nodes.plan.state import ClusterState, GroupState
from nobiru.placement.affinity import conflicts
from nobiru.placement.classes import PodClass
from nobiru.placement.columns import NodeColumns, TemplateNode, columns_of_templates, resource_names
from nobiru.placement.filters import fits, refusals
from nobiru.placement.pack import NewNodes, order, pack_new, place

# A scheduler that refuses a pod for this long, although there is room, obeys a rule that is not planned for.
DISAGREEMENT_MS = 120_000
DISAGREEMENT = (
    "the scheduler has refused it for over 2m0s all the same: a rule that is not planned for, such as a volume"
)


class ScaleUp(Struct, frozen=True, kw_only=True):
    """What to raise, what every pending pod is told, and what is left of existing nodes.

    Shapes:  free (R, N) int64, resources and nodes as in the Snapshot's columns.
    """

    actions: tuple[Action, ...]
    pods: tuple[PodGroupWhy, ...]
    groups: dict[GroupName, Why]
    free: np.ndarray
    needed: frozenset[int]  # columns that pending pods were planned onto
    wake_at_ms: int | None = None


class _Stage(Struct, frozen=True, kw_only=True):
    """The pods' side of the sum: classes in packing order, with their requests over one list of resources."""

    classes: tuple[PodClass, ...]
    request: np.ndarray  # (K, R)
    per_node_max: np.ndarray  # (K,)
    resources: tuple[str, ...]


def plan_scale_up(snap: Snapshot, state: ClusterState, config: NodesConfig, *, seed: int) -> ScaleUp:
    """The groups to grow so that pending pods fit, and why not each other group.

    Order:   pods by priority, then size; groups by name: equal snapshots give equal plans.
    """
    pending = sort_out(snap, config)
    nodes = snap.cluster.nodes
    if not pending.wants:
        groups = {name: each.cannot_grow or Why(reason=Reason.NO_PENDING_POD) for name, each in state.groups.items()}
        actions = _below_minimum(state, {}, snap, config)
        return ScaleUp(
            actions=actions,
            pods=pending.left_alone,
            groups=groups,
            free=nodes.free,
            needed=frozenset(),
            wake_at_ms=pending.wake_at_ms,
        )
    return _Planner(snap, state, config, pending, seed).run()


class _Planner:
    """One scale-up plan being made; lives for one call."""

    def __init__(self, snap: Snapshot, state: ClusterState, config: NodesConfig, pending: Pending, seed: int) -> None:
        self.snap, self.state, self.config, self.pending, self.seed = snap, state, config, pending, seed
        self.names = tuple(name for name in sorted(state.groups) if state.groups[name].template is not None)
        templates = tuple(template for name in self.names if (template := state.groups[name].template) is not None)
        self.columns, self.stage, self.ledger = _stage(snap, pending, templates)
        self.suits = fits(self.stage.classes, self.columns)  # (K, G)
        self.conflicts = conflicts(self.stage.classes)
        self.grown: dict[GroupName, int] = {}
        self.helped: dict[GroupName, list[Key]] = {}
        self.said: list[PodGroupWhy] = list(pending.left_alone)
        self.totals = Totals.of(snap, state, config)

    def run(self) -> ScaleUp:
        free, needed = self._onto_existing()
        for column, name in enumerate(self.names):
            self._onto_upcoming(column, self.state.groups[name])
        options_seen: set[GroupName] = set()
        stopped = self._stopped()
        while self.ledger.left.any() and stopped is None:
            options = self._options()
            options_seen |= options.keys()
            if not options:
                break
            chosen = choose([option for option, _ in options.values()], self.config.scale_up.expander, self.seed)
            self._grow(chosen, options[chosen.group][1])
        self._explain_rest(stopped)
        return ScaleUp(
            actions=self._actions(),
            pods=tuple(self.said),
            groups=self._group_whys(options_seen, stopped),
            free=free,
            needed=needed,
            wake_at_ms=self.pending.wake_at_ms,
        )

    def _stopped(self) -> Why | None:
        """Why no group at all may grow now, if so."""
        if "up" in self.snap.paused:
            return Why(reason=Reason.PAUSED)
        if not self.state.healthy:
            return Why(reason=Reason.CLUSTER_UNHEALTHY)
        if not self.state.groups:
            return Why(reason=Reason.NO_GROUPS, detail=self.snap.group_problem)
        if self.totals.nodes_left <= 0:
            return Why(reason=Reason.MAX_NODES_TOTAL, detail=str(self.config.limits.max_nodes_total))
        return None

    def _onto_existing(self) -> tuple[np.ndarray, frozenset[int]]:
        nodes = self.snap.cluster.nodes
        usable = np.array(
            [
                fact.condition == "ready" and fact.delete_mark is None and not fact.instance_leaving
                for fact in self.state.nodes
            ],
            dtype=bool,
        )
        if not usable.any():
            return nodes.free, frozenset()
        suits = fits(self.stage.classes, nodes) & usable[None, :]
        request = _over(self.stage, nodes.resources)
        alien = [index for index, name in enumerate(self.stage.resources) if name not in nodes.resources]
        if alien:
            needs_alien = np.asarray((self.stage.request[:, alien] > 0).any(axis=1))
            suits &= ~needs_alien[:, None]
        placed = place(request, self.ledger.left, suits, nodes.free, self.stage.per_node_max, conflicts=self.conflicts)
        for index, keys in self.ledger.take(placed.placed):
            if keys:
                self.said.append(PodGroupWhy(pods=keys, why=self._fits_here(index)))
        return placed.free_after, placed.touched

    def _fits_here(self, index: int) -> Why:
        """That pods fit on existing nodes; said aloud where the scheduler has refused them for long all the same."""
        pods = self.ledger.wants[index].pods
        since_ms = min((pod.unschedulable_since_ms for pod in pods if pod.unschedulable_since_ms), default=0)
        if since_ms and self.snap.now_ms - since_ms > DISAGREEMENT_MS:
            return Why(reason=Reason.FITS_ON_EXISTING_NODE, detail=DISAGREEMENT)
        return Why(reason=Reason.FITS_ON_EXISTING_NODE)

    def _onto_upcoming(self, column: int, group: GroupState) -> None:
        if group.upcoming <= 0 or not self.ledger.left.any() or not self.suits[:, column].any():
            return
        packed = self._pack(column, group.upcoming)
        self._say(packed.placed, Why(reason=Reason.FITS_ON_UPCOMING_NODE, detail=group.group.name))

    def _pack(self, column: int, nodes_max: int) -> NewNodes:
        """First fit of what is left onto at most so many copies of the group's template."""
        return pack_new(
            self.stage.request,
            self.ledger.left,
            self.suits[:, column],
            self.columns.free[:, column],
            nodes_max,
            self.stage.per_node_max,
            conflicts=self.conflicts,
        )

    def _options(self) -> dict[GroupName, tuple[Option, NewNodes]]:
        """What each group that can grow could do for the pods that are left."""
        options: dict[GroupName, tuple[Option, NewNodes]] = {}
        for column, name in enumerate(self.names):
            room = self._room(self.state.groups[name])
            if room <= 0 or not (self.suits[:, column] & (self.ledger.left > 0)).any():
                continue
            packed = self._pack(column, room)
            if packed.nodes:
                requested = packed.placed @ self.stage.request
                option = Option(
                    group=name,
                    nodes=packed.nodes,
                    pods=int(packed.placed.sum()),
                    requested=dict(zip(self.stage.resources, requested.tolist(), strict=True)),
                    capacity=group_capacity(self.state.groups[name]),
                )
                options[name] = (option, packed)
        return options

    def _room(self, group: GroupState) -> int:
        """How many machines the group may be asked for in this plan."""
        if group.cannot_grow is not None:
            return 0
        grown = self.grown.get(group.group.name, 0)
        limit = min(group.headroom - grown, node_limit(self.totals, group_capacity(group)))
        return min(limit, self.config.scale_up.max_nodes_per_scaleup)

    def _grow(self, chosen: Option, packed: NewNodes) -> None:
        self.grown[chosen.group] = self.grown.get(chosen.group, 0) + chosen.nodes
        self.totals = self.totals.after(chosen.nodes, chosen.capacity)
        keys = self._say(packed.placed, Why(reason=Reason.NODE_GROUP_GROWS, detail=chosen.group))
        self.helped.setdefault(chosen.group, []).extend(keys)

    def _say(self, placed: np.ndarray, why: Why) -> list[Key]:
        """Give room to pods and note why; returns the pods."""
        told: list[Key] = []
        for _, keys in self.ledger.take(placed):
            if keys:
                self.said.append(PodGroupWhy(pods=keys, why=why))
                told.extend(keys)
        return told

    def _explain_rest(self, stopped: Why | None) -> None:
        for index, keys in self.ledger.rest():
            texts: dict[GroupName, str] = {}
            peers: Counter[str] = Counter()
            suitable = False
            for name in sorted(self.state.groups):
                text, peer, fits_there = self._why_not(index, name)
                texts[name] = text
                peers.update(peer)
                suitable |= fits_there
            why = stopped or Why(reason=Reason.NO_GROUP_CAN_GROW if suitable else Reason.NO_GROUP_FITS)
            if not texts:
                why = stopped or Why(reason=Reason.NO_GROUPS, detail=self.snap.group_problem)
            self.said.append(PodGroupWhy(pods=keys, why=why, groups=texts, peer_groups=dict(sorted(peers.items()))))

    def _why_not(self, index: int, name: GroupName) -> tuple[str, list[str], bool]:
        """(for people, the peer's words, whether a new node of the group could host such a pod)."""
        group = self.state.groups[name]
        if name not in self.names:
            why = group.cannot_grow or Why(reason=Reason.NO_TEMPLATE, detail=group.group.template_problem)
            return str(why), [why.reason.peer or why.reason.sentence], False
        column = self.names.index(name)
        found = refusals(self.stage.classes[index], self.columns, column)
        if found:
            detail = "; ".join(each.detail or each.reason for each in found)
            return detail, [each.reason for each in found], False
        why = group.cannot_grow or self._limit_why(group)
        return str(why), [why.reason.peer or why.reason.sentence], True

    def _limit_why(self, group: GroupState) -> Why:
        if group.headroom - self.grown.get(group.group.name, 0) <= 0:
            limit = min(group.group.max_size, group.group.cloud_max_size)
            return Why(reason=Reason.GROUP_AT_MAX_SIZE, detail=f"grown to {limit} of at most {limit}")
        if self.totals.nodes_left <= 0:
            return Why(reason=Reason.MAX_NODES_TOTAL, detail=str(self.config.limits.max_nodes_total))
        return Why(reason=Reason.RESOURCE_LIMIT, detail=short_flag(self.totals, group_capacity(group)))

    def _group_whys(self, options_seen: set[GroupName], stopped: Why | None) -> dict[GroupName, Why]:
        whys: dict[GroupName, Why] = {}
        for name, group in self.state.groups.items():
            if name in self.grown:
                continue
            if group.cannot_grow is not None:
                whys[name] = group.cannot_grow
            elif name in options_seen:
                whys[name] = Why(reason=Reason.NOT_CHOSEN_BY_EXPANDER)
            elif stopped is not None and self.ledger.left.any():
                whys[name] = stopped
            elif not self.ledger.left.any():
                whys[name] = Why(reason=Reason.NO_PENDING_POD)
            elif short_flag(self.totals, group_capacity(group)):
                whys[name] = self._limit_why(group)
            else:
                whys[name] = Why(reason=Reason.NO_PENDING_POD_FITS)
        return whys

    def _actions(self) -> tuple[Action, ...]:
        raises = tuple(
            raise_of(self.state.groups[name], nodes, tuple(self.helped.get(name, ())))
            for name, nodes in sorted(self.grown.items())
        )
        return raises + _below_minimum(self.state, self.grown, self.snap, self.config)


def raise_of(group: GroupState, nodes: int, pods: tuple[Key, ...]) -> RaiseDesired:
    """The request for so many more machines; never below the group's minimum, never above its maximum."""
    limit = min(group.group.max_size, group.group.cloud_max_size)
    # Machines being taken away still count in the cloud's desired capacity until they are terminated.
    target = min(limit, max(group.target + nodes, group.min_size)) + group.being_deleted
    return RaiseDesired(
        group=group.group.name,
        start=group.group.desired,
        target=min(target, group.group.cloud_max_size),
        max_size=limit,
        pods=pods,
    )


def _below_minimum(
    state: ClusterState, grown: Mapping[GroupName, int], snap: Snapshot, config: NodesConfig
) -> tuple[Action, ...]:
    """Requests that bring groups up to their minimum, where --enforce-node-group-min-size wants it."""
    if not config.scale_up.enforce_node_group_min_size or "up" in snap.paused or not state.healthy:
        return ()
    actions = []
    for name, group in sorted(state.groups.items()):
        short = group.min_size - max(group.target, group.group.desired)
        if short > 0 and name not in grown and group.cannot_grow is None:
            wanted = raise_of(group, group.min_size - group.target, ())
            actions.append(replace(wanted, why="below minimum size"))
    return tuple(actions)


def _stage(snap: Snapshot, pending: Pending, templates: Sequence[TemplateNode]) -> tuple[NodeColumns, _Stage, Ledger]:
    """Templates as columns, pods as rows in packing order, both over all resources that either names."""
    classes = [want.pod_class for want in pending.wants]
    resources = resource_names(templates, classes)
    columns = columns_of_templates(templates, resources)
    request = np.array(
        [[pod_class.request.get(name, 0) for name in resources] for pod_class in classes], dtype=np.int64
    )
    priority = np.array([want.pod_class.priority or 0 for want in pending.wants], dtype=np.int64)
    rows = order(request, _reference(columns, snap.cluster.nodes, resources), resources, priority)
    wants = [pending.wants[row] for row in rows]
    stage = _Stage(
        classes=tuple(want.pod_class for want in wants),
        request=request[rows],
        per_node_max=np.array([want.pod_class.per_node_max for want in wants], dtype=np.int64),
        resources=resources,
    )
    return columns, stage, Ledger(wants)


def _reference(columns: NodeColumns, nodes: NodeColumns, resources: Sequence[str]) -> np.ndarray:
    """A node's size to measure pods against, (R,): the largest template's, else the largest node's, else 1."""
    result = np.ones(len(resources), dtype=np.int64)
    for index, name in enumerate(resources):
        sizes = [int(columns.allocatable[index].max(initial=0))]
        if name in nodes.resources:
            sizes.append(int(nodes.allocatable[nodes.resources.index(name)].max(initial=0)))
        result[index] = max(1, *sizes)
    return result


def _over(stage: _Stage, resources: Sequence[str]) -> np.ndarray:
    """The stage's requests (K, R') over another list of resources."""
    request = np.zeros((len(stage.classes), len(resources)), dtype=np.int64)
    for index, name in enumerate(resources):
        if name in stage.resources:
            request[:, index] = stage.request[:, stage.resources.index(name)]
    return request
