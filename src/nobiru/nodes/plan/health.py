"""How nodes and groups stand: who is ready, who is on the way, which group fails, which machine never joined.

Machines on the way are counted from the cloud's own state, so a restart never doubles a scale-up; a group that cannot
deliver hides no pending pod, because what fails is not on the way.  Invariant: every machine of a group is exactly one of
ready, starting, unready, unregistered, long unregistered, leaving, or missing.
Source: cluster-autoscaler 1.36 clusterstate/clusterstate.go; differs as docs/compat.md lists.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nobiru.kernel.cloud import Activity, GroupName, Instance, NodeGroup
from nobiru.kernel.objects import Node
from nobiru.kernel.reason import Reason, Why
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import Backoff, Failure, Memory, Raise, Snapshot, Terminate
from nobiru.nodes.plan.conditions import TaintRules, condition_of, unready_since_ms
from nobiru.nodes.plan.marks import candidate_since_ms, delete_mark
from nobiru.nodes.plan.membership import beside_desired, instance_id, owners
from nobiru.nodes.plan.staleness import stale
from nobiru.nodes.plan.state import ClusterState, GroupState, NodeFact
from nobiru.nodes.plan.templates import Templates, plan_templates

# An Auto Scaling Group lists a new instance within seconds of the request; without the right to read activities,
# capacity that is not even listed after this long is taken for a stock-out.
MISSING_MS_MAX = 120_000
# Describe calls may show the state before our own write for a while (AWS: eventual consistency, seconds in practice).
OWN_WRITE_MS_MAX = 60_000
# Clocks of the cloud and of this machine differ a little.
CLOCK_SKEW_MS_MAX = 5_000
# A restarted process has no request of its own to date a failure against: failures this recent still speak of today.
RECENT_FAILURE_MS_MAX = 600_000
MESSAGE_LENGTH_MAX = 500
BRAKE_WINDOW_MS = 600_000

STOCK_OUT = "placeholder-cannot-be-fulfilled"  # Cluster Autoscaler's code for it
TIMEOUT = "timeout"
API_CALL_ERROR = "apiCallError"


class Assessment(Struct, frozen=True, kw_only=True):
    """The judged cluster, what to remember of it, and what it calls for by itself."""

    state: ClusterState
    memory: Memory
    failures: tuple[Failure, ...]
    actions: tuple[Terminate, ...]
    notes: tuple[str, ...]
    wake_at_ms: int | None


class _Tally(Struct, frozen=True, kw_only=True):
    """The machines of one group, sorted by how they stand."""

    alive: int  # listed and staying, ours to count
    ready: int = 0
    starting: int = 0
    unready: int = 0
    waiting: tuple[Instance, ...] = ()  # no node yet, for less than --max-node-provision-time
    overdue: tuple[Instance, ...] = ()
    being_deleted: int = 0


def assess(snap: Snapshot, memory: Memory, config: NodesConfig) -> Assessment:
    """Judge every node and group.

    Order: nodes as in the Snapshot's columns, groups by name.
    """
    rules = taint_rules(config)
    facts = _node_facts(snap, config, rules)
    unregistered = _unregistered_since(snap, memory, facts)
    templates = plan_templates(
        snap.groups,
        _ready_nodes(snap, facts),
        memory.learned,
        daemons=snap.daemons,
        rules=rules,
        now_ms=snap.now_ms,
    )
    by_group: dict[GroupName, list[NodeFact]] = defaultdict(list)
    for fact in facts:
        if fact.group:
            by_group[fact.group].append(fact)
    states: dict[GroupName, GroupState] = {}
    failures: list[Failure] = []
    raises: dict[GroupName, Raise] = {}
    backoff: dict[GroupName, Backoff] = {}
    missing_since: dict[GroupName, int] = {}
    orphans: list[Terminate] = []
    for group in snap.groups:
        tally = _tally(group, by_group[group.name], unregistered, memory, snap.now_ms, config)
        judged = _judge_group(group, tally, memory, snap, config)
        state = _group_state(group, tally, judged, templates, snap, config)
        states[group.name] = state
        failures += judged.failures
        if judged.own_raise:
            raises[group.name] = judged.own_raise
        if judged.backoff:
            backoff[group.name] = judged.backoff
        if judged.missing_since_ms is not None:
            missing_since[group.name] = judged.missing_since_ms
        orphans += _orphans(state, tally, config)
    ready = sum(fact.condition == "ready" for fact in facts)
    unready = sum(fact.condition == "unready" for fact in facts)
    overdue = sum(state.long_unregistered for state in states.values())
    healthy = not _too_many(unready + overdue, len(facts) + overdue, config)
    kept = replace(
        memory,
        learned=templates.learned,
        unregistered_since_ms=unregistered,
        raises=raises,
        backoff=backoff,
        missing_since_ms=missing_since,
    )
    return Assessment(
        state=ClusterState(
            nodes=facts, groups=states, healthy=healthy, ready_count=ready, unready_count=unready + overdue
        ),
        memory=kept,
        failures=tuple(failures),
        actions=tuple(orphans[: _orphans_max(snap, memory, config)]),
        notes=(*templates.notes, *_orphan_notes(snap, orphans)),
        wake_at_ms=_wake(states, backoff, missing_since, unregistered, snap.now_ms, config),
    )


def taint_rules(config: NodesConfig) -> TaintRules:
    """The taints that flags declare to be startup or status taints."""
    up = config.scale_up
    return TaintRules(
        startup=tuple(up.startup_taints),
        startup_prefixes=tuple(up.startup_taint_prefixes),
        status=tuple(up.status_taints),
    )


# Nodes


def _node_facts(snap: Snapshot, config: NodesConfig, rules: TaintRules) -> tuple[NodeFact, ...]:
    owner = owners(snap.groups)
    leaving = {each.id for group in snap.groups for each in group.instances if each.leaving}
    protected = {each.id for group in snap.groups for each in group.instances if each.protected_from_scale_in}
    startup_ms_max = config.health.max_node_startup_time_ms
    derived = snap.cluster.nodes.derived
    facts = []
    for node in snap.cluster.nodes.nodes:
        of_node, known = derived.get(node.metadata.name, _NEVER)
        if not (of_node is node and isinstance(known, _Sight) and known.rules == rules):
            known = _sight(node, rules)
            derived[node.metadata.name] = node, known
        base, instance = known.base, known.base.instance
        group = owner.get(instance, "")
        fact = known.last
        if known.since_ms is not None or (fact.group, fact.instance_leaving, fact.protected) != (
            group,
            instance in leaving,
            instance in protected,
        ):
            fact = known.last = replace(
                base,
                group=group,
                condition=condition_of(node, known.since_ms, now_ms=snap.now_ms, startup_ms_max=startup_ms_max),
                instance_leaving=instance in leaving,
                protected=instance in protected,
            )
        facts.append(fact)
    return tuple(facts)


class _Sight(Struct, kw_only=True):
    """What one node says by itself, and the fact that was last made of it: most nodes stay as they are from loop to loop."""

    rules: TaintRules
    since_ms: int | None  # not ready since
    base: NodeFact
    last: NodeFact


_NEVER: tuple[Node | None, object] = (None, None)


def _sight(node: Node, rules: TaintRules) -> _Sight:
    since_ms = unready_since_ms(node, rules)
    base = NodeFact(
        name=node.name,
        group="",
        instance=instance_id(node.spec.provider_id),
        condition="ready",
        unready_since_ms=since_ms or 0,
        delete_mark=delete_mark(node) if node.spec.taints else None,
        candidate_since_ms=candidate_since_ms(node),
    )
    return _Sight(rules=rules, since_ms=since_ms, base=base, last=base)


def _ready_nodes(snap: Snapshot, facts: Sequence[NodeFact]) -> dict[GroupName, list[Node]]:
    ready: dict[GroupName, list[Node]] = defaultdict(list)
    for node, fact in zip(snap.cluster.nodes.nodes, facts, strict=True):
        if fact.group and fact.condition == "ready" and fact.delete_mark is None and not fact.instance_leaving:
            ready[fact.group].append(node)
    return ready


def _unregistered_since(snap: Snapshot, memory: Memory, facts: Sequence[NodeFact]) -> dict[str, int]:
    """Since when each staying instance is without a node."""
    registered = {fact.instance for fact in facts}
    return {
        each.id: memory.unregistered_since_ms.get(each.id, snap.now_ms)
        for group in snap.groups
        for each in group.instances
        if not each.leaving and each.id not in registered and not beside_desired(each)
    }


# Groups


def _tally(
    group: NodeGroup,
    facts: Sequence[NodeFact],
    unregistered: Mapping[str, int],
    memory: Memory,
    now_ms: int,
    config: NodesConfig,
) -> _Tally:
    gone = {id_ for id_, at_ms in memory.terminating.items() if now_ms - at_ms < OWN_WRITE_MS_MAX}
    staying = [
        each for each in group.instances if not each.leaving and each.id not in gone and not beside_desired(each)
    ]
    ids = {each.id for each in staying}
    here = [fact for fact in facts if fact.instance in ids]
    marked = [fact for fact in here if fact.delete_mark is not None]
    counted = [fact for fact in here if fact.delete_mark is None]
    late_ms = config.health.max_node_provision_time_ms
    without = [each for each in staying if each.id in unregistered]
    return _Tally(
        alive=len(staying) - len(marked),
        ready=sum(fact.condition == "ready" for fact in counted),
        starting=sum(fact.condition == "starting" for fact in counted),
        unready=sum(fact.condition == "unready" for fact in counted),
        waiting=tuple(each for each in without if now_ms - unregistered[each.id] <= late_ms),
        overdue=tuple(each for each in without if now_ms - unregistered[each.id] > late_ms),
        being_deleted=len(marked),
    )


class _Judged(Struct, frozen=True, kw_only=True):
    """What one group's history says."""

    missing: int  # wanted and not listed
    counted: int  # of which are believed to come
    own_raise: Raise | None
    backoff: Backoff | None
    missing_since_ms: int | None
    failures: tuple[Failure, ...] = ()


