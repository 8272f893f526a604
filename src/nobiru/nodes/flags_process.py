"""The flags of the process, its groups and limits, its log, and those that only nobiru has: data, nothing else.

Source: cluster-autoscaler 1.37 config/flags; klog and component-base for logging; spec sections 1.1, 1.2, 1.8.
"""

from nobiru.nodes.flag import idle, works

_OTHER_CLOUD = "it belongs to another cloud"
_NOT_YET = "nobiru does not have this yet"
_SIMULATION = "nobiru plans all groups in one pass, which needs no such limit"
_BOUNDED = "nobiru watches instead of polling, and slows down when the API server says so"
_ROTATE = "rotate files from outside"
_ONE_FORM = "lines have one form here"
_ONE_STREAM = "lines go to one stream, unbuffered"

# fmt: off
PROCESS = (
    works("string", "cluster-name", "", "name of the cluster; decides which groups are ours where tags name several clusters"),
    works("string", "address", ":8085", "where metrics, health and the journal are served"),
    works("string", "kubernetes", "", "URL of the API server; empty: in-cluster or a kubeconfig"),
    works("string", "kubeconfig", "", "path of a kubeconfig"),
    idle("string", "kube-api-content-type", "application/vnd.kubernetes.protobuf", "encoding", "nobiru speaks JSON", "application/json"),
    idle("int", "kube-client-burst", "10", "requests to the API server at once", _BOUNDED),
    idle("float", "kube-client-qps", "5", "requests to the API server a second", _BOUNDED),
    works("string", "user-agent", "cluster-autoscaler", "HTTP user agent towards the API server"),
    idle("string", "cloud-config", "", "path of the cloud provider's file", "endpoints come from AWS's standard environment"),
    works("string", "cloud-provider", "aws", "the cloud; only aws"),
    works("string", "namespace", "kube-system", "home of the status ConfigMap and of the leader lock"),
    works("duration", "scan-interval", "10s", "longest pause between two loops; news starts one at once"),
    idle("bool", "frequent-loops-enabled", "true", "loop again at once after progress", "news always starts a loop at once"),
    works("duration", "max-inactivity", "10m", "health: greatest age of the last activity"),
    works("duration", "max-failing-time", "15m", "health: greatest age of the last success"),
    works("duration", "max-startup-time", "20m", "health: time until the first success"),
    idle("bool", "profiling", "false", "serve /debug/pprof", "Go's profiles do not exist here; the path answers 501"),
    idle("bool", "debugging-snapshot-enabled", "false", "serve /snapshotz", "/nobiru/v1/plans shows every plan; the path answers 501"),
    works("bool", "write-status-configmap", "true", "write the status ConfigMap"),
    works("string", "status-config-map-name", "cluster-autoscaler-status", "its name"),
    works("bool", "emit-per-nodegroup-metrics", "false", "metrics per group"),
    works("bool", "record-duplicated-events", "false", "repeat equal events within five minutes"),
    idle("bool", "regional", "false", "the cluster spans zones", _OTHER_CLOUD),
    works("bool", "leader-elect", "true", "act only while holding the leader lock"),
    works("duration", "leader-elect-lease-duration", "15s", "after this long without renewal others may take the lock"),
    works("duration", "leader-elect-renew-deadline", "10s", "the holder gives up after this long without renewal"),
    works("duration", "leader-elect-retry-period", "2s", "pause between tries"),
    works("string", "leader-elect-resource-lock", "leases", "leases, configmaps, endpoints, endpointsleases or configmapsleases"),
    works("string", "leader-elect-resource-name", "cluster-autoscaler", "name of the lock"),
    works("string", "leader-elect-resource-namespace", "", "namespace of the lock; empty: --namespace"),
    idle("map", "feature-gates", "", "component gates", "there are none"),
    idle("string", "scheduler-config-file", "", "KubeSchedulerConfiguration for the simulation", _NOT_YET),
    idle("int", "scheduler-verbosity", "0", "log level of the simulated scheduler", _SIMULATION),
    idle("int", "predicate-parallelism", "4", "parallel predicate checks", _SIMULATION),
)
GROUPS = (
    works("strings", "nodes", "", "a group as min:max:name; repeat for several"),
    works("strings", "node-group-auto-discovery", "", "find groups by tags: asg:tag=key[=value],...; repeat: groups of any"),
    works("int", "max-nodes-total", "0", "most nodes in the whole cluster; 0: no limit", "nodes"),
    works("string", "cores-total", "0:320000", "least and most cores of the cluster, min:max", "cores"),
    works("string", "memory-total", "0:6400000", "least and most memory of the cluster, min:max", "GiB"),
    idle("strings", "gpu-total", "", "limits per accelerator, type:min:max", _NOT_YET),
    idle("bool", "capacity-quotas-enabled", "false", "honour CapacityQuota objects", _NOT_YET),
    works("bool", "enforce-node-group-min-size", "false", "raise groups that are below their minimum"),
    works("int", "ok-total-unready-count", "3", "unready nodes that are always tolerated", "nodes"),
    works("float", "max-total-unready-percentage", "45", "above this share of unready nodes all scaling stops", "percent"),
    works("duration", "max-node-provision-time", "15m", "longest time from request to registered node"),
    works("duration", "max-node-startup-time", "15m", "longest time from registered to ready node"),
    works("duration", "initial-node-group-backoff-duration", "5m", "rest of a group after its first failure"),
    works("duration", "max-node-group-backoff-duration", "30m", "longest rest"),
    works("duration", "node-group-backoff-reset-timeout", "3h", "failures older than this are forgotten"),
    idle("duration", "node-info-cache-expire-time", "87600h", "age of cached templates", "templates follow the cloud's own"),
    works("bool", "force-delete-unregistered-nodes", "false", "ignore the minimum when removing machines without a node"),
    idle("bool", "force-delete-failed-nodes", "false", "the same for failed creations", "such machines never exist on AWS"),
    idle("bool", "async-node-groups", "false", "create groups asynchronously", _OTHER_CLOUD),
)
LOGGING = (
    works("level", "v", "0", "verbosity; from 4 on details are logged"),
    idle("string", "vmodule", "", "verbosity per file", "verbosity is one number here"),
    works("bool", "logtostderr", "true", "log to standard error instead of files"),
    works("bool", "alsologtostderr", "false", "log to standard error as well as to a file"),
    works("string", "stderrthreshold", "INFO", "least severity on standard error: info, warning, error, fatal or 0 to 3"),
    idle("string", "alsologtostderrthreshold", "INFO", "the same for --alsologtostderr", "--stderrthreshold decides"),
    works("bool", "legacy-stderr-threshold-behavior", "false", "that severity counts only for what also goes to a file"),
    works("string", "log-dir", "", "directory of the log file; counts with --logtostderr=false"),
    works("string", "log-file", "", "log file; counts with --logtostderr=false"),
    idle("int", "log-file-max-size", "1800", "its size in MB", _ROTATE, "0"),
    idle("string", "log-backtrace-at", ":0", "stack at a line", "Go's stacks do not exist here"),
    idle("duration", "log-flush-frequency", "5s", "longest time before lines are written", "every line is written at once"),
    idle("bool", "one-output", "false", "one file per severity", "there is one file", "true"),
    idle("bool", "skip-headers", "false", "lines without their beginning", _ONE_FORM),
    idle("bool", "skip-log-headers", "false", "files without their beginning", "files have none", "true"),
    idle("bool", "add-dir-header", "false", "directories in the beginning of lines", _ONE_FORM),
    works("string", "logging-format", "text", "text or json"),
    idle("bool", "log-json-split-stream", "false", "JSON in two streams", _ONE_STREAM),
    idle("string", "log-json-info-buffer-size", "0", "its buffer", _ONE_STREAM),
    idle("bool", "log-text-split-stream", "false", "text in two streams", _ONE_STREAM),
    idle("string", "log-text-info-buffer-size", "0", "its buffer", _ONE_STREAM),
)
NOBIRU = (
    works("string", "compat-version", "", "take the defaults of this Cluster Autoscaler release: 1.2 to 1.37; empty: the newest"),
    works("bool", "dry-run", "false", "log each plan and act on nothing"),
    works("duration", "batch-idle", "100ms", "a loop starts once no news came for this long"),
    works("duration", "batch-max", "1s", "and at most this long after the first news"),
    works("int", "max-terminations-per-10m", "100", "brake: most instances terminated in ten minutes; 0: no brake", "instances"),
)
# fmt: on
