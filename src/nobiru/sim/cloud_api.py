"""What the simulated cloud and its clients in tests tell each other beside AWS's API, under /nobiru-sim/.

It refuses to know: HTTP on either side (`sim.cloud_control` serves it, `sim.cloud` asks).
"""

from msgspec import Struct

from nobiru.sim.asg_state import Call, Instance, Lifecycle


class Ready(Struct, frozen=True, kw_only=True):
    """The one line that the server prints once it answers."""

    port: int
    access_key_id: str  # of the user "admin", who may do everything
    secret_access_key: str


class CloudInstance(Struct, frozen=True, kw_only=True):
    """One machine that exists; one that is off is not listed."""

    id: str
    group: str
    zone: str
    instance_type: str
    image_id: str
    private_dns_name: str
    private_ip: str
    state: Lifecycle
    launch_ms: int  # since 1970
    boot_after_ms: int | None  # from launch_ms until it runs; None: never
    ready: bool  # whether its operating system runs: false while it boots, for ever where it never boots, and while it goes
    spot: bool
    tags: dict[str, str]  # the propagated ones, and aws:autoscaling:groupName


class InstanceList(Struct, frozen=True, kw_only=True):
    """All machines at one moment; `revision` rises whenever one appears, changes its state, boots or goes."""

    revision: int
    now_ms: int
    instances: tuple[CloudInstance, ...]


class CallLog(Struct, frozen=True, kw_only=True):
    """Every call that changed something, every one that was refused, and how often each action was called at all."""

    calls: tuple[Call, ...]
    refused: tuple[Call, ...]
    counts: dict[str, int]  # "autoscaling:DescribeAutoScalingGroups" -> calls, refused ones included


class Credentials(Struct, frozen=True, kw_only=True):
    """An IAM user's access key."""

    access_key_id: str
    secret_access_key: str


class NewUser(Struct, frozen=True, kw_only=True):
    """An IAM user to make, with one inline policy."""

    name: str
    policy: str  # JSON


class NewTemplate(Struct, frozen=True, kw_only=True):
    """A launch template to make, or another version of the one of that name."""

    name: str
    instance_type: str
    image_id: str
    make_default: bool = False


class NewConfiguration(Struct, frozen=True, kw_only=True):
    """A launch configuration to make."""

    name: str
    instance_type: str
    image_id: str
    user_data: str = ""


class InstanceId(Struct, frozen=True, kw_only=True):
    """One machine, by its id."""

    instance_id: str


class Problem(Struct, frozen=True, kw_only=True):
    """A request that was turned down."""

    code: str
    message: str


def shown(instance: Instance) -> CloudInstance:
    """The machine as it is told."""
    return CloudInstance(
        id=instance.id, group=instance.group, zone=instance.zone, instance_type=instance.instance_type,
        image_id=instance.image_id, private_dns_name=instance.private_dns_name, private_ip=instance.private_ip,
        state=instance.lifecycle, launch_ms=instance.launch_ms, boot_after_ms=instance.boot_after_ms,
        ready=instance.booted and instance.lifecycle != "Terminating", spot=instance.spot, tags=instance.tags,
    )  # fmt: skip
