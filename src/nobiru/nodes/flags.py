"""Every flag of Cluster Autoscaler, and ours, described once as data: parsing, defaults, help and reference read this table.

`effect` is "" where the flag works; else it is the one line that says why it has none here.
Defaults are those of the newest release; `DEFAULTS_BEFORE` lists what older ones had, for --compat-version.
Source: cluster-autoscaler 1.37 config/flags, with the release each flag first appeared in; klog and component-base for logging.
"""

from typing import Literal

from msgspec import Struct

Kind = Literal["string", "int", "float", "bool", "duration", "strings", "slice"]
Section = Literal["process", "groups", "scale-up", "scale-down", "aws", "logging", "retired", "nobiru"]


class Flag(Struct, frozen=True):
    """One flag.

    `default` is written as on the command line; lists have "" for empty.  "strings" repeats and never splits at commas,
    "slice" splits.
    """

    name: str
    kind: Kind
    default: str
    section: Section
    sentence: str
    effect: str = ""


_OTHER_CLOUD = "it belongs to another cloud"
_NOT_YET = "nobiru does not have this yet"
_SIMULATION = "nobiru plans all groups in one pass, which needs no such limit"
_REQUESTS = "ProvisioningRequests are not planned for yet"
_BUFFERS = "CapacityBuffers are not planned for yet"
_LOG_FILES = "nobiru logs to standard error, or to --log_file"
_UNUSED_UPSTREAM = "Cluster Autoscaler itself does not use it any more"
_REMOVED = "Cluster Autoscaler removed it"


def _flag(section: Section, kind: Kind, name: str, default: str, sentence: str, effect: str = "") -> Flag:
    return Flag(name=name, kind=kind, default=default, section=section, sentence=sentence, effect=effect)


