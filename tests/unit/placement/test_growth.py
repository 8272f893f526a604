"""Cost grows at most linearly in classes times nodes: by ratio, so that the machine's speed does not matter."""

import time
from collections.abc import Callable

import numpy as np

from nobiru.placement.pack import Candidate, pack_new, place, plan_removals

# Half as much again as linear: caches and the noise of a shared machine, far from the 8 or 64 of a quadratic step.
SLACK = 1.5


def cost_s(work: Callable[[], object]) -> float:
    """The least processor time of a few runs."""
    times = []
    for _ in range(5):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def requests(classes: int) -> np.ndarray:
    chance = np.random.default_rng(1)
    sizes = -np.sort(-chance.integers(1, 40, (classes, 2)) * 50, axis=0)
    return np.hstack([sizes, np.ones((classes, 1), dtype=np.int64)])


def placing(classes: int, nodes: int) -> Callable[[], object]:
    chance = np.random.default_rng(2)
    free = np.stack([chance.integers(0, 16_000, nodes), chance.integers(0, 16_000, nodes), np.full(nodes, 110)])
    suits = chance.random((classes, nodes)) < 0.8
    count = np.full(classes, 40 * nodes // classes)
    request = requests(classes)
    return lambda: place(request, count, suits, free)


def packing(classes: int, nodes: int) -> Callable[[], object]:
    count = np.full(classes, 12 * nodes // classes)
    request = requests(classes)
    return lambda: pack_new(request, count, np.ones(classes, np.bool_), np.array([16_000, 16_000, 110]), 10 * nodes)


def removing(classes: int, nodes: int) -> Callable[[], object]:
    chance = np.random.default_rng(3)
    request, suits = requests(classes), np.ones((classes, nodes), dtype=np.bool_)
    rows = [tuple(chance.choice(classes, 5, replace=False).tolist()) for _ in range(nodes)]
    free = np.stack([(request[list(each)].sum(axis=0) * 1.5).astype(np.int64) for each in rows], axis=1)
    candidates = [Candidate(node=node, rows=each, counts=(1,) * 5) for node, each in enumerate(rows)]
    return lambda: plan_removals(request, suits, free, candidates)


def test_placing_grows_linearly() -> None:
    """Twice the classes on four times the nodes: at most eight times the cost."""
    assert cost_s(placing(100, 8_000)) <= 8 * SLACK * cost_s(placing(50, 2_000))


def test_packing_grows_linearly() -> None:
    """Twice the classes, four times the nodes: at most eight times the cost."""
    assert cost_s(packing(200, 4_000)) <= 8 * SLACK * cost_s(packing(100, 1_000))


def test_removals_grow_linearly() -> None:
    """Twice the classes, four times the nodes: at most eight times the cost."""
    assert cost_s(removing(100, 2_000)) <= 8 * SLACK * cost_s(removing(50, 500))
