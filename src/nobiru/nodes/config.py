"""What the user wants of the node autoscaler: typed values made from flags, checked once.

Invariant: a NodesConfig that exists is valid; everything wrong is one ConfigError that names the flag and what to do.
"""

import re
from typing import Literal

from msgspec import Struct

from nobiru.kernel.duration import format_duration
from nobiru.kernel.errors import ConfigError
from nobiru.nodes import flag_values as values
from nobiru.nodes.flag_reader import Reader, Values
from nobiru.nodes.flag_values import DiscoverySpec, GpuLimit, NodeGroupSpec, Severity
from nobiru.nodes.flags import NEWEST, OLDEST, by_name, defaults
from nobiru.sinks.address import split_address

__all__ = ["DiscoverySpec", "GpuLimit", "NodeGroupSpec", "NodesConfig", "Values", "make_config"]

LockKind = Literal["leases", "configmaps", "endpoints", "endpointsleases", "configmapsleases"]
LOCK_KINDS: tuple[LockKind, ...] = ("leases", "configmaps", "endpoints", "endpointsleases", "configmapsleases")
LogFormat = Literal["text", "json"]
LOG_FORMATS: tuple[LogFormat, ...] = ("text", "json")
LOG_FILE_NAME = "nobiru.log"  # in --log-dir; klog names one file per severity, host and start
SCAN_INTERVAL_MS_MIN = 100  # a pause of 0 is legal for the peer, and would only burn a core here
JITTER = 1.2  # client-go leaderelection: the renew deadline must exceed the retry period by this factor
_DELAY_AFTER_DELETE = (1, 15)  # until then the default of --scale-down-delay-after-delete was --scan-interval


class Part(Struct, frozen=True, kw_only=True):
    """A part of the configuration."""


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
    profiling: bool  # asked for; /debug/pprof answers 501
    debugging_snapshot: bool  # asked for; /snapshotz answers 501


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
    gpus: tuple[GpuLimit, ...]  # read, not applied yet


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
    format: LogFormat
    stderr_threshold: Severity
    file: str  # "" for none


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
    warnings: tuple[str, ...] = ()  # one line for each flag that was given and has no effect, or another than it seems


def make_config(given: Values) -> NodesConfig:
    """The configuration that the given flags mean, over the defaults of --compat-version.

    Raises:  ConfigError that names the flag, what is wrong and what to do.
    """
    compat = _compat(given["compat-version"][-1]) if given.get("compat-version") else NEWEST
    read = Reader(given, defaults(compat), compat)
    read.check_types()
    _check_values(read)
    process = _process(read)
    config = NodesConfig(
        compat=compat,
        process=process,
        leader=_leader(read),
        groups=_groups(read),
        limits=_limits(read),
        health=_health(read),
        backoff=_backoff(read),
        scale_up=_scale_up(read),
        scale_down=_scale_down(read, process.scan_interval_ms),
        drain=_drain(read),
        log=_log(read),
        warnings=_warnings(read),
    )
    _check_together(read, config)
    return config


def _process(read: Reader) -> Process:
    return Process(
        cluster_name=read.text("cluster-name"),
        address=read.text("address"),
        kubernetes_url=read.text("kubernetes"),
        kubeconfig=read.text("kubeconfig"),
        user_agent=read.text("user-agent"),
        namespace=read.text("namespace"),
        scan_interval_ms=max(read.duration("scan-interval"), SCAN_INTERVAL_MS_MIN),
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
        profiling=read.flag("profiling"),
        debugging_snapshot=read.flag("debugging-snapshot-enabled"),
    )


def _leader(read: Reader) -> Leader:
    return Leader(
        enabled=read.flag("leader-elect"),
        kind=read.one_of("leader-elect-resource-lock", LOCK_KINDS),
        namespace=read.text("leader-elect-resource-namespace") or read.text("namespace"),
        name=read.text("leader-elect-resource-name"),
        lease_duration_ms=read.duration("leader-elect-lease-duration"),
        renew_deadline_ms=read.duration("leader-elect-renew-deadline"),
        retry_period_ms=read.duration("leader-elect-retry-period"),
    )


