"""Small worlds for the scale-down tests: nodes, pods and groups in one line each, judged by the real `assess`.

The clock stands at NOW_MS; moments are given in seconds before it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from nobiru.kernel.cloud import Instance, NodeGroup, NodeTemplate
from nobiru.kernel.objects import (
    Condition,
    Container,
    LabelSelector,
    Node,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Taint,
    Volume,
)
from nobiru.nodes.config import NodesConfig, make_config
from nobiru.nodes.model import (
    Action,
    BeginRemoval,
    Controller,
    Evict,
    Freshness,
    MarkCandidate,
    Memory,
    Rights,
    RollBack,
    Snapshot,
    Terminate,
    UnmarkCandidate,
)
from nobiru.nodes.plan.health import assess
from nobiru.nodes.plan.marks import CANDIDATE_TAINT, CORDONED_BY_US, DELETE_TAINT, MARKED_BY
from nobiru.nodes.plan.scale_down import ScaleDown, plan_scale_down
from nobiru.placement.books import Books

NOW_MS = 1_800_000_000_000
HOUR_S = 3_600
WEB = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="rs-web", controller=True)
AGENT = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="agent", uid="ds-agent", controller=True)


def owner(kind: str, name: str = "web") -> OwnerReference:
    """A controller reference whose uid follows from its kind and name."""
    return OwnerReference(kind=kind, name=name, uid=f"{kind}-{name}", controller=True)


def moment(ago_s: float) -> datetime:
    """So many seconds before now; negative ones lie ahead."""
    return datetime.fromtimestamp(NOW_MS / 1000 - ago_s, UTC)


def flags(**given: str) -> NodesConfig:
    """The configuration of flags: scale_down_enabled="false" is --scale-down-enabled=false."""
    return make_config({name.replace("_", "-"): [value] for name, value in given.items()})


def node(
    name: str,
    *,
    cpu: str = "1000m",
    memory: str = "4Gi",
    gpu: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    unready_s: int = 0,
    age_s: int = HOUR_S,
    provider_id: str | None = None,
    cordoned: bool = False,
) -> Node:
    """A node; unready since `unready_s` seconds where that is not 0."""
    amounts = {"cpu": cpu, "memory": memory, "pods": "110"} | ({"nvidia.com/gpu": gpu} if gpu else {})
    ready = Condition(
        type="Ready", status="Unknown" if unready_s else "True", last_transition_time=moment(unready_s or age_s)
    )
    return Node(
        metadata=ObjectMeta(
            name=name,
            labels={"kubernetes.io/hostname": name, **(labels or {})},
            annotations=dict(annotations or {}),
            creation_timestamp=moment(age_s),
        ),
        spec=NodeSpec(
            provider_id=f"aws:///eu-west-1a/i-{name}" if provider_id is None else provider_id,
            taints=tuple(taints),
            unschedulable=cordoned,
        ),
        status=NodeStatus(capacity=amounts, allocatable=amounts, conditions=(ready,)),
    )


def marked(base: Node, ago_s: float, *, ours: bool = True, cordoned_by_us: bool = True) -> Node:
    """The node with a delete taint of so many seconds ago, ours or Cluster Autoscaler's."""
    taint = Taint(key=DELETE_TAINT, value=str(int(NOW_MS / 1000 - ago_s)), effect="NoSchedule")
    annotations = dict(base.annotations)
    if ours:
        annotations[MARKED_BY] = "nobiru-1"
        if cordoned_by_us:
            annotations[CORDONED_BY_US] = "true"
    return replace(
        base,
        metadata=replace(base.metadata, annotations=annotations),
        spec=replace(base.spec, taints=(*base.taints, taint), unschedulable=ours and cordoned_by_us),
    )


def candidate(base: Node, ago_s: float) -> Node:
    """The node with a soft taint of so many seconds ago."""
    taint = Taint(key=CANDIDATE_TAINT, value=str(int(NOW_MS / 1000 - ago_s)), effect="PreferNoSchedule")
    return replace(base, spec=replace(base.spec, taints=(*base.taints, taint)))


