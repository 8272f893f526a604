"""What every kubelet does next, as functions of machines, Nodes, pods, its memory and the time.

It refuses to know: how a Node or a status is written (`sim.kubelet_wire`), any wire, any clock.
Invariants: a Node is created once for each machine; nothing is done for a machine that is gone, or whose kubelet hangs;
each step is read off what the API server shows, so that it can be taken again after a failure.
Source: kubelet 1.36 pkg/kubelet, what of it the API server can see.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from nobiru.kernel.objects import Key, Node
from nobiru.kernel.quantity import parse_quantity
from nobiru.sim.kubelet_model import (
    EXIT_CODE,
    NOTHING,
    RUN_MS,
    START_MS,
    STOP_MS,
    Beat,
    EndPod,
    HollowPod,
    Life,
    Machine,
    Register,
    RemovePod,
    Report,
    Seat,
    StartPod,
    Step,
    Topic,
)

Item = TypeVar("Item", covariant=True)

TERMINAL = frozenset({"Succeeded", "Failed"})
KILLED = 143  # 128 + SIGTERM: what a container that is told to stop ends with
NEW = Seat()


class Shown(Protocol[Item]):
    """Objects by key, as an API server shows them: a dict, or a cache."""

    def get(self, key: Key, /) -> Item | None:
        """The object, if there is one."""
        ...


class View(Struct, frozen=True, kw_only=True):
    """All that is decided upon; machines and seats by the Node's name, Nodes by ("", name), the rest by (namespace, name)."""

    machines: Mapping[str, Machine]
    nodes: Shown[Node]
    pods: Shown[HollowPod]
    seats: Mapping[str, Seat] = {}
    lives: Mapping[Key, Life] = {}


def decide(view: View, topics: Iterable[Topic], now_ms: int) -> dict[Topic, Step]:
    """The next step about each topic; topics about which nothing is to be done, ever, are left out."""
    steps: dict[Topic, Step] = {}
    for topic in topics:
        namespace, name = topic
        if namespace:
            step = _about_pod(view, topic, now_ms)
        else:
            machine = view.machines.get(name)
            step = (
                decide_node(machine, view.seats.get(name, NEW), view.nodes.get(topic), now_ms) if machine else NOTHING
            )
        if step != NOTHING:
            steps[topic] = step
    return steps


def _about_pod(view: View, key: Key, now_ms: int) -> Step:
    pod, life = view.pods.get(key), view.lives.get(key)
    if pod is None or life is None or life.uid != pod.metadata.uid:
        return NOTHING
    machine = view.machines.get(pod.spec.node_name)
    if machine is None or hangs(machine, view.seats.get(machine.node, NEW), now_ms):
        return NOTHING
    return decide_pod(pod, life, machine, now_ms)


# Nodes


def decide_node(machine: Machine, seat: Seat, node: Node | None, now_ms: int) -> Step:
    """What the kubelet of this machine does about its own Node.

    A Node that was deleted under a running kubelet stays away: a kubelet registers when it starts, not later (report B10).
    """
    if seat.registered_ms is None:
        return _registration(machine, node, now_ms)
    if node is None or hangs(machine, seat, now_ms):
        return NOTHING
    profile, since_ms = machine.profile, seat.registered_ms
    ready, gpus = _passed(profile.ready_ms, since_ms, now_ms), _passed(profile.gpu_ms, since_ms, now_ms)
    turned = ready != is_ready(node)
    if turned or now_ms >= seat.status_at_ms or _offers_other(machine, node, gpus=gpus):
        return Step(action=Report(machine=machine, ready=ready, turned=turned, gpus=gpus))
    if now_ms >= seat.lease_at_ms:
        return Step(action=Beat(machine=machine, uid=node.metadata.uid, create=not seat.lease_made))
    ahead = [seat.status_at_ms, seat.lease_at_ms]
    ahead += [since_ms + span for span in (profile.ready_ms, profile.gpu_ms) if span is not None]
    return Step(wake_ms=min(at_ms for at_ms in ahead if at_ms > now_ms))


def _registration(machine: Machine, node: Node | None, now_ms: int) -> Step:
    if machine.profile.register_ms is None:
        return NOTHING
    due_ms = machine.started_ms + machine.profile.register_ms
    if now_ms < due_ms:
        return Step(wake_ms=due_ms)
    if node is not None and node.spec.provider_id not in ("", machine.provider_id):
        return NOTHING  # the Node of an earlier machine of that name: once it is gone, this is looked at again
    return Step(action=Register(machine=machine))


def hangs(machine: Machine, seat: Seat, now_ms: int) -> bool:
    """Whether the kubelet has stopped doing anything."""
    return seat.registered_ms is not None and _passed(machine.profile.silent_ms, seat.registered_ms, now_ms)


def _passed(span_ms: int | None, since_ms: int, now_ms: int) -> bool:
    return span_ms is not None and now_ms >= since_ms + span_ms


def is_ready(node: Node) -> bool:
    """Whether the Node's condition Ready is True."""
    return any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions or ())


