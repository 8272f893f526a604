"""Events against a real socket: what is sent, what is counted, what is left out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from nobiru.kube.events import BURST, MESSAGE_BYTES_MAX, NAME_MAX, QUEUE_MAX, Recorder, Subject, shortened
from tests.unit.kube.server import serving, status
from tests.unit.kube.test_lease import ManualClock

NODE = Subject(kind="Node", name="n")
POD = Subject(kind="Pod", name="p", namespace="ns", uid="u")


class Seen:
    """A server that keeps events, or refuses a method."""

    def __init__(self, refuse: dict[str, int] | None = None) -> None:
        self.refuse, self.calls, self.bodies = refuse or {}, list[str](), list[dict[str, Any]]()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.calls.append(f"{request.method} {request.path.split('/')[4]}")
        self.bodies.append(await request.json())
        if request.method in self.refuse:
            return status(self.refuse[request.method])
        return web.json_response({"metadata": {"name": "e"}})


@asynccontextmanager
async def recording(seen: Seen, clock: ManualClock, *, record_duplicated: bool = False) -> AsyncIterator[Recorder]:
    async with serving(seen.answer) as client:
        recorder = Recorder(client, clock, component="cluster-autoscaler", record_duplicated=record_duplicated)
        running = asyncio.create_task(recorder.run())
        yield recorder
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_events_live_where_their_objects_do() -> None:
    """In the object's namespace; those on cluster-scoped objects in `default`."""
    seen = Seen()
    async with recording(seen, ManualClock()) as recorder:
        recorder.record(NODE, "Normal", "ScaleDown", "marked")
        recorder.record(POD, "Warning", "ScaleDownFailed", "x" * 2_000)
        await recorder.drain(5)
    by_kind = {body["involvedObject"]["kind"]: body for body in seen.bodies}
    assert sorted(seen.calls) == ["POST default", "POST ns"]
    assert by_kind["Node"]["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n"}
    assert by_kind["Pod"]["involvedObject"]["uid"] == "u"
    assert len(by_kind["Pod"]["message"]) == MESSAGE_BYTES_MAX
    assert by_kind["Node"]["source"] == {"component": "cluster-autoscaler"}


REPEATS = [("within five minutes", 299_999, False, []), ("after", 300_000, False, [2]), ("wanted", 1, True, [2])]


@pytest.mark.parametrize(("name", "after_ms", "duplicated", "counts"), REPEATS, ids=[row[0] for row in REPEATS])
async def test_equal_events_are_counted_not_repeated(
    name: str, after_ms: int, duplicated: bool, counts: list[int]
) -> None:
    """One object per event, whose count grows; within five minutes not even that, unless it is asked for."""
    seen, clock = Seen(), ManualClock()
    async with recording(seen, clock, record_duplicated=duplicated) as recorder:
        for _ in range(2):
            recorder.record(NODE, "Normal", "ScaleDown", "marked")
            await recorder.drain(5)
            clock.at_ms += after_ms
    assert [body["count"] for body in seen.bodies[1:]] == counts
    assert seen.calls == ["POST default"] + ["PATCH default"] * len(counts)


async def test_a_counter_that_may_not_be_patched_is_left_alone() -> None:
    """Some roles only create: the first event stands, no second one is made."""
    seen, clock = Seen({"PATCH": 403}), ManualClock()
    async with recording(seen, clock) as recorder:
        for _ in range(2):
            recorder.record(NODE, "Normal", "ScaleDown", "marked")
            await recorder.drain(5)
            clock.at_ms += 300_000
    assert seen.calls == ["POST default", "PATCH default"]


async def test_one_object_cannot_flood() -> None:
    """25 events at once, then one every five minutes; other objects are not concerned."""
    seen, clock = Seen(), ManualClock()
    async with recording(seen, clock) as recorder:
        for number in range(BURST + 10):
            recorder.record(NODE, "Normal", "ScaleDown", f"message {number}")
        recorder.record(POD, "Normal", "ScaleDown", "another object")
        assert recorder.dropped == 10
        clock.at_ms += 300_000
        recorder.record(NODE, "Normal", "ScaleDown", "one more")
        recorder.record(NODE, "Normal", "ScaleDown", "one too many")
        assert recorder.dropped == 11
        await recorder.drain(10)
    assert len(seen.calls) == BURST + 2


@pytest.mark.parametrize("code", [403, 404, 500])
async def test_what_cannot_be_sent_is_counted_and_ends_nothing(code: int) -> None:
    """A missing right or an outage costs events, not the recorder."""
    seen = Seen({"POST": code})
    async with recording(seen, ManualClock()) as recorder:
        for number in range(3):
            recorder.record(NODE, "Normal", "ScaleDown", f"message {number}")
        await recorder.drain(5)
        assert recorder.dropped == 3


async def test_recording_never_waits() -> None:
    """Nobody sends: the queue is bounded, the rest is counted."""
    async with serving(Seen().answer) as client:
        recorder = Recorder(client, ManualClock(), component="cluster-autoscaler")
        for number in range(QUEUE_MAX + 5):
            recorder.record(Subject(kind="Node", name=f"n{number}"), "Normal", "ScaleDown", "marked")
        assert recorder.dropped == 5


LONG = [("fits", "é" * 512, 1024), ("too long", "x" * 1025, 1024), ("cut between characters", "é" * 600, 1023)]


@pytest.mark.parametrize(("name", "message", "want_bytes"), LONG, ids=[row[0] for row in LONG])
def test_a_message_is_cut_by_bytes(name: str, message: str, want_bytes: int) -> None:
    """As Go counts them, and never inside a character."""
    short = shortened(message)
    assert len(short.encode()) == want_bytes
    assert short == message or (short.endswith("...") and message.startswith(short[:-3]))


async def test_the_longest_node_name_has_events() -> None:
    """An event's name begins with its object's, and is a valid one itself."""
    seen = Seen()
    async with recording(seen, ManualClock()) as recorder:
        recorder.record(Subject(kind="Node", name="a" * 230 + "." * 23), "Normal", "ScaleDown", "marked")
        await recorder.drain(5)
    name = seen.bodies[0]["metadata"]["name"]
    assert len(name) <= NAME_MAX
    assert name.startswith("a" * 230 + ".")
    assert ".." not in name


async def test_equal_events_at_once_are_counted_after_the_first_is_made() -> None:
    """Several are sent at a time; a count that overtook its event would find nothing to count on."""
    made = asyncio.Event()
    seen = Seen()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            await asyncio.sleep(0.05)
            made.set()
        elif not made.is_set():
            return status(404)
        return await seen.answer(request)

    async with serving(answer) as client:
        recorder = Recorder(client, ManualClock(), component="cluster-autoscaler", record_duplicated=True)
        running = asyncio.create_task(recorder.run())
        for _ in range(3):
            recorder.record(NODE, "Normal", "ScaleDown", "marked")
        await recorder.drain(5)
        running.cancel()
    assert seen.calls == ["POST default", "PATCH default", "PATCH default"]
    assert [body["count"] for body in seen.bodies] == [1, 2, 3]
