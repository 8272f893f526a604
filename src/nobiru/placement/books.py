"""The running account of the cluster: fed object by object, it can say at any moment what is where (`freeze`).

It refuses to know: where objects come from, and every rule.  The one mutable value of `placement`.
Invariant: what `freeze` gives depends on the objects that exist now, never on the order in which they came; a pod
whose node is not known (yet) is kept aside and counts as soon as the node appears.
"""

from collections.abc import Hashable, Iterable
from sys import intern
from typing import TypeVar

from msgspec.structs import replace

from nobiru.kernel.objects import Key, Node, ObjectMeta, OwnerReference, Pod, PodStatus
from nobiru.placement.classes import PER_POD_LABELS, ClassTable, PodClass, relevant_annotations
from nobiru.placement.columns import Cluster, PendingClass
from nobiru.placement.entries import PodEntry, PodState, entry_of, scheduled_condition
from nobiru.placement.requests import amounts_of
from nobiru.placement.seats import NodeState, Queue, Seat

__all__ = ["AdmittedPod", "Books", "PodEntry", "PodState", "placed_alike"]

_SPARE_CLASSES = 1_000  # below this many unused classes a sweep is not worth its time


class AdmittedPod(Pod, frozen=True, kw_only=True):
    """A Pod that shares what it can with its equals, and knows its class.

    Of annotations and conditions it keeps those that placement reads; its spec is that of its class.
    """

    pod_class: PodClass


