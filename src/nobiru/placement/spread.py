"""Where hard topology spread constraints let a pod go: DoNotSchedule, over the domains of any label.

It refuses to know: room, and soft constraints.  Invariant: counts are of the pods that are there and stay: one that is being
deleted counts no more.
Source: kubernetes 1.36 podtopologyspread/filtering.go, common.go; its system defaults are soft and refuse nothing.
Cost:   a constraint costs the classes there, and a few passes over the nodes.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from nobiru.kernel.objects import LabelSelector, SelectorRequirement, TopologySpreadConstraint
from nobiru.kernel.selector import selector_matches
from nobiru.placement.classes import PodClass
from nobiru.placement.columns import Bools, Ints, NodeColumns, label_codes


class Verdict(Struct, frozen=True, kw_only=True, eq=False):
    """What the constraints say; the first one that refuses a node says why.

    Shapes:  both (N,) bool: `unlabelled` nodes lack a topology label, on `uneven` ones the pod would make the skew too large.
    """

    unlabelled: Bools
    uneven: Bools


def hard_constraints(pod_class: PodClass) -> tuple[TopologySpreadConstraint, ...]:
    """The class's constraints that refuse nodes."""
    found = pod_class.spec.topology_spread_constraints or ()
    return tuple(each for each in found if each.when_unsatisfiable == "DoNotSchedule")


def spread(pod_class: PodClass, nodes: NodeColumns, suits: Bools, bears: Bools) -> Verdict:
    """What the class's hard constraints say of each node.

    `suits`: where the class's node selector and affinity hold; `bears`: where it tolerates the taints, both (N,) bool.  They
    say which nodes' domains count, each constraint by its own policies.
    """
    constraints = hard_constraints(pod_class)
    unlabelled, uneven = np.zeros(len(nodes), dtype=np.bool_), np.zeros(len(nodes), dtype=np.bool_)
    keyed = [label_codes(each.topology_key, nodes) for each in constraints]
    lacking = [codes == values.index(None) if None in values else np.zeros_like(uneven) for values, codes in keyed]
    in_domains = ~np.logical_or.reduce(lacking) if lacking else ~unlabelled
    for constraint, (values, codes), lacks in zip(constraints, keyed, lacking, strict=True):
        counted = in_domains
        if constraint.node_affinity_policy != "Ignore":
            counted = counted & suits
        if constraint.node_taints_policy == "Honor":
            counted = counted & bears
        selector = _selector(constraint, pod_class)
        matching = _matching(selector, pod_class, nodes)
        domains = np.zeros(len(values), dtype=np.int64)
        np.add.at(domains, codes[counted], matching[counted])
        there = np.unique(codes[counted])
        least = int(domains[there].min()) if len(there) >= max(1, constraint.min_domains or 1) else 0
        itself = int(selector_matches(selector, pod_class.labels))
        open_yet = ~(unlabelled | uneven)
        unlabelled |= lacks & open_yet
        uneven |= (domains[codes] + itself - least > constraint.max_skew) & ~lacks & open_yet
    return Verdict(unlabelled=unlabelled, uneven=uneven)


def _selector(constraint: TopologySpreadConstraint, pod_class: PodClass) -> LabelSelector | None:
    """The constraint's selector with the pod's own values of matchLabelKeys, which today's API server has put there already."""
    pairs = [(key, pod_class.labels[key]) for key in constraint.match_label_keys or () if key in pod_class.labels]
    if not pairs or constraint.label_selector is None:
        return constraint.label_selector
    more = tuple(SelectorRequirement(key=key, operator="In", values=(value,)) for key, value in pairs)
    given = constraint.label_selector.match_expressions or ()
    return replace(constraint.label_selector, match_expressions=(*given, *more))


def _matching(selector: LabelSelector | None, pod_class: PodClass, nodes: NodeColumns) -> Ints:
    """How many staying pods of the class's namespace the selector selects on each node, (N,) int64; an empty one selects none."""
    counts = np.zeros(len(nodes), dtype=np.int64)
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return counts
    held = nodes.held
    chosen = np.zeros(len(nodes.classes), dtype=np.bool_)
    for index in np.unique(held.class_index).tolist():
        other = nodes.classes[index]
        chosen[index] = other.namespace == pod_class.namespace and selector_matches(selector, other.labels)
    entries = np.flatnonzero(chosen[held.class_index]) if len(held.class_index) else held.class_index
    np.add.at(counts, np.searchsorted(held.ptr, entries, side="right") - 1, held.count[entries])
    _take_off(counts, nodes.leaving, chosen)
    return counts


def _take_off(counts: Ints, leaving: Sequence[tuple[int, int, int]], chosen: Bools) -> None:
    for node, index, count in leaving:
        if chosen[index]:
            counts[node] -= count
