"""Auto Scaling Groups: reading them into NodeGroups, raising desired capacity, terminating one instance.

It refuses to know: nodes, pods, plans.
Invariant: desired capacity is never lowered here.  SetDesiredCapacity is absolute, so the group is described again in the same thread
just before; only a value higher than desired and than what exists or boots is set, once, and read back.
One group that cannot be read or converted has its own `problem`; the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from nobiru.aws.allocatable import Family
from nobiru.aws.answers import ActivityAnswer, GroupAnswer, items, read
from nobiru.aws.conversion import GroupSpec, activity, node_group, present, raise_to, understood, unusable
from nobiru.aws.discovery import ENABLED, Chosen, TagSpec, by_own_tags, by_specs, owner_names, specs_to_ask
from nobiru.aws.launch import LaunchReader
from nobiru.aws.session import Aws, Clients
from nobiru.aws.templates import Launch
from nobiru.aws.together import together
from nobiru.kernel.cloud import Activity, GroupName, NodeGroup
from nobiru.kernel.errors import CloudDenied, CloudError, CloudRejected, CloudUnavailable
from nobiru.kernel.reason import Why

if TYPE_CHECKING:  # the stubs are not installed with nobiru
    from types_boto3_autoscaling.type_defs import FilterTypeDef

__all__ = ["Description", "GroupSpec", "Groups", "Raised", "Wanted"]

NAMES_PER_CALL = 100  # autoscaling:DescribeAutoScalingGroups takes that many names
INSTANCES_PER_CALL = 50  # autoscaling:DescribeAutoScalingInstances takes that many ids
ACTIVITIES_MAX = 20  # the newest ones suffice: a failure is among the first
OWNERS_MS = 300_000  # whose groups have this cluster's nodes is asked again this often at most
# A write begins only this soon after its check began, so that both end within an Action's 5 s (check 2 s + write 3 s).
CHECK_S_MAX = 2.0
# After this long the read-back is left to the next look.
READ_BACK_S_MAX = 2.5
ACT_MS_MAX = 4_900

DESCRIBE_GROUPS = "autoscaling:DescribeAutoScalingGroups"
DESCRIBE_INSTANCES = "autoscaling:DescribeAutoScalingInstances"
DESCRIBE_ACTIVITIES = "autoscaling:DescribeScalingActivities"
SET_DESIRED = "autoscaling:SetDesiredCapacity"
TERMINATE = "autoscaling:TerminateInstanceInAutoScalingGroup"

# AWS's words where a decrement would take desired capacity below the group's minimum.
AT_MINIMUM = "min size constraint"


class Wanted(Struct, frozen=True, kw_only=True):
    """Which groups are ours: named ones, ones with tags, or (neither) Cluster Autoscaler's own tags."""

    explicit: tuple[GroupSpec, ...] = ()
    discovery: tuple[TagSpec, ...] = ()
    union: bool = True
    cluster_name: str = ""


class Description(Struct, frozen=True, kw_only=True):
    """What one look at the cloud found.

    `others`: groups that were found and are left alone; `problem`: one line where no group may be used at all;
    `denied`: IAM actions refused within the last ten minutes.
    Order:   groups by name.
    """

    groups: tuple[NodeGroup, ...]
    others: dict[GroupName, Why] = {}
    problem: str = ""
    denied: frozenset[str] = frozenset()


class Raised(Struct, frozen=True, kw_only=True):
    """What became of raising a group's desired capacity.

    `before` and `after` are desired capacity as read just before and after; `why_not` is a line where it was not set.
    """

    group: GroupName
    wanted: int
    before: int
    after: int
    why_not: str = ""


