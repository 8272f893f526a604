"""Memory across restarts and clock steps."""

import msgspec
from msgspec.structs import replace

from nobiru.nodes.model import Backoff, EvictionTry, Learned, Memory, Raise, RemovalNote
from nobiru.nodes.plan.clock_step import stepped
from nobiru.nodes.plan.health import assess
from nobiru.nodes.plan.persist import dump, load
from tests.unit.nodes.builders_down import NOW_MS, flags
from tests.unit.nodes.builders_up import group, world

HOUR_MS = 3_600_000


def full(at_ms: int) -> Memory:
    """A Memory with one of everything, every moment of it at `at_ms`."""
    return Memory(
        started_ms=at_ms,
        loop=7,
        backoff={"g": Backoff(until_ms=at_ms + 5, duration_ms=5, failed_ms=at_ms, code="timeout", message="m")},
        raises={"g": Raise(at_ms=at_ms, start=1, target=2)},
        learned={"g": Learned(identity="i", allocatable={"cpu": 1}, capacity={}, labels={}, taints=(), since_ms=at_ms)},
        missing_since_ms={"g": at_ms},
        unregistered_since_ms={"i-1": at_ms},
        unneeded_since_ms={"n": at_ms},
        needed_ms={"n": at_ms},
        removing={"n": RemovalNote(begun_ms=at_ms, kind="empty", draining_ms=at_ms)},
        failed_removal_ms={"n": at_ms},
        evictions={"u": EvictionTry(first_ms=at_ms, last_ms=at_ms, count=3, message="")},
        terminated_ms=(at_ms, at_ms),
        terminating={"i-2": at_ms},
        last_scale_up_ms=at_ms,
        last_removal_ms=at_ms,
        last_removal_failure_ms=at_ms,
        group_scale_up_ms={"g": at_ms},
        group_removal_ms={"g": at_ms},
        group_removal_failure_ms={"g": at_ms},
        refused={"patch nodes": at_ms},
        said=frozenset({"x"}),
    )


def test_everything_is_tried() -> None:
    """A field that is added to the Memory is added here too."""
    given, empty = msgspec.to_builtins(full(NOW_MS)), msgspec.to_builtins(Memory())

    assert [name for name, value in given.items() if value == empty[name]] == []


def test_every_moment_moves_with_the_wall_clock() -> None:
    """Counts and durations stay, and so do moments that have not come."""
    assert stepped(full(NOW_MS), HOUR_MS) == full(NOW_MS + HOUR_MS)
    assert stepped(full(NOW_MS), -HOUR_MS) == full(NOW_MS - HOUR_MS)
    assert stepped(Memory(), HOUR_MS) == Memory()


def test_a_step_makes_no_booting_machine_overdue() -> None:
    """The clock is set an hour ahead while a machine boots: it is not taken for one that never joined."""
    booting = world([group("a", 1, booting=["x"])], [])
    before = assess(booting, Memory(), flags()).memory
    later = replace(booting, now_ms=NOW_MS + HOUR_MS)

    assert assess(later, before, flags()).actions != ()
    assert assess(later, stepped(before, HOUR_MS), flags()).actions == ()


def test_moments_to_come_end_by_our_clock() -> None:
    """An earlier leader's clock ran a day ahead: what it kept says "now", and a rest is no longer than it was to be."""
    kept = load(dump(full(NOW_MS + 24 * HOUR_MS)), started_ms=NOW_MS)

    assert kept == load(dump(full(NOW_MS)), started_ms=NOW_MS)
    assert kept.backoff["g"].until_ms == NOW_MS + 5
