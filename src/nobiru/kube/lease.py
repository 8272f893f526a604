"""Leader election: one of several replicas acts, under the lock that Cluster Autoscaler takes.

Kinds: Lease objects, or client-go's record in an annotation of a ConfigMap or Endpoints object, or both (the doubled kinds of the
releases in between).  Staleness is judged by our own monotonic clock since the record last changed.  Invariant: `held()` is False as
soon as the renewal is overdue by that clock, so a process that slept starts nothing when it wakes up.
Source: client-go tools/leaderelection and resourcelock.
"""

import asyncio
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nobiru.kernel.clock import Clock
from nobiru.kernel.errors import ConfigError, KubeConflict, KubeDenied, KubeError, KubeNotFound
from nobiru.kernel.objects import KubeObject, Lease
from nobiru.kube.client import CONFIGMAPS, ENDPOINTS, LEASES, Resource
from nobiru.sinks.log import Log

ANNOTATION = "control-plane.alpha.kubernetes.io/leader"
JITTER = 1.2  # client-go: renew deadline must exceed this many retry periods
log = Log("lease")
T = TypeVar("T")


class Record(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=False):
    """client-go's LeaderElectionRecord; times as RFC 3339."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    leader_transitions: int = 0


class LeaseConfig(Struct, frozen=True, kw_only=True):
    """What to lock, and how patiently."""

    kind: str
    namespace: str
    name: str
    identity: str
    lease_duration_ms: int = 15_000
    renew_deadline_ms: int = 10_000
    retry_period_ms: int = 2_000

    def check(self) -> None:
        """Raises ConfigError that names the flag."""
        if self.kind not in _KINDS:
            raise ConfigError(f"--leader-elect-resource-lock must be one of {', '.join(_KINDS)}, not {self.kind!r}")
        for flag, value in (("resource-name", self.name), ("resource-namespace", self.namespace)):
            if not value:
                raise ConfigError(f"--leader-elect-{flag} must not be empty")
        if not self.identity:
            raise ConfigError("leader election needs an identity, and this machine's host name is empty")
        if self.lease_duration_ms < 1_000:
            raise ConfigError("--leader-elect-lease-duration must be at least 1s: the record holds whole seconds")
        if self.retry_period_ms <= 0:
            raise ConfigError("--leader-elect-retry-period must be greater than zero")
        if self.lease_duration_ms <= self.renew_deadline_ms:
            raise ConfigError("--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline")
        if self.renew_deadline_ms <= JITTER * self.retry_period_ms:
            raise ConfigError(
                f"--leader-elect-renew-deadline must be more than {JITTER} times --leader-elect-retry-period"
            )


class Place(Struct, frozen=True, kw_only=True):
    """One object that holds a record; `found` is the whole object as last read, None where there is none."""

    resource: Resource
    record: Record | None
    found: dict[str, Any] | None


_KINDS: dict[str, tuple[Resource, ...]] = {
    "leases": (LEASES,),
    "configmaps": (CONFIGMAPS,),
    "endpoints": (ENDPOINTS,),
    "endpointsleases": (ENDPOINTS, LEASES),
    "configmapsleases": (CONFIGMAPS, LEASES),
}


def _now(clock: Clock) -> str:
    moment = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _micro(text: str | None) -> str | None:
    """The moment as a Lease has it: the API server refuses anything but six digits after the second."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    except ValueError:  # somebody else's record: what cannot be read is not copied
        return None


def _seconds(moment: datetime | None) -> str | None:
    """The moment as a record has it: whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment else None


def record_of_lease(lease: Lease) -> Record:
    """The record that a Lease object says; its renewals are told apart by their full time."""
    spec = lease.spec
    return Record(
        holder_identity=spec.holder_identity or "",
        lease_duration_seconds=spec.lease_duration_seconds or 0,
        acquire_time=_seconds(spec.acquire_time),
        renew_time=spec.renew_time.isoformat() if spec.renew_time else None,
        leader_transitions=spec.lease_transitions or 0,
    )


def record_of_annotation(text: str) -> Record:
    """The record in an annotation; an unreadable one counts as nobody's."""
    try:
        return msgspec.json.decode(text, type=Record)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return Record()


def lease_spec(record: Record) -> dict[str, object]:
    return {
        "holderIdentity": record.holder_identity,
        "leaseDurationSeconds": record.lease_duration_seconds,
        "acquireTime": _micro(record.acquire_time),
        "renewTime": _micro(record.renew_time),
        "leaseTransitions": record.leader_transitions,
    }


class Objects(Protocol):
    """What a lock needs of the API server; `Client` is one."""

    async def get(self, resource: Resource, namespace: str, name: str, type_: type[T]) -> T: ...
    async def create(self, resource: Resource, namespace: str, body: dict[str, Any], type_: type[T]) -> T: ...
    async def update(
        self, resource: Resource, namespace: str, name: str, body: dict[str, Any], type_: type[T]
    ) -> T: ...


