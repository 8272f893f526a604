"""Which nodes a pod may run on, by every rule but room: one function per kube-scheduler predicate, by whole columns.

It refuses to know: how much fits (`pack`), which node is better.  Invariant: a function gives True exactly where the
scheduler's filter of that name would pass one pod of the class onto the node as it is now.
Each distinct requirement and taint set is worked out once per set of nodes and kept in `NodeColumns.memo`.
"""

from collections.abc import Hashable, Iterable, Sequence

import numpy as np
from msgspec import Struct

from nobiru.kernel.objects import NodeSelector, NodeSelectorTerm, SelectorRequirement, Taint, Toleration
from nobiru.kernel.quantity import format_amount
from nobiru.kernel.selector import requirement_matches, tolerates, untolerated
from nobiru.placement.affinity import Namespaces, attracted, repelled
from nobiru.placement.classes import PodClass
from nobiru.placement.columns import Bools, Ints, NodeColumns, in_order, label_codes, read_only, taint_codes
from nobiru.placement.requests import HostPort, ports_clash
from nobiru.placement.spread import hard_constraints, spread

UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_MASKS_MAX = 2_000  # 10 MB at 5,000 nodes; more distinct rules on unchanged nodes start afresh
_NAME_FIELD = "metadata.name"  # the only node field that matchFields may name


class Refusal(Struct, frozen=True, kw_only=True):
    """Why a node does not take a pod: kube-scheduler's own text, and the names or numbers that failed."""

    reason: str
    detail: str = ""


def fits(classes: Sequence[PodClass], nodes: NodeColumns) -> Bools:
    """Where one pod of each class may run, whatever room there is.

    Shapes:  returns (K, N) bool, rows as `classes`.
    A resource that no row names is refused here: no node has it.  A class with rules that are not planned yet fits
    nowhere, but for DaemonSets, whose room is better reserved once too often.
    """
    result = np.ones((len(classes), len(nodes)), dtype=np.bool_)
    by_rules: dict[Hashable, Bools] = {}
    for row, pod_class in enumerate(classes):
        rules = (_required(pod_class), _selector(pod_class), _tolerations(pod_class))
        mask = by_rules.get(rules)
        if mask is None:
            mask = node_affinity(pod_class, nodes) & taint_toleration(pod_class, nodes)
            mask &= node_unschedulable(pod_class, nodes)
            by_rules[rules] = mask
        result[row] = mask
        if pod_class.host_ports:
            result[row] &= node_ports(pod_class, nodes)
        if _not_planned(pod_class) or not _resources_known(pod_class, nodes):
            result[row] = False
    for kept_away in repelled(classes, nodes, {}):
        for row, mask in kept_away.items():
            result[row] &= ~mask
    return result


def _not_planned(pod_class: PodClass) -> bool:
    return bool(pod_class.unplanned) and not pod_class.daemon


def _resources_known(pod_class: PodClass, nodes: NodeColumns) -> bool:
    return all(amount <= 0 or name in nodes.resources for name, amount in pod_class.request.items())


def room(request: Ints, nodes: NodeColumns) -> Bools:
    """Where one pod of each class fits by room alone.

    Shapes:  request (K, R) int64 over nodes.resources; returns (K, N) bool.
    Source:  kubernetes 1.36 noderesources/fit.go: a resource that is not asked for is not looked at, however overdrawn.
    """
    result = np.ones((request.shape[0], len(nodes)), dtype=np.bool_)
    for row, wanted in enumerate(request):
        for resource in np.flatnonzero(wanted > 0).tolist():
            result[row] &= nodes.free[resource] >= wanted[resource]
    return result


# NodeAffinity


def _selector(pod_class: PodClass) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((pod_class.spec.node_selector or {}).items()))


def _required(pod_class: PodClass) -> NodeSelector | None:
    affinity = pod_class.spec.affinity
    return affinity.node_affinity.required if affinity is not None and affinity.node_affinity is not None else None


