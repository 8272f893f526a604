"""Groups over the wire: against the simulated cloud, which behaves as AWS does, and against one that answers what a test says."""

import asyncio
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from nobiru.aws.groups import (
    DESCRIBE_ACTIVITIES,
    Description,
    Groups,
    GroupSpec,
    Raised,
    Wanted,
)
from nobiru.aws.launch import DESCRIBE_TYPES, DESCRIBE_VERSIONS
from nobiru.aws.session import Aws
from nobiru.kernel.cloud import Activity, NodeGroup
from nobiru.kernel.errors import CloudDenied, CloudRejected, CloudThrottled, CloudUnavailable
from nobiru.kernel.reason import Reason
from nobiru.sim.asg_state import CallFault, Faults, LaunchFault, Timing
from nobiru.sim.cloud import Cloud
from tests.unit.aws.builders import NODE_TEMPLATE, REGION, ZONE_A
from tests.unit.aws.fake_aws import (
    SET_DONE,
    TERMINATE_DONE,
    FakeAws,
    failure,
    group_xml,
    groups_reply,
    silence,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

TIMING = Timing(launch_ms=50, pending_ms=100, boot_ms=200, terminating_ms=100, retry_ms=200)
CA = "k8s.io/cluster-autoscaler/"
SIX = ("DescribeAutoScalingGroups", "DescribeAutoScalingInstances", "DescribeTags", "SetDesiredCapacity",
       "TerminateInstanceInAutoScalingGroup", "DescribeLaunchConfigurations")  # fmt: skip
POLICY = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Resource": "*", "Action": [f"autoscaling:{action}" for action in SIX]}],
    }
)


def use(env: dict[str, str]) -> None:
    """This process's way to AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(env)


@pytest.fixture(scope="module", autouse=True)
def environment() -> Iterator[None]:
    """The variables as they were, after all tests of this file."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[Cloud]:
    """One cloud for all tests of this file; each test has groups of its own."""
    async with Cloud.start(REGION, timing=TIMING) as cloud:
        await cloud.create_launch_configuration("m5")
        await cloud.create_launch_template("workers", instance_type="c5.xlarge")
        yield cloud


@pytest_asyncio.fixture(loop_scope="module")
async def cloud(running: Cloud) -> AsyncIterator[Cloud]:
    """The cloud without troubles, before and after; calls are the admin's."""
    use(running.environment())
    yield running
    await running.set_faults()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def connection(running: Cloud) -> AsyncIterator[Aws]:
    """A connection as the admin, made once: it takes a moment."""
    use(running.environment())
    made = Aws()
    yield made
    made.close()


@pytest_asyncio.fixture(loop_scope="module")
async def aws(cloud: Cloud, connection: Aws) -> Aws:
    """That connection, while the cloud has no troubles."""
    return connection


def explicit(*names: str, sizes: tuple[int, int] = (0, 6)) -> Wanted:
    return Wanted(explicit=tuple(GroupSpec(name=name, min_size=sizes[0], max_size=sizes[1]) for name in names))


def named(found: Description, name: str) -> NodeGroup:
    return next(group for group in found.groups if group.name == name)


async def test_a_group_as_the_walk_through_has_it(cloud: Cloud) -> None:
    """With the six rights alone: a name with a space, a template from the launch configuration, nothing refused."""
    await cloud.create_group(
        "my openshift compute",
        0,
        6,
        configuration="m5",
        zones=[ZONE_A],
        tags={f"{NODE_TEMPLATE}label/node-role.kubernetes.io/compute": "true", "kubernetes.io/cluster/c": "owned"},
    )
    use(cloud.environment(await cloud.create_iam_user(POLICY, "six")))
    aws = Aws()
    try:
        found = await Groups(aws, explicit("my openshift compute")).describe(frozenset())
    finally:
        aws.close()

    (group,) = found.groups
    assert (group.desired, group.problem, group.template_problem) == (0, "", "")
    assert group.template is not None
    assert group.template.instance_type == "m5.large"
    assert group.template.labels["node-role.kubernetes.io/compute"] == "true"
    assert group.template.allocatable["memory"] // 2**31 == 3
    assert found.denied == frozenset()


