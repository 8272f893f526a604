"""The running account: what a freeze shows after pods and nodes came, changed and went."""

from datetime import UTC, datetime

import numpy as np
import pytest
from msgspec.structs import replace

from nobiru.kernel.objects import Pod
from nobiru.placement.books import Books, placed_alike
from tests.unit.placement.builders import (
    REPLICA_SET,
    books_of,
    cluster_of,
    node,
    pod,
    unschedulable,
    waiting,
)

GI = 2**30
SOON = datetime(2026, 12, 1, tzinfo=UTC)


def annotated(given: Pod, key: str) -> Pod:
    return replace(given, metadata=replace(given.metadata, annotations={key: "true"}))


def uncounted(given: Pod) -> Pod:
    """As an API server before 1.33 sends it."""
    return replace(given, metadata=replace(given.metadata, generation=0))


def test_sums_and_counts_per_node() -> None:
    """Requests add up per node, classes are counted per node, nodes stand by name."""
    cluster = cluster_of(
        node("b", cpu="2", memory="4Gi", pods="10"),
        node("a", cpu="4", memory="8Gi", pods="20"),
        pod("p1", "500m", "1Gi", node="a"),
        pod("p2", "500m", "1Gi", node="a"),
        pod("p3", "1", "2Gi", node="a"),
        pod("p4", "1", "2Gi", node="b"),
    )
    nodes = cluster.nodes

    assert nodes.names == ("a", "b")
    assert nodes.index == {"a": 0, "b": 1}
    assert nodes.resources == ("cpu", "memory", "ephemeral-storage", "pods")
    assert nodes.allocatable.tolist() == [[4000, 2000], [8 * GI, 4 * GI], [0, 0], [20, 10]]
    assert nodes.requested.tolist() == [[2000, 1000], [4 * GI, 2 * GI], [0, 0], [3, 1]]
    assert nodes.free.tolist() == [[2000, 1000], [4 * GI, 2 * GI], [0, 0], [17, 9]]
    indexes, counts = cluster.held.of(0)
    assert {cluster.classes[index].request["cpu"]: count for index, count in zip(indexes, counts, strict=True)} == {
        500: 2,
        1000: 1,
    }
    assert [entry.key[1] for entry in cluster.pods[0]] == ["p1", "p2", "p3"]


def test_arrays_are_read_only() -> None:
    """A plan cannot change what it reads."""
    nodes = cluster_of(node("a"), pod("p", node="a")).nodes

    for array in (nodes.allocatable, nodes.requested, nodes.free, nodes.unschedulable, nodes.held.count):
        assert not array.flags.writeable


