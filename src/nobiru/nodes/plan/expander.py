"""Choosing one of the groups that could help: Cluster Autoscaler's expanders, applied as a chain.

Invariant: deterministic for equal options and seed; `random` draws from the seed that the caller passes in.
Source: cluster-autoscaler 1.36 expander/*: apply left to right, stop when one option is left, finally random.
"""

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from nobiru.kernel.cloud import GroupName

# Scores closer than this are equal: they are ratios of integers, so anything below is rounding.
SCORE_TOLERANCE = 1e-9


class Option(Struct, frozen=True, kw_only=True):
    """What growing one group would do.

    Units: requested and capacity as `kernel.quantity.resource_amount`, of all pods helped and of one new node.
    """

    group: GroupName
    nodes: int
    pods: int
    requested: dict[str, int]
    capacity: dict[str, int]


Expander = Callable[[Sequence[Option]], Sequence[Option]]


def _best(options: Sequence[Option], score: Callable[[Option], float]) -> Sequence[Option]:
    scores = [score(option) for option in options]
    lowest = min(scores)
    return [option for option, value in zip(options, scores, strict=True) if value - lowest <= SCORE_TOLERANCE]


def waste(option: Option) -> float:
    """The share of cpu plus the share of memory that would stay unused, each between 0 and 1.

    A resource of which a node has none is left out (Cluster Autoscaler divides by zero there and the group always wins).
    """
    total = 0.0
    for name in ("cpu", "memory"):
        available = option.capacity.get(name, 0) * option.nodes
        if available > 0:
            total += (available - option.requested.get(name, 0)) / available
    return total


def least_waste(options: Sequence[Option]) -> Sequence[Option]:
    return _best(options, waste)


def most_pods(options: Sequence[Option]) -> Sequence[Option]:
    return _best(options, lambda option: -option.pods)


def least_nodes(options: Sequence[Option]) -> Sequence[Option]:
    return _best(options, lambda option: option.nodes)


EXPANDERS: dict[str, Expander] = {
    "least-waste": least_waste,
    "most-pods": most_pods,
    "least-nodes": least_nodes,
}


def choose(options: Sequence[Option], chain: Sequence[str], seed: int) -> Option:
    """The option that the chain leaves; `random`, and what the chain cannot decide, is drawn from the seed.

    Order: options by group name, so that equal inputs draw equally.
    """
    assert options, "an expander chooses among at least one option"
    left: Sequence[Option] = sorted(options, key=lambda option: option.group)
    for name in chain:
        if len(left) == 1 or name == "random":
            break
        left = EXPANDERS[name](left)
    if len(left) == 1:
        return left[0]
    return left[int(np.random.default_rng(seed).integers(len(left)))]