class Books:
    """All nodes and pods, as classes and counts."""

    def __init__(self, *, bypassed_schedulers: Iterable[str] = ()) -> None:
        """`bypassed_schedulers`: pods of these wait for a node even before their scheduler looked at them."""
        self.classes = ClassTable()
        self.generation = 0  # grows with every freeze that finds a change
        self._bypassed = frozenset(bypassed_schedulers)
        self._seats: dict[str, Seat] = {}
        self._entries: dict[Key, PodEntry] = {}
        self._pods_of: dict[int, int] = {}  # class index -> pods
        self._asked: dict[str, int] = {}  # resource -> classes with pods that ask for it
        self._waiting: dict[int, Queue] = {}
        self._others: dict[PodState, int] = {}
        self._newly: set[Key] = set()
        self._homeless_count = 0
        self._nodes = NodeState()
        self._last: Cluster | None = None
        self._dirty = True

    # Feeding

    def admit(self, pod: Pod, before: Pod | None = None) -> AdmittedPod:
        """The pod as a cache should keep it: its spec, labels and strings shared with its equals.

        `before` is how the same pod was kept last: where only its status changed, its class need not be found again.
        """
        if isinstance(before, AdmittedPod) and self._changed_status_alone(pod, before):
            old = before.metadata
            return AdmittedPod(
                metadata=replace(
                    pod.metadata,
                    namespace=old.namespace,
                    labels=old.labels,
                    annotations=old.annotations,
                    owner_references=old.owner_references,
                ),
                spec=before.spec,
                status=_kept_status(pod.status, placed=bool(before.spec.node_name)),
                pod_class=before.pod_class,
            )
        pod_class = self.classes.intern(pod)
        meta = pod.metadata
        own_labels = meta.labels is not None and not PER_POD_LABELS.isdisjoint(meta.labels)
        spec = pod_class.spec
        return AdmittedPod(
            metadata=ObjectMeta(
                name=meta.name,
                namespace=pod_class.namespace,
                uid=meta.uid,
                resource_version=meta.resource_version,
                generation=meta.generation,
                labels=meta.labels if own_labels else pod_class.labels,
                annotations=pod_class.annotations,
                owner_references=_shared_owners(meta.owner_references, pod_class.owner),
                creation_timestamp=meta.creation_timestamp,
                deletion_timestamp=meta.deletion_timestamp,
                deletion_grace_period_seconds=meta.deletion_grace_period_seconds,
            ),
            spec=replace(spec, node_name=intern(pod.spec.node_name)) if pod.spec.node_name else spec,
            status=_kept_status(pod.status, placed=bool(pod.spec.node_name)),
            pod_class=pod_class,
        )

    def _changed_status_alone(self, pod: Pod, before: AdmittedPod) -> bool:
        """Whether all that makes a class is as it was.

        The API server counts changes of a pod's spec in `generation` (Kubernetes 1.33 and newer; 0 before); a binding may not
        count.
        """
        meta, old = pod.metadata, before.metadata
        return (
            meta.generation > 0
            and (meta.generation, meta.uid) == (old.generation, old.uid)
            and pod.spec.node_name == before.spec.node_name
            and (meta.labels or {}) == (old.labels or {})
            and meta.owner_references == old.owner_references
            and relevant_annotations(meta.annotations) == old.annotations
            and self.classes.holds(before.pod_class)
        )

    def upsert_node(self, node: Node) -> None:
        """A node appeared or changed."""
        seat = self._seat(node.name)
        before = seat.node
        if before is None:
            self._homeless_count -= len(seat.pods)
            self._nodes.order = None
        seat.node = node
        self._dirty = True
        if before is None or before.status.allocatable != node.status.allocatable:
            seat.allocatable = amounts_of(node.status.allocatable)[0]
            self._nodes.allocatable = None
        if before is None or before.labels != node.labels or before.spec != node.spec:
            self._nodes.facts = None

    def delete_node(self, name: str) -> None:
        """A node went; pods still bound to it are kept aside."""
        seat = self._seats.get(name)
        if seat is None or seat.node is None:
            return
        seat.node = None
        self._homeless_count += len(seat.pods)
        if not seat.pods:
            del self._seats[name]
        self._nodes.order = None
        self._dirty = True

    def upsert_pod(self, pod: Pod) -> None:
        """A pod appeared or changed."""
        pod_class = pod.pod_class if isinstance(pod, AdmittedPod) else None
        if pod_class is None or not self.classes.holds(pod_class):
            pod_class = self.classes.intern(pod)
        entry = entry_of(pod, pod_class)
        before = self._entries.get(entry.key)
        if before == entry:
            return
        waited = False
        if before is not None:
            waited = self._waits(before) and before.uid == entry.uid and before.key not in self._newly
            self._remove(before)
        self._add(entry)
        if self._waits(entry) and not waited:
            self._newly.add(entry.key)

    def delete_pod(self, key: Key) -> None:
        """A pod went."""
        entry = self._entries.get(key)
        if entry is not None:
            self._remove(entry)

    @property
    def newly_unschedulable(self) -> int:
        """How many pods began to wait for a node since the last freeze, and still do."""
        return len(self._newly)

    def _waits(self, entry: PodEntry) -> bool:
        if entry.state == "unprocessed":
            return (entry.pod_class.spec.scheduler_name or "default-scheduler") in self._bypassed
        return entry.state == "unschedulable"

    def _seat(self, name: str) -> Seat:
        seat = self._seats.get(name)
        if seat is None:
            seat = self._seats[name] = Seat()
        return seat

    def _add(self, entry: PodEntry) -> None:
        self._dirty = True
        self._entries[entry.key] = entry
        index = entry.pod_class.index
        if index not in self._pods_of:
            for resource in entry.pod_class.request:
                self._asked[resource] = self._asked.get(resource, 0) + 1
        self._pods_of[index] = self._pods_of.get(index, 0) + 1
        if entry.seat:
            seat = self._seat(entry.seat)
            seat.pods[entry.key] = entry
            seat.counts[index] = seat.counts.get(index, 0) + 1
            seat.rows = None
            self._homeless_count += seat.node is None
        elif self._waits(entry):
            queue = self._waiting.setdefault(index, Queue())
            queue.pods[entry.key] = entry
            queue.frozen = None
        else:
            self._others[entry.state] = self._others.get(entry.state, 0) + 1

    def _remove(self, entry: PodEntry) -> None:
        self._dirty = True
        del self._entries[entry.key]
        self._newly.discard(entry.key)
        index = entry.pod_class.index
        _take_one(self._pods_of, index)
        if index not in self._pods_of:
            for resource in entry.pod_class.request:
                _take_one(self._asked, resource)
        if entry.seat:
            seat = self._seats[entry.seat]
            del seat.pods[entry.key]
            _take_one(seat.counts, index)
            seat.rows = None
            self._homeless_count -= seat.node is None
            if seat.node is None and not seat.pods:
                del self._seats[entry.seat]
        elif self._waits(entry):
            queue = self._waiting[index]
            del queue.pods[entry.key]
            queue.frozen = None
            if not queue.pods:
                del self._waiting[index]
        else:
            _take_one(self._others, entry.state)

    # Reading

    def freeze(self) -> Cluster:
        """The cluster as it is now; where nothing changed, the same value as last time."""
        if self._last is None or self._dirty:
            self._last = self._made()
            self._dirty = False
            self.generation += 1
        self._newly.clear()
        return self._last

    def forget_unused(self) -> None:
        """Forget classes that no pod has and that nobody asked for lately; `freeze` does it when there are many."""
        self.classes.retire(self._pods_of.keys())

    def _made(self) -> Cluster:
        if self.classes.live > 2 * len(self._pods_of) + _SPARE_CLASSES:
            self.forget_unused()  # every rollout makes new classes, for ever
        nodes, request, rows = self._nodes.freeze(self._seats, self.classes, self._asked)
        return Cluster(
            nodes=nodes,
            classes=nodes.classes,
            request=request,
            pods=tuple(each.pods for each in rows),
            pending=self._freeze_pending(),
            others=dict(sorted(self._others.items())),
            homeless=self._freeze_homeless(),
        )

    def _freeze_pending(self) -> tuple[PendingClass, ...]:
        pending = [queue.freeze(self.classes.at(index)) for index, queue in self._waiting.items()]
        return tuple(sorted(pending, key=lambda each: each.pods[0].key))

    def _freeze_homeless(self) -> tuple[PodEntry, ...]:
        if not self._homeless_count:
            return ()
        seats = [seat for seat in self._seats.values() if seat.node is None]
        return tuple(sorted((entry for seat in seats for entry in seat.pods.values()), key=lambda entry: entry.key))


