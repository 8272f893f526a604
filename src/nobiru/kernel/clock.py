"""Time as a port: who needs the time is given a Clock, and the core is given `now_ms`."""

from typing import Protocol


class Clock(Protocol):
    """A source of time; the wall clock in production, a jumping one in simulation."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01T00:00:00Z: comparable with the API server's timestamps."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment; never steps back: for ages and deadlines."""
        ...
