"""Auto Scaling Groups behave as AWS documents them, and show the harm that a careless caller does."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import UNSET
from msgspec.structs import replace

from nobiru.sim import asg
from nobiru.sim.asg_launch import template_version
from nobiru.sim.asg_state import (
    Activity,
    BootFault,
    CallFault,
    Catalogue,
    Faults,
    FromConfiguration,
    FromMixed,
    FromTemplate,
    Group,
    Instance,
    LaunchFault,
    Machine,
    Refused,
    Source,
    State,
    Tag,
    Template,
    Timing,
)

TIMING = Timing(launch_ms=1_000, pending_ms=2_000, boot_ms=5_000, terminating_ms=4_000, retry_ms=10_000)
SETTLED_MS = 60_000
WEB = FromTemplate(id="lt-1", name="web", version="$Latest")
CATALOGUE = Catalogue(
    configurations={
        "old": Machine(instance_type="m5.large", image_id="ami-1"),
        "new": Machine(instance_type="m5.xlarge", image_id="ami-2"),
    },
    templates={
        "lt-1": Template(
            id="lt-1",
            name="web",
            default=1,
            versions=(Machine(instance_type="c5.large"), None, Machine(instance_type="c5.xlarge")),
        )
    },
)


def world(*groups: Group, faults: Faults | None = None) -> State:
    """A region with these groups, settled."""
    state = State(region="ap-northeast-1", timing=TIMING, catalogue=CATALOGUE)
    for one in groups:
        state, problem = asg.create_group(state, one, now_ms=state.now_ms, who="admin")
        assert problem is None
    state = asg.advance(state, SETTLED_MS)
    return state if faults is None else asg.set_faults(state, faults, now_ms=SETTLED_MS)


def group(name: str = "g", **changes: Any) -> Group:
    """A group 0:10 over two zones, empty."""
    plain = Group(
        name=name,
        uid="",
        created_ms=0,
        min_size=0,
        max_size=10,
        desired=0,
        zones=("1a", "1c"),
        source=FromConfiguration(name="old"),
    )
    return replace(plain, **changes)


def wanted(state: State, desired: int, *, after_ms: int = SETTLED_MS, name: str = "g") -> State:
    """The state some time after SetDesiredCapacity was accepted."""
    at_ms = state.now_ms
    state, problem = asg.set_desired(state, name, desired, now_ms=at_ms, who="me")
    assert problem is None
    return asg.advance(state, at_ms + after_ms)


def lifecycles(state: State, name: str = "g") -> list[str]:
    return [instance.lifecycle for instance in state.groups[name].instances.values()]


def zones(state: State, name: str = "g") -> dict[str, int]:
    found: dict[str, int] = {}
    for instance in state.groups[name].live():
        found[instance.zone] = found.get(instance.zone, 0) + 1
    return found


def instances(state: State, name: str = "g") -> list[Instance]:
    return list(state.groups[name].instances.values())


def test_an_instance_is_pending_then_in_service_then_booted() -> None:
    """Rule: request -> listed Pending -> InService -> machine up, each after its own delay; Describe never runs ahead."""
    state, _ = asg.set_desired(world(group()), "g", 1, now_ms=SETTLED_MS, who="me")
    story = [(0, []), (999, []), (1_000, [("Pending", False)]), (2_999, [("Pending", False)]),
             (3_000, [("InService", False)]), (5_999, [("InService", False)]), (6_000, [("InService", True)])]  # fmt: skip
    for after_ms, want in story:
        state = asg.advance(state, SETTLED_MS + after_ms)
        assert [(i.lifecycle, i.booted) for i in instances(state)] == want, after_ms
        assert asg.view(state)["g"].desired == 1


def test_an_instance_is_terminating_then_unlisted() -> None:
    """Rule: Terminating takes its time; then the instance is no longer listed but remembered as gone."""
    state = world(group(desired=1))
    (one,) = instances(state)
    state, activity = asg.terminate_instance(state, one.id, decrement=True, now_ms=SETTLED_MS, who="me")
    assert not isinstance(activity, Refused)
    assert (activity.status, activity.description) == ("InProgress", f"Terminating EC2 instance: {one.id}")
    assert lifecycles(asg.advance(state, SETTLED_MS + 3_999)) == ["Terminating"]
    state = asg.advance(state, SETTLED_MS + 4_000)
    assert (lifecycles(state), state.groups["g"].desired) == ([], 0)
    assert [(i.id, i.ended_by, i.ended_ms) for i in state.groups["g"].gone] == [(one.id, "request", SETTLED_MS + 4_000)]


def test_each_instance_is_told_apart_and_placed() -> None:
    """Rule: ids look like AWS's, addresses are private and unique, names follow from them, tags propagate as marked."""
    tags = (Tag(key="team", value="web"), Tag(key="secret", value="x", propagate=False))
    found = instances(world(group(desired=4, tags=tags)))
    assert all(i.id.startswith("i-") and len(i.id) == 19 for i in found)
    assert len({i.id for i in found}) == len({i.private_ip for i in found}) == 4
    for i in found:
        host = i.private_ip.replace(".", "-")
        assert i.private_dns_name == f"ip-{host}.ap-northeast-1.compute.internal"
        assert i.tags == {"team": "web", "aws:autoscaling:groupName": "g"}
        assert (i.instance_type, i.image_id, i.configuration) == ("m5.large", "ami-1", "old")