async def test_one_bad_group_does_not_spoil_the_others(cloud: Cloud, aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown names, strange names, a deleted launch template: a line each, and the good group is as ever."""
    await cloud.create_group("good", 0, 6, configuration="m5")
    template_id = await cloud.create_launch_template("short-lived")
    await cloud.create_group("orphan", 0, 6, template="short-lived")
    monkeypatch.setattr("nobiru.aws.launch.MOVING_MS", 0)
    groups = Groups(aws, explicit("good", "orphan", "nobody", "x" * 300))
    assert named(await groups.describe(frozenset()), "orphan").template is not None
    await aws.run(lambda clients: clients.ec2.delete_launch_template(LaunchTemplateId=template_id))
    found = await groups.describe(frozenset())

    assert [group.name for group in found.groups] == ["good", "nobody", "orphan", "x" * 300]
    assert named(found, "good").problem == ""
    assert named(found, "good").template is not None
    assert named(found, "nobody").problem == (
        'Auto Scaling Group "nobody" does not exist in ap-northeast-1: correct --nodes or AWS_REGION'
    )
    assert named(found, "orphan").problem == ""
    assert named(found, "orphan").template is None
    assert named(found, "orphan").template_problem.startswith(
        "launch template short-lived version $Latest cannot be read: AWS rejects ec2:DescribeLaunchTemplateVersions"
    )
    assert "does not exist" in named(found, "x" * 300).problem


async def test_more_than_a_hundred_groups(cloud: Cloud, aws: Aws) -> None:
    """Names are asked for a hundred at a time."""
    names = [f"many-{number:03}" for number in range(103)]
    await cloud.create_group(names[-1], 1, 2, configuration="m5")
    before = (await cloud.calls()).counts["autoscaling:DescribeAutoScalingGroups"]
    found = await Groups(aws, explicit(*names)).describe(frozenset())

    assert [group.name for group in found.groups] == names
    assert (found.groups[-1].problem, found.groups[-1].desired) == ("", 1)
    assert (await cloud.calls()).counts["autoscaling:DescribeAutoScalingGroups"] == before + 2


async def test_raise(cloud: Cloud, aws: Aws) -> None:
    """Raised once and read back; never lowered; as far as the group's maximum; a machine that exists is counted from AWS."""
    await cloud.create_group("up", 0, 4, configuration="m5")
    groups = Groups(aws, explicit("up"))

    assert await groups.raise_checked("up", 2) == Raised(group="up", wanted=2, before=0, after=2)
    again = await groups.raise_checked("up", 1)
    assert (again.after, again.why_not) == (2, "desired capacity is 2 already")
    assert await groups.raise_desired("up", 2) == 2
    assert await groups.raise_desired("up", 9) == 4
    with pytest.raises(CloudRejected, match=r"group up was not raised to 9: .* own maximum 4: raise that"):
        await groups.raise_desired("up", 9)
    with pytest.raises(CloudRejected, match="does not exist"):
        await groups.raise_desired("nobody", 1)

    sizes = [
        call.desired_after
        for call in (await cloud.calls()).calls
        if call.action == "SetDesiredCapacity" and call.group == "up"
    ]
    assert sizes == [2, 4]


async def test_launch_suspended(cloud: Cloud, aws: Aws) -> None:
    """A group that may not launch is not raised, and says so."""
    await cloud.create_group("still", 0, 4, configuration="m5")
    await cloud.perform("SuspendProcesses", {"AutoScalingGroupName": "still", "ScalingProcesses": ["Launch"]})
    groups = Groups(aws, explicit("still"))

    with pytest.raises(CloudRejected, match="its Launch process is suspended: resume it"):
        await groups.raise_desired("still", 1)
    assert named(await groups.describe(frozenset()), "still").suspended == {"Launch"}


async def test_terminate(cloud: Cloud, aws: Aws) -> None:
    """One instance goes and desired capacity with it; the same again is success; below the minimum AWS refuses."""
    await cloud.create_group("down", 1, 4, desired=2, configuration="m5")
    await cloud.wait_for(lambda found: sum(each.group == "down" and each.state == "InService" for each in found) == 2)
    groups = Groups(aws, explicit("down"))
    first, second = (each.id for each in named(await groups.describe(frozenset()), "down").instances)

    await groups.terminate(first)
    assert named(await groups.describe(frozenset()), "down").desired == 1
    await cloud.wait_for(lambda found: all(each.id != first for each in found))
    await groups.terminate(first)
    with pytest.raises(CloudRejected, match="min size constraint"):
        await groups.terminate(second)
    assert named(await groups.describe(frozenset()), "down").desired == 1


async def test_surplus_at_the_minimum_goes_without_a_decrement(cloud: Cloud, aws: Aws) -> None:
    """B40: desired capacity at the minimum, more machines run (protected from scale-in): AWS refuses the decrement, one goes."""
    await cloud.create_group("kept", 0, 4, desired=2, configuration="m5")
    await cloud.wait_for(lambda found: sum(each.group == "kept" and each.state == "InService" for each in found) == 2)
    groups = Groups(aws, explicit("kept"))
    ids = [each.id for each in named(await groups.describe(frozenset()), "kept").instances]
    protection = {"AutoScalingGroupName": "kept", "InstanceIds": ids, "ProtectedFromScaleIn": True}
    await cloud.perform("SetInstanceProtection", protection)
    await cloud.perform("UpdateAutoScalingGroup", {"AutoScalingGroupName": "kept", "MaxSize": 0, "DesiredCapacity": 0})

    await groups.terminate(ids[0])
    await cloud.wait_for(lambda found: all(each.id != ids[0] for each in found))
    after = named(await groups.describe(frozenset()), "kept")
    assert (after.desired, [each.id for each in after.instances]) == (0, ids[1:])


async def test_ending_instance_is_not_ended_twice(cloud: Cloud, aws: Aws) -> None:
    """AWS would lower desired capacity once more for an instance that is Terminating already."""
    await cloud.create_group("twice", 0, 4, desired=2, configuration="m5")
    await cloud.wait_for(lambda found: sum(each.group == "twice" and each.state == "InService" for each in found) == 2)
    groups = Groups(aws, explicit("twice"))
    first, _ = (each.id for each in named(await groups.describe(frozenset()), "twice").instances)

    await groups.terminate(first)
    await groups.terminate(first)
    assert named(await groups.describe(frozenset()), "twice").desired == 1


async def test_history_of_a_group_that_lacks_machines(cloud: Cloud, aws: Aws) -> None:
    """AWS's own words of a failed launch, asked for only while machines are missing."""
    await cloud.create_group("dry", 0, 4, configuration="m5", zones=[ZONE_A])
    groups = Groups(aws, explicit("dry"))
    assert named(await groups.describe(frozenset()), "dry").activities is None

    await cloud.set_faults(Faults(launches=(LaunchFault(group="dry"),)))
    await groups.raise_desired("dry", 1)
    newest = await failed_activity(groups, "dry")
    assert newest.status == "Failed"
    assert "m5.large" in newest.message


async def failed_activity(groups: Groups, name: str) -> Activity:
    """The first activity with AWS's words that shows up."""
    async with asyncio.timeout(10):
        while True:
            found = [each for each in named(await groups.describe(frozenset()), name).activities or () if each.message]
            if found:
                return found[0]
            await asyncio.sleep(0.05)


async def test_a_lost_reply(cloud: Cloud, aws: Aws) -> None:
    """A write whose answer is lost is an outage, is not repeated, and the next look shows that it landed."""
    await cloud.create_group("lost", 0, 4, configuration="m5")
    await cloud.set_faults(Faults(calls=(CallFault(kind="lost_reply", action="SetDesiredCapacity", group="lost"),)))
    groups = Groups(aws, explicit("lost"))
    with pytest.raises(CloudUnavailable):
        await groups.raise_desired("lost", 2)

    assert named(await groups.describe(frozenset()), "lost").desired == 2
    assert (await groups.raise_checked("lost", 2)).why_not == "desired capacity is 2 already"


async def test_optional_rights(cloud: Cloud) -> None:
    """What is not allowed is asked for once, named as denied, and costs only what it is for."""
    await cloud.create_group("template", 0, 4, template="workers")
    await cloud.create_group("mixed", 0, 4, template="workers", overrides=["m5.large", "m5a.large"])
    await cloud.create_group("busy", 1, 4, template="workers")
    await cloud.wait_for(lambda found: any(each.group == "busy" and each.state == "InService" for each in found))
    await cloud.set_faults(Faults(launches=(LaunchFault(group="mixed"),)))
    use(cloud.environment(await cloud.create_iam_user(POLICY, "six-again")))
    aws = Aws()
    try:
        groups = Groups(aws, explicit("template", "mixed", "busy"))
        await groups.raise_desired("mixed", 1)
        found = await groups.describe(frozenset())
        counts = (await cloud.calls()).counts
        found = await groups.describe(frozenset())
    finally:
        aws.close()

    assert found.denied == {DESCRIBE_VERSIONS, DESCRIBE_ACTIVITIES}
    again = (await cloud.calls()).counts
    assert [again[action] - counts[action] for action in (DESCRIBE_VERSIONS, DESCRIBE_ACTIVITIES)] == [0, 0]
    assert named(found, "template").template is None
    assert named(found, "template").template_problem == (
        "launch template workers version $Latest cannot be read: allow ec2:DescribeLaunchTemplateVersions"
    )
    both = named(found, "mixed")
    assert both.template is not None
    assert both.template.allocatable["cpu"] == 1930
    assert both.activities is None
    seen = named(found, "busy").template
    assert seen is not None
    assert seen.instance_type == "c5.xlarge"


async def test_a_new_template_version_shows(cloud: Cloud, aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    """Report B20: a group at zero whose launch template changed has the new type at the next look that is due."""
    await cloud.create_launch_template("moving", instance_type="c5.large")
    await cloud.create_group("moving", 0, 4, template="moving")
    monkeypatch.setattr("nobiru.aws.launch.MOVING_MS", 0)
    groups = Groups(aws, explicit("moving"))
    before = named(await groups.describe(frozenset()), "moving").template
    await cloud.create_launch_template("moving", instance_type="c5.4xlarge")
    after = named(await groups.describe(frozenset()), "moving").template

    assert before is not None
    assert after is not None
    assert (before.instance_type, after.instance_type) == ("c5.large", "c5.4xlarge")
    assert before.identity != after.identity


async def test_a_type_newer_than_the_table(cloud: Cloud, aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    """A type that the bundled table lacks is asked of EC2, where that is allowed and wanted."""
    monkeypatch.setattr("nobiru.aws.launch.bundled_types", dict)
    await cloud.create_group("novel", 0, 4, configuration="m5")
    template = named(await Groups(aws, explicit("novel")).describe(frozenset()), "novel").template
    assert template is not None
    assert template.capacity["cpu"] == 2000

    static = named(await Groups(aws, explicit("novel"), static_types=True).describe(frozenset()), "novel")
    assert static.template is None
    assert "m5.large is not in nobiru's table" in static.template_problem
    assert aws.rights.may(DESCRIBE_TYPES)


async def test_discovery_by_flags(cloud: Cloud, aws: Aws) -> None:
    """Several flags are a union, each with all its tags; the limits are the cloud's; the peer's way asks for all."""
    await cloud.create_group("t1", 1, 3, configuration="m5", tags={"taga": "a"})
    await cloud.create_group("t2", 0, 4, configuration="m5", tags={"tagb": "b", "k8s.io/x=y": "1"})
    await cloud.create_group("t3", 0, 5, configuration="m5", tags={"taga": "a", "tagb": "b"})
    await cloud.create_group("t4", 0, 5, configuration="m5", tags={"taga": "other"})
    flags = ((("taga", "a"),), (("tagb", None),))

    union = await Groups(aws, Wanted(discovery=flags)).describe(frozenset())
    assert [(group.name, group.min_size, group.max_size) for group in union.groups] == [
        ("t1", 1, 3),
        ("t2", 0, 4),
        ("t3", 0, 5),
    ]
    peers = await Groups(aws, Wanted(discovery=flags, union=False)).describe(frozenset())
    assert [group.name for group in peers.groups] == ["t3"]
    nothing = await Groups(aws, Wanted(discovery=((("nope", None),),))).describe(frozenset())
    assert (nothing.groups, bool(nothing.problem)) == ((), True)
    both = await Groups(
        aws, Wanted(explicit=(GroupSpec(name="t3", min_size=2, max_size=2),), discovery=flags)
    ).describe(frozenset())
    assert named(both, "t3").max_size == 2
    assert len(both.groups) == 3


async def test_discovery_by_own_tags(cloud: Cloud, aws: Aws) -> None:
    """With neither flag: the cluster that has our nodes; all at zero, the groups of our nodes tell; else nobody's."""
    await cloud.create_group("plain", 1, 3, configuration="m5", tags={"kubernetes.io/cluster/one": "owned"})
    await cloud.create_group("one", 0, 3, configuration="m5", tags={f"{CA}enabled": "true", f"{CA}one": ""})
    await cloud.create_group("two", 1, 3, configuration="m5", tags={f"{CA}enabled": "true", f"{CA}two": ""})
    machines = await cloud.wait_for(lambda found: {each.group for each in found} >= {"plain", "two"})
    ids = {group: frozenset(each.id for each in machines if each.group == group) for group in ("plain", "two")}

    by_group = await Groups(aws, Wanted()).describe(ids["two"])
    assert [group.name for group in by_group.groups] == ["two"]
    assert by_group.others["one"].reason is Reason.OTHER_CLUSTER
    by_owner = await Groups(aws, Wanted()).describe(ids["plain"] | {""})
    assert [group.name for group in by_owner.groups] == ["one"]
    nobody = await Groups(aws, Wanted()).describe(frozenset())
    assert nobody.groups == ()
    assert "several clusters (one, two)" in nobody.problem
    by_flag = await Groups(aws, Wanted(cluster_name="two")).describe(frozenset())
    assert [group.name for group in by_flag.groups] == ["two"]


async def test_a_throttled_look(cloud: Cloud, aws: Aws) -> None:
    """Throttling beyond the retries is an error of the whole look, for the caller to keep what it knew."""
    await cloud.create_group("slow", 0, 3, configuration="m5")
    await cloud.set_faults(Faults(calls=(CallFault(kind="throttle", action="DescribeAutoScalingGroups"),)))
    os.environ["AWS_MAX_ATTEMPTS"] = "1"
    hasty = Aws()
    try:
        with pytest.raises(CloudThrottled):
            await Groups(hasty, explicit("slow")).describe(frozenset())
    finally:
        hasty.close()


# What no sane cloud does


@pytest.fixture
def fake() -> Iterator[FakeAws]:
    with FakeAws() as server:
        use(server.environment())
        yield server


@pytest.fixture
def odd(fake: FakeAws) -> Iterator[Groups]:
    """Groups of a cloud that answers what the test says."""
    connection = Aws()
    yield Groups(connection, explicit("web"))
    connection.close()


async def test_race_between_check_and_write(fake: FakeAws, odd: Groups) -> None:
    """Reports B1, B2: machines that appeared since the plan are seen by the check, and nothing is set below them."""
    fake.answer("DescribeAutoScalingGroups", groups_reply(group_xml("web", 7, instances=7)))
    assert (await odd.raise_checked("web", 6)).why_not == "desired capacity is 7 already"
    fake.answer("DescribeAutoScalingGroups", groups_reply(group_xml("web", 4, max_size=9, instances=7)))
    assert "7 machines exist" in (await odd.raise_checked("web", 6)).why_not

    assert "SetDesiredCapacity" not in fake.actions()


async def test_the_check_is_not_answered(fake: FakeAws, odd: Groups) -> None:
    """Without a check nothing is set, and the time of an Action is kept."""
    fake.answer("DescribeAutoScalingGroups", silence())
    began_s = time.monotonic()
    with pytest.raises(CloudUnavailable, match="did not answer"):
        await odd.raise_desired("web", 2)

    assert time.monotonic() - began_s < 3
    assert fake.actions() == ["DescribeAutoScalingGroups"]


async def test_the_read_back_fails(fake: FakeAws, odd: Groups) -> None:
    """What AWS accepted holds, even if it cannot be read back, or still shows the old value."""
    fake.answer("SetDesiredCapacity", SET_DONE)
    fake.answer("DescribeAutoScalingGroups", groups_reply(group_xml("web", 1)), failure("Throttling"))
    assert await odd.raise_checked("web", 3) == Raised(group="web", wanted=3, before=1, after=3)
    fake.answer("DescribeAutoScalingGroups", groups_reply(group_xml("web", 1)))
    assert await odd.raise_desired("web", 3) == 3
    fake.answer("DescribeAutoScalingGroups", groups_reply(group_xml("web", 1)), groups_reply(group_xml("web", 5)))
    assert await odd.raise_desired("web", 3) == 5

    asked = [each for each in fake.asked if each.action == "SetDesiredCapacity"]
    assert [each.parameters["DesiredCapacity"] for each in asked] == ["3", "3", "3"]
    assert {each.parameters["HonorCooldown"] for each in asked} == {"false"}


async def test_the_write_is_refused(fake: FakeAws, odd: Groups) -> None:
    """A refused SetDesiredCapacity is one request, and known as denied from then on."""
    fake.answer("DescribeAutoScalingGroups", groups_reply(group_xml("web", 1)))
    fake.answer("SetDesiredCapacity", failure("AccessDenied", "not authorized", 403))
    with pytest.raises(CloudDenied) as caught:
        await odd.raise_desired("web", 3)

    assert caught.value.action == "autoscaling:SetDesiredCapacity"
    assert fake.actions().count("SetDesiredCapacity") == 1
    assert (await odd.describe(frozenset())).denied == {"autoscaling:SetDesiredCapacity"}


async def test_no_write_begins_late(fake: FakeAws) -> None:
    """A write that waited long for a thread does not begin: the leader lock may be lost by then."""
    fake.answer("TerminateInstanceInAutoScalingGroup", TERMINATE_DONE)
    connection = Aws()
    groups = Groups(connection, explicit("web"))
    free = threading.Event()
    try:
        busy = [asyncio.ensure_future(connection.run(lambda _: free.wait(10))) for _ in range(8)]
        await asyncio.sleep(0)
        late = asyncio.ensure_future(groups.terminate("i-1"))
        await asyncio.sleep(2.1)
        free.set()
        with pytest.raises(CloudUnavailable, match="AWS was not asked to change anything"):
            await late
        await asyncio.gather(*busy)
        assert "TerminateInstanceInAutoScalingGroup" not in fake.actions()
        await groups.terminate("i-1")
    finally:
        free.set()
        connection.close()

    ends = [each.parameters for each in fake.asked if "ShouldDecrementDesiredCapacity" in each.parameters]
    assert [each["ShouldDecrementDesiredCapacity"] for each in ends] == ["true"]


async def test_a_group_that_is_not_understood(fake: FakeAws, odd: Groups) -> None:
    """An answer of another shape spoils its group only, and that group is not written to."""
    fake.answer("DescribeAutoScalingGroups", groups_reply("<AutoScalingGroupName>web</AutoScalingGroupName>"))
    (group,) = (await odd.describe(frozenset())).groups
    assert "not understood" in group.problem
    with pytest.raises(CloudRejected, match="not understood"):
        await odd.raise_desired("web", 1)
    assert "SetDesiredCapacity" not in fake.actions()
