"""The values of the hollow kubelets: how they behave, the machines they run on, what they remember and what they do next.

It refuses to know: any wire, what is decided (`sim.kubelet_plan`).  Invariant: every value is frozen; times are milliseconds
since 1970, spans milliseconds, and None means never.
"""

from msgspec import Struct, field

from nobiru.kernel.errors import ConfigError, QuantityError
from nobiru.kernel.objects import Key, KubeObject, ObjectMeta, Taint, Wire
from nobiru.kernel.quantity import parse_quantity
from nobiru.sim.machines import Hardware, Image, Shape

# What a pod may say about its own life; on a pod template it reaches the pods of a Job or Deployment.
RUN_MS = (
    "nobiru.io/sim-run-ms"  # its containers end by themselves this long after their start (restartPolicy Always: never)
)
EXIT_CODE = "nobiru.io/sim-exit-code"  # with this code, 0 where it says nothing
START_MS = "nobiru.io/sim-start-ms"  # from bound to Running, in place of the kubelet's pod_start_ms
STOP_MS = (
    "nobiru.io/sim-stop-ms"  # from the wish to delete it until it ends, in place of pod_stop_ms; its grace is the limit
)


class Profile(Struct, frozen=True, kw_only=True):
    """How a kubelet behaves.  The defaults are quick, so that tests on the real clock stay short; faults are other values.

    Report B47, never registers: register_ms=None.  Boots late: register_ms (or the cloud's BootFault).  Registers without
    providerID: without_provider_id.  Stops its heartbeats: silent_ms.  GPU plugin late: gpu_ms.
    """

    image: Image = "al2023"
    node_labels: dict[str, str] = {}  # --node-labels
    taints: tuple[Taint, ...] = ()  # --register-with-taints
    resources: dict[str, str] = {}  # other or further capacity, allocatable in full: "example.com/dongle": "2"
    beta_labels_only: bool = False  # as kubelets before 1.17 do
    without_provider_id: bool = False
    register_ms: int | None = 0  # from the machine's start until its Node is created
    ready_ms: int | None = 200  # from then until Ready
    gpu_ms: int | None = 0  # from then until the device plugin has reported its GPUs
    silent_ms: int | None = None  # from then until the kubelet hangs: no heartbeat, and no pod starts or stops
    pod_start_ms: int = 50
    pod_stop_ms: int = 100
    lease_ms: int = 10_000  # kubelet: a quarter of nodeLeaseDurationSeconds, 40 by default
    status_ms: int = 300_000  # kubelet: nodeStatusReportFrequency, 5 min by default

    def __post_init__(self) -> None:
        spans = (self.register_ms, self.ready_ms, self.gpu_ms, self.silent_ms, self.pod_start_ms, self.pod_stop_ms)
        if any(span is not None and span < 0 for span in spans) or min(self.lease_ms, self.status_ms) < 1:
            raise ConfigError(f"times are not negative, and heartbeats are at least 1 ms apart: {self}")
        for name, quantity in self.resources.items():
            try:
                parse_quantity(quantity, 1000)
            except QuantityError as error:
                raise ConfigError(f"resources: {name}: {error}") from error


class Special(Struct, frozen=True, kw_only=True):
    """The next machines of a group that differ from its others; an empty group matches all, `count` None has no end."""

    profile: Profile
    group: str = ""
    count: int | None = 1


class StaticNode(Struct, frozen=True, kw_only=True):
    """A node that exists outside any group of the cloud: the walk-through's compute and infra nodes, Fargate, bare metal."""

    name: str
    private_ip: str
    zone: str
    instance_type: str = "m5.large"
    instance_id: str = ""  # "": no providerID, as on machines of no cloud
    provider_id: str = ""  # in place of aws:///zone/instance_id
    profile: Profile = Profile()


