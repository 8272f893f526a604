"""Which classes cannot share a node, and which must be near each other."""

from typing import Any

import pytest

from nobiru.kernel.objects import Pod
from nobiru.placement.affinity import attracted, conflicts
from nobiru.placement.classes import ClassTable
from tests.unit.placement.builders import Json, anti_affinity, books_of, node, pod

WEB, DB = {"app": "web"}, {"app": "db"}


def port(number: int, **more: Json) -> Json:
    return [{"name": "c", "ports": [{"containerPort": number, "hostPort": number, **more}]}]


CASES: list[tuple[str, list[Pod], set[tuple[int, int]]]] = [
    ("same port", [pod(containers=port(80)), pod(containers=port(80), labels=WEB)], {(0, 0), (0, 1), (1, 1)}),
    ("other port", [pod(containers=port(80)), pod(containers=port(81))], {(0, 0), (1, 1)}),
    (
        "other address",
        [pod(containers=port(80, hostIP="10.0.0.1")), pod(containers=port(80, hostIP="10.0.0.2"))],
        {(0, 0), (1, 1)},
    ),
    ("repels another", [pod(affinity=anti_affinity(labels=DB)), pod(labels=DB)], {(0, 1)}),
    ("repels itself", [pod(labels=WEB, affinity=anti_affinity(labels=WEB)), pod(labels=DB)], {(0, 0)}),
    ("other namespace", [pod(affinity=anti_affinity(labels=DB)), pod(labels=DB, namespace="x")], set()),
    (
        "named namespace",
        [pod(affinity=anti_affinity(labels=DB, namespaces=["x"])), pod(labels=DB, namespace="x")],
        {(0, 1)},
    ),
    ("over zones", [pod(affinity=anti_affinity("zone", DB)), pod(labels=DB)], set()),
    (
        "by expressions",
        [
            pod(
                affinity=anti_affinity(
                    labelSelector={"matchExpressions": [{"key": "app", "operator": "In", "values": ["db"]}]}
                )
            ),
            pod(labels=DB),
            pod(labels=WEB),
        ],
        {(0, 1)},
    ),
    ("no selector", [pod(affinity=anti_affinity(labelSelector=None)), pod(labels=DB)], set()),
]


@pytest.mark.parametrize(("pods", "want"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_conflicts(pods: list[Pod], want: set[tuple[int, int]]) -> None:
    """Ports that clash and hostnames to keep apart, in both directions; None where nothing is apart."""
    table = ClassTable()
    found = conflicts([table.intern(each) for each in pods])

    if not want:
        assert found is None
    else:
        assert found is not None
        assert {(one, other) for one, other in zip(*found.nonzero(), strict=True)} == want | {(b, a) for a, b in want}


def test_plain_pods_have_no_conflicts() -> None:
    """Nothing to keep apart costs nothing."""
    table = ClassTable()

    assert conflicts([table.intern(pod()), table.intern(pod(labels=WEB))]) is None
    assert conflicts([]) is None


NEAR_WEB = {"topologyKey": "zone", "labelSelector": {"matchLabels": WEB}}
IN_ZONES = (
    node("a", labels={"zone": "x"}),
    node("b", labels={"zone": "x"}),
    node("c", labels={"zone": "y"}),
    node("d"),
)
TEAMS = {"default": {"team": "red"}, "other": {"team": "blue"}}
RED, NOT_RED = (
    {"matchExpressions": [{"key": "team", "operator": operator, "values": ["red"]}]} for operator in ("In", "NotIn")
)
NEAR = [
    ("the whole domain of a pod that is meant", [NEAR_WEB], {}, [pod("p", labels=WEB, node="a")], "a b"),
    ("nobody is there and it does not mean itself", [NEAR_WEB], {}, [], ""),
    ("nobody is there and it means itself", [NEAR_WEB], WEB, [], "a b c"),
    ("somebody is there, so it is not the first", [NEAR_WEB], WEB, [pod("p", labels=WEB, node="c")], "c"),
    ("somebody without a domain is nobody", [NEAR_WEB], WEB, [pod("p", labels=WEB, node="d")], "a b c"),
    ("every term must mean the pod", [NEAR_WEB, {**NEAR_WEB, "labelSelector": {}}], {}, [pod("p", labels=WEB, node="a")], "a b"),
    ("another namespace", [NEAR_WEB], {}, [pod("p", labels=WEB, node="a", namespace="other")], ""),
    ("a named one", [{**NEAR_WEB, "namespaces": ["other"]}], {}, [pod("p", labels=WEB, node="a", namespace="other")], "a b"),
    ("one that is not selected", [{**NEAR_WEB, "namespaceSelector": RED}], {}, [pod("p", labels=WEB, node="a", namespace="other")], ""),
    ("one that is", [{**NEAR_WEB, "namespaceSelector": RED}], {}, [pod("p", labels=WEB, node="a")], "a b"),
    ("1.36 lets NotIn select all", [{**NEAR_WEB, "namespaceSelector": NOT_RED}], {}, [pod("p", labels=WEB, node="a")], "a b"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "terms", "labels", "there", "want"), NEAR, ids=[row[0] for row in NEAR])
def test_attracted(name: str, terms: list[Any], labels: dict[str, str], there: list[Pod], want: str) -> None:
    """Where a pod may go that must be near others."""
    books = books_of(*IN_ZONES, *there)
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    pod_class = books.classes.intern(pod("wanted", labels=labels, affinity=affinity))
    nodes = books.freeze().nodes

    assert [
        at for at, near in zip(nodes.names, attracted(pod_class, nodes, TEAMS), strict=True) if near
    ] == want.split()
