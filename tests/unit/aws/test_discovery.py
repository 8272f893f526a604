"""Which groups are ours: by flags, and by Cluster Autoscaler's tags where there is no flag."""

import pytest
from msgspec import Struct

from nobiru.aws.answers import GroupAnswer
from nobiru.aws.discovery import TagSpec, by_own_tags, by_specs, matches, owner_names, specs_to_ask
from nobiru.kernel.reason import Reason
from tests.unit.aws.builders import NODE_TEMPLATE, group, machine

CA = "k8s.io/cluster-autoscaler/"


def tagged(name: str, *clusters: str, node: str = "", enabled: str = "true") -> GroupAnswer:
    """An enabled group of these clusters, with that instance."""
    tags = {f"{CA}enabled": enabled, f"{NODE_TEMPLATE}label/a": "b", **{f"{CA}{each}": "" for each in clusters}}
    return group(name, tags=tags, instances=[machine(node)] if node else [])


class Case(Struct, frozen=True, kw_only=True):
    """Tagged groups, what is known of this cluster, and which groups are ours."""

    name: str
    groups: tuple[GroupAnswer, ...]
    cluster_name: str = ""
    nodes: frozenset[str] = frozenset()
    owners: frozenset[str] = frozenset()
    ours: set[str] = set()
    others: set[str] = set()
    problem: str = ""
    undecided: bool = False


A, B, NOBODYS = tagged("a", "one"), tagged("b", "two"), tagged("n")
A_BUSY, B_BUSY = tagged("a", "one", node="i-a"), tagged("b", "two", node="i-b")
CASES = [
    Case(
        name="no tagged group",
        groups=(group("x"),),
        problem="no Auto Scaling Group is tagged k8s.io/cluster-autoscaler/enabled",
    ),
    Case(
        name="switched off by its value",
        groups=(tagged("a", enabled="false"),),
        problem="no Auto Scaling Group is tagged",
    ),
    Case(name="a group that names no cluster", groups=(NOBODYS,), ours={"n"}),
    Case(name="the only cluster there is", groups=(A, NOBODYS), ours={"a", "n"}, undecided=True),
    Case(
        name="our nodes are in a group of one",
        groups=(A_BUSY, B, NOBODYS),
        nodes=frozenset({"i-a"}),
        ours={"a", "n"},
        others={"b"},
    ),
    Case(
        name="groups of the other cluster have nodes that are not ours",
        groups=(A_BUSY, B_BUSY),
        nodes=frozenset({"i-b"}),
        ours={"b"},
        others={"a"},
    ),
    Case(name="two clusters and no nodes", groups=(A, B), problem="several clusters (one, two)", undecided=True),
    Case(
        name="--cluster-name",
        groups=(A_BUSY, B),
        cluster_name="two",
        nodes=frozenset({"i-a"}),
        ours={"b"},
        others={"a"},
    ),
    Case(
        name="--cluster-name of no group",
        groups=(A, B),
        cluster_name="three",
        others={"a", "b"},
        problem="no tagged Auto Scaling Group belongs to this cluster (three)",
    ),
    Case(
        name="all groups at zero, the nodes' own groups tell",
        groups=(A, B),
        owners=frozenset({"two", "two.example.com"}),
        ours={"b"},
        others={"a"},
    ),
    Case(
        name="the only name is another cluster's",
        groups=(A,),
        owners=frozenset({"mine"}),
        problem="belong to cluster one, this cluster's machines to mine",
    ),
    Case(
        name="the nodes' groups name both", groups=(A, B), owners=frozenset({"one", "two"}), problem="several clusters"
    ),
    Case(
        name="a shared group does not tell",
        groups=(tagged("s", "one", "two", node="i-s"), A, B),
        nodes=frozenset({"i-s"}),
        problem="several clusters (one, two)",
        undecided=True,
    ),
    Case(
        name="a shared group beside one that tells",
        groups=(tagged("s", "one", "two", node="i-s"), A_BUSY, B),
        nodes=frozenset({"i-s", "i-a"}),
        ours={"s", "a"},
        others={"b"},
    ),
    Case(
        name="nodes in groups of both names are in groups of ours",
        groups=(A_BUSY, B_BUSY, tagged("c", "three")),
        nodes=frozenset({"i-a", "i-b"}),
        ours={"a", "b"},
        others={"c"},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_by_own_tags(case: Case) -> None:
    """With neither flag: this cluster's enabled groups; others are left alone with a reason; no guess where nothing tells."""
    got = by_own_tags(case.groups, cluster_name=case.cluster_name, node_instances=case.nodes, owners=case.owners)

    assert (set(got.names), set(got.others), got.undecided) == (case.ours, case.others, case.undecided)
    assert case.problem in got.problem
    assert bool(got.problem) == bool(case.problem)
    assert all(why.reason is Reason.OTHER_CLUSTER for why in got.others.values())
    assert got == by_own_tags(
        case.groups[::-1], cluster_name=case.cluster_name, node_instances=case.nodes, owners=case.owners
    )


ENABLED_ONE: TagSpec = ((f"{CA}enabled", None), (f"{CA}one", None))
MATCHES = [
    ("key only", ((f"{CA}enabled", None),), True),
    ("two keys", ENABLED_ONE, True),
    ("a key that is missing", (*ENABLED_ONE, ("x", None)), False),
    ("key and value", ((f"{CA}enabled", "true"),), True),
    ("another value", ((f"{CA}enabled", "false"),), False),
    ("the value's case counts", ((f"{CA}enabled", "True"),), False),
]


@pytest.mark.parametrize(("name", "spec", "want"), MATCHES, ids=[row[0] for row in MATCHES])
def test_matches(name: str, spec: TagSpec, want: bool) -> None:
    """All tags of one flag must be there (report B30)."""
    assert matches(spec, A.tag_table) == want


def test_several_flags() -> None:
    """Several flags are a union; the peer's way asks for all of them, the last value of a doubled key winning (report B30)."""
    one, two = group("1", tags={"taga": "a"}), group("2", tags={"tagb": "b"})
    both = group("3", tags={"taga": "a", "tagb": "b"})
    flags: list[TagSpec] = [(("taga", "a"),), (("tagb", "b"),)]

    union = specs_to_ask(flags, union=True)
    assert by_specs([one, two, both], union).names == {"1", "2", "3"}
    peers = specs_to_ask(flags, union=False)
    assert len(peers) == 1
    assert by_specs([one, two, both], peers).names == {"3"}
    assert specs_to_ask([(("k", "x"),), (("k", "y"),)], union=False) == ((("k", "y"),),)
    assert by_specs([one], ((("other", None),),)).problem


def test_owner_names() -> None:
    """The clusters that groups of known nodes name, by either of the two tags."""
    tags = {"kubernetes.io/cluster/one": "owned", f"{CA}enabled": "", f"{CA}two": "", f"{NODE_TEMPLATE}label/a": "b"}

    assert owner_names([group(tags=tags)]) == {"one", "two"}
    assert owner_names([]) == frozenset()
