"""Cluster Autoscaler's metrics under its own names, so that dashboards and alerts keep working.

It refuses to know: plans; callers hand in numbers.  Invariant: names, types and labels are those of the table, always.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from nobiru.sinks.metric_table import ERROR_TYPES, METRICS, PREFIX, Metric

NO_GPU = {"gpu_resource_name": "", "gpu_name": "", "dra_drivers": ""}
QUANTILES = (0.5, 0.9, 0.99)  # client-go's component-base defaults
WINDOW_S = 3_600.0  # the peer's MaxAge of the summary
SAMPLES_MAX = 4_096  # newest kept of each function; at 10 loops a second these are the last seven minutes

prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]

# Counters whose names do not end in _total, which prometheus-client insists on: gauges that only grow, and `render` says counter.
_ODD_COUNTERS = tuple(each.name for each in METRICS if each.type == "counter" and not each.name.endswith("_total"))


class Quantiles(Collector):
    """The summary of durations: quantiles over a sliding window, count and sum since the start."""

    def __init__(self, metric: Metric, clock: Callable[[], float]) -> None:
        self._name, self._text, self._clock = PREFIX + metric.name, metric.sentence, clock
        self._recent: dict[str, deque[tuple[float, float]]] = {}
        self._count: dict[str, int] = {}
        self._sum: dict[str, float] = {}

    def observe(self, function: str, seconds: float) -> None:
        self._recent.setdefault(function, deque(maxlen=SAMPLES_MAX)).append((self._clock(), seconds))
        self._count[function] = self._count.get(function, 0) + 1
        self._sum[function] = self._sum.get(function, 0.0) + seconds

    def collect(self) -> Iterator[Family]:
        family = Family(self._name, self._text, "summary")
        since = self._clock() - WINDOW_S
        for function, samples in self._recent.items():
            values = sorted(seconds for at, seconds in samples if at >= since)
            for quantile in QUANTILES:
                value = values[min(len(values) - 1, int(quantile * len(values)))] if values else float("nan")
                family.add_sample(self._name, {"function": function, "quantile": str(quantile)}, value)
            family.add_sample(self._name + "_sum", {"function": function}, self._sum[function])
            family.add_sample(self._name + "_count", {"function": function}, self._count[function])
        yield family


class Durations:
    """The histogram and the summary of the same durations."""

    def __init__(self, histogram: Histogram, quantiles: Quantiles) -> None:
        self._histogram, self._quantiles = histogram, quantiles

    def observe(self, function: str, seconds: float) -> None:
        self._histogram.labels(function).observe(seconds)
        self._quantiles.observe(function, seconds)


class NodesMetrics:
    """The node autoscaler's metrics in a registry of their own."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.registry = CollectorRegistry()
        self._made = {metric.name: self._make(metric, clock) for metric in METRICS}
        prometheus_client.ProcessCollector(registry=self.registry)
        prometheus_client.PlatformCollector(registry=self.registry)
        gauge, counter, histogram = self._gauge, self._counter, self._histogram
        self.safe = gauge("cluster_safe_to_autoscale")
        self.nodes = gauge("nodes_count")
        self.groups = gauge("node_groups_count")
        self.unschedulable = gauge("unschedulable_pods_count")
        self.max_nodes = gauge("max_nodes_count")
        self.cpu = gauge("cluster_cpu_current_cores")
        self.cpu_limits = gauge("cpu_limits_cores")
        self.memory = gauge("cluster_memory_current_bytes")
        self.memory_limits = gauge("memory_limits_bytes")
        self.group_min = gauge("node_group_min_count")
        self.group_max = gauge("node_group_max_count")
        self.group_target = gauge("node_group_target_count")
        self.group_healthy = gauge("node_group_healthiness")
        self.group_backoff = gauge("node_group_backoff_status")
        self.last_activity = gauge("last_activity")
        self.pending_deletions = gauge("pending_node_deletions")
        self.unneeded = gauge("unneeded_nodes_count")
        self.unremovable = gauge("unremovable_nodes_count")
        self.in_cooldown = gauge("scale_down_in_cooldown")
        self.node_taints = gauge("node_taints_count")
        self.errors = counter("errors_total")
        self.scaled_up = counter("scaled_up_nodes_total")
        self.failed_up = counter("failed_scale_ups_total")
        self.failed_nodes = counter("failed_node_creations_total")
        self.scaled_down = counter("scaled_down_nodes_total")
        self.evicted = counter("evicted_pods_total")
        self.old_unregistered = gauge("old_unregistered_nodes_removed_count")
        self.skipped = gauge("skipped_scale_events_count")
        self.aws = histogram("aws_request_duration_seconds")
        self.duration = Durations(histogram("function_duration_seconds"), self._quantiles)
        self._start_at_zero()

    def _make(self, metric: Metric, clock: Callable[[], float]) -> Gauge | Counter | Histogram | Quantiles:
        name, registry = PREFIX + metric.name, self.registry
        if metric.type == "gauge" or metric.name in _ODD_COUNTERS:
            return Gauge(name, metric.sentence, metric.labels, registry=registry)
        if metric.type == "counter":
            return Counter(name, metric.sentence, metric.labels, registry=registry)
        if metric.type == "histogram":
            return Histogram(name, metric.sentence, metric.labels, buckets=metric.buckets, registry=registry)
        self._quantiles = Quantiles(metric, clock)
        registry.register(self._quantiles)
        return self._quantiles

    def _start_at_zero(self) -> None:
        """Series whose labels are known exist from the start, as the peer's: rate() and alerts see the first event."""
        for kind in ERROR_TYPES:
            self.errors.labels(kind)
        for result in ("succeeded", "failed"):
            self.evicted.labels(result)
        for reason in ("cloudProviderError", "apiCallError", "timeout"):
            self.failed_up.labels(reason, *NO_GPU.values())
        for reason in ("empty", "underutilized", "unready"):
            self.scaled_down.labels(reason, *NO_GPU.values())
        self.scaled_up.labels(*NO_GPU.values())
        for direction in ("up", "down"):
            for reason in ("CpuResourceLimit", "MemoryResourceLimit"):
                self.skipped.labels(direction, reason)

    def _gauge(self, name: str) -> Gauge:
        made = self._made[name]
        assert isinstance(made, Gauge)
        return made

    def _counter(self, name: str) -> Counter:
        made = self._made[name]
        assert isinstance(made, Counter)
        return made

    def _histogram(self, name: str) -> Histogram:
        made = self._made[name]
        assert isinstance(made, Histogram)
        return made

    def aws_call(self, endpoint: str, status: str, seconds: float) -> None:
        """One call to AWS; from any thread."""
        self.aws.labels(endpoint, status).observe(seconds)

    def show(self, gauge: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
        """Set a labelled gauge to exactly these values; what is not named any more disappears."""
        gauge.clear()
        for labels, value in values.items():
            gauge.labels(*labels).set(value)

    def render(self) -> bytes:
        """The text that /metrics answers."""
        text = generate_latest(self.registry)
        for name in _ODD_COUNTERS:
            line = f"# TYPE {PREFIX}{name} "
            text = text.replace(f"{line}gauge".encode(), f"{line}counter".encode())
        return text
