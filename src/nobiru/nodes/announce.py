"""The events of one loop, with Cluster Autoscaler's reasons and texts, from the Plan and its Outcomes alone.

Pure.  Unlike the peer's, a pod that finds no room is told so even while other pods trigger a scale-up.
Source: cluster-autoscaler 1.36 processors/status/eventing_scale_up_processor.go, core/scaledown/status; spec: section 5.2.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from nobiru.kernel.duration import format_duration
from nobiru.kernel.objects import Key
from nobiru.kernel.reason import Reason
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import (
    BeginRemoval,
    Evict,
    Failure,
    Outcome,
    Plan,
    PodGroupWhy,
    RaiseDesired,
    RollBack,
    Terminate,
    Value,
)

NORMAL: Literal["Normal"] = "Normal"
WARNING: Literal["Warning"] = "Warning"
TIMEOUT_CODE = "timeout"


class Announcement(Value, frozen=True, kw_only=True):
    """One event: on a pod, a node, or (kind "status") the status ConfigMap."""

    kind: Literal["pod", "node", "status"]
    key: Key = ("", "")
    type: Literal["Normal", "Warning"] = NORMAL
    reason: str
    message: str


# Pods left alone for these reasons get no event: they did not ask for a machine, or they will have one.
_SILENT = frozenset(
    {
        Reason.FITS_ON_EXISTING_NODE,
        Reason.FITS_ON_UPCOMING_NODE,
        Reason.NODE_GROUP_GROWS,
        Reason.EXPENDABLE,
        Reason.DAEMON_POD,
        Reason.OTHER_SCHEDULER,
        Reason.POD_BEING_DELETED,
        Reason.TOO_YOUNG,
    }
)


def announcements(plan: Plan, outcomes: Sequence[Outcome], config: NodesConfig) -> Iterator[Announcement]:
    """All events of a loop, scale-up first."""
    for outcome in outcomes:
        match outcome.action:
            case RaiseDesired():
                yield from _raised(outcome, outcome.action)
            case BeginRemoval():
                yield from _begun(outcome, outcome.action)
            case Evict():
                yield from _evicted(outcome, outcome.action)
            case Terminate():
                yield from _terminated(outcome, outcome.action)
            case RollBack(node=node, why=why):
                yield _node(node, WARNING, "ScaleDownFailed", f"failed to drain the node, aborting ScaleDown: {why}")
    for told in plan.pods:
        yield from _not_triggered(told)
    for failure in plan.failures:
        yield _failed(failure, config)
    for problem in plan.problems:
        yield _status(WARNING, "NodeGroupProblem", problem)
    if not plan.healthy:
        yield _status(WARNING, "ClusterUnhealthy", "Cluster is unhealthy")


def _status(type_: Literal["Normal", "Warning"], reason: str, message: str) -> Announcement:
    return Announcement(kind="status", type=type_, reason=reason, message=message)


def _node(name: str, type_: Literal["Normal", "Warning"], reason: str, message: str) -> Announcement:
    return Announcement(kind="node", key=("", name), type=type_, reason=reason, message=message)


def _pods(
    keys: Iterable[Key], type_: Literal["Normal", "Warning"], reason: str, message: str
) -> Iterator[Announcement]:
    for key in keys:
        yield Announcement(kind="pod", key=key, type=type_, reason=reason, message=message)


def _raised(outcome: Outcome, action: RaiseDesired) -> Iterator[Announcement]:
    group, start, limit = action.group, action.start, action.max_size
    if not outcome.ok:
        yield _status(WARNING, "FailedToScaleUpGroup", f"Scale-up failed for group {group}: {outcome.error}")
        return
    target = outcome.reached if outcome.reached is not None else action.target
    text = f"Scale-up: group {group} size set to {target} instead of {start} (max: {limit})"
    yield _status(NORMAL, "ScaledUpGroup", text)
    message = f"pod triggered scale-up: [{{{group} {start}->{target} (max: {limit})}}]"
    yield from _pods(action.pods, NORMAL, "TriggeredScaleUp", message)


def _begun(outcome: Outcome, action: BeginRemoval) -> Iterator[Announcement]:
    node = action.node
    if not outcome.ok:
        text = f"failed to mark the node as toBeDeleted/unschedulable: {outcome.error}"
        yield _node(node, WARNING, "ScaleDownFailed", text)
        return
    yield _node(node, NORMAL, "ScaleDown", "marked the node as toBeDeleted/unschedulable")
    if action.empty:
        yield _status(NORMAL, "ScaleDownEmpty", f'Scale-down: removing empty node "{node}"')
        return
    names = ",".join(name for _, name in action.pods)
    text = f"Scale-down: removing node {node}, utilization: {action.utilization:.3f}, pods to reschedule: {names}"
    yield _status(NORMAL, "ScaleDown", text)


def _evicted(outcome: Outcome, action: Evict) -> Iterator[Announcement]:
    if outcome.ok:
        yield from _pods([action.pod], NORMAL, "ScaleDown", "deleting pod for node scale down")
    else:
        text = f"failed to delete pod for ScaleDown: {outcome.error}"
        yield from _pods([action.pod], WARNING, "ScaleDownFailed", text)


def _terminated(outcome: Outcome, action: Terminate) -> Iterator[Announcement]:
    node = action.node
    if action.reason == "unregistered":
        if outcome.ok:
            yield _status(NORMAL, "DeleteUnregistered", f"Removed unregistered node {action.instance}")
        else:
            text = f"Failed to remove node {action.instance}: {outcome.error}"
            yield _status(WARNING, "DeleteUnregisteredFailed", text)
    elif not outcome.ok:
        yield _node(node, WARNING, "ScaleDownFailed", f"failed to delete the node: {outcome.error}")
    else:
        yield _node(node, NORMAL, "ScaleDown", "nodes removed by cluster autoscaler")
        if action.reason == "empty":
            yield _status(NORMAL, "ScaleDownEmpty", f"Scale-down: empty node {node} removed")
        else:
            yield _status(NORMAL, "ScaleDown", f"Scale-down: node {node} removed with drain")


def _not_triggered(told: PodGroupWhy) -> Iterator[Announcement]:
    if told.why.reason in _SILENT and not (told.why.reason is Reason.FITS_ON_EXISTING_NODE and told.why.detail):
        return
    yield from _pods(told.pods, NORMAL, "NotTriggerScaleUp", f"pod didn't trigger scale-up: {not_triggered_text(told)}")


def not_triggered_text(told: PodGroupWhy) -> str:
    """The peer's aggregate "2 Insufficient cpu, 1 max node group size reached", or our sentence where it has none.

    Order: most frequent first, then by text.
    """
    if told.why.reason is Reason.MAX_NODES_TOTAL:
        return told.why.reason.peer
    if not told.peer_groups:
        return str(told.why)
    counted = Counter(told.peer_groups)
    ranked = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {text}" for text, count in ranked)


def _failed(failure: Failure, config: NodesConfig) -> Announcement:
    if failure.code == TIMEOUT_CODE:
        limit = format_duration(config.health.max_node_provision_time_ms)
        text = f"Nodes added to group {failure.group} failed to register within {limit}: {failure.message}"
        return _status(WARNING, "ScaleUpTimedOut", text)
    text = f"Failed adding {failure.count} nodes to group {failure.group} due to {failure.code}; source errors: {failure.message}"
    return _status(WARNING, "ScaleUpFailed", text)
