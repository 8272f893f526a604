"""Auto Scaling Groups: reading them into NodeGroups, raising desired capacity, terminating one instance.

Invariant: desired capacity is never lowered here.  SetDesiredCapacity is absolute, so the group is described again in the same
thread just before, only a value higher than desired and than what exists or boots is set, once, and it is read back.
One group that cannot be read or converted has its own `problem`; the others go on.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from nobiru.aws.allocatable import Family
from nobiru.aws.discovery import Chosen, TagSpec, by_own_tags, by_specs, tags_of
from nobiru.aws.instance_types import InstanceType, from_answer, lookup
from nobiru.aws.session import Aws, is_credential_trouble
from nobiru.aws.templates import Answer, TemplateRef, find_source, launch_template_ref, make_template
from nobiru.kernel.cloud import Activity, Instance, NodeGroup
from nobiru.kernel.errors import CloudDenied, CloudError, CloudRejected
from nobiru.kernel.objects import milliseconds
from nobiru.kernel.reason import Why

NAMES_PER_CALL = 100  # DescribeAutoScalingGroups takes at most 100 names
CONFIGURATIONS_PER_CALL = 50
DENIED_S = 600.0  # a refused action is tried again after this long: somebody may have allowed it
TEMPLATE_S = 60.0  # launch templates and configurations are read again after this long
WRITE_S_MAX = 4.5


class GroupSpec(Struct, frozen=True, kw_only=True):
    """A group named on the command line with limits of its own."""

    name: str
    min_size: int
    max_size: int


class Wanted(Struct, frozen=True, kw_only=True):
    """Which groups are ours: named ones, ones with tags, or (neither) Cluster Autoscaler's own tags."""

    explicit: tuple[GroupSpec, ...] = ()
    discovery: tuple[TagSpec, ...] = ()
    union: bool = True
    cluster_name: str = ""


class Description(Struct, frozen=True, kw_only=True):
    """What one look at the cloud found.  Order: groups by name."""

    groups: tuple[NodeGroup, ...]
    others: dict[str, Why] = {}
    problem: str = ""
    denied: frozenset[str] = frozenset()


