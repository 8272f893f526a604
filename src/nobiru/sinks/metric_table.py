"""Cluster Autoscaler's metrics as data: names, types and labels are its own, the sentences are ours.

Source: cluster-autoscaler 1.36 metrics/metrics.go and cloudprovider/aws/aws_metrics.go; spec section 5.3.
"""

from typing import Literal

from msgspec import Struct

PREFIX = "cluster_autoscaler_"
GPU_LABELS = ("gpu_resource_name", "gpu_name", "dra_drivers")
OLD_GPU_LABELS = ("gpu_resource_name", "gpu_name")

# The peer's released buckets, 0.01 s times 1.5 to the n, and three below: a loop here takes milliseconds.
LOOP_BUCKETS_S = (0.001, 0.0025, 0.005, *(0.01 * 1.5**step for step in range(30)))
AWS_BUCKETS_S = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0)
CLASS_BUCKETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
REMOVAL_BUCKETS_S = tuple(1.5**step for step in range(19))


class Metric(Struct, frozen=True):
    """One metric; `idle` says why its value never changes here, "" where it does."""

    type: Literal["gauge", "counter", "histogram", "summary"]
    name: str
    sentence: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    idle: str = ""


_ESTIMATE_LABELS = ("instance_type", "cpu_count", "namespace_count")
_REMOVAL_LABELS = ("deleted", "delay_reason")
_ONE_PLAN = "all groups share one plan"
_NOT_YET = "not measured yet"
_NO_GPU = "nodes with GPUs are counted with all others"
_NO_CREATION = "nobiru creates no groups"
_OTHER_CLOUD = "another cloud's"
_NO_CLAIMS = "dynamic resource claims are not planned for yet"

