"""Growth is at most linear in classes times nodes: asserted by the ratio of processor times, so that a slow machine changes nothing."""

from tests.bench.plans import down_ms, least_cpu_ms, up_ms

# Four times the work may take four times as long, and half as much again for caches that are too small for it.
RATIO_MAX = 6.0
FIXED_MS = 2.0  # what a plan costs before it looks at anything


def test_scale_up_grows_linearly() -> None:
    """Four times the pods, at most four times the time."""
    assert up_ms(40_000, least_cpu_ms) <= RATIO_MAX * (up_ms(10_000, least_cpu_ms) + FIXED_MS)


def test_scale_down_grows_linearly() -> None:
    """Four times the nodes, at most four times the time: looking at every pair of nodes would take sixteen times."""
    assert down_ms(1_600, least_cpu_ms) <= RATIO_MAX * (down_ms(400, least_cpu_ms) + FIXED_MS)
