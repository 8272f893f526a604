"""Reads how groups start machines: launch configurations, launch template versions, instance types newer than the bundled table.

It refuses to know: nodes, plans, desired capacity.  Invariant: all of it helps and none of it is needed: a call that is refused or fails
costs its own group's template at most, and what was known before stays until it can be read again.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from nobiru.aws.answers import (
    Answer,
    GroupAnswer,
    InstanceTypeAnswer,
    LaunchConfigurationAnswer,
    TemplateRef,
    TemplateVersionAnswer,
    items,
    read,
)
from nobiru.aws.instance_types import InstanceType, bundled_types, from_answer
from nobiru.aws.session import Aws, Clients
from nobiru.aws.templates import Launch, launch_by_configuration, launch_by_template, ref_text, template_ref
from nobiru.aws.together import together
from nobiru.kernel.errors import CloudDenied, CloudError, CloudRejected

A = TypeVar("A", bound=Answer)

CONFIGURATIONS_PER_CALL = 50  # autoscaling:DescribeLaunchConfigurations
TYPES_PER_CALL = 100  # ec2:DescribeInstanceTypes
DESCRIBE_CONFIGURATIONS = "autoscaling:DescribeLaunchConfigurations"
DESCRIBE_VERSIONS = "ec2:DescribeLaunchTemplateVersions"
DESCRIBE_TYPES = "ec2:DescribeInstanceTypes"
# "$Latest" and "$Default" move: a new version shows within this time.  Configurations and numbered versions never change, but
# a name can be given to another one.
MOVING_MS = 30_000
FIXED_MS = 600_000


class _Kept(Struct, frozen=True, kw_only=True):
    """What a question brought: the answer, or why there is none."""

    at_ms: int
    answer: LaunchConfigurationAnswer | TemplateVersionAnswer | None
    why_not: str = ""


class LaunchReader:
    """Knows how groups start machines, and asks AWS when that is new or old."""

    def __init__(self, aws: Aws, *, static_types: bool) -> None:
        self._aws = aws
        self._static_types = static_types  # --aws-use-static-instance-list: EC2 is not asked for types
        self._configurations: dict[str, _Kept] = {}
        self._versions: dict[TemplateRef, _Kept] = {}
        self._types: dict[str, InstanceType | None] = {}
        self._types_ms: dict[str, int] = {}

    def type_of(self, name: str) -> InstanceType | None:
        """What is known of an instance type."""
        return bundled_types().get(name) or self._types.get(name)

    async def launches(self, groups: Sequence[GroupAnswer]) -> dict[str, Launch]:
        """How each of the groups starts machines, by group name.

        Raises:  nothing of the world's: what cannot be read is a Launch with a problem.
        """
        names = sorted({each.launch_configuration_name for each in groups if each.launch_configuration_name})
        refs = sorted({ref for each in groups if (ref := template_ref(each))}, key=ref_text)
        await together(
            [
                self._read_configurations(
                    [name for name in names if self._old(self._configurations.get(name), FIXED_MS)]
                ),
                *(self._read_version(ref) for ref in refs if self._old(self._versions.get(ref), _lasting_ms(ref))),
            ]
        )
        self._configurations = {name: kept for name, kept in self._configurations.items() if name in names}
        self._versions = {ref: kept for ref, kept in self._versions.items() if ref in refs}
        found = {each.name: self._launch(each) for each in groups}
        await self._read_types({name for each in found.values() for name in each.types})
        return found

    def _launch(self, group: GroupAnswer) -> Launch:
        if group.launch_configuration_name:
            kept = self._configurations.get(group.launch_configuration_name)
            configuration = kept.answer if kept and isinstance(kept.answer, LaunchConfigurationAnswer) else None
            return launch_by_configuration(group, configuration, kept.why_not if kept else "")
        ref = template_ref(group)
        found = self._versions.get(ref) if ref else None
        version = found.answer if found and isinstance(found.answer, TemplateVersionAnswer) else None
        return launch_by_template(group, version, found.why_not if found else "")

    def _now_ms(self) -> int:
        return self._aws.clock.monotonic_ms()

    def _old(self, kept: _Kept | None, lasting_ms: int) -> bool:
        if kept is not None and kept.answer is None:
            lasting_ms = MOVING_MS
        return kept is None or self._now_ms() - kept.at_ms >= lasting_ms

    # Launch configurations

    async def _read_configurations(self, names: Sequence[str]) -> None:
        parts = [names[at : at + CONFIGURATIONS_PER_CALL] for at in range(0, len(names), CONFIGURATIONS_PER_CALL)]
        for part in parts:
            self._configurations.update(await self._configurations_of(part))

    async def _configurations_of(self, names: Sequence[str]) -> dict[str, _Kept]:
        def ask(clients: Clients) -> list[object]:
            with self._aws.calling(DESCRIBE_CONFIGURATIONS):
                return items(
                    clients.autoscaling.describe_launch_configurations(LaunchConfigurationNames=list(names)),
                    "LaunchConfigurations",
                )

        try:
            if not self._aws.rights.may(DESCRIBE_CONFIGURATIONS):
                raise CloudDenied("refused lately", action=DESCRIBE_CONFIGURATIONS)
            found = _by(
                await self._aws.run(ask), LaunchConfigurationAnswer, lambda each: each.launch_configuration_name
            )
        except CloudError as error:
            return {
                name: self._failed(self._configurations.get(name), f"launch configuration {name}", error)
                for name in names
            }
        gone = "launch configuration {} does not exist any more: give its group another one"
        return {name: _Kept(at_ms=self._now_ms(), answer=found.get(name), why_not=gone.format(name)) for name in names}

    # Launch templates

    async def _read_version(self, ref: TemplateRef) -> None:
        def ask(clients: Clients) -> list[object]:
            versions = [ref.version or "$Default"]
            with self._aws.calling(DESCRIBE_VERSIONS):
                if ref.launch_template_id:
                    page = clients.ec2.describe_launch_template_versions(
                        LaunchTemplateId=ref.launch_template_id, Versions=versions
                    )
                else:
                    page = clients.ec2.describe_launch_template_versions(
                        LaunchTemplateName=ref.launch_template_name, Versions=versions
                    )
                return items(page, "LaunchTemplateVersions")

        try:
            if not self._aws.rights.may(DESCRIBE_VERSIONS):
                raise CloudDenied("refused lately", action=DESCRIBE_VERSIONS)
            found = await self._aws.run(ask)
            answer = read(found[0], TemplateVersionAnswer) if found else None
            why_not = f"{ref_text(ref)} does not exist: give the group another one"
            self._versions[ref] = _Kept(at_ms=self._now_ms(), answer=answer, why_not=why_not)
        except CloudError as error:
            self._versions[ref] = self._failed(self._versions.get(ref), ref_text(ref), error)
        except msgspec.ValidationError as error:
            self._versions[ref] = _Kept(
                at_ms=self._now_ms(), answer=None, why_not=f"{ref_text(ref)} is not understood: {error}"
            )

    def _failed(self, before: _Kept | None, what: str, error: CloudError) -> _Kept:
        """What stays after a failed call: the answer from before, unless AWS says that there is none; asked for again soon."""
        answer = before.answer if before and not isinstance(error, CloudRejected) else None
        refused = error.action if isinstance(error, CloudDenied) else ""
        why_not = f"{what} cannot be read: " + (f"allow {refused}" if refused else str(error))
        return _Kept(at_ms=self._now_ms(), answer=answer, why_not=why_not)

    # Instance types

    async def _read_types(self, names: Iterable[str]) -> None:
        """Ask EC2 for types that the bundled table lacks, where that is allowed."""
        now_ms = self._now_ms()
        wanted = sorted(
            name
            for name in names
            if self.type_of(name) is None and now_ms - self._types_ms.get(name, -FIXED_MS) >= FIXED_MS
        )[:TYPES_PER_CALL]
        if not wanted or self._static_types or not self._aws.rights.may(DESCRIBE_TYPES):
            return

        def ask(clients: Clients) -> list[object]:
            with self._aws.calling(DESCRIBE_TYPES):
                # A filter, since one unknown name among InstanceTypes fails the whole call.
                page = clients.ec2.describe_instance_types(Filters=[{"Name": "instance-type", "Values": wanted}])
                return items(page, "InstanceTypes")

        try:
            found = _by(await self._aws.run(ask), InstanceTypeAnswer, lambda each: each.instance_type)
        except CloudError:
            return  # refused: remembered; failed: the next look asks again
        self._types_ms |= dict.fromkeys(wanted, now_ms)
        self._types |= {name: from_answer(each) for name, each in found.items()}


def _lasting_ms(ref: TemplateRef) -> int:
    return FIXED_MS if ref.version.isdecimal() else MOVING_MS


def _by(answers: Iterable[object], kind: type[A], name_of: Callable[[A], str]) -> dict[str, A]:
    """The answers by name, without those that are not understood."""
    found: dict[str, A] = {}
    for answer in answers:
        try:
            each = read(answer, kind)
        except msgspec.ValidationError:
            continue  # its group says that it could not be read
        found[name_of(each)] = each
    return found
