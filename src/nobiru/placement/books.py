"""The running account of the cluster: fed object by object, it can say at any moment what is where (`freeze`).

It refuses to know: where objects come from, and every rule.  The one mutable value of `placement`.
Invariant: what `freeze` gives depends on the objects that exist now, never on the order in which they came; a pod
whose node is not known (yet) is kept aside and counts as soon as the node appears.
"""

from collections.abc import Hashable, Iterable, Mapping
from itertools import chain
from typing import TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from nobiru.kernel.objects import Key, Node, ObjectMeta, OwnerReference, Pod, PodStatus, Taint
from nobiru.placement.classes import PER_POD_LABELS, ClassTable, PodClass
from nobiru.placement.columns import (
    Bools,
    Cluster,
    Held,
    Ints,
    Memo,
    NodeColumns,
    PendingClass,
    amounts_matrix,
    in_order,
    read_only,
    request_matrix,
)
from nobiru.placement.entries import PodEntry, PodState, entry_of, scheduled_condition
from nobiru.placement.requests import HostPort, amounts_of

__all__ = ["AdmittedPod", "Books", "PodEntry", "PodState"]

_SPARE_CLASSES = 1_000  # below this many unused classes a sweep is not worth its time
_NO_PORTS: frozenset[HostPort] = frozenset()

# labels, taints, unschedulable, and what filters remember of them
_Facts = tuple[tuple[Mapping[str, str], ...], tuple[tuple[Taint, ...], ...], Bools, Memo]


class AdmittedPod(Pod, frozen=True, kw_only=True):
    """A Pod that shares what it can with its equals, and knows its class."""

    pod_class: PodClass


class _Seat:
    """One node name: the node, where it is known, and the pods that take its room."""

    __slots__ = ("allocatable", "counts", "dirty", "frozen", "node", "pods")

    def __init__(self) -> None:
        self.node: Node | None = None
        self.allocatable: dict[str, int] = {}
        self.pods: dict[Key, PodEntry] = {}
        self.counts: dict[int, int] = {}
        self.dirty = True
        self.frozen = _SeatRows()


class _SeatRows(Struct, frozen=True, kw_only=True, gc=False):
    """A seat as `freeze` last saw it: pods by key, its row of `Held`, and the host ports in use."""

    pods: tuple[PodEntry, ...] = ()
    class_index: tuple[int, ...] = ()
    count: tuple[int, ...] = ()
    ports: frozenset[HostPort] = frozenset()


class _NodeState:
    """What `freeze` keeps of the nodes until one changes; None means "make it again"."""

    def __init__(self) -> None:
        self.order: tuple[_Seat, ...] | None = None
        self.names: tuple[str, ...] = ()
        self.index: dict[str, int] = {}
        self.resources: tuple[str, ...] = ()
        self.allocatable: Ints | None = None
        self.facts: _Facts | None = None


