"""What the user wants of the node autoscaler: typed values made from flags, checked once.

Invariant: a NodesConfig that exists is valid; everything wrong is one ConfigError that names the flag and what to do.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal, cast

from msgspec import Struct

from nobiru.kernel.duration import parse_duration
from nobiru.kernel.errors import ConfigError, DurationError
from nobiru.nodes.flags import FLAGS, NEWEST, OLDEST, defaults

Values = Mapping[str, Sequence[str]]  # what was given on the command line, by flag, in order

LockKind = Literal["leases", "configmaps", "endpoints", "endpointsleases", "configmapsleases"]
LOCK_KINDS = ("leases", "configmaps", "endpoints", "endpointsleases", "configmapsleases")
EXPANDER_NAMES = ("least-waste", "most-pods", "least-nodes", "random")
LATER_EXPANDERS = ("priority", "grpc")  # accepted with a warning: the rest of the chain decides, else least-waste
_PLACEHOLDER = re.compile(r"<[^<>]+>|^NODEGROUP_NAME$|\$\{[^}]*\}|^YOUR[-_ ]|^my-asg-name-here$")
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class Part(Struct, frozen=True, kw_only=True):
    """A part of the configuration."""


class NodeGroupSpec(Part, frozen=True, kw_only=True):
    """One --nodes=min:max:name."""

    min_size: int
    max_size: int
    name: str


class DiscoverySpec(Part, frozen=True, kw_only=True):
    """One --node-group-auto-discovery: all tags must be there; a value of None asks for the key only."""

    tags: tuple[tuple[str, str | None], ...]


class Process(Part, frozen=True, kw_only=True):
    """The process, its API and its loop."""

    cluster_name: str
    address: str
    kubernetes_url: str
    kubeconfig: str
    user_agent: str
    namespace: str
    scan_interval_ms: int
    batch_idle_ms: int
    batch_max_ms: int
    max_inactivity_ms: int
    max_failing_time_ms: int
    max_startup_time_ms: int
    write_status: bool
    status_name: str
    per_group_metrics: bool
    record_duplicated_events: bool
    dry_run: bool
    static_instance_types: bool


class Leader(Part, frozen=True, kw_only=True):
    """Leader election."""

    enabled: bool
    kind: LockKind
    namespace: str
    name: str
    lease_duration_ms: int
    renew_deadline_ms: int
    retry_period_ms: int


class Groups(Part, frozen=True, kw_only=True):
    """Which groups are ours; with neither, groups are found by Cluster Autoscaler's own tags."""

    explicit: tuple[NodeGroupSpec, ...]
    discovery: tuple[DiscoverySpec, ...]
    discovery_union: bool  # several discovery flags: groups of any; False: only groups of all, as the peer has it


class Limits(Part, frozen=True, kw_only=True):
    """Limits of the whole cluster."""

    max_nodes_total: int  # 0: none
    cores_min: int
    cores_max: int
    memory_gib_min: int
    memory_gib_max: int


class Health(Part, frozen=True, kw_only=True):
    """How much trouble is tolerated, and how long machines may take."""

    ok_total_unready_count: int
    max_total_unready_percentage: float
    max_node_provision_time_ms: int
    max_node_startup_time_ms: int
    force_delete_unregistered_nodes: bool


class BackoffConfig(Part, frozen=True, kw_only=True):
    """How long a group rests after failures."""

    initial_ms: int
    max_ms: int
    reset_timeout_ms: int


class ScaleUpConfig(Part, frozen=True, kw_only=True):
    """Growing."""

    expander: tuple[str, ...]
    max_nodes_per_scaleup: int
    new_pod_scale_up_delay_ms: int
    expendable_pods_priority_cutoff: int
    enforce_node_group_min_size: bool
    pod_injection_limit: int
    startup_taints: tuple[str, ...]
    startup_taint_prefixes: tuple[str, ...]
    status_taints: tuple[str, ...]
    allowed_scheduler_names: tuple[str, ...]


class ScaleDownConfig(Part, frozen=True, kw_only=True):
    """Shrinking."""

    enabled: bool
    unready_enabled: bool
    delay_after_add_ms: int
    delay_after_delete_ms: int
    delay_after_failure_ms: int
    delay_type_local: bool
    unneeded_time_ms: int
    unready_time_ms: int
    utilization_threshold: float
    gpu_utilization_threshold: float
    ignore_daemonsets_utilization: bool
    ignore_mirror_pods_utilization: bool
    unremovable_node_recheck_timeout_ms: int
    max_parallelism: int
    max_drain_parallelism: int
    max_bulk_soft_taint_count: int
    cordon: bool
    skip_nodes_with_system_pods: bool
    blocking_system_pod_timeout_ms: int
    skip_nodes_with_local_storage: bool
    skip_nodes_with_custom_controller_pods: bool
    min_replica_count: int
    max_terminations_per_10m: int  # 0: no brake


