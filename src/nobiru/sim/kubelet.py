"""Hollow kubelets: one set of tasks that plays the kubelet of every machine on any API server, and runs nothing.

It refuses to know: what is decided (`sim.kubelet_plan`), how it is asked for (`sim.kubelet_calls`), which machines there are
(`sim.kubelet_fleet`).
Invariants: one call at a time for each Node or pod, `calls_max` in all; a call is decided upon again just before it is
made; Nodes go before pods, so that heartbeats never wait behind thousands of pods; a call that failed is tried again, later
and later, for as long as it is still the thing to do.
"""

import asyncio
from collections import deque
from typing import Any, Never

from msgspec.structs import replace

from nobiru.kernel.clock import Clock
from nobiru.kernel.errors import KubeDenied, KubeError, KubeRejected, KubeUnavailable
from nobiru.kernel.objects import Key, Node
from nobiru.kube.cache import Cache
from nobiru.sim.agenda import Agenda
from nobiru.sim.kubelet_calls import Calls
from nobiru.sim.kubelet_fleet import Fleet
from nobiru.sim.kubelet_model import (
    NOTHING,
    Action,
    Beat,
    EndPod,
    HollowPod,
    Kubelets,
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
from nobiru.sim.kubelet_plan import NEW, View, beaten, decide, registered, reported, watched
from nobiru.sinks.log import Log

log = Log("kubelet")

# Pods' addresses: the upper half of 10.0.0.0/8, away from the Services'.  The API refuses loopback in EndpointSlices.
POD_NET, POD_NET_SIZE = 10 << 24 | 128 << 16, 1 << 23
KNUTH = 2_654_435_761  # The Art of Computer Programming 6.4: spreads numbers that follow one another
BATCH = 1_000  # topics decided upon between two turns of the event loop: some milliseconds
SETTLE_MS = 1_000  # after a Node was written: by then the watch has shown it, and nothing is written twice


class HollowKubelets:
    """The kubelets of a fleet; `run` plays them until it is cancelled."""

    def __init__(
        self, calls: Calls, clock: Clock, config: Kubelets, *, fleet: Fleet, nodes: Cache[Node], pods: Cache[HollowPod]
    ) -> None:
        self._calls, self._clock, self._config, self._fleet = calls, clock, config, fleet
        self._synced = (nodes.synced, pods.synced)
        self._seats: dict[str, Seat] = {}
        self._lives: dict[Key, Life] = {}
        self._pods_on: dict[str, set[Key]] = {}
        self._view = View(machines=fleet.machines, nodes=nodes, pods=pods, seats=self._seats, lives=self._lives)
        self._agenda: Agenda[Topic] = Agenda()
        self._poke = asyncio.Event()
        self._lanes: tuple[deque[Topic], deque[Topic]] = (
            deque(),
            deque(),
        )  # Nodes, pods; bounded by there being no twins
        self._queued: set[Topic] = set()
        self._handed = asyncio.Semaphore(0)  # topics in both lanes
        self._busy: set[Topic] = set()
        self._again: set[Topic] = set()  # busy ones about which something happened meanwhile
        self._failures: dict[Topic, int] = {}
        self._unheard: set[Topic] = set()  # since the last answer: those whose calls found no API server
        self._down, self._down_until_ms = 0, 0  # how often in a row there was none, and until when not to ask
        self._next_address = clock.now_ms() * KNUTH % POD_NET_SIZE
        for machine in fleet.machines:
            self._machine_changed(machine)
        fleet.listen(self._machine_changed)
        nodes.listen(lambda _, node: self._look(("", node.name)), lambda node: self._look(("", node.name)))
        pods.listen(lambda _, pod: self._see_pod(pod), self._forget_pod)

    # What happens

    def _machine_changed(self, node: str) -> None:
        if node not in self._fleet.machines:
            self._seats.pop(node, None)
        self._look(("", node))
        for key in self._pods_on.get(node, ()):
            self._look(key)

    def _see_pod(self, pod: HollowPod) -> None:
        if not pod.spec.node_name:
            return
        key = pod.key
        self._lives[key] = watched(self._lives.get(key), pod, self._clock.now_ms())
        self._pods_on.setdefault(pod.spec.node_name, set()).add(key)
        self._look(key)

    def _forget_pod(self, pod: HollowPod) -> None:
        self._lives.pop(pod.key, None)
        self._failures.pop(pod.key, None)
        keys = self._pods_on.get(pod.spec.node_name)
        if keys is not None:
            keys.discard(pod.key)
            if not keys:
                del self._pods_on[pod.spec.node_name]

    def _look(self, topic: Topic, after_ms: int = 0) -> None:
        self._agenda.put(topic, self._clock.now_ms() + after_ms)
        self._poke.set()

    # What is done

    async def run(self) -> None:
        """Play all kubelets until cancelled."""
        for synced in self._synced:
            await synced.wait()
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._config.calls_max):
                tasks.create_task(self._work(), name=f"hollow kubelets, call {number}")
            tasks.create_task(self._dispatch(), name="hollow kubelets")

    async def _dispatch(self) -> Never:
        while True:
            self._poke.clear()
            now_ms = self._clock.now_ms()
            due = self._agenda.pop(now_ms, BATCH)
            for topic, step in decide(self._view, due, now_ms).items():
                self._plan(topic, step)
            next_ms = self._agenda.next_ms()
            if next_ms is None or next_ms > now_ms:
                await self._wait(None if next_ms is None else (next_ms - now_ms) / 1000)
            else:
                await asyncio.sleep(0)

    async def _wait(self, wait_s: float | None) -> None:
        """Until something happens, or the time is over."""
        try:
            async with asyncio.timeout(wait_s):
                await self._poke.wait()
        except TimeoutError:
            return

    def _plan(self, topic: Topic, step: Step) -> None:
        """What is to be done goes to the calls, what is to be done later onto the agenda."""
        if step.action is None:
            if step.wake_ms is not None:
                self._agenda.put(topic, step.wake_ms)
        elif topic in self._busy:
            self._again.add(topic)
        elif topic not in self._queued:
            self._queued.add(topic)
            self._lanes[1 if topic[0] else 0].append(topic)
            self._handed.release()

    async def _work(self) -> Never:
        while True:
            await self._handed.acquire()
            nodes, pods = self._lanes
            topic = nodes.popleft() if nodes else pods.popleft()
            self._queued.discard(topic)
            now_ms = self._clock.now_ms()
            step = decide(self._view, (topic,), now_ms).get(topic, NOTHING)
            if step.action is None:
                self._plan(topic, step)
                self._poke.set()
            elif now_ms < self._down_until_ms:
                self._look(topic, self._down_until_ms - now_ms)
            else:
                await self._try(topic, step.action)

    async def _try(self, topic: Topic, action: Action) -> None:
        self._busy.add(topic)
        try:
            await self._perform(action)
        except KubeError as error:
            self._failed(topic, action, error)
        else:
            self._down = 0
            self._unheard.clear()
            self._failures.pop(topic, None)
            settles = isinstance(action, Register | Report) and topic not in self._again
            self._look(topic, SETTLE_MS if settles else 0)
        finally:
            self._busy.discard(topic)
            self._again.discard(topic)

    def _failed(self, topic: Topic, action: Action, error: KubeError) -> None:
        count = self._failures[topic] = self._failures.get(topic, 0) + 1
        wait_ms = self._back_off_ms(count)
        if isinstance(error, KubeUnavailable):
            self._unheard.add(topic)
            wait_ms = max(wait_ms, self._away_ms(error))
        else:
            wait_ms = max(wait_ms, error.retry_after_ms or 0)
        if count == 1 and isinstance(error, KubeDenied | KubeRejected):
            log.warning("refused", action=type(action).__name__, about="/".join(topic), error=str(error))
        self._look(topic, wait_ms)

    def _away_ms(self, error: KubeUnavailable) -> int:
        """For how long nothing is asked: one object's trouble holds up nobody, two in a row are the API server's."""
        now_ms = self._clock.now_ms()
        if len(self._unheard) > 1 and now_ms >= self._down_until_ms:
            self._down += 1
            self._down_until_ms = now_ms + self._back_off_ms(self._down)
            log.info("the API server is away", again_in_ms=self._down_until_ms - now_ms, error=str(error))
        return max(0, self._down_until_ms - now_ms)

    def _back_off_ms(self, failures: int) -> int:
        first_ms, longest_ms = self._config.retry_ms
        return min(longest_ms, first_ms << min(failures - 1, 16))

    async def _perform(self, action: Action) -> None:
        """Make the call, then remember it.  Raises KubeError."""
        match action:
            case Register(machine=machine):
                await self._calls.register(machine)
                self._seat(machine, registered(machine, self._clock.now_ms()))
            case Report(machine=machine):
                await self._calls.report(action)
                self._seat(machine, reported(machine, self._seats.get(machine.node, NEW), self._clock.now_ms()))
            case Beat(machine=machine):
                await self._calls.beat(action)
                self._seat(machine, beaten(machine, self._seats.get(machine.node, NEW), self._clock.now_ms()))
            case StartPod(pod=pod):
                await self._calls.start(action, self._address())
                self._live(pod, started_ms=self._clock.now_ms())
            case EndPod(pod=pod):
                await self._calls.end(action)
                self._live(pod, ended=True)
            case RemovePod(pod=pod):
                await self._calls.remove(action)
                self._live(pod, removed=True)

    def _address(self) -> str:
        """An address that no other pod of this world has."""
        number = POD_NET + self._next_address
        self._next_address = (self._next_address + 1) % POD_NET_SIZE
        return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))

    def _seat(self, machine: Machine, seat: Seat) -> None:
        """Remember, unless the machine went, or another took its name, during the call."""
        now = self._fleet.machines.get(machine.node)
        if now is not None and now.instance_id == machine.instance_id:
            self._seats[machine.node] = seat

    def _live(self, pod: HollowPod, **changes: Any) -> None:
        """Remember, unless the pod went during the call."""
        life = self._lives.get(pod.key)
        if life is not None and life.uid == pod.metadata.uid:
            self._lives[pod.key] = replace(life, **changes)
