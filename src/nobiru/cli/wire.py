"""The only place that knows all rooms: it builds the node autoscaler from its parts and runs it.

Invariant: production and dry run differ in the ports alone.
"""

import asyncio
import os
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Never

from msgspec.structs import replace

from nobiru.aws.allocatable import cluster_family
from nobiru.aws.groups import Groups as AwsGroups
from nobiru.aws.groups import GroupSpec, Wanted
from nobiru.aws.session import Aws
from nobiru.cli.startup_checks import check_ca_bundles
from nobiru.kernel.errors import ConfigError, KubeError, NobiruError
from nobiru.kernel.objects import Key, Node
from nobiru.kube.cache import Cache, Follow, follow
from nobiru.kube.client import SUBJECT_REVIEWS, TOKEN_REVIEWS, Client
from nobiru.kube.connect import connect
from nobiru.kube.events import Recorder
from nobiru.kube.lease import Elector, LeaseConfig
from nobiru.nodes import loop
from nobiru.nodes.act import Ports
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.dry_run import DryGroups, DryNodes
from nobiru.nodes.kube_nodes import KubeNodes
from nobiru.nodes.news import News
from nobiru.nodes.observe import Caches, Observer
from nobiru.nodes.plan.persist import load
from nobiru.nodes.report import Reporter
from nobiru.placement.books import Books
from nobiru.sinks.health import Limits, check
from nobiru.sinks.journal import Journal
from nobiru.sinks.log import Log
from nobiru.sinks.prometheus import NodesMetrics
from nobiru.sinks.serve import Verdict, make_app, serving

log = Log("nodes")

EXIT_OK, EXIT_WORLD, EXIT_CONFIG, EXIT_LOST_LOCK = 0, 1, 2, 3
PortsWrapper = Callable[[Ports], Ports]
RETRY_S = 2.0


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class AlwaysHeld:
    """No leader election: this process acts alone."""

    def held(self) -> bool:
        return True