_PROCESS = [
    ("string", "cluster-name", "", "name of the cluster: which groups are ours when tags name several clusters", ""),
    ("string", "address", ":8085", "where metrics, health and the journal are served", ""),
    ("string", "kubernetes", "", "URL of the API server; empty: in-cluster or kubeconfig", ""),
    ("string", "kubeconfig", "", "path of a kubeconfig", ""),
    ("string", "kube-api-content-type", "application/vnd.kubernetes.protobuf", "wire encoding", "nobiru speaks JSON"),
    (
        "int",
        "kube-client-burst",
        "10",
        "requests to the API server at once",
        "requests are bounded by what a plan does",
    ),
    (
        "float",
        "kube-client-qps",
        "5",
        "requests to the API server a second",
        "requests are bounded by what a plan does",
    ),
    ("string", "user-agent", "cluster-autoscaler", "HTTP user agent towards the API server", ""),
    (
        "string",
        "cloud-config",
        "",
        "path of the cloud provider's file",
        "endpoints come from AWS's standard environment",
    ),
    ("string", "cloud-provider", "aws", "the cloud; only aws", ""),
    ("string", "namespace", "kube-system", "where status ConfigMap and leader lock live", ""),
    ("duration", "scan-interval", "10s", "the longest pause between two loops; news starts one at once", ""),
    ("bool", "frequent-loops-enabled", "true", "loop again at once after progress", "loops always start on news"),
    ("duration", "max-inactivity", "10m", "health: age of the last activity", ""),
    ("duration", "max-failing-time", "15m", "health: age of the last success", ""),
    ("duration", "max-startup-time", "20m", "health: time until the first success", ""),
    ("bool", "profiling", "false", "serve /debug/pprof", "Go's profiles do not exist here"),
    ("bool", "debugging-snapshot-enabled", "false", "serve /snapshotz", "/nobiru/v1/plans shows every plan"),
    ("bool", "write-status-configmap", "true", "write the status ConfigMap", ""),
    ("string", "status-config-map-name", "cluster-autoscaler-status", "its name", ""),
    ("bool", "emit-per-nodegroup-metrics", "false", "metrics per group", ""),
    ("bool", "record-duplicated-events", "false", "repeat equal events within five minutes", ""),
    ("bool", "regional", "false", "the cluster spans zones", _OTHER_CLOUD),
    ("bool", "leader-elect", "true", "act only while holding the leader lock", ""),
    ("duration", "leader-elect-lease-duration", "15s", "after this long without renewal others may take the lock", ""),
    ("duration", "leader-elect-renew-deadline", "10s", "the holder gives up after this long without renewal", ""),
    ("duration", "leader-elect-retry-period", "2s", "pause between tries", ""),
    (
        "string",
        "leader-elect-resource-lock",
        "leases",
        "kind of lock: leases, configmaps, endpoints, or a doubled kind",
        "",
    ),
    ("string", "leader-elect-resource-name", "cluster-autoscaler", "name of the lock", ""),
    ("string", "leader-elect-resource-namespace", "", "namespace of the lock; empty: --namespace", ""),
    ("string", "feature-gates", "", "component gates", "there are none"),
    ("string", "scheduler-config-file", "", "KubeSchedulerConfiguration for the simulation", _NOT_YET),
    ("int", "scheduler-verbosity", "0", "log level of the simulated scheduler", _SIMULATION),
    ("int", "predicate-parallelism", "4", "parallel predicate checks", _SIMULATION),
]
_GROUPS = [
    ("strings", "nodes", "", "a group as min:max:name; repeat for several", ""),
    (
        "strings",
        "node-group-auto-discovery",
        "",
        "find groups by tags: asg:tag=key[=value],...; repeat: groups of any",
        "",
    ),
    ("int", "max-nodes-total", "0", "most nodes in the whole cluster; 0: no limit", ""),
    ("string", "cores-total", "0:320000", "least and most cores of the cluster, min:max", ""),
    ("string", "memory-total", "0:6400000", "least and most memory of the cluster in GiB, min:max", ""),
    ("strings", "gpu-total", "", "limits per accelerator, type:min:max", _OTHER_CLOUD),
    ("bool", "capacity-quotas-enabled", "false", "honour CapacityQuota objects", _NOT_YET),
    ("bool", "enforce-node-group-min-size", "false", "raise groups that are below their minimum", ""),
    ("int", "ok-total-unready-count", "3", "unready nodes that are always tolerated", ""),
    ("float", "max-total-unready-percentage", "45", "above this share of unready nodes all scaling stops", ""),
    ("duration", "max-node-provision-time", "15m", "from request to registered node", ""),
    ("duration", "max-node-startup-time", "15m", "from registered to ready node", ""),
    ("duration", "initial-node-group-backoff-duration", "5m", "rest of a group after its first failure", ""),
    ("duration", "max-node-group-backoff-duration", "30m", "longest rest", ""),
    ("duration", "node-group-backoff-reset-timeout", "3h", "failures older than this are forgotten", ""),
    (
        "duration",
        "node-info-cache-expire-time",
        "87600h",
        "age of cached templates",
        "templates follow the cloud's own",
    ),
    (
        "bool",
        "force-delete-unregistered-nodes",
        "false",
        "ignore the minimum when removing machines without a node",
        "",
    ),
    ("bool", "force-delete-failed-nodes", "false", "the same for failed creations", "such machines never exist on AWS"),
    ("bool", "async-node-groups", "false", "create groups asynchronously", _OTHER_CLOUD),
]
_SCALE_UP = [
    ("bool", "scale-up-from-zero", "true", "act while no node is ready", "nobiru always does"),
    (
        "string",
        "expander",
        "least-waste",
        "which group to grow: a comma chain of least-waste, most-pods, least-nodes, random",
        "",
    ),
    ("string", "grpc-expander-url", "", "address of an external expander", _NOT_YET),
    ("string", "grpc-expander-cert", "", "its certificate", _NOT_YET),
    ("string", "estimator", "binpacking", "only binpacking", ""),
    ("bool", "balance-similar-node-groups", "false", "spread growth over similar groups", _NOT_YET),
    ("strings", "balancing-ignore-label", "", "labels to ignore when comparing groups", _NOT_YET),
    ("strings", "balancing-label", "", "labels that alone make groups similar", _NOT_YET),
    ("float", "memory-difference-ratio", "0.015", "tolerance of memory between similar groups", _NOT_YET),
    ("float", "max-free-difference-ratio", "0.05", "tolerance of free resources", _NOT_YET),
    ("float", "max-allocatable-difference-ratio", "0.05", "tolerance of allocatable", _NOT_YET),
    ("int", "max-nodes-per-scaleup", "1000", "most machines asked of one group in one plan", ""),
    ("duration", "max-nodegroup-binpacking-duration", "10s", "time limit of one estimate", _SIMULATION),
    ("duration", "max-binpacking-time", "5m", "time limit of all estimates", _SIMULATION),
    ("bool", "fastpath-binpacking-enabled", "false", "extrapolate from one full node", _SIMULATION),
    ("bool", "enable-inter-pod-affinity-hostname-fast-path", "false", "cheaper hostname affinity", _SIMULATION),
    ("bool", "parallel-scale-up", "false", "resize groups side by side", "nobiru always does"),
    ("bool", "salvo-scale-up", "false", "several decisions per loop", "nobiru always does"),
    ("duration", "salvo-scale-up-budget", "1m", "time for those", _SIMULATION),
    ("duration", "new-pod-scale-up-delay", "0s", "ignore pods younger than this", ""),
    ("int", "expendable-pods-priority-cutoff", "-10", "pods of lower priority never cause or block anything", ""),
    ("bool", "force-ds", "false", "new nodes must hold all suitable DaemonSets", "nobiru always counts them"),
    ("bool", "scale-from-unschedulable", "false", "ignore a cordon on the template node", "nobiru always does"),
    ("strings", "startup-taint", "", "a node with this taint is still starting", ""),
    ("strings", "startup-taint-prefix", "", "the same by prefix", ""),
    ("strings", "status-taint", "", "a taint that says nothing about a new node", ""),
    ("slice", "bypassed-scheduler-names", "", "treat unprocessed pods of these schedulers as pending", _NOT_YET),
    ("slice", "allowed-scheduler-names", "", "only pods of these schedulers count", ""),
    (
        "bool",
        "scaleup-simulation-for-skipped-node-groups-enabled",
        "false",
        "explain skipped groups",
        "nobiru always does",
    ),
    ("duration", "pending-pods-batching-timeout", "4m", "time limit of a simulation", _SIMULATION),
    ("bool", "enable-graceful-degradation", "false", "reserve loops for scale-down", _SIMULATION),
    ("bool", "enable-proactive-scaleup", "false", "count replicas not created yet", "nobiru always does"),
    ("int", "pod-injection-limit", "5000", "most of those", ""),
    ("bool", "enable-csi-node-aware-scheduling", "false", "count volume limits", _NOT_YET),
    ("bool", "enable-provisioning-requests", "false", "ProvisioningRequest objects", _REQUESTS),
    ("duration", "provisioning-request-initial-backoff-time", "1m", "first retry", _REQUESTS),
    ("duration", "provisioning-request-max-backoff-time", "10m", "longest retry", _REQUESTS),
    ("int", "provisioning-request-max-backoff-cache-size", "1000", "retry cache", _REQUESTS),
    ("bool", "check-capacity-batch-processing", "false", "batches of requests", _REQUESTS),
    ("int", "check-capacity-provisioning-request-max-batch-size", "10", "their size", _REQUESTS),
    ("duration", "check-capacity-provisioning-request-batch-timebox", "10s", "their time", _REQUESTS),
    ("string", "check-capacity-processor-instance", "", "only requests that name this instance", _REQUESTS),
    ("bool", "capacity-buffer-controller-enabled", "false", "reconcile CapacityBuffers", _BUFFERS),
    ("bool", "capacity-buffer-pod-injection-enabled", "false", "count their pods", _BUFFERS),
    ("bool", "capacity-buffer-pod-dry-run-enabled", "true", "check their pods by a dry run", _BUFFERS),
]
_SCALE_DOWN = [
    ("bool", "scale-down-unready-enabled", "true", "unready nodes may be removed", ""),
    ("duration", "scale-down-delay-after-add", "10m", "pause after a scale-up", ""),
    ("duration", "scale-down-delay-after-delete", "0s", "pause after a removal", ""),
    ("duration", "scale-down-delay-after-failure", "3m", "pause after a failed removal", ""),
    ("bool", "scale-down-delay-type-local", "false", "those pauses per group", ""),
    ("duration", "scale-down-unneeded-time", "10m", "a node is removed once unneeded for this long", ""),
    ("duration", "scale-down-unready-time", "20m", "the same for unready nodes", ""),
    ("float", "scale-down-utilization-threshold", "0.5", "a node used above this share is needed", ""),
    ("float", "scale-down-gpu-utilization-threshold", "0.5", "the same for nodes with GPUs, by GPU alone", ""),
    ("bool", "ignore-daemonsets-utilization", "false", "leave DaemonSet pods out of that share", ""),
    ("bool", "ignore-mirror-pods-utilization", "false", "leave mirror pods out of that share", ""),
    ("duration", "scale-down-simulation-timeout", "30s", "time limit of a simulation", _SIMULATION),
    ("int", "scale-down-non-empty-candidates-count", "30", "candidates per loop", _UNUSED_UPSTREAM),
    ("float", "scale-down-candidates-pool-ratio", "0.1", "candidates per loop", _UNUSED_UPSTREAM),
    ("int", "scale-down-candidates-pool-min-count", "50", "candidates per loop", _UNUSED_UPSTREAM),
    ("duration", "unremovable-node-recheck-timeout", "5m", "rest of a node whose removal failed", ""),
    ("int", "max-scale-down-parallelism", "10", "most nodes being removed at once", ""),
    ("int", "max-drain-parallelism", "1", "most of those that need draining", ""),
    ("int", "max-graceful-termination-sec", "600", "most seconds a pod gets to end; 0: its own", ""),
    ("string", "drain-priority-config", "", "prio:sec,... evict by priority with these seconds", ""),
    ("duration", "max-pod-eviction-time", "2m", "how long an eviction is retried", ""),
    ("duration", "node-delete-delay-after-taint", "5s", "pause between taint and re-check", ""),
    ("bool", "dynamic-node-delete-delay-after-taint-enabled", "false", "derive that pause", _NOT_YET),
    ("duration", "node-deletion-delay-timeout", "2m", "how long delay-deletion annotations are waited for", ""),
    ("duration", "node-deletion-batcher-interval", "0s", "gather deletions per group", "AWS takes them one by one"),
    ("duration", "node-deletion-candidate-ttl", "0s", "trust candidate taints after a restart", "nobiru always does"),
    ("int", "max-bulk-soft-taint-count", "10", "most candidate taints changed in a loop; 0: none", ""),
    ("duration", "max-bulk-soft-taint-time", "3s", "time for those", "they are written side by side"),
    ("bool", "cordon-node-before-terminating", "true", "cordon a node with its delete taint", ""),
    ("bool", "daemonset-eviction-for-empty-nodes", "false", "evict DaemonSet pods of empty nodes", ""),
    ("bool", "daemonset-eviction-for-occupied-nodes", "true", "evict DaemonSet pods of drained nodes", ""),
    ("bool", "skip-nodes-with-system-pods", "true", "kube-system pods without a budget keep their node", ""),
    ("duration", "blocking-system-pod-distruption-timeout", "1h", "until they are this old", ""),
    ("bool", "skip-nodes-with-local-storage", "true", "pods with emptyDir or hostPath keep their node", ""),
    ("bool", "skip-nodes-with-custom-controller-pods", "true", "pods of unknown controllers keep their node", ""),
    ("int", "min-replica-count", "0", "ReplicaSets smaller than this keep their pods' nodes", ""),
    ("bool", "node-removal-latency-tracking-enabled", "false", "metric of removal latency", _NOT_YET),
    ("bool", "max-node-skip-eval-time-tracker-enabled", "false", "metric of skipped evaluations", _SIMULATION),
    ("bool", "scale-down-enabled", "true", "remove nodes at all", ""),
]
_AWS = [
    ("bool", "aws-use-static-instance-list", "false", "only the bundled table of instance types", ""),
    ("bool", "clusterapi-cloud-config-authoritative", "false", "Cluster API", _OTHER_CLOUD),
    ("bool", "bulk-mig-instances-listing-enabled", "false", "GCE", _OTHER_CLOUD),
    ("int", "gce-concurrent-refreshes", "1", "GCE", _OTHER_CLOUD),
    ("duration", "gce-mig-instances-min-refresh-wait-time", "5s", "GCE", _OTHER_CLOUD),
    ("string", "cloud-provider-gce-l7lb-src-cidrs", "", "GCE", _OTHER_CLOUD),
    ("string", "cloud-provider-gce-lb-src-cidrs", "", "GCE", _OTHER_CLOUD),
]
_LOGGING = [
    ("int", "v", "0", "verbosity; 4 is customary", ""),
    ("string", "vmodule", "", "verbosity per file", "verbosity is one number here"),
    ("bool", "logtostderr", "true", "log to standard error", ""),
    ("bool", "alsologtostderr", "false", "log to standard error as well as to a file", ""),
    ("string", "stderrthreshold", "INFO", "least severity on standard error: info, warning, error, fatal or 0-3", ""),
    ("bool", "legacy-stderr-threshold-behavior", "false", "the older meaning of that", _LOG_FILES),
    ("string", "log-dir", "", "directory of log files", _LOG_FILES),
    ("string", "log-file", "", "log file", ""),
    ("int", "log-file-max-size", "1800", "its size in MB", "rotate it from outside"),
    ("string", "log-backtrace-at", ":0", "stack at a line", "Go's stacks do not exist here"),
    ("duration", "log-flush-frequency", "5s", "flush", "every line is written at once"),
    ("bool", "one-output", "false", "severity files", _LOG_FILES),
    ("bool", "skip-headers", "false", "no line headers", _LOG_FILES),
    ("bool", "skip-log-headers", "false", "no file headers", _LOG_FILES),
    ("bool", "add-dir-header", "false", "directories in headers", _LOG_FILES),
    ("string", "logging-format", "text", "text or json", ""),
    ("bool", "log-json-split-stream", "false", "JSON in two streams", _LOG_FILES),
    ("string", "log-json-info-buffer-size", "0", "buffer", _LOG_FILES),
    ("bool", "log-text-split-stream", "false", "text in two streams", _LOG_FILES),
    ("string", "log-text-info-buffer-size", "0", "buffer", _LOG_FILES),
]
_RETIRED = [
    ("strings", "ignore-taint", "", "older name of --startup-taint", ""),
    ("bool", "enable-dynamic-resource-allocation", "true", "dynamic resource claims", _NOT_YET),
    ("int", "cluster-snapshot-parallelism", "16", "older name of --predicate-parallelism", _SIMULATION),
    ("int", "max-empty-bulk-delete", "10", "older name of --max-scale-down-parallelism", ""),
    ("bool", "parallel-drain", "true", "the newer way to drain", _REMOVED),
    ("bool", "node-autoprovisioning-enabled", "false", "create groups", _REMOVED),
    ("int", "max-autoprovisioned-node-group-count", "15", "how many", _REMOVED),
    ("bool", "gce-expander-ephemeral-storage-support", "false", "GCE", _REMOVED),
    ("bool", "filter-out-schedulable-pods-uses-packing", "true", "packing", _REMOVED),
    ("string", "configmap", "", "groups from a ConfigMap", _REMOVED),
    ("string", "gke-api-endpoint", "", "GKE", _REMOVED),
    ("duration", "unregistered-node-removal-time", "15m", "older name of --max-node-provision-time", _REMOVED),
    ("duration", "scale-down-delay", "10m", "older name of --scale-down-delay-after-add", _REMOVED),
    ("duration", "scale-down-trial-interval", "1m", "pause between tries", _REMOVED),
    ("bool", "verify-unschedulable-pods", "true", "check pods", _REMOVED),
    ("int", "max-grateful-termination-sec", "60", "older name of --max-graceful-termination-sec", _REMOVED),
]
_NOBIRU = [
    ("string", "compat-version", "", "take the defaults of this Cluster Autoscaler release: 1.2 to 1.37", ""),
    ("bool", "dry-run", "false", "print each plan and act on nothing", ""),
    ("duration", "batch-idle", "100ms", "a loop starts once no news came for this long", ""),
    ("duration", "batch-max", "1s", "and at most this long after the first news", ""),
    ("int", "max-terminations-per-10m", "100", "brake: most instances terminated in ten minutes; 0: no brake", ""),
]

