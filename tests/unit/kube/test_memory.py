"""Decoded objects are no work for the garbage collector, and may not be."""

import gc
import typing
from collections.abc import Iterator
from datetime import datetime
from types import UnionType

import msgspec
import pytest

from nobiru.kernel.objects import Lease, Node, Pod, PodDisruptionBudget, Wire, Workload
from nobiru.kube.watch import EventDecoder, Upsert
from tests.unit.kube.server import line, map_of

PLAIN = {str, int, bool, float, type(None), datetime}


def subclasses(of: type[Wire]) -> Iterator[type[Wire]]:
    for each in of.__subclasses__():
        yield each
        yield from subclasses(each)


def parts(type_: object) -> Iterator[object]:
    """The types that a field's type is made of, without its containers."""
    inner = [each for each in typing.get_args(type_) if each is not Ellipsis]
    if isinstance(type_, UnionType) or inner:
        for each in inner:
            yield from parts(each)
    else:
        yield type_


def test_no_wire_object_can_lead_back_to_itself() -> None:
    """Without the collector a cycle would never be freed: fields of the kernel's objects are plain values, or objects of plain values."""
    kernel = [each for each in subclasses(Wire) if each.__module__ == Wire.__module__]
    assert len(kernel) > 40
    for owner in kernel:
        for field in msgspec.structs.fields(owner):
            for part in parts(field.type):
                assert part in PLAIN or part in kernel, f"{owner.__name__}.{field.name}"


@pytest.mark.parametrize("type_", [Pod, Node, PodDisruptionBudget, Workload, Lease])
def test_the_collector_does_not_look_at_them(type_: type[Pod]) -> None:
    """Hundreds of thousands of tracked objects made a burst of events cost twice as much (measured 2026-12)."""
    (event,) = EventDecoder(type_).feed(line("ADDED", map_of("a", 1)))
    assert isinstance(event, Upsert)
    assert not gc.is_tracked(event.item)
    assert not gc.is_tracked(event.item.metadata)