class ApiAuthorizer:
    """Lets the API server judge a bearer token: TokenReview, then SubjectAccessReview."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def judge(self, token: str, path: str) -> Verdict:
        """Whether whoever has the token may get the path.  Raises KubeError."""
        review: dict[str, Any] = await self._client.create(TOKEN_REVIEWS, "", {"spec": {"token": token}}, dict)
        status = review.get("status") or {}
        if not status.get("authenticated"):
            return Verdict("unauthenticated", "the token is not valid")
        user = status.get("user") or {}
        spec = {
            "user": user.get("username", ""),
            "groups": user.get("groups") or [],
            "uid": user.get("uid", ""),
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        answer: dict[str, Any] = await self._client.create(SUBJECT_REVIEWS, "", {"spec": spec}, dict)
        if (answer.get("status") or {}).get("allowed"):
            return Verdict("allowed")
        return Verdict("forbidden", f"{spec['user']} may not get {path}: grant the nonResourceURL")


def as_they_are(ports: Ports) -> Ports:
    return ports


def run_nodes(config: NodesConfig, *, wrap: PortsWrapper = as_they_are) -> int:
    """Run the node autoscaler until it is told to stop; returns the exit code.

    `wrap` may put something around the ports that act (a simulation's faults, a recorder).
    """
    try:
        return asyncio.run(_run(config, wrap))
    except BaseExceptionGroup as group:
        error = _first(group)
        if error is None:
            raise
        raise error from group


def _first(group: BaseExceptionGroup[BaseException]) -> NobiruError | None:
    """The first of our own errors in a group, if all of it is ours."""
    for error in group.exceptions:
        found = _first(error) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(found, NobiruError):
            return found
    return None


async def _run(config: NodesConfig, wrap: PortsWrapper) -> int:
    check_ca_bundles(os.environ)
    process = config.process
    client = connect(process.kubeconfig, kubernetes_url=process.kubernetes_url, user_agent=process.user_agent)
    metrics = NodesMetrics()
    aws = Aws(observe=metrics.aws_call)
    try:
        stopped = asyncio.Event()
        running = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            running.add_signal_handler(number, stopped.set)
        program = _Program(config, client, aws, metrics, wrap)
        return await program.run(stopped)
    finally:
        aws.close()
        await client.aclose()


class _Program:
    """One process of the node autoscaler."""

    def __init__(
        self, config: NodesConfig, client: Client, aws: Aws, metrics: NodesMetrics, wrap: PortsWrapper
    ) -> None:
        if config.process.dry_run:
            config = replace(config, process=replace(config.process, write_status=False))
        self.config, self.client, self.metrics, self.wrap = config, client, metrics, wrap
        self.aws_warnings = aws.warnings
        self.clock = SystemClock()
        self.identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        self.news = News(self.clock)
        self.books = Books()
        self.caches = Caches(self.books, self.news)
        self.cloud = AwsGroups(aws, wanted(config), static_types=config.process.static_instance_types)
        self.journal = Journal()
        self.recorder = Recorder(
            client,
            self.clock,
            component="cluster-autoscaler",
            host=socket.gethostname(),
            record_duplicated=config.process.record_duplicated_events,
        )
        self.elector = None if not config.leader.enabled or config.process.dry_run else self._elector()
        self.observer = Observer(
            caches=self.caches,
            groups=self.cloud,
            client=client,
            clock=self.clock,
            config=config,
            identity=self.identity,
            note_nodes=self._note_nodes,
        )
        self.reporter = Reporter(
            client=client,
            recorder=self.recorder,
            metrics=metrics,
            journal=self.journal,
            clock=self.clock,
            config=config,
            uid_of=self._uid_of,
            note_status=self.observer.note_status,
            own_write=self._cloud_is_stale,
        )

    def _elector(self) -> Elector:
        leader = self.config.leader
        lease = LeaseConfig(
            kind=leader.kind,
            namespace=leader.namespace,
            name=leader.name,
            identity=self.identity,
            lease_duration_ms=leader.lease_duration_ms,
            renew_deadline_ms=leader.renew_deadline_ms,
            retry_period_ms=leader.retry_period_ms,
        )
        return Elector(self.client, self.clock, lease)

    def _uid_of(self, kind: str, key: Key) -> str:
        found = self.caches.pods.get(key) if kind == "Pod" else self.caches.nodes.get(key)
        return found.metadata.uid if found is not None else ""

    def _note_nodes(self, nodes: Iterable[Node]) -> None:
        """Tell the cloud's side what kind of nodes the cluster has: its estimates of new ones depend on it."""
        infos = (node.status.node_info for node in nodes)
        self.cloud.family = cluster_family(
            [(info.kubelet_version, info.os_image) for info in infos if info is not None]
        )

    def _cloud_is_stale(self) -> None:
        self.observer.stale = True

    async def run(self, stopped: asyncio.Event) -> int:
        """Serve, follow, lead, loop; returns the exit code."""
        log.info("nobiru nodes starts", identity=self.identity, compat=".".join(map(str, self.config.compat)))
        limits = Limits(
            inactivity_ms=self.config.process.max_inactivity_ms,
            failing_ms=self.config.process.max_failing_time_ms,
            startup_ms=self.config.process.max_startup_time_ms,
        )
        app = make_app(
            metrics=self.metrics.render,
            health=lambda: check(self.reporter.pulse, limits, self.clock.monotonic_ms()),
            plans=self.journal.render,
            authorizer=ApiAuthorizer(self.client),
            profiling=self.config.process.profiling,
            snapshotz=self.config.process.debugging_snapshot,
        )
        async with serving(app, self.config.process.address) as port:
            log.info("serving", address=self.config.process.address, port=port)
            return await self._until_stopped(stopped)

    async def _until_stopped(self, stopped: asyncio.Event) -> int:
        code = EXIT_OK
        self.caches.budgets.resource = await self.client.discover()
        async with asyncio.TaskGroup() as tasks:
            background: list[asyncio.Task[None]] = [
                tasks.create_task(self._follow(cache, seed), name=f"follow {cache.resource.plural}")
                for seed, cache in enumerate(self.caches.all)
            ]
            if not self.config.process.dry_run:  # a dry run leaves no trace, no event either
                background.append(tasks.create_task(self.recorder.run(), name="events"))
            lead = tasks.create_task(self._lead(), name="lead")
            stop = tasks.create_task(stopped.wait(), name="stop")
            done, _ = await asyncio.wait((lead, stop), return_when=asyncio.FIRST_COMPLETED)
            if lead in done and not lead.cancelled() and lead.exception() is None:
                code = EXIT_LOST_LOCK
            stop.cancel()
            lead.cancel()
            await asyncio.wait((lead,))
            if not self.config.process.dry_run:
                await self.recorder.drain(1.0)
            if self.elector is not None:
                await self.elector.release()
            for task in background:
                task.cancel()
        log.info("nobiru nodes ends", code=code)
        return code

    async def _follow(self, cache: Cache[Any], seed: int) -> Never:
        await follow(cache, self.client, self.clock, Follow(seed=seed + os.getpid()))

    async def _lead(self) -> None:
        """Wait for the caches, then for the lock, then loop until the lock is lost.

        A standby keeps its caches, so that taking over is a matter of the lock alone.
        """
        await self.caches.synced()
        elector = self.elector
        if elector is None:
            await self._loop()
            return
        await elector.acquire()
        async with asyncio.TaskGroup() as tasks:
            looping = tasks.create_task(self._loop(), name="loop")
            await elector.hold()
            looping.cancel()

    async def _loop(self) -> None:
        kept = await self._kept()
        self.reporter.leading()
        room = loop.Room(
            observe=self.observer.observe,
            ports=self.wrap(self._ports()),
            sinks=self.reporter,
            clock=self.clock,
            config=self.config,
            news=self.news,
        )
        await loop.run(room, load(kept, started_ms=self.clock.now_ms()))

    async def _kept(self) -> str:
        """What an earlier leader kept; asked for until there is an answer, since acting without it could double a scale-up."""
        while True:
            try:
                return await self.reporter.prepare_status()
            except KubeError as error:
                log.warning("the status ConfigMap cannot be read", error=str(error))
                if error.retry_after_ms is None:
                    return ""  # no right to read it: the cloud's own state has to do
                await asyncio.sleep(RETRY_S)

    def _ports(self) -> Ports:
        dry = self.config.process.dry_run
        return Ports(
            groups=DryGroups(self.cloud) if dry else self.cloud,
            nodes=DryNodes() if dry else KubeNodes(self.client),
            leadership=self.elector or AlwaysHeld(),
            clock=self.clock,
            identity=self.identity,
        )


def wanted(config: NodesConfig) -> Wanted:
    """Which groups the flags ask for."""
    groups = config.groups
    names = [spec.name for spec in groups.explicit]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise ConfigError(f'--nodes: group "{doubled[0]}" is given twice: give each group once')
    return Wanted(
        explicit=tuple(
            GroupSpec(name=spec.name, min_size=spec.min_size, max_size=spec.max_size) for spec in groups.explicit
        ),
        discovery=tuple(spec.tags for spec in groups.discovery),
        union=groups.discovery_union,
        cluster_name=config.process.cluster_name,
    )