def test_extended_resources_have_rows_while_anybody_has_or_wants_them() -> None:
    """Rows: the first four, then by name; a resource that only a pod knows has a row of zeros."""
    gpu = {"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
    books = books_of(node("a", extra={"example.com/b": "3"}), waiting("p", containers=[gpu]))

    nodes = books.freeze().nodes
    assert nodes.resources[4:] == ("example.com/b", "nvidia.com/gpu")
    assert nodes.allocatable[4:, 0].tolist() == [3, 0]

    books.delete_pod(("default", "p"))
    assert books.freeze().nodes.resources[4:] == ("example.com/b",)


def test_a_pod_that_moves_is_counted_once() -> None:
    """Pending, then bound, then finished, then gone."""
    books = books_of(node("a"), waiting("p"))
    assert [len(each.pods) for each in books.freeze().pending] == [1]

    books.upsert_pod(pod("p", node="a"))
    bound = books.freeze()
    assert bound.pending == ()
    assert bound.nodes.requested[0, 0] == 100

    books.upsert_pod(pod("p", node="a", status={"phase": "Succeeded"}))
    finished = books.freeze()
    assert finished.nodes.requested[0, 0] == 0
    assert finished.others == {"finished": 1}

    books.delete_pod(("default", "p"))
    assert books.freeze().others == {}
    books.delete_pod(("default", "p"))  # unknown: a relist had dropped it


def test_pods_without_their_node_wait_aside() -> None:
    """A pod bound to an unknown node counts as soon as the node appears, and is kept when the node goes."""
    books = books_of(pod("p", node="late"), node("a"))
    early = books.freeze()
    assert early.nodes.names == ("a",)
    assert [entry.key[1] for entry in early.homeless] == ["p"]

    books.upsert_node(node("late"))
    known = books.freeze()
    assert known.homeless == ()
    assert known.nodes.requested[0].tolist() == [0, 100]

    books.delete_node("late")
    gone = books.freeze()
    assert gone.nodes.names == ("a",)
    assert len(gone.homeless) == 1
    books.delete_node("late")
    books.delete_pod(("default", "p"))
    assert books.freeze().homeless == ()


def test_a_nominated_pod_takes_room_on_its_node_and_does_not_wait() -> None:
    """Preemption keeps the room; the pod is shown on the node with its state."""
    cluster = cluster_of(node("a"), pod("p", status={**unschedulable(), "nominatedNodeName": "a"}))

    assert cluster.pending == ()
    assert cluster.nodes.requested[0, 0] == 100
    assert [entry.state for entry in cluster.pods[0]] == ["nominated"]


def test_pending_pods_by_class_and_key() -> None:
    """One entry per class, pods by key, classes by their first pod; what does not wait is only counted."""
    cluster = cluster_of(
        waiting("b", "200m"),
        waiting("c", "100m"),
        waiting("a", "100m"),
        pod("x"),
        pod("y", status={"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}),
    )

    assert [[entry.key[1] for entry in each.pods] for each in cluster.pending] == [["a", "c"], ["b"]]
    assert cluster.others == {"unprocessed": 1, "gated": 1}


def test_pods_of_bypassed_schedulers_wait_at_once() -> None:
    """A pod that its scheduler has not looked at waits where that scheduler is bypassed."""
    books = Books(bypassed_schedulers=("slow",))
    books.upsert_pod(pod("p", schedulerName="slow"))
    books.upsert_pod(pod("q"))

    assert [entry.key[1] for each in books.freeze().pending for entry in each.pods] == ["p"]


def test_new_waiting_pods_are_told_until_the_next_freeze() -> None:
    """A pod is new once: not again when it changes, unless it was bound or made anew in between."""
    books = books_of(node("a"), waiting("p"))
    assert books.newly_unschedulable == 1
    books.upsert_pod(pod("p", status=unschedulable("2024-05-01T11:00:00Z")))
    assert books.newly_unschedulable == 1
    books.freeze()
    assert books.newly_unschedulable == 0

    books.upsert_pod(pod("p", status=unschedulable("2024-05-01T12:00:00Z")))
    assert books.newly_unschedulable == 0
    again = pod("p", status=unschedulable(), meta={"uid": "another"})
    books.upsert_pod(again)
    assert books.newly_unschedulable == 1
    books.delete_pod(("default", "p"))
    assert books.newly_unschedulable == 0


def test_nothing_changed_nothing_made() -> None:
    """A freeze without a change gives the same value; a pod's news that planning does not read is no change."""
    books = books_of(node("a"), pod("p", node="a"))
    first = books.freeze()
    generation = books.generation

    quiet = pod("p", node="a", status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})
    books.upsert_pod(books.admit(quiet))

    assert books.freeze() is first
    assert books.generation == generation


def test_a_frozen_cluster_stays_as_it_was() -> None:
    """What came later does not show in an earlier freeze."""
    books = books_of(node("a"), pod("p", node="a"))
    before = books.freeze()
    requested = before.nodes.requested.copy()

    books.upsert_pod(pod("q", "2", node="a"))
    books.upsert_node(node("b"))
    books.freeze()

    assert before.nodes.names == ("a",)
    assert np.array_equal(before.nodes.requested, requested)
    assert len(before.pods[0]) == 1


def test_labels_and_taints_follow_the_node() -> None:
    """A change of labels or taints shows; a heartbeat keeps what was worked out."""
    books = books_of(node("a", labels={"zone": "x"}))
    first = books.freeze().nodes
    beat = node("a", labels={"zone": "x"})
    books.upsert_node(replace(beat, metadata=replace(beat.metadata, resource_version="2")))
    second = books.freeze().nodes
    books.upsert_node(node("a", labels={"zone": "y"}, cordoned=True))
    third = books.freeze().nodes

    assert second.memo is first.memo
    assert second.nodes[0].metadata.resource_version == "2"
    assert third.memo is not first.memo
    assert third.labels[0]["zone"] == "y"
    assert third.unschedulable.tolist() == [True]


def test_admitted_pods_share_what_equals_have() -> None:
    """Equal pods share spec, labels, owners; each keeps its own name, times, node and what it was made with."""
    books = Books()
    labels = {"app": "web"}
    one = books.admit(waiting("a", labels=labels, owner=REPLICA_SET))
    two = books.admit(waiting("b", labels=dict(labels), owner=REPLICA_SET))
    bound = books.admit(pod("c", labels=labels, owner=REPLICA_SET, node="n"))

    assert one.spec is two.spec
    assert one.metadata.labels is two.metadata.labels
    assert one.pod_class is two.pod_class is bound.pod_class
    assert (one.name, one.metadata.uid, one.controller) == ("a", "uid-default-a", two.controller)
    assert bound.spec.node_name == "n"
    assert bound.spec.containers is one.spec.containers
    assert one.status.conditions is not None
    assert bound.status.conditions is None


BASE = pod("p", labels={"app": "web"}, owner=REPLICA_SET, node="n", meta={"generation": 3})
CHANGES: list[tuple[str, Pod, bool]] = [
    ("nothing", BASE, True),
    ("its address", replace(BASE, metadata=replace(BASE.metadata, resource_version="9")), True),
    ("an annotation that nobody reads", annotated(BASE, "example.com/x"), True),
    ("an annotation of the autoscaler", annotated(BASE, "cluster-autoscaler.kubernetes.io/safe-to-evict"), False),
    ("a label", replace(BASE, metadata=replace(BASE.metadata, labels={"app": "api"})), False),
    ("its owner", replace(BASE, metadata=replace(BASE.metadata, owner_references=())), False),
    ("its phase", replace(BASE, status=replace(BASE.status, phase="Succeeded")), False),
    ("its node", replace(BASE, spec=replace(BASE.spec, node_name="m")), False),
    (
        "its spec",
        replace(BASE, spec=replace(BASE.spec, priority=7), metadata=replace(BASE.metadata, generation=4)),
        False,
    ),
    ("its spec, where nobody counts", uncounted(replace(BASE, spec=replace(BASE.spec, priority=7))), False),
    ("its whole self", replace(BASE, metadata=replace(BASE.metadata, uid="new")), False),
    ("its deletion", replace(BASE, metadata=replace(BASE.metadata, deletion_timestamp=SOON)), False),
]


@pytest.mark.parametrize(("what", "now", "alike"), CHANGES, ids=[row[0] for row in CHANGES])
def test_a_change_is_admitted_as_if_the_pod_were_new(what: str, now: Pod, alike: bool) -> None:
    """The short way for a known pod ends where the long way does, and says whether placement has anything to learn."""
    books = Books()
    before = books.admit(uncounted(BASE) if what.endswith("nobody counts") else BASE)

    assert books.admit(now, before) == books.admit(now)
    assert placed_alike(before, books.admit(now, before)) == alike


def test_a_pod_that_cannot_be_read_stops_nobody() -> None:
    """A bad quantity makes a class that is not planned for; its pods still show."""
    cluster = cluster_of(node("a"), waiting("p", cpu="much"), pod("q", cpu="?", node="a"))

    assert cluster.pending[0].pod_class.unplanned.startswith("spec.containers[main].resources.requests.cpu")
    assert cluster.nodes.requested[3].tolist() == [1]


def test_old_classes_are_forgotten_while_pods_come_and_go() -> None:
    """Ten thousand rollouts leave no trace but what is there now."""
    books = books_of(node("a"), pod("stays", node="a"))
    for rollout in range(5_000):
        books.upsert_pod(books.admit(pod("p", labels={"pod-template-hash": str(rollout)}, node="a")))
        if rollout % 100 == 0:
            books.freeze()

    cluster = books.freeze()

    assert len(cluster.classes) < 1_500
    assert cluster.nodes.requested[:, 0].tolist() == [200, 0, 0, 2]


def test_an_admitted_pod_whose_class_was_forgotten_finds_its_class_again() -> None:
    """A pod admitted long before it is told does not bring a stale index with it."""
    books = Books()
    books.upsert_node(node("a"))
    early = books.admit(pod("p", "3", node="a"))
    for _ in range(2):
        books.classes.retire(())
    books.upsert_pod(books.admit(pod("q", "1", node="a")))

    books.upsert_pod(early)

    assert books.freeze().nodes.requested[0].tolist() == [4000]