class Elector:
    """One candidate."""

    def __init__(self, client: Objects, clock: Clock, config: LeaseConfig) -> None:
        config.check()
        self._client, self._clock, self.config = client, clock, config
        self._mine = _KINDS[config.kind]
        self._others = tuple(each for each in (LEASES, CONFIGMAPS, ENDPOINTS) if each not in self._mine)
        self._unreadable: set[str] = set()
        self._observed: dict[str, tuple[Record, int]] = {}  # by kind: the record and when it last changed
        self._renewed_ms: int | None = None
        self._record = Record()

    def held(self) -> bool:
        """Whether we lead right now."""
        if self._renewed_ms is None:
            return False
        return self._clock.monotonic_ms() - self._renewed_ms < self.config.renew_deadline_ms

    async def acquire(self) -> None:
        """Wait until the lock is ours."""
        said = ""
        while True:
            try:
                holder = await self._try()
                if not holder:
                    log.info("became leader", identity=self.config.identity, lock=self._name())
                    return
                if holder != said:
                    log.info("standing by", leader=holder, lock=self._name())
                    said = holder
            except KubeDenied as error:
                if str(error) != said:
                    log.error("the leader lock is refused", error=str(error), lock=self._name())
                    said = str(error)
            except KubeConflict:
                pass  # another candidate wrote first: the next look tells who
            except KubeError as error:
                log.warning("the leader lock cannot be reached", error=str(error))
            await asyncio.sleep(self.config.retry_period_ms / 1000)

    async def hold(self) -> None:
        """Renew until the lock is lost, then return."""
        while self.held():
            await asyncio.sleep(self.config.retry_period_ms / 1000)
            if not self.held():
                break  # we slept too long: somebody else may lead
            try:
                holder = await self._try()
                if holder:
                    self._renewed_ms = None
                    log.error("the leader lock was taken", leader=holder)
                    return
            except KubeError as error:
                log.warning("the leader lock could not be renewed", error=str(error))
        self._renewed_ms = None
        log.error("the leader lock is lost", lock=self._name())

    async def release(self) -> None:
        """Give the lock back, so that the next leader need not wait."""
        if not self.held():
            self._renewed_ms = None
            return
        self._renewed_ms = None
        empty = replace(self._record, holder_identity="", lease_duration_seconds=1, renew_time=_now(self._clock))
        for resource in self._mine:
            try:
                await self._write(await self._read(resource), empty)
            except KubeError as error:
                log.warning("the leader lock could not be released", error=str(error))

    def _name(self) -> str:
        return f"{self.config.kind} {self.config.namespace}/{self.config.name}"

    async def _try(self) -> str:
        """Take or renew the lock; returns "" or who else holds it.  Raises KubeError."""
        began_ms = self._clock.monotonic_ms()
        places = [await self._read(resource) for resource in self._mine]
        for place in places:
            holder = self._live_holder(place)
            if holder:
                return holder
        if not self.held():
            for resource in self._others:
                holder = await self._foreign_holder(resource)
                if holder:
                    return holder
        before = places[0].record or Record()
        now = _now(self._clock)
        ours = before.holder_identity == self.config.identity
        record = Record(
            holder_identity=self.config.identity,
            lease_duration_seconds=self.config.lease_duration_ms // 1000,
            acquire_time=before.acquire_time if ours else now,
            renew_time=now,
            leader_transitions=before.leader_transitions + (0 if ours or not places[0].found else 1),
        )
        for place in places:
            await self._write(place, record)
        self._record = record
        self._renewed_ms = began_ms  # from before the write: never later than what others see
        return ""

    def _live_holder(self, place: Place) -> str:
        """Who else holds this record and is alive."""
        record = place.record
        if record is None or not record.holder_identity or record.holder_identity == self.config.identity:
            return ""
        now_ms = self._clock.monotonic_ms()
        seen, since_ms = self._observed.get(place.resource.plural, (None, now_ms))
        if seen != record:
            since_ms = now_ms
        self._observed[place.resource.plural] = (record, since_ms)
        lease_ms = max(record.lease_duration_seconds * 1000, self.config.lease_duration_ms)
        return record.holder_identity if now_ms - since_ms < lease_ms else ""

    async def _foreign_holder(self, resource: Resource) -> str:
        """Who holds a lock of another kind, where we may look: an older release may still run."""
        if resource.plural in self._unreadable:
            return ""
        try:
            return self._live_holder(await self._read(resource))
        except KubeDenied:
            self._unreadable.add(resource.plural)
            return ""

    async def _read(self, resource: Resource) -> Place:
        try:
            found: dict[str, Any] = await self._client.get(resource, self.config.namespace, self.config.name, dict)
        except KubeNotFound:
            return Place(resource=resource, record=None, found=None)
        return Place(resource=resource, record=record_in(resource, found), found=found)

    async def _write(self, place: Place, record: Record) -> None:
        """Write the record on the revision that was read.  Raises KubeConflict where somebody was faster, KubeError.

        Existing objects are replaced, not patched: the roles of Cluster Autoscaler's manifests allow `update` alone.
        """
        resource, namespace, name = place.resource, self.config.namespace, self.config.name
        whole = with_record(resource, place.found or {"metadata": {"name": name, "namespace": namespace}}, record)
        if place.found is None:
            await self._client.create(resource, namespace, whole, KubeObject)
        else:
            await self._client.update(resource, namespace, name, whole, KubeObject)


def record_in(resource: Resource, found: dict[str, Any]) -> Record | None:
    """The record that an object holds; None where it holds none, nobody's where it cannot be read."""
    try:
        if resource.plural == LEASES.plural:
            return record_of_lease(msgspec.convert(found, Lease))
        text = msgspec.convert(found, KubeObject).annotations.get(ANNOTATION)
    except msgspec.ValidationError:
        return Record()
    return record_of_annotation(text) if text else None


def with_record(resource: Resource, found: dict[str, Any], record: Record) -> dict[str, Any]:
    """The object with this record in it and all else as it was."""
    if resource.plural == LEASES.plural:
        return {**found, "spec": {**(found.get("spec") or {}), **lease_spec(record)}}
    meta = found["metadata"]
    annotations = {**(meta.get("annotations") or {}), ANNOTATION: msgspec.json.encode(record).decode()}
    return {**found, "metadata": {**meta, "annotations": annotations}}
