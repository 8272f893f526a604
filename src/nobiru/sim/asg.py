"""Auto Scaling Groups as one pure state machine: (State, call, now_ms) -> State.

Its one job: what the service of one region does with each call and with the passing of time.
It refuses to know: a clock, chance, threads, any wire; `sim.cloud_wire` puts it behind moto on the real clock, virtual time
calls it directly.
Invariants: time only goes forward; desired capacity stays within the group's limits; instances that count never exceed
desired capacity, unless protected or Terminate is suspended; no instance is lost (live, then `gone`); each accepted call
that can change something is in `calls`, each refused one in `refused`.
Source: AWS "Amazon EC2 Auto Scaling API Reference" of each action named.
"""

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from nobiru.sim import asg_words as words
from nobiru.sim.asg_balance import balance, end, expire
from nobiru.sim.asg_launch import launch_due
from nobiru.sim.asg_state import (
    PROCESSES,
    Activity,
    Call,
    CallFault,
    Catalogue,
    Faults,
    Group,
    Refused,
    Source,
    State,
    Tag,
    Timing,
    hex_id,
)

Args = dict[str, str | int | bool]
Result = tuple[State, Refused | None]


class GroupChange(Struct, frozen=True, kw_only=True):
    """What UpdateAutoScalingGroup may change; what is UNSET stays."""

    min_size: int | UnsetType = UNSET
    max_size: int | UnsetType = UNSET
    desired: int | UnsetType = UNSET
    zones: tuple[str, ...] | UnsetType = UNSET
    subnets: str | UnsetType = UNSET
    source: Source | UnsetType = UNSET
    protect_new: bool | UnsetType = UNSET


def advance(state: State, now_ms: int) -> State:
    """The state after all that happens by itself up to `now_ms`; a moment that is past changes nothing."""
    while (due_ms := next_ms(state)) is not None and due_ms <= now_ms:
        state = _step(state, max(due_ms, state.now_ms))
    return replace(state, now_ms=now_ms) if now_ms > state.now_ms else state


def next_ms(state: State) -> int | None:
    """When something happens next if nobody calls."""
    due = (group.next_ms() for group in state.groups.values())
    return min((at_ms for at_ms in due if at_ms is not None), default=None)


def _step(state: State, at_ms: int) -> State:
    state = replace(state, now_ms=at_ms)
    for name in sorted(state.groups):
        group = state.groups[name]
        due_ms = group.next_ms()
        if due_ms is None or due_ms > at_ms:
            continue
        state, group = launch_due(state, expire(group, at_ms))
        state = _put(state, group)
    return state


def _put(state: State, group: Group) -> State:
    """The state with this group in place of its old self; a group that is being deleted goes with its last instance."""
    old = state.groups.get(group.name)
    groups = {**state.groups, group.name: group}
    if group.deleting and not group.instances:
        del groups[group.name]
    changed = old is None or old.instances is not group.instances
    state = replace(state, groups=groups, revision=state.revision + changed)
    return _remember(state)


def _remember(state: State) -> State:
    """Keep past groups for as long as Describe lags."""
    lag_ms = state.faults.describe_lag_ms
    if not lag_ms:
        return replace(state, history=()) if state.history else state
    seen_ms = state.now_ms - lag_ms
    history = (*state.history, (state.now_ms, state.groups))
    first = max((index for index, (at_ms, _) in enumerate(history) if at_ms <= seen_ms), default=0)
    return replace(state, history=history[first:])


def view(state: State) -> Mapping[str, Group]:
    """The groups as Describe calls show them at `state.now_ms`: as they were `describe_lag_ms` ago."""
    seen_ms = state.now_ms - state.faults.describe_lag_ms
    if not state.faults.describe_lag_ms or not state.history:
        return state.groups
    seen = [groups for at_ms, groups in state.history if at_ms <= seen_ms]
    return seen[-1] if seen else state.history[0][1]


def set_faults(state: State, faults: Faults, *, now_ms: int) -> State:
    """Another set of troubles in place of the old."""
    state = replace(advance(state, now_ms), faults=faults)
    return _remember(replace(state, history=()))


def set_timing(state: State, timing: Timing, *, now_ms: int) -> State:
    """Other delays from now on; what is under way keeps its own."""
    return replace(advance(state, now_ms), timing=timing)


def set_catalogue(state: State, catalogue: Catalogue) -> State:
    """Other launch configurations and templates to launch from."""
    return replace(state, catalogue=catalogue)


def admit(state: State, action: str, groups: Iterable[str] = ()) -> tuple[State, CallFault | None]:
    """The first call fault that matches, counted off; None lets the call in.  `groups` are those the call names."""
    names = set(groups)
    for index, fault in enumerate(state.faults.calls):
        if fault.calls == 0 or fault.action not in ("", action) or (fault.group and fault.group not in names):
            continue
        left = fault if fault.calls is None else replace(fault, calls=fault.calls - 1)
        calls = (*state.faults.calls[:index], left, *state.faults.calls[index + 1 :])
        return replace(state, faults=replace(state.faults, calls=calls)), fault
    return state, None