class DrainConfig(Part, frozen=True, kw_only=True):
    """Draining one node."""

    max_graceful_termination_s: int  # 0: each pod's own
    priorities: tuple[tuple[int, int], ...]  # (priority, seconds), ascending; () for none
    max_pod_eviction_time_ms: int
    node_delete_delay_after_taint_ms: int
    node_deletion_delay_timeout_ms: int
    daemonset_eviction_for_empty_nodes: bool
    daemonset_eviction_for_occupied_nodes: bool


class LogConfig(Part, frozen=True, kw_only=True):
    """Logging."""

    verbosity: int
    format: Literal["text", "json"]
    stderr: bool
    stderr_threshold: Literal["INFO", "WARNING", "ERROR", "FATAL"]
    file: str


class NodesConfig(Part, frozen=True, kw_only=True):
    """The whole configuration."""

    compat: tuple[int, int]
    process: Process
    leader: Leader
    groups: Groups
    limits: Limits
    health: Health
    backoff: BackoffConfig
    scale_up: ScaleUpConfig
    scale_down: ScaleDownConfig
    drain: DrainConfig
    log: LogConfig
    warnings: tuple[str, ...] = ()  # flags that were given and have no effect: one line each


def make_config(given: Values) -> NodesConfig:
    """The configuration that the given flags mean, over the defaults of --compat-version.

    Raises:  ConfigError that names the flag, what is wrong and what to do.
    """
    compat = _compat(_last(given, "compat-version"))
    read = _Reader(given, defaults(compat))
    leader_lock = read.one_of("leader-elect-resource-lock", LOCK_KINDS)
    cores = read.pair("cores-total")
    memory = read.pair("memory-total")
    read.check_fixed()
    return NodesConfig(
        compat=compat,
        process=_process(read),
        leader=Leader(
            enabled=read.flag("leader-elect"),
            kind=cast(LockKind, leader_lock),
            namespace=read.text("leader-elect-resource-namespace") or read.text("namespace"),
            name=read.text("leader-elect-resource-name"),
            lease_duration_ms=read.duration("leader-elect-lease-duration"),
            renew_deadline_ms=read.duration("leader-elect-renew-deadline"),
            retry_period_ms=read.duration("leader-elect-retry-period"),
        ),
        groups=Groups(
            explicit=tuple(node_group_spec(text) for text in read.many("nodes")),
            discovery=tuple(discovery_spec(text) for text in read.many("node-group-auto-discovery")),
            discovery_union="compat-version" not in given,
        ),
        limits=Limits(
            max_nodes_total=read.whole("max-nodes-total", least=0),
            cores_min=cores[0],
            cores_max=cores[1],
            memory_gib_min=memory[0],
            memory_gib_max=memory[1],
        ),
        health=Health(
            ok_total_unready_count=read.whole("ok-total-unready-count"),
            max_total_unready_percentage=read.number("max-total-unready-percentage"),
            max_node_provision_time_ms=read.duration("max-node-provision-time"),
            max_node_startup_time_ms=read.duration("max-node-startup-time"),
            force_delete_unregistered_nodes=read.flag("force-delete-unregistered-nodes"),
        ),
        backoff=BackoffConfig(
            initial_ms=read.duration("initial-node-group-backoff-duration"),
            max_ms=read.duration("max-node-group-backoff-duration"),
            reset_timeout_ms=read.duration("node-group-backoff-reset-timeout"),
        ),
        scale_up=_scale_up(read),
        scale_down=_scale_down(read),
        drain=_drain(read),
        log=_log(read),
        warnings=read.warnings(),
    )


def _process(read: "_Reader") -> Process:
    return Process(
        cluster_name=read.text("cluster-name"),
        address=read.text("address"),
        kubernetes_url=read.text("kubernetes"),
        kubeconfig=read.text("kubeconfig"),
        user_agent=read.text("user-agent"),
        namespace=read.text("namespace"),
        scan_interval_ms=read.duration("scan-interval", least_ms=100),
        batch_idle_ms=read.duration("batch-idle"),
        batch_max_ms=read.duration("batch-max"),
        max_inactivity_ms=read.duration("max-inactivity"),
        max_failing_time_ms=read.duration("max-failing-time"),
        max_startup_time_ms=read.duration("max-startup-time"),
        write_status=read.flag("write-status-configmap"),
        status_name=read.text("status-config-map-name"),
        per_group_metrics=read.flag("emit-per-nodegroup-metrics"),
        record_duplicated_events=read.flag("record-duplicated-events"),
        dry_run=read.flag("dry-run"),
        static_instance_types=read.flag("aws-use-static-instance-list"),
    )


