"""A cluster's outside world on any API server: hollow kubelets and the node lifecycle, living by what a cloud lists.

    async with Cloud.start() as cloud, World(cloud, client, WorldConfig(...)) as world:
        await cloud.create_group("web", 0, 6, 3, configuration="web")
        await world.wait_for_nodes(3)

It refuses to know: who the API server is, and how the cloud behaves.
Invariant: its tasks live exactly as long as its context; a task that fails ends the context, and every wait, with its error.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from msgspec import Struct

from nobiru.kernel.clock import Clock
from nobiru.kernel.objects import Node
from nobiru.kube.cache import Cache, Follow, follow
from nobiru.kube.client import NODES, PODS, Client
from nobiru.sim.asg_state import private_name
from nobiru.sim.instances import Instances, Listing
from nobiru.sim.kubelet import HollowKubelets
from nobiru.sim.kubelet_calls import Calls
from nobiru.sim.kubelet_fleet import Fleet
from nobiru.sim.kubelet_model import HollowPod, Kubelets, Profile, StaticNode
from nobiru.sim.kubelet_plan import is_ready
from nobiru.sim.node_lifecycle import DELAY_MS, NodeLifecycle

Answer = TypeVar("Answer")

WAIT_S = 30.0
# Quick to come back: what is proved with a world is somebody else's patience.
FOLLOW = Follow(backoff_s=(0.05, 0.5))
# Machines of OpenShift 3.11 as its installer labels them; the walk-through's group starts the first kind.
OPENSHIFT_COMPUTE = Profile(image="rhel-3.11", node_labels={"node-role.kubernetes.io/compute": "true"})
OPENSHIFT_INFRA = Profile(image="rhel-3.11", node_labels={"node-role.kubernetes.io/infra": "true"})


class WorldConfig(Struct, frozen=True, kw_only=True):
    """What a world is made of; `lifecycle_ms` None: nobody deletes the Nodes of instances that are gone."""

    kubelets: Kubelets = Kubelets()
    lifecycle_ms: int | None = DELAY_MS


class WallClock:
    """The real time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment."""
        return time.monotonic_ns() // 1_000_000


class World:
    """The running world.  What it shows is what the API server showed last; `fleet` is for changes on the way."""

    def __init__(
        self, cloud: Listing, client: Client, config: WorldConfig | None = None, clock: Clock | None = None
    ) -> None:
        config = config or WorldConfig()
        self._client, self._clock = client, clock or WallClock()
        self._nodes, self._pods = Cache(NODES, Node), Cache(PODS, HollowPod)
        self._instances = Instances(cloud)
        self.fleet = Fleet(config.kubelets, self._instances, self._clock)
        self._kubelets = HollowKubelets(
            Calls(client, self._clock),
            self._clock,
            config.kubelets,
            fleet=self.fleet,
            nodes=self._nodes,
            pods=self._pods,
        )
        self._lifecycle: NodeLifecycle | None = None
        if config.lifecycle_ms is not None:
            self._lifecycle = NodeLifecycle(client, self._clock, self._instances, self._nodes, config.lifecycle_ms)
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._nodes.listen(lambda _, __: self._tell(), lambda _: self._tell())
        self._pods.listen(lambda _, __: self._tell(), lambda _: self._tell())
        self.fleet.listen(lambda _: self._tell())

    async def __aenter__(self) -> Self:
        """Start; returns when what the API server and the cloud show now is known."""
        await self._group.__aenter__()
        try:
            self._start("follow nodes", follow(self._nodes, self._client, self._clock, FOLLOW))
            self._start("follow pods", follow(self._pods, self._client, self._clock, FOLLOW))
            self._start("follow instances", self._instances.follow())
            self._start("kubelets", self._kubelets.run())
            if self._lifecycle is not None:
                self._start("node lifecycle", self._lifecycle.run())
            async with asyncio.timeout(WAIT_S):
                for synced in (self._nodes.synced, self._pods.synced, self._instances.synced):
                    await synced.wait()
        except BaseException as error:
            await self._end(error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(error)

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._group.create_task(work, name=f"world: {name}")
        task.add_done_callback(lambda _: self._tell())
        self._tasks.append(task)

    async def _end(self, error: BaseException | None) -> None:
        """End all tasks.  Raises what one of them failed with; an error of the context's body passes as it is."""
        for task in self._tasks:
            task.cancel()
        # A failed task cancels the body: the group must see that cancellation to take it back.
        cancelled = error if isinstance(error, asyncio.CancelledError) else None
        kind = type(cancelled) if cancelled is not None else None
        await self._group.__aexit__(kind, cancelled, None)

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # What there is

    def nodes(self, *, group: str = "", ready: bool = False) -> tuple[Node, ...]:
        """The Nodes by name: all, those of a group's machines, the Ready ones."""
        return tuple(
            node
            for node in self._nodes.freeze()
            if (not ready or is_ready(node)) and group in ("", self.fleet.group_of(node.name))
        )

    def node(self, name: str) -> Node | None:
        """The Node of that name, if there is one."""
        return self._nodes.get(("", name))

    def pods(self, namespace: str = "", *, node: str = "", phase: str = "", **labels: str) -> tuple[HollowPod, ...]:
        """The pods by namespace and name: all, or those of a namespace, on a node, in a phase, with those labels."""
        return tuple(
            pod
            for pod in self._pods.freeze()
            if namespace in ("", pod.metadata.namespace)
            and node in ("", pod.spec.node_name)
            and phase in ("", pod.status.phase)
            and labels.items() <= pod.labels.items()
        )

    # Waiting

    async def wait_until(self, what: str, check: Callable[[], Answer | None], timeout_s: float = WAIT_S) -> Answer:
        """The first answer of `check` that is true; asked at every change of Nodes, pods or machines.

        Raises:  TimeoutError that names `what` and shows the world; RuntimeError if one of the world's tasks ended.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    changed = self._changed
                    answer = check()
                    if answer:
                        return answer
                    self._assert_running()
                    await changed.wait()
        except TimeoutError:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}; {self._summary()}") from None

    async def wait_for_nodes(
        self, count: int, *, group: str = "", ready: bool = True, timeout_s: float = WAIT_S
    ) -> tuple[Node, ...]:
        """The Nodes, once there are exactly so many Ready ones (or at all)."""

        def check() -> tuple[tuple[Node, ...]] | None:
            nodes = self.nodes(group=group, ready=ready)
            return (nodes,) if len(nodes) == count else None

        return (await self.wait_until(f"{count} nodes of {group or 'all'}", check, timeout_s))[0]

    async def wait_for_pods(
        self, count: int, namespace: str, *, phase: str = "Running", timeout_s: float = WAIT_S, **labels: str
    ) -> tuple[HollowPod, ...]:
        """The pods, once there are exactly so many in that phase ("": in any)."""

        def check() -> tuple[tuple[HollowPod, ...]] | None:
            pods = self.pods(namespace, phase=phase, **labels)
            return (pods,) if len(pods) == count else None

        return (await self.wait_until(f"{count} pods {phase or 'at all'} in {namespace}", check, timeout_s))[0]

    async def wait_for_no_node(self, name: str, timeout_s: float = WAIT_S) -> None:
        """Until that Node is gone."""
        await self.wait_until(f"node {name} gone", lambda: self.node(name) is None, timeout_s)

    def _assert_running(self) -> None:
        for task in self._tasks:
            if task.done() and not task.cancelled():
                raise RuntimeError(f"{task.get_name()} ended") from task.exception()

    def _summary(self) -> str:
        ready = len(self.nodes(ready=True))
        phases = Counter(pod.status.phase for pod in self._pods.values())
        bound = sum(1 for pod in self._pods.values() if pod.spec.node_name)
        return (
            f"{len(self.fleet.machines)} machines run, {len(self._nodes)} nodes of which {ready} ready, "
            f"pods: {dict(sorted(phases.items()))}, {bound} of them bound"
        )


def openshift_nodes(region: str = "ap-northeast-1", instance_type: str = "m5.large") -> tuple[StaticNode, ...]:
    """The walk-through's nodes outside any group: two compute nodes and one infra node, with instances of no group."""
    return tuple(
        StaticNode(
            name=private_name(region, address),
            private_ip=address,
            zone=f"{region}{zone}",
            instance_type=instance_type,
            instance_id=f"i-0{number:016x}",
            profile=profile,
        )
        for number, (address, zone, profile) in enumerate(
            (
                ("10.0.1.10", "a", OPENSHIFT_COMPUTE),
                ("10.0.2.10", "c", OPENSHIFT_COMPUTE),
                ("10.0.1.20", "a", OPENSHIFT_INFRA),
            ),
            start=1,
        )
    )
