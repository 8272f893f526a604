"""Cluster Autoscaler's metrics under its own names, so that dashboards and alerts keep working.

It refuses to know: plans; callers hand in numbers.  Invariant: a metric that nothing feeds is not here.
Source: cluster-autoscaler 1.36 metrics/metrics.go (names, types, labels, buckets).
"""

from collections.abc import Mapping

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

PREFIX = "cluster_autoscaler_"
# 150 buckets from 0.1 s, each 1.07 times the last: up to about half an hour.
_LOOP_BUCKETS = tuple(0.1 * 1.07**step for step in range(150))
_AWS_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
NO_GPU = {"gpu_resource_name": "", "gpu_name": "", "dra_drivers": ""}

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


class NodesMetrics:
    """The node autoscaler's metrics in a registry of their own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        gauge, counter = self._gauge, self._counter
        prometheus_client.ProcessCollector(registry=self.registry)
        prometheus_client.PlatformCollector(registry=self.registry)
        self.safe = gauge("cluster_safe_to_autoscale", "1 while the cluster is healthy enough to scale")
        self.nodes = gauge("nodes_count", "Nodes by state", "state")
        self.groups = gauge("node_groups_count", "Node groups", "node_group_type")
        self.unschedulable = gauge("unschedulable_pods_count", "Pods that wait for room", "type")
        self.max_nodes = gauge("max_nodes_count", "Most nodes that all groups may have together")
        self.cpu = gauge("cluster_cpu_current_cores", "Cores of all nodes")
        self.cpu_limits = gauge("cpu_limits_cores", "Least and most cores of the cluster", "direction")
        self.memory = gauge("cluster_memory_current_bytes", "Memory of all nodes")
        self.memory_limits = gauge("memory_limits_bytes", "Least and most memory of the cluster", "direction")
        self.group_min = gauge("node_group_min_count", "Least nodes of a group", "node_group")
        self.group_max = gauge("node_group_max_count", "Most nodes of a group", "node_group")
        self.group_target = gauge("node_group_target_count", "Wanted nodes of a group", "node_group")
        self.group_healthy = gauge("node_group_healthiness", "1 while a group is healthy", "node_group")
        self.group_backoff = gauge(
            "node_group_backoff_status", "1 while a group rests after a failure", "node_group", "reason"
        )
        self.last_activity = gauge("last_activity", "When a part last ran, in seconds since the epoch", "activity")
        self.pending_deletions = gauge("pending_node_deletions", "Nodes being removed")
        self.unneeded = gauge("unneeded_nodes_count", "Nodes that could go")
        self.unremovable = gauge("unremovable_nodes_count", "Nodes that cannot go, by reason", "reason")
        self.in_cooldown = gauge("scale_down_in_cooldown", "1 while scale-down waits")
        self.node_taints = gauge("node_taints_count", "Taints on nodes, by type", "type")
        self.errors = counter("errors_total", "Failed loops and calls, by type", "type")
        self.scaled_up = counter("scaled_up_nodes_total", "Nodes asked for", *NO_GPU)
        self.failed_up = counter("failed_scale_ups_total", "Scale-ups that failed", "reason", *NO_GPU)
        self.scaled_down = counter("scaled_down_nodes_total", "Nodes removed", "reason", *NO_GPU)
        self.evicted = counter("evicted_pods_total", "Evictions", "eviction_result")
        # Counters by meaning whose names do not end in _total, which prometheus-client insists on: gauges that only grow.
        self.old_unregistered = gauge(
            "old_unregistered_nodes_removed_count", "Machines without a node that were removed"
        )
        self.skipped = gauge("skipped_scale_events_count", "Scaling skipped for a limit", "direction", "reason")
        self.duration = Histogram(
            PREFIX + "function_duration_seconds",
            "Time taken by the parts of a loop",
            ["function"],
            buckets=_LOOP_BUCKETS,
            registry=self.registry,
        )
        self.aws = Histogram(
            PREFIX + "aws_request_duration_seconds",
            "Time taken by AWS calls",
            ["endpoint", "status"],
            buckets=_AWS_BUCKETS,
            registry=self.registry,
        )

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(PREFIX + name, text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(PREFIX + name, text, labels, registry=self.registry)

    def aws_call(self, endpoint: str, status: str, seconds: float) -> None:
        """One call to AWS; from any thread."""
        self.aws.labels(endpoint, status).observe(seconds)

    def show(self, gauge: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
        """Set a labelled gauge to exactly these values; what is not named any more disappears."""
        gauge.clear()
        for labels, value in values.items():
            gauge.labels(*labels).set(value)

    def render(self) -> bytes:
        """The text that /metrics answers; slow with many series, so callers render in a thread."""
        return generate_latest(self.registry)