def test_equal_calls_give_equal_states() -> None:
    """Rule: no clock and no chance inside; only the seed tells two worlds apart."""
    assert wanted(world(group()), 5) == wanted(world(group()), 5)


@pytest.mark.parametrize(
    ("name", "before", "call", "code", "message"),
    [
        ("above max", 3, ("desired", "g", 11), "ValidationError",
         "New SetDesiredCapacity value 11 is above max value 10 for the AutoScalingGroup."),
        ("below min", 3, ("desired", "g", 1), "ValidationError",
         "New SetDesiredCapacity value 1 is below min value 2 for the AutoScalingGroup."),
        ("unknown group", 3, ("desired", "h", 1), "ValidationError",
         "AutoScalingGroup name not found - AutoScalingGroup h not found"),
        ("unknown instance", 3, ("terminate", "i-1", True), "ValidationError",
         "Instance Id not found - No managed instance found for instance ID i-1"),
        ("terminate below min", 2, ("terminate", "", True), "ValidationError",
         "Currently, desiredSize equals minSize (2). Terminating instance without replacement will violate group's min "
         "size constraint. Either set shouldDecrementDesiredCapacity flag to false or lower group's min size."),
        ("second group of that name", 3, ("create", "g", 0), "AlreadyExists", None),
        ("bounds crossed", 3, ("create", "h", 11), "ValidationError",
         "Desired capacity:11 must be between the specified min size:0 and max size:10"),
        ("minimum over maximum", 3, ("minimum", "g", 11), "ValidationError",
         "Max bound, 10, must be greater than or equal to min bound, 11"),
        ("unknown process", 3, ("suspend", "g", 0), "ValidationError", "Sleep is not a valid Process name"),
        ("delete with instances", 3, ("delete", "g", 0), "ResourceInUse", None),
        ("protect a stranger", 3, ("protect", "g", 0), "ValidationError",
         "The instance i-1 is not part of Auto Scaling group g."),
    ],
)  # fmt: skip
def test_refusals(name: str, before: int, call: tuple[str, str, int], code: str, message: str | None) -> None:
    """Rule: what AWS refuses is refused in its words, changes nothing, and is written down as refused."""
    state = world(group(min_size=2, desired=before))
    verb, target, number = call
    now: dict[str, Any] = {"now_ms": SETTLED_MS, "who": "me"}
    answer: Activity | Refused | None
    match verb:
        case "desired":
            after, answer = asg.set_desired(state, target, number, **now)
        case "terminate":
            after, answer = asg.terminate_instance(
                state, target or instances(state)[0].id, decrement=bool(number), **now
            )
        case "create":
            after, answer = asg.create_group(state, group(target, desired=number), **now)
        case "minimum":
            after, answer = asg.update_group(state, target, asg.GroupChange(min_size=number), **now)
        case "suspend":
            after, answer = asg.suspend(state, target, ["Sleep"], **now)
        case "protect":
            after, answer = asg.protect(state, target, ["i-1"], protected=True, **now)
        case _:
            after, answer = asg.delete_group(state, target, force=False, **now)
    assert isinstance(answer, Refused), name
    assert answer.code == code
    assert message is None or answer.message == message
    assert (after.groups, after.calls) == (state.groups, state.calls)
    assert [refused.error for refused in after.refused] == [code]


def test_zones_are_filled_evenly() -> None:
    """Rule: each launch goes to the zone with the fewest instances, the first of equals in the group's order."""
    state = wanted(world(group(zones=("1a", "1c", "1d"))), 7)
    assert zones(state) == {"1a": 3, "1c": 2, "1d": 2}
    first = next(i for i in instances(state) if i.zone == "1a")
    state, _ = asg.terminate_instance(state, first.id, decrement=False, now_ms=state.now_ms, who="me")
    assert zones(asg.advance(state, state.now_ms + SETTLED_MS)) == {"1a": 3, "1c": 2, "1d": 2}