def node_affinity(pod_class: PodClass, nodes: NodeColumns) -> Bools:
    """Where the node selector and the required node affinity hold, (N,) bool.

    Source:  kubernetes 1.36 nodeaffinity/node_affinity.go; terms are alternatives, requirements within one all hold.
    """
    mask = np.ones(len(nodes), dtype=np.bool_)
    for key, value in _selector(pod_class):
        mask &= _requirement_mask(SelectorRequirement(key=key, operator="In", values=(value,)), nodes)
    required = _required(pod_class)
    if required is not None:
        any_term = np.zeros(len(nodes), dtype=np.bool_)
        for term in required.node_selector_terms:
            any_term |= _term_mask(term, nodes)
        mask &= any_term
    return mask


def _term_mask(term: NodeSelectorTerm, nodes: NodeColumns) -> Bools:
    """Where one term holds; an empty one holds nowhere."""
    if not term.match_expressions and not term.match_fields:
        return np.zeros(len(nodes), dtype=np.bool_)
    mask = np.ones(len(nodes), dtype=np.bool_)
    for requirement in term.match_expressions or ():
        mask &= _requirement_mask(requirement, nodes)
    for requirement in term.match_fields or ():
        mask &= _field_mask(requirement, nodes)
    return mask


def _requirement_mask(requirement: SelectorRequirement, nodes: NodeColumns) -> Bools:
    """Where the nodes' labels satisfy one requirement."""
    known = nodes.memo.masks.get(requirement)
    if known is None:
        values, codes = label_codes(requirement.key, nodes)
        key = requirement.key
        holds = [requirement_matches(requirement, {} if value is None else {key: value}) for value in values]
        known = _remember(nodes, requirement, np.array(holds, dtype=np.bool_)[codes])
    return known


def _remember(nodes: NodeColumns, name: Hashable, mask: Bools) -> Bools:
    if len(nodes.memo.masks) >= _MASKS_MAX:
        nodes.memo.masks.clear()
    nodes.memo.masks[name] = read_only(mask)
    return mask


def _field_mask(requirement: SelectorRequirement, nodes: NodeColumns) -> Bools:
    """Where the nodes' names satisfy one requirement; a field takes one value, and only In or NotIn."""
    mask = np.zeros(len(nodes), dtype=np.bool_)
    values = requirement.values or ()
    if requirement.key != _NAME_FIELD or len(values) != 1 or requirement.operator not in ("In", "NotIn"):
        return mask
    place = nodes.index.get(values[0])
    if place is not None:
        mask[place] = True
    return mask if requirement.operator == "In" else ~mask


# TaintToleration, NodeUnschedulable


def _tolerations(pod_class: PodClass) -> tuple[Toleration, ...]:
    return pod_class.spec.tolerations or ()


def taint_toleration(pod_class: PodClass, nodes: NodeColumns) -> Bools:
    """Where no NoSchedule or NoExecute taint is left untolerated, (N,) bool.

    Source:  kubernetes 1.36 tainttoleration/taint_toleration.go.
    """
    tolerations = _tolerations(pod_class)
    known = nodes.memo.masks.get(tolerations)
    if known is None:
        sets, codes = taint_codes(nodes)
        bears = np.array([untolerated(taints, tolerations) is None for taints in sets], dtype=np.bool_)
        known = _remember(nodes, tolerations, bears[codes])
    return known


def node_unschedulable(pod_class: PodClass, nodes: NodeColumns) -> Bools:
    """Where the node is not cordoned, or the pod tolerates that, (N,) bool.

    Source:  kubernetes 1.36 nodeunschedulable/node_unschedulable.go.
    """
    if any(tolerates(each, UNSCHEDULABLE_TAINT) for each in _tolerations(pod_class)):
        return np.ones(len(nodes), dtype=np.bool_)
    return ~nodes.unschedulable


# NodePorts


def node_ports(pod_class: PodClass, nodes: NodeColumns) -> Bools:
    """Where none of the host ports that the pod wants is taken, (N,) bool.

    Source:  kubernetes 1.36 nodeports/node_ports.go.
    """
    free: dict[frozenset[HostPort], bool] = {}
    for used in nodes.ports:
        if used not in free:
            free[used] = not _clashing(pod_class.host_ports, used)
    return np.array([free[used] for used in nodes.ports], dtype=np.bool_)


