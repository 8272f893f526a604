"""What a new machine of an Auto Scaling Group would be, from what AWS says of it and from the group's tags.

`Launch` is how the group starts machines (launch configuration, launch template, mixed-instances policy, or only the machines it has);
`node_template` turns it into the node that joins the cluster.  With several instance types the least of each resource counts.
It refuses to know: the cluster's nodes and pods, how AWS is asked.  Invariant: pure; a group without a template has one line that says
why and what to do.
Source: cluster-autoscaler 1.36 cloudprovider/aws (order of sources); differs: its template is the first type in the first zone only.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

from msgspec import Struct

from nobiru.aws.allocatable import MIB, PODS_PLAIN, Amounts, Family, estimate, least
from nobiru.aws.answers import (
    BlockDevice,
    GroupAnswer,
    LaunchConfigurationAnswer,
    OverrideAnswer,
    RequirementsAnswer,
    TemplateRef,
    TemplateVersionAnswer,
)
from nobiru.aws.instance_types import InstanceType, bundled_types
from nobiru.aws.tags import EKS_TAGS, identity_tags, read_tags
from nobiru.kernel.cloud import NodeTemplate

Lookup = Callable[[str], InstanceType | None]

LABEL_TAG = "k8s.io/cluster-autoscaler/node-template/label/"
TYPE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
ARCH_LABELS = ("kubernetes.io/arch", "beta.kubernetes.io/arch")
_ROOT_DEVICES = ("/dev/xvda", "/dev/sda1")  # EC2 user guide, "Device names": root devices of Linux images


class Launch(Struct, frozen=True, kw_only=True):
    """How a group starts machines.

    `types` is empty where nothing names one; `problem` then says why and what to do.
    """

    types: tuple[str, ...] = ()
    by_attributes: bool = (
        False  # the types are all that fit the group's requirements: the table's, not AWS's own choice
    )
    image: str = ""
    version: str = ""  # changes whenever a new machine would be different
    root_gib: int | None = None
    source: str = ""  # for people
    problem: str = ""


def template_ref(group: GroupAnswer) -> TemplateRef | None:
    """The launch template that the group, or its mixed-instances policy, names."""
    ref = group.launch_template
    if ref is None and group.mixed_instances_policy is not None:
        ref = group.mixed_instances_policy.launch_template.launch_template_specification
    if ref is None or not (ref.launch_template_id or ref.launch_template_name):
        return None
    return ref


def ref_text(ref: TemplateRef) -> str:
    """The launch template for people."""
    return f"launch template {ref.launch_template_name or ref.launch_template_id} version {ref.version or '$Default'}"


def overrides_of(group: GroupAnswer) -> tuple[OverrideAnswer, ...]:
    """The mixed-instances policy's overrides."""
    policy = group.mixed_instances_policy
    return policy.launch_template.overrides if policy is not None else ()


def weights_problem(group: GroupAnswer) -> str:
    """Why the group's capacity is not a number of machines; "" where it is one."""
    weights = {each.weighted_capacity or "1" for each in overrides_of(group)}
    if weights <= {"1"}:
        return ""
    return (
        "its instance types have weights, so its capacity is no number of machines: "
        "take WeightedCapacity out of its mixed-instances policy"
    )


def launch_by_configuration(
    group: GroupAnswer, configuration: LaunchConfigurationAnswer | None, why_unread: str
) -> Launch:
    """The launch of a group with a launch configuration; `why_unread` says why that one was not read."""
    name = group.launch_configuration_name
    source = f"launch configuration {name}"
    if configuration is None or not configuration.instance_type:
        problem = why_unread if configuration is None else f"{source} names no instance type"
        return _launch_unread(group, source, version=name, problem=problem)
    return Launch(
        types=(configuration.instance_type,),
        image=configuration.image_id,
        version=name,
        root_gib=_root_gib(configuration.block_device_mappings),
        source=source,
    )


