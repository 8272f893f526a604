"""Core/v1 Events: recorded at once, sent in the background, equal ones counted instead of repeated.

Invariant: recording never waits and never fails; what cannot be sent is counted and said once.
Source: client-go tools/record: one Event per (object, reason, message), count patched; a token bucket per object.
"""

import asyncio
import hashlib
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Any, Literal, Never

from msgspec import Struct, field

from nobiru.kernel.clock import Clock
from nobiru.kernel.errors import KubeDenied, KubeError, KubeNotFound
from nobiru.kernel.objects import KubeObject
from nobiru.kube.client import EVENTS, Client
from nobiru.sinks.log import Log

log = Log("events")

QUEUE_MAX = 5_000
MESSAGE_BYTES_MAX = 1024  # the limit of events.k8s.io; Go counts bytes
NAME_MAX = 253  # of any object; a node's own name may be as long
REPEAT_MS = 300_000  # Cluster Autoscaler: equal events within five minutes are not repeated
BURST, REFILL_MS = 25, 300_000  # client-go's spam filter: 25 at once, one more every five minutes, per object
REMEMBERED_MAX = 20_000
CLUSTER_NAMESPACE = "default"  # where events on cluster-scoped objects live
SENDERS = 4


class Subject(Struct, frozen=True, kw_only=True):
    """The object that an event is about."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"


class _Event(Struct, frozen=True, kw_only=True):
    subject: Subject
    type: str
    reason: str
    message: str
    at_ms: int


class _Known(Struct, kw_only=True):
    """An event that exists: its name, how often, when last; equal ones are sent one after the other."""

    name: str
    count: int
    last_ms: int
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)


class Recorder:
    """Records events of one component."""

    def __init__(
        self, client: Client, clock: Clock, *, component: str, host: str = "", record_duplicated: bool = False
    ) -> None:
        self._client, self._clock = client, clock
        self._component, self._host = component, host
        self._repeat_ms = 0 if record_duplicated else REPEAT_MS
        self._queue: asyncio.Queue[_Event] = asyncio.Queue(QUEUE_MAX)
        self._known: OrderedDict[tuple[Subject, str, str], _Known] = OrderedDict()
        self._buckets: OrderedDict[Subject, tuple[float, int]] = OrderedDict()
        self._said: set[str] = set()
        self.dropped = 0

    def record(self, subject: Subject, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Note an event; equal ones within five minutes are left out."""
        now_ms = self._clock.now_ms()
        message = shortened(message)
        key = (subject, reason, message)
        known = self._known.get(key)
        if known is not None and now_ms - known.last_ms < self._repeat_ms:
            return
        if not self._allowed(subject, now_ms):
            self.dropped += 1
            return
        if known is None:
            digest = hashlib.sha256(f"{subject}{reason}{message}{now_ms}".encode()).hexdigest()[:16]
            name = f"{subject.name[: NAME_MAX - 1 - len(digest)].rstrip('-.')}.{digest}"
            known = self._known[key] = _Known(name=name, count=0, last_ms=now_ms)
        known.last_ms = now_ms
        self._known.move_to_end(key)
        while len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        try:
            self._queue.put_nowait(_Event(subject=subject, type=type_, reason=reason, message=message, at_ms=now_ms))
        except asyncio.QueueFull:
            self.dropped += 1

    def _allowed(self, subject: Subject, now_ms: int) -> bool:
        tokens, since_ms = self._buckets.get(subject, (float(BURST), now_ms))
        tokens = min(float(BURST), tokens + (now_ms - since_ms) / REFILL_MS)
        allowed = tokens >= 1
        self._buckets[subject] = (tokens - 1 if allowed else tokens, now_ms)
        self._buckets.move_to_end(subject)
        while len(self._buckets) > REMEMBERED_MAX:
            self._buckets.popitem(last=False)
        return allowed

    async def run(self) -> None:
        """Send what is recorded, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(SENDERS):
                tasks.create_task(self._send_all(), name=f"events {number}")

    async def drain(self, timeout_s: float) -> None:
        """Wait until what was recorded is sent, but not for long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._queue.join()
        except TimeoutError:
            self.dropped += self._queue.qsize()

    async def _send_all(self) -> Never:
        while True:
            event = await self._queue.get()
            try:
                await self._send(event)
            except KubeError as error:
                self.dropped += 1
                kind = type(error).__name__
                if kind not in self._said:  # once per kind of trouble; the counter tells the rest
                    self._said.add(kind)
                    log.warning("events cannot be sent", error=str(error))
            finally:
                self._queue.task_done()

    async def _send(self, event: _Event) -> None:
        known = self._known.get((event.subject, event.reason, event.message))
        if known is not None:
            async with known.sending:  # a count must not be patched before its event is made
                await self._send_known(event, known)

    async def _send_known(self, event: _Event, known: _Known) -> None:
        moment = datetime.fromtimestamp(event.at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        namespace = event.subject.namespace or CLUSTER_NAMESPACE
        known.count += 1
        if known.count > 1:
            try:
                body = {"count": known.count, "lastTimestamp": moment, "message": event.message}
                await self._client.patch(EVENTS, namespace, known.name, body, KubeObject, kind="strategic")
                return
            except KubeNotFound:
                known.count = 1  # it was cleared away: make it anew
            except KubeDenied:
                return
        await self._client.create(EVENTS, namespace, self._body(event, known, namespace, moment), KubeObject)

    def _body(self, event: _Event, known: _Known, namespace: str, moment: str) -> dict[str, Any]:
        subject = event.subject
        reference = {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "name": subject.name,
            "namespace": subject.namespace,
            "uid": subject.uid,
        }
        return {
            "metadata": {"name": known.name, "namespace": namespace},
            "involvedObject": {key: value for key, value in reference.items() if value},
            "type": event.type,
            "reason": event.reason,
            "message": event.message,
            "source": {"component": self._component, **({"host": self._host} if self._host else {})},
            "firstTimestamp": moment,
            "lastTimestamp": moment,
            "count": 1,
            "reportingComponent": self._component,
            "reportingInstance": self._host,
        }


def shortened(message: str) -> str:
    """The message within the limit, cut between two characters."""
    whole = message.encode()
    if len(whole) <= MESSAGE_BYTES_MAX:
        return message
    return whole[: MESSAGE_BYTES_MAX - 3].decode(errors="ignore") + "..."
