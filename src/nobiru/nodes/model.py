"""The values that flow through the node autoscaler: Snapshot -> Plan -> Outcomes, and the Memory between loops.

::

    observe -> snapshot -> decide -> act -> report

A Snapshot holds read-only arrays; a Plan holds ids, ints, tuples and dicts only, so that `==`, JSON and diff just work.
Invariant: nothing here does anything; an Action is one bounded call that `act` carries out.
"""

from typing import Literal

from msgspec import Struct, field

from nobiru.kernel.cloud import GroupName, Instance, NodeGroup
from nobiru.kernel.objects import Key, PodDisruptionBudget, Taint
from nobiru.kernel.reason import BlockingPodReason, Why
from nobiru.placement.classes import PodClass
from nobiru.placement.columns import Cluster

NodeName = str
InstanceId = str


class Value(Struct, frozen=True, kw_only=True):
    """A plain value."""


# What is known


class Rights(Value, frozen=True, kw_only=True):
    """What the program may do, as the API server and AWS said themselves.

    `evict`, `update_nodes`: SelfSubjectAccessReview; True while nothing is known, since a refused call corrects it.
    `denied_aws`: IAM actions that were refused, such as "autoscaling:DescribeScalingActivities".
    `unreadable`: kinds whose list the API server refuses, such as "poddisruptionbudgets".
    """

    evict: bool = True
    update_nodes: bool = True
    denied_aws: frozenset[str] = frozenset()
    unreadable: frozenset[str] = frozenset()


class Freshness(Value, frozen=True, kw_only=True):
    """How old knowledge is, in milliseconds; a cache that never synced has no age and makes no Snapshot."""

    kube_age_ms: int = 0
    cloud_age_ms: int = 0


class Controller(Value, frozen=True, kw_only=True):
    """What drain rules and missing replicas need of a pod's controller."""

    kind: str
    key: Key
    uid: str
    replicas: int  # wanted
    existing: int  # replicas that exist
    stuck: bool = False  # it cannot create what it lacks: a quota or an admission webhook refuses


class Demand(Value, frozen=True, kw_only=True):
    """Replicas that a controller with pending pods has not created yet: they count as pending pods of that class."""

    pod_class: PodClass
    count: int


class DaemonPod(Value, frozen=True, kw_only=True):
    """What one DaemonSet would put on a node."""

    key: Key
    pod_class: PodClass


class Snapshot(Value, frozen=True, kw_only=True):
    """The world at one moment, complete: `decide` needs nothing else."""

    now_ms: int
    cluster: Cluster
    groups: tuple[NodeGroup, ...]  # by name
    other_groups: dict[GroupName, Why] = {}  # found but left alone: another cluster's
    group_problem: str = ""  # one line where no group may be used at all
    budgets: tuple[PodDisruptionBudget, ...] = ()
    controllers: dict[str, Controller] | None = None  # by uid; None: those kinds cannot be read
    unreadable_owner_kinds: frozenset[str] = frozenset()
    missing: tuple[Demand, ...] = ()
    daemons: tuple[DaemonPod, ...] = ()
    rights: Rights = Rights()
    freshness: Freshness = Freshness()
    paused: frozenset[Literal["up", "down"]] = frozenset()
    pause_problem: str = ""  # one line where the pause annotation says nothing that is known
    identity: str = ""  # ours, as in nobiru.io/marked-by


# What is remembered


class Backoff(Value, frozen=True, kw_only=True):
    """A group that failed and is left alone until `until_ms`."""

    until_ms: int
    duration_ms: int
    failed_ms: int
    code: str  # CA's failure reason: "apiCallError", "timeout", "placeholder-cannot-be-fulfilled" ...
    message: str  # the cloud's own words, at most 500 characters


class Raise(Value, frozen=True, kw_only=True):
    """A scale-up of ours that is still on its way."""

    at_ms: int
    start: int  # desired before
    target: int


class Learned(Value, frozen=True, kw_only=True):
    """What real nodes of a group showed; it corrects the template of the same identity.

    Units: amounts as `kernel.quantity.resource_amount`.
    """

    identity: str  # NodeTemplate.identity that it belongs to
    allocatable: dict[str, int]
    capacity: dict[str, int]
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    since_ms: int  # nodes created before are of another identity; 0: of this one for as long as we know


class EvictionTry(Value, frozen=True, kw_only=True):
    """The tries to evict one pod."""

    first_ms: int
    last_ms: int
    count: int
    message: str  # the last error; "" where the API server accepted it


RemovalKind = Literal["empty", "underutilized", "unready"]


class RemovalNote(Value, frozen=True, kw_only=True):
    """How far the removal of one node is; what is missing after a restart is read from the node and its pods again.

    A moment of 0 has not come yet.
    """

    begun_ms: int
    kind: RemovalKind
    draining_ms: int = 0  # the first eviction
    gone_ms: int = 0  # all pods gone: annotations that delay the deletion are waited for from here
    terminate_ms: int = 0  # the first call


