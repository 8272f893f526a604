"""What the rest of the plan reads of nodes and groups once `health` has judged them.

Invariant: NodeFact i describes column i of the Snapshot's NodeColumns.
"""

from typing import Literal

from msgspec import Struct

from nobiru.kernel.cloud import GroupName, NodeGroup
from nobiru.kernel.reason import Why
from nobiru.nodes.plan.marks import DeleteMark
from nobiru.placement.columns import TemplateNode


class NodeFact(Struct, frozen=True, kw_only=True):
    """One node as the plan sees it."""

    name: str
    group: GroupName  # "" where no group owns it
    instance: str  # instance id; "" where the provider id names none
    condition: Literal["ready", "starting", "unready"]
    unready_since_ms: int = 0
    delete_mark: DeleteMark | None = None
    candidate_since_ms: int | None = None
    instance_leaving: bool = False  # the cloud is already taking the machine away
    protected: bool = False


class GroupState(Struct, frozen=True, kw_only=True):
    """One group as the plan sees it.

    `target` is what the group is on its way to: desired capacity as the cloud says, or as we just set it, less the
    machines that we are taking away.  `upcoming` machines count as room for pending pods.
    """

    group: NodeGroup
    target: int
    ready: int = 0
    unready: int = 0
    starting: int = 0
    unregistered: int = 0
    long_unregistered: int = 0
    being_deleted: int = 0
    missing: int = 0  # wanted, but not even listed by the cloud
    upcoming: int = 0
    template: TemplateNode | None = None
    cannot_grow: Why | None = None
    healthy: bool = True

    @property
    def headroom(self) -> int:
        return max(0, min(self.group.max_size, self.group.cloud_max_size) - self.target)

    @property
    def min_size(self) -> int:
        return max(self.group.min_size, self.group.cloud_min_size)


class ClusterState(Struct, frozen=True, kw_only=True):
    """The whole, judged."""

    nodes: tuple[NodeFact, ...]
    groups: dict[GroupName, GroupState]
    healthy: bool
    ready_count: int
    unready_count: int
