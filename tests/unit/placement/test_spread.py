"""Hard topology spread: which nodes a pod may go to, given who is there."""

from typing import Any

import pytest

from nobiru.kernel.objects import Node, Pod
from nobiru.placement.filters import refusals
from tests.unit.placement.builders import books_of, node, pod

ZONE = "zone"
WEB = {"app": "web"}
SELECT = {"matchLabels": WEB}


def constraint(**more: Any) -> dict[str, Any]:
    given = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": SELECT}
    return {**given, **more}


def wanted(*constraints: dict[str, Any], **spec: Any) -> Pod:
    return pod("wanted", labels=WEB, topologySpreadConstraints=list(constraints), **spec)


NODES = (node("a", labels={ZONE: "x"}), node("b", labels={ZONE: "y"}), node("c"))
TWO_IN_X = (pod("p", labels=WEB, node="a"), pod("q", labels=WEB, node="a"))
LEAVING = {"deletionTimestamp": "2026-12-01T00:00:00Z"}

CASES: list[tuple[str, Pod, tuple[Node | Pod, ...], str]] = [
    ("an empty cluster takes it, where the label is", wanted(constraint()), NODES, "a b"),
    ("the fuller zone does not", wanted(constraint()), (*NODES, *TWO_IN_X), "b"),
    ("a wider skew does", wanted(constraint(maxSkew=3)), (*NODES, *TWO_IN_X), "a b"),
    ("a soft constraint refuses nothing", wanted(constraint(whenUnsatisfiable="ScheduleAnyway")), (*NODES, *TWO_IN_X), "a b c"),
    (
        "pods on their way out count no more",
        wanted(constraint()),
        (*NODES, pod("p", labels=WEB, node="a", meta=LEAVING)),
        "a b",
    ),
    ("other namespaces do not count", wanted(constraint()), (*NODES, pod("p", labels=WEB, node="a", namespace="o")), "a b"),
    ("too few domains: the least is nobody", wanted(constraint(minDomains=3)), (*NODES, pod("p", labels=WEB, node="a"),
     pod("q", labels=WEB, node="b")), ""),
    (
        "domains that the selector rules out do not count",
        wanted(constraint(), nodeSelector={ZONE: "x"}),
        (*NODES, *TWO_IN_X),
        "a",
    ),
    (
        "unless the policy says so",
        wanted(constraint(nodeAffinityPolicy="Ignore"), nodeSelector={ZONE: "x"}),
        (*NODES, *TWO_IN_X),
        "",
    ),
    (
        "only pods of the same release count",
        pod("w", labels={**WEB, "hash": "2"}, topologySpreadConstraints=[constraint(matchLabelKeys=["hash"])]),
        (*NODES, pod("p", labels={**WEB, "hash": "1"}, node="a")),
        "a b",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "asking", "there", "want"), CASES, ids=[row[0] for row in CASES])
def test_spread(name: str, asking: Pod, there: tuple[Node | Pod, ...], want: str) -> None:
    """The nodes that neither the constraint nor the node selector refuses."""
    books = books_of(*there)
    pod_class = books.classes.intern(asking)
    nodes = books.freeze().nodes
    texts = {at: [each.reason for each in refusals(pod_class, nodes, place)] for place, at in enumerate(nodes.names)}

    assert [at for at, found in texts.items() if not any(each.startswith("node(s)") for each in found)] == want.split()


def test_the_first_constraint_that_refuses_says_why() -> None:
    """A node in a zone that is too full, without the label of another constraint: whichever stands first is named."""
    there = (
        node("a", labels={ZONE: "x", "disk": "1"}),
        node("b", labels={ZONE: "x"}),
        node("c", labels={ZONE: "y", "disk": "2"}),
    )
    by_zone, by_disk = constraint(), constraint(topologyKey="disk", maxSkew=9)
    books = books_of(*there, *TWO_IN_X)
    classes = [books.classes.intern(wanted(*each)) for each in ((by_zone, by_disk), (by_disk, by_zone))]
    nodes = books.freeze().nodes

    first = [refusals(pod_class, nodes, 1)[0].reason for pod_class in classes]
    assert [reason.rpartition(" ")[2] for reason in first] == ["constraints", "label)"]


def test_a_missing_label_is_named() -> None:
    """kube-scheduler says it apart, for no room will help there."""
    books = books_of(*NODES)
    pod_class = books.classes.intern(wanted(constraint()))
    nodes = books.freeze().nodes

    assert refusals(pod_class, nodes, 2)[0].reason.endswith("constraints (missing required label)")
