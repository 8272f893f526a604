"""How a group moves towards its desired capacity by itself: it asks for what is missing and ends what is too much.

It refuses to know: where and what is launched (`sim.asg_launch`), who called (`sim.asg`).
Invariant: afterwards instances that count and requests together equal desired capacity, unless Launch or Terminate is
suspended or what is too much is protected.  The victims are the group's own choice, drained or not: that is the harm
that tests of a node autoscaler must be able to see.
"""

from collections.abc import Iterable
from typing import Literal

from msgspec.structs import replace

from nobiru.sim import asg_words as words
from nobiru.sim.asg_state import Activity, Catalogue, Group, Instance, Request, State, hex_id

# AWS keeps six weeks of activities ("Verify a scaling activity"); a failing group makes one every retry, so there is a bound.
ACTIVITIES_MAX = 5_000

Ender = Literal["request", "group", "health"]


def balance(state: State, group: Group, cause: str) -> Group:
    """The group with requests for what it lacks, or with its surplus cancelled and terminated, at `state.now_ms`."""
    asked = sum(request.count for request in group.requests)
    missing = group.desired - len(group.live()) - asked
    if missing > 0 and "Launch" not in group.suspended:
        request = Request(count=missing, due_ms=state.now_ms + state.timing.launch_ms, cause=cause)
        return replace(group, requests=(*group.requests, request))
    if missing < 0:
        return _shrink(state, group, -missing, cause)
    return group


def _shrink(state: State, group: Group, surplus: int, cause: str) -> Group:
    kept: list[Request] = []
    for request in reversed(group.requests):  # the newest wish is dropped first
        dropped = min(surplus, request.count)
        surplus -= dropped
        if request.count > dropped:
            kept.append(replace(request, count=request.count - dropped))
    group = replace(group, requests=tuple(reversed(kept)))
    if not surplus or "Terminate" in group.suspended:
        return group
    chosen = victims(group, surplus, state.catalogue)
    before = len(group.live())
    causes = {
        instance.id: words.selected(cause, state.now_ms, before, before - len(chosen), instance.id)
        for instance in chosen
    }
    group = end(state, group, causes, by="group")
    return group if len(chosen) == surplus else _note_protected(state, group, cause)


def _note_protected(state: State, group: Group, cause: str) -> Group:
    newest = next(reversed(group.activities.values()), None)
    if newest is not None and newest.description == words.ALL_PROTECTED:
        return group
    noted = Activity(
        id="", group=group.name, status="Cancelled", description=words.ALL_PROTECTED, cause=cause, progress=100,
        started_ms=state.now_ms, ended_ms=state.now_ms,
    )  # fmt: skip
    return add_activities(group, [noted])


def victims(group: Group, count: int, catalogue: Catalogue) -> list[Instance]:
    """The instances that the default termination policy takes, first to last.

    Order: out of the zone with the most instances that has an unprotected one; there the oldest launch configuration, then
    the oldest template version, then the oldest instance.  Between equal zones the same age decides.
    Source: AWS "Default termination policy for Amazon EC2 Auto Scaling groups"; differs: billing hours and allocation
    strategies are not looked at.
    """
    configurations = {name: index for index, name in enumerate(catalogue.configurations)}
    population: dict[str, int] = {}
    open_: dict[str, list[tuple[tuple[int, int, int, str], Instance]]] = {}
    for instance in group.live():
        population[instance.zone] = population.get(instance.zone, 0) + 1
        if not instance.protected:
            open_.setdefault(instance.zone, []).append((_age(instance, configurations), instance))
    for candidates in open_.values():
        candidates.sort(key=lambda pair: pair[0], reverse=True)  # so that pop() gives the oldest
    chosen: list[Instance] = []
    while len(chosen) < count and any(open_.values()):
        zone = min((zone for zone in open_ if open_[zone]), key=lambda zone: (-population[zone], open_[zone][-1][0]))
        chosen.append(open_[zone].pop()[1])
        population[zone] -= 1
    return chosen