def _scale_up(read: "_Reader") -> ScaleUpConfig:
    return ScaleUpConfig(
        expander=expander_chain(read.text("expander")),
        max_nodes_per_scaleup=read.whole("max-nodes-per-scaleup", least=1),
        new_pod_scale_up_delay_ms=read.duration("new-pod-scale-up-delay"),
        expendable_pods_priority_cutoff=read.whole("expendable-pods-priority-cutoff"),
        enforce_node_group_min_size=read.flag("enforce-node-group-min-size"),
        pod_injection_limit=read.whole("pod-injection-limit", least=0),
        startup_taints=read.many("startup-taint") + read.many("ignore-taint"),
        startup_taint_prefixes=read.many("startup-taint-prefix"),
        status_taints=read.many("status-taint"),
        allowed_scheduler_names=read.many("allowed-scheduler-names"),
    )


def _scale_down(read: "_Reader") -> ScaleDownConfig:
    parallelism = "max-scale-down-parallelism"
    if not read.was_given(parallelism) and read.was_given("max-empty-bulk-delete"):
        parallelism = "max-empty-bulk-delete"
    return ScaleDownConfig(
        enabled=read.flag("scale-down-enabled"),
        unready_enabled=read.flag("scale-down-unready-enabled"),
        delay_after_add_ms=read.duration("scale-down-delay-after-add"),
        delay_after_delete_ms=read.duration("scale-down-delay-after-delete"),
        delay_after_failure_ms=read.duration("scale-down-delay-after-failure"),
        delay_type_local=read.flag("scale-down-delay-type-local"),
        unneeded_time_ms=read.duration("scale-down-unneeded-time"),
        unready_time_ms=read.duration("scale-down-unready-time"),
        utilization_threshold=read.number("scale-down-utilization-threshold"),
        gpu_utilization_threshold=read.number("scale-down-gpu-utilization-threshold"),
        ignore_daemonsets_utilization=read.flag("ignore-daemonsets-utilization"),
        ignore_mirror_pods_utilization=read.flag("ignore-mirror-pods-utilization"),
        unremovable_node_recheck_timeout_ms=read.duration("unremovable-node-recheck-timeout"),
        max_parallelism=read.whole(parallelism, least=0),
        max_drain_parallelism=read.whole("max-drain-parallelism", least=0),
        max_bulk_soft_taint_count=read.whole("max-bulk-soft-taint-count", least=0),
        cordon=read.flag("cordon-node-before-terminating"),
        skip_nodes_with_system_pods=read.flag("skip-nodes-with-system-pods"),
        blocking_system_pod_timeout_ms=read.duration("blocking-system-pod-distruption-timeout"),
        skip_nodes_with_local_storage=read.flag("skip-nodes-with-local-storage"),
        skip_nodes_with_custom_controller_pods=read.flag("skip-nodes-with-custom-controller-pods"),
        min_replica_count=read.whole("min-replica-count", least=0),
        max_terminations_per_10m=read.whole("max-terminations-per-10m", least=0),
    )


def _drain(read: "_Reader") -> DrainConfig:
    if read.text("drain-priority-config") and read.was_given("max-graceful-termination-sec"):
        raise ConfigError("--drain-priority-config and --max-graceful-termination-sec exclude each other: give one")
    return DrainConfig(
        max_graceful_termination_s=read.whole("max-graceful-termination-sec", least=0),
        priorities=drain_priorities(read.text("drain-priority-config")),
        max_pod_eviction_time_ms=read.duration("max-pod-eviction-time"),
        node_delete_delay_after_taint_ms=read.duration("node-delete-delay-after-taint"),
        node_deletion_delay_timeout_ms=read.duration("node-deletion-delay-timeout"),
        daemonset_eviction_for_empty_nodes=read.flag("daemonset-eviction-for-empty-nodes"),
        daemonset_eviction_for_occupied_nodes=read.flag("daemonset-eviction-for-occupied-nodes"),
    )


