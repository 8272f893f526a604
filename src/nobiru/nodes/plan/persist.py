"""What of the Memory survives a restart, as the text under key `nobiru` of the status ConfigMap.

Kept: back-offs, requests on their way, what nodes taught about their group, machines without a node, the brake's window.
Invariant: bounded; a text that cannot be read is as good as none, for the next leader must be able to go on.
Timers of single nodes live on the nodes themselves (`marks`).
"""

import msgspec
from msgspec.structs import replace

from nobiru.nodes.model import Backoff, Learned, Memory, Raise, Value

KEY = "nobiru"
# A ConfigMap holds 1 MiB; half of it is left to the status text.
BYTES_MAX = 400_000


class Kept(Value, frozen=True, kw_only=True):
    """The surviving part of a Memory."""

    version: int = 1
    backoff: dict[str, Backoff] = {}
    raises: dict[str, Raise] = {}
    learned: dict[str, Learned] = {}
    missing_since_ms: dict[str, int] = {}
    unregistered_since_ms: dict[str, int] = {}
    terminated_ms: tuple[int, ...] = ()
    terminating: dict[str, int] = {}
    last_scale_up_ms: int = 0
    last_removal_ms: int = 0
    last_removal_failure_ms: int = 0
    group_scale_up_ms: dict[str, int] = {}
    group_removal_ms: dict[str, int] = {}
    group_removal_failure_ms: dict[str, int] = {}


_DECODER = msgspec.json.Decoder(Kept)
_NAMES = tuple(name for name in Kept.__struct_fields__ if name != "version")


def dump(memory: Memory) -> str:
    """The text to keep; what nodes taught is left out first where it grows too large.

    Order: keys sorted, so that equal memories give equal texts.
    """
    kept = Kept(**{name: getattr(memory, name) for name in _NAMES})
    text = msgspec.json.encode(kept, order="deterministic")
    if len(text) > BYTES_MAX:
        text = msgspec.json.encode(replace(kept, learned={}), order="deterministic")
    if len(text) > BYTES_MAX:
        text = msgspec.json.encode(
            Kept(backoff=kept.backoff, raises=kept.raises, terminated_ms=kept.terminated_ms), order="deterministic"
        )
    return text.decode()


def load(text: str | None, *, started_ms: int) -> Memory:
    """The Memory to begin with: what was kept, or nothing."""
    memory = Memory(started_ms=started_ms)
    if not text:
        return memory
    try:
        kept = _DECODER.decode(text)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return memory
    return not_ahead(replace(memory, **{name: getattr(kept, name) for name in _NAMES}), started_ms)


def not_ahead(memory: Memory, now_ms: int) -> Memory:
    """The Memory without moments to come: another machine's clock wrote them, and a wait must end by ours.

    A back-off lasts as long as it was to last, from its failure on.
    """

    def clipped(moments: dict[str, int]) -> dict[str, int]:
        return {name: min(at_ms, now_ms) for name, at_ms in moments.items()}

    rests = {
        name: replace(each, failed_ms=failed_ms, until_ms=min(each.until_ms, failed_ms + each.duration_ms))
        for name, each in memory.backoff.items()
        for failed_ms in (min(each.failed_ms, now_ms),)
    }
    return replace(
        memory,
        backoff=rests,
        raises={name: replace(each, at_ms=min(each.at_ms, now_ms)) for name, each in memory.raises.items()},
        learned={name: replace(each, since_ms=min(each.since_ms, now_ms)) for name, each in memory.learned.items()},
        missing_since_ms=clipped(memory.missing_since_ms),
        unregistered_since_ms=clipped(memory.unregistered_since_ms),
        terminated_ms=tuple(min(at_ms, now_ms) for at_ms in memory.terminated_ms),
        terminating=clipped(memory.terminating),
        last_scale_up_ms=min(memory.last_scale_up_ms, now_ms),
        last_removal_ms=min(memory.last_removal_ms, now_ms),
        last_removal_failure_ms=min(memory.last_removal_failure_ms, now_ms),
        group_scale_up_ms=clipped(memory.group_scale_up_ms),
        group_removal_ms=clipped(memory.group_removal_ms),
        group_removal_failure_ms=clipped(memory.group_removal_failure_ms),
    )
