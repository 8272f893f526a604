"""Launching: in which zone, of which type, from which template, and what is written down when it fails.

It refuses to know: how many are wanted (`sim.asg_balance`).
Invariant: every instance asked for is either launched or asked for again later, with a Failed activity that says why.
Source: AWS "Example: Distribute instances across Availability Zones" (the emptiest zone first; where it fails, another),
"Auto Scaling groups with multiple instance types" (overrides in order), "Troubleshoot EC2 Auto Scaling".
"""

import math

from msgspec import Struct
from msgspec.structs import replace

from nobiru.sim import asg_words as words
from nobiru.sim.asg_balance import add_activities
from nobiru.sim.asg_state import (
    Activity,
    BootFault,
    Catalogue,
    FromConfiguration,
    FromMixed,
    FromTemplate,
    Group,
    Instance,
    LaunchFault,
    Machine,
    Request,
    State,
    hex_id,
    private_name,
)


class Blueprint(Struct, frozen=True, kw_only=True):
    """What the group's source says at this moment."""

    machine: Machine
    configuration: str = ""
    template_id: str = ""
    template_name: str = ""
    template_version: int = 0


class Placed(Struct, frozen=True, kw_only=True):
    """One instance that found room."""

    zone: str
    instance_type: str
    spot: bool


class Placement(Struct, frozen=True, kw_only=True):
    """Where the wanted instances found room, and by zone what stood in the way."""

    placed: tuple[Placed, ...]
    blocked: dict[str, tuple[str, LaunchFault]]  # zone -> (instance type, fault)
    faults: tuple[LaunchFault, ...]  # what is left of them


def launch_due(state: State, group: Group) -> tuple[State, Group]:
    """Launch what is due at `state.now_ms`; what fails is asked for again `retry_ms` later."""
    due = [request for request in group.requests if request.due_ms <= state.now_ms]
    if not due:
        return state, group
    group = replace(group, requests=tuple(request for request in group.requests if request.due_ms > state.now_ms))
    if "Launch" in group.suspended:
        return state, group
    for request in due:
        blueprint = blueprint_of(group, state.catalogue)
        if blueprint is None:
            group = _fail(state, group, request, {"": words.source_missing(_source_name(group))})
            group = _again(state, group, request, request.count)
            continue
        state, group = _launch(state, group, request, blueprint)
    return state, group


def _launch(state: State, group: Group, request: Request, blueprint: Blueprint) -> tuple[State, Group]:
    placement = place(group, request.count, blueprint, state.faults.launches)
    state = replace(state, faults=replace(state.faults, launches=placement.faults))
    messages = _messages(group, blueprint, placement)
    state, group = _start(state, group, request, blueprint, placement.placed)
    group = _fail(state, group, request, messages)
    return state, _again(state, group, request, request.count - len(placement.placed))


def blueprint_of(group: Group, catalogue: Catalogue) -> Blueprint | None:
    """What a new instance of the group is made from; None where that does not exist."""
    source = group.source
    if isinstance(source, FromConfiguration):
        machine = catalogue.configurations.get(source.name)
        return None if machine is None else Blueprint(machine=machine, configuration=source.name)
    wanted = source.template if isinstance(source, FromMixed) else source
    version = template_version(wanted, catalogue)
    template = catalogue.templates.get(wanted.id)
    if template is None or not 1 <= version <= len(template.versions):
        return None
    machine = template.versions[version - 1]
    if machine is None:
        return None
    return Blueprint(machine=machine, template_id=template.id, template_name=template.name, template_version=version)


def template_version(source: FromTemplate, catalogue: Catalogue) -> int:
    """The number that "$Latest", "$Default" or a number stands for now; 0 where the template does not exist."""
    template = catalogue.templates.get(source.id)
    if template is None:
        return 0
    match source.version.lower():
        case "$latest":
            return len(template.versions)
        case "$default" | "":
            return template.default
        case number:
            return int(number) if number.isdigit() else 0


def _source_name(group: Group) -> str:
    source = group.source.template if isinstance(group.source, FromMixed) else group.source
    return source.name if isinstance(source, FromConfiguration) else f"{source.name} version {source.version}"


def place(group: Group, count: int, blueprint: Blueprint, faults: tuple[LaunchFault, ...]) -> Placement:
    """Find room for `count` instances: the emptiest zone first, there the first type that has capacity."""
    types = [blueprint.machine.instance_type]
    if isinstance(group.source, FromMixed) and group.source.overrides:
        types = [type_ or blueprint.machine.instance_type for type_ in group.source.overrides]
    population = dict.fromkeys(group.zones, 0)
    on_demand = 0
    for instance in group.live():
        population[instance.zone] = population.get(instance.zone, 0) + 1
        on_demand += not instance.spot
    remaining = list(faults)
    placed: list[Placed] = []
    blocked: dict[str, tuple[str, LaunchFault]] = {}
    on_demand_wanted = _on_demand_wanted(group)
    while len(placed) < count and len(blocked) < len(group.zones):
        zone = min((zone for zone in group.zones if zone not in blocked), key=lambda zone: population[zone])
        found = _first_with_room(group.name, zone, types, remaining)
        if isinstance(found, tuple):
            blocked[zone] = found
            continue
        spot = on_demand >= on_demand_wanted
        placed.append(Placed(zone=zone, instance_type=found, spot=spot))
        population[zone] += 1
        on_demand += not spot
    return Placement(placed=tuple(placed), blocked=blocked, faults=tuple(remaining))


