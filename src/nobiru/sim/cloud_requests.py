"""What requests of the Auto Scaling API say, in the members that the simulation looks at; all others are ignored.

It refuses to know: what the requests do.
Source: AWS "Amazon EC2 Auto Scaling API Reference", Data Types and each action's Request Parameters.
"""

from typing import Any

from msgspec import UNSET, Struct, UnsetType, field


class TemplateSpec(Struct, frozen=True, kw_only=True, rename="pascal"):
    launch_template_id: str = ""
    launch_template_name: str = ""
    version: str = "$Default"


class Override(Struct, frozen=True, kw_only=True, rename="pascal"):
    instance_type: str = ""


class MixedTemplate(Struct, frozen=True, kw_only=True, rename="pascal"):
    launch_template_specification: TemplateSpec
    overrides: list[Override] = []


class Distribution(Struct, frozen=True, kw_only=True, rename="pascal"):
    on_demand_base_capacity: int = 0
    on_demand_percentage_above_base_capacity: int = 100


class MixedPolicy(Struct, frozen=True, kw_only=True, rename="pascal"):
    launch_template: MixedTemplate
    instances_distribution: Distribution = Distribution()


class TagSpec(Struct, frozen=True, kw_only=True, rename="pascal"):
    key: str
    value: str = ""
    propagate_at_launch: bool = False
    resource_id: str = ""


class GroupRequest(Struct, frozen=True, kw_only=True, rename="pascal"):
    """CreateAutoScalingGroup and UpdateAutoScalingGroup."""

    auto_scaling_group_name: str
    min_size: int | UnsetType = UNSET
    max_size: int | UnsetType = UNSET
    desired_capacity: int | UnsetType = UNSET
    availability_zones: list[str] = []
    vpc_zone_identifier: str = field(default="", name="VPCZoneIdentifier")
    launch_configuration_name: str = ""
    launch_template: TemplateSpec | None = None
    mixed_instances_policy: dict[str, Any] | None = None
    new_instances_protected_from_scale_in: bool | UnsetType = UNSET
    tags: list[TagSpec] = []


class NamedRequest(Struct, frozen=True, kw_only=True, rename="pascal"):
    """The actions on one group by its name."""

    auto_scaling_group_name: str
    desired_capacity: int = 0
    force_delete: bool = False
    scaling_processes: list[str] = []
    instance_ids: list[str] = []
    protected_from_scale_in: bool = False


class TerminateRequest(Struct, frozen=True, kw_only=True, rename="pascal"):
    instance_id: str
    should_decrement_desired_capacity: bool


class Filter(Struct, frozen=True, kw_only=True, rename="pascal"):
    name: str
    values: list[str] = []


class ListRequest(Struct, frozen=True, kw_only=True, rename="pascal"):
    """The Describe actions."""

    auto_scaling_group_name: str = ""
    auto_scaling_group_names: list[str] = []
    instance_ids: list[str] = []
    activity_ids: list[str] = []
    filters: list[Filter] = []
    max_records: int = 0  # 0: not said
    next_token: str = ""


class TagsRequest(Struct, frozen=True, kw_only=True, rename="pascal"):
    tags: list[TagSpec]