# fmt: off
METRICS: tuple[Metric, ...] = (
    Metric("gauge", "cluster_safe_to_autoscale", "1 while the cluster is healthy enough to scale, else 0"),
    Metric("gauge", "nodes_count", "Nodes by state: ready, unready, notStarted, suspended, unregistered, longUnregistered", ("state",)),
    Metric("gauge", "node_groups_count", "Node groups: autoscaled, autoprovisioned", ("node_group_type",)),
    Metric("gauge", "unschedulable_pods_count", "Pods that wait for room: unschedulable, scheduler_unprocessed", ("type",)),
    Metric("gauge", "skipped_pods_count", "Pods that are not planned for, by who asked", ("requestor",), idle="nobody can ask yet"),
    Metric("gauge", "max_nodes_count", "Most nodes that all groups may have together"),
    Metric("gauge", "cluster_cpu_current_cores", "Cores of all nodes but those being removed"),
    Metric("gauge", "cpu_limits_cores", "Least and most cores of the cluster: minimum, maximum", ("direction",)),
    Metric("gauge", "cluster_memory_current_bytes", "Memory of all nodes but those being removed"),
    Metric("gauge", "memory_limits_bytes", "Least and most memory of the cluster: minimum, maximum", ("direction",)),
    Metric("gauge", "node_group_min_count", "Least nodes of a group; with --emit-per-nodegroup-metrics", ("node_group",)),
    Metric("gauge", "node_group_max_count", "Most nodes of a group; with --emit-per-nodegroup-metrics", ("node_group",)),
    Metric("gauge", "node_group_target_count", "Wanted nodes of a group; with --emit-per-nodegroup-metrics", ("node_group",)),
    Metric("gauge", "node_group_healthiness", "1 while a group is healthy, else 0; with --emit-per-nodegroup-metrics", ("node_group",)),
    Metric("gauge", "node_group_backoff_status", "1 while a group rests; with --emit-per-nodegroup-metrics", ("node_group", "reason")),
    Metric("gauge", "last_activity", "When a part last ran, seconds since 1970: main, autoscaling, scaleUp, scaleDown", ("activity",)),
    Metric("gauge", "pending_node_deletions", "Nodes being removed"),
    Metric("gauge", "unneeded_nodes_count", "Nodes that could go"),
    Metric("gauge", "unremovable_nodes_count", "Nodes that cannot go, by reason", ("reason",)),
    Metric("gauge", "scale_down_in_cooldown", "1 while scale-down waits after a change, else 0"),
    Metric("gauge", "overflowing_controllers_count", "Controllers with too many kinds of pods", idle="there is no such limit"),
    Metric("gauge", "node_taints_count", "Taints on nodes, by type", ("type",)),
    Metric("gauge", "max_node_skip_eval_duration_seconds", "Longest time a node was not looked at", idle="every loop looks at every node"),
    Metric("gauge", "inconsistent_instances_migs_count", "Groups whose listings differ", idle=_OTHER_CLOUD),
    Metric("gauge", "dra_node_template_resources_mismatch", "Templates unlike their nodes", ("driver", "mismatch_type"), idle=_NO_CLAIMS),
    Metric("histogram", "function_duration_seconds", "Time taken by the parts of a loop", ("function",), LOOP_BUCKETS_S),
    Metric("histogram", "binpacking_heterogeneity", "Kinds of pods in one estimate", _ESTIMATE_LABELS, CLASS_BUCKETS, _ONE_PLAN),
    Metric("histogram", "node_removal_latency_seconds", "Time from unneeded to gone", _REMOVAL_LABELS, REMOVAL_BUCKETS_S, _NOT_YET),
    Metric("histogram", "aws_request_duration_seconds", "Time taken by AWS calls", ("endpoint", "status"), AWS_BUCKETS_S),
    Metric("summary", "function_duration_quantile_seconds", "Quantiles of that time over the last hour", ("function",)),
    Metric("counter", "errors_total", "Failed loops and calls, by type", ("type",)),
    Metric("counter", "scaled_up_nodes_total", "Nodes asked for", GPU_LABELS),
    Metric("counter", "scaled_up_gpu_nodes_total", "Nodes with GPUs asked for", OLD_GPU_LABELS, idle=_NO_GPU),
    Metric("counter", "failed_scale_ups_total", "Scale-ups that failed, by reason", ("reason", *GPU_LABELS)),
    Metric("counter", "failed_node_creations_total", "Nodes that were asked for and did not come, by reason", ("reason",)),
    Metric("counter", "failed_gpu_scale_ups_total", "Scale-ups of groups with GPUs that failed", ("reason", *OLD_GPU_LABELS), idle=_NO_GPU),
    Metric("counter", "scaled_down_nodes_total", "Nodes removed: empty, underutilized, unready", ("reason", *GPU_LABELS)),
    Metric("counter", "scaled_down_gpu_nodes_total", "Nodes with GPUs removed", ("reason", *OLD_GPU_LABELS), idle=_NO_GPU),
    Metric("counter", "evicted_pods_total", "Evictions: succeeded, failed", ("eviction_result",)),
    Metric("counter", "old_unregistered_nodes_removed_count", "Machines without a node that were removed"),
    Metric("counter", "skipped_scale_events_count", "Scaling left out for a limit of the cluster", ("direction", "reason")),
    Metric("counter", "created_node_groups_total", "Groups created", ("group_type",), idle=_NO_CREATION),
    Metric("counter", "deleted_node_groups_total", "Groups deleted", ("group_type",), idle=_NO_CREATION),
)
# fmt: on

ERROR_TYPES = (
    "cloudProviderError",
    "apiCallError",
    "internalError",
    "transientError",
    "configurationError",
    "nodeGroupDoesNotExistError",
    "unexpectedScaleDownStateError",
)


def metrics_page() -> str:
    """docs/reference/metrics.md."""
    lines = [
        "# Metrics of `nobiru nodes`",
        "",
        "Made from `src/nobiru/sinks/metric_table.py`; `python -m tests.docs.update` makes it again.",
        "",
        "Served at `/metrics` on `--address`, in Prometheus' text format, by every replica, leader or not.",
        f"Every name has the prefix `{PREFIX}`; names, types and labels are Cluster Autoscaler's.",
        "Series of counters with few values exist from the start with 0, so that `rate()` and alerts see the first event.",
        "",
        "| metric | type | labels | meaning |",
        "|---|---|---|---|",
    ]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        idle = f" (never changes: {metric.idle})" if metric.idle else ""
        lines.append(f"| `{metric.name}` | {metric.type} | {labels} | {metric.sentence}{idle} |")
    return "\n".join(lines) + "\n"