_SEVERITIES: tuple[Literal["INFO", "WARNING", "ERROR", "FATAL"], ...] = ("INFO", "WARNING", "ERROR", "FATAL")


def _log(read: "_Reader") -> LogConfig:
    text = read.text("stderrthreshold").upper()
    if text.isdecimal() and int(text) < len(_SEVERITIES):
        text = _SEVERITIES[int(text)]
    threshold = next((each for each in _SEVERITIES if each == text), None)
    if threshold is None:
        raise ConfigError(f'--stderrthreshold: "{text}" is no severity: use info, warning, error, fatal or 0 to 3')
    form = read.one_of("logging-format", ("text", "json"))
    return LogConfig(
        verbosity=read.whole("v"),
        format="json" if form == "json" else "text",
        stderr=read.flag("logtostderr") or read.flag("alsologtostderr") or not read.text("log-file"),
        stderr_threshold=threshold,
        file=read.text("log-file"),
    )


# Single values


def node_group_spec(text: str) -> NodeGroupSpec:
    """What one --nodes says; the name may contain anything, colons and spaces too.

    Raises:  ConfigError.
    """
    parts = text.split(":", 2)
    usage = "use min:max:name, such as 1:5:my-group"
    if len(parts) != 3:
        raise ConfigError(f'--nodes: "{text}" has {len(parts)} of 3 parts: {usage}')
    sizes = []
    for word, part in (("min", parts[0]), ("max", parts[1])):
        if not re.fullmatch(r"-?[0-9]{1,9}", part):
            raise ConfigError(f'--nodes: {word} "{part}" in "{text}" is no number: {usage}')
        sizes.append(int(part))
    smallest, largest, name = sizes[0], sizes[1], parts[2]
    if not name.strip():
        raise ConfigError(f'--nodes: "{text}" names no group: {usage}')
    if _PLACEHOLDER.search(name):
        raise ConfigError(f'--nodes: "{name}" looks like a placeholder: put the Auto Scaling Group\'s name there')
    if smallest < 0:
        raise ConfigError(f'--nodes: min {smallest} in "{text}" is negative: use 0 or more')
    if largest < smallest:
        raise ConfigError(f'--nodes: max {largest} is below min {smallest} in "{text}": {usage}')
    return NodeGroupSpec(min_size=smallest, max_size=largest, name=name)


def discovery_spec(text: str) -> DiscoverySpec:
    """What one --node-group-auto-discovery says.

    Raises:  ConfigError.
    """
    usage = "use asg:tag=key or asg:tag=key=value,key2"
    kind, _, rest = text.partition(":")
    word, equals, pairs = rest.partition("=")
    if kind != "asg" or word != "tag" or not equals:
        raise ConfigError(f'--node-group-auto-discovery: "{text}" is not understood: {usage}')
    tags: list[tuple[str, str | None]] = []
    for pair in pairs.split(","):
        key, has_value, value = pair.partition("=")
        if not key:
            raise ConfigError(f'--node-group-auto-discovery: "{text}" has a tag without a key: {usage}')
        if _PLACEHOLDER.search(pair):
            raise ConfigError(
                f'--node-group-auto-discovery: "{pair}" looks like a placeholder: put your own name there'
            )
        tags.append((key, value if has_value and value else None))
    return DiscoverySpec(tags=tuple(tags))


def expander_chain(text: str) -> tuple[str, ...]:
    """The expanders, in order.

    Raises:  ConfigError for unknown, doubled or misplaced ones, and for `price`, for which AWS gives no prices.
    """
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    for place, name in enumerate(names):
        if name == "price":
            raise ConfigError("--expander: price needs a cloud that tells prices, AWS does not: use least-waste")
        if name not in (*EXPANDER_NAMES, *LATER_EXPANDERS):
            raise ConfigError(f'--expander: "{name}" is unknown: use {", ".join(EXPANDER_NAMES)}')
        if name in names[:place]:
            raise ConfigError(f"--expander: {name} is named twice")
        if name == "random" and place != len(names) - 1:
            raise ConfigError("--expander: nothing may follow random, since it leaves one group")
    if not names:
        raise ConfigError(f"--expander: name at least one of {', '.join(EXPANDER_NAMES)}")
    here = tuple(name for name in names if name not in LATER_EXPANDERS)
    return here or ("least-waste",)


def drain_priorities(text: str) -> tuple[tuple[int, int], ...]:
    """(priority, seconds) pairs by priority.

    Raises:  ConfigError.
    """
    pairs = []
    for part in text.split(",") if text else ():
        match = re.fullmatch(r"\s*(-?[0-9]{1,10}):([0-9]{1,7})\s*", part)
        if match is None:
            raise ConfigError(f'--drain-priority-config: "{part}" is not priority:seconds, such as 1000:60')
        pairs.append((int(match[1]), int(match[2])))
    return tuple(sorted(pairs))