def pod(
    name: str,
    on: str,
    cpu: str = "100m",
    *,
    memory: str = "64Mi",
    gpu: str = "",
    namespace: str = "default",
    by: OwnerReference | None = WEB,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    age_s: float = HOUR_S,
    deleted_s: float | None = None,
    grace_s: int | None = 30,
    deletion_grace_s: int = 30,
    priority: int | None = None,
    volumes: Sequence[Volume] = (),
    node_selector: Mapping[str, str] | None = None,
    nominated: bool = False,
) -> Pod:
    """A pod on a node; `deleted_s` ago its deletion's grace ended (negative: it will)."""
    requests = {"cpu": cpu, "memory": memory} | ({"nvidia.com/gpu": gpu} if gpu else {})
    unscheduled = Condition(type="PodScheduled", status="False", reason="Unschedulable")
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"uid-{name}",
            labels=dict(labels or {}),
            annotations=dict(annotations or {}),
            owner_references=() if by is None else (by,),
            creation_timestamp=moment(age_s),
            deletion_timestamp=None if deleted_s is None else moment(deleted_s),
            deletion_grace_period_seconds=None if deleted_s is None else deletion_grace_s,
        ),
        spec=PodSpec(
            node_name="" if nominated else on,
            priority=priority,
            termination_grace_period_seconds=grace_s,
            containers=(Container(name="c", resources=ResourceRequirements(requests=requests)),),
            volumes=tuple(volumes) or None,
            node_selector=None if node_selector is None else dict(node_selector),
        ),
        status=PodStatus(
            phase="Pending" if nominated else "Running",
            nominated_node_name=on if nominated else "",
            conditions=(unscheduled,) if nominated else None,
        ),
    )


def daemon_pod(name: str, on: str, cpu: str = "100m", **more: object) -> Pod:
    """A DaemonSet's pod."""
    return pod(name, on, cpu, by=AGENT, **more)  # type: ignore[arg-type]


def budget(
    name: str, allowed: int, *, namespace: str = "default", labels: Mapping[str, str] | None = None, stale: bool = False
) -> PodDisruptionBudget:
    """A PodDisruptionBudget over pods with these labels: None selects all of the namespace."""
    return PodDisruptionBudget(
        metadata=ObjectMeta(name=name, namespace=namespace, generation=2),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels=dict(labels) if labels else None)),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed, observed_generation=1 if stale else 2),
    )


class GroupOf(Struct, frozen=True, kw_only=True):
    """A group, and the nodes whose instances are its own."""

    name: str
    nodes: tuple[str, ...]
    min_size: int = 0
    max_size: int = 100
    desired: int | None = None
    tags: dict[str, str] = {}
    problem: str = ""
    leaving: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()  # instances without a node

    def build(self) -> NodeGroup:
        instances = tuple(
            Instance(
                id=f"i-{each}",
                zone="eu-west-1a",
                lifecycle="Terminating" if each in self.leaving else "InService",
            )
            for each in self.nodes + self.extra
        )
        return NodeGroup(
            name=self.name,
            min_size=self.min_size,
            max_size=self.max_size,
            desired=len(instances) if self.desired is None else self.desired,
            instances=instances,
            tags=self.tags,
            problem=self.problem,
            template=NodeTemplate(
                instance_type="m5.large",
                zones=("eu-west-1a",),
                labels={},
                taints=(),
                capacity={"cpu": 1000},
                allocatable={"cpu": 1000},
                source="test",
                identity="test",
            ),
        )


def group(name: str, nodes: str = "", **more: object) -> GroupOf:
    """A group of the nodes named in one text: group("g", "a b", min_size=1)."""
    return GroupOf(name=name, nodes=tuple(nodes.split()), **more)  # type: ignore[arg-type]