def _first_with_room(
    group: str, zone: str, types: list[str], remaining: list[LaunchFault]
) -> str | tuple[str, LaunchFault]:
    """The first type that has capacity, counted off in `remaining`; else the first type with what stands in its way."""
    first: tuple[str, LaunchFault] | None = None
    for type_ in types:
        index = next((i for i, fault in enumerate(remaining) if fault.hits(group, zone, type_)), None)
        if index is None:
            return type_
        fault = remaining[index]
        if fault.available > 0:
            remaining[index] = replace(fault, available=fault.available - 1)
            return type_
        first = first or (type_, fault)
    assert first is not None, "a group launches at least one type"
    return first


def _on_demand_wanted(group: Group) -> int:
    if not isinstance(group.source, FromMixed):
        return group.max_size + group.desired  # all of them
    above = max(0, group.desired - group.source.on_demand_base)
    return group.source.on_demand_base + math.ceil(above * group.source.on_demand_percent / 100)


def _start(
    state: State, group: Group, request: Request, blueprint: Blueprint, placed: tuple[Placed, ...]
) -> tuple[State, Group]:
    if not placed:
        return state, group
    before = len(group.live())
    boots = list(state.faults.boots)
    instances = dict(group.instances)
    timers = list(group.timers)
    activities: list[Activity] = []
    new: list[Instance] = []
    for offset, where in enumerate(placed):
        instance, pending_ms = _instance(state, group, blueprint, where, state.launched + offset, boots)
        new.append(instance)
        cause = words.launched(request.cause, state.now_ms, before + offset, before + offset + 1)
        activities.append(
            Activity(
                id="", group=group.name, status="InProgress", cause=cause, started_ms=state.now_ms, progress=30,
                zone=where.zone, description=f"Launching a new EC2 instance: {instance.id}",
            )
        )  # fmt: skip
        timers.append((state.now_ms + pending_ms, "serve", instance.id))
        if instance.boot_after_ms is not None:
            timers.append((state.now_ms + instance.boot_after_ms, "boot", instance.id))
    group = add_activities(group, activities)
    for instance, activity_id in zip(new, list(group.activities)[-len(new) :], strict=True):
        instances[instance.id] = replace(instance, activity=activity_id)
    state = replace(state, launched=state.launched + len(new), faults=replace(state.faults, boots=tuple(boots)))
    return state, replace(group, instances=instances, timers=tuple(sorted(timers)))


def _instance(
    state: State, group: Group, blueprint: Blueprint, where: Placed, number: int, boots: list[BootFault]
) -> tuple[Instance, int]:
    boot_ms, pending_ms = _boot(state, group.name, where, boots)
    # The default VPC's block, 172.31.0.0/16, without the addresses that AWS keeps (AWS "Subnet CIDR blocks": the first four).
    host = 4 + number % 65_000
    address = f"172.31.{host // 256}.{host % 256}"
    instance = Instance(
        id=f"i-{hex_id(f'{state.seed}/{state.region}', 'instance', number, 17)}", group=group.name, zone=where.zone,
        instance_type=where.instance_type, image_id=blueprint.machine.image_id, lifecycle="Pending",
        launch_ms=state.now_ms, boot_after_ms=boot_ms, private_ip=address,
        private_dns_name=private_name(state.region, address), configuration=blueprint.configuration,
        template_id=blueprint.template_id, template_name=blueprint.template_name,
        template_version=blueprint.template_version, spot=where.spot, protected=group.protect_new,
        tags={tag.key: tag.value for tag in group.tags if tag.propagate} | {"aws:autoscaling:groupName": group.name},
    )  # fmt: skip
    return instance, pending_ms


def _boot(state: State, group: str, where: Placed, boots: list[BootFault]) -> tuple[int | None, int]:
    for index, fault in enumerate(boots):
        if fault.count == 0 or not fault.hits(group, where.zone, where.instance_type):
            continue
        if fault.count is not None:
            boots[index] = replace(fault, count=fault.count - 1)
        return fault.boot_ms, state.timing.pending_ms if fault.pending_ms is None else fault.pending_ms
    return state.timing.boot_ms, state.timing.pending_ms


def _messages(group: Group, blueprint: Blueprint, placement: Placement) -> dict[str, str]:
    others = [zone for zone in group.zones if zone not in placement.blocked]
    return {
        zone: words.launch_failed(fault, group.source, zone, (instance_type, blueprint.machine.image_id), others)
        for zone, (instance_type, fault) in placement.blocked.items()
    }


def _fail(state: State, group: Group, request: Request, messages: dict[str, str]) -> Group:
    """One Failed activity for each zone that was tried: one RunInstances call is for one zone and fails as a whole."""
    live = len(group.live())
    cause = words.launched(request.cause, state.now_ms, live, live + request.count)
    failed = [
        Activity(
            id="", group=group.name, status="Failed", message=message, cause=cause, progress=100, zone=zone,
            description=f"Launching a new EC2 instance.  Status Reason: {message}",
            started_ms=state.now_ms, ended_ms=state.now_ms,
        )
        for zone, message in messages.items()
    ]  # fmt: skip
    return add_activities(group, failed) if failed else group


def _again(state: State, group: Group, request: Request, count: int) -> Group:
    if not count:
        return group
    later = Request(count=count, due_ms=state.now_ms + state.timing.retry_ms, cause=request.cause)
    return replace(group, requests=(*group.requests, later))
