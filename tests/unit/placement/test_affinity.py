"""Which classes cannot share a node."""

import pytest

from nobiru.kernel.objects import Pod
from nobiru.placement.affinity import conflicts
from nobiru.placement.classes import ClassTable
from tests.unit.placement.builders import Json, anti_affinity, pod

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