def test_terminate_without_decrement_replaces() -> None:
    """Rule: desired capacity stays, so the group launches another, at once and not only when the old one is gone."""
    state = world(group(desired=1))
    (old,) = instances(state)
    state, _ = asg.terminate_instance(state, old.id, decrement=False, now_ms=SETTLED_MS, who="me")
    assert lifecycles(asg.advance(state, SETTLED_MS + 1_000)) == ["Terminating", "Pending"]
    (new,) = instances(asg.advance(state, SETTLED_MS * 2))
    assert new.id != old.id


@pytest.mark.parametrize(
    ("name", "fault", "desired", "want_zones", "want_message"),
    [
        ("one zone out of stock: the other takes all", LaunchFault(zone="1a"), 4, {"1c": 4},
         "We currently do not have sufficient m5.large capacity in the Availability Zone you requested (1a). Our system "
         "will be working on provisioning additional capacity. You can currently get m5.large capacity by not specifying "
         "an Availability Zone in your request or choosing 1c. Launching EC2 instance failed."),
        ("out of stock everywhere", LaunchFault(), 4, {},
         "We currently do not have sufficient m5.large capacity in the Availability Zone you requested (1a). Our system "
         "will be working on provisioning additional capacity. You can currently get m5.large capacity by not specifying "
         "an Availability Zone in your request. Launching EC2 instance failed."),
        ("stock for three more", LaunchFault(available=3), 4, {"1a": 2, "1c": 1}, None),
        ("quota", LaunchFault(kind="quota"), 1, {},
         "You have requested more vCPU capacity than your current vCPU limit of 32 allows for the instance bucket that "
         "the specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request "
         "an adjustment to this limit. Launching EC2 instance failed."),
        ("image", LaunchFault(kind="image"), 1, {},
         "The image id '[ami-1]' does not exist. Launching EC2 instance failed."),
        ("own words", LaunchFault(message="Authentication Failure."), 1, {},
         "Authentication Failure. Launching EC2 instance failed."),
        ("another group's trouble", LaunchFault(group="h"), 2, {"1a": 1, "1c": 1}, None),
        ("another type's trouble", LaunchFault(instance_type="p5.48xlarge"), 2, {"1a": 1, "1c": 1}, None),
    ],
)  # fmt: skip
def test_launches_that_fail(
    name: str, fault: LaunchFault, desired: int, want_zones: dict[str, int], want_message: str | None
) -> None:
    """Rule: capacity fails by group, zone and type; the rest launches, and a Failed activity gives AWS's reason."""
    state = wanted(world(group(), faults=Faults(launches=(fault,))), desired, after_ms=5_000)
    assert zones(state) == want_zones, name
    failed = [a for a in state.groups["g"].activities.values() if a.status == "Failed"]
    if want_message is not None:
        assert failed[0].message == want_message
        assert failed[0].description == f"Launching a new EC2 instance.  Status Reason: {want_message}"
        assert "changing the desired capacity from 0 to" in failed[0].cause
    assert bool(failed) == (sum(want_zones.values()) < desired or fault.zone == "1a")
    assert state.groups["g"].desired == desired


def test_a_failed_launch_is_tried_again() -> None:
    """Rule: desired capacity stays and the group tries again every retry_ms, a Failed activity each; then it heals."""
    state = wanted(world(group(zones=("1a",)), faults=Faults(launches=(LaunchFault(),))), 2, after_ms=25_000)
    failed = [a.started_ms - SETTLED_MS for a in state.groups["g"].activities.values() if a.status == "Failed"]
    assert failed == [1_000, 11_000, 21_000]
    state = asg.advance(asg.set_faults(state, Faults(), now_ms=state.now_ms), state.now_ms + SETTLED_MS)
    assert lifecycles(state) == ["InService", "InService"]


MIXED = FromMixed(template=WEB, overrides=("c5.2xlarge", "", "m5.large"))