def _groups(read: Reader) -> Groups:
    specs = {spec.name: spec for spec in read.each("nodes", values.parse_group)}  # of one name the last counts
    return Groups(
        explicit=tuple(specs.values()),
        discovery=read.each("node-group-auto-discovery", values.parse_discovery),
        discovery_union=not read.was_given("compat-version"),
    )


def _limits(read: Reader) -> Limits:
    cores = read.parsed("cores-total", values.parse_range)
    memory = read.parsed("memory-total", values.parse_range)
    return Limits(
        max_nodes_total=read.whole("max-nodes-total", least=0),
        cores_min=cores[0],
        cores_max=cores[1],
        memory_gib_min=memory[0],
        memory_gib_max=memory[1],
        gpus=read.each("gpu-total", values.parse_gpu_limit),
    )


def _health(read: Reader) -> Health:
    return Health(
        ok_total_unready_count=read.whole("ok-total-unready-count"),
        max_total_unready_percentage=read.number("max-total-unready-percentage"),
        max_node_provision_time_ms=read.duration("max-node-provision-time"),
        max_node_startup_time_ms=read.duration("max-node-startup-time"),
        force_delete_unregistered_nodes=read.flag("force-delete-unregistered-nodes"),
    )


def _backoff(read: Reader) -> BackoffConfig:
    return BackoffConfig(
        initial_ms=read.duration("initial-node-group-backoff-duration"),
        max_ms=read.duration("max-node-group-backoff-duration"),
        reset_timeout_ms=read.duration("node-group-backoff-reset-timeout"),
    )