def _age(instance: Instance, configurations: dict[str, int]) -> tuple[int, int, int, str]:
    if instance.configuration:
        return 0, configurations.get(instance.configuration, -1), instance.launch_ms, instance.id
    return 1, instance.template_version, instance.launch_ms, instance.id


def end(state: State, group: Group, causes: dict[str, str], *, by: Ender) -> Group:
    """The group with the instances that are keys of `causes` on their way out; those that are already stay as they are."""
    leaving = [group.instances[id_] for id_ in causes if group.instances[id_].lifecycle != "Terminating"]
    if not leaving:
        return group
    group = add_activities(group, [_leaving(instance, causes[instance.id], state.now_ms) for instance in leaving])
    newest = list(group.activities)[-len(leaving) :]
    instances = dict(group.instances)
    activities = dict(group.activities)
    for instance, activity_id in zip(leaving, newest, strict=True):
        launching = activities.get(instance.activity)
        if launching is not None and launching.status == "InProgress":
            activities[launching.id] = replace(launching, status="Cancelled", progress=100, ended_ms=state.now_ms)
        instances[instance.id] = replace(instance, lifecycle="Terminating", activity=activity_id, ended_by=by)
    due_ms = state.now_ms + state.timing.terminating_ms
    timers = sorted((*group.timers, *((due_ms, "end", instance.id) for instance in leaving)))
    return replace(group, instances=instances, activities=activities, timers=tuple(timers))


def _leaving(instance: Instance, cause: str, now_ms: int) -> Activity:
    return Activity(
        id="", group=instance.group, status="InProgress", description=f"Terminating EC2 instance: {instance.id}",
        cause=cause, started_ms=now_ms, zone=instance.zone,
    )  # fmt: skip


def add_activities(group: Group, activities: Iterable[Activity]) -> Group:
    """The group with the activities added, each given its id; beyond ACTIVITIES_MAX a tenth is dropped, the oldest that ended."""
    all_ = dict(group.activities)
    serial = group.serial
    for activity in activities:
        serial += 1
        digits = hex_id(group.uid, "activity", serial, 32)
        id_ = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        all_[id_] = replace(activity, id=id_)
    if len(all_) > ACTIVITIES_MAX:
        ended = [id_ for id_, activity in all_.items() if activity.ended_ms is not None]
        for id_ in ended[: len(all_) - ACTIVITIES_MAX * 9 // 10]:
            del all_[id_]
    return replace(group, activities=all_, serial=serial)


def expire(group: Group, now_ms: int) -> Group:
    """The group after all its timers up to `now_ms`: what was Pending serves, what booted runs, what was ending is gone."""
    due = [timer for timer in group.timers if timer[0] <= now_ms]
    if not due:
        return group
    instances = dict(group.instances)
    activities = dict(group.activities)
    gone = list(group.gone)
    for at_ms, kind, id_ in due:
        instance = instances.get(id_)
        if instance is None:
            continue
        if kind == "serve" and instance.lifecycle == "Pending":
            _finish(activities, instance.activity, at_ms)
            instances[id_] = replace(instance, lifecycle="InService", activity="")
        elif kind == "boot" and instance.lifecycle != "Terminating":
            instances[id_] = replace(instance, booted=True)
        elif kind == "end":
            _finish(activities, instance.activity, at_ms)
            gone.append(replace(instance, lifecycle="Terminated", booted=False, activity="", ended_ms=at_ms))
            del instances[id_]
    timers = group.timers[len(due) :]
    return replace(group, instances=instances, activities=activities, gone=tuple(gone), timers=timers)


def _finish(activities: dict[str, Activity], id_: str, at_ms: int) -> None:
    activity = activities.get(id_)
    if activity is not None:
        activities[id_] = replace(activity, status="Successful", progress=100, ended_ms=at_ms)
