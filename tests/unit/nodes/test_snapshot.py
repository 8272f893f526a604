"""What a controller still owes while a burst of its pods is being created."""

from msgspec.structs import replace

from nobiru.kernel.objects import (
    Condition,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodStatus,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from nobiru.nodes.model import Controller
from nobiru.nodes.snapshot import Workloads, controllers, missing_replicas, pause_problem, paused
from nobiru.placement.books import Books
from tests.unit.nodes.builders_down import NOW_MS, node, pod
from tests.unit.nodes.builders_up import pending

RS = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="rs-web", controller=True)
KNOWN = {"rs-web": Controller(kind="ReplicaSet", key=("default", "web"), uid="rs-web", replicas=20, existing=0)}


def unseen(name: str) -> Pod:
    """A pod that the scheduler has not looked at yet."""
    return replace(pending(name, by=RS, age_s=1), status=PodStatus(phase="Pending"))


def owed(*pods: Pod, most: int = 100) -> list[int]:
    books = Books()
    books.upsert_node(node("n1"))
    for each in pods:
        books.upsert_pod(each)
    return [demand.count for demand in missing_replicas(books.freeze(), KNOWN, NOW_MS, most)]


def test_pods_not_created_yet_are_owed() -> None:
    """Twenty wanted, two refused, one runs: seventeen more are coming."""
    assert owed(pending("a", by=RS, age_s=1), pending("b", by=RS, age_s=1), pod("c", "n1", by=RS)) == [17]


def test_pods_that_the_scheduler_has_not_seen_are_owed_too() -> None:
    """In a burst the scheduler refuses pods one by one: a loop in the middle plans for all of them."""
    assert owed(pending("a", by=RS, age_s=1), *(unseen(f"u{number}") for number in range(19))) == [19]


def test_nothing_is_owed_by_a_controller_at_rest() -> None:
    """What a quota or an error keeps from being created for long is not waited for."""
    assert owed(pending("a", by=RS, age_s=60)) == []


def test_nothing_is_owed_by_a_controller_that_a_quota_stops() -> None:
    """What the API server refuses to create needs no machine."""
    failing = Condition(type="ReplicaFailure", status="True", reason="FailedCreate")
    replica_set = Workload(
        metadata=ObjectMeta(name="web", namespace="default", uid=RS.uid),
        spec=WorkloadSpec(replicas=20),
        status=WorkloadStatus(replicas=2, conditions=(failing,)),
    )
    books = Books()
    for each in (pending("a", by=RS, age_s=1), pending("b", by=RS, age_s=1)):
        books.upsert_pod(each)
    for status, want in ((replica_set.status, []), (WorkloadStatus(replicas=2), [18])):
        known = controllers(Workloads(by_kind={"ReplicaSet": (replace(replica_set, status=status),)}))
        assert [each.count for each in missing_replicas(books.freeze(), known, NOW_MS, 100)] == want


def test_what_is_owed_is_bounded() -> None:
    """--pod-injection-limit bounds it."""
    assert owed(pending("a", by=RS, age_s=1), most=5) == [5]


def test_pause_annotation() -> None:
    """up, down or all; anything else stops nothing."""
    assert paused({"nobiru.io/pause": "all"}) == {"up", "down"}
    assert paused({"nobiru.io/pause": "down"}) == {"down"}
    assert paused({"nobiru.io/pause": "yes"}) == frozenset()


def test_pause_annotation_that_stops_nothing_is_said() -> None:
    """A typing error must not look like a pause."""
    assert 'is "yes" and stops nothing: say up, down or all' in pause_problem({"nobiru.io/pause": "yes"})
    assert pause_problem({"nobiru.io/pause": "all"}) == pause_problem({}) == ""
