"""The whole decision of one loop: health, then scale-up, then scale-down, joined into one Plan.

Invariant: pure; every node, group and pending pod of the Snapshot is in the Plan, acted on or with its Reason.
"""

from msgspec.structs import replace

from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import Action, GroupReport, Memory, Plan, Rights, Snapshot
from nobiru.nodes.plan.health import Assessment, assess
from nobiru.nodes.plan.scale_down import ScaleDown, plan_scale_down
from nobiru.nodes.plan.scale_up import ScaleUp, plan_scale_up
from nobiru.nodes.plan.state import ClusterState

# Which feature each right is for: said once when it is missing.
RIGHT_COSTS = {
    "create pods/eviction": "nodes with pods that would have to move are never removed",
    "patch nodes": "no node is ever removed, since it cannot be tainted first",
    "autoscaling:SetDesiredCapacity": "no group is ever grown",
    "autoscaling:TerminateInstanceInAutoScalingGroup": "no node is ever removed",
    "autoscaling:DescribeScalingActivities": "a stock-out is noticed only after two minutes, without AWS's own words",
    "autoscaling:DescribeAutoScalingInstances": "without --nodes the cluster of its groups is not told from other clusters by "
    "their nodes, and an instance that is ending already is not seen before it is terminated",
    "autoscaling:DescribeLaunchConfigurations": "groups with a launch configuration have no template",
    "ec2:DescribeLaunchTemplateVersions": "groups with a launch template get their shape from nodes, overrides and tags",
    "ec2:DescribeInstanceTypes": "instance types newer than the bundled table are unknown",
    "nodes": "no node is known, so nothing is grown or removed rightly: list and watch nodes is needed",
    "pods": "no pending pod is seen: list and watch pods is needed",
    **dict.fromkeys(
        ("replicasets", "replicationcontrollers", "statefulsets", "jobs"),
        "its pods count as having a controller, and replicas still to be created are not planned for",
    ),
    "daemonsets": "new nodes are planned without room for DaemonSets",
    "poddisruptionbudgets": "PodDisruptionBudgets are not seen beforehand; the API server still enforces them",
}


def decide(snap: Snapshot, memory: Memory, config: NodesConfig) -> Plan:
    """The Plan for this Snapshot."""
    memory = replace(memory, loop=memory.loop + 1)
    snap = with_refusals(snap, memory)
    assessment = assess(snap, memory, config)
    state = assessment.state
    up = plan_scale_up(snap, state, config, seed=snap.now_ms)
    scaled_up = any(True for _ in up.actions)
    down = plan_scale_down(snap, state, assessment.memory, config, free=up.free, needed=up.needed, scaled_up=scaled_up)
    return _join(snap, assessment, up, down, memory.loop)


def with_refusals(snap: Snapshot, memory: Memory) -> Snapshot:
    """The Snapshot with the rights that earlier calls found missing."""
    refused = memory.refused
    rights = Rights(
        evict=snap.rights.evict and "create pods/eviction" not in refused,
        update_nodes=snap.rights.update_nodes and "patch nodes" not in refused,
        denied_aws=snap.rights.denied_aws | {right for right in refused if ":" in right},
        unreadable=snap.rights.unreadable,
    )
    return replace(snap, rights=rights)


def _join(snap: Snapshot, assessment: Assessment, up: ScaleUp, down: ScaleDown, loop: int) -> Plan:
    wakes = [each for each in (assessment.wake_at_ms, up.wake_at_ms, down.wake_at_ms) if each is not None]
    actions: tuple[Action, ...] = (*up.actions, *assessment.actions, *down.actions)
    problems = _group_problems(snap)
    notes = (*right_notes(snap.rights), *problems, *_other_notes(snap), *assessment.notes, *down.notes)
    said = down.memory.said
    return Plan(
        id=f"{snap.identity or 'plan'}-{loop}",
        now_ms=snap.now_ms,
        actions=actions,
        pods=up.pods,
        groups={**snap.other_groups, **up.groups},
        nodes=down.nodes,
        blocking=down.blocking,
        failures=assessment.failures,
        reports=_reports(assessment.state, down),
        healthy=assessment.state.healthy,
        unneeded=down.unneeded,
        notes=tuple(note for note in dict.fromkeys(notes) if note not in said),
        problems=tuple(note for note in problems if note not in said),
        wake_at_ms=min(wakes, default=None),
        memory=replace(down.memory, said=frozenset(notes)),
    )


def right_notes(rights: Rights) -> tuple[str, ...]:
    """One line per missing right: its name and the feature it costs."""
    missing = sorted(rights.denied_aws | rights.unreadable)
    if not rights.evict:
        missing.append("create pods/eviction")
    if not rights.update_nodes:
        missing.append("patch nodes")
    return tuple(
        f"missing right {right}: {RIGHT_COSTS.get(right, 'a feature that needs it is off')}" for right in missing
    )


def _group_problems(snap: Snapshot) -> list[str]:
    """What keeps groups from being used: somebody has to mend it."""
    problems = [snap.group_problem] if snap.group_problem else []
    problems += [f"group {group.name}: {group.problem}" for group in snap.groups if group.problem]
    problems += [f"group {group.name}: {group.template_problem}" for group in snap.groups if group.template_problem]
    return problems


def _other_notes(snap: Snapshot) -> list[str]:
    notes = [snap.pause_problem] if snap.pause_problem else []
    return notes + [f"group {name} is left alone: {why}" for name, why in sorted(snap.other_groups.items())]


def _reports(state: ClusterState, down: ScaleDown) -> tuple[GroupReport, ...]:
    candidates: dict[str, int] = {}
    unneeded = set(down.unneeded)
    for fact in state.nodes:
        if fact.name in unneeded:
            candidates[fact.group] = candidates.get(fact.group, 0) + 1
    return tuple(
        GroupReport(
            name=name,
            min_size=each.group.min_size,
            max_size=each.group.max_size,
            target=each.group.desired,
            ready=each.ready,
            unready=each.unready,
            not_started=each.starting,
            unregistered=each.unregistered,
            long_unregistered=each.long_unregistered,
            being_deleted=each.being_deleted,
            missing=each.missing,
            healthy=each.healthy,
            candidates=candidates.get(name, 0),
            scaling_up=each.upcoming > 0,
        )
        for name, each in sorted(state.groups.items())
    )
