"""Whether a node is ready, starting or unready, as Cluster Autoscaler judges it.

Source: cluster-autoscaler 1.36 utils/kubernetes/ready.go and clusterstate; spec: Ready=True, no DiskPressure or
NetworkUnavailable, none of their taints, no startup taint, and a GPU node only once it shows its GPUs.
"""

from typing import Literal

from msgspec import Struct

from nobiru.kernel.objects import Node, milliseconds

ConditionWord = Literal["ready", "starting", "unready"]

GPU_LABEL = "k8s.amazonaws.com/accelerator"
GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "gpu.intel.com/xe", "microsoft.com/directx")
_BAD_CONDITIONS = frozenset({"DiskPressure", "NetworkUnavailable"})
_BAD_TAINTS = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/disk-pressure",
        "node.kubernetes.io/network-unavailable",
    }
)
# Taints that say how a node stands just now; a new node of the group would not carry them.
PASSING_TAINTS = _BAD_TAINTS | frozenset(
    {
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/memory-pressure",
        "node.kubernetes.io/pid-pressure",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.cloudprovider.kubernetes.io/shutdown",
        "ToBeDeletedByClusterAutoscaler",
        "DeletionCandidateOfClusterAutoscaler",
        "NodeWithImpairedVolumes",
        "cloud.google.com/impending-node-termination",
    }
)
OLD_STARTUP_PREFIX = "ignore-taint.cluster-autoscaler.kubernetes.io/"
STARTUP_PREFIXES = ("startup-taint.cluster-autoscaler.kubernetes.io/", OLD_STARTUP_PREFIX)
STATUS_PREFIXES = ("status-taint.cluster-autoscaler.kubernetes.io/",)


class TaintRules(Struct, frozen=True, kw_only=True):
    """Which taints mean "still booting" and which say nothing about a new node."""

    startup: tuple[str, ...] = ()
    startup_prefixes: tuple[str, ...] = ()
    status: tuple[str, ...] = ()

    def is_startup(self, key: str) -> bool:
        return key in self.startup or key.startswith((*STARTUP_PREFIXES, *self.startup_prefixes))

    def kind(self, key: str) -> str:
        """What the peer's metric of taints calls it: the key itself where it is well known."""
        if key.startswith(OLD_STARTUP_PREFIX):
            return OLD_STARTUP_PREFIX
        if key in PASSING_TAINTS:
            return key
        if self.is_startup(key):
            return "startup-taint"
        return "status-taint" if key in self.status or key.startswith(STATUS_PREFIXES) else "other"

    def is_passing(self, key: str) -> bool:
        """Whether a template leaves the taint out."""
        return key in PASSING_TAINTS or key in self.status or self.is_startup(key) or key.startswith(STATUS_PREFIXES)


def _ready_since(node: Node) -> tuple[bool, int]:
    """Whether the kubelet's conditions say ready, and since when the Ready condition is what it is."""
    ready, since_ms, bad = False, 0, False
    for condition in node.status.conditions or ():
        if condition.type == "Ready":
            ready, since_ms = condition.status == "True", milliseconds(condition.last_transition_time)
        elif condition.type in _BAD_CONDITIONS and condition.status == "True":
            bad = True
    return ready and not bad, since_ms


def _waits_for_gpu(node: Node) -> bool:
    allocatable = node.status.allocatable or {}
    return GPU_LABEL in node.labels and not any(allocatable.get(name, "0") != "0" for name in GPU_RESOURCES)


def unready_since_ms(node: Node, rules: TaintRules) -> int | None:
    """Since when the node is not ready; None where it is."""
    ready, since_ms = _ready_since(node)
    booting = any(taint.key in _BAD_TAINTS or rules.is_startup(taint.key) for taint in node.taints)
    if ready and not booting and not _waits_for_gpu(node):
        return None
    created_ms = milliseconds(node.metadata.creation_timestamp)
    return max(since_ms, created_ms) if not ready else created_ms


def condition_of(node: Node, since_ms: int | None, *, now_ms: int, startup_ms_max: int) -> ConditionWord:
    """How a node stands that is not ready since `since_ms` (None: it is); younger than `startup_ms_max` it is starting."""
    if since_ms is None:
        return "ready"
    created_ms = milliseconds(node.metadata.creation_timestamp)
    return "starting" if now_ms - created_ms < startup_ms_max else "unready"
