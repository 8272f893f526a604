"""Pods and nodes for the placement tests, from the JSON that the API server would send."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from nobiru.kernel.objects import Node, Pod
from nobiru.placement.books import Books
from nobiru.placement.classes import ClassTable, PodClass
from nobiru.placement.columns import Cluster

Json = Any

REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "rs-1", "controller": True}
DAEMON_SET = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "ds-1", "controller": True}
STATEFUL_SET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "sts-1", "controller": True}
HOSTNAME = "kubernetes.io/hostname"


def container(cpu: str = "", memory: str = "", **more: Json) -> Json:
    """A container that asks for so much."""
    requests = {name: text for name, text in (("cpu", cpu), ("memory", memory)) if text}
    return {"name": "main", "resources": {"requests": requests}, **more}


def pod(
    name: str = "p",
    cpu: str = "100m",
    memory: str = "",
    *,
    node: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: Json = None,
    status: Json = None,
    meta: Json = None,
    namespace: str = "default",
    **spec: Json,
) -> Pod:
    """A pod; `spec` takes the API's own names: nodeSelector={...}."""
    value = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}",
            "creationTimestamp": "2024-05-01T10:00:00Z",
            "labels": labels or {},
            "annotations": annotations or {},
            "ownerReferences": [owner] if owner else [],
            **(meta or {}),
        },
        "spec": {"containers": [container(cpu, memory)], **({"nodeName": node} if node else {}), **spec},
        "status": status if status is not None else {"phase": "Running" if node else "Pending"},
    }
    return msgspec.convert(value, Pod)


def unschedulable(since: str = "2024-05-01T10:00:05Z") -> Json:
    """The status of a pod for which the scheduler found no node."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": since}
    return {"phase": "Pending", "conditions": [condition]}


def waiting(name: str = "p", cpu: str = "100m", memory: str = "", **more: Json) -> Pod:
    """A pod for which the scheduler found no node."""
    return pod(name, cpu, memory, status=unschedulable(), **more)


def node(
    name: str = "n",
    cpu: str = "4",
    memory: str = "16Gi",
    pods: str = "110",
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Json] = (),
    cordoned: bool = False,
    extra: Mapping[str, str] | None = None,
) -> Node:
    """A node; it carries its hostname label unless `labels` says otherwise."""
    value = {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {HOSTNAME: name, **(labels or {})}},
        "spec": {"taints": list(taints), "unschedulable": cordoned},
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": pods, **(extra or {})}},
    }
    return msgspec.convert(value, Node)


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> Json:
    return {"key": key, "value": value, "effect": effect}


def anti_affinity(topology_key: str = HOSTNAME, labels: Mapping[str, str] | None = None, **more: Json) -> Json:
    """An affinity that keeps the pod away from pods with these labels."""
    term = {"topologyKey": topology_key, "labelSelector": {"matchLabels": dict(labels or {})}, **more}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def node_affinity(*terms: Json) -> Json:
    """An affinity that requires one of the node selector terms."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def class_of(value: Pod) -> PodClass:
    """The class of one pod by itself."""
    return ClassTable().intern(value)


def books_of(*objects: Pod | Node) -> Books:
    """Books that were told of these objects in this order."""
    books = Books()
    for each in objects:
        if isinstance(each, Node):
            books.upsert_node(each)
        else:
            books.upsert_pod(books.admit(each))
    return books


def cluster_of(*objects: Pod | Node) -> Cluster:
    """The cluster of these objects."""
    return books_of(*objects).freeze()