def note_refusal(state: State, action: str, group: str, *, problem: Refused, now_ms: int, who: str) -> Result:
    """Write down a call that a fault refused."""
    state = advance(state, now_ms)
    return _refuse(state, _call(state, action, group, who, {}), problem)


def group_of(state: State, instance_id: str) -> Group | None:
    """The group that has that instance, in whatever lifecycle state."""
    return next((group for group in state.groups.values() if instance_id in group.instances), None)


def create_group(state: State, group: Group, *, now_ms: int, who: str) -> Result:
    """CreateAutoScalingGroup; of `group` the caller fills what the request says."""
    state = advance(state, now_ms)
    call = _call(state, "CreateAutoScalingGroup", group.name, who, {"desired": group.desired})
    if group.name in state.groups:
        return _refuse(state, call, words.group_exists())
    if (problem := _bounds(group)) is not None:
        return _refuse(state, call, problem)
    uid = hex_id(f"{state.seed}/{state.region}/{group.name}", "group", len(state.calls), 32)
    group = replace(group, uid=uid, created_ms=state.now_ms)
    return _settle(state, group, call, words.group_created(state.now_ms, group)), None


def _bounds(group: Group) -> Refused | None:
    if group.min_size > group.max_size:
        return words.bounds_crossed(group.min_size, group.max_size)
    if not group.min_size <= group.desired <= group.max_size:
        return words.desired_outside(group.desired, group.min_size, group.max_size)
    if not group.zones:
        return words.invalid("At least one Availability Zone or VPC Subnet is required.")
    return None


def update_group(state: State, name: str, change: GroupChange, *, now_ms: int, who: str) -> Result:
    """UpdateAutoScalingGroup: a limit that desired capacity crosses takes it along, unless the call sets it itself."""
    state = advance(state, now_ms)
    fields = {field: getattr(change, field) for field in change.__struct_fields__}
    fields = {field: value for field, value in fields.items() if value is not UNSET}
    shown: Args = {field: value for field, value in fields.items() if isinstance(value, str | int)}
    call = _call(state, "UpdateAutoScalingGroup", name, who, shown)
    old = _usable(state, name)
    if old is None:
        return _refuse(state, call, words.group_unknown(name))
    group = replace(old, **fields)
    if change.desired is UNSET and group.min_size <= group.max_size:
        group = replace(group, desired=min(max(group.desired, group.min_size), group.max_size))
    if (problem := _bounds(group)) is not None:
        return _refuse(state, call, problem)
    return _settle(state, group, call, words.constraints_set(state.now_ms, group, old.desired)), None


def delete_group(state: State, name: str, *, force: bool, now_ms: int, who: str) -> Result:
    """DeleteAutoScalingGroup: with force its instances are terminated first."""
    state = advance(state, now_ms)
    call = _call(state, "DeleteAutoScalingGroup", name, who, {"force": force})
    group = _usable(state, name)
    if group is None:
        return _refuse(state, call, words.group_unknown(name))
    if group.instances and not force:
        return _refuse(state, call, words.group_in_use())
    group = replace(group, min_size=0, max_size=0, desired=0, deleting=True, requests=(), suspended=frozenset())
    cause = words.constraints_set(state.now_ms, group, group.desired)
    group = end(state, group, dict.fromkeys((instance.id for instance in group.live()), cause), by="group")
    return _settle(state, group, call, cause), None


def set_desired(state: State, name: str, desired: int, *, now_ms: int, who: str) -> Result:
    """SetDesiredCapacity: absolute, within the limits; lowering it lets the group choose whom to terminate."""
    state = advance(state, now_ms)
    call = _call(state, "SetDesiredCapacity", name, who, {"desired": desired})
    group = _usable(state, name)
    if group is None:
        return _refuse(state, call, words.group_unknown(name))
    if desired > group.max_size:
        return _refuse(state, call, words.above_max(desired, group.max_size))
    if desired < group.min_size:
        return _refuse(state, call, words.below_min(desired, group.min_size))
    cause = words.desired_set(state.now_ms, group.desired, desired)
    return _settle(state, replace(group, desired=desired), call, cause), None


def terminate_instance(
    state: State, instance_id: str, *, decrement: bool, now_ms: int, who: str
) -> tuple[State, Activity | Refused]:
    """TerminateInstanceInAutoScalingGroup.

    Asked again for an instance that is already Terminating, it lowers desired capacity again: kubernetes/autoscaler #4095
    and #5411 report groups that dwindle to their minimum that way.
    """
    state = advance(state, now_ms)
    group = group_of(state, instance_id)
    args: Args = {"instance": instance_id, "decrement": decrement}
    call = _call(state, "TerminateInstanceInAutoScalingGroup", group.name if group else "", who, args)
    problem = words.instance_unknown(instance_id) if group is None else None
    if group is not None and decrement and group.desired <= group.min_size:
        problem = words.at_min(group.min_size)
    if group is None or problem is not None:
        assert problem is not None
        return _refuse(state, call, problem)[0], problem
    after = group.desired - decrement
    cause = words.asked_to_go(state.now_ms, instance_id, group.desired, after)
    group = end(state, replace(group, desired=after), {instance_id: cause}, by="request")
    state = _settle(state, group, call, cause)
    return state, group.activities[group.instances[instance_id].activity]


