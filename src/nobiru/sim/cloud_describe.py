"""The Describe actions of the Auto Scaling API: what the state shows, in the members of AWS's response shapes, paged.

It refuses to know: how anything changes.
Invariant: only what `asg.view` shows is shown, so that a lag strikes every Describe alike.
Source: AWS "Amazon EC2 Auto Scaling API Reference"; limits of MaxRecords and ids as stated there for each action.
"""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from nobiru.sim import asg
from nobiru.sim import asg_words as words
from nobiru.sim.asg_state import (
    Activity,
    FromConfiguration,
    FromMixed,
    FromTemplate,
    Group,
    Instance,
    Refused,
    Source,
    State,
    Tag,
)
from nobiru.sim.cloud_region import ACCOUNT_ID, Region
from nobiru.sim.cloud_requests import Filter, ListRequest

Params = dict[str, Any]  # as moto's parser or JSON gives them
Answer = dict[str, Any] | Refused
S = TypeVar("S")
T = TypeVar("T")


def arn(region: str, group: Group) -> str:
    """The group's ARN."""
    uid = "-".join((group.uid[:8], group.uid[8:12], group.uid[12:16], group.uid[16:20], group.uid[20:]))
    return f"arn:aws:autoscaling:{region}:{ACCOUNT_ID}:autoScalingGroup:{uid}:autoScalingGroupName/{group.name}"


def describe_groups(region: Region, params: Params, who: str) -> Answer:
    """DescribeAutoScalingGroups: by names, by filters (ANDed), paged.  Order: by name."""
    request = msgspec.convert(params, ListRequest, strict=False)
    state = region.read()
    groups = [group for _, group in sorted(asg.view(state).items())]
    if request.auto_scaling_group_names:
        wanted = set(request.auto_scaling_group_names)
        groups = [group for group in groups if group.name in wanted]
    for filter_ in request.filters:
        groups = [group for group in groups if any(_tag_passes(one, filter_) for one in group.tags)]
    return _paged(
        groups, lambda group: group.name, request, "AutoScalingGroups", lambda group: _group(state, group), default=50
    )


def _tag_passes(tag: Tag, filter_: Filter) -> bool:
    match filter_.name.split(":", 1):
        case ["tag-key"]:
            return tag.key in filter_.values
        case ["tag-value"]:
            return tag.value in filter_.values
        case ["tag", key]:
            return tag.key == key and tag.value in filter_.values
        case _:
            return False


def describe_instances(region: Region, params: Params, who: str) -> Answer:
    """DescribeAutoScalingInstances: at most 50 ids."""
    request = msgspec.convert(params, ListRequest, strict=False)
    if len(request.instance_ids) > 50:
        return words.invalid("The number of instance ids that may be passed in is limited to 50")
    wanted = set(request.instance_ids)
    found = [
        instance
        for _, group in sorted(asg.view(region.read()).items())
        for instance in group.instances.values()
        if not wanted or instance.id in wanted
    ]
    return _paged(found, lambda one: one.id, request, "AutoScalingInstances", _grouped_instance, default=50, limit=50)


def describe_activities(region: Region, params: Params, who: str) -> Answer:
    """DescribeScalingActivities: newest first."""
    request = msgspec.convert(params, ListRequest, strict=False)
    groups = asg.view(region.read())
    name = request.auto_scaling_group_name
    if name and name not in groups:
        return words.group_unknown(name)
    wanted = set(request.activity_ids)
    found = [
        activity
        for group in ([groups[name]] if name else groups.values())
        for activity in reversed(group.activities.values())
        if not wanted or activity.id in wanted
    ]
    found.sort(key=lambda activity: -activity.started_ms)
    return _paged(found, lambda activity: activity.id, request, "Activities", activity_shape, default=100)


def describe_tags(region: Region, params: Params, who: str) -> Answer:
    """DescribeTags: filters auto-scaling-group, key, value, propagate-at-launch, ANDed."""
    request = msgspec.convert(params, ListRequest, strict=False)
    found = [_named_tag(group, one) for _, group in sorted(asg.view(region.read()).items()) for one in group.tags]
    names = {"auto-scaling-group": "ResourceId", "key": "Key", "value": "Value"}
    for filter_ in request.filters:
        if filter_.name == "propagate-at-launch":
            found = [one for one in found if str(one["PropagateAtLaunch"]).lower() in filter_.values]
        else:
            member = names.get(filter_.name, "Key")
            found = [one for one in found if one[member] in filter_.values]
    return _paged(found, lambda one: f"{one['ResourceId']}/{one['Key']}", request, "Tags", lambda one: one, default=50)


