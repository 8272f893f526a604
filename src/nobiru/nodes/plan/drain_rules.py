"""Whether a pod may be moved off its node: one ordered table of rules, the first verdict wins.

It refuses to know: room on other nodes, rights, time except a pod's own age and deletion.
Invariant: a verdict is of a class, so thousands of equal pods are judged once; only a block that ends with age, and a
deletion that hangs, look at the pod itself.
Source: cluster-autoscaler 1.36 simulator/drainability/rules; differs: safe-to-evict "false" and local storage stand before
the kube-system rule, which there lets a pod older than an hour go whatever else it asks for; a pod covered by several
budgets blocks, since the API server refuses every eviction of it.
"""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from nobiru.kernel.objects import Volume
from nobiru.kernel.reason import BlockingPodReason
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import Controller, Snapshot
from nobiru.nodes.plan.disruption import KIND as BUDGETS_KIND
from nobiru.nodes.plan.disruption import Budgets
from nobiru.placement.classes import PodClass
from nobiru.placement.entries import PodEntry

_PREFIX = "cluster-autoscaler.kubernetes.io/"
SAFE_TO_EVICT = _PREFIX + "safe-to-evict"
SAFE_LOCAL_VOLUMES = _PREFIX + "safe-to-evict-local-volumes"
DAEMON_POD = _PREFIX + "daemonset-pod"
SYSTEM_NAMESPACE = "kube-system"

# Kinds whose pods somebody creates again; a pod of another kind's counts as not replicated while
# --skip-nodes-with-custom-controller-pods holds.
REPLICATED_KINDS = frozenset({"ReplicationController", "ReplicaSet", "Job", "StatefulSet"})
_SCALED_KINDS = frozenset({"ReplicationController", "ReplicaSet"})

GRACE_MS_DEFAULT = 30_000  # core/v1 DefaultTerminationGracePeriodSeconds
LONG_TERMINATING_MS = 30_000  # cluster-autoscaler utils/drain PodLongTerminatingExtraThreshold

# Releases of Cluster Autoscaler, as --compat-version names them, since which a rule is as it is here.
_SYSTEM_PODS_AGE = (1, 33)
_LOCAL_VOLUMES = (1, 3)


class Verdict(Struct, frozen=True, kw_only=True):
    """What a drain does with a pod.

    "skip": as if it were not there; "daemon": never keeps a node, evicted only where DaemonSet pods are; "move": evicted
    and planned for elsewhere; "block": keeps the node, until the pod is `until_age_ms` old where that is set.
    """

    kind: Literal["skip", "daemon", "move", "block"]
    reason: BlockingPodReason | None = None
    detail: str = ""
    until_age_ms: int | None = None


SKIP = Verdict(kind="skip")
DAEMON = Verdict(kind="daemon")
MOVE = Verdict(kind="move")


class Subject(Struct, frozen=True, kw_only=True):
    """A class of pods, and all that the rules may look at."""

    pod_class: PodClass
    budgets: Budgets
    config: NodesConfig
    controllers: dict[str, Controller] | None
    unreadable_kinds: frozenset[str]
    budgets_readable: bool

    @property
    def safe_to_evict(self) -> str:
        return self.pod_class.annotations.get(SAFE_TO_EVICT, "")


def _block(reason: BlockingPodReason, detail: str = "", until_age_ms: int | None = None) -> Verdict:
    return Verdict(kind="block", reason=reason, detail=detail, until_age_ms=until_age_ms)


def _mirror(subject: Subject) -> Verdict | None:
    """A static pod goes with its node."""
    return SKIP if subject.pod_class.mirror else None


def _controller(subject: Subject) -> Verdict | None:
    """A controller that is gone, or keeps fewer replicas than wanted, blocks; one that cannot be read is taken to exist."""
    owner = subject.pod_class.owner
    if owner is None or owner.kind not in REPLICATED_KINDS:
        return None
    if not subject.config.scale_down.skip_nodes_with_custom_controller_pods:
        return None
    if subject.controllers is None or owner.kind in subject.unreadable_kinds:
        return None
    found = subject.controllers.get(owner.uid)
    if found is None:
        return _block(BlockingPodReason.CONTROLLER_NOT_FOUND, f"{owner.kind} {owner.name}")
    least = subject.config.scale_down.min_replica_count
    if owner.kind in _SCALED_KINDS and found.replicas < least:
        detail = f"{owner.kind} {owner.name} has {found.replicas} of at least {least}"
        return _block(BlockingPodReason.MIN_REPLICAS_REACHED, detail)
    return None


def _daemon(subject: Subject) -> Verdict | None:
    pod_class = subject.pod_class
    return DAEMON if pod_class.daemon or pod_class.annotations.get(DAEMON_POD) == "true" else None


def _safe(subject: Subject) -> Verdict | None:
    return MOVE if subject.safe_to_evict == "true" else None


def _on_completion(subject: Subject) -> Verdict | None:
    """A finished pod occupies no node, so whoever is seen here has not finished."""
    return _block(BlockingPodReason.ON_COMPLETION) if subject.safe_to_evict == "on-completion" else None


