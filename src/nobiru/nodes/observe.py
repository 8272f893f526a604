"""What the room looks at: the caches of the cluster, the cloud's groups, our rights; joined into one Snapshot.

Edge of the room.  The caches feed `Books` as they change, so looking is copying.  Between freezing the first and the last thing
there is no await, so a Snapshot is of one moment.  Invariant: an answer of the cloud that cannot be had leaves the last one, with its age.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from nobiru.kernel.clock import Clock
from nobiru.kernel.errors import CloudError, KubeError
from nobiru.kernel.objects import ConfigMap, Node, Pod, PodDisruptionBudget, Workload
from nobiru.kernel.reason import Why
from nobiru.kube.cache import Cache
from nobiru.kube.client import (
    CONFIGMAPS,
    DAEMONSETS,
    JOBS,
    NODES,
    PDBS,
    PODS,
    REPLICASETS,
    REPLICATIONCONTROLLERS,
    STATEFULSETS,
    Client,
)
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import Freshness, Memory, Rights, Snapshot
from nobiru.nodes.news import News
from nobiru.nodes.plan.marks import DELETE_TAINT
from nobiru.nodes.plan.membership import instance_id
from nobiru.nodes.ports import Description, Groups
from nobiru.nodes.snapshot import Workloads, controllers, daemon_pods, missing_replicas, pause_problem, paused
from nobiru.placement.books import Books, placed_alike
from nobiru.sinks.log import Log

log = Log("observe")

RIGHTS_MS = 60_000  # rights are asked for again after this long: somebody may have granted or taken one
CLOUD_QUIET_MS = 30_000  # with nothing on its way the cloud is asked this often (Cluster Autoscaler: 60 s)
WORKLOADS = {
    "ReplicaSet": REPLICASETS,
    "ReplicationController": REPLICATIONCONTROLLERS,
    "StatefulSet": STATEFULSETS,
    "DaemonSet": DAEMONSETS,
    "Job": JOBS,
}


class Caches:
    """Every kind that the room reads, feeding the books and the news."""

    def __init__(self, books: Books, news: News) -> None:
        self.books, self._news = books, news
        self.pods: Cache[Pod] = Cache(PODS, Pod, admit=books.admit)
        self.nodes: Cache[Node] = Cache(NODES, Node)
        self.budgets: Cache[PodDisruptionBudget] = Cache(PDBS, PodDisruptionBudget)
        self.workloads: dict[str, Cache[Workload]] = {
            kind: Cache(resource, Workload) for kind, resource in WORKLOADS.items()
        }
        self.pods.listen(self._pod, self._pod_gone)
        self.nodes.listen(self._node, self._node_gone)

    @property
    def all(self) -> tuple[Cache[Any], ...]:
        return (self.nodes, self.pods, self.budgets, *self.workloads.values())

    async def synced(self) -> None:
        """Wait until every kind was listed, or refused."""
        for cache in self.all:
            await cache.synced.wait()

    def _pod(self, before: Pod | None, pod: Pod) -> None:
        if before is not None and placed_alike(before, pod):
            return
        waiting = self.books.newly_unschedulable
        self.books.upsert_pod(pod)
        if self.books.newly_unschedulable > waiting or (before is not None and self._drains(before)):
            self._news.tell()

    def _pod_gone(self, pod: Pod) -> None:
        self.books.delete_pod(pod.key)
        if self._drains(pod):
            self._news.tell()

    def _drains(self, pod: Pod) -> bool:
        """Whether the pod is on a node that is being removed."""
        node = self.nodes.get(("", pod.spec.node_name)) if pod.spec.node_name else None
        return node is not None and any(taint.key == DELETE_TAINT for taint in node.taints)

    def _node(self, before: Node | None, node: Node) -> None:
        self.books.upsert_node(node)
        if before is None or before.spec != node.spec or _ready(before) != _ready(node):
            self._news.tell()

    def _node_gone(self, node: Node) -> None:
        self.books.delete_node(node.name)
        self._news.tell()


def _ready(node: Node) -> str:
    return next((each.status for each in node.status.conditions or () if each.type == "Ready"), "")


class Observer:
    """Makes Snapshots."""

    def __init__(
        self,
        *,
        caches: Caches,
        groups: Groups,
        client: Client,
        clock: Clock,
        config: NodesConfig,
        identity: str,
        note_nodes: Callable[[Iterable[Node]], None],
    ) -> None:
        self._caches, self._groups, self._client = caches, groups, client
        self._clock, self._config, self._identity = clock, config, identity
        self._note_nodes = note_nodes
        self._description: Description | None = None
        self._described_ms = 0
        self._rights = Rights()
        self._rights_ms: int | None = None
        self._pause: dict[str, str] = {}
        self.stale = True  # whether the cloud is to be asked before the next Snapshot

    def note_status(self, annotations: dict[str, str]) -> None:
        """The status ConfigMap's annotations, as the last write or read showed them."""
        self._pause = annotations

    async def observe(self, memory: Memory) -> Snapshot:
        """The Snapshot of now.

        Raises:  CloudError where the cloud never answered yet.
        """
        await asyncio.gather(self._ask_rights(), self._ask_cloud(memory), self._ask_pause())
        return self._freeze()

    async def _ask_cloud(self, memory: Memory) -> None:
        age_ms = self._clock.monotonic_ms() - self._described_ms
        busy = bool(memory.raises or memory.terminating or memory.unregistered_since_ms or memory.missing_since_ms)
        limit_ms = (
            self._config.process.scan_interval_ms
            if busy
            else max(CLOUD_QUIET_MS, self._config.process.scan_interval_ms)
        )
        waiting = self._caches.books.newly_unschedulable > 0
        limit_ms = min(limit_ms, self._config.process.scan_interval_ms) if waiting else limit_ms
        if self._description is not None and not self.stale and age_ms < limit_ms - 50:
            return
        ids = frozenset(instance_id(node.spec.provider_id) for node in self._caches.nodes.values())
        self._note_nodes(self._caches.nodes.values())
        began_ms = self._clock.monotonic_ms()
        try:
            self._description = await self._groups.describe(ids)
        except CloudError as error:
            if self._description is None:
                raise
            log.warning("the cloud cannot be read", error=str(error), age_s=age_ms // 1000)
            return
        self._described_ms = began_ms
        self.stale = False

    async def _ask_rights(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._rights_ms is not None and now_ms - self._rights_ms < RIGHTS_MS:
            return
        try:
            evict, patch, update = await asyncio.gather(
                self._client.review_access("create", "", "pods", subresource="eviction"),
                self._client.review_access("patch", "", "nodes"),
                self._client.review_access("update", "", "nodes"),
            )
        except KubeError as error:
            log.warning("rights cannot be asked for", error=str(error))
            return
        self._rights = Rights(evict=evict, update_nodes=patch or update)
        self._rights_ms = now_ms

    async def _ask_pause(self) -> None:
        """Read the pause annotation where no status is written, which would bring it along."""
        if self._config.process.write_status:
            return
        process = self._config.process
        try:
            found = await self._client.get(CONFIGMAPS, process.namespace, process.status_name, ConfigMap)
        except KubeError:
            return
        self._pause = found.annotations

    def _freeze(self) -> Snapshot:
        """One moment: no await below this line."""
        assert self._description is not None
        caches, description = self._caches, self._description
        now_ms, heard_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        daemon_sets = caches.workloads["DaemonSet"].values()
        daemons = daemon_pods(daemon_sets, caches.books.classes)
        cluster = caches.books.freeze()
        readable = {kind: cache.freeze() for kind, cache in caches.workloads.items() if not cache.denied}
        known = controllers(Workloads(by_kind=readable))
        unreadable = frozenset(cache.resource.plural for cache in caches.all if cache.denied)
        others: dict[str, Why] = description.others
        return Snapshot(
            now_ms=now_ms,
            cluster=cluster,
            groups=description.groups,
            other_groups=others,
            group_problem=description.problem,
            budgets=caches.budgets.freeze(),
            controllers=known,
            unreadable_owner_kinds=frozenset(kind for kind in caches.workloads if kind not in readable),
            missing=missing_replicas(cluster, known, now_ms, self._config.scale_up.pod_injection_limit),
            daemons=daemons,
            rights=replace(self._rights, denied_aws=description.denied, unreadable=unreadable),
            freshness=Freshness(
                kube_age_ms=heard_ms - min(caches.nodes.fresh_ms, caches.pods.fresh_ms),
                cloud_age_ms=heard_ms - self._described_ms,
            ),
            paused=paused(self._pause),  # type: ignore[arg-type]
            pause_problem=pause_problem(self._pause),
            identity=self._identity,
        )
