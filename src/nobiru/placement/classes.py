"""Pods that a scheduler cannot tell apart, as one value: the class, and the table that finds a pod's class.

It refuses to know: nodes, time, which pod is where.  Invariant: two pods of one class fit the same nodes, and the same
drain rules and budgets apply to them; what differs between pods of one workload by accident (the suffix of the token
volume, the claim a StatefulSet makes for each replica, the node a DaemonSet pod is made for) is not part of the class.
"""

from collections.abc import Collection

from msgspec import Struct, msgpack
from msgspec.structs import replace

from nobiru.kernel.objects import Affinity, NodeSelectorTerm, OwnerReference, Pod, PodSpec, Volume
from nobiru.kernel.selector import selector_matches
from nobiru.placement.requests import HostPort, effective_request, host_ports

# Annotations that change how a pod is planned for or drained: CA's own, its ProvisioningRequests', the mirror mark.
ANNOTATION_PREFIXES = ("cluster-autoscaler.kubernetes.io/", "autoscaling.x-k8s.io/")
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"

# Labels that number the replicas of one workload: with them every pod would be a class of its own.
PER_POD_LABELS = frozenset(
    {"statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index", "batch.kubernetes.io/job-completion-index"}
)
HOSTNAME = "kubernetes.io/hostname"
# The API server's ServiceAccount admission adds one volume of this name and five random characters.
_TOKEN_VOLUME = "kube-api-access-"
_TOKEN_MARK = _TOKEN_VOLUME.encode()
_TOKEN_SUFFIX_LENGTH = 5
_EVERY = "*"


class PodClass(Struct, frozen=True, kw_only=True, eq=False):
    """Pods with equal scheduling-relevant fields; two classes of one table are the same only if they are one object.

    Units:   request as kernel.quantity: cpu millicores, memory bytes, others counts; "pods" is always 1.
    `per_node_max` is 0 where any number may share a node.  `unplanned` says why pods of the class cannot be planned for
    ("" where they can); they still occupy their nodes.  `spec` has no node name; a claim's name ends in "*" where each
    replica has its own.
    """

    index: int
    namespace: str
    labels: dict[str, str]
    annotations: dict[str, str]
    owner: OwnerReference | None
    spec: PodSpec
    request: dict[str, int]
    host_ports: tuple[HostPort, ...] = ()
    priority: int | None = None
    daemon: bool = False
    mirror: bool = False
    per_node_max: int = 0
    unplanned: str = ""

    @property
    def claims(self) -> tuple[str, ...]:
        """Names of the volume claims that the pods mount; "data-*" where each replica has its own."""
        return tuple(
            volume.persistent_volume_claim.claim_name
            for volume in self.spec.volumes or ()
            if volume.persistent_volume_claim is not None
        )


class _Shape(Struct, frozen=True, kw_only=True, eq=False):
    """What follows from a spec alone."""

    spec: PodSpec
    request: dict[str, int]
    host_ports: tuple[HostPort, ...]
    unplanned: str


class ClassTable:
    """Finds the class of a pod, and makes it when the pod is the first of its kind."""

    def __init__(self) -> None:
        self._by_key: dict[bytes, PodClass] = {}
        self._classes: list[PodClass] = []
        self._keys: list[bytes] = []
        self._free: list[int] = []
        self._recent: set[int] = set()
        self._shapes: dict[bytes, _Shape] = {}
        self._encode = msgpack.Encoder(order="deterministic").encode

    def __len__(self) -> int:
        """How many indexes there are, retired ones included."""
        return len(self._classes)

    @property
    def live(self) -> int:
        """How many classes there are that are not retired."""
        return len(self._by_key)

    @property
    def classes(self) -> tuple[PodClass, ...]:
        """All classes by index; a retired one stays until its index is taken again."""
        return tuple(self._classes)

    def at(self, index: int) -> PodClass:
        """The class of that index."""
        return self._classes[index]

    def intern(self, pod: Pod) -> PodClass:
        """The pod's class.  A pod whose equal twin was seen costs a few microseconds."""
        meta, spec = pod.metadata, pod.spec
        labels = meta.labels or {}
        if not PER_POD_LABELS.isdisjoint(labels):
            labels = {key: value for key, value in labels.items() if key not in PER_POD_LABELS}
        annotations = relevant_annotations(meta.annotations)
        owner = _controller(meta.owner_references)
        if owner is not None and owner.kind == "Node":
            owner = OwnerReference(api_version=owner.api_version, kind="Node", name="", controller=True)
        if spec.node_name:
            spec = replace(spec, node_name="")
        if owner is not None and owner.kind == "DaemonSet" and spec.affinity is not None:
            spec = replace(spec, affinity=_without_own_node(spec.affinity))
        key = self._encode((meta.namespace, labels, annotations, owner, spec))
        if b"claimName" in key:
            spec = replace(spec, volumes=_shared_claims(spec.volumes or (), meta.name))
            key = self._encode((meta.namespace, labels, annotations, owner, spec))
        before, mark, after = key.partition(_TOKEN_MARK)
        if mark:
            key = before + mark + after[_TOKEN_SUFFIX_LENGTH:]
        found = self._by_key.get(key)
        if found is None:
            found = self._add(key, meta.namespace, labels, annotations, owner, spec)
        self._recent.add(found.index)
        return found

    def holds(self, pod_class: PodClass) -> bool:
        """Whether the class is this table's and not retired."""
        index = pod_class.index
        return index < len(self._classes) and self._classes[index] is pod_class and self._keys[index] != b""

    def retire(self, used: Collection[int]) -> None:
        """Forget classes not in use and not asked for since the last call; their indexes are used again."""
        gone = set(range(len(self._classes))).difference(used, self._recent, self._free)
        for index in sorted(gone):
            del self._by_key[self._keys[index]]
            self._keys[index] = b""
        self._free.extend(sorted(gone, reverse=True))
        self._recent.clear()
        kept = {id(pod_class.spec) for pod_class in self._by_key.values()}
        self._shapes = {key: shape for key, shape in self._shapes.items() if id(shape.spec) in kept}

    def _add(
        self,
        key: bytes,
        namespace: str,
        labels: dict[str, str],
        annotations: dict[str, str],
        owner: OwnerReference | None,
        spec: PodSpec,
    ) -> PodClass:
        index = self._free.pop() if self._free else len(self._classes)
        shape = self._shape(spec)
        alone = bool(shape.host_ports) or _repels_itself(namespace, labels, spec)
        made = PodClass(
            index=index,
            namespace=namespace,
            labels=labels,
            annotations=annotations,
            owner=owner,
            spec=shape.spec,
            request=shape.request,
            host_ports=shape.host_ports,
            priority=spec.priority,
            daemon=owner is not None and owner.kind == "DaemonSet",
            mirror=MIRROR_ANNOTATION in annotations,
            per_node_max=1 if alone else 0,
            unplanned=shape.unplanned,
        )
        if index == len(self._classes):
            self._classes.append(made)
            self._keys.append(key)
        else:
            self._classes[index] = made
            self._keys[index] = key
        self._by_key[key] = made
        return made

    def _shape(self, spec: PodSpec) -> _Shape:
        """What classes with this spec share: a thousand Jobs of one CronJob are a thousand classes of one shape."""
        if spec.volumes:
            spec = replace(spec, volumes=tuple(_plain_token_volume(volume) for volume in spec.volumes))
        key = self._encode(spec)
        shape = self._shapes.get(key)
        if shape is None:
            request, problem = effective_request(spec)
            shape = self._shapes[key] = _Shape(
                spec=spec, request=request, host_ports=host_ports(spec), unplanned=problem or _unplanned(spec)
            )
        return shape