def _replicated(subject: Subject) -> Verdict | None:
    owner = subject.pod_class.owner
    if owner is None:
        return _block(BlockingPodReason.NOT_REPLICATED)
    if owner.kind not in REPLICATED_KINDS and subject.config.scale_down.skip_nodes_with_custom_controller_pods:
        return _block(BlockingPodReason.NOT_REPLICATED, f"{owner.kind} {owner.name}")
    return None


def _not_safe(subject: Subject) -> Verdict | None:
    return _block(BlockingPodReason.NOT_SAFE_TO_EVICT) if subject.safe_to_evict == "false" else None


def _local_storage(subject: Subject) -> Verdict | None:
    """hostPath, or emptyDir on disk, that no annotation lets go; release 1.2 knew neither annotation nor memory."""
    if not subject.config.scale_down.skip_nodes_with_local_storage:
        return None
    old = subject.config.compat < _LOCAL_VOLUMES
    listed = "" if old else subject.pod_class.annotations.get(SAFE_LOCAL_VOLUMES, "")
    released = {name.strip() for name in listed.split(",")}
    kept = [
        volume.name
        for volume in subject.pod_class.spec.volumes or ()
        if _is_local(volume, in_memory=old) and volume.name not in released
    ]
    return _block(BlockingPodReason.LOCAL_STORAGE_REQUESTED, ", ".join(sorted(kept))) if kept else None


def _is_local(volume: Volume, *, in_memory: bool) -> bool:
    """Whether the volume keeps data on the node; `in_memory` counts an emptyDir in memory too."""
    if volume.empty_dir is not None:
        return in_memory or volume.empty_dir.medium != "Memory"
    return volume.host_path is not None


def _system(subject: Subject) -> Verdict | None:
    """A kube-system pod that no budget protects is let alone until it is old enough; budgets nobody can read protect none."""
    scale_down = subject.config.scale_down
    if subject.pod_class.namespace != SYSTEM_NAMESPACE or not scale_down.skip_nodes_with_system_pods:
        return None
    if subject.budgets_readable and subject.budgets.of(subject.pod_class.index):
        return None
    age_ms = scale_down.blocking_system_pod_timeout_ms if subject.config.compat >= _SYSTEM_PODS_AGE else None
    return _block(BlockingPodReason.UNMOVABLE_KUBE_SYSTEM_POD, until_age_ms=age_ms)


def _budget(subject: Subject) -> Verdict | None:
    numbers = subject.budgets.of(subject.pod_class.index)
    if len(numbers) > 1:
        detail = f"the API server evicts no pod with several budgets: {subject.budgets.names(numbers)}"
        return _block(BlockingPodReason.NOT_ENOUGH_PDB, detail)
    spent = [number for number in numbers if subject.budgets.allowed[number] < 1]
    return _block(BlockingPodReason.NOT_ENOUGH_PDB, subject.budgets.names(spent)) if spent else None


# The order is the meaning.  Two of Cluster Autoscaler's rules have no line: a pod whose deletion hangs is told from the pod
# itself (`verdict_of`), and a finished pod occupies no node.
RULES: tuple[Callable[[Subject], Verdict | None], ...] = (
    _mirror,
    _controller,
    _daemon,
    _safe,
    _on_completion,
    _replicated,
    _not_safe,
    _local_storage,
    _system,
    _budget,
)


def judge_class(subject: Subject) -> Verdict:
    """The verdict on the pods of a class: the first rule's that has one, else they may move."""
    return next((verdict for rule in RULES if (verdict := rule(subject)) is not None), MOVE)


def subject_of(snap: Snapshot, budgets: Budgets, config: NodesConfig, class_index: int) -> Subject:
    """A class of the Snapshot with what the rules may look at."""
    return Subject(
        pod_class=snap.cluster.classes[class_index],
        budgets=budgets,
        config=config,
        controllers=snap.controllers,
        unreadable_kinds=snap.unreadable_owner_kinds,
        budgets_readable=BUDGETS_KIND not in snap.rights.unreadable,
    )


def verdict_of(pod: PodEntry, of_class: Verdict, now_ms: int) -> Verdict:
    """The verdict on one pod, given its class's."""
    if of_class.kind == "skip" or is_long_terminating(pod, now_ms):
        return SKIP
    if of_class.until_age_ms is not None and now_ms - pod.created_ms >= of_class.until_age_ms:
        return MOVE
    return of_class


def grace_ms(pod_class: PodClass) -> int:
    """The grace that a pod of the class asks for."""
    seconds = pod_class.spec.termination_grace_period_seconds
    return GRACE_MS_DEFAULT if seconds is None else seconds * 1000


def is_long_terminating(pod: PodEntry, now_ms: int) -> bool:
    """Whether the pod should be long gone: nobody waits for it, and it takes no room.

    Source: cluster-autoscaler 1.36 utils/drain IsPodLongTerminating: its grace once more after the deletion's own end.
    """
    return bool(pod.deleted_ms) and now_ms > pod.deleted_ms + grace_ms(pod.pod_class) + LONG_TERMINATING_MS