class Books:
    """All nodes and pods, as classes and counts."""

    def __init__(self, *, bypassed_schedulers: Iterable[str] = ()) -> None:
        """`bypassed_schedulers`: pods of these wait for a node even before their scheduler looked at them."""
        self.classes = ClassTable()
        self._bypassed = frozenset(bypassed_schedulers)
        self._seats: dict[str, _Seat] = {}
        self._entries: dict[Key, PodEntry] = {}
        self._pods_of: dict[int, int] = {}  # class index -> pods
        self._waiting: dict[int, dict[Key, PodEntry]] = {}
        self._others: dict[PodState, int] = {}
        self._newly: set[Key] = set()
        self._homeless_count = 0
        self._nodes = _NodeState()
        self._last: Cluster | None = None
        self._dirty = True
        self.generation = 0

    # Feeding

    def admit(self, pod: Pod) -> AdmittedPod:
        """The pod as a cache should keep it: its spec, labels and strings shared with its equals."""
        pod_class = self.classes.intern(pod)
        meta, status = pod.metadata, pod.status
        own_labels = meta.labels is not None and not PER_POD_LABELS.isdisjoint(meta.labels)
        waiting = None if pod.spec.node_name else scheduled_condition(status)
        spec = pod_class.spec
        return AdmittedPod(
            metadata=ObjectMeta(
                name=meta.name,
                namespace=pod_class.namespace,
                uid=meta.uid,
                resource_version=meta.resource_version,
                generation=meta.generation,
                labels=meta.labels if own_labels else pod_class.labels,
                annotations=pod_class.annotations,
                owner_references=_shared_owners(meta.owner_references, pod_class.owner),
                creation_timestamp=meta.creation_timestamp,
                deletion_timestamp=meta.deletion_timestamp,
                deletion_grace_period_seconds=meta.deletion_grace_period_seconds,
            ),
            spec=replace(spec, node_name=pod.spec.node_name) if pod.spec.node_name else spec,
            status=PodStatus(
                phase=status.phase,
                conditions=None if waiting is None else (waiting,),
                nominated_node_name=status.nominated_node_name,
            ),
            pod_class=pod_class,
        )

    def upsert_node(self, node: Node) -> None:
        """A node appeared or changed."""
        seat = self._seat(node.name)
        before = seat.node
        if before is None:
            self._homeless_count -= len(seat.pods)
            self._nodes.order = None
        seat.node = node
        self._dirty = True
        if before is None or before.status.allocatable != node.status.allocatable:
            seat.allocatable = amounts_of(node.status.allocatable)[0]
            self._nodes.allocatable = None
        if before is None or before.labels != node.labels or before.spec != node.spec:
            self._nodes.facts = None

    def delete_node(self, name: str) -> None:
        """A node went; pods still bound to it are kept aside."""
        seat = self._seats.get(name)
        if seat is None or seat.node is None:
            return
        seat.node = None
        self._homeless_count += len(seat.pods)
        if not seat.pods:
            del self._seats[name]
        self._nodes = _NodeState()
        self._dirty = True

    def upsert_pod(self, pod: Pod) -> None:
        """A pod appeared or changed."""
        pod_class = pod.pod_class if isinstance(pod, AdmittedPod) else None
        if pod_class is None or not self.classes.holds(pod_class):
            pod_class = self.classes.intern(pod)
        entry = entry_of(pod, pod_class)
        before = self._entries.get(entry.key)
        if before is not None:
            if before == entry:
                return
            self._remove(before)
        self._add(entry)
        if self._waits(entry) and (before is None or not self._waits(before) or before.uid != entry.uid):
            self._newly.add(entry.key)

    def delete_pod(self, key: Key) -> None:
        """A pod went."""
        entry = self._entries.get(key)
        if entry is not None:
            self._remove(entry)

    @property
    def newly_unschedulable(self) -> int:
        """How many pods began to wait for a node since the last freeze, and still do."""
        return len(self._newly)

    def _waits(self, entry: PodEntry) -> bool:
        if entry.state == "unprocessed":
            return (entry.pod_class.spec.scheduler_name or "default-scheduler") in self._bypassed
        return entry.state == "unschedulable"

    def _seat(self, name: str) -> _Seat:
        seat = self._seats.get(name)
        if seat is None:
            seat = self._seats[name] = _Seat()
        return seat

    def _add(self, entry: PodEntry) -> None:
        self._dirty = True
        self._entries[entry.key] = entry
        index = entry.pod_class.index
        self._pods_of[index] = self._pods_of.get(index, 0) + 1
        if entry.seat:
            seat = self._seat(entry.seat)
            seat.pods[entry.key] = entry
            seat.counts[index] = seat.counts.get(index, 0) + 1
            seat.dirty = True
            self._homeless_count += seat.node is None
        elif self._waits(entry):
            self._waiting.setdefault(index, {})[entry.key] = entry
        else:
            self._others[entry.state] = self._others.get(entry.state, 0) + 1

    def _remove(self, entry: PodEntry) -> None:
        self._dirty = True
        del self._entries[entry.key]
        self._newly.discard(entry.key)
        index = entry.pod_class.index
        _take_one(self._pods_of, index)
        if entry.seat:
            seat = self._seats[entry.seat]
            del seat.pods[entry.key]
            _take_one(seat.counts, index)
            seat.dirty = True
            self._homeless_count -= seat.node is None
            if seat.node is None and not seat.pods:
                del self._seats[entry.seat]
        elif self._waits(entry):
            del self._waiting[index][entry.key]
            if not self._waiting[index]:
                del self._waiting[index]
        else:
            _take_one(self._others, entry.state)

    # Reading

    def freeze(self) -> Cluster:
        """The cluster as it is now; what did not change since the last call is the same object."""
        if self._last is not None and not self._dirty:
            self._newly.clear()
            return self._last
        self._retire_classes()
        classes = self.classes.classes
        nodes = self._freeze_nodes(classes)
        self._last = Cluster(
            nodes=nodes,
            classes=classes,
            request=self._request(classes, nodes.resources),
            pods=tuple(seat.frozen.pods for seat in self._ordered()),
            pending=self._freeze_pending(),
            others=dict(sorted(self._others.items())),
            homeless=self._freeze_homeless(),
        )
        self._dirty = False
        self._newly.clear()
        self.generation += 1
        return self._last

    def _ordered(self) -> tuple[_Seat, ...]:
        state = self._nodes
        if state.order is None:
            named = sorted((name, seat) for name, seat in self._seats.items() if seat.node is not None)
            state.order = tuple(seat for _, seat in named)
            state.names = tuple(name for name, _ in named)
            state.index = {name: place for place, name in enumerate(state.names)}
            state.allocatable = None
            state.facts = None
        return state.order

    def _freeze_nodes(self, classes: tuple[PodClass, ...]) -> NodeColumns:
        seats = self._ordered()
        for seat in seats:
            if seat.dirty:
                seat.frozen = _rows(seat, classes)
                seat.dirty = False
        state = self._nodes
        resources = self._resources(seats)
        if state.allocatable is None or state.resources != resources:
            state.resources = resources
            state.allocatable = read_only(amounts_matrix([seat.allocatable for seat in seats], resources))
        if state.facts is None:
            state.facts = _facts(seats)
        held = _held(seats)
        requested = _requested(held, self._request(classes, resources), len(seats))
        labels, taints, unschedulable, memo = state.facts
        return NodeColumns(
            names=state.names,
            nodes=tuple(seat.node for seat in seats if seat.node is not None),
            index=state.index,
            resources=resources,
            allocatable=state.allocatable,
            requested=read_only(requested),
            free=read_only(state.allocatable - requested),
            labels=labels,
            taints=taints,
            unschedulable=unschedulable,
            ports=tuple(seat.frozen.ports for seat in seats),
            held=held,
            classes=classes,
            memo=memo,
        )

    def _resources(self, seats: tuple[_Seat, ...]) -> tuple[str, ...]:
        names: set[str] = set()
        for seat in seats:
            names.update(seat.allocatable)
        for index in self._pods_of:
            names.update(self.classes.at(index).request)
        return in_order(names)

    def _request(self, classes: tuple[PodClass, ...], resources: tuple[str, ...]) -> Ints:
        return read_only(request_matrix(classes, resources))

    def _freeze_pending(self) -> tuple[PendingClass, ...]:
        pending = [
            PendingClass(pod_class=self.classes.at(index), pods=tuple(pods[key] for key in sorted(pods)))
            for index, pods in self._waiting.items()
        ]
        return tuple(sorted(pending, key=lambda each: each.pods[0].key))

    def _freeze_homeless(self) -> tuple[PodEntry, ...]:
        if not self._homeless_count:
            return ()
        seats = [seat for seat in self._seats.values() if seat.node is None]
        return tuple(sorted((entry for seat in seats for entry in seat.pods.values()), key=lambda entry: entry.key))

    def _retire_classes(self) -> None:
        """Keep the table within twice what is in use: every rollout makes new classes, for ever."""
        if len(self.classes) > 2 * len(self._pods_of) + _SPARE_CLASSES:
            self.classes.retire(self._pods_of.keys())