def launch_by_template(group: GroupAnswer, version: TemplateVersionAnswer | None, why_unread: str) -> Launch:
    """The launch of a group with a launch template, alone or under a mixed-instances policy."""
    ref = template_ref(group)
    if ref is None:
        return _launch_unread(group, "the group", version="", problem="the group has no launch template")
    types = tuple(dict.fromkeys(each.instance_type for each in overrides_of(group) if each.instance_type))
    wanted = next((each.instance_requirements for each in overrides_of(group) if each.instance_requirements), None)
    if version is None:
        source, number = ref_text(ref), f"{ref.launch_template_id or ref.launch_template_name} {ref.version}"
        if not types and wanted is None:
            return _launch_unread(group, source, version=number, problem=why_unread)
        found = types or tuple(matching(wanted))
        return Launch(types=found, by_attributes=not types, version=number, source=f"the overrides of {source}")
    data = version.launch_template_data
    name = version.launch_template_name or version.launch_template_id
    source = f"launch template {name} version {version.version_number}"
    if not types and data.instance_type and wanted is None:
        types = (data.instance_type,)
    wanted = wanted or data.instance_requirements
    found = types or tuple(matching(wanted))
    problem = "" if found else f"{source} names no instance type: give it one, or name types in the group's overrides"
    return Launch(
        types=found,
        by_attributes=bool(found) and not types,
        image=data.image_id,
        version=f"{version.launch_template_id} {version.version_number}",
        root_gib=_root_gib(data.block_device_mappings),
        source=source,
        problem=problem,
    )


def _launch_unread(group: GroupAnswer, source: str, *, version: str, problem: str) -> Launch:
    """The launch as the group's machines show it, or as a label tag names its type, where its configuration is not readable."""
    types = tuple(sorted({each.instance_type for each in group.instances if each.instance_type}))
    if types:
        return Launch(types=types, version=version, source=f"the group's machines ({problem})")
    tags = group.tag_table
    named = next((tags[LABEL_TAG + label] for label in TYPE_LABELS if tags.get(LABEL_TAG + label)), "")
    if named:
        return Launch(types=(named,), version=version, source=f"the group's tags ({problem})")
    return Launch(version=version, source=source, problem=problem)


def _root_gib(devices: Iterable[BlockDevice]) -> int | None:
    sizes = {each.device_name: each.ebs.volume_size for each in devices if each.ebs and each.ebs.volume_size}
    return next((sizes[name] for name in _ROOT_DEVICES if name in sizes), None)


# Attributes instead of types


@lru_cache(maxsize=256)
def matching(wanted: RequirementsAnswer | None) -> tuple[str, ...]:
    """The types of the bundled table that fit the requirements, by name.

    Fewer attributes are looked at than AWS knows, so this may name more types than AWS would start, never fewer of the table's:
    the least of them promises no more than any machine that AWS may choose.
    """
    if wanted is None:
        return ()
    return tuple(sorted(kind.name for kind in bundled_types().values() if _fits(kind, wanted)))


def _fits(kind: InstanceType, wanted: RequirementsAnswer) -> bool:
    vcpu, memory, gpus = wanted.v_cpu_count, wanted.memory_mi_b, wanted.accelerator_count
    accelerators = kind.gpu_count + kind.neuron_count
    makers = {"amazon-web-services"} if kind.arch == "arm64" else {"intel", "amd"}
    return (
        (vcpu.min or 0) <= kind.vcpu <= (vcpu.max or kind.vcpu)
        and (memory.min or 0) <= kind.memory_mib <= (memory.max or kind.memory_mib)
        and (gpus.min or 0) <= accelerators <= (accelerators if gpus.max is None else gpus.max)
        and (not wanted.cpu_manufacturers or bool(makers & set(wanted.cpu_manufacturers)))
        and (not wanted.allowed_instance_types or _named(kind.name, wanted.allowed_instance_types))
        and not _named(kind.name, wanted.excluded_instance_types)
        and _state(".metal" in kind.name, wanted.bare_metal)
        and _state(re.match(r"t\d", kind.name) is not None, wanted.burstable_performance)
        and not kind.name.startswith("mac")
    )