def _judge_group(group: NodeGroup, tally: _Tally, memory: Memory, snap: Snapshot, config: NodesConfig) -> _Judged:
    now_ms = snap.now_ms
    own = memory.raises.get(group.name)
    desired = group.desired
    if own and now_ms - own.at_ms < OWN_WRITE_MS_MAX:
        desired = max(desired, own.target)
    missing = max(0, desired - tally.alive - tally.being_deleted - _just_terminated(group, memory, now_ms))
    since_ms = _missing_since(group, missing, own, memory, now_ms)
    old = memory.backoff.get(group.name)
    failure = _failure(group, tally, missing, since_ms, own, memory, now_ms, config)
    backoff = old if old and now_ms - old.failed_ms < config.backoff.reset_timeout_ms else None
    if failure and not (old and now_ms < old.until_ms and old.code != API_CALL_ERROR):
        backoff = next_backoff(old, failure.code, failure.message, now_ms, config)
    else:
        failure = None
    if own and missing == 0 and not (tally.waiting or tally.overdue or tally.starting):
        own = None  # all of it arrived: a success ends the back-off
        backoff = backoff if failure else None
    elif own and now_ms - own.at_ms > config.health.max_node_provision_time_ms:
        own = None
    # A call that failed says nothing of machines that were asked for before, or by a call whose answer was lost.
    told = backoff is not None and backoff.code != API_CALL_ERROR
    resting = told and backoff is not None and now_ms < backoff.until_ms
    failing = told and backoff is not None and since_ms is not None and backoff.failed_ms >= since_ms
    return _Judged(
        missing=missing,
        counted=0 if resting or failing else missing,
        own_raise=own,
        backoff=backoff,
        missing_since_ms=since_ms,
        failures=(failure,) if failure else (),
    )