def _scale_up(read: Reader) -> ScaleUpConfig:
    return ScaleUpConfig(
        expander=read.parsed("expander", values.parse_expanders),
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


def _scale_down(read: Reader, scan_interval_ms: int) -> ScaleDownConfig:
    parallelism = "max-scale-down-parallelism"
    if not read.was_given(parallelism) and read.was_given("max-empty-bulk-delete"):
        parallelism = "max-empty-bulk-delete"
    follows_scan = not read.was_given("scale-down-delay-after-delete") and read.compat < _DELAY_AFTER_DELETE
    return ScaleDownConfig(
        enabled=read.flag("scale-down-enabled"),
        unready_enabled=read.flag("scale-down-unready-enabled"),
        delay_after_add_ms=read.duration("scale-down-delay-after-add"),
        delay_after_delete_ms=scan_interval_ms if follows_scan else read.duration("scale-down-delay-after-delete"),
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


def _drain(read: Reader) -> DrainConfig:
    return DrainConfig(
        max_graceful_termination_s=read.whole("max-graceful-termination-sec", least=0),
        priorities=read.parsed("drain-priority-config", values.parse_drain_priorities),
        max_pod_eviction_time_ms=read.duration("max-pod-eviction-time"),
        node_delete_delay_after_taint_ms=read.duration("node-delete-delay-after-taint"),
        node_deletion_delay_timeout_ms=read.duration("node-deletion-delay-timeout"),
        daemonset_eviction_for_empty_nodes=read.flag("daemonset-eviction-for-empty-nodes"),
        daemonset_eviction_for_occupied_nodes=read.flag("daemonset-eviction-for-occupied-nodes"),
    )


def _log(read: Reader) -> LogConfig:
    """Where lines go.

    As klog: files count only with --logtostderr=false, and the threshold, in its older meaning, only for what also goes
    to a file.  Differs: without a named file or directory nothing is written to the temporary directory.
    """
    everything = read.flag("logtostderr") or read.flag("alsologtostderr")
    file = ""
    if not read.flag("logtostderr"):
        directory = read.text("log-dir").rstrip("/")
        file = read.text("log-file") or (f"{directory}/{LOG_FILE_NAME}" if read.text("log-dir") else "")
    ignored = read.flag("legacy-stderr-threshold-behavior") and (everything or not file)
    return LogConfig(
        verbosity=read.parsed("v", values.parse_level),
        format=read.one_of("logging-format", LOG_FORMATS),
        stderr_threshold="INFO" if ignored else read.parsed("stderrthreshold", values.parse_severity),
        file=file,
    )


# What types alone do not catch


def _check_values(read: Reader) -> None:
    if read.text("cloud-provider") != "aws":
        raise ConfigError(f'--cloud-provider: "{read.text("cloud-provider")}" is not supported: use aws')
    if read.text("estimator") not in ("binpacking", "basic"):
        raise ConfigError(f'--estimator: "{read.text("estimator")}" is unknown: use binpacking')
    read.whole("predicate-parallelism", least=1)
    read.parsed("address", split_address)
    for name in ("cluster-name", "namespace", "leader-elect-resource-namespace"):
        if values.is_placeholder(read.text(name)):
            raise ConfigError(f'--{name}: "{read.text(name)}" is a placeholder: put your own name there')


def _check_together(read: Reader, config: NodesConfig) -> None:
    leader, process, up = config.leader, config.process, config.scale_up
    if leader.enabled and leader.lease_duration_ms <= leader.renew_deadline_ms:
        raise ConfigError("--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline")
    if leader.enabled and leader.renew_deadline_ms <= leader.retry_period_ms * JITTER:
        raise ConfigError(
            f"--leader-elect-renew-deadline must be longer than {JITTER} times --leader-elect-retry-period"
        )
    if leader.enabled and leader.retry_period_ms <= 0:
        raise ConfigError("--leader-elect-retry-period must be longer than 0s")
    if process.batch_idle_ms > process.batch_max_ms:
        raise ConfigError("--batch-idle must not be longer than --batch-max")
    if config.drain.priorities and read.changed("max-graceful-termination-sec"):
        raise ConfigError("--drain-priority-config and --max-graceful-termination-sec exclude each other: give one")
    bypassed = read.many("bypassed-scheduler-names")
    strange = [name for name in bypassed if up.allowed_scheduler_names and name not in up.allowed_scheduler_names]
    if strange:
        raise ConfigError(f'--bypassed-scheduler-names: "{strange[0]}" is not among --allowed-scheduler-names: add it')


def _warnings(read: Reader) -> tuple[str, ...]:
    """One line for each flag that was given and has no effect, unless it asks for what is so anyway."""
    lines = [
        f"--{flag.name}={read.text(flag.name)} has no effect: {flag.effect}"
        for flag in by_name().values()
        if flag.effect and read.was_given(flag.name) and not read.means(flag, flag.holds)
    ]
    chain = read.text("expander")
    decides = ", ".join(values.parse_expanders(chain))
    lines += [
        f"--expander={chain}: nobiru does not have {name} yet; {decides} decides"
        for name in values.later_expanders(chain)
    ]
    if read.text("estimator") != "binpacking":
        lines.append(f"--estimator={read.text('estimator')} has no effect: binpacking decides")
    if read.duration("scan-interval") < SCAN_INTERVAL_MS_MIN:
        lines.append(f"--scan-interval is raised to {format_duration(SCAN_INTERVAL_MS_MIN)}")
    names = [values.parse_group(text).name for text in read.many("nodes")]
    doubled = sorted({name for name in names if names.count(name) > 1})
    lines += [f'--nodes names group "{name}" more than once: the last one counts' for name in doubled]
    for name in ("log-file", "log-dir"):
        if read.text(name) and read.flag("logtostderr"):
            lines.append(f"--{name} has no effect: it needs --logtostderr=false")
    return tuple(lines)


def _compat(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"v?([0-9]{1,4})\.([0-9]{1,4})(\.[0-9]{1,4})?", text, re.ASCII)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if text and not OLDEST <= version <= NEWEST:
        ends = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
        raise ConfigError(f'--compat-version: "{text}" is no Cluster Autoscaler release from {ends}')
    return version if text else NEWEST
