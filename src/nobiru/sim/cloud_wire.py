"""The Auto Scaling API in AWS's own names: request parameters in, response members out, the state machine in between.

It refuses to know: HTTP, XML, signatures, policies (moto does those) and how groups behave (`sim.asg`).
Invariant: every action in ACTIONS answers with the members of AWS's response shape, or is Refused with AWS's code.
Source: AWS "Amazon EC2 Auto Scaling API Reference".
"""

import json
from collections.abc import Callable, Iterable

import msgspec
from msgspec import UNSET

from nobiru.sim import asg
from nobiru.sim import asg_words as words
from nobiru.sim.asg_launch import template_version
from nobiru.sim.asg_state import (
    Catalogue,
    FromConfiguration,
    FromMixed,
    FromTemplate,
    Group,
    Refused,
    Source,
    State,
    Tag,
)
from nobiru.sim.cloud_describe import (
    Answer,
    Params,
    activity_shape,
    describe_activities,
    describe_groups,
    describe_instances,
    describe_tags,
)
from nobiru.sim.cloud_region import Region
from nobiru.sim.cloud_requests import (
    GroupRequest,
    MixedPolicy,
    NamedRequest,
    TagSpec,
    TagsRequest,
    TemplateSpec,
    TerminateRequest,
)


def create_group(region: Region, params: Params, who: str) -> Answer:
    """CreateAutoScalingGroup."""
    request = msgspec.convert(params, GroupRequest, strict=False)
    zones = _zones(region, request)
    source = _source(request, region.read().catalogue)
    if isinstance(source, Refused):
        return source
    if source is None:
        return words.invalid(
            "Valid requests must contain either LaunchTemplate, LaunchConfigurationName, InstanceId or "
            "MixedInstancesPolicy parameter."
        )
    low = request.min_size or 0
    group = Group(
        name=request.auto_scaling_group_name, uid="", created_ms=0, min_size=low, max_size=request.max_size or 0,
        desired=low if request.desired_capacity is UNSET else request.desired_capacity, zones=zones, source=source,
        subnets=request.vpc_zone_identifier, tags=tuple(_tag(spec) for spec in request.tags),
        protect_new=bool(request.new_instances_protected_from_scale_in),
    )  # fmt: skip
    return _done(region.change(lambda state, now_ms: asg.create_group(state, group, now_ms=now_ms, who=who)))


def update_group(region: Region, params: Params, who: str) -> Answer:
    """UpdateAutoScalingGroup."""
    request = msgspec.convert(params, GroupRequest, strict=False)
    source = _source(request, region.read().catalogue)
    if isinstance(source, Refused):
        return source
    change = asg.GroupChange(
        min_size=request.min_size, max_size=request.max_size, desired=request.desired_capacity,
        zones=_zones(region, request) or UNSET, subnets=request.vpc_zone_identifier or UNSET,
        source=UNSET if source is None else source, protect_new=request.new_instances_protected_from_scale_in,
    )  # fmt: skip
    name = request.auto_scaling_group_name
    return _done(region.change(lambda state, now_ms: asg.update_group(state, name, change, now_ms=now_ms, who=who)))


def _zones(region: Region, request: GroupRequest) -> tuple[str, ...]:
    if not request.vpc_zone_identifier:
        return tuple(request.availability_zones)
    subnets = [subnet.strip() for subnet in request.vpc_zone_identifier.split(",")]
    return tuple(dict.fromkeys(region.subnet_zones(subnets)))


def _source(request: GroupRequest, catalogue: Catalogue) -> Source | Refused | None:
    if request.launch_configuration_name:
        name = request.launch_configuration_name
        if name not in catalogue.configurations:
            return words.invalid(f"Launch configuration name not found - Launch configuration {name} not found")
        return FromConfiguration(name=name)
    if request.launch_template is not None:
        return _template(request.launch_template, catalogue)
    if request.mixed_instances_policy is None:
        return None
    policy = msgspec.convert(request.mixed_instances_policy, MixedPolicy, strict=False)
    template = _template(policy.launch_template.launch_template_specification, catalogue)
    if isinstance(template, Refused):
        return template
    return FromMixed(
        template=template,
        overrides=tuple(override.instance_type for override in policy.launch_template.overrides),
        on_demand_base=policy.instances_distribution.on_demand_base_capacity,
        on_demand_percent=policy.instances_distribution.on_demand_percentage_above_base_capacity,
        described=json.dumps(request.mixed_instances_policy),
    )


def _template(spec: TemplateSpec, catalogue: Catalogue) -> FromTemplate | Refused:
    for template in catalogue.templates.values():
        if template.id == spec.launch_template_id or template.name == spec.launch_template_name:
            found = FromTemplate(id=template.id, name=template.name, version=spec.version)
            if 1 <= template_version(found, catalogue) <= len(template.versions):
                return found
    which = f"ID {spec.launch_template_id}" if spec.launch_template_id else f"name {spec.launch_template_name}"
    return words.invalid(
        "You must use a valid fully-formed launch template. The specified launch template, with template "
        f"{which}, and version {spec.version}, does not exist."
    )


