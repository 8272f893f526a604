"""The journal is a bounded ring of entries that never change."""

import json
from enum import Enum
from typing import Any

from msgspec import Struct

from nobiru.sinks.journal import ENTRIES_MAX, Journal


class Colour(Enum):
    RED = "red"


class Inner(Struct, frozen=True):
    names: frozenset[str]
    colour: Colour


def plans(journal: Journal, last: int | None = None) -> list[dict[str, Any]]:
    """What is rendered, read again."""
    found: list[dict[str, Any]] = json.loads(journal.render(last))["plans"]
    return found


def test_an_empty_journal() -> None:
    """No plans are an empty list."""
    assert plans(Journal()) == []


def test_entries_keep_their_order_and_the_oldest_goes() -> None:
    """64 are kept, oldest first."""
    journal = Journal()
    for number in range(ENTRIES_MAX + 3):
        journal.write({"id": str(number)})
    assert [entry["id"] for entry in plans(journal)] == [str(number) for number in range(3, ENTRIES_MAX + 3)]
    assert len(journal) == ENTRIES_MAX


def test_the_newest_alone() -> None:
    """`last` keeps so many of the newest; more than there are is all."""
    journal = Journal()
    for number in range(5):
        journal.write({"id": number})
    assert [entry["id"] for entry in plans(journal, 2)] == [3, 4]
    assert [entry["id"] for entry in plans(journal, 0)] == []
    assert len(plans(journal, 99)) == 5


def test_values_are_plain_json_in_a_fixed_order() -> None:
    """Structs, sets and enums come out as JSON; equal entries give equal bytes."""
    journal, other = Journal(), Journal()
    journal.write({"b": 1, "a": Inner(names=frozenset({"y", "x"}), colour=Colour.RED)})
    other.write({"a": Inner(names=frozenset({"x", "y"}), colour=Colour.RED), "b": 1})
    assert plans(journal) == [{"a": {"names": ["x", "y"], "colour": "red"}, "b": 1}]
    assert journal.render() == other.render()


def test_bytes_are_bounded() -> None:
    """Large entries push older ones out; what is too large alone leaves its id and size."""
    journal = Journal(bytes_max=1_000)
    for number in range(5):
        journal.write({"id": number, "text": "x" * 400})
    assert [entry["id"] for entry in plans(journal)] == [3, 4]
    journal.write({"id": 9, "text": "x" * 2_000})
    assert plans(journal)[-1]["id"] == 9
    assert plans(journal)[-1]["omitted"].endswith(" bytes")


def test_large_entries_are_packed_and_come_out_whole() -> None:
    """Packing is invisible."""
    journal = Journal()
    text = "node-" * 50_000
    journal.write({"id": 1, "text": text})
    assert plans(journal) == [{"id": 1, "text": text}]


def test_an_entry_does_not_change_with_what_it_was_made_from() -> None:
    """Later changes of the caller's own dict are not seen."""
    journal = Journal()
    entry: dict[str, object] = {"id": 1}
    journal.write(entry)
    entry["id"] = 2
    assert plans(journal) == [{"id": 1}]