class World(Struct, frozen=True, kw_only=True):
    """Everything a plan is made from."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...] = ()
    groups: tuple[GroupOf, ...] | None = None  # None: one group "g" of all nodes
    budgets: tuple[PodDisruptionBudget, ...] = ()
    controllers: dict[str, Controller] | None = None
    unreadable_owner_kinds: frozenset[str] = frozenset()
    rights: Rights = Rights()
    freshness: Freshness = Freshness()
    paused: frozenset[str] = frozenset()
    group_problem: str = ""
    memory: Memory = Memory()
    needed: frozenset[str] = frozenset()
    scaled_up: bool = False
    now_ms: int = NOW_MS

    def snapshot(self) -> Snapshot:
        """The Snapshot, by way of the real books."""
        books = Books()
        for each in self.nodes:
            books.upsert_node(each)
        for one in self.pods:
            books.upsert_pod(one)
        groups = self.groups
        if groups is None:
            groups = (GroupOf(name="g", nodes=tuple(sorted(each.name for each in self.nodes))),)
        return Snapshot(
            now_ms=self.now_ms,
            cluster=books.freeze(),
            groups=tuple(sorted((each.build() for each in groups), key=lambda each: each.name)),
            group_problem=self.group_problem,
            budgets=self.budgets,
            controllers=self.controllers,
            unreadable_owner_kinds=self.unreadable_owner_kinds,
            rights=self.rights,
            freshness=self.freshness,
            paused=self.paused,  # type: ignore[arg-type]
            identity="nobiru-1",
        )


def world(nodes: Iterable[Node], pods: Iterable[Pod] = (), **more: object) -> World:
    """A world of these."""
    return World(nodes=tuple(nodes), pods=tuple(pods), **more)  # type: ignore[arg-type]


def plan(given: World, config: NodesConfig | None = None) -> ScaleDown:
    """The plan for a world, judged first as `decide` does."""
    config = config or flags()
    snap = given.snapshot()
    assessment = assess(snap, given.memory, config)
    return plan_scale_down(
        snap,
        assessment.state,
        assessment.memory,
        config,
        free=snap.cluster.nodes.free,
        needed=frozenset(snap.cluster.nodes.index[name] for name in given.needed),
        scaled_up=given.scaled_up,
    )


def unneeded(**ago_s: float) -> Memory:
    """A Memory in which nodes are unneeded since so many seconds."""
    return Memory(unneeded_since_ms={name: NOW_MS - round(ago * 1000) for name, ago in ago_s.items()})


def due(*names: str) -> Memory:
    """A Memory in which these nodes are unneeded for an hour."""
    return Memory(unneeded_since_ms=dict.fromkeys(names, NOW_MS - HOUR_S * 1000))


def acts(actions: Iterable[Action]) -> list[str]:
    """Actions as short texts."""
    return [_act(action) for action in actions]


def _act(action: Action) -> str:
    match action:
        case BeginRemoval(node=name, empty=empty, pods=pods):
            return f"begin {name} " + ("empty" if empty else "moving " + " ".join(key[1] for key in pods))
        case RollBack(node=name):
            return f"back {name}"
        case Evict(pod=key, node=name, grace_s=grace_s):
            return f"evict {key[1]} off {name} {grace_s}s"
        case Terminate(node=name, instance=instance, reason=reason):
            assert instance == f"i-{name}"
            return f"terminate {name} {reason}"
        case MarkCandidate(node=name, since_ms=since_ms):
            return f"mark {name} {(NOW_MS - since_ms) // 1000}s"
        case UnmarkCandidate(node=name):
            return f"unmark {name}"
        case _:
            raise AssertionError(f"a scale-down plan never has {action}")


def reasons(given: ScaleDown) -> dict[str, str]:
    """Why each node is left alone, by the Reasons' names."""
    return {name: why.reason.name for name, why in given.nodes.items()}