def _just_terminated(group: NodeGroup, memory: Memory, now_ms: int) -> int:
    """Instances that we terminated and that a Describe from before still lists as staying."""
    return sum(
        not each.leaving and now_ms - memory.terminating.get(each.id, -OWN_WRITE_MS_MAX) < OWN_WRITE_MS_MAX
        for each in group.instances
    )


def _missing_since(group: NodeGroup, missing: int, own: Raise | None, memory: Memory, now_ms: int) -> int | None:
    """Since when the group lacks listed machines; a new request of ours starts the clock again."""
    if missing == 0:
        return None
    since_ms = memory.missing_since_ms.get(group.name, now_ms)
    return max(since_ms, own.at_ms) if own else since_ms


def _failure(
    group: NodeGroup,
    tally: _Tally,
    missing: int,
    since_ms: int | None,
    own: Raise | None,
    memory: Memory,
    now_ms: int,
    config: NodesConfig,
) -> Failure | None:
    """Why the group's machines do not come, if it is known that they do not."""
    if missing and since_ms is not None:
        told = failed_activity(group.activities, own, now_ms)
        if told is not None:
            return Failure(group=group.name, code=STOCK_OUT, message=told.message[:MESSAGE_LENGTH_MAX], count=missing)
        if now_ms - since_ms >= MISSING_MS_MAX:
            text = f"{missing} wanted machines are not listed by AWS after {MISSING_MS_MAX // 1000} s"
            return Failure(group=group.name, code=STOCK_OUT, message=text, count=missing)
    fresh = [each for each in tally.overdue if _just_overdue(group.name, each, memory, now_ms, config)]
    if fresh:
        names = ", ".join(each.id for each in fresh[:3])
        text = f"no node appeared for {names}: check that the machine can join (CSR approval, bootstrap)"
        return Failure(group=group.name, code=TIMEOUT, message=text, count=len(fresh))
    return None


