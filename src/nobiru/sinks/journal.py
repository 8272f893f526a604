"""The last plans with what they saw and what came of them, as JSON: what explaining and replaying read.

Invariant: bounded; an entry never changes once it is written.
"""

from collections import deque
from typing import Any

import msgspec

ENTRIES_MAX = 64
BYTES_MAX = 64 * 2**20  # all entries together: plans of very large clusters push older ones out earlier


class Journal:
    """A ring of entries, oldest first."""

    def __init__(self) -> None:
        self._entries: deque[bytes] = deque()
        self._bytes = 0

    def write(self, entry: dict[str, Any]) -> None:
        """Keep an entry; the oldest go when there are too many."""
        text = msgspec.json.encode(entry, order="sorted", enc_hook=_plain)
        self._entries.append(text)
        self._bytes += len(text)
        while len(self._entries) > ENTRIES_MAX or (self._bytes > BYTES_MAX and len(self._entries) > 1):
            self._bytes -= len(self._entries.popleft())

    def render(self) -> bytes:
        """{"plans": [...]} with the oldest first."""
        return b'{"plans":[' + b",".join(self._entries) + b"]}\n"

    def __len__(self) -> int:
        return len(self._entries)


def _plain(value: Any) -> Any:
    """JSON for what msgspec does not know: an enum is its name."""
    name = getattr(value, "name", None)
    return name if isinstance(name, str) else str(value)
