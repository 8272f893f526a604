"""A loop in numbers: Cluster Autoscaler's gauges and counters from a Snapshot, its Plan and the Outcomes.

It refuses to know: where the numbers are served.
"""

from collections import Counter as Tally
from collections.abc import Iterable
from contextlib import suppress

from nobiru.kernel.errors import QuantityError
from nobiru.kernel.objects import Node
from nobiru.kernel.quantity import resource_amount
from nobiru.kernel.reason import Reason
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import Evict, Memory, Outcome, Plan, RaiseDesired, Snapshot, Terminate
from nobiru.nodes.plan.health import taint_rules
from nobiru.nodes.plan.marks import DELETE_TAINT
from nobiru.sinks.prometheus import NO_GPU, NodesMetrics

# The peer's names for the limits that leave scaling out.
SKIPPED_FOR = {"--cores-total": "CpuResourceLimit", "--memory-total": "MemoryResourceLimit"}


def measure(
    metrics: NodesMetrics,
    snap: Snapshot,
    plan: Plan,
    outcomes: Iterable[Outcome],
    memory: Memory,
    config: NodesConfig,
) -> None:
    """Set the gauges and count what happened in one loop."""
    reports = plan.reports
    metrics.safe.set(1 if plan.healthy else 0)
    states = {
        "ready": sum(each.ready for each in reports),
        "unready": sum(each.unready for each in reports),
        "notStarted": sum(each.not_started for each in reports),
        "suspended": 0,
        "unregistered": sum(each.unregistered for each in reports),
        "longUnregistered": sum(each.long_unregistered for each in reports),
    }
    metrics.show(metrics.nodes, {(state,): count for state, count in states.items()})
    metrics.groups.labels("autoscaled").set(len(reports))
    pending = sum(len(each.pods) for each in snap.cluster.pending)
    metrics.unschedulable.labels("unschedulable").set(pending)
    metrics.max_nodes.set(sum(each.max_size for each in reports))
    cpu_milli, memory_bytes = capacity_in_use(snap.cluster.nodes.nodes)
    metrics.cpu.set(cpu_milli / 1000)
    metrics.memory.set(memory_bytes)
    metrics.unneeded.set(len(plan.unneeded))
    metrics.pending_deletions.set(sum(each.being_deleted for each in reports))
    whys = Tally(why.reason.peer for why in plan.nodes.values() if why.reason.peer)
    metrics.show(metrics.unremovable, {(peer,): count for peer, count in whys.items()})
    rules = taint_rules(config)
    taints = Tally(rules.kind(taint.key) for node in snap.cluster.nodes.nodes for taint in node.taints)
    metrics.show(metrics.node_taints, {(kind,): count for kind, count in taints.items()})
    for direction, whys_there, limit in (
        ("up", plan.groups.values(), Reason.RESOURCE_LIMIT),
        ("down", plan.nodes.values(), Reason.MINIMAL_RESOURCE_LIMIT),
    ):
        for why in whys_there:
            if why.reason is limit and why.detail in SKIPPED_FOR:
                metrics.skipped.labels(direction, SKIPPED_FOR[why.detail]).inc()
    cooling = any(why.reason is Reason.COOLDOWN for why in plan.nodes.values())
    metrics.in_cooldown.set(1 if cooling else 0)
    if config.process.per_group_metrics:
        metrics.show(metrics.group_min, {(each.name,): each.min_size for each in reports})
        metrics.show(metrics.group_max, {(each.name,): each.max_size for each in reports})
        metrics.show(metrics.group_target, {(each.name,): each.target for each in reports})
        metrics.show(metrics.group_healthy, {(each.name,): each.healthy for each in reports})
        resting = {name: each for name, each in memory.backoff.items() if plan.now_ms < each.until_ms}
        metrics.show(metrics.group_backoff, {(name, each.code): 1 for name, each in resting.items()})
    for failure in plan.failures:
        metrics.failed_up.labels(failure.code, *NO_GPU.values()).inc()
        metrics.failed_nodes.labels(failure.code).inc(failure.count)
    for outcome in outcomes:
        _count(metrics, outcome, plan.now_ms)


def _count(metrics: NodesMetrics, outcome: Outcome, now_ms: int) -> None:
    gpu, now_s = NO_GPU.values(), now_ms / 1000
    match outcome.action:
        case RaiseDesired(start=start, target=target):
            if outcome.ok:
                reached = target if outcome.reached is None else outcome.reached
                metrics.scaled_up.labels(*gpu).inc(max(0, reached - start))
                metrics.last_activity.labels("scaleUp").set(now_s)
            else:
                metrics.failed_up.labels("apiCallError", *gpu).inc()
                metrics.errors.labels("cloudProviderError").inc()
        case Terminate(reason=reason):
            if not outcome.ok:
                metrics.errors.labels("cloudProviderError").inc()
            elif reason == "unregistered":
                metrics.old_unregistered.inc()
            else:
                metrics.scaled_down.labels(reason, *gpu).inc()
                metrics.last_activity.labels("scaleDown").set(now_s)
        case Evict():
            metrics.evicted.labels("succeeded" if outcome.ok else "failed").inc()
        case _:
            if not outcome.ok:
                metrics.errors.labels("apiCallError").inc()


def capacity_in_use(nodes: Iterable[Node]) -> tuple[int, int]:
    """(millicores, bytes) of all nodes but those being removed; what a node reports unreadably counts as nothing."""
    texts: Tally[tuple[str, str]] = Tally()
    for node in nodes:
        if all(taint.key != DELETE_TAINT for taint in node.taints):
            capacity = node.status.capacity or {}
            texts[capacity.get("cpu", "0"), capacity.get("memory", "0")] += 1
    cpu_milli = memory_bytes = 0
    for (cpu, memory), count in texts.items():
        with suppress(QuantityError):
            cpu_milli += resource_amount("cpu", cpu) * count
            memory_bytes += resource_amount("memory", memory) * count
    return cpu_milli, memory_bytes
