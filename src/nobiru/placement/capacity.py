"""How many pods of a class have room on a node: by amounts, and by who may share it.

It refuses to know: names, rules, order.  Invariant: a resource that a pod does not ask for never limits it, however
overdrawn the node is (kubernetes 1.36 noderesources/fit.go).
"""

import numpy as np

from nobiru.placement.columns import Bools, Ints, read_only

MANY = 2**31  # more pods than any node holds
NONE = read_only(np.zeros(0, dtype=np.int64))
_FIRST_LOOK = 64  # nodes looked at before more are: most classes are settled by the first few with room


class Apart:
    """Which classes may not share a node, and how many of one class may."""

    def __init__(self, conflicts: Bools | None, per_node_max: Ints | None, classes: int) -> None:
        self.conflicts = conflicts
        self.per_node_max = np.zeros(classes, dtype=np.int64) if per_node_max is None else per_node_max

    def limit(self, row: int, wanted: int) -> int:
        """The most pods of a class that one node may take in this call."""
        own = int(self.per_node_max[row])
        if self.conflicts is not None and self.conflicts[row, row]:
            own = 1
        return min(own or wanted, wanted, MANY)

    def rivals(self, row: int) -> list[int]:
        """The classes that may not join one of class `row`."""
        return [] if self.conflicts is None else np.flatnonzero(self.conflicts[row]).tolist()

    def alone(self) -> Bools:
        """Classes that must be handled by themselves."""
        return self.per_node_max > 0 if self.conflicts is None else (self.per_node_max > 0) | self.conflicts.any(axis=1)


def capacity_of(request: Ints, free: Ints) -> Ints:
    """How many pods with that request (R,) each column of free (R, M) has room for."""
    capacity = np.full(free.shape[1], MANY, dtype=np.int64)
    for resource in np.flatnonzero(request > 0).tolist():
        np.minimum(capacity, free[resource] // request[resource], out=capacity)
    return np.maximum(capacity, 0, out=capacity)


def with_room(request: Ints, free: Ints, suits: Bools | None = None) -> Ints:
    """The columns of free (R, M), of those that suit, with room for at least one pod; comparing is cheaper than dividing."""
    roomy = np.ones(free.shape[1], dtype=np.bool_) if suits is None else suits.copy()
    for resource in np.flatnonzero(request > 0).tolist():
        roomy &= free[resource] >= request[resource]
    return roomy.nonzero()[0]


def first_fit(
    request: Ints, free: Ints, roomy: Ints, wanted: int, limit: int, copies: Ints | None = None
) -> tuple[Ints, Ints, Ints]:
    """Fill the columns `roomy` of free (R, M), in that order, with `wanted` pods, at most `limit` on each.

    Shapes:  copies (M,) how many nodes a column stands for, else one each.
    Returns (columns used, pods that each takes on all its nodes, pods that one node takes at most); looks no further
    than it must.
    """
    used, taken, most = [], [], []
    start, size = 0, _FIRST_LOOK
    while wanted > 0 and start < len(roomy):
        part = roomy[start : start + size]
        each = np.minimum(capacity_of(request, free[:, part]), min(limit, wanted))
        total = each if copies is None else each * copies[part]
        ends = total.cumsum()
        enough = int(ends.searchsorted(wanted)) + 1
        if enough <= len(part):
            part, each, total = part[:enough], each[:enough], total[:enough].copy()
            total[-1] -= int(ends[enough - 1]) - wanted
        used.append(part)
        taken.append(total)
        most.append(each)
        wanted -= int(total.sum())
        start, size = start + size, size * 4
    if len(used) == 1:
        return used[0], taken[0], most[0]
    if not used:
        return NONE, NONE, NONE
    return np.concatenate(used), np.concatenate(taken), np.concatenate(most)
