"""Whether the loop lives: /health-check as Cluster Autoscaler answers it.

Pure.  Monitoring begins when this replica leads: a standby is healthy.
Source: cluster-autoscaler 1.36 metrics/liveness.go; spec 3.9.
"""

from msgspec import Struct

from nobiru.kernel.duration import format_duration


class Limits(Struct, frozen=True, kw_only=True):
    """How old activity and success may be."""

    inactivity_ms: int
    failing_ms: int
    startup_ms: int


class Pulse(Struct, frozen=True, kw_only=True):
    """When the loop last began and last succeeded, and since when it is watched; monotonic milliseconds."""

    since_ms: int | None = None  # None: not leading
    activity_ms: int | None = None
    success_ms: int | None = None


def check(pulse: Pulse, limits: Limits, now_ms: int) -> tuple[int, str]:
    """(HTTP status, text): 200 OK, or 500 with the two ages."""
    if pulse.since_ms is None:
        return 200, "OK"
    inactivity_ms, failing_ms = limits.inactivity_ms, limits.failing_ms
    if pulse.success_ms is None:
        inactivity_ms = failing_ms = max(limits.startup_ms, inactivity_ms, failing_ms)
    activity_age_ms = now_ms - (pulse.activity_ms if pulse.activity_ms is not None else pulse.since_ms)
    success_age_ms = now_ms - (pulse.success_ms if pulse.success_ms is not None else pulse.since_ms)
    if activity_age_ms <= inactivity_ms and success_age_ms <= failing_ms:
        return 200, "OK"
    ages = format_duration(activity_age_ms), format_duration(success_age_ms)
    return 500, f"Error: last activity more {ages[0]} ago, last success more than {ages[1]} ago"
