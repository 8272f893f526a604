"""The state machine on the real clock: one State for a region, behind a lock, that its callers change and wait for.

Its one job: read the clock, hand the time to `sim.asg`, keep what comes back.
It refuses to know: any wire.
Invariant: whoever reads or changes the state sees all that was due by then; waiters wake for each new revision.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from nobiru.sim import asg
from nobiru.sim.asg_state import Catalogue, Refused, State, Timing

T = TypeVar("T")

ACCOUNT_ID = "123456789012"  # moto's, and the one in AWS's own examples


class Region:
    """The Auto Scaling service of one region, for any number of threads."""

    def __init__(
        self,
        name: str,
        *,
        seed: str,
        timing: Timing,
        catalogue: Callable[[], Catalogue],
        subnet_zones: Callable[[Sequence[str]], list[str]],
    ) -> None:
        self.name = name
        self.subnet_zones = subnet_zones
        self._catalogue = catalogue
        self._changed = threading.Condition()
        # Wall time once, then the steady clock: the state's time never steps back.
        self._offset_ms = time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000
        self._state = State(region=name, seed=seed, timing=timing, now_ms=self.now_ms())

    def now_ms(self) -> int:
        """Milliseconds since 1970, never stepping back."""
        return time.monotonic_ns() // 1_000_000 + self._offset_ms

    def change(self, transition: Callable[[State, int], tuple[State, T]]) -> T:
        """Carry out one transition now; returns its result."""
        with self._changed:
            state, result = transition(self._present(), self.now_ms())
            self._keep(state)
            return result

    def died(self, instance_id: str) -> None:
        """The machine of that id was stopped from outside."""
        self.change(lambda state, now_ms: (asg.instance_died(state, instance_id, now_ms=now_ms), None))

    def refused(self, action: str, groups: Sequence[str], who: str, problem: Refused) -> None:
        """A fault turned a call down."""
        name = groups[0] if groups else ""
        self.change(
            lambda state, now_ms: asg.note_refusal(state, action, name, problem=problem, now_ms=now_ms, who=who)
        )

    def read(self) -> State:
        """The state as it is now."""
        with self._changed:
            return self._present()

    def wait(self, after: int, wait_ms: int) -> State:
        """The state once its revision is above `after`, or after `wait_ms`, whichever is first."""
        until_ms = self.now_ms() + wait_ms
        with self._changed:
            while True:
                state = self._present()
                now_ms = self.now_ms()
                if state.revision > after or now_ms >= until_ms:
                    return state
                due_ms = asg.next_ms(state)
                wake_ms = until_ms if due_ms is None else min(due_ms, until_ms)
                self._changed.wait(max(1, wake_ms - now_ms) / 1000)

    def _present(self) -> State:
        state = asg.set_catalogue(self._state, self._catalogue())
        self._keep(asg.advance(state, self.now_ms()))
        return self._state

    def _keep(self, state: State) -> None:
        fresh = state.revision != self._state.revision or asg.next_ms(state) != asg.next_ms(self._state)
        self._state = state
        if fresh:
            self._changed.notify_all()
