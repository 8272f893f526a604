"""The values of the simulated Auto Scaling service: groups, instances, activities, faults, and the State that holds them.

It refuses to know: how a state changes (`sim.asg`), AWS's sentences (`sim.asg_words`), any wire.
Invariant: every value is frozen, and no dict inside one is ever changed in place; a new state shares what did not change.
"""

import hashlib
from typing import Literal

from msgspec import Struct

Lifecycle = Literal["Pending", "InService", "Terminating", "Terminated"]
LIVE: frozenset[str] = frozenset({"Pending", "InService"})  # what counts towards desired capacity

# AWS: "Suspend and resume Amazon EC2 Auto Scaling processes".
PROCESSES = (
    "Launch", "Terminate", "AddToLoadBalancer", "AlarmNotification", "AZRebalance",
    "HealthCheck", "InstanceRefresh", "ReplaceUnhealthy", "ScheduledActions",
)  # fmt: skip


class Timing(Struct, frozen=True, kw_only=True):
    """How long the cloud takes; short by default, so that tests on the real clock stay short."""

    launch_ms: int = 200  # from the wish for an instance until it is listed as Pending
    pending_ms: int = 300  # from Pending to InService
    boot_ms: int = 1_000  # from Pending until the machine's operating system, and so its kubelet, runs
    terminating_ms: int = 500  # from Terminating until the machine is off and unlisted
    retry_ms: int = 2_000  # from a failed launch to the next try

    def __post_init__(self) -> None:
        if self.retry_ms < 1 or min(self.launch_ms, self.pending_ms, self.boot_ms, self.terminating_ms) < 0:
            raise ValueError(f"times are not negative, and retry_ms is at least 1: {self}")


class LaunchFault(Struct, frozen=True, kw_only=True):
    """Launches that fail; an empty field matches all.  `available` launches still succeed before the fault bites."""

    group: str = ""
    zone: str = ""
    instance_type: str = ""
    kind: Literal["capacity", "quota", "image", "spot"] = "capacity"
    available: int = 0
    message: str = ""  # in place of AWS's sentence for that kind

    def hits(self, group: str, zone: str, instance_type: str) -> bool:
        """Whether a launch of that kind meets this fault."""
        return self.group in ("", group) and self.zone in ("", zone) and self.instance_type in ("", instance_type)


class BootFault(Struct, frozen=True, kw_only=True):
    """Machines that boot slowly, or never (`boot_ms` None); an empty field matches all, `count` None has no end."""

    group: str = ""
    zone: str = ""
    instance_type: str = ""
    boot_ms: int | None = None
    pending_ms: int | None = None  # None: as long as usual
    count: int | None = None

    def hits(self, group: str, zone: str, instance_type: str) -> bool:
        """Whether such a machine meets this fault."""
        return self.group in ("", group) and self.zone in ("", zone) and self.instance_type in ("", instance_type)


FaultKind = Literal["throttle", "deny", "unavailable", "expired", "lost_reply", "slow"]


class CallFault(Struct, frozen=True, kw_only=True):
    """API calls that go wrong: the next `calls` of `action` (None: all) for `group`; an empty field matches all.

    `lost_reply` carries the call out and then drops the connection; `slow` only waits `delay_ms`, which every kind may do.
    """

    action: str = ""  # "SetDesiredCapacity"
    group: str = ""
    kind: FaultKind = "throttle"
    calls: int | None = 1
    delay_ms: int = 0


class Faults(Struct, frozen=True, kw_only=True):
    """All that is wrong with the cloud at the moment; the first fault of a tuple that matches counts."""

    launches: tuple[LaunchFault, ...] = ()
    boots: tuple[BootFault, ...] = ()
    calls: tuple[CallFault, ...] = ()
    describe_lag_ms: int = 0  # Describe calls show the groups as they were this long ago


class Machine(Struct, frozen=True, kw_only=True):
    """What a launch configuration, or one version of a launch template, says about the machines to be."""

    instance_type: str
    image_id: str = ""


class Template(Struct, frozen=True, kw_only=True):
    """A launch template; version n is `versions[n - 1]`, None where it was deleted."""

    id: str
    name: str
    default: int = 1
    versions: tuple[Machine | None, ...] = ()


class Catalogue(Struct, frozen=True, kw_only=True):
    """What groups may launch from."""

    configurations: dict[str, Machine] = {}
    templates: dict[str, Template] = {}  # by id


class FromConfiguration(Struct, frozen=True, kw_only=True, tag="configuration"):
    """Launch from a launch configuration."""

    name: str


class FromTemplate(Struct, frozen=True, kw_only=True, tag="template"):
    """Launch from a launch template; `version` is "$Latest", "$Default" or a number."""

    id: str
    name: str
    version: str = "$Default"


