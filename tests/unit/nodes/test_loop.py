"""The loop: what happens when a part of it fails, when time steps, when a moment is past."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from nobiru.nodes import loop
from nobiru.nodes.act import Ports
from nobiru.nodes.model import Memory, Outcome, Plan, Snapshot
from nobiru.nodes.news import News
from tests.unit.nodes.builders_down import NOW_MS, flags, node
from tests.unit.nodes.builders_up import group, pending, world
from tests.unit.nodes.test_act import World


class Hands:
    """Clocks that a test sets, and a cloud whose describing the test does by hand."""

    def __init__(self) -> None:
        self.wall_ms, self.mono_ms = NOW_MS, 0
        self.failures: list[str] = []
        self.reported: list[Memory] = []
        self.broken = False

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_ms(self) -> int:
        return self.mono_ms

    def started(self) -> None: ...

    def failed(self, error: Exception, duration_ms: int) -> None:
        self.failures.append(str(error))

    async def report(self, snap: Snapshot, plan: Plan, outcomes: tuple[Outcome, ...], memory: Memory) -> None:
        if self.broken:
            raise RuntimeError("no place to report to")
        self.reported.append(memory)


def room(hands: Hands, observe: Any, config: Any = None) -> loop.Room:
    cloud = World({"n": node("n")})
    ports = Ports(groups=cloud, nodes=cloud, leadership=cloud, clock=hands, identity="me")
    return loop.Room(observe=observe, ports=ports, sinks=hands, clock=hands, config=config or flags(), news=News(hands))


async def grows(memory: Memory) -> Snapshot:
    return world([group("a", 1, booting=["x"])], [pending("p", cpu="1"), pending("q", cpu="1")])


def test_what_was_done_is_known_though_nobody_could_be_told() -> None:
    """A report that fails is counted; the raise before it is still on its way in the next loop."""
    hands = Hands()
    hands.broken = True
    memory, _ = asyncio.run(loop.run_once(room(hands, grows), Memory(), loop.Steps(hands)))

    assert memory.raises["a"].target == 2
    assert hands.failures == ["no place to report to"]


@pytest.mark.parametrize(("ahead_ms", "want"), [(-1, None), (0, None), (5, NOW_MS + 5)])
def test_a_moment_that_is_past_wakes_nobody(ahead_ms: int, want: int | None) -> None:
    """It would make the loop spin; --scan-interval comes anyway."""
    plan = Plan(id="p", now_ms=NOW_MS, wake_at_ms=NOW_MS + ahead_ms)

    assert loop.next_wake_ms(plan, (), NOW_MS) == want


@pytest.mark.parametrize("by_ms", [3_600_000, -3_600_000])
def test_the_memory_follows_a_step_of_the_wall_clock(monkeypatch: pytest.MonkeyPatch, by_ms: int) -> None:
    """An hour off during a loop: what was known before moves along, what this loop did is of the new time already."""
    monkeypatch.setattr(loop, "LOOP_PAUSE_MS_MIN", 0)
    hands = Hands()
    seen: list[Memory] = []
    before = Memory(unregistered_since_ms={"i-x": NOW_MS - 60_000})

    async def observe(memory: Memory) -> Snapshot:
        seen.append(memory)
        if len(seen) > 1:
            raise asyncio.CancelledError
        now_ms = hands.wall_ms
        hands.wall_ms += by_ms
        return replace(await grows(memory), now_ms=now_ms + by_ms)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(loop.run(room(hands, observe, flags(scan_interval="1ms")), before))

    assert hands.failures == []
    assert seen[1].unregistered_since_ms == {"i-x": NOW_MS - 60_000 + by_ms}
    assert seen[1].raises["a"].at_ms == NOW_MS + by_ms
