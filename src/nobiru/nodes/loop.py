"""The loop: wait for news, observe, decide, act, report, remember.

It wakes on news (a new unschedulable pod, a node that came or went, a pod that left a draining node), on the plan's own
`wake_at_ms`, and on --scan-interval at the latest.  News is batched: the loop starts once nothing new came for the idle
time, at most after the maximum.  Invariant: one bad loop ends neither the process nor the Memory.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from msgspec import Struct

from nobiru.kernel.clock import Clock
from nobiru.nodes.act import Ports, act
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import Memory, Outcome, Plan, Snapshot
from nobiru.nodes.news import News
from nobiru.nodes.plan.clock_step import STEP_MS_MIN, stepped
from nobiru.nodes.plan.decide import decide
from nobiru.nodes.plan.remember import remember
from nobiru.sinks.log import Log

log = Log("loop")

LOOP_PAUSE_MS_MIN = 50  # news during a loop starts the next one, but never a spin


class Sinks(Protocol):
    """Where a loop's results go."""

    async def report(self, snap: Snapshot, plan: Plan, outcomes: tuple[Outcome, ...], memory: Memory) -> None: ...
    def failed(self, error: Exception, duration_ms: int) -> None: ...
    def started(self) -> None: ...


class Room(Struct, frozen=True, kw_only=True):
    """Everything the loop works with; only these differ between production, dry run, tests and simulation."""

    observe: Callable[[Memory], Awaitable[Snapshot]]
    ports: Ports
    sinks: Sinks
    clock: Clock
    config: NodesConfig
    news: News


class Steps:
    """Where the wall clock stood beside the monotonic one when last asked."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = clock.now_ms() - clock.monotonic_ms()

    def follow(self, memory: Memory) -> Memory:
        """The Memory in the time that the wall clock shows now; to be asked wherever fresh moments join older ones."""
        before_ms, self._offset_ms = self._offset_ms, self._clock.now_ms() - self._clock.monotonic_ms()
        by_ms = self._offset_ms - before_ms
        if abs(by_ms) < STEP_MS_MIN:
            return memory
        log.warning("the wall clock was set", by_ms=by_ms)
        return stepped(memory, by_ms)


async def run_once(room: Room, memory: Memory, steps: Steps) -> tuple[Memory, int | None]:
    """One loop; returns the Memory for the next one and when it is due by the plan's own word."""
    began_ms = room.clock.monotonic_ms()
    snap = await room.observe(memory)
    plan = decide(snap, steps.follow(memory), room.config)
    outcomes = await act(plan, room.ports)
    after = remember(steps.follow(plan.memory), outcomes, room.clock.now_ms(), room.config)
    try:
        await room.sinks.report(snap, plan, outcomes, after)
    except Exception as error:  # noqa: BLE001 - what was done is done: the next loop must know it though nobody was told
        room.sinks.failed(error, room.clock.monotonic_ms() - began_ms)
    return after, next_wake_ms(plan, outcomes, room.clock.now_ms())


def next_wake_ms(plan: Plan, outcomes: tuple[Outcome, ...], now_ms: int) -> int | None:
    """When the next loop is due: the plan's moment, or soon after an action whose retry the world asked for."""
    # A moment that is past already would make the loop spin: time alone changes nothing for it any more.
    moments = [plan.wake_at_ms] if plan.wake_at_ms is not None and plan.wake_at_ms > plan.now_ms else []
    moments += [now_ms + each.retry_after_ms for each in outcomes if each.retry_after_ms is not None]
    return min(moments, default=None)


async def run(room: Room, memory: Memory) -> None:
    """Loop until cancelled."""
    wake_at_ms: int | None = room.clock.now_ms()
    steps = Steps(room.clock)
    while True:
        now_ms = room.clock.now_ms()
        scan_ms = room.config.process.scan_interval_ms
        timeout_ms = scan_ms if wake_at_ms is None else min(scan_ms, wake_at_ms - now_ms)
        await room.news.batch(
            timeout_ms=timeout_ms, idle_ms=room.config.process.batch_idle_ms, max_ms=room.config.process.batch_max_ms
        )
        room.news.clear()
        began_ms = room.clock.monotonic_ms()
        room.sinks.started()
        try:
            memory, wake_at_ms = await run_once(room, memory, steps)
        except Exception as error:  # noqa: BLE001 - the one place: a failed loop is counted, and the next one starts fresh
            room.sinks.failed(error, room.clock.monotonic_ms() - began_ms)
            wake_at_ms = None
        await asyncio.sleep(LOOP_PAUSE_MS_MIN / 1000)
