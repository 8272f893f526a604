"""From what was observed to one Snapshot: joining objects, groups and rights; pure.

It refuses to know: where anything came from.  Invariant: an unreadable kind is a fact (`Rights.unreadable`), never a hole that
looks like "there are none".
"""

from collections.abc import Iterable, Mapping

import numpy as np

from nobiru.kernel.objects import ObjectMeta, Pod, Workload
from nobiru.nodes.model import Controller, DaemonPod, Demand, Value
from nobiru.placement.classes import ClassTable
from nobiru.placement.columns import Cluster

# A controller that made a pod this recently is still making more: its missing replicas count.
CREATING_MS_MAX = 5_000
# The condition that ReplicaSets and ReplicationControllers get while the API server refuses their pods.
REPLICA_FAILURE = "ReplicaFailure"
PAUSE_ANNOTATION = "nobiru.io/pause"


class Workloads(Value, frozen=True, kw_only=True):
    """The controllers of pods, by kind; a kind that cannot be read is absent."""

    by_kind: dict[str, tuple[Workload, ...]]


def wanted_replicas(kind: str, workload: Workload) -> int:
    """How many pods the controller wants to exist at once."""
    spec = workload.spec
    if kind == "Job":
        parallel = 1 if spec.parallelism is None else spec.parallelism
        if spec.completions is None:
            return parallel
        return max(0, min(parallel, spec.completions - workload.status.succeeded))
    return 1 if spec.replicas is None else spec.replicas


def controllers(workloads: Workloads) -> dict[str, Controller]:
    """Every controller by uid; DaemonSets want as many as they have."""
    return {
        each.metadata.uid: Controller(
            kind=kind,
            key=each.key,
            uid=each.metadata.uid,
            replicas=each.status.replicas if kind == "DaemonSet" else wanted_replicas(kind, each),
            existing=each.status.replicas or each.status.active,
            stuck=any(told.type == REPLICA_FAILURE and told.status == "True" for told in each.status.conditions or ()),
        )
        for kind, found in sorted(workloads.by_kind.items())
        for each in found
    }


def missing_replicas(cluster: Cluster, known: Mapping[str, Controller], now_ms: int, most: int) -> tuple[Demand, ...]:
    """Pods that controllers with fresh pending pods have not created yet, or the scheduler not seen; at most `most` of each.

    Order:   as cluster.pending; the first class of a controller gets all that it owes.
    """
    demands: list[Demand] = []
    served: set[str] = set()
    for pending in cluster.pending:
        owner = pending.pod_class.owner
        controller = known.get(owner.uid) if owner else None
        if owner is None or controller is None or controller.uid in served or pending.pod_class.daemon:
            continue
        if controller.stuck:
            continue
        newest_ms = max(pod.created_ms for pod in pending.pods)
        if now_ms - newest_ms > CREATING_MS_MAX:
            continue
        served.add(controller.uid)
        owed = controller.replicas - pods_of_owner(cluster, owner.uid)
        if owed > 0:
            demands.append(Demand(pod_class=pending.pod_class, count=min(owed, most)))
    return tuple(demands)


def pods_of_owner(cluster: Cluster, uid: str) -> int:
    """How many pods of the controller have a node or wait for one.

    Those that the scheduler has not looked at yet do not count: in a burst it refuses them one by one, and all are wanted.
    """
    rows = [each.index for each in cluster.classes if each.owner is not None and each.owner.uid == uid]
    held = cluster.held
    on_nodes = int(held.count[np.isin(held.class_index, rows)].sum())
    waiting = sum(len(each.pods) for each in cluster.pending if each.pod_class.index in rows)
    return on_nodes + waiting + sum(pod.pod_class.index in rows for pod in cluster.homeless)


def daemon_pods(daemon_sets: Iterable[Workload], table: ClassTable) -> tuple[DaemonPod, ...]:
    """What each DaemonSet would put on a new node, by key."""
    return tuple(
        DaemonPod(key=each.key, pod_class=table.intern(_daemon_pod(each)))
        for each in sorted(daemon_sets, key=lambda item: item.key)
        if each.spec.template is not None
    )


def _daemon_pod(daemon_set: Workload) -> Pod:
    template = daemon_set.spec.template
    assert template is not None
    meta = ObjectMeta(
        name=f"{daemon_set.name}-new",
        namespace=daemon_set.metadata.namespace,
        labels=template.metadata.labels,
        annotations=template.metadata.annotations,
    )
    return Pod(metadata=meta, spec=template.spec)


def paused(annotations: Mapping[str, str]) -> frozenset[str]:
    """What the pause annotation stops; anything else than up, down or all stops nothing."""
    match annotations.get(PAUSE_ANNOTATION):
        case "all":
            return frozenset({"up", "down"})
        case "up" | "down" as part:
            return frozenset({part})
    return frozenset()


def pause_problem(annotations: Mapping[str, str]) -> str:
    """One line about a pause annotation that stops nothing; "" where it is absent or understood."""
    value = annotations.get(PAUSE_ANNOTATION)
    if value is None or paused(annotations):
        return ""
    return f'annotation {PAUSE_ANNOTATION} of the status ConfigMap is "{value[:40]}" and stops nothing: say up, down or all'
