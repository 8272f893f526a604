"""Memory across a step of the wall clock: its moments are told in the new time, so that nothing seems to have waited for hours.

A step (a wrong clock was set, a machine slept) shows as the wall clock moving otherwise than the monotonic one.
Invariant: pure; a moment of 0 has not come yet and stays; durations stay.
"""

from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from nobiru.nodes.model import Memory

# Slewing and the two readings themselves differ by far less.
STEP_MS_MIN = 2_000
_DURATIONS = frozenset({"duration_ms"})
_MOMENTS = frozenset({"terminating", "refused"})  # keyed moments whose names do not say so


def stepped(memory: Memory, by_ms: int) -> Memory:
    """The Memory with every moment moved by as much as the wall clock was."""
    return cast(Memory, _moved(memory, by_ms))


def _moved(value: Struct, by_ms: int) -> Struct:
    names = value.__struct_fields__
    return replace(value, **{name: _moved_field(name, getattr(value, name), by_ms) for name in names})


def _moved_field(name: str, value: Any, by_ms: int) -> Any:
    if isinstance(value, Struct):
        return _moved(value, by_ms)
    if isinstance(value, dict) and value and isinstance(next(iter(value.values())), Struct):
        return {key: _moved(each, by_ms) for key, each in value.items()}
    if name in _DURATIONS or not (name.endswith("_ms") or name in _MOMENTS):
        return value
    if isinstance(value, dict):
        return {key: _moment(each, by_ms) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple(_moment(each, by_ms) for each in value)
    return _moment(value, by_ms)


def _moment(at_ms: int, by_ms: int) -> int:
    return at_ms + by_ms if at_ms else 0
