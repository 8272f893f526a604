"""AWS's answers about groups as the kernel's values, and what may be set on a group as it is."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nobiru.aws.answers import ActivityAnswer, GroupAnswer, read
from nobiru.aws.conversion import GroupSpec, activity, node_group, present, raise_to, understood, unusable
from nobiru.aws.instance_types import bundled_types
from nobiru.aws.templates import launch_by_configuration
from nobiru.kernel.cloud import Activity, Instance, NodeGroup
from tests.unit.aws.builders import REGION, ZONE_A, ZONE_C, configuration, group, group_json, machine, machines, mixed


def convert(answer: GroupAnswer, spec: GroupSpec | None = None) -> NodeGroup:
    launch = launch_by_configuration(answer, configuration(), "")
    return node_group(answer, spec, launch, bundled_types().get, region=REGION, family="eks", activities=None, now_ms=7)


def test_a_whole_group() -> None:
    """Everything that the plan reads of a group, in order."""
    answer = group(
        "web",
        sizes=(1, 3, 6),
        zones=[ZONE_C, ZONE_A],
        tags={"Name": "web"},
        suspended=["AZRebalance"],
        instances=[
            machine("i-2", state="Terminating:Wait"),
            {
                **machine("i-1", zone=ZONE_C),
                "HealthStatus": "UNHEALTHY",
                "ProtectedFromScaleIn": True,
                "LaunchTemplate": {"LaunchTemplateId": "lt-1", "Version": "4"},
            },
        ],
    )
    got = convert(answer)

    assert got.instances == (
        Instance(
            id="i-1",
            zone=ZONE_C,
            lifecycle="InService",
            healthy=False,
            instance_type="m5.large",
            launch_template_version="4",
            protected_from_scale_in=True,
        ),
        Instance(id="i-2", zone=ZONE_A, lifecycle="Terminating:Wait", instance_type="m5.large"),
    )
    assert (got.min_size, got.desired, got.max_size) == (1, 3, 6)
    assert (got.cloud_min_size, got.cloud_max_size) == (1, 6)
    assert got.zones == (ZONE_A, ZONE_C)
    assert got.tags == {"Name": "web"}
    assert got.suspended == {"AZRebalance"}
    assert got.template is not None
    assert (got.problem, got.template_problem, got.described_ms) == ("", "", 7)


def test_limits_of_the_command_line() -> None:
    """--nodes' limits are what the plan goes by; AWS's own stay beside them."""
    got = convert(group(sizes=(2, 3, 6)), GroupSpec(name="web", min_size=0, max_size=9))

    assert (got.min_size, got.max_size) == (0, 9)
    assert (got.cloud_min_size, got.cloud_max_size) == (2, 6)
    assert got.headroom == 3


PROBLEMS = [
    ("none", group(), ""),
    ("being deleted", group(Status="Delete in progress"), "it is being deleted (Delete in progress)"),
    (
        "weights",
        group(MixedInstancesPolicy=mixed("m5.large", WeightedCapacity="3")),
        "its instance types have weights, so its capacity is no number of machines",
    ),
]


@pytest.mark.parametrize(("name", "answer", "problem"), PROBLEMS, ids=[row[0] for row in PROBLEMS])
def test_problems(name: str, answer: GroupAnswer, problem: str) -> None:
    """A group that cannot be used says why, and is still read."""
    got = convert(answer)

    assert got.problem.startswith(problem)
    assert bool(got.problem) == bool(problem)
    assert got.name == "web"


def test_one_broken_answer_spoils_only_its_group() -> None:
    """An answer of another shape is named; its neighbours are read."""
    broken = {**group_json("b"), "DesiredCapacity": "many"}
    nameless = {"MinSize": 1}

    known, wrong = understood([group_json("a"), broken, nameless, group_json("c")])

    assert sorted(known) == ["a", "c"]
    assert list(wrong) == ["b"]
    assert "DesiredCapacity" in wrong["b"]
    assert unusable("b", GroupSpec(name="b", min_size=1, max_size=2), wrong["b"], 5).max_size == 2


def test_activity() -> None:
    """An entry of the history keeps AWS's own words."""
    answer = {
        "ActivityId": "1",
        "StatusCode": "Failed",
        "StatusMessage": "no capacity",
        "Cause": "At ...",
        "StartTime": datetime(2026, 1, 1, tzinfo=UTC),
        "Progress": 100,
    }
    assert activity(read(answer, ActivityAnswer)) == Activity(
        id="1", status="Failed", message="no capacity", cause="At ...", started_ms=1767225600000, progress=100
    )


RAISES = [
    ("up", group(sizes=(0, 1, 6)), 3, (3, "")),
    ("from zero", group(sizes=(0, 0, 6)), 6, (6, "")),
    ("the same", group(sizes=(0, 3, 6)), 3, (0, "desired capacity is 3 already")),
    ("lower", group(sizes=(0, 3, 6)), 1, (0, "desired capacity is 3 already")),
    ("as far as the maximum", group(sizes=(0, 3, 6)), 9, (6, "")),
    ("at the maximum", group(sizes=(0, 6, 6)), 9, (0, "at the Auto Scaling Group's own maximum 6")),
    ("maximum lowered below desired (report B40)", group(sizes=(0, 3, 0)), 9, (0, "own maximum 0")),
    ("more machines than wanted", group(sizes=(0, 1, 9), instances=machines(5)), 3, (0, "5 machines exist")),
    ("as many machines as wanted", group(sizes=(0, 1, 9), instances=machines(3)), 3, (3, "")),
    (
        "booting machines exist",
        group(sizes=(0, 1, 9), instances=machines(5, "Pending:Wait")),
        3,
        (0, "5 machines exist"),
    ),
    ("leaving machines do not", group(sizes=(0, 1, 9), instances=machines(5, "Terminating")), 3, (3, "")),
    ("standby machines do not", group(sizes=(0, 1, 9), instances=machines(5, "Standby")), 3, (3, "")),
    ("warm machines do not", group(sizes=(0, 1, 9), instances=machines(5, "Warmed:Stopped")), 3, (3, "")),
    ("Launch is suspended", group(sizes=(0, 1, 9), suspended=["Launch"]), 3, (0, "its Launch process is suspended")),
    ("AZRebalance is suspended", group(sizes=(0, 1, 9), suspended=["AZRebalance"]), 3, (3, "")),
]


@pytest.mark.parametrize(("name", "answer", "wanted", "want"), RAISES, ids=[row[0] for row in RAISES])
def test_raise_to(name: str, answer: GroupAnswer, wanted: int, want: tuple[int, str]) -> None:
    """What is set is higher than desired and not below what exists or boots; otherwise the line says why nothing is."""
    target, why_not = raise_to(answer, wanted)

    assert target == want[0]
    assert want[1] in why_not
    assert bool(why_not) == (target == 0)


@given(
    desired=st.integers(0, 50),
    max_size=st.integers(0, 60),
    wanted=st.integers(0, 80),
    there=st.integers(0, 60),
    leaving=st.integers(0, 5),
)
def test_nothing_is_ever_lowered(desired: int, max_size: int, wanted: int, there: int, leaving: int) -> None:
    """Whatever a group is like: never below or at desired, never below the machines that exist, never above the maximum (B1, B2)."""
    answer = group(sizes=(0, desired, max_size), instances=[*machines(there), *machines(leaving, "Terminating")])

    target, why_not = raise_to(answer, wanted)

    if not why_not:
        assert max(desired + 1, present(answer)) <= target <= min(wanted, max_size)