def _offers_other(machine: Machine, node: Node, *, gpus: bool) -> bool:
    """Whether the Node shows less or other resources than the machine has."""
    shown = node.status.allocatable or {}
    return any(
        name not in shown or parse_quantity(shown[name], 1000) != parse_quantity(quantity, 1000)
        for name, quantity in offered(machine, gpus=gpus)["allocatable"].items()
    )


def offered(machine: Machine, *, gpus: bool) -> dict[str, dict[str, str]]:
    """Capacity and allocatable, with the GPUs once their plugin has reported them."""
    more = dict(machine.profile.resources)
    if gpus and machine.shape.gpus:
        more = {"nvidia.com/gpu": str(machine.shape.gpus)} | more
    return {"capacity": machine.shape.capacity | more, "allocatable": machine.shape.allocatable | more}


def registered(machine: Machine, now_ms: int) -> Seat:
    """The memory after the Node was created, or found: the first Lease at once."""
    return Seat(registered_ms=now_ms, lease_at_ms=now_ms, status_at_ms=now_ms + machine.profile.status_ms)


def reported(machine: Machine, seat: Seat, now_ms: int) -> Seat:
    """The memory after a status was written."""
    return replace(seat, status_at_ms=now_ms + machine.profile.status_ms)


def beaten(machine: Machine, seat: Seat, now_ms: int) -> Seat:
    """The memory after a Lease was written.

    The second beat after registration comes early, each Node's at its own time, so that machines which boot together do not
    beat together for ever.
    """
    span_ms = machine.profile.lease_ms
    if not seat.lease_made:
        span_ms = 1 + crc32(machine.node.encode()) % span_ms
    return replace(seat, lease_made=True, lease_at_ms=now_ms + span_ms)


# Pods


def decide_pod(pod: HollowPod, life: Life, machine: Machine, now_ms: int) -> Step:
    """What the kubelet does about a pod that is bound to its Node."""
    if life.removed:
        return NOTHING  # a finalizer still holds it
    if pod.metadata.deletion_timestamp is not None:
        return _deletion(pod, life, machine, now_ms)
    if life.ended or pod.status.phase in TERMINAL:
        return NOTHING
    if life.started_ms is None:
        due_ms = life.seen_ms + _stated(pod, START_MS, machine.profile.pod_start_ms)
        return _when(due_ms, now_ms, Step(action=StartPod(pod=pod, machine=machine)))
    return _completion(pod, life.started_ms, machine, now_ms)


def _completion(pod: HollowPod, started_ms: int, machine: Machine, now_ms: int) -> Step:
    run_ms, code = _stated(pod, RUN_MS, -1), max(0, _stated(pod, EXIT_CODE, 0))
    policy = pod.spec.restart_policy
    if run_ms < 0 or policy == "Always" or (policy == "OnFailure" and code != 0):
        return NOTHING  # what would be started again at once is shown as running on
    end = EndPod(pod=pod, machine=machine, exit_code=code, started_ms=started_ms)
    return _when(started_ms + run_ms, now_ms, Step(action=end))


def _deletion(pod: HollowPod, life: Life, machine: Machine, now_ms: int) -> Step:
    """Containers get their grace; what never ran, or has ended, goes at once.

    A kubelet reports the end of the containers before it lets the pod go; here only where somebody waits for it (a finalizer).
    """
    runs = life.started_ms is not None and not life.ended and pod.status.phase not in TERMINAL
    if runs:
        since_ms = now_ms if life.leaving_ms is None else life.leaving_ms
        grace_ms = 1000 * (pod.metadata.deletion_grace_period_seconds or 0)
        due_ms = since_ms + min(grace_ms, _stated(pod, STOP_MS, machine.profile.pod_stop_ms))
        if now_ms < due_ms:
            return Step(wake_ms=due_ms)
    if pod.metadata.finalizers and not life.ended and pod.status.phase not in TERMINAL:
        started_ms = life.seen_ms if life.started_ms is None else life.started_ms
        return Step(action=EndPod(pod=pod, machine=machine, exit_code=KILLED, started_ms=started_ms))
    return Step(action=RemovePod(pod=pod))


def _when(due_ms: int, now_ms: int, step: Step) -> Step:
    return step if now_ms >= due_ms else Step(wake_ms=due_ms)


def _stated(pod: HollowPod, annotation: str, otherwise: int) -> int:
    """The pod's own word on itself."""
    text = pod.annotations.get(annotation, "")
    return int(text) if text.isdecimal() else otherwise


def watched(life: Life | None, pod: HollowPod, now_ms: int) -> Life:
    """The memory of a pod after it was seen; another pod of the same name is a new life.

    A pod that runs already (the kubelets were started anew) counts as started now, a terminal one as ended.
    """
    if life is None or life.uid != pod.metadata.uid:
        life = Life(uid=pod.metadata.uid, seen_ms=now_ms)
    if life.started_ms is None and pod.status.phase == "Running":
        life = replace(life, started_ms=now_ms)
    if not life.ended and pod.status.phase in TERMINAL:
        life = replace(life, ended=True)
    if life.leaving_ms is None and pod.metadata.deletion_timestamp is not None:
        life = replace(life, leaving_ms=now_ms)
    return life
