"""Bytes of a watch to events: however they are cut, whatever stands among them."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nobiru.kernel.errors import KubeThrottled, KubeUnavailable, RevisionExpired
from nobiru.kernel.objects import ConfigMap, KubeObject
from nobiru.kube.watch import Bookmark, Delete, EventDecoder, Upsert
from tests.unit.kube.server import line, map_of


def told(decoder: EventDecoder[ConfigMap], *chunks: bytes) -> list[str]:
    """The events in short: +name@revision, -name@revision, =revision."""
    words = []
    for chunk in chunks:
        for event in decoder.feed(chunk):
            match event:
                case Upsert(item=item, revision=revision):
                    words.append(f"+{item.name}@{revision}")
                case Delete(item=item, revision=revision):
                    words.append(f"-{item.name}@{revision}")
                case Bookmark(revision=revision):
                    words.append(f"={revision}")
    return words


STREAM = b"".join(
    (
        line("ADDED", map_of("a", 1)),
        line("MODIFIED", map_of("a", 2, text="ü\\n")),
        b"\n",
        line("BOOKMARK", {"kind": "ConfigMap", "metadata": {"resourceVersion": "5"}}),
        line("DELETED", map_of("a", 6)),
    )
)
WANT = ["+a@1", "+a@2", "=5", "-a@6"]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_chunks_may_be_cut_anywhere(cuts: list[int]) -> None:
    """The events do not depend on where the network cut the bytes."""
    edges = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[start:end] for start, end in pairwise(edges)]
    assert told(EventDecoder(ConfigMap), *chunks) == WANT


GARBAGE = [
    ("no JSON", b"<html>\n"),
    ("cut JSON", b'{"type":"ADDED","obj\n'),
    ("no object", b'{"type":"ADDED"}\n'),
    ("unknown event", line("MOVED", map_of("b", 3))),
    ("wrong type of a field", line("ADDED", {"metadata": {"name": 5}})),
    ("no UTF-8", b'{"type":"ADDED","object":{"metadata":{"name":"\xff"}}}\n'),
]


@pytest.mark.parametrize(("name", "garbage"), GARBAGE, ids=[name for name, _ in GARBAGE])
def test_one_line_that_cannot_be_read_costs_only_itself(name: str, garbage: bytes) -> None:
    """It is counted; the events around it arrive."""
    decoder = EventDecoder(ConfigMap)
    assert told(decoder, STREAM[: STREAM.index(b"\n") + 1] + garbage + line("DELETED", map_of("a", 6))) == [
        "+a@1",
        "-a@6",
    ]
    assert decoder.skipped == 1


ERRORS = [(410, RevisionExpired), (429, KubeThrottled), (500, KubeUnavailable), (504, KubeUnavailable)]


@pytest.mark.parametrize(("code", "kind"), ERRORS)
def test_an_error_in_the_stream_has_its_kind(code: int, kind: type[Exception]) -> None:
    """410 means list again; others mean try again; the server's words are kept."""
    error = {"kind": "Status", "metadata": {}, "status": "Failure", "message": "words of the server", "code": code}
    with pytest.raises(kind, match="words of the server"):
        EventDecoder(ConfigMap).feed(line("ERROR", error))


def test_an_object_of_a_megabyte_and_a_half_in_small_chunks() -> None:
    """etcd's largest object arrives whole."""
    large = line("ADDED", map_of("large", 7, text="x" * 1_500_000))
    chunks = [large[start : start + 16_384] for start in range(0, len(large), 16_384)]
    assert told(EventDecoder(ConfigMap), *chunks) == ["+large@7"]


def test_a_line_without_end_is_given_up() -> None:
    """Memory is bounded, whatever the other side sends."""
    decoder = EventDecoder(KubeObject)
    for _ in range(32):
        decoder.feed(b"x" * 2**20)
    with pytest.raises(KubeUnavailable, match="without end"):
        decoder.feed(b"x")


def test_unknown_fields_cost_nothing() -> None:
    """Newer servers send more than we read."""
    assert told(EventDecoder(ConfigMap), line("ADDED", json.loads('{"new": {"a": [1]}}') | map_of("a", 1))) == ["+a@1"]