def _just_overdue(group: GroupName, instance: Instance, memory: Memory, now_ms: int, config: NodesConfig) -> bool:
    """Whether the instance became overdue since its group's last failure, so that one machine fails a group once."""
    since_ms = memory.unregistered_since_ms.get(instance.id, now_ms)
    overdue_ms = since_ms + config.health.max_node_provision_time_ms
    back = memory.backoff.get(group)
    return back is None or back.code != TIMEOUT or back.failed_ms < overdue_ms


def failed_activity(activities: Sequence[Activity] | None, own: Raise | None, now_ms: int) -> Activity | None:
    """The newest finished activity if it failed and speaks of the present request.

    Order: activities newest first, as AWS lists them.
    """
    for activity in activities or ():
        if activity.status in ("Successful", "Cancelled"):
            return None
        if activity.status == "Failed":
            earliest_ms = own.at_ms - CLOCK_SKEW_MS_MAX if own else now_ms - RECENT_FAILURE_MS_MAX
            return activity if activity.started_ms >= earliest_ms else None
    return None


def next_backoff(old: Backoff | None, code: str, message: str, now_ms: int, config: NodesConfig) -> Backoff:
    """The back-off after one more failure: doubled up to the maximum, or the initial one after a quiet time."""
    duration_ms = config.backoff.initial_ms
    if old and now_ms - old.failed_ms < config.backoff.reset_timeout_ms:
        duration_ms = min(old.duration_ms * 2, config.backoff.max_ms)
    return Backoff(
        until_ms=now_ms + duration_ms,
        duration_ms=duration_ms,
        failed_ms=now_ms,
        code=code,
        message=message[:MESSAGE_LENGTH_MAX],
    )


def _group_state(
    group: NodeGroup, tally: _Tally, judged: _Judged, templates: Templates, snap: Snapshot, config: NodesConfig
) -> GroupState:
    healthy = not _too_many(tally.unready + len(tally.overdue), tally.alive + judged.missing, config)
    target = tally.alive + judged.counted
    return GroupState(
        group=group,
        target=target,
        ready=tally.ready,
        unready=tally.unready,
        starting=tally.starting,
        unregistered=len(tally.waiting),
        long_unregistered=len(tally.overdue),
        being_deleted=tally.being_deleted,
        missing=judged.missing,
        upcoming=tally.starting + len(tally.waiting) + judged.counted,
        template=templates.nodes.get(group.name),
        cannot_grow=_cannot_grow(group, target, judged.backoff, healthy, snap),
        healthy=healthy,
    )


