"""Leader election with a clock that tests move: two candidates, one store that knows revisions."""

import asyncio
from typing import Any, TypeVar

import msgspec
import pytest

from nobiru.kernel.errors import ConfigError, KubeConflict, KubeDenied, KubeError, KubeNotFound, KubeUnavailable
from nobiru.kernel.objects import KubeObject
from nobiru.kube.client import CONFIGMAPS, ENDPOINTS, LEASES, Resource
from nobiru.kube.lease import ANNOTATION, Elector, LeaseConfig

T = TypeVar("T")
NAMESPACE, NAME = "kube-system", "cluster-autoscaler"


class ManualClock:
    """Time that stands still until told."""

    def __init__(self) -> None:
        self.at_ms = 1_800_000_000_000

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_ms(self) -> int:
        return self.at_ms - 1_700_000_000_000


class Store:
    """The lock objects of an API server: revisions, missing rights, outages."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.denied: set[str] = set()
        self.down = False
        self.writes = 0

    def check(self, resource: Resource) -> None:
        if self.down:
            raise KubeUnavailable("down")
        if resource.plural in self.denied:
            raise KubeDenied(f"cannot touch {resource.plural}")

    async def get(self, resource: Resource, namespace: str, name: str, type_: type[T]) -> T:
        self.check(resource)
        if resource.plural not in self.objects:
            raise KubeNotFound(name)
        return msgspec.convert(self.objects[resource.plural], type_)

    async def create(self, resource: Resource, namespace: str, body: dict[str, Any], type_: type[T]) -> T:
        self.check(resource)
        if resource.plural in self.objects:
            raise KubeConflict("already exists")
        return self._keep(resource, body, type_)

    async def update(self, resource: Resource, namespace: str, name: str, body: dict[str, Any], type_: type[T]) -> T:
        self.check(resource)
        revision = self.objects[resource.plural]["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != revision:
            raise KubeConflict("the object has been modified")
        return self._keep(resource, body, type_)

    def _keep(self, resource: Resource, body: dict[str, Any], type_: type[T]) -> T:
        self.writes += 1
        whole = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.writes)}}
        self.objects[resource.plural] = msgspec.json.decode(msgspec.json.encode(whole))
        return msgspec.convert(whole, type_)

    def annotate(self, resource: Resource, holder: str, **more: Any) -> None:
        """A record that another program wrote."""
        record = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2020-01-01T00:00:00Z"}
        meta = {"annotations": {ANNOTATION: msgspec.json.encode(record).decode(), "kept": "yes"}}
        self._keep(resource, {"metadata": meta, **more}, KubeObject)


def config(identity: str = "us", kind: str = "leases", **more: Any) -> LeaseConfig:
    return LeaseConfig(kind=kind, namespace=NAMESPACE, name=NAME, identity=identity, **more)


class World:
    """One store, one clock, any candidates; a round is one look at the lock."""

    def __init__(self) -> None:
        self.store, self.clock = Store(), ManualClock()

    def elector(self, identity: str = "us", kind: str = "leases") -> Elector:
        return Elector(self.store, self.clock, config(identity, kind))

    async def takes(self, elector: Elector) -> bool:
        """Whether the candidate gets the lock at this very moment."""
        task = asyncio.create_task(elector.acquire())
        for _ in range(20):  # nothing here waits for anything but its turn
            await asyncio.sleep(0)
        if task.done():
            task.result()
            return True
        task.cancel()
        return False


async def test_one_leads_and_the_other_follows_by_its_own_clock() -> None:
    """A record counts as live until it has not changed for its duration, whatever its timestamps say."""
    world = World()
    first, second = world.elector("first"), world.elector("second")
    assert await world.takes(first)
    assert not await world.takes(second)
    world.clock.at_ms += 14_999
    assert not await world.takes(second)
    world.clock.at_ms += 1
    assert await world.takes(second)
    assert (first.held(), second.held()) == (False, True)


async def test_a_renewal_starts_the_wait_anew() -> None:
    """As long as the record changes its holder lives."""
    world = World()
    first, second = world.elector("first"), world.elector("second")
    assert await world.takes(first)
    for _ in range(5):
        world.clock.at_ms += 9_000
        assert await world.takes(first)
        assert not await world.takes(second)


async def test_a_process_that_slept_holds_nothing() -> None:
    """Past the renew deadline held() is False at once, before any call and before anybody else could lead."""
    world = World()
    elector = world.elector()
    assert await world.takes(elector)
    world.clock.at_ms += 9_999
    assert elector.held()
    world.clock.at_ms += 1
    assert not elector.held()
    await asyncio.wait_for(elector.hold(), 1)


async def test_a_released_lock_is_free_at_once() -> None:
    """The next leader need not wait; who does not hold releases nothing."""
    world = World()
    first, second = world.elector("first"), world.elector("second")
    assert await world.takes(first)
    await second.release()
    assert not await world.takes(second)
    await first.release()
    assert not first.held()
    assert await world.takes(second)


@pytest.mark.parametrize("kind", ["configmaps", "endpoints"])
async def test_annotated_objects_keep_all_else(kind: str) -> None:
    """The record is client-go's, in its annotation; other annotations, data and addresses stay."""
    world = World()
    resource = {"configmaps": CONFIGMAPS, "endpoints": ENDPOINTS}[kind]
    world.store.annotate(resource, "", data={"a": "1"}, subsets=[{"addresses": []}])
    assert await world.takes(world.elector("us", kind))
    kept = world.store.objects[kind]
    assert (kept["data"], kept["subsets"], kept["metadata"]["annotations"]["kept"]) == (
        {"a": "1"},
        [{"addresses": []}],
        "yes",
    )
    assert msgspec.json.decode(kept["metadata"]["annotations"][ANNOTATION]) == {
        "holderIdentity": "us",
        "leaseDurationSeconds": 15,
        "acquireTime": "2027-01-15T08:00:00Z",
        "renewTime": "2027-01-15T08:00:00Z",
        "leaderTransitions": 1,
    }


