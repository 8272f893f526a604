"""A loop in numbers."""

import pytest

from nobiru.kernel.objects import Taint
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.measure import measure
from nobiru.nodes.model import Memory, Outcome, RaiseDesired
from nobiru.nodes.plan.decide import decide
from nobiru.sinks.metric_table import PREFIX
from nobiru.sinks.prometheus import NO_GPU, NodesMetrics
from tests.unit.nodes.builders_down import NOW_MS, flags, node
from tests.unit.nodes.builders_up import group, pending, world

UP = "startup-taint.cluster-autoscaler.kubernetes.io/"
OLD = "ignore-taint.cluster-autoscaler.kubernetes.io/"
STATUS = "status-taint.cluster-autoscaler.kubernetes.io/"


def value(metrics: NodesMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(PREFIX + name, labels)


TAINTS = [
    ("ToBeDeletedByClusterAutoscaler", "ToBeDeletedByClusterAutoscaler"),
    ("node.kubernetes.io/unreachable", "node.kubernetes.io/unreachable"),
    (f"{UP}x", "startup-taint"),
    (f"{OLD}x", OLD),
    (f"{STATUS}x", "status-taint"),
    ("given", "startup-taint"),
    ("dedicated", "other"),
]


@pytest.mark.parametrize(("key", "kind"), TAINTS)
def test_taints_are_counted_by_the_peers_kinds(key: str, kind: str) -> None:
    """Well-known taints by their own keys, the others by what flags and prefixes make of them."""
    config = flags(startup_taint="given")
    snap = world([], [], [node("n", taints=[Taint(key=key, effect="NoSchedule")])])
    metrics = NodesMetrics()
    measure(metrics, snap, decide(snap, Memory(), config), (), Memory(), config)

    assert value(metrics, "node_taints_count", type=kind) == 1


LIMITS = [
    (flags(cores_total="0:1"), "up", "CpuResourceLimit", 1),
    (flags(memory_total="0:1"), "up", "MemoryResourceLimit", 1),
    (flags(), "up", "CpuResourceLimit", 0),
]


@pytest.mark.parametrize(("config", "direction", "reason", "want"), LIMITS)
def test_scaling_left_out_for_a_limit_is_counted(config: NodesConfig, direction: str, reason: str, want: int) -> None:
    """A pod waits, its group could grow, the cluster's limit forbids: one more of the peer's skipped events."""
    snap = world([group("a")], [pending("p")], [node("n", cpu="100m")])
    plan = decide(snap, Memory(), config)
    metrics = NodesMetrics()
    measure(metrics, snap, plan, (), Memory(), config)

    assert value(metrics, "skipped_scale_events_count", direction=direction, reason=reason) == want


def test_nodes_asked_for_are_those_that_aws_took() -> None:
    """A raise that the group's own maximum cut short counts what it reached."""
    snap = world([], [])
    raised = Outcome(action=RaiseDesired(group="a", start=1, target=5, max_size=5), reached=3)
    metrics = NodesMetrics()
    measure(metrics, snap, decide(snap, Memory(), flags()), (raised,), Memory(), flags())

    assert value(metrics, "scaled_up_nodes_total", **NO_GPU) == 2
    assert value(metrics, "last_activity", activity="scaleUp") == NOW_MS / 1000