def _controller(owners: tuple[OwnerReference, ...]) -> OwnerReference | None:
    for owner in owners:
        if owner.controller:
            return owner
    return None


def relevant_annotations(annotations: dict[str, str] | None) -> dict[str, str]:
    """The annotations that matter; the mirror mark without its hash, which differs per node."""
    if not annotations:
        return {}
    kept = {key: value for key, value in annotations.items() if key.startswith(ANNOTATION_PREFIXES)}
    if MIRROR_ANNOTATION in annotations:
        kept[MIRROR_ANNOTATION] = ""
    return kept


def _without_own_node(affinity: Affinity) -> Affinity | None:
    """A DaemonSet pod's affinity without the one node it was made for: as its template has it."""
    node = affinity.node_affinity
    if node is None or node.required is None:
        return affinity
    terms = tuple(
        NodeSelectorTerm(match_expressions=term.match_expressions) for term in node.required.node_selector_terms
    )
    if any(term.match_expressions for term in terms):
        required = replace(node.required, node_selector_terms=terms)
        return replace(affinity, node_affinity=replace(node, required=required))
    if affinity.pod_affinity is None and affinity.pod_anti_affinity is None:
        return None
    return replace(affinity, node_affinity=None)


def _shared_claims(volumes: tuple[Volume, ...], pod_name: str) -> tuple[Volume, ...]:
    """The volumes with "data-web-0" as "data-*" where the pod is web-0."""
    shared = []
    for volume in volumes:
        claim = volume.persistent_volume_claim
        if claim is not None and claim.claim_name.endswith(f"-{pod_name}"):
            name = claim.claim_name.removesuffix(pod_name) + _EVERY
            volume = replace(volume, persistent_volume_claim=replace(claim, claim_name=name))
        shared.append(volume)
    return tuple(shared)


def _plain_token_volume(volume: Volume) -> Volume:
    return replace(volume, name=_TOKEN_VOLUME) if volume.name.startswith(_TOKEN_VOLUME) else volume


def _unplanned(spec: PodSpec) -> str:
    """Why pods like this cannot be planned for yet, or ""."""
    if spec.resource_claims:
        return "resource claims (dynamic resource allocation)"
    affinity = spec.affinity
    if affinity is not None and affinity.pod_affinity is not None and affinity.pod_affinity.required:
        return "required pod affinity"
    for term in (affinity.pod_anti_affinity.required or ()) if affinity and affinity.pod_anti_affinity else ():
        if term.topology_key != HOSTNAME:
            return f"required pod anti-affinity over {term.topology_key}"
        if term.namespace_selector is not None or term.match_label_keys or term.mismatch_label_keys:
            return "required pod anti-affinity with namespaceSelector or label keys"
    for spread in spec.topology_spread_constraints or ():
        if spread.when_unsatisfiable == "DoNotSchedule":
            return f"topology spread over {spread.topology_key} with DoNotSchedule"
    return ""


def _repels_itself(namespace: str, labels: dict[str, str], spec: PodSpec) -> bool:
    """Whether the class has an anti-affinity over hostnames that its own labels match: at most one per node."""
    affinity = spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None:
        return False
    return any(
        term.topology_key == HOSTNAME
        and namespace in (term.namespaces or (namespace,))
        and selector_matches(term.label_selector, labels)
        for term in affinity.pod_anti_affinity.required or ()
    )
