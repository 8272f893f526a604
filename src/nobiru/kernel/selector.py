"""Whether labels satisfy a selector, and whether tolerations bear a taint: the words that rules are written in.

It refuses to know: pods and nodes as wholes, numbers of resources.  Invariant: these answer as kube-scheduler's helpers do;
an operator nobody knows matches nothing.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from nobiru.kernel.objects import LabelSelector, NodeSelectorTerm, SelectorRequirement, Taint, Toleration

Labels = Mapping[str, str]
_INTEGER = re.compile(r"[+-]?[0-9]+")
_INT64_MAX = 2**63 - 1
# Label keys and values: apimachinery api/validate/content.
_NAME = re.compile(r"(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_NAME_LENGTH_MAX = 63
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_SUBDOMAIN_LENGTH_MAX = 253


def _int64(text: str | None) -> int | None:
    """The int64 that strconv.ParseInt reads, else None."""
    if text is None or len(text) > 32 or not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if -_INT64_MAX - 1 <= value <= _INT64_MAX else None


@lru_cache(4096)
def _sound(requirement: SelectorRequirement) -> bool:
    """Whether key and values are such as labels may have: no label can be "-3", and a requirement with it holds nowhere."""
    prefix, slash, name = requirement.key.rpartition("/")
    if slash and not (len(prefix) <= _SUBDOMAIN_LENGTH_MAX and _SUBDOMAIN.fullmatch(prefix)):
        return False
    names = (name, *(value for value in requirement.values or () if value))
    return all(len(each) <= _NAME_LENGTH_MAX and _NAME.fullmatch(each) for each in names)


def requirement_matches(requirement: SelectorRequirement, labels: Labels) -> bool:
    """Whether labels satisfy one requirement: In, NotIn, Exists, DoesNotExist, Gt, Lt.

    Source: apimachinery labels/selector.go: NotIn and DoesNotExist accept a missing key, Gt and Lt compare int64; a
            requirement that is itself invalid (In without values, Exists with some, a value that no label can have) matches
            nothing.
    """
    return _sound(requirement) and _holds(requirement, labels)


def _holds(requirement: SelectorRequirement, labels: Labels) -> bool:
    value = labels.get(requirement.key)
    wanted = requirement.values or ()
    match requirement.operator:
        case "In" if wanted:
            return value is not None and value in wanted
        case "NotIn" if wanted:
            return value is None or value not in wanted
        case "Exists" if not wanted:
            return value is not None
        case "DoesNotExist" if not wanted:
            return value is None
        case "Gt" | "Lt" if len(wanted) == 1:
            have, bound = _int64(value), _int64(wanted[0])
            if have is None or bound is None:
                return False
            return have > bound if requirement.operator == "Gt" else have < bound
    return False


def selector_matches(selector: LabelSelector | None, labels: Labels) -> bool:
    """Whether a label selector selects these labels; None selects nothing, an empty one everything."""
    if selector is None:
        return False
    pairs = selector.match_labels or {}
    return all(labels.get(key) == value for key, value in pairs.items()) and all(
        requirement_matches(requirement, labels) for requirement in selector.match_expressions or ()
    )


def term_matches(term: NodeSelectorTerm, labels: Labels, fields: Labels) -> bool:
    """Whether one node selector term selects a node; a term without any requirement selects none.

    `fields` holds the node's fields that terms may name: {"metadata.name": ...}.
    """
    if not term.match_expressions and not term.match_fields:
        return False
    return all(requirement_matches(each, labels) for each in term.match_expressions or ()) and all(
        _holds(each, fields) for each in term.match_fields or ()
    )


def terms_match(terms: Iterable[NodeSelectorTerm], labels: Labels, fields: Labels) -> bool:
    """Whether any of the terms selects the node: terms are alternatives."""
    return any(term_matches(term, labels, fields) for term in terms)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration bears one taint; an empty key with Exists bears all, an empty effect any effect.

    Source: k8s.io/api core/v1 toleration.go, ToleratesTaint; its numeric operators Gt and Lt are off by default in 1.36
    (feature gate TaintTolerationComparisonOperators) and bear nothing.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
    return False


def untolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> Taint | None:
    """The first taint that keeps a pod off (NoSchedule or NoExecute) and that no toleration bears, else None."""
    bearing = tuple(tolerations)
    for taint in taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(tolerates(each, taint) for each in bearing):
            return taint
    return None