def _named(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _state(has: bool, wanted: str) -> bool:
    """ "excluded", "included" or "required", as AWS words them."""
    return wanted == "included" or has == (wanted == "required")


# The node


def node_template(
    group: GroupAnswer, launch: Launch, lookup: Lookup, *, region: str, family: Family
) -> tuple[NodeTemplate | None, str]:
    """(the template, "") or (None, the line that says why there is none).

    Order:   zones, labels, resources by name.
    """
    tags = group.tag_table
    facts = read_tags(tags)
    kinds = [kind for name in launch.types if (kind := lookup(name)) is not None]
    unknown = sorted(name for name in launch.types if lookup(name) is None)
    told = {"cpu", "memory"} <= facts.resources.keys()
    if not kinds and not told:
        if unknown:
            return None, (
                f"instance type {', '.join(unknown)} is not in nobiru's table: allow ec2:DescribeInstanceTypes, or say its "
                f"size in tags {LABEL_TAG.removesuffix('label/')}resources/cpu and .../memory"
            )
        return None, launch.problem
    if any(key in tags for key in EKS_TAGS):
        family = "eks"
    amounts = _least_of(tuple(kinds), family, launch.root_gib) if kinds else _told_by_tags(facts.resources)
    warnings = [*facts.warnings, *(f"instance type {name} is not in nobiru's table and left out" for name in unknown)]
    types = set(launch.types)
    only = launch.types[0] if len(types) == 1 else ""
    zones = tuple(sorted(group.availability_zones))
    archs = _archs(group, kinds, launch, lookup)
    if len(archs) > 1 and ARCH_LABELS[0] not in facts.labels:
        warnings.append(
            f"its instance types are of several architectures ({', '.join(sorted(archs))}): "
            f"tag {LABEL_TAG}{ARCH_LABELS[0]} can say which its image is for"
        )
    labels = {**_labels(only, archs, zones, region), **facts.labels}
    template = NodeTemplate(
        instance_type=only,
        zones=zones,
        labels=dict(sorted(labels.items())),
        taints=facts.taints,
        capacity={**amounts.capacity, **facts.resources},
        allocatable={**amounts.allocatable, **facts.resources},
        source=launch.source,
        identity=_identity(launch, tags),
        warnings=tuple(warnings),
    )
    return template, ""


@lru_cache(maxsize=256)
def _least_of(kinds: tuple[InstanceType, ...], family: Family, root_gib: int | None) -> Amounts:
    """What any machine of these types surely has."""
    return least(estimate(kind, family, root_gib) for kind in kinds)


def _told_by_tags(resources: Mapping[str, int]) -> Amounts:
    """What tags leave open of a machine whose type is unknown: the pods of the least machine of that size."""
    pods = min(
        (
            kind.eni_pods
            for kind in bundled_types().values()
            if kind.vcpu * 1000 >= resources["cpu"] and kind.memory_mib * MIB >= resources["memory"]
        ),
        default=PODS_PLAIN,
    )
    return Amounts(capacity={"pods": pods}, allocatable={"pods": pods})


def _archs(group: GroupAnswer, kinds: list[InstanceType], launch: Launch, lookup: Lookup) -> set[str]:
    """The architectures that a new machine may have; where only attributes are wanted, the group's machines tell."""
    if launch.by_attributes:
        shown = {kind.arch for each in group.instances if (kind := lookup(each.instance_type)) is not None}
        if shown:
            return shown
    return {kind.arch for kind in kinds}


def _labels(only: str, archs: set[str], zones: tuple[str, ...], region: str) -> dict[str, str]:
    """The labels that kubelet and cloud provider set, in the words of Kubernetes 1.11 and of today."""
    labels = {"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux"}
    labels |= dict.fromkeys(("topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"), region)
    if len(archs) == 1:
        labels |= dict.fromkeys(ARCH_LABELS, next(iter(archs)))
    if only:
        labels |= dict.fromkeys(TYPE_LABELS, only)
    if len(zones) == 1:
        keys = (
            "topology.kubernetes.io/zone",
            "failure-domain.beta.kubernetes.io/zone",
            "topology.ebs.csi.aws.com/zone",
        )
        labels |= dict.fromkeys(keys, zones[0])
    return labels


def _identity(launch: Launch, tags: Mapping[str, str]) -> str:
    """A text that changes when a new machine would be different, and only then."""
    facts = (launch.types if not launch.by_attributes else "attributes", launch.image, launch.version, launch.root_gib)
    return hashlib.sha256(repr((facts, identity_tags(tags))).encode()).hexdigest()[:16]