class Groups:
    """The groups of one region, as `Wanted` names them."""

    def __init__(self, aws: Aws, wanted: Wanted, *, static_types: bool = False) -> None:
        self._aws, self._wanted = aws, wanted
        self._static_types = static_types
        self._denied: dict[str, float] = {}
        self._types: dict[str, InstanceType | None] = {}
        self._templates: dict[TemplateRef, tuple[float, Answer]] = {}
        self._configurations: dict[str, tuple[float, Answer]] = {}
        self.family: Family = ""

    # Reading

    async def describe(self, node_instance_ids: frozenset[str]) -> Description:
        """All groups that are ours.

        Raises:  CloudError where AWS cannot be asked at all.
        """
        return await self._aws.run(lambda: self._describe(node_instance_ids))

    def _describe(self, node_instance_ids: frozenset[str]) -> Description:
        answers: dict[str, Answer] = {}
        chosen = Chosen(names=frozenset())
        explicit = {spec.name: spec for spec in self._wanted.explicit}
        if self._wanted.discovery or not explicit:
            everything = self._fetch({})
            chosen = self._choose(everything, node_instance_ids)
            answers = {each["AutoScalingGroupName"]: each for each in everything}
        missing = [name for name in explicit if name not in answers]
        for start in range(0, len(missing), NAMES_PER_CALL):
            for each in self._fetch({"AutoScalingGroupNames": missing[start : start + NAMES_PER_CALL]}):
                answers[each["AutoScalingGroupName"]] = each
        names = sorted(chosen.names | explicit.keys())
        ours = [answers[name] for name in names if name in answers]
        configurations, versions = self._read_configurations(ours), self._read_versions(ours)
        self._read_types(ours, configurations, versions)
        groups = [
            self._convert(name, answers.get(name), explicit.get(name), configurations, versions) for name in names
        ]
        return Description(
            groups=tuple(groups), others=chosen.others, problem=chosen.problem, denied=frozenset(self._refused())
        )

    def _fetch(self, arguments: dict[str, Any]) -> list[Answer]:
        client = self._aws.autoscaling
        return self._aws.pages(
            "autoscaling:DescribeAutoScalingGroups",
            client.get_paginator("describe_auto_scaling_groups"),
            "AutoScalingGroups",
            **arguments,
        )

    def _choose(self, everything: Sequence[Answer], node_instance_ids: frozenset[str]) -> Chosen:
        if self._wanted.discovery:
            return by_specs(everything, self._wanted.discovery, union=self._wanted.union)
        return by_own_tags(everything, cluster_name=self._wanted.cluster_name, node_instances=node_instance_ids)

    def _convert(
        self,
        name: str,
        answer: Answer | None,
        spec: GroupSpec | None,
        configurations: Mapping[str, Answer],
        versions: Mapping[TemplateRef, Answer],
    ) -> NodeGroup:
        now_ms = int(time.time() * 1000)
        if answer is None:
            low, high = (spec.min_size, spec.max_size) if spec else (0, 0)
            text = f'Auto Scaling Group "{name}" does not exist in {self._aws.region}: correct --nodes or AWS_REGION'
            return NodeGroup(name=name, min_size=low, max_size=high, desired=0, problem=text, described_ms=now_ms)
        try:
            source = find_source(answer, configurations, versions, frozenset(self._refused()))
            template, problem = make_template(
                source=source,
                tags=tags_of(answer),
                zones=answer.get("AvailabilityZones") or (),
                region=self._aws.region,
                lookup=self._type,
                family=self.family,
            )
            return node_group(answer, spec, template, problem, self._activities(answer), now_ms)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            text = f"AWS's answer about the group cannot be understood ({type(error).__name__}: {error})"
            return NodeGroup(name=name, min_size=0, max_size=0, desired=0, problem=text, described_ms=now_ms)

    # What a group is made of

    def _read_configurations(self, answers: Sequence[Answer]) -> dict[str, Answer]:
        names = sorted({each["LaunchConfigurationName"] for each in answers if each.get("LaunchConfigurationName")})
        stale = [name for name in names if self._old(self._configurations.get(name))]
        client = self._aws.autoscaling
        for start in range(0, len(stale), CONFIGURATIONS_PER_CALL):
            part = stale[start : start + CONFIGURATIONS_PER_CALL]
            found = self._optional(
                "autoscaling:DescribeLaunchConfigurations",
                client.describe_launch_configurations,
                LaunchConfigurationNames=part,
            )
            for each in (found or {}).get("LaunchConfigurations", []):
                self._configurations[each["LaunchConfigurationName"]] = (time.monotonic(), each)
        return {name: self._configurations[name][1] for name in names if name in self._configurations}

    def _read_versions(self, answers: Sequence[Answer]) -> dict[TemplateRef, Answer]:
        refs = {ref for each in answers if (ref := launch_template_ref(each))}
        for ref in sorted(refs, key=lambda each: (each.label, each.version)):
            if not self._old(self._templates.get(ref)):
                continue
            target = {"LaunchTemplateId": ref.id} if ref.id else {"LaunchTemplateName": ref.name}
            found = self._optional(
                "ec2:DescribeLaunchTemplateVersions",
                self._aws.ec2.describe_launch_template_versions,
                Versions=[ref.version],
                **target,
            )
            for each in (found or {}).get("LaunchTemplateVersions", [])[:1]:
                self._templates[ref] = (time.monotonic(), each)
        return {ref: self._templates[ref][1] for ref in refs if ref in self._templates}

    def _read_types(
        self,
        answers: Sequence[Answer],
        configurations: Mapping[str, Answer],
        versions: Mapping[TemplateRef, Answer],
    ) -> None:
        """Ask EC2 for types that the bundled table does not have, where that is allowed."""
        if self._static_types:
            return
        wanted: set[str] = set()
        for answer in answers:
            wanted.update(find_source(answer, configurations, versions, frozenset()).types)
        unknown = sorted(name for name in wanted if name not in self._types and lookup(name) is None)
        if not unknown:
            return
        found = self._optional(
            "ec2:DescribeInstanceTypes",
            self._aws.ec2.describe_instance_types,
            Filters=[{"Name": "instance-type", "Values": unknown[:100]}],
        )
        if found is not None:
            self._types.update(dict.fromkeys(unknown))
            self._types.update({each["InstanceType"]: from_answer(each) for each in found["InstanceTypes"]})

    def _type(self, name: str) -> InstanceType | None:
        return lookup(name) or self._types.get(name)

    def _activities(self, answer: Answer) -> tuple[Activity, ...] | None:
        """The group's newest activities, asked for only while it lacks machines."""
        if int(answer["DesiredCapacity"]) <= len(answer.get("Instances") or []):
            return None
        found = self._optional(
            "autoscaling:DescribeScalingActivities",
            self._aws.autoscaling.describe_scaling_activities,
            AutoScalingGroupName=answer["AutoScalingGroupName"],
            MaxRecords=20,
        )
        return None if found is None else tuple(activity(each) for each in found["Activities"])

    def _old(self, entry: tuple[float, Answer] | None) -> bool:
        return entry is None or time.monotonic() - entry[0] > TEMPLATE_S

    # Rights

    def _refused(self) -> list[str]:
        now_s = time.monotonic()
        return [action for action, since_s in self._denied.items() if now_s - since_s < DENIED_S]

    def _optional(self, action: str, method: Any, **arguments: Any) -> dict[str, Any] | None:
        """A call that helps but is not needed: None where it is refused or fails now."""
        if action in self._refused():
            return None
        try:
            answer: dict[str, Any] = self._aws.call(action, method, **arguments)
        except CloudDenied as error:
            if is_credential_trouble(error):
                raise
            self._denied[action] = time.monotonic()
            return None
        except CloudError:
            return None  # the next look tries again; what was known stays
        self._denied.pop(action, None)
        return answer

    # Acting

    async def raise_desired(self, group: str, target: int) -> int:
        """Raise desired capacity to `target`, never lower it; returns what it is afterwards.

        Raises:  CloudError.
        """
        return await self._aws.run(lambda: self._raise(group, target), timeout_s=WRITE_S_MAX)

    def _raise(self, group: str, target: int) -> int:
        before = self._one(group)
        desired = int(before["DesiredCapacity"])
        there = sum(
            not each["LifecycleState"].startswith(("Terminat", "Detach", "Warmed")) for each in before["Instances"]
        )
        wanted = min(target, int(before["MaxSize"]))
        if wanted <= desired:
            return desired
        if wanted < there:
            raise CloudRejected(
                f"group {group} has {there} instances: desired capacity {wanted} would end some of them"
            )
        self._aws.call(
            "autoscaling:SetDesiredCapacity",
            self._aws.autoscaling_write.set_desired_capacity,
            AutoScalingGroupName=group,
            DesiredCapacity=wanted,
            HonorCooldown=False,
        )
        try:
            return max(wanted, int(self._one(group)["DesiredCapacity"]))
        except CloudError:
            return wanted  # it was accepted; the next look reads it back

    def _one(self, group: str) -> Answer:
        answer = self._aws.call(
            "autoscaling:DescribeAutoScalingGroups",
            self._aws.autoscaling_write.describe_auto_scaling_groups,
            AutoScalingGroupNames=[group],
        )
        if not answer["AutoScalingGroups"]:
            raise CloudRejected(f'Auto Scaling Group "{group}" does not exist in {self._aws.region}')
        found: Answer = answer["AutoScalingGroups"][0]
        return found

    async def terminate(self, instance_id: str) -> None:
        """Terminate one instance and lower its group's desired capacity with it.

        Raises:  CloudError.
        """
        call = self._aws.autoscaling_write.terminate_instance_in_auto_scaling_group
        await self._aws.run(
            lambda: self._aws.call(
                "autoscaling:TerminateInstanceInAutoScalingGroup",
                call,
                InstanceId=instance_id,
                ShouldDecrementDesiredCapacity=True,
            ),
            timeout_s=WRITE_S_MAX,
        )


