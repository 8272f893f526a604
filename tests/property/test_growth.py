"""Growth is at most linear in classes times nodes: asserted by ratio, so that a slow machine changes nothing."""

from tests.bench.plans import down_ms, up_ms

# Four times the work may take four times as long, and half as much again for what a shared machine does meanwhile.
RATIO_MAX = 6.0
FIXED_MS = 5.0  # what a plan costs before it looks at anything


def test_scale_up_grows_linearly() -> None:
    """Four times the pods, at most four times the time."""
    assert up_ms(40_000) <= RATIO_MAX * (up_ms(10_000) + FIXED_MS)


def test_scale_down_grows_linearly() -> None:
    """Four times the nodes, at most four times the time (two for the mask, two for the moves would be sixteen)."""
    assert down_ms(1_200) <= RATIO_MAX * (down_ms(300) + FIXED_MS)
