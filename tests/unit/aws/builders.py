"""AWS's answers as tests need them: only what a row is about has to be said."""

from collections.abc import Mapping, Sequence

from nobiru.aws.answers import GroupAnswer, LaunchConfigurationAnswer, TemplateVersionAnswer, read

Json = dict[str, object]
REGION = "ap-northeast-1"
ZONE_A, ZONE_C = f"{REGION}a", f"{REGION}c"
NODE_TEMPLATE = "k8s.io/cluster-autoscaler/node-template/"


def machine(id_: str = "i-1", *, state: str = "InService", type_: str = "m5.large", zone: str = ZONE_A) -> Json:
    """One entry of a group's Instances."""
    return {
        "InstanceId": id_,
        "InstanceType": type_,
        "AvailabilityZone": zone,
        "LifecycleState": state,
        "HealthStatus": "Healthy",
        "ProtectedFromScaleIn": False,
    }


def machines(count: int, state: str = "InService") -> list[Json]:
    return [machine(f"i-{state.lower()}-{number}", state=state) for number in range(count)]


def group_json(
    name: str = "web",
    *,
    sizes: tuple[int, int, int] = (0, 1, 6),
    zones: Sequence[str] = (ZONE_A,),
    instances: Sequence[Json] = (),
    tags: Mapping[str, str] | None = None,
    suspended: Sequence[str] = (),
    **more: object,
) -> Json:
    """An Auto Scaling Group with (min, desired, max); a launch configuration "lc" unless `more` says otherwise."""
    launch = {} if {"LaunchTemplate", "MixedInstancesPolicy"} & more.keys() else {"LaunchConfigurationName": "lc"}
    return {
        "AutoScalingGroupName": name,
        "MinSize": sizes[0],
        "DesiredCapacity": sizes[1],
        "MaxSize": sizes[2],
        "AvailabilityZones": list(zones),
        "Instances": list(instances),
        "Tags": [
            {"Key": key, "Value": value, "PropagateAtLaunch": True, "ResourceId": name, "ResourceType": "x"}
            for key, value in (tags or {}).items()
        ],
        "SuspendedProcesses": [{"ProcessName": each, "SuspensionReason": "by a user"} for each in suspended],
        **launch,
        **more,
    }


def group(name: str = "web", **more: object) -> GroupAnswer:
    return read(group_json(name, **more), GroupAnswer)  # type: ignore[arg-type]


def configuration(type_: str = "m5.large", *, root_gib: int | None = None) -> LaunchConfigurationAnswer:
    devices = [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": root_gib}}] if root_gib else []
    answer = {
        "LaunchConfigurationName": "lc",
        "InstanceType": type_,
        "ImageId": "ami-1",
        "BlockDeviceMappings": devices,
    }
    return read(answer, LaunchConfigurationAnswer)


def version(number: int = 3, type_: str = "m5.large", image: str = "ami-1", **data: object) -> TemplateVersionAnswer:
    """Version `number` of launch template lt-1."""
    content = {"ImageId": image, **({"InstanceType": type_} if type_ else {}), **data}
    answer = {
        "LaunchTemplateId": "lt-1",
        "LaunchTemplateName": "workers",
        "VersionNumber": number,
        "LaunchTemplateData": content,
    }
    return read(answer, TemplateVersionAnswer)


LATEST = {"LaunchTemplateId": "lt-1", "LaunchTemplateName": "workers", "Version": "$Latest"}


def mixed(*types: str, **more: object) -> Json:
    """A mixed-instances policy over these types."""
    overrides: list[Json] = [{"InstanceType": each, **more} for each in types]
    return {"LaunchTemplate": {"LaunchTemplateSpecification": LATEST, "Overrides": overrides}}


def attributes(**wanted: object) -> Json:
    """A mixed-instances policy over attributes."""
    return {"LaunchTemplate": {"LaunchTemplateSpecification": LATEST, "Overrides": [{"InstanceRequirements": wanted}]}}
