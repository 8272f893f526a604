"""The flags of scale-up and scale-down: data, nothing else.

Source: cluster-autoscaler 1.37 config/flags; spec sections 1.3, 1.4.
"""

from nobiru.nodes.flag import idle, works

_NOT_YET = "nobiru does not have this yet"
_SIMULATION = "nobiru plans all groups in one pass, which needs no such limit"
_ALWAYS = "nobiru always does"
_REQUESTS = "ProvisioningRequests are not planned for yet"
_BUFFERS = "CapacityBuffers are not planned for yet"
_UNUSED = "Cluster Autoscaler itself does not use it any more"

# fmt: off
SCALE_UP = (
    idle("bool", "scale-up-from-zero", "true", "act while no node is ready", _ALWAYS),
    works("string", "expander", "least-waste", "which group to grow: a comma chain of least-waste, most-pods, least-nodes, random"),
    idle("string", "grpc-expander-url", "", "address of an external expander", _NOT_YET),
    idle("string", "grpc-expander-cert", "", "its certificate", _NOT_YET),
    works("string", "estimator", "binpacking", "how new nodes are counted; only binpacking"),
    idle("bool", "balance-similar-node-groups", "false", "spread growth over similar groups", _NOT_YET),
    idle("strings", "balancing-ignore-label", "", "a label to ignore when groups are compared", _NOT_YET),
    idle("strings", "balancing-label", "", "a label that alone makes groups similar", _NOT_YET),
    idle("float", "memory-difference-ratio", "0.015", "tolerance of memory between similar groups", _NOT_YET),
    idle("float", "max-free-difference-ratio", "0.05", "tolerance of free resources", _NOT_YET),
    idle("float", "max-allocatable-difference-ratio", "0.05", "tolerance of allocatable", _NOT_YET),
    works("int", "max-nodes-per-scaleup", "1000", "most machines asked of one group in one plan", "nodes"),
    idle("duration", "max-nodegroup-binpacking-duration", "10s", "time limit of one estimate", _SIMULATION),
    idle("duration", "max-binpacking-time", "5m", "time limit of all estimates", _SIMULATION),
    idle("bool", "fastpath-binpacking-enabled", "false", "extrapolate from one full node", _SIMULATION),
    idle("bool", "enable-inter-pod-affinity-hostname-fast-path", "false", "cheaper hostname affinity", _SIMULATION),
    idle("bool", "parallel-scale-up", "false", "resize groups side by side", _ALWAYS, "true"),
    idle("bool", "salvo-scale-up", "false", "several decisions per loop", _ALWAYS, "true"),
    idle("duration", "salvo-scale-up-budget", "1m", "time for those", _SIMULATION),
    works("duration", "new-pod-scale-up-delay", "0s", "pods younger than this are ignored"),
    works("int", "expendable-pods-priority-cutoff", "-10", "pods of lower priority never cause or block anything", "priority"),
    idle("bool", "force-ds", "false", "new nodes must hold all suitable DaemonSets", "nobiru always counts them", "true"),
    idle("bool", "scale-from-unschedulable", "false", "ignore a cordon on the template node", _ALWAYS, "true"),
    works("strings", "startup-taint", "", "a node with this taint is still starting"),
    works("strings", "startup-taint-prefix", "", "the same by prefix"),
    works("strings", "status-taint", "", "a taint that says nothing about a new node"),
    idle("slice", "bypassed-scheduler-names", "", "treat unprocessed pods of these schedulers as pending", _NOT_YET),
    works("slice", "allowed-scheduler-names", "", "only pods of these schedulers count; empty: all"),
    idle("bool", "scaleup-simulation-for-skipped-node-groups-enabled", "false", "explain skipped groups", _ALWAYS, "true"),
    idle("duration", "pending-pods-batching-timeout", "4m", "time limit of a simulation", _SIMULATION),
    idle("bool", "enable-graceful-degradation", "false", "reserve loops for scale-down", _SIMULATION),
    idle("bool", "enable-proactive-scaleup", "false", "count replicas that do not exist yet", _ALWAYS, "true"),
    works("int", "pod-injection-limit", "5000", "most of those", "pods"),
    idle("bool", "enable-csi-node-aware-scheduling", "false", "count volume limits", _NOT_YET),
    idle("bool", "enable-provisioning-requests", "false", "ProvisioningRequest objects", _REQUESTS),
    idle("duration", "provisioning-request-initial-backoff-time", "1m", "pause before the first retry", _REQUESTS),
    idle("duration", "provisioning-request-max-backoff-time", "10m", "longest pause", _REQUESTS),
    idle("int", "provisioning-request-max-backoff-cache-size", "1000", "requests remembered", _REQUESTS),
    idle("bool", "check-capacity-batch-processing", "false", "batches of requests", _REQUESTS),
    idle("int", "check-capacity-provisioning-request-max-batch-size", "10", "their size", _REQUESTS),
    idle("duration", "check-capacity-provisioning-request-batch-timebox", "10s", "their time", _REQUESTS),
    idle("string", "check-capacity-processor-instance", "", "only requests that name this instance", _REQUESTS),
    idle("bool", "capacity-buffer-controller-enabled", "false", "reconcile CapacityBuffers", _BUFFERS),
    idle("bool", "capacity-buffer-pod-injection-enabled", "false", "count their pods", _BUFFERS),
    idle("bool", "capacity-buffer-pod-dry-run-enabled", "true", "check their pods by a dry run", _BUFFERS),
)
SCALE_DOWN = (
    works("bool", "scale-down-enabled", "true", "remove nodes at all"),
    works("bool", "scale-down-unready-enabled", "true", "unready nodes may be removed"),
    works("duration", "scale-down-delay-after-add", "10m", "pause after a scale-up"),
    works("duration", "scale-down-delay-after-delete", "0s", "pause after a removal"),
    works("duration", "scale-down-delay-after-failure", "3m", "pause after a failed removal"),
    works("bool", "scale-down-delay-type-local", "false", "those pauses per group"),
    works("duration", "scale-down-unneeded-time", "10m", "a node is removed once unneeded for this long"),
    works("duration", "scale-down-unready-time", "20m", "the same for unready nodes"),
    works("float", "scale-down-utilization-threshold", "0.5", "a node used above this share is needed", "ratio"),
    works("float", "scale-down-gpu-utilization-threshold", "0.5", "the same for nodes with GPUs, by GPU alone", "ratio"),
    works("bool", "ignore-daemonsets-utilization", "false", "leave DaemonSet pods out of that share"),
    works("bool", "ignore-mirror-pods-utilization", "false", "leave mirror pods out of that share"),
    idle("duration", "scale-down-simulation-timeout", "30s", "time limit of a simulation", _SIMULATION),
    idle("int", "scale-down-non-empty-candidates-count", "30", "candidates in a loop", _UNUSED),
    idle("float", "scale-down-candidates-pool-ratio", "0.1", "candidates in a loop", _UNUSED),
    idle("int", "scale-down-candidates-pool-min-count", "50", "candidates in a loop", _UNUSED),
    works("duration", "unremovable-node-recheck-timeout", "5m", "rest of a node that could not be removed"),
    works("int", "max-scale-down-parallelism", "10", "most nodes being removed at once", "nodes"),
    works("int", "max-drain-parallelism", "1", "most of those that need draining", "nodes"),
    works("int", "max-graceful-termination-sec", "600", "most time a pod gets to end; 0: its own", "seconds"),
    works("string", "drain-priority-config", "", "priority:seconds,... evict by priority with these grace periods"),
    works("duration", "max-pod-eviction-time", "2m", "how long an eviction is retried"),
    works("duration", "node-delete-delay-after-taint", "5s", "pause between taint and re-check"),
    idle("bool", "dynamic-node-delete-delay-after-taint-enabled", "false", "derive that pause", _NOT_YET),
    works("duration", "node-deletion-delay-timeout", "2m", "how long delay-deletion annotations are waited for"),
    idle("duration", "node-deletion-batcher-interval", "0s", "gather deletions per group", "AWS takes them one by one"),
    idle("duration", "node-deletion-candidate-ttl", "0s", "trust candidate taints after a restart", "their age is always trusted"),
    works("int", "max-bulk-soft-taint-count", "10", "most candidate taints changed in a loop; 0: none", "nodes"),
    idle("duration", "max-bulk-soft-taint-time", "3s", "time for those", "they are written side by side"),
    works("bool", "cordon-node-before-terminating", "true", "cordon a node with its delete taint"),
    works("bool", "daemonset-eviction-for-empty-nodes", "false", "evict DaemonSet pods of empty nodes"),
    works("bool", "daemonset-eviction-for-occupied-nodes", "true", "evict DaemonSet pods of drained nodes"),
    works("bool", "skip-nodes-with-system-pods", "true", "kube-system pods without a PodDisruptionBudget keep their node"),
    works("duration", "blocking-system-pod-distruption-timeout", "1h", "until they are this old"),
    works("bool", "skip-nodes-with-local-storage", "true", "pods with emptyDir or hostPath keep their node"),
    works("bool", "skip-nodes-with-custom-controller-pods", "true", "pods of unknown controllers keep their node"),
    works("int", "min-replica-count", "0", "controllers with fewer replicas keep their pods' nodes", "replicas"),
    idle("bool", "node-removal-latency-tracking-enabled", "false", "metric of removal latency", _NOT_YET),
    idle("bool", "max-node-skip-eval-time-tracker-enabled", "false", "metric of skipped evaluations", "every loop looks at every node"),
)
# fmt: on