@pytest.mark.parametrize(
    ("name", "source", "faults", "want_types", "want_spot"),
    [
        ("first override", MIXED, (), ["c5.2xlarge"] * 4, 0),
        ("first that has capacity; empty is the template's", MIXED, ("c5.2xlarge",), ["c5.xlarge"] * 4, 0),
        ("third", MIXED, ("c5.2xlarge", "c5.xlarge"), ["m5.large"] * 4, 0),
        ("no overrides", FromMixed(template=WEB), (), ["c5.xlarge"] * 4, 0),
        ("half spot above a base of 2", FromMixed(template=WEB, on_demand_base=2, on_demand_percent=50), (),
         ["c5.xlarge"] * 4, 1),
        ("all spot", FromMixed(template=WEB, on_demand_percent=0), (), ["c5.xlarge"] * 4, 4),
        ("latest", WEB, (), ["c5.xlarge"] * 4, 0),
        ("default", FromTemplate(id="lt-1", name="web"), (), ["c5.large"] * 4, 0),
        ("number", FromTemplate(id="lt-1", name="web", version="1"), (), ["c5.large"] * 4, 0),
        ("deleted version", FromTemplate(id="lt-1", name="web", version="2"), (), [], 0),
        ("no such template", FromTemplate(id="lt-9", name="gone"), (), [], 0),
        ("no such configuration", FromConfiguration(name="gone"), (), [], 0),
    ],
)  # fmt: skip
def test_what_is_launched(
    name: str, source: Source, faults: tuple[str, ...], want_types: list[str], want_spot: int
) -> None:
    """Rule: the template's version is looked up at launch; of the overrides the first with capacity is taken."""
    trouble = Faults(launches=tuple(LaunchFault(instance_type=type_) for type_ in faults))
    state = wanted(world(group(source=source), faults=trouble), 4, after_ms=5_000)
    found = instances(state)
    assert [i.instance_type for i in found] == want_types, name
    assert sum(i.spot for i in found) == want_spot
    messages = [a.message for a in state.groups["g"].activities.values() if a.status == "Failed"]
    assert len(messages) == (0 if want_types else 1)
    assert all("does not exist. Launching EC2 instance failed." in message for message in messages)
    assert sum(request.count for request in state.groups["g"].requests) == 4 - len(want_types)


def test_a_mixed_group_names_the_api_code() -> None:
    """Rule: with a mixed-instances policy the message leads with the purchase option and EC2's error code."""
    trouble = Faults(launches=(LaunchFault(zone="1a"), LaunchFault(zone="1c", kind="spot")))
    state = wanted(world(group(source=MIXED), faults=trouble), 1, after_ms=2_000)
    starts = [a.message.split(" - ")[0] for a in state.groups["g"].activities.values() if a.status == "Failed"]
    assert starts == [
        "Could not launch On-Demand Instances. InsufficientInstanceCapacity",
        "Could not launch Spot Instances. UnfulfillableCapacity",
    ]


def test_a_changed_source_makes_the_next_instances() -> None:
    """Rule: UpdateAutoScalingGroup changes what comes, not what is there."""
    state = world(group(desired=1))
    change = asg.GroupChange(source=FromConfiguration(name="new"))
    state, _ = asg.update_group(state, "g", change, now_ms=state.now_ms, who="admin")
    assert [i.instance_type for i in instances(wanted(state, 2))] == ["m5.large", "m5.xlarge"]


def test_versions() -> None:
    """Rule: $Latest is the highest number, $Default the marked one; an unknown template is version 0."""
    for version, want in {"$Latest": 3, "$Default": 1, "2": 2, "x": 0}.items():
        assert template_version(FromTemplate(id="lt-1", name="web", version=version), CATALOGUE) == want
    assert template_version(FromTemplate(id="lt-9", name="web"), CATALOGUE) == 0


def test_the_harm_of_a_lower_desired_capacity() -> None:
    """Rule (report B1): between a Describe that lists 6 of 7 and SetDesiredCapacity(6) the 7th launches: a healthy one dies."""
    state = world(group(zones=("1a",), desired=6, max_size=40))
    state = asg.set_faults(state, Faults(launches=(LaunchFault(),)), now_ms=state.now_ms)
    state = wanted(state, 7, after_ms=5_000)
    listed = asg.view(state)["g"]
    assert (listed.desired, len(listed.instances)) == (7, 6)
    assert [a.status for a in listed.activities.values()][-1] == "Failed"
    state = asg.advance(asg.set_faults(state, Faults(), now_ms=state.now_ms), state.now_ms + 10_000)
    assert lifecycles(state) == ["InService"] * 7
    oldest = instances(state)[0]
    state = wanted(state, 6, after_ms=0)
    (victim,) = [i for i in instances(state) if i.lifecycle == "Terminating"]
    assert (victim.launch_ms, victim.ended_by) == (oldest.launch_ms, "group")
    cause = list(state.groups["g"].activities.values())[-1].cause
    assert "changing the desired capacity from 7 to 6." in cause
    assert f"instance {victim.id} was selected for termination." in cause


