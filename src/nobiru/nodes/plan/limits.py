"""The cluster-wide limits: --max-nodes-total, --cores-total and --memory-total.

Cluster Autoscaler counts every node of the cluster, its own and others, and the machines that are on their way.
Source: cluster-autoscaler 1.36 core/scaleup/resource, resourcequotas; nodes labelled type=virtual-kubelet do not count.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from nobiru.kernel.errors import QuantityError
from nobiru.kernel.objects import Node
from nobiru.kernel.quantity import resource_amount
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import Snapshot
from nobiru.nodes.plan.state import ClusterState, GroupState

UNLIMITED = 2**62
# The flags' defaults, 0:320000 cores and 0:6400000 GiB, are beyond any cluster: with them nothing is summed up.
_LABEL_VIRTUAL = ("type", "virtual-kubelet")


class Totals(Struct, frozen=True, kw_only=True):
    """How much more the whole cluster may have: nodes, millicores, bytes."""

    nodes_left: int
    cpu_left: int
    memory_left: int

    @classmethod
    def of(cls, snap: Snapshot, state: ClusterState, config: NodesConfig) -> "Totals":
        limits = config.limits
        on_the_way = sum(group.upcoming - group.starting for group in state.groups.values())
        total = len(snap.cluster.nodes.names) + on_the_way
        cpu, memory = capacity_total(snap, state)
        return cls(
            nodes_left=limits.max_nodes_total - total if limits.max_nodes_total > 0 else UNLIMITED,
            cpu_left=limits.cores_max * 1000 - cpu,
            memory_left=limits.memory_gib_max * 2**30 - memory,
        )

    def after(self, nodes: int, capacity: Mapping[str, int]) -> "Totals":
        """What is left once so many nodes of that capacity are there."""
        return replace(
            self,
            nodes_left=self.nodes_left - nodes,
            cpu_left=self.cpu_left - nodes * capacity.get("cpu", 0),
            memory_left=self.memory_left - nodes * capacity.get("memory", 0),
        )


def node_limit(totals: Totals, capacity: Mapping[str, int]) -> int:
    """How many more nodes of that capacity the totals allow."""
    bounds = [totals.nodes_left]
    if capacity.get("cpu"):
        bounds.append(totals.cpu_left // capacity["cpu"])
    if capacity.get("memory"):
        bounds.append(totals.memory_left // capacity["memory"])
    return max(0, min(bounds))


def short_flag(totals: Totals, capacity: Mapping[str, int]) -> str:
    """The flag whose maximum one more node of that capacity would pass, or ""."""
    if totals.cpu_left < capacity.get("cpu", 0):
        return "--cores-total"
    return "--memory-total" if totals.memory_left < capacity.get("memory", 0) else ""


def capacity_total(snap: Snapshot, state: ClusterState) -> tuple[int, int]:
    """(millicores, bytes) of all nodes and of the machines on their way."""
    cpu = memory = 0
    for node in snap.cluster.nodes.nodes:
        if node.labels.get(_LABEL_VIRTUAL[0]) != _LABEL_VIRTUAL[1]:
            cpu += node_amount(node, "cpu")
            memory += node_amount(node, "memory")
    for group in state.groups.values():
        capacity = group_capacity(group)
        cpu += (group.upcoming - group.starting) * capacity.get("cpu", 0)
        memory += (group.upcoming - group.starting) * capacity.get("memory", 0)
    return cpu, memory


def group_capacity(group: GroupState) -> dict[str, int]:
    """The capacity of a new node of the group; {} where nobody knows."""
    return group.group.template.capacity if group.group.template else {}


def node_amount(node: Node, resource: str) -> int:
    """A node's capacity of one resource; 0 where it reports none or something unreadable."""
    try:
        return resource_amount(resource, (node.status.capacity or {}).get(resource, "0"))
    except QuantityError:
        return 0
