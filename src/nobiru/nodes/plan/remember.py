"""What a loop's Outcomes add to the Memory: requests on their way, back-offs, tries, refused rights.

Invariant: an Outcome that is not known to have failed for good (a time-out, a lost answer) is remembered as neither done nor
failed; the next Snapshot tells.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import (
    Backoff,
    BeginRemoval,
    Evict,
    EvictionTry,
    Memory,
    Outcome,
    Raise,
    RaiseDesired,
    RollBack,
    Terminate,
)
from nobiru.nodes.plan.health import API_CALL_ERROR, BRAKE_WINDOW_MS, next_backoff

# After a passing trouble (throttling, no answer) a group is tried again this soon, doubled each time up to the flag's maximum.
TRANSIENT_BACKOFF_MS = 5_000
_TRANSIENT = frozenset({"CloudThrottled", "CloudUnavailable", "Timeout"})
_NOBODY_ANSWERED = frozenset({"KubeUnavailable", "KubeThrottled", "Timeout"})
TERMINATING_MS_MAX = 600_000
REFUSED_MS_MAX = 600_000  # a refused right is tried again after this long: somebody may have granted it


def remember(memory: Memory, outcomes: Sequence[Outcome], now_ms: int, config: NodesConfig) -> Memory:
    """The Memory after the loop."""
    memory = _forget(memory, now_ms)
    for outcome in outcomes:
        memory = _one(memory, outcome, now_ms, config)
    return memory


def _forget(memory: Memory, now_ms: int) -> Memory:
    return replace(
        memory,
        terminated_ms=tuple(at_ms for at_ms in memory.terminated_ms if now_ms - at_ms < BRAKE_WINDOW_MS),
        terminating={id_: at_ms for id_, at_ms in memory.terminating.items() if now_ms - at_ms < TERMINATING_MS_MAX},
        refused={right: at_ms for right, at_ms in memory.refused.items() if now_ms - at_ms < REFUSED_MS_MAX},
    )


def _one(memory: Memory, outcome: Outcome, now_ms: int, config: NodesConfig) -> Memory:
    if outcome.denied:
        memory = replace(memory, refused={**memory.refused, outcome.denied: now_ms})
    if outcome.code == "LockLost":
        return memory
    match outcome.action:
        case RaiseDesired():
            return _raised(memory, outcome, outcome.action, now_ms, config)
        case Terminate() if outcome.code in ("KubeUnavailable", "KubeThrottled"):
            return memory  # nothing was asked of the cloud
        case Terminate():
            return _terminated(memory, outcome, outcome.action, now_ms)
        case Evict(uid=uid):
            before = memory.evictions.get(uid)
            tried = EvictionTry(
                first_ms=before.first_ms if before else now_ms,
                last_ms=now_ms,
                count=(before.count if before else 0) + 1,
                message=outcome.error,
            )
            return replace(memory, evictions={**memory.evictions, uid: tried})
        case BeginRemoval() if outcome.code in _NOBODY_ANSWERED:
            return memory  # the API server's trouble, not the node's: the next loop tries again
        case BeginRemoval(node=node, group=group) if not outcome.ok:
            return _removal_failed(memory, node, group, now_ms)
        case RollBack(node=node):
            # A drain that failed rests its node; only a removal that could not begin pauses the others (spec 3.1).
            return replace(memory, failed_removal_ms={**memory.failed_removal_ms, node: now_ms})
    return memory


def _raised(memory: Memory, outcome: Outcome, action: RaiseDesired, now_ms: int, config: NodesConfig) -> Memory:
    if outcome.ok:
        # A group's own maximum may have let through less than was asked for; somebody else may have set more.
        target = action.target if outcome.reached is None else outcome.reached
        return replace(
            memory,
            raises={**memory.raises, action.group: Raise(at_ms=now_ms, start=action.start, target=target)},
            last_scale_up_ms=now_ms,
            group_scale_up_ms={**memory.group_scale_up_ms, action.group: now_ms},
        )
    old = memory.backoff.get(action.group)
    if outcome.code in _TRANSIENT:
        duration_ms = TRANSIENT_BACKOFF_MS
        if old and now_ms - old.failed_ms < config.backoff.reset_timeout_ms:
            duration_ms = min(old.duration_ms * 2, config.backoff.max_ms)
        duration_ms = max(duration_ms, outcome.retry_after_ms or 0)
        backoff = Backoff(
            until_ms=now_ms + duration_ms,
            duration_ms=duration_ms,
            failed_ms=now_ms,
            code=API_CALL_ERROR,
            message=outcome.error,
        )
    else:
        backoff = next_backoff(old, API_CALL_ERROR, outcome.error, now_ms, config)
    return replace(memory, backoff={**memory.backoff, action.group: backoff})


def _terminated(memory: Memory, outcome: Outcome, action: Terminate, now_ms: int) -> Memory:
    if not outcome.ok:
        return _removal_failed(memory, action.node, action.group, now_ms) if action.node else memory
    return replace(
        memory,
        terminating={**memory.terminating, action.instance: now_ms},
        terminated_ms=(*memory.terminated_ms, now_ms),
        last_removal_ms=now_ms,
        group_removal_ms={**memory.group_removal_ms, action.group: now_ms},
    )


def _removal_failed(memory: Memory, node: str, group: str, now_ms: int) -> Memory:
    return replace(
        memory,
        failed_removal_ms={**memory.failed_removal_ms, node: now_ms},
        last_removal_failure_ms=now_ms,
        group_removal_failure_ms={**memory.group_removal_failure_ms, group: now_ms},
    )
