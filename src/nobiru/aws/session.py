"""The connection to AWS: clients, the only threads of nobiru, time limits, errors of our own tree, and what IAM refuses.

Callers hand a function that works with `Clients` to `Aws.run`; it runs in one of eight threads, and every single call inside it is
wrapped in `Aws.calling`, which times it and translates what the library raises.
It refuses to know: groups, templates, plans.  Invariant: reads are retried by the library, writes never; no secret is ever in a message.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TypeVar

import boto3
import botocore.session
from botocore.config import Config
from botocore.loaders import Loader, create_loader

from nobiru.aws import surroundings
from nobiru.aws.translate import LIBRARY_ERRORS, credentials_refused, translated
from nobiru.kernel.clock import Clock
from nobiru.kernel.errors import CloudDenied, CloudError, CloudUnavailable, ConfigError

if TYPE_CHECKING:  # the stubs are not installed with nobiru
    from types_boto3_autoscaling import AutoScalingClient
    from types_boto3_ec2 import EC2Client

T = TypeVar("T")

THREADS = 8  # decision 0001
# An Action lasts 5 s at most (DESIGN section 3): a check, then a write, both once only.
CHECK_CONNECT_S_MAX, CHECK_READ_S_MAX = 1.0, 1.0
WRITE_CONNECT_S_MAX, WRITE_READ_S_MAX = 1.0, 2.0
READ_CONNECT_S_MAX, READ_READ_S_MAX = 3.0, 10.0
READ_ATTEMPTS = 3  # the AWS SDKs' standard mode
READ_MS_MAX = 20_000
# A refused action is asked for again this often: rights may be given at any time.
DENIED_PAUSE_MS = 600_000
# Refused credentials are read anew (a rotated Secret, a renewed file), but not with every call.
RENEW_PAUSE_S = 10.0


class Observe(Protocol):
    """Told of every call, from any thread: for cluster_autoscaler_aws_request_duration_seconds{endpoint,status}."""

    def __call__(self, endpoint: str, status: str, seconds: float) -> None: ...


class Rights:
    """Which IAM actions AWS refused, each until it is due to be tried again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused_ms: dict[str, int] = {}

    def refuse(self, action: str) -> None:
        """AWS refused it just now."""
        self._refused_ms[action] = self._clock.monotonic_ms()

    def allow(self, action: str) -> None:
        """AWS did it."""
        self._refused_ms.pop(action, None)

    def may(self, action: str) -> bool:
        """Whether it was not refused lately."""
        refused_ms = self._refused_ms.get(action)
        return refused_ms is None or self._clock.monotonic_ms() - refused_ms >= DENIED_PAUSE_MS

    @property
    def denied(self) -> frozenset[str]:
        """The actions refused within the last ten minutes."""
        return frozenset(action for action in list(self._refused_ms) if not self.may(action))


class Clients:
    """AWS's clients by what they are used for; made by `Aws`, used inside `Aws.run` only."""

    def __init__(self, session: boto3.session.Session, region: str, bundle: str | None, agent: str) -> None:
        attempts = _attempts(os.environ)
        reads = _config(READ_CONNECT_S_MAX, READ_READ_S_MAX, attempts, agent)
        self._session, self._region, self._bundle, self._reads = session, region, bundle, reads
        self.autoscaling: AutoScalingClient = session.client(
            "autoscaling", region_name=region, verify=bundle, config=reads
        )
        self.checks: AutoScalingClient = session.client(
            "autoscaling",
            region_name=region,
            verify=bundle,
            config=_config(CHECK_CONNECT_S_MAX, CHECK_READ_S_MAX, 1, agent),
        )
        self.writes: AutoScalingClient = session.client(
            "autoscaling",
            region_name=region,
            verify=bundle,
            config=_config(WRITE_CONNECT_S_MAX, WRITE_READ_S_MAX, 1, agent),
        )
        self._ec2: EC2Client | None = None
        self._ec2_lock = threading.Lock()  # making clients is not safe in several threads, using them is

    @property
    def ec2(self) -> EC2Client:
        """EC2, made on first use: a walk-through without any ec2 right never loads its model."""
        with self._ec2_lock:
            if self._ec2 is None:
                self._ec2 = self._session.client(
                    "ec2", region_name=self._region, verify=self._bundle, config=self._reads
                )
            return self._ec2


def _config(connect_s: float, read_s: float, attempts: int, agent: str) -> Config:
    return Config(
        connect_timeout=connect_s,
        read_timeout=read_s,
        retries={"mode": "standard", "total_max_attempts": attempts},
        max_pool_connections=THREADS,
        user_agent_extra=agent,
    )


def _attempts(env: Mapping[str, str]) -> int:
    """How often a read is tried: AWS_MAX_ATTEMPTS, or the standard."""
    text = env.get("AWS_MAX_ATTEMPTS", "")
    return int(text) if text.isdecimal() and 1 <= int(text) <= 20 else READ_ATTEMPTS


class MachineClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


def _unobserved(endpoint: str, status: str, seconds: float) -> None:
    """Nobody measures."""


class Aws:
    """AWS, as the account and region that the environment says.

    Making one finds region, CA bundle and credentials by the standard chain, which may ask the instance's metadata service (up to
    three seconds where it does not answer); AWS itself is not called.
    Raises:  ConfigError, CloudDenied, CloudUnavailable: one line that says what to do.
    """

    def __init__(
        self, *, observe: Observe = _unobserved, clock: Clock | None = None, region: str = "", agent: str = "nobiru"
    ) -> None:
        env = dict(os.environ)
        self.clock: Clock = clock or MachineClock()
        self.rights = Rights(self.clock)
        self._agent = agent
        self._observe = observe
        self._lock = threading.Lock()
        self._clients: Clients | None = None
        self._made_s = 0.0
        with _translating("sts:GetCallerIdentity"):
            core = botocore.session.get_session()
            configured = core.get_config_variable("ca_bundle")
            self.region = region or surroundings.region(env, core.get_config_variable("region"))
            self._bundle = surroundings.ca_bundle(env, None if env.get("AWS_CA_BUNDLE") else configured)
            found = core.get_credentials()
        self.warnings: tuple[str, ...] = self._look(env, found.method if found else None)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="aws")

    def _look(self, env: Mapping[str, str], method: str | None) -> tuple[str, ...]:
        """What is to be said about credentials and CA bundle: refusals as errors, oddities as warnings."""
        if method is None:
            raise CloudDenied(surroundings.no_credentials(env))
        if method == "assume-role-with-web-identity":
            trouble = surroundings.token_trouble(env)
            if trouble:
                raise ConfigError(f"{trouble}; mount the service account token there, or unset the variable")
        ignored = surroundings.credentials_trouble(env)
        other = f"{ignored}; credentials of another source are used ({method})" if ignored else ""
        return tuple(filter(None, (self._bundle.warning, other)))

    async def run(self, work: Callable[[Clients], T], *, limit_ms: int = READ_MS_MAX) -> T:
        """What `work` returns, run in a thread; waiting for a free thread counts.

        Raises:  CloudError; CloudUnavailable after `limit_ms`, when a call that began may still end.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limit_ms / 1000):
                return await loop.run_in_executor(self._pool, self._do, work)
        except TimeoutError:
            raise CloudUnavailable(f"AWS did not answer within {limit_ms / 1000:g} s") from None

    def _do(self, work: Callable[[Clients], T]) -> T:
        try:
            return work(self._made())
        except ConfigError as error:  # the environment was sound at the start, and is not any more
            raise CloudDenied(str(error)) from error

    def _made(self) -> Clients:
        """The clients; made anew after credentials were refused."""
        with self._lock:
            if self._clients is None:
                with _translating("sts:GetCallerIdentity"):
                    self._clients = Clients(_session(self.region), self.region, self._bundle.path, self._agent)
                self._made_s = time.monotonic()
            return self._clients

    def _renew(self) -> None:
        with self._lock:
            if time.monotonic() - self._made_s >= RENEW_PAUSE_S:
                self._clients = None

    @contextmanager
    def calling(self, action: str) -> Iterator[None]:
        """One call of the IAM action ("autoscaling:SetDesiredCapacity"), timed; its errors become ours.

        Raises:  CloudError, ConfigError.
        """
        began_s = time.perf_counter()
        status = "error"
        try:
            with _translating(action):
                yield
            status = "success"
        except CloudError as error:
            if isinstance(error, CloudDenied) and error.action:
                self.rights.refuse(error.action)
            elif credentials_refused(error):
                self._renew()
            raise
        finally:
            self._observe(action.partition(":")[2], status, time.perf_counter() - began_s)
        self.rights.allow(action)

    def close(self) -> None:
        """Begin no more calls; those that began end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)


@lru_cache(maxsize=1)
def _loader() -> Loader:
    """The library's descriptions of AWS's services, parsed once a process: that is most of what making a client costs."""
    return create_loader(botocore.session.get_session().get_config_variable("data_path"))


def _session(region: str) -> boto3.session.Session:
    """A session that reads the credential chain anew."""
    core = botocore.session.get_session()
    core.register_component("data_loader", _loader())
    made = boto3.session.Session(botocore_session=core, region_name=region)
    paths = _loader().search_paths
    paths[:] = dict.fromkeys(paths)  # each session adds its own path to the shared loader
    return made


@contextmanager
def _translating(action: str) -> Iterator[None]:
    try:
        yield
    except LIBRARY_ERRORS as error:
        raise translated(error, action) from error
