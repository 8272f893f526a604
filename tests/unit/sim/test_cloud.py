"""The simulated cloud answers real boto3 clients as AWS does, and dies with whoever started it."""

import asyncio
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
import pytest_asyncio
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from nobiru.kernel.errors import CloudRejected, CloudUnavailable
from nobiru.sim.asg_state import BootFault, CallFault, Faults, LaunchFault, Timing
from nobiru.sim.cloud import Cloud
from nobiru.sim.cloud_api import CloudInstance, Credentials

pytestmark = pytest.mark.asyncio(loop_scope="module")

TIMING = Timing(launch_ms=50, pending_ms=150, boot_ms=300, terminating_ms=150, retry_ms=300)
REGION = "ap-northeast-1"
ZONES = [f"{REGION}a", f"{REGION}c"]
# The policy of the OpenShift 3.11 walk-through: exactly six actions.
SIX_ACTIONS = (
    '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Resource": "*", "Action": ['
    '"autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeAutoScalingInstances", "autoscaling:DescribeTags", '
    '"autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup", '
    '"autoscaling:DescribeLaunchConfigurations"]}]}'
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[Cloud]:
    """One cloud for all tests of this file; each test has groups of its own."""
    async with Cloud.start(REGION, timing=TIMING) as cloud:
        await cloud.create_launch_configuration("m5")
        yield cloud


@pytest_asyncio.fixture(loop_scope="module")
async def cloud(running: Cloud) -> AsyncIterator[Cloud]:
    """The cloud without troubles, before and after."""
    yield running
    await running.set_faults()
    await running.set_timing(TIMING)


def client(cloud: Cloud, service: str, key: Credentials | None = None, *, read_s: float = 10.0) -> Any:
    """A boto3 client that tries once."""
    key = key or cloud.admin
    return boto3.client(
        service,  # type: ignore[call-overload]
        region_name=cloud.region,
        endpoint_url=cloud.endpoint_url,
        aws_access_key_id=key.access_key_id,
        aws_secret_access_key=key.secret_access_key,
        config=Config(retries={"total_max_attempts": 1}, read_timeout=read_s),
    )


async def answer(call: Callable[..., Any], **params: Any) -> Any:
    """What a boto3 call gives, asked in a thread."""
    return await asyncio.to_thread(call, **params)


async def refusal(call: Callable[..., Any], **params: Any) -> tuple[str, str, int]:
    """Code, message and HTTP status of a call that must be refused."""
    with pytest.raises(ClientError) as caught:
        await asyncio.to_thread(call, **params)
    response = caught.value.response
    return response["Error"]["Code"], response["Error"]["Message"], response["ResponseMetadata"]["HTTPStatusCode"]


async def described(cloud: Cloud, name: str) -> Any:
    """The group as DescribeAutoScalingGroups shows it."""
    found = await answer(client(cloud, "autoscaling").describe_auto_scaling_groups, AutoScalingGroupNames=[name])
    return found["AutoScalingGroups"][0]


def of(instances: tuple[CloudInstance, ...], group: str) -> list[CloudInstance]:
    return [instance for instance in instances if instance.group == group]


def settled(group: str, count: int) -> Callable[[tuple[CloudInstance, ...]], bool]:
    """Whether the group has exactly that many machines, all in service and running."""

    def done(instances: tuple[CloudInstance, ...]) -> bool:
        mine = of(instances, group)
        return len(mine) == count and all(one.ready and one.state == "InService" for one in mine)

    return done


async def test_an_instance_from_wish_to_grave(cloud: Cloud) -> None:
    """Rule: Describe lists an instance Pending, InService, Terminating, then no more; EC2 knows the same machine."""
    # Slow enough that a busy machine still sees each state.
    await cloud.set_timing(Timing(launch_ms=50, pending_ms=3_000, boot_ms=300, terminating_ms=3_000, retry_ms=300))
    await cloud.create_group("life", 0, 3, configuration="m5", tags={"team": "web"})
    scaling, ec2 = client(cloud, "autoscaling"), client(cloud, "ec2")
    await answer(scaling.set_desired_capacity, AutoScalingGroupName="life", DesiredCapacity=1, HonorCooldown=False)
    await cloud.wait_for(lambda found: len(of(found, "life")) == 1)
    shown = (await described(cloud, "life"))["Instances"][0]
    assert (shown["LifecycleState"], shown["HealthStatus"], shown["InstanceType"]) == ("Pending", "Healthy", "m5.large")
    assert shown["LaunchConfigurationName"] == "m5"
    (one,) = of(await cloud.wait_for(settled("life", 1)), "life")
    assert (await described(cloud, "life"))["Instances"][0]["LifecycleState"] == "InService"
    twin = (await answer(ec2.describe_instances, Filters=[{"Name": "tag:team", "Values": ["web"]}]))["Reservations"][0]
    machine = twin["Instances"][0]
    assert machine["InstanceId"] == one.id == shown["InstanceId"]
    assert machine["PrivateDnsName"] == one.private_dns_name
    assert machine["PrivateIpAddress"] == one.private_ip
    assert machine["Placement"]["AvailabilityZone"] == one.zone == ZONES[0]
    assert machine["State"]["Name"] == "running"
    assert one.tags == {"team": "web", "aws:autoscaling:groupName": "life"}
    gone = await answer(
        scaling.terminate_instance_in_auto_scaling_group, InstanceId=one.id, ShouldDecrementDesiredCapacity=True
    )
    assert gone["Activity"]["StatusCode"] == "InProgress"
    assert (await described(cloud, "life"))["Instances"][0]["LifecycleState"] == "Terminating"
    await cloud.wait_for(lambda found: not of(found, "life"))
    after = await described(cloud, "life")
    assert (after["Instances"], after["DesiredCapacity"]) == ([], 0)
    twin = (await answer(ec2.describe_instances, InstanceIds=[one.id]))["Reservations"][0]["Instances"][0]
    assert twin["State"]["Name"] == "terminated"


async def test_refusals(cloud: Cloud) -> None:
    """Rule: what AWS refuses is a ValidationError with status 400 in AWS's words, never an HTTP 500."""
    await cloud.create_group("no", 1, 3, 1, configuration="m5")
    (one,) = of(await cloud.wait_for(settled("no", 1)), "no")
    scaling = client(cloud, "autoscaling")
    table: list[tuple[str, Callable[..., Any], dict[str, Any], str, str]] = [
        ("above max", scaling.set_desired_capacity, {"AutoScalingGroupName": "no", "DesiredCapacity": 50},
         "ValidationError", "New SetDesiredCapacity value 50 is above max value 3 for the AutoScalingGroup."),
        ("below min", scaling.set_desired_capacity, {"AutoScalingGroupName": "no", "DesiredCapacity": 0},
         "ValidationError", "New SetDesiredCapacity value 0 is below min value 1 for the AutoScalingGroup."),
        ("no such group", scaling.set_desired_capacity, {"AutoScalingGroupName": "none", "DesiredCapacity": 1},
         "ValidationError", "AutoScalingGroup name not found - AutoScalingGroup none not found"),
        ("no such instance", scaling.terminate_instance_in_auto_scaling_group,
         {"InstanceId": "i-0", "ShouldDecrementDesiredCapacity": True},
         "ValidationError", "Instance Id not found - No managed instance found for instance ID i-0"),
        ("at the minimum", scaling.terminate_instance_in_auto_scaling_group,
         {"InstanceId": one.id, "ShouldDecrementDesiredCapacity": True},
         "ValidationError", "Currently, desiredSize equals minSize (1). Terminating instance without replacement will "
         "violate group's min size constraint. Either set shouldDecrementDesiredCapacity flag to false or lower group's "
         "min size."),
        ("no such group's history", scaling.describe_scaling_activities, {"AutoScalingGroupName": "none"},
         "ValidationError", "AutoScalingGroup name not found - AutoScalingGroup none not found"),
        ("too large a page", scaling.describe_auto_scaling_groups, {"MaxRecords": 101},
         "ValidationError", "1 validation error detected: Value '101' at 'maxRecords' failed to satisfy constraint: "
         "Member must have value less than or equal to 100"),
        ("too many ids", scaling.describe_auto_scaling_instances, {"InstanceIds": [f"i-{n}" for n in range(51)]},
         "ValidationError", "The number of instance ids that may be passed in is limited to 50"),
        ("a token that never was", scaling.describe_auto_scaling_groups, {"NextToken": "x"},
         "InvalidNextToken", "The token 'x' is invalid."),
        ("no such configuration", scaling.create_auto_scaling_group,
         {"AutoScalingGroupName": "b", "MinSize": 0, "MaxSize": 1, "AvailabilityZones": ZONES,
          "LaunchConfigurationName": "none"},
         "ValidationError", "Launch configuration name not found - Launch configuration none not found"),
        ("no source", scaling.create_auto_scaling_group,
         {"AutoScalingGroupName": "b", "MinSize": 0, "MaxSize": 1, "AvailabilityZones": ZONES},
         "ValidationError", "Valid requests must contain either LaunchTemplate, LaunchConfigurationName, InstanceId or "
         "MixedInstancesPolicy parameter."),
        ("delete with instances", scaling.delete_auto_scaling_group, {"AutoScalingGroupName": "no"},
         "ResourceInUse", "You cannot delete an AutoScalingGroup while there are instances or pending Spot instance "
         "request(s) still in the group."),
        ("not simulated", scaling.describe_instance_refreshes, {"AutoScalingGroupName": "no"},
         "InvalidAction", "The action DescribeInstanceRefreshes is not simulated."),
    ]  # fmt: skip
    for name, call, params, code, message in table:
        assert await refusal(call, **params) == (code, message, 400), name
    with pytest.raises(CloudRejected, match="AlreadyExists"):
        await cloud.create_group("no", 0, 1, configuration="m5")


async def test_a_policy_of_six_actions(cloud: Cloud) -> None:
    """Rule: a user may do what its policy allows and nothing else, writes included, in AWS's words."""
    await cloud.create_group("six", 0, 3, 1, configuration="m5")
    (one,) = of(await cloud.wait_for(settled("six", 1)), "six")
    key = await cloud.create_iam_user(SIX_ACTIONS, name="six")
    scaling, ec2 = client(cloud, "autoscaling", key), client(cloud, "ec2", key)
    assert (await answer(client(cloud, "sts", key).get_caller_identity))["Arn"].endswith(":user/six")
    allowed: list[tuple[Callable[..., Any], dict[str, Any]]] = [
        (scaling.describe_auto_scaling_groups, {}),
        (scaling.describe_auto_scaling_instances, {}),
        (scaling.describe_tags, {}),
        (scaling.describe_launch_configurations, {}),
        (scaling.set_desired_capacity, {"AutoScalingGroupName": "six", "DesiredCapacity": 2}),
        (
            scaling.terminate_instance_in_auto_scaling_group,
            {"InstanceId": one.id, "ShouldDecrementDesiredCapacity": True},
        ),
    ]
    for call, params in allowed:
        await answer(call, **params)
    user = "User: arn:aws:iam::123456789012:user/six is not authorized to perform: "
    assert await refusal(scaling.describe_scaling_activities) == (
        "AccessDenied",
        f"{user}autoscaling:DescribeScalingActivities because no identity-based policy allows the "
        "autoscaling:DescribeScalingActivities action",
        403,
    )
    assert await refusal(ec2.describe_launch_template_versions, LaunchTemplateName="none") == (
        "UnauthorizedOperation",
        f"You are not authorized to perform this operation. {user}ec2:DescribeLaunchTemplateVersions because no "
        "identity-based policy allows the ec2:DescribeLaunchTemplateVersions action",
        403,
    )
    code, message, status = await refusal(scaling.delete_auto_scaling_group, AutoScalingGroupName="six")
    assert (code, status) == ("AccessDenied", 403)
    assert ":autoScalingGroupName/six because no identity-based policy allows" in message


async def test_policies_reach_writes(cloud: Cloud) -> None:
    """Rule: without the right, or with the right for another group only, SetDesiredCapacity is denied and nothing changes."""
    for name in ("mine", "theirs"):
        await cloud.create_group(name, 0, 3, configuration="m5")
    reader = await cloud.create_iam_user(SIX_ACTIONS.replace('"autoscaling:SetDesiredCapacity", ', ""), name="reader")
    only = SIX_ACTIONS.replace('"Resource": "*"', '"Resource": "arn:aws:autoscaling:*:*:*:autoScalingGroupName/mine"')
    owner = client(cloud, "autoscaling", await cloud.create_iam_user(only, name="owner"))
    call = client(cloud, "autoscaling", reader).set_desired_capacity
    assert (await refusal(call, AutoScalingGroupName="mine", DesiredCapacity=1))[0] == "AccessDenied"
    call = owner.set_desired_capacity
    assert (await refusal(call, AutoScalingGroupName="theirs", DesiredCapacity=1))[0] == "AccessDenied"
    await answer(call, AutoScalingGroupName="mine", DesiredCapacity=1)
    groups = await cloud.groups()
    assert (groups["mine"].desired, groups["theirs"].desired) == (1, 0)


async def test_wrong_keys(cloud: Cloud) -> None:
    """Rule: an unknown key and a wrong secret are refused as AWS does."""
    strangers = Credentials(access_key_id="AKIAAAAAAAAAAAAAAAAA", secret_access_key="x")
    wrong = Credentials(access_key_id=cloud.admin.access_key_id, secret_access_key="x")
    call = client(cloud, "autoscaling", strangers).describe_auto_scaling_groups
    assert (await refusal(call))[::2] == ("InvalidClientTokenId", 403)
    call = client(cloud, "autoscaling", wrong).describe_auto_scaling_groups
    assert (await refusal(call))[::2] == ("SignatureDoesNotMatch", 403)


async def test_discovery_by_tags_and_pages(cloud: Cloud) -> None:
    """Rule: filters by tag key, key and value, and value are ANDed; pages and names work; others' groups stay out."""
    owned, enabled = "k8s.io/cluster-autoscaler/one", "k8s.io/cluster-autoscaler/enabled"
    for number in range(5):
        tags = {enabled: "true", owned: "owned" if number % 2 else "shared"}
        await cloud.create_group(f"disc {number}", 0, 1, configuration="m5", tags=tags if number else {enabled: "true"})
    scaling = client(cloud, "autoscaling")
    table: list[tuple[list[tuple[str, list[str]]], list[int]]] = [
        ([("tag-key", [enabled])], [0, 1, 2, 3, 4]),
        ([("tag-key", [enabled]), ("tag-key", [owned])], [1, 2, 3, 4]),
        ([("tag-key", [enabled]), (f"tag:{owned}", ["owned"])], [1, 3]),
        ([(f"tag:{owned}", ["owned", "shared"])], [1, 2, 3, 4]),
        ([("tag-value", ["shared"])], [2, 4]),
        ([("tag-key", ["nobody"])], []),
    ]
    for filters, want in table:
        pages = scaling.get_paginator("describe_auto_scaling_groups").paginate(
            Filters=[{"Name": name, "Values": values} for name, values in filters], PaginationConfig={"PageSize": 2}
        )
        found = [page["AutoScalingGroups"] for page in await asyncio.to_thread(list, pages)]
        assert [one["AutoScalingGroupName"] for page in found for one in page] == [f"disc {n}" for n in want], filters
        assert all(len(page) <= 2 for page in found)
    named = await answer(scaling.describe_auto_scaling_groups, AutoScalingGroupNames=["disc 4", "none", "disc 1"])
    assert [one["AutoScalingGroupName"] for one in named["AutoScalingGroups"]] == ["disc 1", "disc 4"]
    by_group = [{"Name": "auto-scaling-group", "Values": ["disc 1"]}, {"Name": "key", "Values": [owned]}]
    assert (await answer(scaling.describe_tags, Filters=by_group))["Tags"] == [
        {"ResourceId": "disc 1", "ResourceType": "auto-scaling-group", "Key": owned, "Value": "owned",
         "PropagateAtLaunch": True}
    ]  # fmt: skip
    one_tag = {"ResourceId": "disc 0", "ResourceType": "auto-scaling-group", "Key": owned, "Value": "x"}
    await answer(scaling.create_or_update_tags, Tags=[one_tag | {"PropagateAtLaunch": False}])
    assert {tag["Key"]: tag["PropagateAtLaunch"] for tag in (await described(cloud, "disc 0"))["Tags"]} == {
        enabled: True,
        owned: False,
    }
    await answer(scaling.delete_tags, Tags=[one_tag])
    assert [tag["Key"] for tag in (await described(cloud, "disc 0"))["Tags"]] == [enabled]


async def test_stock_out(cloud: Cloud) -> None:
    """Rule: a zone out of stock leaves a Failed activity with AWS's text, newest first; the other zone serves; it heals."""
    await cloud.create_group("short", 0, 6, configuration="m5")
    await cloud.set_faults(Faults(launches=(LaunchFault(group="short", available=2),)))
    scaling = client(cloud, "autoscaling")
    await answer(scaling.set_desired_capacity, AutoScalingGroupName="short", DesiredCapacity=4)
    await cloud.wait_for(settled("short", 2))
    group = await described(cloud, "short")
    assert (group["DesiredCapacity"], len(group["Instances"])) == (4, 2)
    history = (await answer(scaling.describe_scaling_activities, AutoScalingGroupName="short"))["Activities"]
    assert [one["StartTime"] for one in history] == sorted((one["StartTime"] for one in history), reverse=True)
    failed = [one for one in history if one["StatusCode"] == "Failed"]
    assert {one["Details"] for one in failed} == {f'{{"Availability Zone": "{zone}"}}' for zone in ZONES}
    assert failed[0]["StatusMessage"].startswith("We currently do not have sufficient m5.large capacity in the ")
    assert failed[0]["StatusMessage"].endswith(" Launching EC2 instance failed.")
    assert failed[0]["Description"] == f"Launching a new EC2 instance.  Status Reason: {failed[0]['StatusMessage']}"
    assert [one["StatusCode"] for one in history][-2:] == ["Successful", "Successful"]
    page = await answer(scaling.describe_scaling_activities, AutoScalingGroupName="short", MaxRecords=1)
    assert len(page["Activities"]) == 1
    assert page["NextToken"]
    await cloud.set_faults()
    found = of(await cloud.wait_for(settled("short", 4)), "short")
    assert sorted(one.zone for one in found) == sorted(ZONES * 2)


async def test_troubled_calls(cloud: Cloud) -> None:
    """Rule: the next N calls of an action for a group are refused, slow, or carried out with the reply lost."""
    for name in ("troubled", "calm"):
        await cloud.create_group(name, 0, 9, configuration="m5")
    scaling = client(cloud, "autoscaling")
    await cloud.set_faults(
        Faults(
            calls=(
                CallFault(action="SetDesiredCapacity", group="troubled", kind="throttle"),
                CallFault(action="SetDesiredCapacity", group="troubled", kind="deny"),
                CallFault(action="SetDesiredCapacity", group="troubled", kind="unavailable"),
                CallFault(action="SetDesiredCapacity", group="troubled", kind="expired"),
                CallFault(action="SetDesiredCapacity", group="troubled", kind="lost_reply"),
                CallFault(action="SetDesiredCapacity", group="troubled", kind="slow", delay_ms=900),
                CallFault(action="DescribeInstanceTypes", kind="throttle"),
            )
        )
    )
    call, params = scaling.set_desired_capacity, {"AutoScalingGroupName": "troubled", "DesiredCapacity": 1}
    await answer(call, AutoScalingGroupName="calm", DesiredCapacity=1)
    assert await refusal(call, **params) == ("Throttling", "Rate exceeded", 400)
    assert (await refusal(call, **params))[::2] == ("AccessDenied", 403)
    assert (await refusal(call, **params))[::2] == ("ServiceUnavailable", 503)
    assert (await refusal(call, **params))[::2] == ("ExpiredToken", 403)
    assert (await cloud.group("troubled")).desired == 0
    with pytest.raises(ConnectionClosedError):
        await answer(call, **params)
    assert (await cloud.group("troubled")).desired == 1
    with pytest.raises(ReadTimeoutError):
        await answer(client(cloud, "autoscaling", read_s=0.2).set_desired_capacity, **params | {"DesiredCapacity": 2})
    assert (await cloud.group("troubled")).desired == 1
    await cloud.wait_for(lambda found: len(of(found, "troubled")) == 2)  # the call in flight lands all the same
    await answer(call, **params | {"DesiredCapacity": 3})
    types = client(cloud, "ec2").describe_instance_types
    assert (await refusal(types, InstanceTypes=["m5.large"]))[::2] == ("RequestLimitExceeded", 503)
    log = await cloud.calls()
    assert [one.desired_after for one in log.calls if one.group == "troubled"] == [0, 1, 2, 3]
    assert [one.error for one in log.refused if one.group == "troubled"] == [
        "Throttling", "AccessDenied", "ServiceUnavailable", "ExpiredToken",
    ]  # fmt: skip
    assert {one.who for one in log.calls if one.group == "troubled"} == {"admin"}
    assert log.counts["ec2:DescribeInstanceTypes"] >= 1


async def test_mixed_instances(cloud: Cloud) -> None:
    """Rule: the first override with capacity is launched, zones stay even, the policy is given back as it was written."""
    await cloud.create_launch_template("mixed", instance_type="m5.large")
    types = ["r5.large", "r5a.large"]
    await cloud.create_group("mixed", 0, 4, template="mixed", version="$Default", overrides=types)
    await cloud.set_faults(Faults(launches=(LaunchFault(instance_type="r5.large", zone=ZONES[0]),)))
    await answer(client(cloud, "autoscaling").set_desired_capacity, AutoScalingGroupName="mixed", DesiredCapacity=4)
    found = of(await cloud.wait_for(settled("mixed", 4)), "mixed")
    assert sorted((one.zone, one.instance_type) for one in found) == [
        (ZONES[0], "r5a.large"), (ZONES[0], "r5a.large"), (ZONES[1], "r5.large"), (ZONES[1], "r5.large"),
    ]  # fmt: skip
    group = await described(cloud, "mixed")
    launch = group["MixedInstancesPolicy"]["LaunchTemplate"]
    assert launch["Overrides"] == [{"InstanceType": type_} for type_ in types]
    assert launch["LaunchTemplateSpecification"]["LaunchTemplateName"] == "mixed"
    assert launch["LaunchTemplateSpecification"]["Version"] == "$Default"
    assert group["Instances"][0]["LaunchTemplate"]["Version"] == "1"
    assert "LaunchConfigurationName" not in group


async def test_launch_template_versions(cloud: Cloud) -> None:
    """Rule: a version begins from its SourceVersion; $Latest is looked up at launch, so a new version makes new instances."""
    ec2, scaling = client(cloud, "ec2"), client(cloud, "autoscaling")
    data = {"InstanceType": "c5.large", "ImageId": "ami-1", "UserData": "IyEvYmluL3No"}
    await answer(ec2.create_launch_template, LaunchTemplateName="web-lt", LaunchTemplateData=data)
    await cloud.create_group("lt", 1, 2, template="web-lt")
    await cloud.wait_for(settled("lt", 1))
    await answer(
        ec2.create_launch_template_version,
        LaunchTemplateName="web-lt",
        SourceVersion="1",
        LaunchTemplateData={"InstanceType": "c5.xlarge"},
    )
    for version, number, type_ in (("$Latest", 2, "c5.xlarge"), ("$Default", 1, "c5.large"), ("2", 2, "c5.xlarge")):
        found = await answer(ec2.describe_launch_template_versions, LaunchTemplateName="web-lt", Versions=[version])
        (shown,) = found["LaunchTemplateVersions"]
        assert shown["VersionNumber"] == number
        assert shown["LaunchTemplateData"] == data | {"InstanceType": type_}, version
    await answer(scaling.set_desired_capacity, AutoScalingGroupName="lt", DesiredCapacity=2)
    found = await cloud.wait_for(settled("lt", 2))
    assert sorted(one.instance_type for one in of(found, "lt")) == ["c5.large", "c5.xlarge"]
    code, message, _ = await refusal(
        scaling.create_auto_scaling_group, AutoScalingGroupName="lt9", MinSize=0, MaxSize=1, AvailabilityZones=ZONES,
        LaunchTemplate={"LaunchTemplateName": "web-lt", "Version": "9"},
    )  # fmt: skip
    assert code == "ValidationError"
    assert message.startswith("You must use a valid fully-formed launch template.")


async def test_a_group_over_the_wire(cloud: Cloud) -> None:
    """Rule: groups can be made, changed and deleted with boto3 alone: subnets give zones, limits move desired capacity."""
    scaling, ec2 = client(cloud, "autoscaling"), client(cloud, "ec2")
    await answer(
        scaling.create_launch_configuration,
        LaunchConfigurationName="wire",
        ImageId="ami-1",
        InstanceType="t3.large",
        UserData="#!/bin/sh",
    )
    subnets = (await answer(ec2.describe_subnets))["Subnets"]
    chosen = [one for one in subnets if one["AvailabilityZone"] in ZONES]
    await answer(
        scaling.create_auto_scaling_group,
        AutoScalingGroupName="wire",
        MinSize=0,
        MaxSize=4,
        DesiredCapacity=2,
        LaunchConfigurationName="wire",
        VPCZoneIdentifier=",".join(one["SubnetId"] for one in chosen),
        NewInstancesProtectedFromScaleIn=True,
        Tags=[{"Key": "a", "Value": "b", "PropagateAtLaunch": True}],
    )
    found = of(await cloud.wait_for(settled("wire", 2)), "wire")
    assert sorted(one.zone for one in found) == ZONES
    shown = (await described(cloud, "wire"))["Instances"]
    assert all(one["ProtectedFromScaleIn"] for one in shown)
    configurations = await answer(scaling.describe_launch_configurations, LaunchConfigurationNames=["wire"])
    assert configurations["LaunchConfigurations"][0]["InstanceType"] == "t3.large"
    await answer(scaling.update_auto_scaling_group, AutoScalingGroupName="wire", MaxSize=1)
    after = await described(cloud, "wire")
    assert (after["DesiredCapacity"], len(after["Instances"])) == (1, 2)  # protected
    await answer(
        scaling.set_instance_protection,
        AutoScalingGroupName="wire",
        InstanceIds=[one["InstanceId"] for one in shown],
        ProtectedFromScaleIn=False,
    )
    await cloud.wait_for(settled("wire", 1))
    by_id = await answer(scaling.describe_auto_scaling_instances, InstanceIds=[one["InstanceId"] for one in shown])
    (left,) = by_id["AutoScalingInstances"]
    assert (left["AutoScalingGroupName"], left["HealthStatus"], left["LifecycleState"]) == (
        "wire", "HEALTHY", "InService",
    )  # fmt: skip
    await answer(scaling.suspend_processes, AutoScalingGroupName="wire", ScalingProcesses=["Launch", "AZRebalance"])
    suspended = (await described(cloud, "wire"))["SuspendedProcesses"]
    assert [one["ProcessName"] for one in suspended] == ["AZRebalance", "Launch"]
    await answer(scaling.resume_processes, AutoScalingGroupName="wire", ScalingProcesses=["Launch", "AZRebalance"])
    await answer(scaling.delete_auto_scaling_group, AutoScalingGroupName="wire", ForceDelete=True)
    assert (await described(cloud, "wire"))["Status"] == "Delete in progress"
    await cloud.wait_for(lambda found: not of(found, "wire"))
    assert "wire" not in await cloud.groups()


async def test_a_lower_desired_capacity_kills(cloud: Cloud) -> None:
    """Rule: the harm is there to be seen: SetDesiredCapacity below what runs makes the group choose a healthy victim."""
    await cloud.create_group("harm", 0, 4, 3, configuration="m5")
    before = {one.id for one in of(await cloud.wait_for(settled("harm", 3)), "harm")}
    scaling = client(cloud, "autoscaling")
    await answer(scaling.set_desired_capacity, AutoScalingGroupName="harm", DesiredCapacity=2)
    left = {one.id for one in of(await cloud.wait_for(settled("harm", 2)), "harm")}
    assert left < before
    (gone,) = (await cloud.group("harm")).gone
    assert (gone.ended_by, {gone.id}) == ("group", before - left)
    newest = (await answer(scaling.describe_scaling_activities, AutoScalingGroupName="harm"))["Activities"][0]
    assert f"instance {gone.id} was selected for termination." in newest["Cause"]


async def test_machines_that_die(cloud: Cloud) -> None:
    """Rule: an instance terminated through EC2, or killed from outside, is replaced by its group."""
    await cloud.create_group("dying", 0, 2, 1, configuration="m5")
    (first,) = of(await cloud.wait_for(settled("dying", 1)), "dying")
    await answer(client(cloud, "ec2").terminate_instances, InstanceIds=[first.id])
    found = await cloud.wait_for(lambda seen: settled("dying", 1)(seen) and first not in of(seen, "dying"))
    (second,) = of(found, "dying")
    assert second.id != first.id
    await cloud.kill_instance(second.id)
    found = await cloud.wait_for(lambda seen: settled("dying", 1)(seen) and second not in of(seen, "dying"))
    assert [one.ended_by for one in (await cloud.group("dying")).gone] == ["health", "health"]


async def test_describe_lags(cloud: Cloud) -> None:
    """Rule: with a lag Describe shows the past over the wire, while the machines are there already."""
    await cloud.create_group("lag", 0, 2, configuration="m5")
    await cloud.set_faults(Faults(describe_lag_ms=2_000))
    await answer(client(cloud, "autoscaling").set_desired_capacity, AutoScalingGroupName="lag", DesiredCapacity=1)
    await cloud.wait_for(settled("lag", 1))
    shown = await described(cloud, "lag")
    assert (shown["DesiredCapacity"], shown["Instances"]) == (0, [])
    await cloud.set_faults()
    assert len((await described(cloud, "lag"))["Instances"]) == 1


async def test_boots(cloud: Cloud) -> None:
    """Rule: a machine that never boots is InService but never ready; a waiter wakes as soon as something changes."""
    await cloud.create_group("boots", 0, 3, configuration="m5", zones=[ZONES[0]])
    faults = (BootFault(group="boots", count=1), BootFault(group="boots", boot_ms=700, count=1))
    await cloud.set_faults(Faults(boots=faults))
    revision = (await cloud.instance_list()).revision
    waiting = asyncio.create_task(cloud.instance_list(after=revision, wait_ms=10_000))
    await answer(client(cloud, "autoscaling").set_desired_capacity, AutoScalingGroupName="boots", DesiredCapacity=3)
    woken = await waiting
    assert woken.revision > revision
    assert [(one.state, one.ready, one.boot_after_ms) for one in of(woken.instances, "boots")] == [
        ("Pending", False, None), ("Pending", False, 700), ("Pending", False, 300),
    ]  # fmt: skip
    found = await cloud.wait_for(lambda seen: sum(one.ready for one in of(seen, "boots")) == 2)
    assert [(one.state, one.ready) for one in of(found, "boots")] == [
        ("InService", False), ("InService", True), ("InService", True),
    ]  # fmt: skip
    quiet = await cloud.instance_list()
    assert (await cloud.instance_list(after=quiet.revision, wait_ms=50)).revision == quiet.revision


async def test_the_control_channel_refuses_nonsense(cloud: Cloud) -> None:
    """Rule: what it does not know is a Problem, not a crash."""
    with pytest.raises(CloudRejected, match="NotFound"):
        await cloud._send("GET", "nothing", None, None)
    with pytest.raises(CloudRejected, match="BadRequest"):
        await cloud._send("PUT", "faults", {"launches": 3}, None)
    with pytest.raises(CloudRejected, match="InvalidAction"):
        await cloud.perform("PutWarmPool", {})
    with pytest.raises(CloudRejected, match="ValidationError"):
        await cloud.perform("SetDesiredCapacity", {"DesiredCapacity": "many"})


def listening() -> set[str]:
    """The addresses that somebody on this machine listens on, in the kernel's hexadecimal."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[1] for row in rows if row[3] == "0A"}  # 0A: LISTEN


async def test_it_listens_on_loopback_only(cloud: Cloud) -> None:
    """Rule: no other address of this machine answers on its port."""
    port = int(cloud.endpoint_url.rsplit(":", 1)[1])
    assert {one for one in listening() if one.endswith(f":{port:04X}")} == {f"0100007F:{port:04X}"}


async def test_a_killed_cloud() -> None:
    """Rule: after a power cut the client says that the cloud is unavailable, and the context still ends."""
    async with Cloud.start(REGION) as cloud:
        cloud.kill()
        with pytest.raises(CloudUnavailable):
            await cloud.instances()


OWNER = """
import asyncio
from nobiru.sim.cloud import Cloud

async def main():
    async with Cloud.start("eu-central-1") as cloud:
        print(cloud.pid, cloud.endpoint_url, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def alive(pid: str) -> bool:
    """Whether the process runs; one that is dead but not reaped yet by whoever inherited it does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def ends_within(pid: str, limit_s: float) -> bool:
    """Whether the process is gone before the time is over."""
    until = time.monotonic() + limit_s
    while alive(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


async def test_it_dies_with_its_parent() -> None:
    """Rule: after kill -9 of the process that started it, the cloud is gone within moments."""
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", OWNER, stdout=asyncio.subprocess.PIPE)
    assert owner.stdout is not None
    try:
        line = await asyncio.wait_for(owner.stdout.readline(), 60)
    finally:
        owner.send_signal(signal.SIGKILL)
        await owner.wait()
    pid, url = line.decode().split()
    assert await asyncio.to_thread(ends_within, pid, 5.0)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(url.rsplit(":", 1)[1]))) != 0