def instance_died(state: State, instance_id: str, *, now_ms: int) -> State:
    """The machine was stopped behind the group's back (a spot interruption, a person): the group replaces it."""
    state = advance(state, now_ms)
    group = group_of(state, instance_id)
    if group is None:
        return state
    cause = words.found_dead(state.now_ms)
    group = end(state, group, {instance_id: cause}, by="health")
    return _put(state, balance(state, group, cause))


def suspend(state: State, name: str, processes: Iterable[str], *, now_ms: int, who: str) -> Result:
    """SuspendProcesses; no names: all."""
    wanted = frozenset(processes) or frozenset(PROCESSES)
    return _processes(state, name, "SuspendProcesses", wanted, now_ms=now_ms, who=who)


def resume(state: State, name: str, processes: Iterable[str], *, now_ms: int, who: str) -> Result:
    """ResumeProcesses; no names: all.  What was held back happens now."""
    wanted = frozenset(processes) or frozenset(PROCESSES)
    return _processes(state, name, "ResumeProcesses", wanted, now_ms=now_ms, who=who)


def _processes(
    state: State,
    name: str,
    action: Literal["SuspendProcesses", "ResumeProcesses"],
    processes: frozenset[str],
    *,
    now_ms: int,
    who: str,
) -> Result:
    state = advance(state, now_ms)
    call = _call(state, action, name, who, {"processes": ",".join(sorted(processes))})
    group = _usable(state, name)
    if group is None:
        return _refuse(state, call, words.group_unknown(name))
    unknown = sorted(processes - frozenset(PROCESSES))
    if unknown:
        return _refuse(state, call, words.invalid(f"{unknown[0]} is not a valid Process name"))
    after = group.suspended | processes if action == "SuspendProcesses" else group.suspended - processes
    return _settle(state, replace(group, suspended=after), call, words.gap_found(state.now_ms)), None


def protect(state: State, name: str, instance_ids: Iterable[str], *, protected: bool, now_ms: int, who: str) -> Result:
    """SetInstanceProtection: whether the group may choose these instances when it shrinks."""
    state = advance(state, now_ms)
    ids = tuple(instance_ids)
    call = _call(state, "SetInstanceProtection", name, who, {"instances": ",".join(ids), "protected": protected})
    group = _usable(state, name)
    if group is None:
        return _refuse(state, call, words.group_unknown(name))
    elsewhere = [id_ for id_ in ids if id_ not in group.instances]
    if elsewhere:
        return _refuse(state, call, words.instance_elsewhere(elsewhere[0], name))
    changed = {id_: replace(group.instances[id_], protected=protected) for id_ in ids}
    group = replace(group, instances={**group.instances, **changed})
    return _settle(state, group, call, words.gap_found(state.now_ms)), None


def tag(state: State, name: str, tags: Iterable[Tag], *, now_ms: int, who: str) -> Result:
    """CreateOrUpdateTags, for one group; instances that exist keep theirs."""
    new = {one.key: one for one in tags}
    return _tags(state, name, "CreateOrUpdateTags", new, frozenset(), now_ms=now_ms, who=who)


def untag(state: State, name: str, keys: Iterable[str], *, now_ms: int, who: str) -> Result:
    """DeleteTags, for one group."""
    return _tags(state, name, "DeleteTags", {}, frozenset(keys), now_ms=now_ms, who=who)


def _tags(
    state: State, name: str, action: str, new: dict[str, Tag], gone: frozenset[str], *, now_ms: int, who: str
) -> Result:
    state = advance(state, now_ms)
    call = _call(state, action, name, who, {"keys": ",".join(sorted({*new, *gone}))})
    group = _usable(state, name)
    if group is None:
        return _refuse(state, call, words.group_unknown(name))
    tags = {one.key: one for one in group.tags if one.key not in gone} | new
    return _settle(state, replace(group, tags=tuple(tags.values())), call, words.gap_found(state.now_ms)), None


def _usable(state: State, name: str) -> Group | None:
    group = state.groups.get(name)
    return None if group is None or group.deleting else group


def _call(state: State, action: str, group: str, who: str, args: Args) -> Call:
    return Call(action=action, group=group, args=args, at_ms=state.now_ms, who=who)


def _refuse(state: State, call: Call, problem: Refused) -> Result:
    return replace(state, refused=(*state.refused, replace(call, error=problem.code))), problem


def _settle(state: State, group: Group, call: Call, cause: str) -> State:
    """Write the call down, let the group react, and let happen what is due at once."""
    old = state.groups.get(group.name)
    call = replace(call, desired_before=old.desired if old is not None else 0, desired_after=group.desired)
    state = replace(state, calls=(*state.calls, call))
    state = _put(state, balance(state, group, cause))
    return advance(state, state.now_ms)