class FromMixed(Struct, frozen=True, kw_only=True, tag="mixed"):
    """Launch by a mixed-instances policy: the first override that has capacity (strategy "prioritized"; weights ignored)."""

    template: FromTemplate
    overrides: tuple[str, ...] = ()  # instance types; "" stands for the template's own
    on_demand_base: int = 0
    on_demand_percent: int = 100  # of what is above the base
    described: str = ""  # the policy as its author wrote it, JSON, for Describe to give back


Source = FromConfiguration | FromTemplate | FromMixed


class Tag(Struct, frozen=True, kw_only=True):
    """A tag of a group."""

    key: str
    value: str
    propagate: bool = True  # PropagateAtLaunch


class Instance(Struct, frozen=True, kw_only=True):
    """One machine of a group."""

    id: str
    group: str
    zone: str
    instance_type: str
    image_id: str
    lifecycle: Lifecycle
    launch_ms: int
    boot_after_ms: int | None  # from launch_ms until it runs; None: never
    booted: bool = False
    private_ip: str
    private_dns_name: str
    configuration: str = ""  # name of the launch configuration it came from, else:
    template_id: str = ""
    template_name: str = ""
    template_version: int = 0
    spot: bool = False
    protected: bool = False  # from scale-in
    tags: dict[str, str] = {}
    activity: str = ""  # id of the activity under way on it
    ended_ms: int = 0
    ended_by: Literal["", "request", "group", "health"] = ""


class Activity(Struct, frozen=True, kw_only=True):
    """One entry of a group's scaling history."""

    id: str
    group: str
    status: Literal["InProgress", "Successful", "Failed", "Cancelled"]
    description: str
    cause: str
    message: str = ""
    started_ms: int
    ended_ms: int | None = None
    progress: int = 0
    zone: str = ""


class Request(Struct, frozen=True, kw_only=True):
    """Instances that the group means to launch at `due_ms`."""

    count: int
    due_ms: int
    cause: str


TimerKind = Literal["serve", "boot", "end"]


class Group(Struct, frozen=True, kw_only=True):
    """One Auto Scaling Group with all that happens in it.

    Order: instances and activities oldest first; timers by time.
    """

    name: str
    uid: str  # makes ids of instances and activities; a group created again has another
    created_ms: int
    min_size: int
    max_size: int
    desired: int
    zones: tuple[str, ...]
    source: Source
    subnets: str = ""  # VPCZoneIdentifier
    tags: tuple[Tag, ...] = ()
    suspended: frozenset[str] = frozenset()
    protect_new: bool = False  # NewInstancesProtectedFromScaleIn
    deleting: bool = False
    instances: dict[str, Instance] = {}
    requests: tuple[Request, ...] = ()
    timers: tuple[tuple[int, TimerKind, str], ...] = ()
    activities: dict[str, Activity] = {}
    serial: int = 0  # activities so far
    gone: tuple[Instance, ...] = ()  # Terminated

    def live(self) -> list[Instance]:
        """Instances that count towards desired capacity."""
        return [instance for instance in self.instances.values() if instance.lifecycle in LIVE]

    def next_ms(self) -> int | None:
        """When something happens in this group next, if nobody calls."""
        due = [request.due_ms for request in self.requests]
        if self.timers:
            due.append(self.timers[0][0])
        return min(due, default=None)


class Call(Struct, frozen=True, kw_only=True):
    """One API call that changed something, or was refused (`error` is then AWS's code)."""

    action: str
    group: str
    args: dict[str, str | int | bool]
    at_ms: int
    who: str
    desired_before: int = 0
    desired_after: int = 0
    error: str = ""


class Refused(Struct, frozen=True, kw_only=True):
    """An API call that AWS turns down."""

    code: str
    message: str
    status: int = 400


class State(Struct, frozen=True, kw_only=True):
    """The Auto Scaling service of one region, whole."""

    region: str
    seed: str = ""  # makes ids; equal seeds and calls give equal states
    now_ms: int = 0
    timing: Timing = Timing()
    faults: Faults = Faults()
    catalogue: Catalogue = Catalogue()
    groups: dict[str, Group] = {}
    launched: int = 0  # instances ever, for private addresses
    revision: int = 1  # rises whenever an instance changes
    calls: tuple[Call, ...] = ()
    refused: tuple[Call, ...] = ()
    history: tuple[tuple[int, dict[str, Group]], ...] = ()  # kept only while Describe lags


def hex_id(uid: str, kind: str, number: int, digits: int) -> str:
    """A hexadecimal id that is the same for the same arguments, and as good as unique."""
    return hashlib.blake2b(f"{uid}/{kind}/{number}".encode(), digest_size=16).hexdigest()[:digits]


def private_name(region: str, address: str) -> str:
    """The private DNS name of an address.  Source: AWS "Amazon EC2 instance hostname types", IP name."""
    host = f"ip-{address.replace('.', '-')}"
    return f"{host}.ec2.internal" if region == "us-east-1" else f"{host}.{region}.compute.internal"