class Groups:
    """The groups of one region, as `Wanted` names them.

    `family` says who sets this cluster's nodes up, where that is known (`allocatable.cluster_family`): it sharpens the estimates.
    """

    def __init__(self, aws: Aws, wanted: Wanted, *, static_types: bool = False) -> None:
        self._aws, self._wanted = aws, wanted
        self._specs = specs_to_ask(wanted.discovery, union=wanted.union)
        self._reader = LaunchReader(aws, static_types=static_types)
        self._owners: frozenset[str] = frozenset()
        self._owners_ms: int | None = None
        self.family: Family = "unknown"

    # Reading

    async def describe(self, node_instance_ids: frozenset[str]) -> Description:
        """All groups that are ours; `node_instance_ids` are the EC2 instances of this cluster's nodes ("" for none of them).

        Raises:  CloudError where AWS cannot be asked at all.
        """
        node_instance_ids -= {""}
        explicit = {spec.name: spec for spec in self._wanted.explicit}
        named, found = await together([self._named(sorted(explicit)), self._discovered()])
        known, broken = understood([*named, *found])
        chosen = await self._choose(known, node_instance_ids)
        names = sorted(chosen.names | explicit.keys() | broken.keys())
        ours = [known[name] for name in names if name in known]
        launches = await self._reader.launches(ours)
        histories = dict(
            zip([each.name for each in ours], await together([self._history(each) for each in ours]), strict=True)
        )
        now_ms = self._aws.clock.now_ms()
        groups = []
        for name in names:
            spec = explicit.get(name)
            if name in known:
                groups.append(self._group(known[name], spec, launches[name], histories[name], now_ms))
            else:
                groups.append(unusable(name, spec, broken.get(name) or self._absent(name), now_ms))
        return Description(
            groups=tuple(groups), others=chosen.others, problem=chosen.problem, denied=self._aws.rights.denied
        )

    def _group(
        self,
        answer: GroupAnswer,
        spec: GroupSpec | None,
        launch: Launch,
        activities: tuple[Activity, ...] | None,
        now_ms: int,
    ) -> NodeGroup:
        return node_group(
            answer,
            spec,
            launch,
            self._reader.type_of,
            region=self._aws.region,
            family=self.family,
            activities=activities,
            now_ms=now_ms,
        )

    def _absent(self, name: GroupName) -> str:
        return f'Auto Scaling Group "{name}" does not exist in {self._aws.region}: correct --nodes or AWS_REGION'

    async def _named(self, names: Sequence[str]) -> list[object]:
        """The answers about groups by name; unknown ones are missing."""
        parts = [list(names[at : at + NAMES_PER_CALL]) for at in range(0, len(names), NAMES_PER_CALL)]
        return _joined(await together([self._names_part(part) for part in parts]))

    async def _names_part(self, names: list[str]) -> list[object]:
        try:
            return await self._aws.run(lambda clients: self._pages(clients, names, ()))
        except CloudRejected:
            if len(names) == 1:
                return []  # a name that AWS does not even take
            return _joined(await together([self._names_part([name]) for name in names]))

    async def _discovered(self) -> list[object]:
        """The answers about groups found by tags."""
        specs: Sequence[TagSpec] = self._specs
        if not specs and not self._wanted.explicit:
            specs = (((ENABLED, None),),)
        return _joined(await together([self._tags_part(spec) for spec in specs]))

    async def _tags_part(self, spec: TagSpec) -> list[object]:
        return await self._aws.run(lambda clients: self._pages(clients, [], spec))

    def _pages(self, clients: Clients, names: list[str], spec: TagSpec) -> list[object]:
        """All pages of one question, by names or by tags; runs in a thread."""
        filters: list[FilterTypeDef] = [
            {"Name": "tag-key", "Values": [key]} if value is None else {"Name": f"tag:{key}", "Values": [value]}
            for key, value in spec
        ]
        found: list[object] = []
        pages = clients.autoscaling.get_paginator("describe_auto_scaling_groups")
        with self._aws.calling(DESCRIBE_GROUPS):
            asked = pages.paginate(AutoScalingGroupNames=names) if names else pages.paginate(Filters=filters)
            for page in asked:
                found += items(page, "AutoScalingGroups")
        return found

    async def _choose(self, known: Mapping[str, GroupAnswer], node_instance_ids: frozenset[str]) -> Chosen:
        if self._specs:
            return by_specs(known.values(), self._specs)
        if self._wanted.explicit:
            return Chosen()
        chosen = self._by_own_tags(known, node_instance_ids, frozenset())
        if chosen.undecided and node_instance_ids:
            chosen = self._by_own_tags(known, node_instance_ids, await self._owner_names(node_instance_ids))
        return chosen

    def _by_own_tags(
        self, known: Mapping[str, GroupAnswer], node_instance_ids: frozenset[str], owners: frozenset[str]
    ) -> Chosen:
        return by_own_tags(
            known.values(),
            cluster_name=self._wanted.cluster_name,
            node_instances=node_instance_ids,
            owners=owners,
        )

    async def _owner_names(self, node_instance_ids: frozenset[str]) -> frozenset[str]:
        """The clusters that the groups of this cluster's nodes name; empty where that cannot be told."""
        now_ms = self._aws.clock.monotonic_ms()
        if self._owners_ms is not None and now_ms - self._owners_ms < OWNERS_MS:
            return self._owners
        ids = sorted(node_instance_ids)[:INSTANCES_PER_CALL]

        def ask(clients: Clients) -> list[str]:
            with self._aws.calling(DESCRIBE_INSTANCES):
                page = clients.autoscaling.describe_auto_scaling_instances(InstanceIds=ids)
            return sorted({each["AutoScalingGroupName"] for each in page["AutoScalingInstances"]})

        try:
            known, _ = understood(await self._named(await self._aws.run(ask)))
        except CloudError:
            return self._owners
        self._owners, self._owners_ms = owner_names(known.values()), now_ms
        return self._owners

    async def _history(self, group: GroupAnswer) -> tuple[Activity, ...] | None:
        """The group's newest activities; asked for only while it lacks machines, None where they cannot be had."""
        if group.desired_capacity <= present(group) or not self._aws.rights.may(DESCRIBE_ACTIVITIES):
            return None

        def ask(clients: Clients) -> list[object]:
            with self._aws.calling(DESCRIBE_ACTIVITIES):
                page = clients.autoscaling.describe_scaling_activities(
                    AutoScalingGroupName=group.name, MaxRecords=ACTIVITIES_MAX
                )
            return items(page, "Activities")

        try:
            return tuple(activity(read(each, ActivityAnswer)) for each in await self._aws.run(ask))
        except (CloudError, msgspec.ValidationError):
            return None  # a stock-out is then inferred from desired above listed

    # Acting

    async def raise_desired(self, group: GroupName, target: int) -> int:
        """Raise desired capacity to `target`, never lower it; what it is afterwards.

        Raises:  CloudError; CloudRejected says why nothing was set although desired capacity is below the target.
        """
        raised = await self.raise_checked(group, target)
        if raised.why_not and raised.after < target:
            raise CloudRejected(f"group {group} was not raised to {target}: {raised.why_not}")
        return raised.after

    async def raise_checked(self, group: GroupName, wanted: int) -> Raised:
        """Raise desired capacity to `wanted`, or as far as the group's own maximum; what came of it.

        Raises:  CloudError.
        """
        began_s = time.monotonic()
        return await self._aws.run(lambda clients: self._raise(clients, group, wanted, began_s), limit_ms=ACT_MS_MAX)

    def _raise(self, clients: Clients, name: GroupName, wanted: int, began_s: float) -> Raised:
        """Check, set, read back, in one thread."""
        before = self._one(clients, name)
        target, why_not = raise_to(before, wanted)
        desired = before.desired_capacity
        if why_not:
            return Raised(group=name, wanted=wanted, before=desired, after=desired, why_not=why_not)
        _in_time(began_s)
        with self._aws.calling(SET_DESIRED):
            clients.writes.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=target, HonorCooldown=False)
        after = target
        if time.monotonic() - began_s <= READ_BACK_S_MAX:
            after = self._read_back(clients, name, target)
        return Raised(group=name, wanted=wanted, before=desired, after=after)

    def _read_back(self, clients: Clients, name: GroupName, target: int) -> int:
        """Desired capacity after it was set.  AWS may still show the old one for a moment; then what it accepted holds."""
        try:
            return max(target, self._one(clients, name).desired_capacity)
        except CloudError:
            return target  # accepted; the next look shows it

    def _one(self, clients: Clients, name: GroupName) -> GroupAnswer:
        with self._aws.calling(DESCRIBE_GROUPS):
            page = clients.checks.describe_auto_scaling_groups(AutoScalingGroupNames=[name])
        known, broken = understood(items(page, "AutoScalingGroups"))
        if name not in known:
            text = broken.get(name) or self._absent(name)
            raise CloudRejected(text)
        return known[name]

    async def terminate(self, instance_id: str, *, decrement: bool = True) -> None:
        """Terminate one instance and, unless it is to be replaced, lower its group's desired capacity with it.

        One that is in no group any more, or is ending already, is success: an earlier call whose answer was lost may have done
        it, and AWS would lower desired capacity a second time for an instance that is Terminating.  Where desired capacity is at the
        group's minimum and yet more machines run (instances protected from scale-in), one of these goes without a decrement.
        Raises:  CloudError.
        """

        began_s = time.monotonic()

        def ask(clients: Clients) -> None:
            if self._ends_already(clients, instance_id):
                return
            try:
                self._end(clients, instance_id, began_s, decrement=decrement)
            except CloudRejected as error:
                if AT_MINIMUM not in str(error) or not self._surplus(clients, instance_id):
                    raise
                self._end(clients, instance_id, began_s, decrement=False)

        try:
            await self._aws.run(ask, limit_ms=ACT_MS_MAX)
        except CloudRejected as error:
            if "No managed instance found" not in str(error):
                raise

    def _end(self, clients: Clients, instance_id: str, began_s: float, *, decrement: bool) -> None:
        _in_time(began_s)
        with self._aws.calling(TERMINATE):
            clients.writes.terminate_instance_in_auto_scaling_group(
                InstanceId=instance_id, ShouldDecrementDesiredCapacity=decrement
            )

    def _surplus(self, clients: Clients, instance_id: str) -> bool:
        """Whether the instance's group runs more than it desires, so that nothing is launched in place of this one."""
        if not self._aws.rights.may(DESCRIBE_INSTANCES):
            return False
        try:
            with self._aws.calling(DESCRIBE_INSTANCES):
                page = clients.checks.describe_auto_scaling_instances(InstanceIds=[instance_id])
            names = [each["AutoScalingGroupName"] for each in page["AutoScalingInstances"]]
            groups = [self._one(clients, name) for name in names]
        except (CloudDenied, CloudRejected):
            return False
        return any(present(group) > group.desired_capacity for group in groups)

    def _ends_already(self, clients: Clients, instance_id: str) -> bool:
        """Whether AWS is ending the instance; False where we may not look."""
        if not self._aws.rights.may(DESCRIBE_INSTANCES):
            return False
        try:
            with self._aws.calling(DESCRIBE_INSTANCES):
                page = clients.checks.describe_auto_scaling_instances(InstanceIds=[instance_id])
        except (CloudDenied, CloudRejected):
            return False
        found = page["AutoScalingInstances"]
        return any(str(each.get("LifecycleState", "")).upper().startswith("TERMINAT") for each in found)


def _in_time(began_s: float) -> None:
    """Nothing while a write may still begin: it then ends within the time that the leader lock is known to hold."""
    if time.monotonic() - began_s > CHECK_S_MAX:
        raise CloudUnavailable(f"AWS was not asked to change anything: {CHECK_S_MAX:g} s went by before it could be")


def _joined(parts: Iterable[list[object]]) -> list[object]:
    return [each for part in parts for each in part]
