"""Metrics have Cluster Autoscaler's names, types and labels, in a text that Prometheus reads."""

import json
import re
from pathlib import Path

import pytest

from nobiru.sinks.metric_table import METRICS, PREFIX
from nobiru.sinks.prometheus import NO_GPU, NodesMetrics

PEER: dict[str, dict[str, list[str]]] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "ca_metrics.json").read_text(encoding="utf-8")
)
ROWS = [(kind, name, labels) for kind, names in PEER.items() for name, labels in names.items()]


class Ticks:
    """A clock that is set by hand, in seconds."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def samples(metrics: NodesMetrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample of the rendered text, by name and labels."""
    lines = re.findall(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$", metrics.render().decode(), re.MULTILINE)
    return {(name, frozenset(re.findall(r'(\w+)="([^"]*)"', labels))): float(value) for name, labels, value in lines}


@pytest.mark.parametrize(("kind", "name", "labels"), ROWS, ids=[row[1] for row in ROWS])
def test_every_metric_of_the_peer_is_there(kind: str, name: str, labels: list[str]) -> None:
    """Name, type and labels are the peer's, and the type stands in the text."""
    metric = next(each for each in METRICS if each.name == name)
    assert (metric.type, list(metric.labels)) == (kind, labels)
    assert f"# TYPE {PREFIX}{name} {kind}\n" in NodesMetrics().render().decode()


def test_nothing_else_has_the_peer_s_prefix() -> None:
    """No metric of ours hides among the peer's, and no _created series is added."""
    text = NodesMetrics().render().decode()
    names = set(re.findall(rf"^# TYPE {PREFIX}(\S+) ", text, re.MULTILINE))
    assert names == {name for _, name, _ in ROWS}
    assert not re.search(r"^\S+_created[{ ]", text, re.MULTILINE)


ZERO_CASES = [
    ("errors_total", {"type": "cloudProviderError"}),
    ("errors_total", {"type": "unexpectedScaleDownStateError"}),
    ("evicted_pods_total", {"eviction_result": "failed"}),
    ("scaled_up_nodes_total", NO_GPU),
    ("scaled_down_nodes_total", {"reason": "empty", **NO_GPU}),
    ("failed_scale_ups_total", {"reason": "timeout", **NO_GPU}),
    ("skipped_scale_events_count", {"direction": "up", "reason": "CpuResourceLimit"}),
    ("old_unregistered_nodes_removed_count", {}),
]


@pytest.mark.parametrize(("name", "labels"), ZERO_CASES)
def test_known_series_start_at_zero(name: str, labels: dict[str, str]) -> None:
    """A counter's series exists before its first event, so that rate() sees that event."""
    assert samples(NodesMetrics())[PREFIX + name, frozenset(labels.items())] == 0


def test_counters_count() -> None:
    """Counters with and without _total in their names grow."""
    metrics = NodesMetrics()
    metrics.scaled_up.labels(*NO_GPU.values()).inc(3)
    metrics.old_unregistered.inc()
    found = samples(metrics)
    assert found[PREFIX + "scaled_up_nodes_total", frozenset(NO_GPU.items())] == 3
    assert found[PREFIX + "old_unregistered_nodes_removed_count", frozenset()] == 1


def test_show_replaces_all_series() -> None:
    """A group that is gone leaves no series behind."""
    metrics = NodesMetrics()
    metrics.show(metrics.group_target, {("a",): 1, ("b",): 2})
    metrics.show(metrics.group_target, {("b",): 3})
    targets = {labels: value for (name, labels), value in samples(metrics).items() if name.endswith("target_count")}
    assert targets == {frozenset({("node_group", "b")}): 3}


def test_durations_feed_histogram_and_quantiles() -> None:
    """One duration is counted in both; quantiles forget what is older than an hour, counts do not."""
    clock = Ticks()
    metrics = NodesMetrics(clock)
    for hundredths in range(1, 101):
        metrics.duration.observe("main", hundredths / 100)
    main = ("function", "main")
    found = samples(metrics)
    summary = PREFIX + "function_duration_quantile_seconds"
    assert found[PREFIX + "function_duration_seconds_count", frozenset({main})] == 100
    assert found[summary + "_count", frozenset({main})] == 100
    assert found[summary + "_sum", frozenset({main})] == pytest.approx(50.5)
    assert found[summary, frozenset({main, ("quantile", "0.5")})] == pytest.approx(0.5, abs=0.011)
    assert found[summary, frozenset({main, ("quantile", "0.99")})] == pytest.approx(0.99, abs=0.011)

    clock.now_s = 3_601
    metrics.duration.observe("main", 7.0)
    found = samples(metrics)
    assert found[summary, frozenset({main, ("quantile", "0.5")})] == 7.0
    assert found[summary + "_count", frozenset({main})] == 101


def test_aws_calls_are_timed() -> None:
    """Calls are counted by endpoint and status."""
    metrics = NodesMetrics()
    metrics.aws_call("DescribeAutoScalingGroups", "success", 0.15)
    labels = {("endpoint", "DescribeAutoScalingGroups"), ("status", "success")}
    found = samples(metrics)
    name = PREFIX + "aws_request_duration_seconds_bucket"
    assert found[name, frozenset(labels | {("le", "0.1")})] == 0
    assert found[name, frozenset(labels | {("le", "0.2")})] == 1
