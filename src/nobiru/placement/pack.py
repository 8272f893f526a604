"""First fit of ordered classes: onto nodes that exist, and onto copies of one template.

It refuses to know: labels, taints and every other rule (`filters` made them into masks), groups, priorities.
Invariant: the result is exactly what placing pod by pod onto the first node with room would give; no array that comes
in is changed.  Pods of one class are placed by division and running sums, never one by one.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from nobiru.placement.capacity import NONE, Apart, first_fit, with_room
from nobiru.placement.columns import Bools, Ints, read_only
from nobiru.placement.removals import Candidate, Removal, plan_removals

__all__ = [
    "Candidate",
    "Hold",
    "NewNodes",
    "Placement",
    "Removal",
    "order",
    "pack_new",
    "place",
    "plan_removals",
]


class Placement(Struct, frozen=True, kw_only=True, eq=False):
    """Where pods went on existing nodes.

    Shapes:  placed (K,) int64; nodes[k], counts[k] int64: the nodes that took pods of class k, in trial order, and how
             many; free_after (R, N) int64.
    """

    placed: Ints
    nodes: tuple[Ints, ...]
    counts: tuple[Ints, ...]
    free_after: Ints

    @property
    def touched(self) -> frozenset[int]:
        """Nodes that took any pod."""
        return frozenset(node for nodes in self.nodes for node in nodes.tolist())


class Hold(Struct, frozen=True, kw_only=True, gc=False):
    """`nodes` new nodes from number `first` on hold `each` pods of a class."""

    first: int
    nodes: int
    each: int


class NewNodes(Struct, frozen=True, kw_only=True, eq=False):
    """How many copies of a template are needed, and who goes where.

    Shapes:  placed (K,) int64; holds[k] by node number; free_after (R, nodes) int64.
    """

    nodes: int
    placed: Ints
    holds: tuple[tuple[Hold, ...], ...]
    free_after: Ints


def order(request: Ints, reference: Ints, resources: Sequence[str], priority: Ints | None = None) -> Ints:
    """The rows of `request` in packing order: priority, then the biggest share of a node first, then as given.

    Shapes:  request (K, R); reference (R,) a node's size, at least 1; priority (K,); returns (K,) int64.
    Source:  cluster-autoscaler 1.36 estimator/decreasing_pod_orderer.go: the share is cpu/cpu + memory/memory.
    """
    share = np.zeros(request.shape[0], dtype=np.float64)
    for name in ("cpu", "memory"):
        if name in resources:
            row = list(resources).index(name)
            share += request[:, row] / max(1, int(reference[row]))
    keys = (-share,) if priority is None else (-share, -priority)
    return np.lexsort(keys)


def place(
    request: Ints,
    count: Ints,
    fits: Bools,
    free: Ints,
    per_node_max: Ints | None = None,
    *,
    node_order: Ints | None = None,
    conflicts: Bools | None = None,
) -> Placement:
    """First fit of classes, in the order of rows, onto existing nodes.

    Shapes:  request (K, R), count (K,), fits (K, N), free (R, N), per_node_max (K,) with 0 for no limit;
             node_order (N,) the order in which nodes are tried; conflicts (K, K) which classes never share a node.
    """
    apart = Apart(conflicts, per_node_max, len(count))
    left = free.copy() if node_order is None else free[:, node_order]
    suits = fits if node_order is None else fits[:, node_order]
    open_to = suits.copy() if conflicts is not None else suits
    placed = np.zeros(len(count), dtype=np.int64)
    nodes, counts = [NONE] * len(count), [NONE] * len(count)
    for rows in _alike(request, count, open_to, apart):
        row, wanted = rows[0], int(count[rows].sum())
        roomy = with_room(request[row], left, open_to[row])
        hit, taken, _ = first_fit(request[row], left, roomy, wanted, apart.limit(row, wanted))
        if not hit.size:
            continue
        for resource in np.flatnonzero(request[row]).tolist():
            left[resource][hit] -= request[row, resource] * taken
        for other in apart.rivals(row):
            open_to[other, hit] = False
        named = hit if node_order is None else node_order[hit]
        for each, (dealt, amounts) in zip(rows, _deal(named, taken, count[rows]), strict=True):
            nodes[each], counts[each], placed[each] = dealt, amounts, amounts.sum()
    if node_order is not None:
        left = left[:, np.argsort(node_order)]
    return Placement(placed=placed, nodes=tuple(nodes), counts=tuple(counts), free_after=read_only(left))


def pack_new(
    request: Ints,
    count: Ints,
    fits: Bools,
    template_free: Ints,
    nodes_max: int,
    per_node_max: Ints | None = None,
    *,
    conflicts: Bools | None = None,
) -> NewNodes:
    """First fit of classes, in the order of rows, onto at most `nodes_max` new nodes, all copies of one template.

    Shapes:  request (K, R), count (K,), fits (K,), template_free (R,); others as `place`.
    """
    apart = Apart(conflicts, per_node_max, len(count))
    stretches = _Stretches(template_free, max(0, nodes_max), len(count) if conflicts is not None else 0)
    wanted = np.where(fits, count, 0)
    holds: list[tuple[Hold, ...]] = [()] * len(count)
    placed = np.zeros(len(count), dtype=np.int64)
    for rows in _alike(request, wanted, fits[:, None], apart):
        row, total = rows[0], int(wanted[rows].sum())
        found = stretches.take(request[row], total, apart.limit(row, total), row, apart.rivals(row))
        for each, dealt in zip(rows, _deal_holds(found, wanted[rows]), strict=True):
            holds[each], placed[each] = dealt, sum(hold.nodes * hold.each for hold in dealt)
    used = max((hold.first + hold.nodes for each in holds for hold in each), default=0)
    return NewNodes(nodes=used, placed=placed, holds=tuple(holds), free_after=read_only(stretches.free(used)))


def _alike(request: Ints, count: Ints, fits: Bools, apart: Apart) -> list[list[int]]:
    """Rows with pods to place, neighbours together where nothing but their name tells them apart.

    Ten thousand Jobs of one shape are ten thousand classes; together they cost one.
    """
    rows = np.flatnonzero(count > 0)
    if not rows.size:
        return []
    same = (request[rows[1:]] == request[rows[:-1]]).all(axis=1) & (fits[rows[1:]] == fits[rows[:-1]]).all(axis=1)
    alone = apart.alone()[rows]
    same &= ~alone[1:] & ~alone[:-1]
    return [part.tolist() for part in np.split(rows, np.flatnonzero(~same) + 1)]


def _deal(nodes: Ints, taken: Ints, count: Ints) -> list[tuple[Ints, Ints]]:
    """What the nodes took of several alike classes, dealt to the classes in their order."""
    if len(count) == 1:
        return [(nodes, taken)]
    ends = np.cumsum(taken)
    dealt = []
    start = 0
    for share in count.tolist():
        stop = min(start + share, int(ends[-1]))
        first, last = np.searchsorted(ends, [start, stop - 1], side="right").tolist() if stop > start else (0, -1)
        span = slice(first, last + 1)
        amounts = np.minimum(ends[span], stop) - np.maximum(ends[span] - taken[span], start)
        dealt.append((nodes[span], amounts))
        start = stop
    return dealt


def _deal_holds(found: Sequence[Hold], count: Ints) -> list[tuple[Hold, ...]]:
    """The same for new nodes: stretches are cut where one class ends and the next begins."""
    if len(count) == 1:
        return [tuple(found)]
    rest = list(reversed(found))
    dealt = []
    for share in count.tolist():
        mine: list[Hold] = []
        while share and rest:
            hold = rest.pop()
            whole, part = divmod(share, hold.each)
            if whole >= hold.nodes:
                mine.append(hold)
                share -= hold.nodes * hold.each
                continue
            if whole:
                mine.append(Hold(first=hold.first, nodes=whole, each=hold.each))
            after = hold.first + whole
            if hold.nodes - whole - bool(part):
                nodes = hold.nodes - whole - bool(part)
                rest.append(Hold(first=after + bool(part), nodes=nodes, each=hold.each))
            if part:
                mine.append(Hold(first=after, nodes=1, each=part))
                rest.append(Hold(first=after, nodes=1, each=hold.each - part))
            share = 0
        dealt.append(tuple(mine))
    return dealt


class _Stretches:
    """New nodes as stretches of equal ones, in order: thousands of copies are a handful of columns.

    Invariant: the last stretch holds the untouched copies; first fit keeps touched nodes a prefix.
    """

    def __init__(self, template_free: Ints, nodes_max: int, classes: int) -> None:
        self.columns = template_free[:, None].copy()  # (R, M)
        self.nodes = np.array([nodes_max], dtype=np.int64)  # (M,)
        self.open = np.ones((classes, 1), dtype=np.bool_)  # (K, M) where classes that have rivals may still come

    def take(self, request: Ints, wanted: int, limit: int, row: int, rivals: list[int]) -> list[Hold]:
        """Place pods; returns where they went."""
        roomy = with_room(request, self.columns, self.open[row] if len(self.open) else None)
        hit, taken, each = first_fit(request, self.columns, roomy, wanted, limit, self.nodes)
        if not hit.size:
            return []
        last, pods = int(hit[-1]), int(taken[-1])
        filled, rest = divmod(pods, int(each[-1]))
        if pods < int(each[-1]) * int(self.nodes[last]):
            hit, each = self._split(hit, each, filled, rest)
        for resource in np.flatnonzero(request).tolist():
            self.columns[resource][hit] -= request[resource] * each
        for rival in rivals:
            self.open[rival, hit] = False
        firsts = self.nodes.cumsum()[hit] - self.nodes[hit]
        return [
            Hold(first=first, nodes=nodes, each=pods)
            for first, nodes, pods in zip(firsts.tolist(), self.nodes[hit].tolist(), each.tolist(), strict=True)
        ]

    def _split(self, hit: Ints, each: Ints, filled: int, rest: int) -> tuple[Ints, Ints]:
        """Cut the last stretch hit into nodes filled, one filled in part, and the rest; returns hit and each for the new."""
        place, most = int(hit[-1]), int(each[-1])
        sizes = [filled, 1 if rest else 0, int(self.nodes[place]) - filled - bool(rest)]
        pieces = [nodes for nodes in sizes if nodes]
        self.columns = _widen(self.columns, place, len(pieces))
        self.open = _widen(self.open, place, len(pieces))
        self.nodes = _widen(self.nodes, place, len(pieces))
        self.nodes[place : place + len(pieces)] = pieces
        takers = [pods for nodes, pods in ((filled, most), (rest, rest)) if nodes]
        added = np.arange(place, place + len(takers))
        return np.concatenate([hit[:-1], added]), np.concatenate([each[:-1], np.array(takers, dtype=np.int64)])

    def free(self, used: int) -> Ints:
        """What is left on the first `used` nodes, (R, used)."""
        return np.repeat(self.columns, self.nodes, axis=1)[:, :used]


Column = TypeVar("Column", np.int64, np.bool_)


def _widen(array: NDArray[Column], place: int, copies: int) -> NDArray[Column]:
    """The array with `copies` of the last axis's element at `place` instead of one."""
    head, one, tail = array[..., :place], array[..., place : place + 1], array[..., place + 1 :]
    return np.concatenate([head] + [one] * copies + [tail], axis=-1)