def test_desired_lowered_before_the_launch_cancels_it() -> None:
    """Rule: what is asked for but not launched is dropped first, the newest wish first; nobody dies."""
    state = wanted(world(group(desired=2)), 5, after_ms=500)
    state = wanted(state, 8, after_ms=400)
    state = wanted(state, 4, after_ms=SETTLED_MS)
    assert (lifecycles(state), state.groups["g"].gone) == (["InService"] * 4, ())


@pytest.mark.parametrize(
    ("name", "kept", "lowered_to", "want_zones"),
    [
        ("the most populated zone first", (), 4, {"1a": 2, "1c": 2}),
        ("then evenly", (), 2, {"1a": 1, "1c": 1}),
        ("a protected zone is passed over", ("1a",), 4, {"1a": 4}),
        ("protected ones stay although desired is lower", ("1a", "1c"), 2, {"1a": 4, "1c": 2}),
    ],
)
def test_victims_by_zone(name: str, kept: tuple[str, ...], lowered_to: int, want_zones: dict[str, int]) -> None:
    """Rule: the group takes from the zone with most instances, unless protected; desired capacity is lowered anyway."""
    state = world(group(zones=("1a",), desired=4))
    state, _ = asg.update_group(state, "g", asg.GroupChange(zones=("1a", "1c")), now_ms=state.now_ms, who="admin")
    state = wanted(state, 6)
    assert zones(state) == {"1a": 4, "1c": 2}
    ids = [i.id for i in instances(state) if i.zone in kept]
    state, _ = asg.protect(state, "g", ids, protected=True, now_ms=state.now_ms, who="admin")
    state = wanted(state, lowered_to)
    assert zones(state) == want_zones, name
    assert state.groups["g"].desired == lowered_to
    newest = list(state.groups["g"].activities.values())[-1]
    if sum(want_zones.values()) > lowered_to:
        assert newest.status == "Cancelled"
        assert newest.description == (
            "Could not scale to desired capacity because all remaining instances are protected from scale-in."
        )