def _named_tag(group: Group, one: Tag) -> dict[str, Any]:
    return {
        "ResourceId": group.name, "ResourceType": "auto-scaling-group",
        "Key": one.key, "Value": one.value, "PropagateAtLaunch": one.propagate,
    }  # fmt: skip


def _paged(
    items: Sequence[S],
    key: Callable[[S], str],
    request: ListRequest,
    member: str,
    shown: Callable[[S], T],
    *,
    default: int,
    limit: int = 100,
) -> Answer:
    """One page of `items` under `member`; the token is the key of the last item of the page before."""
    size = request.max_records or default
    if size > limit:
        return words.invalid(
            f"1 validation error detected: Value '{size}' at 'maxRecords' failed to satisfy constraint: "
            f"Member must have value less than or equal to {limit}"
        )
    start = 0
    if request.next_token:
        start = next((index + 1 for index, item in enumerate(items) if key(item) == request.next_token), -1)
        if start < 0:
            return Refused(code="InvalidNextToken", message=f"The token '{request.next_token}' is invalid.")
    page = items[start : start + size]
    answer: dict[str, Any] = {member: [shown(item) for item in page]}
    if start + size < len(items):
        answer["NextToken"] = key(page[-1])
    return answer


def _group(state: State, group: Group) -> dict[str, Any]:
    return {
        "AutoScalingGroupName": group.name,
        "AutoScalingGroupARN": arn(state.region, group),
        "MinSize": group.min_size,
        "MaxSize": group.max_size,
        "DesiredCapacity": group.desired,
        "DefaultCooldown": 300,
        "AvailabilityZones": list(group.zones),
        "LoadBalancerNames": [],
        "TargetGroupARNs": [],
        "HealthCheckType": "EC2",
        "HealthCheckGracePeriod": 0,
        "Instances": [_instance(instance) for instance in group.instances.values()],
        "CreatedTime": moment(group.created_ms),
        "SuspendedProcesses": [
            {"ProcessName": name, "SuspensionReason": "User suspended"} for name in sorted(group.suspended)
        ],
        "VPCZoneIdentifier": group.subnets,
        "EnabledMetrics": [],
        "Tags": [_named_tag(group, one) for one in group.tags],
        "TerminationPolicies": ["Default"],
        "NewInstancesProtectedFromScaleIn": group.protect_new,
        "ServiceLinkedRoleARN": f"arn:aws:iam::{ACCOUNT_ID}:role/aws-service-role/autoscaling.amazonaws.com/"
        "AWSServiceRoleForAutoScaling",
        "Status": "Delete in progress" if group.deleting else None,
    } | _described_source(group.source)


def _described_source(source: Source) -> dict[str, Any]:
    match source:
        case FromConfiguration():
            return {"LaunchConfigurationName": source.name}
        case FromTemplate():
            return {"LaunchTemplate": _described_template(source)}
        case FromMixed():
            policy: dict[str, Any] = json.loads(source.described or "{}")
            launch = {
                **policy.get("LaunchTemplate", {}),
                "LaunchTemplateSpecification": _described_template(source.template),
            }
            return {"MixedInstancesPolicy": {**policy, "LaunchTemplate": launch}}


def _described_template(source: FromTemplate) -> dict[str, str]:
    return {"LaunchTemplateId": source.id, "LaunchTemplateName": source.name, "Version": source.version}


def _instance(instance: Instance) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "InstanceId": instance.id,
        "InstanceType": instance.instance_type,
        "AvailabilityZone": instance.zone,
        "LifecycleState": instance.lifecycle,
        "HealthStatus": "Unhealthy" if instance.ended_by == "health" else "Healthy",
        "ProtectedFromScaleIn": instance.protected,
    }
    if instance.configuration:
        shown["LaunchConfigurationName"] = instance.configuration
    else:
        shown["LaunchTemplate"] = {
            "LaunchTemplateId": instance.template_id,
            "LaunchTemplateName": instance.template_name,
            "Version": str(instance.template_version),
        }
    return shown


def _grouped_instance(instance: Instance) -> dict[str, Any]:
    shown = _instance(instance)
    return shown | {"AutoScalingGroupName": instance.group, "HealthStatus": shown["HealthStatus"].upper()}


def activity_shape(activity: Activity) -> dict[str, Any]:
    return {
        "ActivityId": activity.id,
        "AutoScalingGroupName": activity.group,
        "Description": activity.description,
        "Cause": activity.cause,
        "StartTime": moment(activity.started_ms),
        "EndTime": None if activity.ended_ms is None else moment(activity.ended_ms),
        "StatusCode": activity.status,
        "StatusMessage": activity.message or None,
        "Progress": activity.progress,
        "Details": json.dumps({"Availability Zone": activity.zone}) if activity.zone else "{}",
    }


def moment(at_ms: int) -> datetime:
    """The moment as moto's serializer takes it."""
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC)
