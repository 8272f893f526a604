"""Selectors and tolerations, operator by operator, as kube-scheduler's helpers answer."""

import pytest

from nobiru.kernel.objects import LabelSelector, NodeSelectorTerm, SelectorRequirement, Taint, Toleration
from nobiru.kernel.selector import (
    requirement_matches,
    selector_matches,
    term_matches,
    terms_match,
    tolerates,
    untolerated,
)

LABELS = {"zone": "a", "cpus": "16", "empty": "", "text": "1x"}


def need(key: str, operator: str, *values: str) -> SelectorRequirement:
    return SelectorRequirement(key=key, operator=operator, values=values or None)


@pytest.mark.parametrize(
    ("requirement", "want"),
    [
        (need("zone", "In", "a", "b"), True),
        (need("zone", "In", "b"), False),
        (need("none", "In", "a"), False),
        (need("zone", "In"), False),
        (need("empty", "In", ""), True),
        (need("zone", "NotIn", "b"), True),
        (need("zone", "NotIn", "a"), False),
        (need("none", "NotIn", "a"), True),
        (need("none", "NotIn"), False),
        (need("empty", "Exists"), True),
        (need("none", "Exists"), False),
        (need("zone", "Exists", "a"), False),
        (need("none", "DoesNotExist"), True),
        (need("empty", "DoesNotExist"), False),
        (need("none", "DoesNotExist", "a"), False),
        (need("cpus", "Gt", "15"), True),
        (need("cpus", "Gt", "16"), False),
        (need("cpus", "Lt", "17"), True),
        (need("cpus", "Lt", "16"), False),
        (need("none", "Gt", "0"), False),
        (need("none", "Lt", "0"), False),
        (need("text", "Gt", "0"), False),
        (need("empty", "Lt", "5"), False),
        (need("cpus", "Gt", "x"), False),
        (need("cpus", "Gt"), False),
        (need("cpus", "Gt", "1", "2"), False),
        (need("cpus", "Gt", "-1"), False),  # no label can be "-1", so kube-scheduler takes it for a mistake
        (need("none", "NotIn", "a b"), False),
        (need("none", "NotIn", "x" * 63), True),
        (need("none", "NotIn", "x" * 64), False),
        (need("none", "NotIn", ""), True),
        (need("-none", "DoesNotExist"), False),
        (need("example.com/none", "DoesNotExist"), True),
        (need("Example.com/none", "DoesNotExist"), False),
        (need("/none", "DoesNotExist"), False),
        (need("cpus", "Lt", "9223372036854775807"), True),
        (need("cpus", "Lt", "9223372036854775808"), False),
        (need("cpus", "Near", "16"), False),
        (need("zone", "in", "a"), False),
    ],
    ids=str,
)
def test_requirement(requirement: SelectorRequirement, want: bool) -> None:
    """Each operator with the key there, missing, and with values that make no sense."""
    assert requirement_matches(requirement, LABELS) is want


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        (None, False),
        (LabelSelector(), True),
        (LabelSelector(match_labels={"zone": "a"}), True),
        (LabelSelector(match_labels={"zone": "a", "none": "x"}), False),
        (LabelSelector(match_expressions=(need("cpus", "Exists"), need("none", "DoesNotExist"))), True),
        (LabelSelector(match_labels={"zone": "a"}, match_expressions=(need("none", "Exists"),)), False),
    ],
)
def test_label_selector(selector: LabelSelector | None, want: bool) -> None:
    """None selects nothing, an empty one everything; labels and expressions all hold."""
    assert selector_matches(selector, LABELS) is want


def test_node_selector_terms_are_alternatives() -> None:
    """One term suffices, requirements within a term all hold, and an empty term selects nothing."""
    fields = {"metadata.name": "n1"}
    zone_a = NodeSelectorTerm(match_expressions=(need("zone", "In", "a"),))
    zone_b = NodeSelectorTerm(match_expressions=(need("zone", "In", "b"),))
    named = NodeSelectorTerm(match_fields=(need("metadata.name", "In", "n1"),))
    both = NodeSelectorTerm(
        match_expressions=(need("zone", "In", "b"),), match_fields=(need("metadata.name", "In", "n1"),)
    )

    assert terms_match((zone_b, zone_a), LABELS, fields)
    assert term_matches(named, LABELS, fields)
    assert not term_matches(both, LABELS, fields)
    assert not term_matches(NodeSelectorTerm(), LABELS, fields)
    assert not terms_match((), LABELS, fields)


TAINT = Taint(key="dedicated", value="gpu", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "want"),
    [
        (Toleration(key="dedicated", operator="Equal", value="gpu", effect="NoSchedule"), True),
        (Toleration(key="dedicated", value="gpu"), True),
        (Toleration(key="dedicated", value="cpu"), False),
        (Toleration(key="dedicated", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect="NoExecute"), False),
        (Toleration(key="other", operator="Exists"), False),
        (Toleration(key="dedicated", operator="Exists", effect="NoSchedule"), True),
        (Toleration(value="gpu"), True),
        (Toleration(), False),
        (Toleration(key="dedicated", operator="Gt", value="1"), False),
        (Toleration(key="dedicated", operator="exists"), False),
    ],
    ids=str,
)
def test_toleration(toleration: Toleration, want: bool) -> None:
    """Key, value and effect match, each of them left out means any; unknown operators bear nothing."""
    assert tolerates(toleration, TAINT) is want


def test_only_hard_taints_keep_pods_off() -> None:
    """PreferNoSchedule is a wish; the first hard taint that nothing bears is named."""
    soft = Taint(key="soft", effect="PreferNoSchedule")
    gone = Taint(key="gone", effect="NoExecute")

    assert untolerated((soft, TAINT, gone), ()) == TAINT
    assert untolerated((soft, TAINT, gone), (Toleration(key="dedicated", operator="Exists"),)) == gone
    assert untolerated((soft,), ()) is None
    assert untolerated((), ()) is None