def _kept_status(status: PodStatus, *, placed: bool) -> PodStatus:
    """What placement reads of a status: the scheduler's words about a pod that has no node."""
    waiting = None if placed else scheduled_condition(status)
    return PodStatus(
        phase=intern(status.phase),
        conditions=None if waiting is None else (waiting,),
        nominated_node_name=status.nominated_node_name,
    )


def placed_alike(before: Pod, now: Pod) -> bool:
    """Whether the same admitted pod stands as it did for placement: most changes are of what placement never reads."""
    if not (isinstance(before, AdmittedPod) and isinstance(now, AdmittedPod)):
        return False
    old, new = before.metadata, now.metadata
    return (
        before.pod_class is now.pod_class
        and before.spec is now.spec
        and before.status == now.status
        and (old.uid, old.deletion_timestamp, old.deletion_grace_period_seconds)
        == (new.uid, new.deletion_timestamp, new.deletion_grace_period_seconds)
    )


Name = TypeVar("Name", bound=Hashable)


def _take_one(counts: dict[Name, int], name: Name) -> None:
    """One less of `name`; nothing is kept of what is no more."""
    if counts[name] == 1:
        del counts[name]
    else:
        counts[name] -= 1


def _shared_owners(owners: tuple[OwnerReference, ...], controller: OwnerReference | None) -> tuple[OwnerReference, ...]:
    return (controller,) if controller is not None and len(owners) == 1 and owners[0] == controller else owners
