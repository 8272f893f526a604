"""The closed list of why-nots: every pod, node and group that a plan leaves alone has one of these, with its sentence.

`explain`, events, the journal, logs and metrics all speak from here.  Where Cluster Autoscaler has a name for the same
reason, `peer` carries it, so that its alerts and dashboards keep working.  Invariant: a Reason is never shown without its facts.
"""

from enum import Enum

from msgspec import Struct


class Reason(Enum):
    """Why something was left alone: (sentence, the peer's word or text where it has one)."""

    # Pods
    FITS_ON_EXISTING_NODE = ("the pod fits on a node that exists; the scheduler will place it", "")
    FITS_ON_UPCOMING_NODE = ("the pod fits on a machine that is already starting", "")
    NODE_GROUP_GROWS = ("a node group is being grown for it", "")
    NO_GROUP_FITS = ("no node group could host the pod on a new node", "")
    NO_GROUP_CAN_GROW = ("node groups that could host the pod cannot grow now", "")
    NO_GROUPS = ("no node group is known", "")
    EXPENDABLE = ("its priority is below --expendable-pods-priority-cutoff", "")
    DAEMON_POD = ("a DaemonSet pod never causes a new node", "")
    TOO_YOUNG = ("the pod is younger than the wanted delay", "")
    NOT_PLANNED = ("the pod uses a rule that is not planned for", "")
    OTHER_SCHEDULER = ("the pod belongs to a scheduler that is not ours", "")
    POD_BEING_DELETED = ("the pod is being deleted", "")
    MAX_NODES_TOTAL = ("the cluster has --max-nodes-total nodes", "max total nodes in cluster reached")
    UNKNOWN_MACHINE = ("the machine's node did not appear yet", "")

    # Groups
    NO_PENDING_POD = ("no pending pod needs it", "")
    NO_PENDING_POD_FITS = ("no pending pod fits on a new node of the group", "")
    NOT_CHOSEN_BY_EXPANDER = ("the expander chose another group", "")
    GROUP_AT_MAX_SIZE = ("the group is at its maximum size", "max node group size reached")
    GROUP_BACKOFF = ("the group failed recently and is left alone for a while", "in backoff after failed scale-up")
    GROUP_NOT_READY = ("too many of the group's nodes are not ready", "not ready for scale-up")
    GROUP_PROBLEM = ("the group cannot be used", "")
    NO_TEMPLATE = ("nothing says what a new node of the group would be", "")
    LAUNCH_SUSPENDED = ("the group's Launch process is suspended", "")
    RESOURCE_LIMIT = ("a cluster-wide limit of cores or memory would be passed", "exceeded quota")
    OTHER_CLUSTER = ("the group's tags name another cluster", "")
    RAISE_NOT_ALLOWED = ("raising desired capacity is refused by IAM", "")

    # Nodes
    NOT_AUTOSCALED = ("the node belongs to no node group", "NotAutoscaled")
    SCALE_DOWN_DISABLED = ("the node is annotated scale-down-disabled", "ScaleDownDisabledAnnotation")
    NOT_UNDERUTILIZED = ("the node is used above the threshold", "NotUnderutilized")
    NOT_UNNEEDED_LONG_ENOUGH = ("the node is not unneeded for long enough", "NotUnneededLongEnough")
    NOT_UNREADY_LONG_ENOUGH = ("the node is not unready for long enough", "NotUnreadyLongEnough")
    SCALE_DOWN_UNREADY_DISABLED = ("unready nodes are not removed by configuration", "ScaleDownUnreadyDisabled")
    GROUP_AT_MIN_SIZE = ("the group is at its minimum size", "NodeGroupMinSizeReached")
    DELETION_BUDGET = ("as many nodes as allowed are already being removed", "NodeGroupMaxDeletionCountReached")
    MINIMAL_RESOURCE_LIMIT = (
        "a cluster-wide minimum of cores or memory would be undercut",
        "MinimalResourceLimitExceeded",
    )
    BEING_DELETED = ("the node is being removed", "CurrentlyBeingDeleted")
    NO_PLACE_TO_MOVE_PODS = ("its pods fit nowhere else", "NoPlaceToMovePods")
    BLOCKED_BY_POD = ("a pod on it must not be moved", "BlockedByPod")
    TOOK_PODS = ("pods of removed nodes are planned onto it", "NotUnneededOtherReason")
    EVICTION_NOT_ALLOWED = ("its pods cannot be moved: the right to create pods/eviction is missing", "UnexpectedError")
    NODE_UPDATE_NOT_ALLOWED = ("the node cannot be marked: the right to patch nodes is missing", "UnexpectedError")
    TERMINATE_NOT_ALLOWED = ("terminating instances is refused by IAM", "UnexpectedError")
    NO_ALLOCATABLE = ("the node reports no allocatable cpu or memory", "UnexpectedError")
    UNREADY_STARTING = ("the node is still starting", "NotUnneededOtherReason")
    RECENTLY_UNREMOVABLE = ("removing the node failed recently", "RecentlyUnremovable")
    COOLDOWN = ("scale-down waits after a scale-up, a removal or a failure", "")
    NEEDED_FOR_PENDING = ("pending pods are planned onto it", "NotUnneededOtherReason")
    SCALE_DOWN_OFF = ("scale-down is switched off", "")
    PAUSED = ("the pause annotation on the status ConfigMap stops it", "")
    STALE_KNOWLEDGE = ("what is known of the cluster or the cloud is too old", "")
    BRAKE = ("as many instances as allowed were terminated in the last ten minutes", "")
    CLUSTER_UNHEALTHY = ("too many nodes of the cluster are not ready", "")

    @property
    def sentence(self) -> str:
        return self.value[0]

    @property
    def peer(self) -> str:
        """Cluster Autoscaler's own word or text for it; "" where it has none."""
        return self.value[1]


class BlockingPodReason(Enum):
    """Why a pod must not be moved; names and meaning as Cluster Autoscaler's, `sentence` is ours."""

    CONTROLLER_NOT_FOUND = ("ControllerNotFound", "its controller does not exist")
    MIN_REPLICAS_REACHED = ("MinReplicasReached", "its controller has fewer replicas than --min-replica-count")
    NOT_REPLICATED = ("NotReplicated", "no controller would create it again")
    LOCAL_STORAGE_REQUESTED = ("LocalStorageRequested", "it keeps data on the node")
    NOT_SAFE_TO_EVICT = ("NotSafeToEvictAnnotation", "it is annotated safe-to-evict: false")
    UNMOVABLE_KUBE_SYSTEM_POD = ("UnmovableKubeSystemPod", "a kube-system pod without a PodDisruptionBudget")
    NOT_ENOUGH_PDB = ("NotEnoughPdb", "its PodDisruptionBudget allows no disruption now")
    ON_COMPLETION = ("BlockedByOnCompletionPod", "it is to finish first (safe-to-evict: on-completion)")

    @property
    def peer(self) -> str:
        return self.value[0]

    @property
    def sentence(self) -> str:
        return self.value[1]


class Why(Struct, frozen=True, kw_only=True):
    """A Reason with its facts, for one pod, node or group."""

    reason: Reason
    detail: str = ""  # the numbers and names: "cpu: needs 1900m, 1780m free"

    def __str__(self) -> str:
        return f"{self.reason.sentence} ({self.detail})" if self.detail else self.reason.sentence
