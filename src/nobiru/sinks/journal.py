"""The last plans with what they saw and what came of them, as JSON: what explaining and replaying read.

It refuses to know: what a plan is.  Invariant: bounded in number and bytes; an entry never changes once it is written.
"""

import zlib
from collections import deque
from collections.abc import Mapping

import msgspec
from msgspec import Struct

ENTRIES_MAX = 64  # DESIGN section 3
# All entries together, before packing: plans of very large clusters push older ones out earlier, and one answer stays small.
BYTES_MAX = 32 * 2**20
# Larger entries are packed: 0.5 MB of a plan for 5,000 nodes become 30 KB in 3 ms (zlib level 1, measured 2026-12).
PACK_BYTES_MIN = 32 * 2**10


class Entry(Struct, frozen=True):
    """One written plan: its JSON, packed or not, and how long it is when unpacked."""

    stored: bytes
    packed: bool
    length: int

    def text(self) -> bytes:
        return zlib.decompress(self.stored) if self.packed else self.stored


class Journal:
    """A ring of entries, oldest first."""

    def __init__(self, *, entries_max: int = ENTRIES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self._entries_max, self._bytes_max = entries_max, bytes_max

    def write(self, entry: Mapping[str, object]) -> None:
        """Keep an entry; the oldest go when there are too many, and one that is too large alone leaves only its id."""
        text = msgspec.json.encode(entry, order="sorted", enc_hook=str)
        if len(text) > self._bytes_max:
            text = msgspec.json.encode({"id": entry.get("id"), "omitted": f"{len(text)} bytes"}, order="sorted")
        packed = len(text) >= PACK_BYTES_MIN
        self._entries.append(Entry(zlib.compress(text, 1) if packed else text, packed, len(text)))
        self._bytes += len(text)
        while len(self._entries) > self._entries_max or self._bytes > self._bytes_max:
            self._bytes -= self._entries.popleft().length

    def render(self, last: int | None = None) -> bytes:
        """{"plans": [...]} with the oldest first; `last` keeps only that many of the newest."""
        skip = 0 if last is None else max(0, len(self._entries) - last)
        texts = (entry.text() for place, entry in enumerate(self._entries) if place >= skip)
        return b'{"plans":[' + b",".join(texts) + b"]}\n"

    def __len__(self) -> int:
        return len(self._entries)
