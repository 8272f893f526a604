"""How the books keep nodes and waiting pods between two freezes, so that a freeze remakes only what changed.

It refuses to know: how objects arrive (`books`).  Invariant: a frozen part is never changed; a change drops it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np
from msgspec import Struct

from nobiru.kernel.objects import Key, Node, Taint
from nobiru.placement.classes import ClassTable, PodClass
from nobiru.placement.columns import (
    Bools,
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
from nobiru.placement.entries import PodEntry
from nobiru.placement.requests import HostPort

_NO_PORTS: frozenset[HostPort] = frozenset()

# labels, taints, unschedulable, and what filters remember of them
_Facts = tuple[tuple[Mapping[str, str], ...], tuple[tuple[Taint, ...], ...], Bools, Memo]


class SeatRows(Struct, frozen=True, kw_only=True, gc=False):
    """A seat as `freeze` last saw it: pods by key, its row of `Held`, and the host ports in use."""

    pods: tuple[PodEntry, ...] = ()
    class_index: tuple[int, ...] = ()
    count: tuple[int, ...] = ()
    ports: frozenset[HostPort] = _NO_PORTS
    leaving: tuple[tuple[int, int], ...] = ()  # (class index, pods that are being deleted)


class Seat:
    """One node name: the node, where it is known, and the pods that take its room."""

    __slots__ = ("allocatable", "counts", "node", "pods", "rows")

    def __init__(self) -> None:
        self.node: Node | None = None
        self.allocatable: dict[str, int] = {}
        self.pods: dict[Key, PodEntry] = {}
        self.counts: dict[int, int] = {}  # class index -> pods
        self.rows: SeatRows | None = None

    def freeze(self, classes: ClassTable) -> SeatRows:
        if self.rows is None:
            counts = sorted(self.counts.items())
            ports = {port for index, _ in counts for port in classes.at(index).host_ports}
            leaving = Counter(each.pod_class.index for each in self.pods.values() if each.deleted_ms)
            self.rows = SeatRows(
                pods=tuple(self.pods[key] for key in sorted(self.pods)),
                class_index=tuple(index for index, _ in counts),
                count=tuple(count for _, count in counts),
                ports=frozenset(ports) if ports else _NO_PORTS,
                leaving=tuple(sorted(leaving.items())),
            )
        return self.rows


class Queue:
    """The pods of one class that wait for a node."""

    __slots__ = ("frozen", "pods")

    def __init__(self) -> None:
        self.pods: dict[Key, PodEntry] = {}
        self.frozen: PendingClass | None = None

    def freeze(self, pod_class: PodClass) -> PendingClass:
        if self.frozen is None:
            # Lists and controllers create pods nearly in order of keys, which sorting is quick with.
            self.frozen = PendingClass(pod_class=pod_class, pods=tuple(self.pods[key] for key in sorted(self.pods)))
        return self.frozen


class NodeState:
    """What stays the same of the nodes' columns until a node changes; None means "make it again"."""

    def __init__(self) -> None:
        self.order: tuple[Seat, ...] | None = None
        self.names: tuple[str, ...] = ()
        self.index: dict[str, int] = {}
        self.resources: tuple[str, ...] = ()
        self.allocatable: Ints | None = None
        self.facts: _Facts | None = None
        self.derived: dict[str, tuple[Node, object]] = {}

    def freeze(
        self, seats: Mapping[str, Seat], table: ClassTable, asked: Iterable[str]
    ) -> tuple[NodeColumns, Ints, tuple[SeatRows, ...]]:
        """(the columns, what one pod of each class asks for (C, R), each node's rows); rows for all `asked` resources."""
        order = self._in_order(seats)
        rows = tuple(seat.freeze(table) for seat in order)
        held = held_by(rows)
        resources = in_order(chain(asked, *(seat.allocatable for seat in order)))
        if self.allocatable is None or self.resources != resources:
            self.resources = resources
            self.allocatable = read_only(amounts_matrix([seat.allocatable for seat in order], resources))
        if self.facts is None:
            self.facts = _facts(order)
        labels, taints, unschedulable, memo = self.facts
        classes = table.classes
        request = read_only(request_matrix(classes, resources))
        requested = requested_by(held, request)
        columns = NodeColumns(
            names=self.names,
            nodes=tuple(seat.node for seat in order if seat.node is not None),
            index=self.index,
            resources=resources,
            allocatable=self.allocatable,
            requested=read_only(requested),
            free=read_only(self.allocatable - requested),
            labels=labels,
            taints=taints,
            unschedulable=unschedulable,
            ports=tuple(each.ports for each in rows),
            held=held,
            classes=classes,
            leaving=tuple((place, *each) for place, row in enumerate(rows) for each in row.leaving),
            memo=memo,
            derived=self.derived,
        )
        return columns, request, rows

    def _in_order(self, seats: Mapping[str, Seat]) -> tuple[Seat, ...]:
        if self.order is None:
            named = sorted((name, seat) for name, seat in seats.items() if seat.node is not None)
            self.order = tuple(seat for _, seat in named)
            self.names = tuple(name for name, _ in named)
            self.index = {name: place for place, name in enumerate(self.names)}
            self.allocatable = None
            self.facts = None
            self.derived = {name: known for name, known in self.derived.items() if name in self.index}
        return self.order


def _facts(order: Sequence[Seat]) -> _Facts:
    nodes = [seat.node for seat in order if seat.node is not None]
    unschedulable = np.array([node.spec.unschedulable for node in nodes], dtype=np.bool_)
    return tuple(node.labels for node in nodes), tuple(node.taints for node in nodes), read_only(unschedulable), Memo()


def held_by(rows: Sequence[SeatRows]) -> Held:
    """The sparse matrix of classes on nodes."""
    ptr = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(each.class_index) for each in rows], out=ptr[1:])
    total = int(ptr[-1])
    return Held(
        ptr=read_only(ptr),
        class_index=read_only(np.fromiter(chain.from_iterable(each.class_index for each in rows), np.int64, total)),
        count=read_only(np.fromiter(chain.from_iterable(each.count for each in rows), np.int64, total)),
    )


def requested_by(held: Held, request: Ints) -> Ints:
    """What the pods of each node ask for together, (R, N) int64, from request (C, R)."""
    result = np.zeros((request.shape[1], len(held.ptr) - 1), dtype=np.int64)
    filled = np.flatnonzero(np.diff(held.ptr))
    if filled.size:
        for row in range(request.shape[1]):
            amounts = request[held.class_index, row] * held.count
            result[row, filled] = np.add.reduceat(amounts, held.ptr[filled])
    return result
