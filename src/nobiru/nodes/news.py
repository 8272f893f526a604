"""What happened since the loop last looked: told by cache listeners, awaited by the loop, batched.

Invariant: telling never waits; news told during a loop starts the next one.
"""

import asyncio

from nobiru.kernel.clock import Clock


class News:
    """What happened since the loop last looked: set by cache listeners, awaited by the loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._event = asyncio.Event()
        self._first_ms = 0
        self._last_ms = 0

    def tell(self) -> None:
        """Something happened that may call for a loop."""
        now_ms = self._clock.monotonic_ms()
        if not self._event.is_set():
            self._first_ms = now_ms
            self._event.set()
        self._last_ms = now_ms

    def clear(self) -> None:
        self._event.clear()

    async def batch(self, *, timeout_ms: int, idle_ms: int, max_ms: int) -> bool:
        """Wait for news and then until it pauses; False where none came within `timeout_ms`."""
        try:
            async with asyncio.timeout(max(0, timeout_ms) / 1000):
                await self._event.wait()
        except TimeoutError:
            return False
        while True:
            now_ms = self._clock.monotonic_ms()
            due_ms = min(self._last_ms + idle_ms, self._first_ms + max_ms)
            if now_ms >= due_ms:
                return True
            await asyncio.sleep((due_ms - now_ms) / 1000)
