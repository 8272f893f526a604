"""The cluster as columns: one array row per resource, one place per node; read-only, made at one moment.

It refuses to know: how pods and nodes came to be known (`books`), and every rule (`filters`).
Invariant: place i of every array and tuple is the same node; arrays are read-only; a cluster's nodes are in order of
names.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from nobiru.kernel.objects import Node, Taint
from nobiru.placement.classes import PodClass
from nobiru.placement.entries import PodEntry, PodState
from nobiru.placement.requests import HostPort

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Value = TypeVar("Value", bound=Hashable)
Coded = tuple[list[Value], Ints]  # (the distinct values, which of them each node has)

# Rows that every NodeColumns has, in this order; others follow by name.
FIRST_RESOURCES = ("cpu", "memory", "ephemeral-storage", "pods")


class TemplateNode(Struct, frozen=True, kw_only=True):
    """A node that does not exist yet: what a group's next machine would be.

    Units:   as kernel.quantity.  `overhead` is what DaemonSets take of `allocatable`.
    """

    name: str
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    allocatable: dict[str, int] = {}
    overhead: dict[str, int] = {}
    ports: frozenset[HostPort] = frozenset()  # host ports that DaemonSets take
    unschedulable: bool = False


class Held(Struct, frozen=True, kw_only=True, eq=False):
    """How many pods of which class each node holds, by rows of a sparse matrix.

    Shapes:  ptr (N+1,) int64; class_index, count (P',) int64: node i holds class_index[ptr[i]:ptr[i+1]], by index.
    """

    ptr: Ints
    class_index: Ints
    count: Ints

    def of(self, node: int) -> tuple[Ints, Ints]:
        """(class indexes, counts) of one node."""
        span = slice(int(self.ptr[node]), int(self.ptr[node + 1]))
        return self.class_index[span], self.count[span]


class Memo:
    """What filters worked out about one set of nodes from labels and taints; shared by columns that have equal ones."""

    def __init__(self) -> None:
        self.labels: dict[str, Coded[str | None]] = {}
        self.masks: dict[Hashable, Bools] = {}
        self.taints: Coded[tuple[Taint, ...]] | None = None


class NodeColumns(Struct, frozen=True, kw_only=True, eq=False):
    """Nodes, real or expected.

    Shapes:  allocatable, requested, free (R, N) int64; unschedulable (N,) bool.
    Units:   rows follow `resources`: cpu millicores, memory and storage bytes, others counts.
    `nodes` is empty for templates.  `held` and `classes` say which pods are there; a template holds none.  `leaving` are those of
    them that are being deleted: (node, class index, pods), by node and class.
    `memo` keeps what filters derived from labels and taints, `derived` what callers did from single nodes, by name and with the
    node that it is of: they change nothing that can be seen.
    """

    names: tuple[str, ...]
    nodes: tuple[Node, ...]
    index: Mapping[str, int]
    resources: tuple[str, ...]
    allocatable: Ints
    requested: Ints
    free: Ints
    labels: tuple[Mapping[str, str], ...]
    taints: tuple[tuple[Taint, ...], ...]
    unschedulable: Bools
    ports: tuple[frozenset[HostPort], ...]
    held: Held
    classes: tuple[PodClass, ...] = ()
    leaving: tuple[tuple[int, int, int], ...] = ()
    memo: Memo = field(default_factory=Memo)
    derived: dict[str, tuple[Node, object]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.names)


class PendingClass(Struct, frozen=True, kw_only=True, eq=False):
    """Pods of one class that wait for a node, by key."""

    pod_class: PodClass
    pods: tuple[PodEntry, ...]


class Cluster(Struct, frozen=True, kw_only=True, eq=False):
    """All that placement knows at one moment.

    Shapes:  request (C, R) int64, rows by class index, columns as nodes.resources.
    Order:   pods[i] those on node i (nominated ones too) by key; pending by the first pod's key.
    `others` counts pods that neither occupy a node nor wait for one: {"gated": 2}.
    `homeless` are pods bound or nominated to a node that is not known (yet), by key.
    """

    nodes: NodeColumns
    classes: tuple[PodClass, ...]
    request: Ints
    pods: tuple[tuple[PodEntry, ...], ...]
    pending: tuple[PendingClass, ...]
    others: dict[PodState, int]
    homeless: tuple[PodEntry, ...] = ()

    @property
    def held(self) -> Held:
        return self.nodes.held


def read_only(array: np.ndarray) -> np.ndarray:
    """The same array, which nobody can write to any more."""
    array.setflags(write=False)
    return array


def resource_names(templates: Iterable[TemplateNode], classes: Iterable[PodClass]) -> tuple[str, ...]:
    """The rows needed to compare these nodes and classes: the first four, then all others by name."""
    names: set[str] = set()
    for template in templates:
        names.update(template.allocatable, template.overhead)
    for pod_class in classes:
        names.update(pod_class.request)
    return in_order(names)


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Resource names in the order of rows."""
    return FIRST_RESOURCES + tuple(sorted(set(names).difference(FIRST_RESOURCES)))


def amounts_matrix(tables: Sequence[Mapping[str, int]], resources: Sequence[str]) -> Ints:
    """The amounts (R, len(tables)) int64; 0 where a table has none."""
    matrix = np.zeros((len(resources), len(tables)), dtype=np.int64)
    for row, name in enumerate(resources):
        matrix[row] = [table.get(name, 0) for table in tables]
    return matrix


def request_matrix(classes: Sequence[PodClass], resources: Sequence[str]) -> Ints:
    """What one pod of each class asks for, (K, R) int64."""
    return np.ascontiguousarray(amounts_matrix([each.request for each in classes], resources).T)


def holding_nothing(nodes: int) -> Held:
    """Held for nodes without pods."""
    none = read_only(np.zeros(0, dtype=np.int64))
    return Held(ptr=read_only(np.zeros(nodes + 1, dtype=np.int64)), class_index=none, count=none)


def columns_of_templates(templates: Sequence[TemplateNode], resources: Sequence[str]) -> NodeColumns:
    """Columns of expected nodes, in the order given."""
    allocatable = amounts_matrix([each.allocatable for each in templates], resources)
    requested = amounts_matrix([each.overhead for each in templates], resources)
    return NodeColumns(
        names=tuple(each.name for each in templates),
        nodes=(),
        index={each.name: place for place, each in enumerate(templates)},
        resources=tuple(resources),
        allocatable=read_only(allocatable),
        requested=read_only(requested),
        free=read_only(allocatable - requested),
        labels=tuple(each.labels for each in templates),
        taints=tuple(each.taints for each in templates),
        unschedulable=read_only(np.array([each.unschedulable for each in templates], dtype=np.bool_)),
        ports=tuple(each.ports for each in templates),
        held=holding_nothing(len(templates)),
    )


def concat(one: NodeColumns, other: NodeColumns) -> NodeColumns:
    """Both, `one` first, over the resources of either; `nodes` only where both have them.

    Classes must be of one table: `other` may have none.
    """
    resources = in_order((*one.resources, *other.resources))
    allocatable = np.hstack([_over(one.allocatable, one, resources), _over(other.allocatable, other, resources)])
    requested = np.hstack([_over(one.requested, one, resources), _over(other.requested, other, resources)])
    names = one.names + other.names
    return NodeColumns(
        names=names,
        nodes=one.nodes + other.nodes if len(one.nodes) == len(one) and len(other.nodes) == len(other) else (),
        index={name: place for place, name in enumerate(names)},
        resources=resources,
        allocatable=read_only(allocatable),
        requested=read_only(requested),
        free=read_only(allocatable - requested),
        labels=one.labels + other.labels,
        taints=one.taints + other.taints,
        unschedulable=read_only(np.concatenate([one.unschedulable, other.unschedulable])),
        ports=one.ports + other.ports,
        held=Held(
            ptr=read_only(np.concatenate([one.held.ptr, other.held.ptr[1:] + one.held.ptr[-1]])),
            class_index=read_only(np.concatenate([one.held.class_index, other.held.class_index])),
            count=read_only(np.concatenate([one.held.count, other.held.count])),
        ),
        classes=max(one.classes, other.classes, key=len),
        leaving=one.leaving + tuple((node + len(one), index, count) for node, index, count in other.leaving),
    )


def _over(matrix: Ints, columns: NodeColumns, resources: Sequence[str]) -> Ints:
    """The matrix (R', N) over a longer list of resources."""
    if tuple(resources) == columns.resources:
        return matrix
    wider = np.zeros((len(resources), matrix.shape[1]), dtype=np.int64)
    for row, name in enumerate(columns.resources):
        wider[resources.index(name)] = matrix[row]
    return wider


def coded(values: Iterable[Value]) -> Coded[Value]:
    """The distinct values in order of appearance, and for each value which of them it is."""
    places: dict[Value, int] = {}
    codes = [places.setdefault(value, len(places)) for value in values]
    return list(places), read_only(np.array(codes, dtype=np.int64))


def label_codes(key: str, nodes: NodeColumns) -> Coded[str | None]:
    """The distinct values of a label, and which of them each node has; None stands for no such label."""
    known = nodes.memo.labels.get(key)
    if known is None:
        known = nodes.memo.labels[key] = coded(labels.get(key) for labels in nodes.labels)
    return known


def taint_codes(nodes: NodeColumns) -> Coded[tuple[Taint, ...]]:
    """The distinct taint sets, and which of them each node has."""
    if nodes.memo.taints is None:
        nodes.memo.taints = coded(nodes.taints)
    return nodes.memo.taints
