"""What a new machine of an Auto Scaling Group would be, from AWS's own answers and the group's tags.

It refuses to know: the cluster's nodes and pods.  With several instance types the smallest of each resource counts.
Invariant: pure; a group whose template cannot be told has one line that says why and what to do.
Source: cluster-autoscaler 1.36 cloudprovider/aws (order of sources); spec section 4.5.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from nobiru.aws.allocatable import Family, allocatable, capacity, least
from nobiru.aws.instance_types import InstanceType
from nobiru.aws.tags import read_tags
from nobiru.kernel.cloud import NodeTemplate

Lookup = Callable[[str], InstanceType | None]
Answer = Mapping[str, Any]


class Source(Struct, frozen=True, kw_only=True):
    """Where a group's machines come from.

    `problem` is set where nothing names a type; `needs` is the IAM action that would tell.
    """

    types: tuple[str, ...] = ()
    image: str = ""
    version: str = ""
    text: str = ""
    problem: str = ""
    needs: str = ""


class TemplateRef(Struct, frozen=True, kw_only=True):
    """A launch template and the version asked for."""

    id: str
    name: str
    version: str

    @property
    def label(self) -> str:
        return self.name or self.id


def launch_template_ref(group: Answer) -> TemplateRef | None:
    """The launch template that the group, or its mixed-instances policy, names."""
    spec = group.get("LaunchTemplate")
    policy = group.get("MixedInstancesPolicy")
    if not spec and policy:
        spec = (policy.get("LaunchTemplate") or {}).get("LaunchTemplateSpecification")
    if not spec:
        return None
    return TemplateRef(
        id=spec.get("LaunchTemplateId", ""),
        name=spec.get("LaunchTemplateName", ""),
        version=spec.get("Version") or "$Default",
    )


def override_types(group: Answer) -> tuple[tuple[str, ...], bool]:
    """(types that the mixed-instances policy names, whether it asks by attributes instead)."""
    policy = group.get("MixedInstancesPolicy") or {}
    overrides = (policy.get("LaunchTemplate") or {}).get("Overrides") or []
    types = tuple(each["InstanceType"] for each in overrides if each.get("InstanceType"))
    return types, any(each.get("InstanceRequirements") for each in overrides)


def find_source(
    group: Answer,
    configurations: Mapping[str, Answer],
    versions: Mapping[TemplateRef, Answer],
    denied: frozenset[str],
) -> Source:
    """Where the group's machines come from, by what was read and what may be read."""
    name = group.get("LaunchConfigurationName")
    if name:
        return _from_configuration(name, configurations, group, denied)
    ref = launch_template_ref(group)
    types, by_attributes = override_types(group)
    listed = _listed_types(group)
    version = versions.get(ref) if ref else None
    data = (version or {}).get("LaunchTemplateData") or {}
    text = f"launch template {ref.label} version {ref.version}" if ref else "its instances"
    number = str((version or {}).get("VersionNumber", ref.version if ref else ""))
    chosen = types or ((data["InstanceType"],) if data.get("InstanceType") else ()) or listed
    if chosen:
        return Source(types=chosen, image=data.get("ImageId", ""), version=number, text=text)
    action = "ec2:DescribeLaunchTemplateVersions"
    if by_attributes or data.get("InstanceRequirements"):
        action = "ec2:GetInstanceTypesFromInstanceRequirements"
        return Source(
            text=text,
            needs=action,
            problem=f"{text} asks for attributes, not types: name instance types in its overrides",
        )
    if ref and version is None:
        why = f"allow {action}" if action in denied else "it was not found"
        return Source(
            text=text, needs=action, problem=f"{text} cannot be read ({why}), and the group has no instances yet"
        )
    return Source(text=text, problem="the group names no instance type: give its launch template one")


def _from_configuration(
    name: str, configurations: Mapping[str, Answer], group: Answer, denied: frozenset[str]
) -> Source:
    found = configurations.get(name)
    text = f"launch configuration {name}"
    if found is not None:
        return Source(types=(found["InstanceType"],), image=found.get("ImageId", ""), version=name, text=text)
    listed = _listed_types(group)
    if listed:
        return Source(types=listed, version=name, text=f"its instances ({text} cannot be read)")
    action = "autoscaling:DescribeLaunchConfigurations"
    why = f"allow {action}" if action in denied else "it was not found"
    return Source(text=text, needs=action, problem=f"{text} cannot be read ({why}), and the group has no instances yet")


def _listed_types(group: Answer) -> tuple[str, ...]:
    """The types of the group's instances."""
    return tuple(sorted({each["InstanceType"] for each in group.get("Instances") or [] if each.get("InstanceType")}))


def make_template(
    *, source: Source, tags: Mapping[str, str], zones: Sequence[str], region: str, lookup: Lookup, family: Family
) -> tuple[NodeTemplate | None, str]:
    """(the template, "") or (None, the line that says why there is none)."""
    if source.problem:
        return None, source.problem
    kinds = [kind for name in source.types if (kind := lookup(name)) is not None]
    unknown = sorted(name for name in source.types if lookup(name) is None)
    facts = read_tags(tags)
    if not kinds:
        names = ", ".join(unknown)
        return None, f"instance type {names} is unknown: allow ec2:DescribeInstanceTypes, or update nobiru's table"
    warnings = [*facts.warnings, *(f"instance type {name} is unknown and left out" for name in unknown)]
    single = kinds[0].name if len(kinds) == 1 and not unknown else ""
    labels = {**_generic_labels(kinds, single, tuple(zones), region), **facts.labels}
    return (
        NodeTemplate(
            instance_type=single,
            zones=tuple(sorted(zones)),
            labels=labels,
            taints=facts.taints,
            capacity={**least([capacity(kind, family) for kind in kinds]), **facts.resources},
            allocatable={**least([allocatable(kind, family) for kind in kinds]), **facts.resources},
            source=source.text,
            identity=_identity(source, tags),
            warnings=tuple(warnings),
        ),
        "",
    )


def _generic_labels(kinds: Sequence[InstanceType], single: str, zones: tuple[str, ...], region: str) -> dict[str, str]:
    labels = {"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux"}
    archs = {kind.arch for kind in kinds}
    if len(archs) == 1:
        labels |= dict.fromkeys(("kubernetes.io/arch", "beta.kubernetes.io/arch"), archs.pop())
    if single:
        labels |= dict.fromkeys(("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"), single)
    labels |= dict.fromkeys(("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"), region)
    if len(zones) == 1:
        keys = (
            "topology.kubernetes.io/zone",
            "failure-domain.beta.kubernetes.io/zone",
            "topology.ebs.csi.aws.com/zone",
        )
        labels |= dict.fromkeys(keys, zones[0])
    return labels


def _identity(source: Source, tags: Mapping[str, str]) -> str:
    """A text that changes when a new machine would be different."""
    said = sorted(
        (key, value) for key, value in tags.items() if key.startswith("k8s.io/cluster-autoscaler/node-template/")
    )
    return hashlib.sha256(repr((source.types, source.image, source.version, said)).encode()).hexdigest()[:16]