def test_victims_by_age() -> None:
    """Rule: in a zone the oldest launch configuration goes first, then the oldest template version, then the oldest."""
    state = world(group(zones=("1a",), source=FromConfiguration(name="new"), desired=1))
    for source in (FromConfiguration(name="old"), WEB, FromTemplate(id="lt-1", name="web", version="1"), WEB):
        state, _ = asg.update_group(state, "g", asg.GroupChange(source=source), now_ms=state.now_ms, who="admin")
        state = wanted(state, state.groups["g"].desired + 1)
    order: list[tuple[str, int, int]] = []
    while instances(state):
        state = wanted(state, state.groups["g"].desired - 1)
        gone = state.groups["g"].gone[-1]
        order.append((gone.configuration, gone.template_version, gone.launch_ms // SETTLED_MS))
    assert order == [("old", 0, 1), ("new", 0, 0), ("", 1, 3), ("", 3, 2), ("", 3, 4)]


def test_a_maximum_lowered_below_what_runs() -> None:
    """Rule (report B40): max 0 with protection leaves desired 0 and all running; only Terminate takes them, one by one."""
    state = world(group(desired=3, protect_new=True))
    state, _ = asg.update_group(state, "g", asg.GroupChange(max_size=0), now_ms=state.now_ms, who="admin")
    state = asg.advance(state, state.now_ms + SETTLED_MS)
    assert (state.groups["g"].desired, lifecycles(state)) == (0, ["InService"] * 3)
    one = instances(state)[0]
    _, refused = asg.terminate_instance(state, one.id, decrement=True, now_ms=state.now_ms, who="me")
    assert isinstance(refused, Refused)
    state, _ = asg.terminate_instance(state, one.id, decrement=False, now_ms=state.now_ms, who="me")
    state = asg.advance(state, state.now_ms + SETTLED_MS)
    assert (state.groups["g"].desired, lifecycles(state)) == (0, ["InService"] * 2)


@pytest.mark.parametrize(
    ("name", "change", "want"),
    [
        ("minimum above desired raises it", asg.GroupChange(min_size=5), (5, 10, 5)),
        ("maximum below desired lowers it", asg.GroupChange(max_size=2), (0, 2, 2)),
        ("limits around desired leave it", asg.GroupChange(min_size=1, max_size=4), (1, 4, 3)),
        ("an explicit desired counts", asg.GroupChange(min_size=1, desired=6), (1, 10, 6)),
    ],
)
def test_limits_move_desired(name: str, change: asg.GroupChange, want: tuple[int, int, int]) -> None:
    """Rule: a limit set over or under desired capacity takes it along, and the group follows."""
    state, problem = asg.update_group(world(group(desired=3)), "g", change, now_ms=SETTLED_MS, who="admin")
    assert problem is None
    state = asg.advance(state, SETTLED_MS * 2)
    found = state.groups["g"]
    assert (found.min_size, found.max_size, found.desired) == want, name
    assert len(found.live()) == want[2]


def test_terminating_twice_lowers_desired_twice() -> None:
    """Rule: a second terminate-and-decrement of the same instance costs another one: the caller must look first."""
    state = world(group(desired=3))
    one = instances(state)[0]
    for _ in range(2):
        state, answer = asg.terminate_instance(state, one.id, decrement=True, now_ms=SETTLED_MS, who="me")
        assert not isinstance(answer, Refused)
    state = asg.advance(state, SETTLED_MS * 2)
    assert (state.groups["g"].desired, len(instances(state))) == (1, 1)
    assert sorted(i.ended_by for i in state.groups["g"].gone) == ["group", "request"]


def test_suspended_processes() -> None:
    """Rule: Launch suspended holds launches back, Terminate suspended the group's own choice, until resumed."""
    state, _ = asg.suspend(world(group(desired=2)), "g", ["Launch", "Terminate"], now_ms=SETTLED_MS, who="admin")
    state = wanted(state, 4)
    assert (len(instances(state)), state.groups["g"].desired) == (2, 4)
    state = wanted(state, 1)
    assert lifecycles(state) == ["InService"] * 2
    state, _ = asg.resume(state, "g", ["Terminate"], now_ms=state.now_ms, who="admin")
    assert len(asg.advance(state, state.now_ms + SETTLED_MS).groups["g"].instances) == 1
    state = wanted(state, 4)
    state, _ = asg.resume(state, "g", [], now_ms=state.now_ms, who="admin")
    assert len(asg.advance(state, state.now_ms + SETTLED_MS).groups["g"].instances) == 4


def test_a_launch_suspended_while_under_way() -> None:
    """Rule: suspending Launch stops what is asked for but not launched yet; resuming asks again."""
    state = wanted(world(group()), 2, after_ms=500)
    state, _ = asg.suspend(state, "g", ["Launch"], now_ms=state.now_ms, who="admin")
    state = asg.advance(state, state.now_ms + SETTLED_MS)
    assert lifecycles(state) == []
    state, _ = asg.resume(state, "g", ["Launch"], now_ms=state.now_ms, who="admin")
    assert lifecycles(asg.advance(state, state.now_ms + SETTLED_MS)) == ["InService"] * 2


def test_a_machine_that_dies_is_replaced() -> None:
    """Rule: a machine stopped behind the group's back is taken out of service and replaced."""
    state = world(group(desired=2))
    one = instances(state)[0]
    state = asg.instance_died(state, one.id, now_ms=SETTLED_MS)
    assert "EC2 health check" in list(state.groups["g"].activities.values())[-1].cause
    state = asg.advance(state, SETTLED_MS * 2)
    assert lifecycles(state) == ["InService"] * 2
    assert [(i.id, i.ended_by) for i in state.groups["g"].gone] == [(one.id, "health")]
    assert asg.instance_died(state, one.id, now_ms=state.now_ms) == state


def test_slow_boots_and_boots_that_never_end() -> None:
    """Rule: a boot fault strikes the next `count` machines it matches; InService does not wait for the boot."""
    faults = Faults(boots=(BootFault(zone="1c", boot_ms=30_000, pending_ms=9_000), BootFault(count=1)))
    state = wanted(world(group(), faults=faults), 4, after_ms=6_000)
    seen = [(i.zone, i.lifecycle, i.boot_after_ms, i.booted) for i in instances(state)]
    assert seen == [
        ("1a", "InService", None, False),
        ("1c", "Pending", 30_000, False),
        ("1a", "InService", 5_000, True),
        ("1c", "Pending", 30_000, False),
    ]
    assert [i.booted for i in instances(asg.advance(state, state.now_ms + SETTLED_MS))] == [False, True, True, True]


def test_describe_lags() -> None:
    """Rule: with a lag, Describe shows the groups as they were that long ago, and catches up by itself."""
    state = world(group(desired=1), faults=Faults(describe_lag_ms=1_500))
    state, _ = asg.set_desired(state, "g", 2, now_ms=SETTLED_MS + 100, who="me")
    for after_ms, want in [(100, (1, 1)), (1_599, (1, 1)), (1_600, (2, 1)), (2_599, (2, 1)), (2_600, (2, 2))]:
        state = asg.advance(state, SETTLED_MS + after_ms)
        seen = asg.view(state)["g"]
        assert (seen.desired, len(seen.instances)) == want, after_ms
    assert asg.view(asg.set_faults(state, Faults(), now_ms=state.now_ms)) == state.groups


def test_call_faults_are_counted_off() -> None:
    """Rule: the next N calls of that action for that group meet the fault; others and later ones do not."""
    faults = Faults(
        calls=(
            CallFault(action="SetDesiredCapacity", group="g", calls=2),
            CallFault(action="DescribeTags", kind="deny", calls=None),
        )
    )
    state = world(group(), faults=faults)
    seen: list[str] = []
    for action, name in [("SetDesiredCapacity", "h"), ("SetDesiredCapacity", "g"), ("DescribeTags", ""),
                         ("SetDesiredCapacity", "g"), ("SetDesiredCapacity", "g"), ("DescribeTags", "g")]:  # fmt: skip
        state, fault = asg.admit(state, action, [name])
        seen.append(fault.kind if fault is not None else "")
    assert seen == ["", "throttle", "deny", "throttle", "", "deny"]


def test_the_log_says_who_did_what() -> None:
    """Rule: each accepted change is in the log with arguments, time, caller, and desired capacity before and after."""
    state = wanted(world(group(desired=1)), 3, after_ms=0)
    state, _ = asg.terminate_instance(state, instances(state)[0].id, decrement=True, now_ms=state.now_ms, who="you")
    assert [(c.action, c.who, c.at_ms, c.desired_before, c.desired_after) for c in state.calls] == [
        ("CreateAutoScalingGroup", "admin", 0, 0, 1),
        ("SetDesiredCapacity", "me", SETTLED_MS, 1, 3),
        ("TerminateInstanceInAutoScalingGroup", "you", SETTLED_MS, 3, 2),
    ]
    assert state.calls[1].args == {"desired": 3}


def test_deleting_a_group() -> None:
    """Rule: with force the instances go first and the group with them; meanwhile no call may use it."""
    state, problem = asg.delete_group(world(group(desired=2)), "g", force=True, now_ms=SETTLED_MS, who="admin")
    assert problem is None
    assert lifecycles(state) == ["Terminating"] * 2
    _, refused = asg.set_desired(state, "g", 1, now_ms=SETTLED_MS, who="me")
    assert refused is not None
    assert asg.advance(state, SETTLED_MS * 2).groups == {}
    state, _ = asg.delete_group(world(group()), "g", force=False, now_ms=SETTLED_MS, who="admin")
    assert state.groups == {}


def test_tags_change_for_the_next_instances() -> None:
    """Rule: tags are set and removed by key; instances that exist keep theirs."""
    state = world(group(desired=1, tags=(Tag(key="a", value="1"), Tag(key="b", value="2"))))
    now: dict[str, Any] = {"now_ms": SETTLED_MS, "who": "admin"}
    state, _ = asg.tag(state, "g", [Tag(key="a", value="9"), Tag(key="c", value="3", propagate=False)], **now)
    state, _ = asg.untag(state, "g", ["b"], **now)
    assert {t.key: (t.value, t.propagate) for t in state.groups["g"].tags} == {"a": ("9", True), "c": ("3", False)}
    old, new = instances(wanted(state, 2))
    assert (old.tags["a"], old.tags["b"], new.tags["a"]) == ("1", "2", "9")
    assert "b" not in new.tags


def test_time_never_steps_back() -> None:
    """Rule: a moment that is past changes nothing."""
    state = world(group(desired=1))
    assert asg.advance(state, 5) == state


def test_five_thousand_instances() -> None:
    """Rule: one call raises and one lowers a group by thousands; all zones stay even."""
    state = wanted(world(group(max_size=6_000, zones=("1a", "1c", "1d"))), 5_000)
    assert zones(state) == {"1a": 1667, "1c": 1667, "1d": 1666}
    state = wanted(state, 10)
    assert sum(zones(state).values()) == 10
    assert len(state.groups["g"].gone) == 4_990


class Life(RuleBasedStateMachine):
    """Any row of calls and faults keeps what `sim.asg` promises."""

    @initialize(zone_count=st.integers(1, 3), minimum=st.integers(0, 2))
    def begin(self, zone_count: int, minimum: int) -> None:
        self.clock_ms = 0
        self.accepted = 1
        self.refused = 0
        self.terminate_suspended = False
        self.state = State(region="r", timing=TIMING, catalogue=CATALOGUE)
        start = group(zones=("1a", "1c", "1d")[:zone_count], min_size=minimum, max_size=8, desired=minimum)
        self.state, problem = asg.create_group(self.state, start, now_ms=0, who="p")
        assert problem is None

    def note(self, problem: object) -> None:
        self.refused += isinstance(problem, Refused)
        self.accepted += not isinstance(problem, Refused)

    def pick(self, number: int) -> str:
        ids = list(self.state.groups["g"].instances)
        return ids[number % len(ids)] if ids else "i-none"

    @rule(wait_ms=st.integers(0, 20_000))
    def wait(self, wait_ms: int) -> None:
        self.clock_ms += wait_ms
        self.state = asg.advance(self.state, self.clock_ms)

    @rule(desired=st.integers(-1, 10))
    def set_desired(self, desired: int) -> None:
        self.state, problem = asg.set_desired(self.state, "g", desired, now_ms=self.clock_ms, who="p")
        self.note(problem)

    @rule(number=st.integers(0, 20), decrement=st.booleans())
    def terminate(self, number: int, decrement: bool) -> None:
        self.state, answer = asg.terminate_instance(
            self.state, self.pick(number), decrement=decrement, now_ms=self.clock_ms, who="p"
        )
        self.note(answer)

    @rule(low=st.integers(0, 6), high=st.integers(0, 9), desired=st.none() | st.integers(0, 9))
    def limits(self, low: int, high: int, desired: int | None) -> None:
        change = asg.GroupChange(min_size=low, max_size=high, desired=UNSET if desired is None else desired)
        self.state, problem = asg.update_group(self.state, "g", change, now_ms=self.clock_ms, who="p")
        self.note(problem)

    @rule(number=st.integers(0, 20))
    def dies(self, number: int) -> None:
        self.state = asg.instance_died(self.state, self.pick(number), now_ms=self.clock_ms)

    @rule(names=st.sets(st.sampled_from(["Launch", "Terminate"]), min_size=1), on=st.booleans())
    def processes(self, names: set[str], on: bool) -> None:
        change = asg.resume if on else asg.suspend
        self.state, problem = change(self.state, "g", names, now_ms=self.clock_ms, who="p")
        self.note(problem)

    @rule(
        launches=st.lists(
            st.builds(LaunchFault, zone=st.sampled_from(["", "1a", "1c"]), available=st.integers(0, 2)), max_size=2
        ),
        lag_ms=st.integers(0, 3_000),
    )
    def trouble(self, launches: list[LaunchFault], lag_ms: int) -> None:
        faults = Faults(launches=tuple(launches), describe_lag_ms=lag_ms)
        self.state = asg.set_faults(self.state, faults, now_ms=self.clock_ms)

    @invariant()
    def desired_within_limits(self) -> None:
        found = self.state.groups["g"]
        assert found.min_size <= found.desired <= found.max_size

    @invariant()
    def never_more_than_desired(self) -> None:
        found = self.state.groups["g"]
        if "Terminate" not in found.suspended:
            assert len(found.live()) + sum(request.count for request in found.requests) <= found.desired

    @invariant()
    def what_lacks_is_asked_for(self) -> None:
        found = self.state.groups["g"]
        if not found.suspended:
            assert len(found.live()) + sum(request.count for request in found.requests) == found.desired

    @invariant()
    def no_instance_is_lost(self) -> None:
        found = self.state.groups["g"]
        ids = {*found.instances, *(gone.id for gone in found.gone)}
        assert len(ids) == self.state.launched == len(found.instances) + len(found.gone)
        ending = {id_ for _, kind, id_ in found.timers if kind == "end"}
        assert ending == {i.id for i in found.instances.values() if i.lifecycle == "Terminating"}

    @invariant()
    def the_log_is_complete(self) -> None:
        assert (len(self.state.calls), len(self.state.refused)) == (self.accepted, self.refused)
        desired = 0
        for call in self.state.calls:
            assert call.desired_before == desired
            desired = call.desired_after
        assert desired == self.state.groups["g"].desired

    @invariant()
    def describe_shows_a_past_moment(self) -> None:
        assert set(asg.view(self.state)) == {"g"}
        assert all(at_ms <= self.state.now_ms for at_ms, _ in self.state.history)


Life.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
TestLife = Life.TestCase