async def test_a_lease_has_times_that_the_api_takes() -> None:
    """MicroTime wants six digits, after a renewal too; the moment of acquiring stays."""
    world = World()
    elector = world.elector()
    assert await world.takes(elector)
    world.clock.at_ms += 2_000
    assert await world.takes(elector)
    assert world.store.objects["leases"]["spec"] == {
        "holderIdentity": "us",
        "leaseDurationSeconds": 15,
        "acquireTime": "2027-01-15T08:00:00.000000Z",
        "renewTime": "2027-01-15T08:00:02.000000Z",
        "leaseTransitions": 0,
    }


@pytest.mark.parametrize("kind", ["leases", "endpoints"])
async def test_a_live_holder_of_another_kind_means_stand_by(kind: str) -> None:
    """An older release may hold a lock of its own kind; once its record is stale we lead."""
    world = World()
    world.store.annotate(CONFIGMAPS, "older release")
    elector = world.elector("us", kind)
    assert not await world.takes(elector)
    world.clock.at_ms += 10_000
    world.store.annotate(CONFIGMAPS, "older release", changed="renewed")
    assert not await world.takes(elector)
    world.clock.at_ms += 15_000
    assert await world.takes(elector)


async def test_kinds_that_may_not_be_read_do_not_stop_us() -> None:
    """OpenShift's role knows ConfigMaps alone."""
    world = World()
    world.store.denied = {"leases", "endpoints"}
    assert await world.takes(world.elector("us", "configmaps"))


async def test_the_doubled_kinds_write_both_and_respect_both() -> None:
    """A holder in either place means stand by; a half-written lock is not held."""
    world = World()
    assert await world.takes(world.elector("us", "endpointsleases"))
    assert set(world.store.objects) == {"endpoints", "leases"}
    for kind in ("endpoints", "leases"):
        assert not await world.takes(world.elector("other", kind))
    half = World()
    half.store.denied = {"leases"}
    elector = half.elector("us", "configmapsleases")
    assert not await half.takes(elector)
    assert not elector.held()


async def test_an_outage_is_not_leadership() -> None:
    """While nothing can be read or written nobody takes the lock, and its holder has it until its deadline."""
    world = World()
    first, second = world.elector("first"), world.elector("second")
    assert await world.takes(first)
    world.store.down = True
    world.clock.at_ms += 9_000
    assert first.held()
    world.clock.at_ms += 60_000
    assert not first.held()
    assert not await world.takes(second)


async def test_who_writes_second_does_not_lead() -> None:
    """Both saw the lock free; the revision lets one of them win."""
    world = World()
    first, second = world.elector("first"), world.elector("second")
    won = await asyncio.gather(world.takes(first), world.takes(second))
    assert sorted(won) == [False, True]


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("kind", {"kind": "secrets"}, "--leader-elect-resource-lock"),
    ("name", {"name": ""}, "--leader-elect-resource-name"),
    ("namespace", {"namespace": ""}, "--leader-elect-resource-namespace"),
    ("identity", {"identity": ""}, "identity"),
    ("lease", {"lease_duration_ms": 10_000}, "--leader-elect-lease-duration"),
    ("renew", {"renew_deadline_ms": 2_400}, "--leader-elect-renew-deadline"),
    ("retry", {"retry_period_ms": 0}, "--leader-elect-retry-period"),
    ("short", {"lease_duration_ms": 900, "renew_deadline_ms": 500, "retry_period_ms": 100}, "at least 1s"),
]


@pytest.mark.parametrize(("name", "change", "want"), WRONG, ids=[row[0] for row in WRONG])
def test_what_is_wrong_names_its_flag(name: str, change: dict[str, Any], want: str) -> None:
    """client-go's checks, in one line for whoever set the flag."""
    with pytest.raises(ConfigError, match=want):
        msgspec.structs.replace(config(), **change).check()


def test_errors_of_the_store_are_the_kernels() -> None:
    """The fake raises what the real client raises."""
    assert issubclass(KubeConflict, KubeError)
    assert LEASES.api_version == "coordination.k8s.io/v1"
