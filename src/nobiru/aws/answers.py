"""AWS's answers as Structs, with only the fields that nobiru reads; `read` checks one against its Struct.

Unknown fields are skipped; a field of the wrong shape spoils the one object that holds it.  It refuses to interpret.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar

import msgspec
from msgspec import Struct


class Answer(Struct, frozen=True, kw_only=True, rename="pascal"):
    """A part of an answer: PascalCase on the wire, absent fields take their defaults."""


A = TypeVar("A", bound=Answer)


def read(answer: object, kind: type[A]) -> A:
    """The answer as its Struct.

    Raises:  msgspec.ValidationError, which says what is wrong where; callers keep it to the one object.
    """
    return msgspec.convert(answer, kind, strict=False)


# Auto Scaling


class TagAnswer(Answer, frozen=True, kw_only=True):
    key: str
    value: str = ""


class TemplateRef(Answer, frozen=True, kw_only=True):
    launch_template_id: str = ""
    launch_template_name: str = ""
    version: str = ""  # "$Latest", "$Default", a number; "" means "$Default"


class InstanceAnswer(Answer, frozen=True, kw_only=True):
    instance_id: str
    instance_type: str = ""
    availability_zone: str
    lifecycle_state: str
    health_status: str = "Healthy"
    launch_template: TemplateRef = TemplateRef()
    launch_configuration_name: str = ""
    protected_from_scale_in: bool = False


class Range(Answer, frozen=True, kw_only=True):
    min: float | None = None
    max: float | None = None


class RequirementsAnswer(Answer, frozen=True, kw_only=True):
    """InstanceRequirements: which instance types are good enough."""

    v_cpu_count: Range = Range()
    memory_mi_b: Range = Range()
    accelerator_count: Range = Range()
    cpu_manufacturers: tuple[str, ...] = ()
    allowed_instance_types: tuple[str, ...] = ()
    excluded_instance_types: tuple[str, ...] = ()
    bare_metal: str = "excluded"
    burstable_performance: str = "excluded"


class OverrideAnswer(Answer, frozen=True, kw_only=True):
    instance_type: str = ""
    weighted_capacity: str = ""
    instance_requirements: RequirementsAnswer | None = None


class MixedTemplate(Answer, frozen=True, kw_only=True):
    launch_template_specification: TemplateRef = TemplateRef()
    overrides: tuple[OverrideAnswer, ...] = ()


class MixedPolicy(Answer, frozen=True, kw_only=True):
    launch_template: MixedTemplate = MixedTemplate()


class SuspendedProcess(Answer, frozen=True, kw_only=True):
    process_name: str


class GroupAnswer(Answer, frozen=True, kw_only=True):
    """One Auto Scaling Group, as autoscaling:DescribeAutoScalingGroups gives it."""

    auto_scaling_group_name: str
    min_size: int
    max_size: int
    desired_capacity: int
    availability_zones: tuple[str, ...] = ()
    instances: tuple[InstanceAnswer, ...] = ()
    launch_configuration_name: str = ""
    launch_template: TemplateRef | None = None
    mixed_instances_policy: MixedPolicy | None = None
    suspended_processes: tuple[SuspendedProcess, ...] = ()
    status: str = ""  # set only while the group is being deleted
    tags: tuple[TagAnswer, ...] = ()

    @property
    def name(self) -> str:
        return self.auto_scaling_group_name

    @property
    def tag_table(self) -> dict[str, str]:
        return {tag.key: tag.value for tag in self.tags}


class ActivityAnswer(Answer, frozen=True, kw_only=True):
    activity_id: str
    status_code: str
    status_message: str = ""
    cause: str = ""
    start_time: datetime
    progress: int = 0


class EbsAnswer(Answer, frozen=True, kw_only=True):
    volume_size: int | None = None


class BlockDevice(Answer, frozen=True, kw_only=True):
    device_name: str = ""
    ebs: EbsAnswer | None = None


class LaunchConfigurationAnswer(Answer, frozen=True, kw_only=True):
    launch_configuration_name: str
    instance_type: str = ""
    image_id: str = ""
    block_device_mappings: tuple[BlockDevice, ...] = ()


# EC2


class TemplateData(Answer, frozen=True, kw_only=True):
    instance_type: str = ""
    image_id: str = ""
    block_device_mappings: tuple[BlockDevice, ...] = ()
    instance_requirements: RequirementsAnswer | None = None


class TemplateVersionAnswer(Answer, frozen=True, kw_only=True):
    launch_template_id: str
    launch_template_name: str = ""
    version_number: int
    launch_template_data: TemplateData = TemplateData()


class VCpuInfo(Answer, frozen=True, kw_only=True):
    default_v_cpus: int


class MemoryInfo(Answer, frozen=True, kw_only=True):
    size_in_mi_b: int


class ProcessorInfo(Answer, frozen=True, kw_only=True):
    supported_architectures: tuple[str, ...] = ()


class Gpu(Answer, frozen=True, kw_only=True):
    name: str = ""
    manufacturer: str = ""
    count: int = 0
    logical_gpu_count: int = 0  # parts of a GPU count as one each


class GpuInfo(Answer, frozen=True, kw_only=True):
    gpus: tuple[Gpu, ...] = ()


class NeuronCores(Answer, frozen=True, kw_only=True):
    count: int = 0


class NeuronDevice(Answer, frozen=True, kw_only=True):
    count: int = 0
    core_info: NeuronCores = NeuronCores()


class NeuronInfo(Answer, frozen=True, kw_only=True):
    neuron_devices: tuple[NeuronDevice, ...] = ()


class NetworkCard(Answer, frozen=True, kw_only=True):
    network_card_index: int
    maximum_network_interfaces: int


class NetworkInfo(Answer, frozen=True, kw_only=True):
    maximum_network_interfaces: int
    ipv4_addresses_per_interface: int
    default_network_card_index: int = 0
    network_cards: tuple[NetworkCard, ...] = ()


class InstanceTypeAnswer(Answer, frozen=True, kw_only=True):
    """One type, as ec2:DescribeInstanceTypes gives it."""

    instance_type: str
    v_cpu_info: VCpuInfo
    memory_info: MemoryInfo
    processor_info: ProcessorInfo = ProcessorInfo()
    gpu_info: GpuInfo = GpuInfo()
    neuron_info: NeuronInfo = NeuronInfo()
    network_info: NetworkInfo


def items(page: Mapping[str, object], key: str) -> list[object]:
    """The list under `key` of an answer; empty where there is none."""
    found = page.get(key)
    return list(found) if isinstance(found, list | tuple) else []
