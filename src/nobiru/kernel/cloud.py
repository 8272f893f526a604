"""The words of a cloud, without a cloud: groups of machines, what a new machine would be, what exists.

It refuses to know: AWS.  `nobiru.aws` makes these values from AWS's answers, the plan reads them.
"""

from msgspec import Struct

from nobiru.kernel.objects import Taint

GroupName = str


class Instance(Struct, frozen=True, kw_only=True):
    """One machine of a group, as the cloud lists it."""

    id: str
    zone: str
    lifecycle: str  # AWS's LifecycleState: "Pending", "InService", "Terminating:Wait", "Standby" ...
    healthy: bool = True
    instance_type: str = ""
    launch_template_version: str = ""
    protected_from_scale_in: bool = False

    @property
    def provider_id(self) -> str:
        """What the machine's Node carries as spec.providerID."""
        return f"aws:///{self.zone}/{self.id}"

    @property
    def leaving(self) -> bool:
        """Whether the cloud is already taking it away."""
        return self.lifecycle.startswith(("Terminat", "Detach"))


class Activity(Struct, frozen=True, kw_only=True):
    """One entry of a group's scaling history."""

    id: str
    status: str  # AWS's StatusCode: "InProgress", "Successful", "Failed", "Cancelled" ...
    message: str
    cause: str = ""
    started_ms: int
    progress: int = 0


class NodeTemplate(Struct, frozen=True, kw_only=True):
    """What a new node of a group is expected to be.

    Units: amounts as `kernel.quantity.resource_amount` gives them (cpu millicores, memory bytes, others counts).
    """

    instance_type: str
    zones: tuple[str, ...]
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    capacity: dict[str, int]
    allocatable: dict[str, int]
    source: str  # where it comes from, for people: "launch configuration web-3", "launch template lt-1 version 4"
    identity: str  # changes when a new machine would be different: instance type, AMI, template version, tags
    warnings: tuple[str, ...] = ()


class NodeGroup(Struct, frozen=True, kw_only=True):
    """One group of equal machines, as read at `described_ms`.

    `problem` is one clear line where the group cannot be used (unknown, bad template, a refused call): it then is neither
    grown nor shrunk, and the others go on.  `template` is None where nothing says what a new node would be; `template_problem` says why.
    """

    name: GroupName
    min_size: int
    max_size: int
    desired: int
    cloud_min_size: int = 0  # the Auto Scaling Group's own limits; SetDesiredCapacity outside them is refused
    cloud_max_size: int = 2**31 - 1
    instances: tuple[Instance, ...] = ()
    zones: tuple[str, ...] = ()
    tags: dict[str, str] = {}
    suspended: frozenset[str] = frozenset()  # suspended processes: "Launch", "Terminate", "AZRebalance" ...
    template: NodeTemplate | None = None
    template_problem: str = ""
    problem: str = ""
    activities: tuple[Activity, ...] | None = None  # newest first; None: not asked for, or not allowed
    described_ms: int = 0

    @property
    def headroom(self) -> int:
        """How many machines may still be asked for."""
        return max(0, min(self.max_size, self.cloud_max_size) - self.desired)
