"""Go durations ("1h30m", "10m0s") to whole milliseconds and back, as Go's time.ParseDuration reads them.

Invariant: what Go accepts is accepted with the same value, rounded towards zero to a millisecond; what Go refuses is refused.
"""

import re
from decimal import Decimal

from nobiru.kernel.errors import DurationError

# time.ParseDuration's units; µ has two code points (U+00B5, U+03BC).
_UNIT_MS = {
    "ns": Decimal("1e-6"),
    "us": Decimal("1e-3"),
    "\u00b5s": Decimal("1e-3"),
    "\u03bcs": Decimal("1e-3"),
    "ms": Decimal(1),
    "s": Decimal(1_000),
    "m": Decimal(60_000),
    "h": Decimal(3_600_000),
}
_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_NANOSECONDS_MAX = 2**63 - 1  # Go keeps a duration as int64 nanoseconds
_LENGTH_MAX = 128


def parse_duration(text: str) -> int:
    """The milliseconds that a Go duration means.

    Units:   "1h", "10m0s", "-1.5h", "300ms", "0"; a bare number other than 0 is refused, as in Go.
    Raises:  DurationError.
    """
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return 0
    total_ms = Decimal(0)
    position = 0
    while position < len(body) <= _LENGTH_MAX:
        part = _PART.match(body, position)
        if part is None:
            break
        total_ms += Decimal(part[1]) * _UNIT_MS[part[2]]
        position = part.end()
    if not body or position != len(body) or total_ms * 1_000_000 > _NANOSECONDS_MAX:
        hint = "; a number needs a unit, such as 10s" if body.isdigit() else ""
        raise DurationError(f'invalid duration "{text[:_LENGTH_MAX]}": want a Go duration such as 10m or 1h30m{hint}')
    return int(-total_ms if text.startswith("-") else total_ms)


def format_duration(duration_ms: int) -> str:
    """The text Go prints for a duration: "10m0s", "1.5s", "250ms", "0s"."""
    if duration_ms == 0:
        return "0s"
    sign, rest_ms = ("-", -duration_ms) if duration_ms < 0 else ("", duration_ms)
    if rest_ms < 1_000:
        return f"{sign}{rest_ms}ms"
    hours, rest_ms = divmod(rest_ms, 3_600_000)
    minutes, rest_ms = divmod(rest_ms, 60_000)
    seconds = f"{rest_ms // 1000}.{rest_ms % 1000:03d}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"
