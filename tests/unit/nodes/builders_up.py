"""Small worlds for health and scale-up: pending pods, groups with templates, one line each."""

from collections.abc import Mapping, Sequence

from nobiru.kernel.cloud import Activity, Instance, NodeGroup, NodeTemplate
from nobiru.kernel.objects import Condition, Node, OwnerReference, Pod, PodSpec, PodStatus, Taint, Toleration
from nobiru.kernel.quantity import resource_amount
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import Memory, Plan, RaiseDesired, Snapshot
from nobiru.nodes.plan.decide import decide
from nobiru.placement.books import Books
from tests.unit.nodes.builders_down import NOW_MS, flags, moment
from tests.unit.nodes.builders_down import pod as placed_pod


def pending(
    name: str,
    cpu: str = "500m",
    *,
    memory: str = "64Mi",
    by: OwnerReference | None = None,
    priority: int | None = None,
    selector: Mapping[str, str] | None = None,
    tolerations: Sequence[Toleration] = (),
    gpu: str = "",
    age_s: float = 60,
    annotations: Mapping[str, str] | None = None,
    reason: str = "Unschedulable",
) -> Pod:
    """A pod that the scheduler found no node for."""
    base = placed_pod(name, "", cpu, memory=memory, by=by, gpu=gpu, annotations=annotations, age_s=age_s)
    spec = PodSpec(
        containers=base.spec.containers,
        priority=priority,
        node_selector=dict(selector) if selector else None,
        tolerations=tuple(tolerations) or None,
    )
    condition = Condition(type="PodScheduled", status="False", reason=reason, last_transition_time=moment(age_s))
    return Pod(metadata=base.metadata, spec=spec, status=PodStatus(phase="Pending", conditions=(condition,)))


def template(
    cpu: str = "1000m",
    memory: str = "4Gi",
    *,
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    identity: str = "v1",
    instance_type: str = "m5.large",
    more: Mapping[str, int] | None = None,
) -> NodeTemplate:
    amounts = {
        "cpu": resource_amount("cpu", cpu),
        "memory": resource_amount("memory", memory),
        "pods": pods,
        **(more or {}),
    }
    return NodeTemplate(
        instance_type=instance_type,
        zones=("eu-west-1a",),
        labels=dict(labels or {}),
        taints=tuple(taints),
        capacity=amounts,
        allocatable=amounts,
        source="a launch configuration",
        identity=identity,
    )


def group(
    name: str,
    desired: int = 0,
    max_size: int = 9,
    *,
    min_size: int = 0,
    nodes: Sequence[str] = (),
    booting: Sequence[str] = (),
    shape: NodeTemplate | None = None,
    problem: str = "",
    activities: Sequence[Activity] | None = None,
    suspended: Sequence[str] = (),
    cloud_max: int | None = None,
) -> NodeGroup:
    """A group with registered instances (named after their nodes) and booting ones."""
    instances = [Instance(id=f"i-{each}", zone="eu-west-1a", lifecycle="InService") for each in nodes]
    instances += [Instance(id=f"i-{each}", zone="eu-west-1a", lifecycle="Pending") for each in booting]
    return NodeGroup(
        name=name,
        min_size=min_size,
        max_size=max_size,
        desired=desired,
        cloud_min_size=0,
        cloud_max_size=max_size if cloud_max is None else cloud_max,
        instances=tuple(instances),
        zones=("eu-west-1a",),
        template=None if problem else shape or template(),
        problem=problem,
        activities=None if activities is None else tuple(activities),
        suspended=frozenset(suspended),
        described_ms=NOW_MS,
    )


def failed(ago_s: float, message: str = "We currently do not have sufficient m5.large capacity") -> Activity:
    return Activity(id="a", status="Failed", message=message, started_ms=int(NOW_MS - ago_s * 1000))


def world(groups: Sequence[NodeGroup], pods: Sequence[Pod], nodes: Sequence[Node] = (), **more: object) -> Snapshot:
    books = Books()
    for node in nodes:
        books.upsert_node(node)
    for pod in pods:
        books.upsert_pod(pod)
    ordered = tuple(sorted(groups, key=lambda each: each.name))
    return Snapshot(now_ms=NOW_MS, cluster=books.freeze(), groups=ordered, identity="me", **more)  # type: ignore[arg-type]


def plan_for(
    groups: Sequence[NodeGroup],
    pods: Sequence[Pod],
    nodes: Sequence[Node] = (),
    memory: Memory | None = None,
    config: NodesConfig | None = None,
    **more: object,
) -> Plan:
    return decide(world(groups, pods, nodes, **more), memory or Memory(), config or flags(expander="least-waste"))


def raises(plan: Plan) -> dict[str, int]:
    """What the plan raises, by group: the wanted desired capacity."""
    return {each.group: each.target for each in plan.actions if isinstance(each, RaiseDesired)}


def whys(plan: Plan) -> dict[str, str]:
    """The reason of every pending pod, by its name."""
    return {key[1]: told.why.reason.name for told in plan.pods for key in told.pods}


def group_whys(plan: Plan) -> dict[str, str]:
    return {name: why.reason.name for name, why in plan.groups.items()}
