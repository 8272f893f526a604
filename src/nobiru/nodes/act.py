"""Carrying out a Plan: every Action is one bounded call, and its end is an Outcome, never an exception.

Actions on different things run side by side, at most a few at once.  No call starts once the lock is not held any more; an
instance is terminated only after its node was read again and still carries our own delete taint.
Invariant: one Action's failure stops no other.
"""

import asyncio
from collections.abc import Callable
from typing import assert_never

from msgspec import Struct

from nobiru.kernel.clock import Clock
from nobiru.kernel.errors import CloudDenied, KubeDenied, KubeNotFound, WorldError
from nobiru.kernel.objects import Node
from nobiru.nodes.model import (
    Action,
    BeginRemoval,
    Evict,
    MarkCandidate,
    Outcome,
    Plan,
    RaiseDesired,
    RollBack,
    Terminate,
    UnmarkCandidate,
)
from nobiru.nodes.plan.marks import (
    candidate_patch,
    delete_mark,
    removal_patch,
    rollback_patch,
    uncandidate_patch,
)
from nobiru.nodes.ports import Groups, Leadership, Nodes

ACTION_S_MAX = 5.0  # DESIGN: an Action is one bounded call
# As many calls at once as leave the API server's and AWS's rate limits alone (Cluster Autoscaler taints with 5 workers).
AT_ONCE_MAX = 8


class Ports(Struct, frozen=True, kw_only=True):
    """All that acting may touch."""

    groups: Groups
    nodes: Nodes
    leadership: Leadership
    clock: Clock
    identity: str


async def act(plan: Plan, ports: Ports) -> tuple[Outcome, ...]:
    """Carry out the plan's actions; outcomes stand in the actions' order."""
    if not plan.actions:
        return ()
    gate = asyncio.Semaphore(AT_ONCE_MAX)
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(_one(action, ports, gate), name=f"act {type(action).__name__}") for action in plan.actions
        ]
    return tuple(task.result() for task in running)


async def _one(action: Action, ports: Ports, gate: asyncio.Semaphore) -> Outcome:
    async with gate:
        if not ports.leadership.held():
            return Outcome(action=action, error="the leader lock is not held any more", code="LockLost")
        try:
            async with asyncio.timeout(ACTION_S_MAX):
                return await _carry_out(action, ports)
        except TimeoutError:
            return Outcome(action=action, error=f"no answer within {ACTION_S_MAX:.0f} s", code="Timeout")
        except (KubeDenied, CloudDenied) as error:
            denied = error.action if isinstance(error, CloudDenied) else _kube_right(action)
            return Outcome(action=action, error=str(error), code=type(error).__name__, denied=denied)
        except WorldError as error:
            return Outcome(
                action=action, error=str(error), code=type(error).__name__, retry_after_ms=error.retry_after_ms
            )


def _kube_right(action: Action) -> str:
    return "create pods/eviction" if isinstance(action, Evict) else "patch nodes"


async def _carry_out(action: Action, ports: Ports) -> Outcome:
    match action:
        case RaiseDesired(group=group, target=target):
            reached = await ports.groups.raise_desired(group, target)
            return Outcome(action=action, reached=reached)
        case Evict(pod=pod, grace_s=grace_s, uid=uid):
            await ports.nodes.evict(pod, grace_s, uid)
        case Terminate():
            return await _terminate(action, ports)
        case MarkCandidate(node=node, since_ms=since_ms):
            await ports.nodes.change_node(node, lambda found: candidate_patch(found, since_ms))
        case UnmarkCandidate(node=node):
            await _change_if_there(node, uncandidate_patch, ports)
        case RollBack(node=node):
            await _change_if_there(node, rollback_patch, ports)
        case BeginRemoval(node=node, cordon=cordon):
            marked = await ports.nodes.change_node(
                node,
                lambda found: removal_patch(found, now_ms=ports.clock.now_ms(), identity=ports.identity, cordon=cordon),
            )
            if not marked:
                return Outcome(action=action, error="somebody else marked the node meanwhile", code="KubeConflict")
        case _:
            assert_never(action)
    return Outcome(action=action)


async def _change_if_there(name: str, change: Callable[[Node], dict[str, object] | None], ports: Ports) -> None:
    """Change a node; one that is gone needs no change."""
    try:
        await ports.nodes.change_node(name, change)
    except KubeNotFound:
        return


async def _terminate(action: Terminate, ports: Ports) -> Outcome:
    """Terminate an instance, but a registered node's only while it still carries our delete taint."""
    if action.node:
        marked = False

        def look(node: Node) -> None:
            nonlocal marked
            mark = delete_mark(node)
            marked = mark is not None and mark.ours

        await _change_if_there(action.node, look, ports)
        if not marked:
            return Outcome(
                action=action, error="the node does not carry our delete taint any more", code="KubeConflict"
            )
        if not ports.leadership.held():
            return Outcome(action=action, error="the leader lock is not held any more", code="LockLost")
    await ports.groups.terminate(action.instance)
    return Outcome(action=action)
