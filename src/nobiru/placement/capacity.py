"""How many pods of a class have room on a node: by amounts, and by who may share it.

It refuses to know: names, rules, order.  Invariant: a resource that a pod does not ask for never limits it, however
overdrawn the node is (kubernetes 1.36 noderesources/fit.go).
"""

import numpy as np

from nobiru.placement.columns import Bools, Ints

MANY = 2**31  # more pods than any node holds


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
