"""The cloud's node lifecycle controller: a Node goes a little after its instance.

It refuses to know: why an instance went.  Invariant: only Nodes of instances that the cloud has once listed are ever
deleted, and nothing else is written; what the cloud does not answer counts as unchanged.
Source: cloud-provider 1.36 controllers/nodelifecycle, which asks the cloud about each Node every 5 s.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Never

from msgspec import Struct

from nobiru.kernel.clock import Clock
from nobiru.kernel.errors import KubeError
from nobiru.kernel.objects import Node
from nobiru.kube.cache import Cache
from nobiru.kube.client import NODES, Client
from nobiru.sim.instances import Instances
from nobiru.sinks.log import Log

log = Log("node lifecycle")

DELAY_MS = 2_000
RETRY_MS = 500
CALLS_MAX = 16  # deletions under way at once
# aws:///zone/instance; Fargate has a third segment, and no instance (spec/cluster-autoscaler.md 4.3).
PROVIDER_ID = re.compile(r"aws:///[-0-9a-z]+/(i-[0-9a-z]+)")


class Verdict(Struct, frozen=True, kw_only=True):
    """Which Nodes go now, which were found without instance and since when, and when to look again."""

    delete: tuple[tuple[str, str], ...] = ()  # name and uid
    missing_ms: dict[str, int] = {}  # by uid
    wake_ms: int | None = None


def instance_of(node: Node) -> str:
    """The id of the Node's instance; "" where it has none: Fargate, other clouds, no cloud at all."""
    match = PROVIDER_ID.fullmatch(node.spec.provider_id)
    return match[1] if match else ""


def judge(
    nodes: Iterable[Node],
    listed: Set[str],
    known: Set[str],
    missing_ms: Mapping[str, int],
    now_ms: int,
    *,
    delay_ms: int,
) -> Verdict:
    """What the controller does about these Nodes.

    `listed` are the instances there are, `known` all that there ever were.  Order: by name.
    """
    delete: list[tuple[str, str]] = []
    missing: dict[str, int] = {}
    for node in sorted(nodes, key=lambda node: node.name):
        instance, uid = instance_of(node), node.metadata.uid
        if instance in listed or instance not in known:
            continue
        missing[uid] = missing_ms.get(uid, now_ms)
        if now_ms >= missing[uid] + delay_ms:
            delete.append((node.name, uid))
    ahead = [since_ms + delay_ms for since_ms in missing.values() if since_ms + delay_ms > now_ms]
    return Verdict(delete=tuple(delete), missing_ms=missing, wake_ms=min(ahead, default=None))


class NodeLifecycle:
    """The controller; `run` plays it until it is cancelled."""

    def __init__(
        self, client: Client, clock: Clock, instances: Instances, nodes: Cache[Node], delay_ms: int = DELAY_MS
    ) -> None:
        self._client, self._clock, self._instances, self._nodes = client, clock, instances, nodes
        self._delay_ms = delay_ms
        self._known: set[str] = set()
        self._missing_ms: Mapping[str, int] = {}
        self._poke = asyncio.Event()
        instances.listen(self._listed)
        nodes.listen(self._node_seen, lambda _: None)

    def _listed(self) -> None:
        self._known |= self._instances.listed.keys()
        self._poke.set()

    def _node_seen(self, before: Node | None, node: Node) -> None:
        if before is None or before.spec.provider_id != node.spec.provider_id:
            self._poke.set()

    async def run(self) -> Never:
        """Delete what is to go, until cancelled."""
        await self._instances.synced.wait()
        await self._nodes.synced.wait()
        while True:
            self._poke.clear()
            now_ms = self._clock.now_ms()
            verdict = judge(
                self._nodes.values(),
                self._instances.listed.keys(),
                self._known,
                self._missing_ms,
                now_ms,
                delay_ms=self._delay_ms,
            )
            self._missing_ms = verdict.missing_ms
            ahead_ms = [] if verdict.wake_ms is None else [verdict.wake_ms]
            if not await self._delete_all(verdict.delete):
                ahead_ms.append(now_ms + RETRY_MS)
            await self._wait(max(0, min(ahead_ms) - self._clock.now_ms()) / 1000 if ahead_ms else None)

    async def _delete_all(self, nodes: Sequence[tuple[str, str]]) -> bool:
        """Whether all those Nodes are gone."""
        gone = True
        if nodes:
            log.info("instances gone, so their nodes go", nodes=len(nodes), first=nodes[0][0])
        for first in range(0, len(nodes), CALLS_MAX):
            async with asyncio.TaskGroup() as tasks:
                calls = [
                    tasks.create_task(self._delete(*node), name=f"delete {node[0]}")
                    for node in nodes[first:][:CALLS_MAX]
                ]
            gone = gone and all(call.result() for call in calls)
        return gone

    async def _delete(self, name: str, uid: str) -> bool:
        try:
            await self._client.delete(NODES, "", name, uid=uid)
        except KubeError as error:  # a conflict too: the cache will show the Node that has the name now
            log.warning("node not deleted", node=name, error=str(error))
            return False
        return True

    async def _wait(self, wait_s: float | None) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._poke.wait()
        except TimeoutError:
            return
