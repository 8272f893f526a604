"""Which Nodes the cloud's node lifecycle controller deletes, and when."""

from dataclasses import dataclass, field

import pytest

from nobiru.kernel.objects import Node, NodeSpec, ObjectMeta
from nobiru.sim.node_lifecycle import Verdict, instance_of, judge

FARGATE = (
    "aws:///eu-west-1b/120328e333-369fe1b7ba8b4416ab87216be91dc4f1/"
    "fargate-ip-192-168-159-181.eu-west-1.compute.internal"
)
IDS = [
    ("aws:///eu-west-1b/i-0a1", "i-0a1"),
    ("aws:///us-west-2-lax-1a/i-0a1", "i-0a1"),
    (FARGATE, ""),
    ("", ""),
    ("i-0a1", ""),
    ("aws:///eu-west-1b/i-placeholder-web-0", ""),
    ("gce://project/zone/i-0a1", ""),
]


def node(name: str, provider_id: str) -> Node:
    """A Node; its uid follows from its name."""
    return Node(metadata=ObjectMeta(name=name, uid=f"uid-{name}"), spec=NodeSpec(provider_id=provider_id))


@pytest.mark.parametrize(("provider_id", "want"), IDS)
def test_instance_of(provider_id: str, want: str) -> None:
    """Only aws:///zone/i-... names an instance (reports B43, B44)."""
    assert instance_of(node("a", provider_id)) == want


@dataclass
class Case:
    name: str
    nodes: list[Node]
    want: Verdict
    listed: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=lambda: {"i-1", "i-2"})
    missing_ms: dict[str, int] = field(default_factory=dict)


A, B = node("a", "aws:///z/i-1"), node("b", "aws:///z/i-2")
CASES = [
    Case("all is there", [A], Verdict(), listed={"i-1"}),
    Case("just gone", [A], Verdict(missing_ms={"uid-a": 10_000}, wake_ms=12_000)),
    Case("not long gone", [A], Verdict(missing_ms={"uid-a": 9_000}, wake_ms=11_000), missing_ms={"uid-a": 9_000}),
    Case("gone", [A], Verdict(missing_ms={"uid-a": 8_000}, delete=(("a", "uid-a"),)), missing_ms={"uid-a": 8_000}),
    Case(
        "one gone, one going, by name",
        [B, A],
        Verdict(missing_ms={"uid-a": 7_000, "uid-b": 10_000}, delete=(("a", "uid-a"),), wake_ms=12_000),
        missing_ms={"uid-a": 7_000},
    ),
    Case("back again", [A], Verdict(), listed={"i-1"}, missing_ms={"uid-a": 1}),
    Case("never listed: outside every group", [A], Verdict(), known=set()),
    Case("Fargate, no providerID", [node("f", FARGATE), node("k", "")], Verdict(), missing_ms={"uid-f": 1, "uid-k": 1}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_judge(case: Case) -> None:
    """A Node goes 2 s after its instance, and only one whose instance the cloud has once listed."""
    got = judge(case.nodes, case.listed, case.known, case.missing_ms, 10_000, delay_ms=2_000)

    assert got == case.want