def _tag(spec: TagSpec) -> Tag:
    return Tag(key=spec.key, value=spec.value, propagate=spec.propagate_at_launch)


def _done(problem: Refused | None) -> Answer:
    return problem if problem is not None else {}


def delete_group(region: Region, params: Params, who: str) -> Answer:
    """DeleteAutoScalingGroup."""
    request = msgspec.convert(params, NamedRequest, strict=False)
    name, force = request.auto_scaling_group_name, request.force_delete
    return _done(
        region.change(lambda state, now_ms: asg.delete_group(state, name, force=force, now_ms=now_ms, who=who))
    )


def set_desired(region: Region, params: Params, who: str) -> Answer:
    """SetDesiredCapacity; HonorCooldown is not looked at (node autoscalers send false)."""
    request = msgspec.convert(params, NamedRequest, strict=False)
    name, desired = request.auto_scaling_group_name, request.desired_capacity
    return _done(region.change(lambda state, now_ms: asg.set_desired(state, name, desired, now_ms=now_ms, who=who)))


def terminate(region: Region, params: Params, who: str) -> Answer:
    """TerminateInstanceInAutoScalingGroup."""
    request = msgspec.convert(params, TerminateRequest, strict=False)
    id_, decrement = request.instance_id, request.should_decrement_desired_capacity
    answer = region.change(
        lambda state, now_ms: asg.terminate_instance(state, id_, decrement=decrement, now_ms=now_ms, who=who)
    )
    return answer if isinstance(answer, Refused) else {"Activity": activity_shape(answer)}


def suspend(region: Region, params: Params, who: str) -> Answer:
    """SuspendProcesses."""
    request = msgspec.convert(params, NamedRequest, strict=False)
    name, processes = request.auto_scaling_group_name, request.scaling_processes
    return _done(region.change(lambda state, now_ms: asg.suspend(state, name, processes, now_ms=now_ms, who=who)))


def resume(region: Region, params: Params, who: str) -> Answer:
    """ResumeProcesses."""
    request = msgspec.convert(params, NamedRequest, strict=False)
    name, processes = request.auto_scaling_group_name, request.scaling_processes
    return _done(region.change(lambda state, now_ms: asg.resume(state, name, processes, now_ms=now_ms, who=who)))


def protect(region: Region, params: Params, who: str) -> Answer:
    """SetInstanceProtection."""
    request = msgspec.convert(params, NamedRequest, strict=False)
    name, ids, protected = request.auto_scaling_group_name, request.instance_ids, request.protected_from_scale_in
    return _done(
        region.change(lambda state, now_ms: asg.protect(state, name, ids, protected=protected, now_ms=now_ms, who=who))
    )


def tag(region: Region, params: Params, who: str) -> Answer:
    """CreateOrUpdateTags: each tag names its group."""

    def set_tags(state: State, now_ms: int, name: str, specs: list[TagSpec]) -> asg.Result:
        return asg.tag(state, name, [_tag(spec) for spec in specs], now_ms=now_ms, who=who)

    return _each_group(region, params, set_tags)


def untag(region: Region, params: Params, who: str) -> Answer:
    """DeleteTags: each tag names its group."""

    def drop_tags(state: State, now_ms: int, name: str, specs: list[TagSpec]) -> asg.Result:
        return asg.untag(state, name, [spec.key for spec in specs], now_ms=now_ms, who=who)

    return _each_group(region, params, drop_tags)


def _each_group(
    region: Region, params: Params, change: Callable[[State, int, str, list[TagSpec]], asg.Result]
) -> Answer:
    by_group: dict[str, list[TagSpec]] = {}
    for spec in msgspec.convert(params, TagsRequest, strict=False).tags:
        by_group.setdefault(spec.resource_id, []).append(spec)

    def all_of_them(state: State, now_ms: int) -> tuple[State, Refused | None]:
        for name, specs in by_group.items():
            state, problem = change(state, now_ms, name, specs)
            if problem is not None:
                return state, problem
        return state, None

    return _done(region.change(all_of_them))


ACTIONS: dict[str, Callable[[Region, Params, str], Answer]] = {
    "CreateAutoScalingGroup": create_group,
    "UpdateAutoScalingGroup": update_group,
    "DeleteAutoScalingGroup": delete_group,
    "DescribeAutoScalingGroups": describe_groups,
    "DescribeAutoScalingInstances": describe_instances,
    "DescribeScalingActivities": describe_activities,
    "SetDesiredCapacity": set_desired,
    "TerminateInstanceInAutoScalingGroup": terminate,
    "SuspendProcesses": suspend,
    "ResumeProcesses": resume,
    "SetInstanceProtection": protect,
    "CreateOrUpdateTags": tag,
    "DeleteTags": untag,
    "DescribeTags": describe_tags,
}


def groups_named(state: State, params: Params) -> Iterable[str]:
    """The groups that a request is about: faults and policies are for those."""
    names = [params.get("AutoScalingGroupName") or "", *(params.get("AutoScalingGroupNames") or [])]
    names += [one.get("ResourceId") or "" for one in params.get("Tags") or []]
    group = asg.group_of(state, params.get("InstanceId") or "")
    if group is not None:
        names.append(group.name)
    return [name for name in names if name]
