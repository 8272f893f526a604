"""Go durations ("1h30m", "10m0s") to whole milliseconds and back, as Go's time.ParseDuration reads them.

Invariant: what Go accepts is accepted with the same value, rounded towards zero to a millisecond; what Go refuses is refused.
"""

import re

from nobiru.kernel.errors import DurationError

# time.ParseDuration's units in nanoseconds; µ has two code points (U+00B5, U+03BC).
_UNIT_NS = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_NS_PER_MS = 1_000_000
_PART = re.compile(r"(?=\.?[0-9])([0-9]*)(?:\.([0-9]*))?(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_NANOSECONDS_MAX = 2**63 - 1  # Go keeps a duration as int64 nanoseconds
_LENGTH_MAX = 128


def parse_duration(text: str) -> int:
    """The milliseconds that a Go duration means.

    Units:   "1h", "10m0s", "-1.5h", "300ms", "0"; a bare number other than 0 is refused, as in Go.
    Raises:  DurationError; also for texts of more than 128 characters.
    """
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return 0
    total_ns = 0
    position = 0
    while position < len(body) <= _LENGTH_MAX:
        part = _PART.match(body, position)
        if part is None:
            break
        total_ns += int(part[1] or 0) * _UNIT_NS[part[3]] + _fraction_ns(part[2] or "", _UNIT_NS[part[3]])
        position = part.end()
    negative = text.startswith("-")
    if not body or position != len(body) or total_ns > _NANOSECONDS_MAX + negative:
        hint = "; a number needs a unit, such as 10s" if body.isdigit() else ""
        raise DurationError(f'invalid duration "{text[:_LENGTH_MAX]}": want a Go duration such as 10m or 1h30m{hint}')
    total_ms = total_ns // _NS_PER_MS
    return -total_ms if negative else total_ms


def _fraction_ns(digits: str, unit_ns: int) -> int:
    """What the digits after the point mean: Go works this out in float64, and so "0.3333333333333333333h" is 20m."""
    value, scale = 0, 1.0
    for digit in digits:
        if value > _NANOSECONDS_MAX // 10:
            break  # digits that Go has no room for are left out
        value, scale = value * 10 + int(digit), scale * 10
    return int(float(value) * (float(unit_ns) / scale))


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
