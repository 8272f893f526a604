"""Which pods keep which others away, and which want which others near: required pod affinity between classes.

It refuses to know: resources.  Invariant: where the labels of a namespace are not known, a namespaceSelector errs towards
refusing: it selects the namespace for what keeps apart, and not for what must be near.
Source: kubernetes 1.36 interpodaffinity/filtering.go, both directions: a pod's own terms, and those of pods that are
there; the API server has put matchLabelKeys into the label selector already.
Cost:   a term costs the classes that its labels may mean, and one pass over the nodes for its topology key.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct

from nobiru.kernel.objects import PodAffinityTerm
from nobiru.kernel.selector import selector_matches
from nobiru.placement.classes import HOSTNAME, PodClass
from nobiru.placement.columns import Bools, Ints, NodeColumns, label_codes
from nobiru.placement.requests import ports_clash

Namespaces = Mapping[str, Mapping[str, str]]  # name -> labels; a namespace that is not there is not known
Pair = tuple[int, int, str]  # (row of the incoming class, index of the class that is there, topology key)


def anti_terms(pod_class: PodClass) -> tuple[PodAffinityTerm, ...]:
    """The class's required anti-affinity terms."""
    affinity = pod_class.spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None:
        return ()
    return affinity.pod_anti_affinity.required or ()


def affinity_terms(pod_class: PodClass) -> tuple[PodAffinityTerm, ...]:
    """The class's required affinity terms."""
    affinity = pod_class.spec.affinity
    if affinity is None or affinity.pod_affinity is None:
        return ()
    return affinity.pod_affinity.required or ()


class Scope(Struct, frozen=True, kw_only=True):
    """What is known of namespaces, and whose terms are asked.

    `unknown` is what a selector says of a namespace without known labels.
    `incoming`: the terms of a pod that is to be placed, which kube-scheduler 1.36 reads in its own way: it looks the selected
    namespaces up, then holds the selector to no labels at all, where NotIn and DoesNotExist select every namespace.
    """

    namespaces: Namespaces = {}
    unknown: bool = True
    incoming: bool = False


ANYWHERE = Scope()


def term_selects(term: PodAffinityTerm, owner: PodClass, other: PodClass, scope: Scope = ANYWHERE) -> bool:
    """Whether a term of `owner` means pods of `other`."""
    return _in_namespace(term, owner, other, scope) and selector_matches(term.label_selector, other.labels)


def _in_namespace(term: PodAffinityTerm, owner: PodClass, other: PodClass, scope: Scope) -> bool:
    selector = term.namespace_selector
    if selector is None:
        return other.namespace in (term.namespaces or (owner.namespace,))
    if other.namespace in (term.namespaces or ()) or (scope.incoming and selector_matches(selector, {})):
        return True
    labels = scope.namespaces.get(other.namespace)
    return scope.unknown if labels is None else selector_matches(selector, labels)


class _ByLabel:
    """Finds the classes that a selector may mean, by one of its labels."""

    def __init__(self, classes: Sequence[PodClass]) -> None:
        self.classes = classes
        self.rows: dict[tuple[str, str], list[int]] = {}
        for row, pod_class in enumerate(classes):
            for pair in pod_class.labels.items():
                self.rows.setdefault(pair, []).append(row)

    def selected(self, term: PodAffinityTerm, owner: PodClass, scope: Scope = ANYWHERE) -> Iterator[int]:
        """Rows of the classes that the term means, or may mean."""
        selector = term.label_selector
        candidates: Sequence[int] = range(len(self.classes))
        if selector is not None and selector.match_labels:
            known = [self.rows.get(pair, []) for pair in selector.match_labels.items()]
            candidates = min(known, key=len)
        return (row for row in candidates if term_selects(term, owner, self.classes[row], scope))


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


def attracted(pod_class: PodClass, nodes: NodeColumns, namespaces: Namespaces) -> Bools:
    """Where the pods are that the class must be near, (N,) bool.

    A pod that all terms mean must be in the node's domain of every term.  Where no such pod is in any domain at all, the class
    may be the first of its kind, on any node that has all the topology labels, if it means itself.
    """
    terms = affinity_terms(pod_class)
    near, labelled = np.ones(len(nodes), dtype=np.bool_), np.ones(len(nodes), dtype=np.bool_)
    if not terms:
        return near
    scope = Scope(namespaces=namespaces, unknown=False, incoming=True)
    meant = {
        index
        for index in np.unique(nodes.held.class_index).tolist()
        if _meant_by_all(terms, pod_class, nodes.classes[index], scope)
    }
    holders = _holders(meant, nodes)
    anywhere = False
    for term in terms:
        hit, codes, has = _domains_hit(term.topology_key, holders.values(), nodes)
        labelled &= has
        near &= hit[codes]
        anywhere |= bool(hit.any())
    if not anywhere and _meant_by_all(terms, pod_class, pod_class, scope):
        return labelled
    return near & labelled


def _meant_by_all(terms: Iterable[PodAffinityTerm], owner: PodClass, other: PodClass, scope: Scope) -> bool:
    return all(term_selects(term, owner, other, scope) for term in terms)


def _domains_hit(key: str, holders: Iterable[Ints], nodes: NodeColumns) -> tuple[Bools, Ints, Bools]:
    """(which values of the label have a holder, each node's value, which nodes have the label at all)."""
    values, codes = label_codes(key, nodes)
    hit = np.zeros(len(values), dtype=np.bool_)
    for places in holders:
        hit[codes[places]] = True
    has = np.ones(len(nodes), dtype=np.bool_)
    if None in values:
        hit[values.index(None)] = False
        has = codes != values.index(None)
    return hit, codes, has


def repelled(
    classes: Sequence[PodClass], nodes: NodeColumns, namespaces: Namespaces
) -> tuple[dict[int, Bools], dict[int, Bools]]:
    """Where pods that are there keep each class away: by the class's own terms, and by theirs.

    Shapes:  row of `classes` -> (N,) bool, True where it is kept away; rows that nothing keeps away are absent.
    """
    present = np.bincount(nodes.held.class_index).nonzero()[0].tolist()
    if not present:
        return {}, {}
    there = [nodes.classes[index] for index in present]
    own = list(_pairs(classes, there, Scope(namespaces=namespaces, incoming=True)))
    theirs = list(_pairs(there, classes, Scope(namespaces=namespaces)))
    holders = _holders({pair[1] for pair in own + theirs}, nodes)
    return _domains(own, holders, nodes), _domains(theirs, holders, nodes)


def _pairs(owners: Sequence[PodClass], others: Sequence[PodClass], scope: Scope) -> Iterator[Pair]:
    with_terms = [row for row, each in enumerate(owners) if anti_terms(each)]
    if not with_terms:
        return
    by_label = _ByLabel(others)
    for row in with_terms:
        for term in anti_terms(owners[row]):
            for other in by_label.selected(term, owners[row], scope):
                if scope.incoming:
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
        hit, codes, _ = _domains_hit(topology_key, [holders[index]], nodes)
        mask = hit[codes]
        kept[row] = kept[row] | mask if row in kept else mask
    return kept
