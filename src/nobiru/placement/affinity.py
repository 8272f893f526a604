"""Which pods keep which others away: required pod anti-affinity, seen as a relation between classes.

It refuses to know: resources.  Invariant: the relation errs towards keeping apart: a namespaceSelector, whose
namespaces' labels are not known here, counts as selecting every namespace.
Source: kubernetes 1.36 interpodaffinity/filtering.go, both directions: a pod's own terms, and those of pods that are
there; the API server has put matchLabelKeys into the label selector already.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from nobiru.kernel.objects import PodAffinityTerm
from nobiru.kernel.selector import selector_matches
from nobiru.placement.classes import HOSTNAME, PodClass
from nobiru.placement.columns import Bools, Ints, NodeColumns, label_codes
from nobiru.placement.requests import ports_clash

Pair = tuple[int, int, str]  # (row of the incoming class, index of the class that is there, topology key)


def anti_terms(pod_class: PodClass) -> tuple[PodAffinityTerm, ...]:
    """The class's required anti-affinity terms."""
    affinity = pod_class.spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None:
        return ()
    return affinity.pod_anti_affinity.required or ()


def term_selects(term: PodAffinityTerm, owner: PodClass, other: PodClass) -> bool:
    """Whether a term of `owner` means pods of `other`."""
    if term.namespace_selector is None and other.namespace not in (term.namespaces or (owner.namespace,)):
        return False
    return selector_matches(term.label_selector, other.labels)


class _ByLabel:
    """Finds the classes that a selector may mean, by one of its labels."""

    def __init__(self, classes: Sequence[PodClass]) -> None:
        self.classes = classes
        self.rows: dict[tuple[str, str], list[int]] = {}
        for row, pod_class in enumerate(classes):
            for pair in pod_class.labels.items():
                self.rows.setdefault(pair, []).append(row)

    def selected(self, term: PodAffinityTerm, owner: PodClass) -> Iterator[int]:
        """Rows of the classes that the term means."""
        selector = term.label_selector
        candidates: Sequence[int] = range(len(self.classes))
        if selector is not None and selector.match_labels:
            known = [self.rows.get(pair, []) for pair in selector.match_labels.items()]
            candidates = min(known, key=len)
        return (row for row in candidates if term_selects(term, owner, self.classes[row]))


def conflicts(classes: Sequence[PodClass]) -> Bools | None:
    """Which classes cannot share a node with which, (K, K) bool, symmetric; None where all can.

    Ports of the host that clash, and anti-affinity over hostnames in either direction.
    """
    with_ports = [row for row, each in enumerate(classes) if each.host_ports]
    with_terms = [row for row, each in enumerate(classes) if anti_terms(each)]
    if not with_ports and not with_terms:
        return None
    apart = np.zeros((len(classes), len(classes)), dtype=np.bool_)
    by_port: dict[tuple[str, int], list[int]] = {}
    for row in with_ports:
        for protocol, _, port in classes[row].host_ports:
            by_port.setdefault((protocol, port), []).append(row)
    for rows in by_port.values():
        for one in rows:
            for other in rows:
                apart[one, other] |= _ports_clash(classes[one], classes[other])
    if with_terms:
        by_label = _ByLabel(classes)
        for row in with_terms:
            for term in anti_terms(classes[row]):
                if term.topology_key == HOSTNAME:
                    for other in by_label.selected(term, classes[row]):
                        apart[row, other] = apart[other, row] = True
    return apart if apart.any() else None


def _ports_clash(one: PodClass, other: PodClass) -> bool:
    return any(ports_clash(mine, theirs) for mine in one.host_ports for theirs in other.host_ports)


def repelled(classes: Sequence[PodClass], nodes: NodeColumns) -> tuple[dict[int, Bools], dict[int, Bools]]:
    """Where pods that are there keep each class away: by the class's own terms, and by theirs.

    Shapes:  row of `classes` -> (N,) bool, True where it is kept away; rows that nothing keeps away are absent.
    """
    present = np.bincount(nodes.held.class_index).nonzero()[0].tolist()
    if not present:
        return {}, {}
    there = [nodes.classes[index] for index in present]
    own = list(_pairs(classes, there, incoming=True))
    theirs = list(_pairs(there, classes, incoming=False))
    holders = _holders({pair[1] for pair in own + theirs}, nodes)
    return _domains(own, holders, nodes), _domains(theirs, holders, nodes)


def _pairs(owners: Sequence[PodClass], others: Sequence[PodClass], *, incoming: bool) -> Iterator[Pair]:
    with_terms = [row for row, each in enumerate(owners) if anti_terms(each)]
    if not with_terms:
        return
    by_label = _ByLabel(others)
    for row in with_terms:
        for term in anti_terms(owners[row]):
            for other in by_label.selected(term, owners[row]):
                if incoming:
                    yield row, others[other].index, term.topology_key
                else:
                    yield other, owners[row].index, term.topology_key


def _holders(wanted: set[int], nodes: NodeColumns) -> dict[int, Ints]:
    """Class index -> the nodes that hold it."""
    if not wanted:
        return {}
    held = nodes.held
    is_wanted = np.zeros(len(nodes.classes), dtype=np.bool_)
    is_wanted[sorted(wanted)] = True
    entries = np.flatnonzero(is_wanted[held.class_index])
    entries = entries[np.argsort(held.class_index[entries], kind="stable")]
    indexes, starts = np.unique(held.class_index[entries], return_index=True)
    node_of = np.searchsorted(held.ptr, entries, side="right") - 1
    return dict(zip(indexes.tolist(), np.split(node_of, starts[1:]), strict=True))


def _domains(pairs: Iterable[Pair], holders: dict[int, Ints], nodes: NodeColumns) -> dict[int, Bools]:
    """The nodes of every domain that holds a class of a pair; a node without the topology label is in none."""
    kept: dict[int, Bools] = {}
    for row, index, topology_key in pairs:
        values, codes = label_codes(topology_key, nodes)
        hit = np.zeros(len(values), dtype=np.bool_)
        hit[codes[holders[index]]] = True
        if None in values:
            hit[values.index(None)] = False
        mask = hit[codes]
        kept[row] = kept[row] | mask if row in kept else mask
    return kept
