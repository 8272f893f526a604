"""Kubernetes objects with only the fields that nobiru reads, decoded straight from the API server's JSON.

Unknown fields are skipped while decoding, so a field that is not here costs nothing.  Values are frozen and shared
freely; lists decode to tuples.  Invariant: nothing here interprets: `selector`, `placement` and the rooms do.
"""

from datetime import datetime

from msgspec import Struct, field


class Wire(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """A part of an API object: camelCase on the wire, absent fields take their defaults.

    Values decoded from JSON cannot form cycles, so the garbage collector need not look at them: a cluster has hundreds of
    thousands, and looking cost as much as decoding (2026-12).  No field may ever hold something that leads back.
    """


def milliseconds(moment: datetime | None) -> int:
    """Milliseconds since the epoch of an API timestamp; 0 where there is none."""
    return 0 if moment is None else round(moment.timestamp() * 1000)


class OwnerReference(Wire, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str
    name: str
    uid: str = ""
    controller: bool = False


class ObjectMeta(Wire, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None


Key = tuple[str, str]  # (namespace, name); the namespace is "" for cluster-scoped kinds


class KubeObject(Wire, frozen=True, kw_only=True):
    """Any object: what every kind has."""

    metadata: ObjectMeta

    @property
    def key(self) -> Key:
        return (self.metadata.namespace, self.metadata.name)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def labels(self) -> dict[str, str]:
        return self.metadata.labels or {}

    @property
    def annotations(self) -> dict[str, str]:
        return self.metadata.annotations or {}

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if one does."""
        return next((owner for owner in self.metadata.owner_references if owner.controller), None)


# Selectors


class SelectorRequirement(Wire, frozen=True, kw_only=True):
    key: str
    operator: str
    values: tuple[str, ...] | None = None


class LabelSelector(Wire, frozen=True, kw_only=True):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[SelectorRequirement, ...] | None = None


class NodeSelectorTerm(Wire, frozen=True, kw_only=True):
    match_expressions: tuple[SelectorRequirement, ...] | None = None
    match_fields: tuple[SelectorRequirement, ...] | None = None


class NodeSelector(Wire, frozen=True, kw_only=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(Wire, frozen=True, kw_only=True):
    required: NodeSelector | None = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class PodAffinityTerm(Wire, frozen=True, kw_only=True):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class PodAffinity(Wire, frozen=True, kw_only=True):
    required: tuple[PodAffinityTerm, ...] | None = field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Wire, frozen=True, kw_only=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Wire, frozen=True, kw_only=True):
    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] | None = None


# Pods


class Toleration(Wire, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class ResourceRequirements(Wire, frozen=True, kw_only=True):
    requests: dict[str, str] | None = None
    limits: dict[str, str] | None = None


class ContainerPort(Wire, frozen=True, kw_only=True):
    host_port: int = 0
    host_ip: str = field(default="", name="hostIP")
    protocol: str = "TCP"


class Container(Wire, frozen=True, kw_only=True):
    name: str = ""
    resources: ResourceRequirements | None = None
    ports: tuple[ContainerPort, ...] | None = None
    restart_policy: str = ""


class HostPathVolume(Wire, frozen=True, kw_only=True):
    path: str = ""


class EmptyDirVolume(Wire, frozen=True, kw_only=True):
    medium: str = ""


class ClaimVolume(Wire, frozen=True, kw_only=True):
    claim_name: str = ""


class EphemeralVolume(Wire, frozen=True, kw_only=True):
    pass


class Volume(Wire, frozen=True, kw_only=True):
    name: str = ""
    host_path: HostPathVolume | None = None
    empty_dir: EmptyDirVolume | None = None
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: EphemeralVolume | None = None


class SchedulingGate(Wire, frozen=True, kw_only=True):
    name: str = ""


class PodResourceClaim(Wire, frozen=True, kw_only=True):
    name: str = ""


class PodSpec(Wire, frozen=True, kw_only=True):
    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    restart_policy: str = ""
    host_network: bool = False
    termination_grace_period_seconds: int | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    overhead: dict[str, str] | None = None
    resources: ResourceRequirements | None = None
    volumes: tuple[Volume, ...] | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    resource_claims: tuple[PodResourceClaim, ...] | None = None


class Condition(Wire, frozen=True, kw_only=True):
    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class PodStatus(Wire, frozen=True, kw_only=True):
    phase: str = ""
    conditions: tuple[Condition, ...] | None = None
    nominated_node_name: str = ""


class Pod(KubeObject, frozen=True, kw_only=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


# Nodes


class Taint(Wire, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: str = ""


class NodeSpec(Wire, frozen=True, kw_only=True):
    provider_id: str = field(default="", name="providerID")
    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class NodeSystemInfo(Wire, frozen=True, kw_only=True):
    kubelet_version: str = ""
    os_image: str = ""


class NodeStatus(Wire, frozen=True, kw_only=True):
    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    conditions: tuple[Condition, ...] | None = None
    node_info: NodeSystemInfo | None = None


class Node(KubeObject, frozen=True, kw_only=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def taints(self) -> tuple[Taint, ...]:
        return self.spec.taints or ()


# Workloads: as much as drain rules, DaemonSet overhead and missing replicas need


class PodTemplate(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class WorkloadSpec(Wire, frozen=True, kw_only=True):
    """The spec of a ReplicaSet, ReplicationController, StatefulSet, DaemonSet or Job."""

    replicas: int | None = None
    parallelism: int | None = None
    completions: int | None = None
    template: PodTemplate | None = None


class WorkloadStatus(Wire, frozen=True, kw_only=True):
    replicas: int = 0
    active: int = 0
    succeeded: int = 0
    conditions: tuple[Condition, ...] | None = None


class Workload(KubeObject, frozen=True, kw_only=True):
    """A controller of pods; which kind it is, the cache that holds it knows."""

    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class PodDisruptionBudgetSpec(Wire, frozen=True, kw_only=True):
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Wire, frozen=True, kw_only=True):
    disruptions_allowed: int = 0
    observed_generation: int = 0


class PodDisruptionBudget(KubeObject, frozen=True, kw_only=True):
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class Namespace(KubeObject, frozen=True, kw_only=True):
    pass


# Storage: enough to tell a pod that waits for a volume from one that waits for a machine


class ClaimSpec(Wire, frozen=True, kw_only=True):
    volume_name: str = ""
    storage_class_name: str | None = None


class ClaimStatus(Wire, frozen=True, kw_only=True):
    phase: str = ""


class PersistentVolumeClaim(KubeObject, frozen=True, kw_only=True):
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class VolumeNodeAffinity(Wire, frozen=True, kw_only=True):
    required: NodeSelector | None = None


class PersistentVolumeSpec(Wire, frozen=True, kw_only=True):
    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolume(KubeObject, frozen=True, kw_only=True):
    spec: PersistentVolumeSpec = PersistentVolumeSpec()


# Coordination and configuration


class ConfigMap(KubeObject, frozen=True, kw_only=True):
    data: dict[str, str] | None = None


class LeaseSpec(Wire, frozen=True, kw_only=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int | None = None


class Lease(KubeObject, frozen=True, kw_only=True):
    spec: LeaseSpec = LeaseSpec()