def _clashing(wanted: Iterable[HostPort], used: frozenset[HostPort]) -> list[HostPort]:
    return [mine for mine in wanted if any(ports_clash(mine, theirs) for theirs in used)]


# Why not


def refusals(
    pod_class: PodClass, nodes: NodeColumns, index: int, namespaces: Namespaces | None = None
) -> tuple[Refusal, ...]:
    """All that keeps one pod of the class off one node, in kube-scheduler's order of filters; () where it fits."""
    refused = _rule_refusals(pod_class, nodes, index)
    refused += _room_refusals(pod_class, nodes, index)
    refused += _spread_refusals(pod_class, nodes, index)
    known = namespaces or {}
    if not attracted(pod_class, nodes, known)[index]:
        refused.append(Refusal(reason="node(s) didn't match pod affinity rules"))
    own, theirs = repelled([pod_class], nodes, known)
    if 0 in theirs and theirs[0][index]:
        refused.append(Refusal(reason="node(s) didn't satisfy existing pods anti-affinity rules"))
    if 0 in own and own[0][index]:
        refused.append(Refusal(reason="node(s) didn't match pod anti-affinity rules"))
    if _not_planned(pod_class):
        refused.append(Refusal(reason="the pod uses a rule that is not planned for", detail=pod_class.unplanned))
    return tuple(refused)


def _spread_refusals(pod_class: PodClass, nodes: NodeColumns, index: int) -> list[Refusal]:
    if not hard_constraints(pod_class):
        return []
    verdict = spread(pod_class, nodes, node_affinity(pod_class, nodes), taint_toleration(pod_class, nodes))
    reason = "node(s) didn't match pod topology spread constraints"
    if verdict.unlabelled[index]:
        return [Refusal(reason=f"{reason} (missing required label)")]
    return [Refusal(reason=reason)] if verdict.uneven[index] else []


def _rule_refusals(pod_class: PodClass, nodes: NodeColumns, index: int) -> list[Refusal]:
    refused = []
    if not node_unschedulable(pod_class, nodes)[index]:
        refused.append(Refusal(reason="node(s) were unschedulable", detail="the node is cordoned"))
    taint = untolerated(nodes.taints[index], _tolerations(pod_class))
    if taint is not None:
        value = f"{{{taint.key}: {taint.value}}}"
        refused.append(Refusal(reason="node(s) had untolerated taint(s)", detail=f"untolerated taint {value}"))
    if not node_affinity(pod_class, nodes)[index]:
        refused.append(
            Refusal(
                reason="node(s) didn't match Pod's node affinity/selector",
                detail=_affinity_detail(pod_class, nodes, index),
            )
        )
    clashing = _clashing(pod_class.host_ports, nodes.ports[index])
    if clashing:
        named = ", ".join(f"{protocol} {port}" for protocol, _, port in clashing)
        reason = "node(s) didn't have free ports for the requested pod ports"
        refused.append(Refusal(reason=reason, detail=f"host port {named} is taken"))
    return refused


def _affinity_detail(pod_class: PodClass, nodes: NodeColumns, index: int) -> str:
    """The first label of the node selector that the node has otherwise, else that the affinity does not hold."""
    labels = nodes.labels[index]
    for key, value in _selector(pod_class):
        if labels.get(key) != value:
            has = f"the node has {key}={labels[key]}" if key in labels else "the node has no such label"
            return f"node selector {key}={value}: {has}"
    return "no term of the required node affinity matches the node"


def _room_refusals(pod_class: PodClass, nodes: NodeColumns, index: int) -> list[Refusal]:
    refused = []
    for name in in_order(pod_class.request):
        wanted = pod_class.request.get(name, 0)
        free = int(nodes.free[nodes.resources.index(name), index]) if name in nodes.resources else 0
        if wanted > 0 and wanted > free:
            reason = "Too many pods" if name == "pods" else f"Insufficient {name}"
            numbers = f"{name}: needs {format_amount(name, wanted)}, {format_amount(name, free)} free"
            refused.append(Refusal(reason=reason, detail=numbers))
    return refused