def _rest_decides(text: str) -> str:
    return f"nobiru does not have this yet, {', '.join(expander_chain(text))} decides"


def _compat(text: str | None) -> tuple[int, int]:
    if not text:
        return NEWEST
    match = re.fullmatch(r"v?([0-9]+)\.([0-9]+)(\.[0-9]+)?", text)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if not OLDEST <= version <= NEWEST:
        raise ConfigError(
            f'--compat-version: "{text}" is no release between {OLDEST[0]}.{OLDEST[1]} and {NEWEST[0]}.{NEWEST[1]}'
        )
    return version


def _last(given: Values, name: str) -> str | None:
    return given[name][-1] if given.get(name) else None


class _Reader:
    """Typed access to the flags' texts."""

    def __init__(self, given: Values, fallback: Mapping[str, str]) -> None:
        self._given, self._fallback = given, fallback

    def was_given(self, name: str) -> bool:
        return name in self._given

    def text(self, name: str) -> str:
        found = _last(self._given, name)
        return self._fallback[name] if found is None else found

    def many(self, name: str) -> tuple[str, ...]:
        return tuple(self._given.get(name, ()))

    def flag(self, name: str) -> bool:
        text = self.text(name)
        if text not in _TRUE and text not in _FALSE:
            raise ConfigError(f'--{name}: "{text}" is not true or false')
        return text in _TRUE

    def whole(self, name: str, *, least: int | None = None) -> int:
        text = self.text(name)
        try:
            value = int(text, 0) if re.fullmatch(r"[+-]?(0[xXoObB])?[0-9a-fA-F_]+", text) else int("no number")
        except ValueError as error:
            raise ConfigError(f'--{name}: "{text}" is no whole number') from error
        if least is not None and value < least:
            raise ConfigError(f"--{name}: {value} is below {least}")
        return value

    def number(self, name: str) -> float:
        text = self.text(name)
        try:
            return float(text)
        except ValueError as error:
            raise ConfigError(f'--{name}: "{text}" is no number') from error

    def duration(self, name: str, *, least_ms: int = 0) -> int:
        try:
            value = parse_duration(self.text(name))
        except DurationError as error:
            raise ConfigError(f"--{name}: {error}") from error
        if value < least_ms:
            raise ConfigError(f"--{name}: {self.text(name)} is too short: use at least {least_ms} ms")
        return value

    def one_of(self, name: str, allowed: Sequence[str]) -> str:
        text = self.text(name)
        if text not in allowed:
            raise ConfigError(f'--{name}: "{text}" is unknown: use {", ".join(allowed)}')
        return text

    def pair(self, name: str) -> tuple[int, int]:
        text = self.text(name)
        match = re.fullmatch(r"([0-9]{1,12}):([0-9]{1,12})", text)
        if match is None or int(match[1]) > int(match[2]):
            raise ConfigError(f'--{name}: "{text}" is not min:max with 0 <= min <= max')
        return int(match[1]), int(match[2])

    def check_fixed(self) -> None:
        """Check the flags of which only one value makes sense here, and the types of those without effect."""
        if self.text("cloud-provider") != "aws":
            raise ConfigError(f'--cloud-provider: "{self.text("cloud-provider")}" is not supported: use aws')
        if self.text("estimator") not in ("binpacking", "basic"):
            raise ConfigError(f'--estimator: "{self.text("estimator")}" is unknown: use binpacking')
        for flag in FLAGS:
            if flag.name not in self._given:
                continue
            match flag.kind:
                case "bool":
                    self.flag(flag.name)
                case "int":
                    self.whole(flag.name)
                case "float":
                    self.number(flag.name)
                case "duration":
                    self.duration(flag.name)
                case _:
                    pass

    def warnings(self) -> tuple[str, ...]:
        """One line for each given flag that has no effect, unless it asks for what is so anyway."""
        chain = self.text("expander")
        later = [
            f"--expander: {name} has no effect: {_rest_decides(chain)}"
            for name in LATER_EXPANDERS
            if name in chain.split(",")
        ]
        idle = [
            f"--{flag.name} has no effect: {flag.effect}"
            for flag in FLAGS
            if flag.effect and flag.name in self._given and self.text(flag.name) != flag.default
        ]
        return (*later, *idle)