_SECTIONS: tuple[tuple[Section, list[tuple[str, str, str, str, str]]], ...] = (
    ("process", _PROCESS),
    ("groups", _GROUPS),
    ("scale-up", _SCALE_UP),
    ("scale-down", _SCALE_DOWN),
    ("aws", _AWS),
    ("logging", _LOGGING),
    ("retired", _RETIRED),
    ("nobiru", _NOBIRU),
)

FLAGS: tuple[Flag, ...] = tuple(
    _flag(section, kind, name, default, sentence, effect)  # type: ignore[arg-type]
    for section, rows in _SECTIONS
    for kind, name, default, sentence, effect in rows
)

# (flag, release that changed it, default before); Source: spec of changed defaults, releases 1.0 to 1.37.
DEFAULTS_BEFORE: tuple[tuple[str, tuple[int, int], str], ...] = (
    ("expander", (1, 33), "random"),
    ("expendable-pods-priority-cutoff", (1, 12), "0"),
    ("cordon-node-before-terminating", (1, 34), "false"),
    ("scale-down-delay-after-delete", (1, 15), "10s"),  # "scan-interval" then; its default
    ("max-total-unready-percentage", (1, 2), "33"),
    ("max-graceful-termination-sec", (1, 0), "60"),
    ("scale-down-simulation-timeout", (1, 27), "5m"),
    ("frequent-loops-enabled", (1, 35), "false"),
    ("enable-dynamic-resource-allocation", (1, 35), "false"),
    ("leader-elect-resource-lock", (1, 17), "endpoints"),
    ("max-bulk-soft-taint-count", (1, 14), "0"),
    ("daemonset-eviction-for-occupied-nodes", (1, 21), "false"),
    ("node-delete-delay-after-taint", (1, 26), "0s"),
)
NEWEST = (1, 37)
OLDEST = (1, 2)


def defaults(compat: tuple[int, int]) -> dict[str, str]:
    """The default of every flag in that release."""
    newest = {flag.name: flag.default for flag in FLAGS}
    return newest | {name: before for name, changed, before in DEFAULTS_BEFORE if compat < changed}
