"""What a new node of each group would be: the cloud's template, corrected by the group's real nodes, less its DaemonSets.

The newest launch template decides the shape; real nodes of the same identity correct what no template can say
(allocatable, labels that the kubelet sets itself, taints).  Nodes of an older identity correct nothing.
Invariant: a label or taint is learned only where all of the group's real nodes agree.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from nobiru.kernel.cloud import GroupName, NodeGroup, NodeTemplate
from nobiru.kernel.errors import QuantityError
from nobiru.kernel.objects import Node, Taint, milliseconds
from nobiru.kernel.quantity import resource_amount
from nobiru.nodes.model import DaemonPod, Learned
from nobiru.nodes.plan.conditions import TaintRules
from nobiru.placement.columns import TemplateNode, columns_of_templates, resource_names
from nobiru.placement.filters import fits

# Labels that name one node rather than its kind.
_OWN_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "alpha.eksctl.io/instance-id",
        "topology.k8s.aws/zone-id",
        "cluster-autoscaler.kubernetes.io/template-node",
    }
)
_TYPE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")


class Templates(Struct, frozen=True, kw_only=True):
    """Per group the expected node, and what was learned on the way."""

    nodes: dict[GroupName, TemplateNode]
    learned: dict[GroupName, Learned]
    notes: tuple[str, ...]


def plan_templates(
    groups: Sequence[NodeGroup],
    ready_nodes: Mapping[GroupName, Sequence[Node]],
    learned: Mapping[GroupName, Learned],
    *,
    daemons: Sequence[DaemonPod],
    rules: TaintRules,
    now_ms: int,
) -> Templates:
    """The expected new node of every group that has any template.

    Order: groups as given; daemons do not change what is learned.
    """
    kept: dict[GroupName, Learned] = {}
    nodes: dict[GroupName, TemplateNode] = {}
    notes: list[str] = []
    for group in groups:
        if group.template is None:
            if group.name in learned:
                kept[group.name] = learned[group.name]
            continue
        lesson = learn(group.template, ready_nodes.get(group.name, ()), learned.get(group.name), rules, now_ms)
        if lesson:
            kept[group.name] = lesson
        nodes[group.name] = expected_node(group.name, group.template, lesson)
        notes += [f"group {group.name}: {warning}" for warning in group.template.warnings]
        notes += _disagreements(group.name, group.template, lesson)
    return Templates(nodes=with_daemons(nodes, daemons), learned=kept, notes=tuple(notes))


def _amounts(texts: Mapping[str, str] | None) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for name, text in (texts or {}).items():
        try:
            amounts[name] = resource_amount(name, text)
        except QuantityError:
            continue  # one unreadable amount on one node: the cloud's own figure stays
    return amounts


def _least(tables: Sequence[dict[str, int]]) -> dict[str, int]:
    """The smallest amount of each resource that all the tables have."""
    shared = set(tables[0]).intersection(*tables[1:])
    return {name: min(table[name] for table in tables) for name in sorted(shared)}


def learn(
    template: NodeTemplate, nodes: Sequence[Node], known: Learned | None, rules: TaintRules, now_ms: int
) -> Learned | None:
    """What the group's ready nodes of the template's identity show; what was known where there are none now.

    A change of identity forgets what was known: from then on only nodes created afterwards count.
    """
    since_ms = 0
    if known is not None:
        since_ms = known.since_ms if known.identity == template.identity else now_ms
    fresh = [node for node in nodes if milliseconds(node.metadata.creation_timestamp) >= since_ms]
    if template.instance_type:
        fresh = [node for node in fresh if _type_of(node) in ("", template.instance_type)]
    if not fresh:
        if known is not None and known.identity != template.identity:
            return Learned(
                identity=template.identity, allocatable={}, capacity={}, labels={}, taints=(), since_ms=now_ms
            )
        return known
    labels = dict(set(fresh[0].labels.items()).intersection(*(node.labels.items() for node in fresh[1:])))
    one_zone = len(template.zones) <= 1
    taints = [taint for taint in fresh[0].taints if not rules.is_passing(taint.key)]
    return Learned(
        identity=template.identity,
        allocatable=_least([_amounts(node.status.allocatable) for node in fresh]),
        capacity=_least([_amounts(node.status.capacity) for node in fresh]),
        labels={
            key: labels[key] for key in sorted(labels) if key not in _OWN_LABELS and (one_zone or "zone" not in key)
        },
        taints=tuple(taint for taint in taints if all(taint in node.taints for node in fresh)),
        since_ms=since_ms,
    )


def _type_of(node: Node) -> str:
    return next((node.labels[key] for key in _TYPE_LABELS if key in node.labels), "")


def expected_node(group: GroupName, template: NodeTemplate, lesson: Learned | None) -> TemplateNode:
    """The node that the group's next machine would become, before DaemonSets."""
    labels, taints, allocatable = dict(template.labels), template.taints, dict(template.allocatable)
    if lesson is not None and lesson.allocatable:
        # The tags' own words win over what nodes carry; nodes add what no tag says.
        labels = {**lesson.labels, **labels}
        taints = lesson.taints
        allocatable = {**allocatable, **lesson.allocatable}
    name = f"{group}-new"
    labels.setdefault("kubernetes.io/hostname", name)
    return TemplateNode(name=name, labels=labels, taints=taints, allocatable=allocatable)


def _disagreements(group: GroupName, template: NodeTemplate, lesson: Learned | None) -> list[str]:
    """Tags that promise what the group's nodes do not carry."""
    if lesson is None or not lesson.allocatable:
        return []
    missing = [taint for taint in template.taints if taint not in lesson.taints]
    return [
        f"group {group}: its tags promise taint {_taint_text(taint)}, its nodes do not carry it; the nodes are believed"
        for taint in missing
    ]


def _taint_text(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}"


def with_daemons(
    nodes: Mapping[GroupName, TemplateNode], daemons: Sequence[DaemonPod]
) -> dict[GroupName, TemplateNode]:
    """The same nodes with the requests of every DaemonSet that would run on them as overhead."""
    if not nodes or not daemons:
        return dict(nodes)
    classes = [daemon.pod_class for daemon in daemons]
    ordered = [nodes[name] for name in sorted(nodes)]
    columns = columns_of_templates(ordered, resource_names(ordered, classes))
    suits = fits(classes, columns)
    result: dict[GroupName, TemplateNode] = {}
    for column, name in enumerate(sorted(nodes)):
        overhead: dict[str, int] = {}
        for row, pod_class in enumerate(classes):
            if suits[row, column]:
                for resource, amount in pod_class.request.items():
                    overhead[resource] = overhead.get(resource, 0) + amount
        result[name] = TemplateNode(
            name=nodes[name].name,
            labels=nodes[name].labels,
            taints=nodes[name].taints,
            allocatable=nodes[name].allocatable,
            overhead=overhead,
        )
    return result