class Memory(Value, frozen=True, kw_only=True):
    """What one loop hands to the next; what must survive a restart is also in the cluster (DESIGN: invariant 3)."""

    started_ms: int = 0
    loop: int = 0
    backoff: dict[GroupName, Backoff] = {}
    raises: dict[GroupName, Raise] = {}
    learned: dict[GroupName, Learned] = {}
    missing_since_ms: dict[GroupName, int] = {}  # desired above what the cloud lists, since
    unregistered_since_ms: dict[InstanceId, int] = {}
    unneeded_since_ms: dict[NodeName, int] = {}
    needed_ms: dict[NodeName, int] = {}  # last found needed while a soft taint says otherwise: older marks are void
    removing: dict[NodeName, RemovalNote] = {}
    failed_removal_ms: dict[NodeName, int] = {}
    evictions: dict[str, EvictionTry] = {}  # by pod uid
    terminated_ms: tuple[int, ...] = ()  # the last ten minutes, oldest first
    terminating: dict[InstanceId, int] = {}  # accepted by the cloud, still listed
    last_scale_up_ms: int = 0
    last_removal_ms: int = 0
    last_removal_failure_ms: int = 0
    group_scale_up_ms: dict[GroupName, int] = {}
    group_removal_ms: dict[GroupName, int] = {}
    group_removal_failure_ms: dict[GroupName, int] = {}
    refused: dict[str, int] = {}  # rights that a call found missing, by when: "create pods/eviction", IAM actions
    said: frozenset[str] = frozenset()  # what is said once


# What is decided


class RaiseDesired(Value, frozen=True, kw_only=True, tag=True):
    """Ask a group for more machines; `target` is absolute and only ever raised."""

    group: GroupName
    start: int
    target: int
    max_size: int
    pods: tuple[Key, ...] = ()
    why: str = "pending pods"  # or "below minimum size"


class MarkCandidate(Value, frozen=True, kw_only=True, tag=True):
    """Put the soft taint on a node that is unneeded since `since_ms`."""

    node: NodeName
    since_ms: int


class UnmarkCandidate(Value, frozen=True, kw_only=True, tag=True):
    """Take the soft taint off a node that is needed again."""

    node: NodeName


class BeginRemoval(Value, frozen=True, kw_only=True, tag=True):
    """Put the delete taint (and cordon) on a node that is about to go."""

    node: NodeName
    group: GroupName
    instance: InstanceId
    empty: bool
    utilization: float
    pods: tuple[Key, ...] = ()  # to move
    cordon: bool = True


class RollBack(Value, frozen=True, kw_only=True, tag=True):
    """Take our marks off a node that stays after all; a human's cordon stays."""

    node: NodeName
    group: GroupName
    why: str


class Evict(Value, frozen=True, kw_only=True, tag=True):
    """Ask the API server to evict one pod, with its PodDisruptionBudgets' consent."""

    pod: Key
    uid: str
    node: NodeName
    grace_s: int | None


class Terminate(Value, frozen=True, kw_only=True, tag=True):
    """Terminate one instance and lower its group's desired capacity with it."""

    instance: InstanceId
    group: GroupName
    node: NodeName  # "" for a machine that never became a node
    reason: Literal["empty", "underutilized", "unready", "unregistered"]


Action = RaiseDesired | MarkCandidate | UnmarkCandidate | BeginRemoval | RollBack | Evict | Terminate


class Failure(Value, frozen=True, kw_only=True):
    """A group's failure seen in this loop, for its back-off, event and metric."""

    group: GroupName
    code: str
    message: str
    count: int  # machines that did not come


class GroupReport(Value, frozen=True, kw_only=True):
    """How one group stands, for the status ConfigMap and the metrics."""

    name: GroupName
    min_size: int
    max_size: int
    target: int
    ready: int = 0
    unready: int = 0
    not_started: int = 0
    unregistered: int = 0
    long_unregistered: int = 0
    being_deleted: int = 0
    missing: int = 0
    healthy: bool = True
    candidates: int = 0
    scaling_up: bool = False


class PodGroupWhy(Value, frozen=True, kw_only=True):
    """Equal pods and what the plan says of them; `groups` says for each node group why it was not grown for them."""

    pods: tuple[Key, ...]
    why: Why
    groups: dict[GroupName, str] = {}
    peer_groups: dict[str, int] = {}  # CA's aggregated texts: {"Insufficient cpu": 2}


class Plan(Value, frozen=True, kw_only=True):
    """Everything one loop decided, and why everything else is left alone."""

    id: str
    now_ms: int
    actions: tuple[Action, ...] = ()
    pods: tuple[PodGroupWhy, ...] = ()
    groups: dict[GroupName, Why] = {}
    nodes: dict[NodeName, Why] = {}
    blocking: dict[NodeName, tuple[Key, BlockingPodReason]] = {}
    failures: tuple[Failure, ...] = ()
    reports: tuple[GroupReport, ...] = ()
    healthy: bool = True
    unneeded: tuple[NodeName, ...] = ()
    notes: tuple[str, ...] = ()  # lines said once: missing rights, warnings on tags, problems of groups
    problems: tuple[str, ...] = ()  # those of them about groups that cannot be used
    wake_at_ms: int | None = None
    memory: Memory = field(default_factory=Memory)


class Outcome(Value, frozen=True, kw_only=True):
    """How one Action went; an error is the world's own text."""

    action: Action
    error: str = ""
    code: str = ""  # the error's class: "CloudThrottled", "KubeConflict" ...
    denied: str = ""  # the right that was refused
    reached: int | None = None  # RaiseDesired: desired capacity read back
    retry_after_ms: int | None = None

    @property
    def ok(self) -> bool:
        return not self.error


def instance_of(group: NodeGroup, instance_id: InstanceId) -> Instance | None:
    """The group's instance of that id, if the cloud lists it."""
    return next((instance for instance in group.instances if instance.id == instance_id), None)