Name = TypeVar("Name", bound=Hashable)


def _take_one(counts: dict[Name, int], name: Name) -> None:
    """One less of `name`; nothing is kept of what is no more."""
    if counts[name] == 1:
        del counts[name]
    else:
        counts[name] -= 1


def _shared_owners(owners: tuple[OwnerReference, ...], controller: OwnerReference | None) -> tuple[OwnerReference, ...]:
    return (controller,) if controller is not None and len(owners) == 1 and owners[0] == controller else owners


def _rows(seat: _Seat, classes: tuple[PodClass, ...]) -> _SeatRows:
    counts = sorted(seat.counts.items())
    ports = {port for index, _ in counts for port in classes[index].host_ports}
    return _SeatRows(
        pods=tuple(seat.pods[key] for key in sorted(seat.pods)),
        class_index=tuple(index for index, _ in counts),
        count=tuple(count for _, count in counts),
        ports=frozenset(ports) if ports else _NO_PORTS,
    )


def _facts(seats: tuple[_Seat, ...]) -> _Facts:
    nodes = [seat.node for seat in seats if seat.node is not None]
    unschedulable = np.array([node.spec.unschedulable for node in nodes], dtype=np.bool_)
    return tuple(node.labels for node in nodes), tuple(node.taints for node in nodes), read_only(unschedulable), Memo()


def _held(seats: tuple[_Seat, ...]) -> Held:
    ptr = np.zeros(len(seats) + 1, dtype=np.int64)
    np.cumsum([len(seat.frozen.class_index) for seat in seats], out=ptr[1:])
    total = int(ptr[-1])
    return Held(
        ptr=read_only(ptr),
        class_index=read_only(np.fromiter(chain.from_iterable(s.frozen.class_index for s in seats), np.int64, total)),
        count=read_only(np.fromiter(chain.from_iterable(s.frozen.count for s in seats), np.int64, total)),
    )


def _requested(held: Held, request: Ints, nodes: int) -> Ints:
    """What the pods of each node ask for together, (R, N) int64."""
    result = np.zeros((request.shape[1], nodes), dtype=np.int64)
    filled = np.flatnonzero(np.diff(held.ptr))
    if filled.size:
        for row in range(request.shape[1]):
            amounts = request[held.class_index, row] * held.count
            result[row, filled] = np.add.reduceat(amounts, held.ptr[filled])
    return result