def _cannot_grow(group: NodeGroup, target: int, backoff: Backoff | None, healthy: bool, snap: Snapshot) -> Why | None:
    """The first reason not to raise the group, the most lasting first."""
    limit = min(group.max_size, group.cloud_max_size)
    if group.problem:
        return Why(reason=Reason.GROUP_PROBLEM, detail=group.problem)
    if "autoscaling:SetDesiredCapacity" in snap.rights.denied_aws:
        return Why(reason=Reason.RAISE_NOT_ALLOWED, detail="autoscaling:SetDesiredCapacity")
    if "Launch" in group.suspended:
        return Why(reason=Reason.LAUNCH_SUSPENDED, detail="resume the Launch process of the group")
    if target >= limit:
        return Why(reason=Reason.GROUP_AT_MAX_SIZE, detail=f"{target} of at most {limit}")
    if group.template is None:
        return Why(reason=Reason.NO_TEMPLATE, detail=group.template_problem)
    if backoff and snap.now_ms < backoff.until_ms:
        left_s = -(-(backoff.until_ms - snap.now_ms) // 1000)
        return Why(reason=Reason.GROUP_BACKOFF, detail=f"{backoff.message}; {left_s} s left")
    if not healthy:
        return Why(reason=Reason.GROUP_NOT_READY)
    return None


def _too_many(unready: int, total: int, config: NodesConfig) -> bool:
    """Whether unready machines pass both limits: the tolerated count and the tolerated percentage."""
    health = config.health
    return unready > health.ok_total_unready_count and unready * 100 > health.max_total_unready_percentage * total


def _orphans(state: GroupState, tally: _Tally, config: NodesConfig) -> list[Terminate]:
    """Instances that never became nodes, as many as the group's minimum lets go."""
    if state.group.problem:
        return []
    room = state.target - state.min_size
    if config.health.force_delete_unregistered_nodes:
        room = state.target - state.group.cloud_min_size
    return [
        Terminate(instance=each.id, group=state.group.name, node="", reason="unregistered")
        for each in sorted(tally.overdue, key=lambda each: each.id)[: max(0, room)]
    ]


def _nameless(snap: Snapshot) -> str:
    """A node that names no machine at all, if there is one: it may be any machine that seems to have no node."""
    return next((node.name for node in snap.cluster.nodes.nodes if not node.spec.provider_id), "")


def _orphans_max(snap: Snapshot, memory: Memory, config: NodesConfig) -> int:
    """How many machines without a node may be ended now.

    None where the nodes are not known well enough to say that a machine has none: a healthy one must never go for it.
    """
    if snap.paused & {"down"} or stale(snap, config) or "nodes" in snap.rights.unreadable or _nameless(snap):
        return 0
    limit = config.scale_down.max_terminations_per_10m
    recent = sum(snap.now_ms - at_ms < BRAKE_WINDOW_MS for at_ms in memory.terminated_ms)
    return max(0, limit - recent) if limit > 0 else 2**31


def _orphan_notes(snap: Snapshot, orphans: Sequence[Terminate]) -> list[str]:
    name = _nameless(snap)
    if not orphans or not name:
        return []
    return [
        f"instance {each.instance} of group {each.group} has no node, but node {name} has no providerID and may be it: "
        "it is not terminated"
        for each in orphans
    ]


def _wake(
    states: Mapping[GroupName, GroupState],
    backoff: Mapping[GroupName, Backoff],
    missing_since: Mapping[GroupName, int],
    unregistered: Mapping[str, int],
    now_ms: int,
    config: NodesConfig,
) -> int | None:
    """When something here changes by time alone: a back-off ends, a machine becomes overdue, missing ones give up."""
    moments = [each.until_ms for each in backoff.values()]
    moments += [since_ms + MISSING_MS_MAX for since_ms in missing_since.values()]
    moments += [since_ms + config.health.max_node_provision_time_ms + 1 for since_ms in unregistered.values()]
    ahead = [moment for moment in moments if moment > now_ms]
    return min(ahead) if ahead else None
