"""/health-check answers as Cluster Autoscaler's, from ages alone."""

import pytest

from nobiru.sinks.health import Limits, Pulse, check

LIMITS = Limits(inactivity_ms=600_000, failing_ms=900_000, startup_ms=1_200_000)
SHORT = Limits(inactivity_ms=600_000, failing_ms=900_000, startup_ms=1_000)
S, M = 1_000, 60_000

CASES = [
    #  name                                       pulse                                                    limits  now        want
    ("a standby is healthy",                      Pulse(),                                                 LIMITS, 10**9,     200),
    ("just started",                              Pulse(since_ms=0),                                       LIMITS, 1 * S,     200),
    ("starting, at the limit",                    Pulse(since_ms=0),                                       LIMITS, 20 * M,    200),
    ("starting, beyond the limit",                Pulse(since_ms=0),                                       LIMITS, 20 * M + 1, 500),
    ("starting, active but never successful",     Pulse(since_ms=0, activity_ms=20 * M),                   LIMITS, 20 * M + 1, 500),
    ("a short start-up limit is raised",          Pulse(since_ms=0),                                       SHORT,  15 * M,    200),
    ("raised to the longest, not beyond",         Pulse(since_ms=0),                                       SHORT,  15 * M + 1, 500),
    ("active and successful",                     Pulse(since_ms=0, activity_ms=M, success_ms=M),          LIMITS, 2 * M,     200),
    ("activity at its limit",                     Pulse(since_ms=0, activity_ms=M, success_ms=M),          LIMITS, 11 * M,    200),
    ("no activity",                               Pulse(since_ms=0, activity_ms=M, success_ms=M),          LIMITS, 11 * M + 1, 500),
    ("active, failing at its limit",              Pulse(since_ms=0, activity_ms=16 * M, success_ms=M),     LIMITS, 16 * M,    200),
    ("active, failing",                           Pulse(since_ms=0, activity_ms=16 * M, success_ms=M),     LIMITS, 16 * M + 1, 500),
]  # fmt: skip


@pytest.mark.parametrize(("pulse", "limits", "now_ms", "want"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])  # fmt: skip
def test_status(pulse: Pulse, limits: Limits, now_ms: int, want: int) -> None:
    """Watching begins with leading; until the first success the longest of the three limits counts."""
    assert check(pulse, limits, now_ms)[0] == want


def test_texts() -> None:
    """OK, or the two ages in Go's durations."""
    assert check(Pulse(), LIMITS, 0) == (200, "OK")
    pulse = Pulse(since_ms=0, activity_ms=M, success_ms=2 * M)
    text = "Error: last activity more 11m0.5s ago, last success more than 10m0.5s ago"
    assert check(pulse, LIMITS, 12 * M + 500) == (500, text)