class Kubelets(Struct, frozen=True, kw_only=True):
    """The configuration of all hollow kubelets."""

    default: Profile = Profile()
    groups: dict[str, Profile] = {}  # by Auto Scaling Group
    special: tuple[Special, ...] = ()  # the first that matches a new machine and has some left counts
    static: tuple[StaticNode, ...] = ()
    hardware: dict[str, Hardware] = {}  # instance types that the table of measured nodes lacks
    calls_max: int = 48  # requests under way at once; a Client has 64 connections, and watches hold some
    retry_ms: tuple[int, int] = (100, 5_000)  # back-off after a failed request: first, longest

    def __post_init__(self) -> None:
        if self.calls_max < 1 or not 0 < self.retry_ms[0] <= self.retry_ms[1]:
            raise ConfigError(
                f"calls_max is at least 1, and retry_ms rises from above 0: {self.calls_max}, {self.retry_ms}"
            )
        if len({node.name for node in self.static}) < len(self.static):
            raise ConfigError("two static nodes have one name")


class Machine(Struct, frozen=True, kw_only=True):
    """A running machine with its kubelet."""

    node: str  # the name of its Node: its private DNS name
    provider_id: str
    zone: str
    region: str
    instance_type: str
    instance_id: str
    private_ip: str
    started_ms: int  # when its operating system ran
    shape: Shape
    profile: Profile
    group: str = ""


class Seat(Struct, frozen=True, kw_only=True):
    """What a kubelet remembers of its own Node."""

    registered_ms: int | None = None
    lease_made: bool = False
    lease_at_ms: int = 0  # when the next heartbeat is due
    status_at_ms: int = 0


class Life(Struct, frozen=True, kw_only=True):
    """What a kubelet remembers of one pod."""

    uid: str
    seen_ms: int  # first seen on its node
    leaving_ms: int | None = None  # first seen with a deletion timestamp
    started_ms: int | None = None
    ended: bool = False
    removed: bool = False


# What is read of pods


class HollowMeta(ObjectMeta, frozen=True, kw_only=True):
    finalizers: tuple[str, ...] = ()


class HollowContainer(Wire, frozen=True, kw_only=True):
    name: str = ""
    image: str = ""
    restart_policy: str = ""


class HollowPodSpec(Wire, frozen=True, kw_only=True):
    node_name: str = ""
    restart_policy: str = "Always"
    host_network: bool = False
    containers: tuple[HollowContainer, ...] | None = None
    init_containers: tuple[HollowContainer, ...] | None = None


class HollowPodStatus(Wire, frozen=True, kw_only=True):
    phase: str = ""
    pod_ip: str = field(default="", name="podIP")


class HollowPod(KubeObject, frozen=True, kw_only=True):
    """As much of a pod as a kubelet that runs nothing needs."""

    metadata: HollowMeta
    spec: HollowPodSpec = HollowPodSpec()
    status: HollowPodStatus = HollowPodStatus()


# What is done next


class Register(Struct, frozen=True, kw_only=True):
    """Create the machine's Node, not Ready yet."""

    machine: Machine


class Report(Struct, frozen=True, kw_only=True):
    """Write the Node's status: conditions, and what there is to use; `turned` where Ready changes."""

    machine: Machine
    ready: bool
    turned: bool
    gpus: bool


class Beat(Struct, frozen=True, kw_only=True):
    """Renew the Node's Lease, or create it."""

    machine: Machine
    uid: str
    create: bool


class StartPod(Struct, frozen=True, kw_only=True):
    """Report a pod Running."""

    pod: HollowPod
    machine: Machine


class EndPod(Struct, frozen=True, kw_only=True):
    """Report a pod's containers ended with that code."""

    pod: HollowPod
    machine: Machine
    exit_code: int
    started_ms: int


class RemovePod(Struct, frozen=True, kw_only=True):
    """Delete a pod for good: its containers are gone."""

    pod: HollowPod


Action = Register | Report | Beat | StartPod | EndPod | RemovePod


class Step(Struct, frozen=True, kw_only=True):
    """What a kubelet does about one Node or pod now, and when it must look again if nothing happens."""

    action: Action | None = None
    wake_ms: int | None = None


NOTHING = Step()

# What a kubelet looks at: ("", name) of a Node, (namespace, name) of a pod.
Topic = Key
