"""AWS's answers about Auto Scaling Groups as the kernel's values, and what may be set on a group as it is.

It refuses to know: how AWS is asked.  Invariant: pure; what may be set is higher than desired capacity and no lower than what exists.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from nobiru.aws.allocatable import Family
from nobiru.aws.answers import ActivityAnswer, GroupAnswer, InstanceAnswer, read
from nobiru.aws.templates import Launch, Lookup, node_template, weights_problem
from nobiru.aws.translate import one_line
from nobiru.kernel.cloud import Activity, GroupName, Instance, NodeGroup
from nobiru.kernel.objects import milliseconds
from nobiru.sinks.redact import safe


class GroupSpec(Struct, frozen=True, kw_only=True):
    """A group named on the command line with limits of its own."""

    name: str
    min_size: int
    max_size: int


def understood(answers: Iterable[object]) -> tuple[dict[str, GroupAnswer], dict[str, str]]:
    """(groups by name, what is wrong with those that are not understood, by name)."""
    found: dict[str, GroupAnswer] = {}
    broken: dict[str, str] = {}
    for answer in answers:
        try:
            group = read(answer, GroupAnswer)
            found[group.name] = group
        except msgspec.ValidationError as error:
            name = answer.get("AutoScalingGroupName") if isinstance(answer, Mapping) else None
            if isinstance(name, str):
                broken[name] = f"AWS's answer about it is not understood: {one_line(str(error))}"
    return found, broken


def instance(answer: InstanceAnswer) -> Instance:
    """One machine of a group."""
    return Instance(
        id=answer.instance_id,
        zone=answer.availability_zone,
        lifecycle=answer.lifecycle_state,
        healthy=answer.health_status.lower() == "healthy",  # AWS has been seen with both "Healthy" and "HEALTHY"
        instance_type=answer.instance_type,
        launch_template_version=answer.launch_template.version,
        protected_from_scale_in=answer.protected_from_scale_in,
    )


def activity(answer: ActivityAnswer) -> Activity:
    """One entry of a group's history."""
    return Activity(
        id=answer.activity_id,
        status=answer.status_code,
        message=safe(answer.status_message),
        cause=safe(answer.cause),
        started_ms=milliseconds(answer.start_time),
        progress=answer.progress,
    )


def node_group(
    group: GroupAnswer,
    spec: GroupSpec | None,
    launch: Launch,
    lookup: Lookup,
    *,
    region: str,
    family: Family,
    activities: tuple[Activity, ...] | None,
    now_ms: int,
) -> NodeGroup:
    """A group as the plan reads it; limits given on the command line win over the cloud's, which stay beside them.

    Order:   instances by id, zones by name.
    """
    template, template_problem = node_template(group, launch, lookup, region=region, family=family)
    problem = weights_problem(group)
    if group.status:
        problem = f"it is being deleted ({group.status})"
    return NodeGroup(
        name=group.name,
        min_size=spec.min_size if spec else group.min_size,
        max_size=spec.max_size if spec else group.max_size,
        desired=group.desired_capacity,
        cloud_min_size=group.min_size,
        cloud_max_size=group.max_size,
        instances=tuple(sorted((instance(each) for each in group.instances), key=lambda each: each.id)),
        zones=tuple(sorted(group.availability_zones)),
        tags=group.tag_table,
        suspended=frozenset(each.process_name for each in group.suspended_processes),
        template=template,
        template_problem=template_problem,
        problem=problem,
        activities=activities,
        described_ms=now_ms,
    )


def unusable(name: GroupName, spec: GroupSpec | None, problem: str, now_ms: int) -> NodeGroup:
    """A group of which nothing but its problem is known."""
    low, high = (spec.min_size, spec.max_size) if spec else (0, 0)
    return NodeGroup(name=name, min_size=low, max_size=high, desired=0, problem=problem, described_ms=now_ms)


def present(group: GroupAnswer) -> int:
    """How many of its machines exist or boot: those on their way out and those outside its capacity are not among them."""
    away = ("Terminat", "Detach", "Standby", "EnteringStandby", "Warmed")
    return sum(not each.lifecycle_state.startswith(away) for each in group.instances)


def raise_to(group: GroupAnswer, wanted: int) -> tuple[int, str]:
    """(the desired capacity to set, "") or (0, why none may be set)."""
    desired, there = group.desired_capacity, present(group)
    target = min(wanted, group.max_size)
    if wanted <= desired:
        return 0, f"desired capacity is {desired} already"
    if target <= desired:
        return 0, f"desired capacity {desired} is at the Auto Scaling Group's own maximum {group.max_size}: raise that"
    if target < there:
        # Setting less than what exists makes the group choose machines to end.
        return 0, f"{there} machines exist, so desired capacity {target} would end some of them"
    if "Launch" in {each.process_name for each in group.suspended_processes}:
        return 0, "its Launch process is suspended: resume it"
    return target, ""