def instance(answer: Answer) -> Instance:
    """One instance of a group."""
    version = (answer.get("LaunchTemplate") or {}).get("Version", "")
    return Instance(
        id=answer["InstanceId"],
        zone=answer.get("AvailabilityZone", ""),
        lifecycle=answer.get("LifecycleState", ""),
        healthy=answer.get("HealthStatus", "Healthy").lower() == "healthy",
        instance_type=answer.get("InstanceType", ""),
        launch_template_version=version,
        protected_from_scale_in=bool(answer.get("ProtectedFromScaleIn")),
    )


def activity(answer: Answer) -> Activity:
    """One scaling activity."""
    started = answer.get("StartTime")
    return Activity(
        id=answer.get("ActivityId", ""),
        status=answer.get("StatusCode", ""),
        message=answer.get("StatusMessage", ""),
        cause=answer.get("Cause", ""),
        started_ms=milliseconds(started if isinstance(started, datetime) else None),
        progress=int(answer.get("Progress", 0)),
    )


def node_group(
    answer: Answer,
    spec: GroupSpec | None,
    template: Any,
    template_problem: str,
    activities: tuple[Activity, ...] | None,
    now_ms: int,
) -> NodeGroup:
    """A group as the plan reads it; limits given on the command line win over the cloud's."""
    low, high = int(answer["MinSize"]), int(answer["MaxSize"])
    return NodeGroup(
        name=answer["AutoScalingGroupName"],
        min_size=spec.min_size if spec else low,
        max_size=spec.max_size if spec else high,
        desired=int(answer["DesiredCapacity"]),
        cloud_min_size=low,
        cloud_max_size=high,
        instances=tuple(sorted((instance(each) for each in answer.get("Instances") or []), key=lambda each: each.id)),
        zones=tuple(sorted(answer.get("AvailabilityZones") or [])),
        tags=tags_of(answer),
        suspended=frozenset(each["ProcessName"] for each in answer.get("SuspendedProcesses") or []),
        template=template,
        template_problem=template_problem,
        activities=activities,
        described_ms=now_ms,
    )
