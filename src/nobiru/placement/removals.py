"""Which nodes can go, because the pods on them fit on the nodes that stay: one after the other, room taken for good.

It refuses to know: drain rules, budgets, timers.  Invariant: a pod is counted onto at most one node; a node that goes
takes none, and one that took some stays; a candidate that cannot go leaves no trace.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from nobiru.placement.capacity import MANY, Apart, capacity_of
from nobiru.placement.columns import Bools, Ints

_FIRST_LEAP = 256
_STEPS_BEFORE_LEAP = 2  # looking at one place costs about as much as a look at a few hundred by the arrays

RemovalOutcome = Literal["goes", "blocked", "took_pods", "over_limit"]


class Candidate(Struct, frozen=True, kw_only=True):
    """A node that might go, and what would have to move: `counts[i]` pods of the class in row `rows[i]`."""

    node: int
    rows: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()


class Removal(Struct, frozen=True, kw_only=True):
    """What became of a candidate; `destinations` are (row, node, pods), `blocked_by` the row that found no room."""

    node: int
    outcome: RemovalOutcome
    destinations: tuple[tuple[int, int, int], ...] = ()
    blocked_by: int = -1

    @property
    def goes(self) -> bool:
        return self.outcome == "goes"


def plan_removals(
    request: Ints,
    fits: Bools,
    free: Ints,
    candidates: Sequence[Candidate],
    *,
    limit: int | None = None,
    receives: Bools | None = None,
    per_node_max: Ints | None = None,
    conflicts: Bools | None = None,
) -> tuple[Removal, ...]:
    """Which candidates can go, tried in the given order, at most `limit` of them.

    Shapes:  request (K, R), fits (K, N), free (R, N), receives (N,) the nodes that may take pods, else all;
             per_node_max (K,) 0 for no limit, conflicts (K, K) as in `pack`.
    Order:   pods go first fit, first to nodes that are no candidates, then to candidates from the end of the list:
             those are the least likely to go themselves, so that the fewest nodes stay.
    """
    plan = _Removals(request, fits, free, candidates, receives, Apart(conflicts, per_node_max, len(request)))
    result: list[Removal] = []
    gone = 0
    for candidate in candidates:
        if limit is not None and gone >= limit:
            result.append(Removal(node=candidate.node, outcome="over_limit"))
            continue
        removal = plan.attempt(candidate)
        gone += removal.goes
        result.append(removal)
    return tuple(result)


class _Removals:
    """The plan being made; lives for one call.

    Destinations are numbered by their place in the order of trial.  For each shape of pod a cursor stands at the first
    destination that may still have room: room only ever shrinks, so a cursor goes forward only, except that a failed
    attempt gives back what it took.
    """

    def __init__(
        self,
        request: Ints,
        fits: Bools,
        free: Ints,
        candidates: Sequence[Candidate],
        receives: Bools | None,
        apart: Apart,
    ) -> None:
        self.node_at = _trial_order(free.shape[1], candidates, receives)
        self.place_of = {node: place for place, node in enumerate(self.node_at)}
        self.free = np.ascontiguousarray(free[:, self.node_at])  # (R, D)
        self.rooms: list[list[int]] = self.free.T.tolist()  # the same, for one destination at a time
        self.stays = np.ones(len(self.node_at), dtype=np.bool_)
        self.request = request
        self.asks = [[(r, amount) for r, amount in enumerate(row) if amount > 0] for row in request.tolist()]
        self.shape_of, masks = _shapes(request, fits, apart.alone())
        self.masks = masks[:, self.node_at]
        self.apart = apart
        self.alone = apart.alone().tolist()
        self.cursor = [0] * len(masks)
        self.most: dict[int, int] = {}  # shape -> no more pods than this fit anywhere
        self.here: dict[tuple[int, int], int] = {}  # (row, place) -> pods put there, of rows that want to be alone
        self.took: set[int] = set()  # places
        self.rank = _ranks(request, free, [masks[shape].tobytes() for shape in self.shape_of])
        self.log: list[tuple[int, int, int]] = []  # (row, place, pods) of the attempt that runs

    def attempt(self, candidate: Candidate) -> Removal:
        """Move the candidate's pods if all of them find room, else leave everything as it was."""
        source = self.place_of.get(candidate.node, -1)
        if source in self.took:
            return Removal(node=candidate.node, outcome="took_pods")
        self.log = []
        reached: dict[int, int] = {}
        moves = sorted(zip(candidate.rows, candidate.counts, strict=True), key=lambda move: self.rank[move[0]])
        for row, count in moves:
            shape = self.shape_of[row]
            start = reached.get(shape, self.cursor[shape])
            possible = count <= self.most.get(shape, count)
            left, reached[shape] = self._settle(row, count, start, source) if possible else (count, start)
            if left:
                self._give_back(reached, source)
                self._measure(row, count)
                return Removal(node=candidate.node, outcome="blocked", blocked_by=row)
        for shape, place in reached.items():
            self.cursor[shape] = place
        if source >= 0:
            self.stays[source] = False
        self.took.update(place for _, place, _ in self.log)
        moved = tuple((row, self.node_at[place], pods) for row, place, pods in self.log)
        return Removal(node=candidate.node, outcome="goes", destinations=moved)

    def _settle(self, row: int, count: int, place: int, source: int) -> tuple[int, int]:
        """Put pods of one class from `place` on; returns (pods without room, where the search stands)."""
        while True:
            place = self._next(row, place, source)
            if place >= len(self.node_at):
                return count, place
            pods = min(count, self._capacity(row, place))
            self._put(row, place, pods)
            count -= pods
            if not count:
                return 0, place
            place += 1

    def _next(self, row: int, place: int, source: int) -> int:
        """The first place from `place` on that has room for a pod of the row."""
        shape = self.shape_of[row]
        mask = self.masks[shape]
        step = 0
        while place < len(self.node_at):
            if place != source and mask[place] and self.stays[place] and self._capacity(row, place) > 0:
                return place
            place += 1
            step += 1
            if step >= _STEPS_BEFORE_LEAP:
                place = self._leap(row, place)
        return place

    def _leap(self, row: int, start: int) -> int:
        """The next place with room by the arrays, a whole stretch at once; longer stretches while there is none."""
        mask, asks = self.masks[self.shape_of[row]], self.asks[row]
        stretch = _FIRST_LEAP
        while start < len(self.node_at):
            stop = start + stretch
            suits = mask[start:stop] & self.stays[start:stop]
            for resource, amount in asks:
                suits &= self.free[resource, start:stop] >= amount
            first = int(suits.argmax())
            if suits[first]:
                return start + first
            start, stretch = stop, stretch * 4
        return len(self.node_at)

    def _capacity(self, row: int, place: int) -> int:
        """How many pods of the row the place takes."""
        room = self.rooms[place]
        capacity = min([room[resource] // amount for resource, amount in self.asks[row]], default=MANY)
        if capacity <= 0 or not self.alone[row]:
            return capacity
        if any(self.here.get((rival, place)) for rival in self.apart.rivals(row)):
            return 0
        return min(capacity, int(self.apart.limit(row, MANY)) - self.here.get((row, place), 0))

    def _put(self, row: int, place: int, pods: int) -> None:
        room = self.rooms[place]
        for resource, amount in self.asks[row]:
            room[resource] -= pods * amount
        self.free[:, place] -= pods * self.request[row]
        if self.alone[row]:
            self.here[row, place] = self.here.get((row, place), 0) + pods
        self.log.append((row, place, pods))

    def _give_back(self, reached: dict[int, int], source: int) -> None:
        """Undo the attempt; cursors keep what they learned of places that it neither touched nor left out."""
        for row, place, pods in self.log.copy():
            self._put(row, place, -pods)
        certain = min((place for _, place, _ in self.log), default=len(self.node_at))
        if source >= 0:
            certain = min(certain, source)
        for shape, place in reached.items():
            self.cursor[shape] = max(self.cursor[shape], min(place, certain))

    def _measure(self, row: int, count: int) -> None:
        """Remember how many pods of the row find room at all: the next node that has more is refused at once."""
        shape = self.shape_of[row]
        if count > self.most.get(shape, count):
            return
        suits = np.flatnonzero(self.masks[shape] & self.stays)
        capacity = capacity_of(self.request[row], self.free[:, suits])
        self.most[shape] = int(np.minimum(capacity, self.apart.limit(row, MANY)).sum())


def _trial_order(nodes: int, candidates: Sequence[Candidate], receives: Bools | None) -> list[int]:
    is_candidate = np.zeros(nodes, dtype=np.bool_)
    is_candidate[[each.node for each in candidates]] = True
    ordered: list[int] = np.flatnonzero(~is_candidate).tolist()
    ordered += [each.node for each in reversed(candidates)]
    return ordered if receives is None else [node for node in ordered if receives[node]]


def _shapes(request: Ints, fits: Bools, alone: Bools) -> tuple[list[int], Bools]:
    """(the shape of each row, masks by shape): rows that ask for the same and fit the same nodes share a shape."""
    known: dict[tuple[bytes, bytes, int], int] = {}
    first_rows: list[int] = []
    shapes = []
    for row in range(len(request)):
        look = (request[row].tobytes(), fits[row].tobytes(), row if alone[row] else -1)
        if look not in known:
            known[look] = len(known)
            first_rows.append(row)
        shapes.append(known[look])
    return shapes, fits[first_rows]


def _ranks(request: Ints, free: Ints, masks: Sequence[bytes]) -> list[int]:
    """The order in which the classes of one node are moved: the biggest share of the roomiest node first.

    Equal shares go by what is asked and where it fits, so that the order of rows does not matter.
    """
    largest = np.maximum(free.max(axis=1, initial=1), 1)
    share: list[float] = (request / largest).max(axis=1, initial=0.0).tolist()
    asks: list[list[int]] = request.tolist()
    rows = sorted(range(len(request)), key=lambda row: (-share[row], asks[row], masks[row]))
    ranks = [0] * len(rows)
    for rank, row in enumerate(rows):
        ranks[row] = rank
    return ranks
