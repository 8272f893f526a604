"""The HTTP port: /metrics, /health-check, and the journal behind the API server's own judgement.

It refuses to know: where texts come from.  Invariant: the journal is shown only to whom the API server allows it; every request is
bounded in size and time.  Nothing here runs in another thread: what is rendered is whole, as the loop left it.
"""

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal, Protocol

from aiohttp import web
from msgspec import Struct

from nobiru.kernel.errors import ConfigError, KubeDenied, NobiruError
from nobiru.sinks.address import split_address

PLANS_PATH = "/nobiru/v1/plans"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"  # Prometheus' text format
BODY_BYTES_MAX = 4_096
HEADER_BYTES_MAX = 16_384  # tokens of projected service accounts are about 1 KB
REQUEST_S_MAX = 10.0  # two calls to the API server of at most 5 s each
IDLE_S_MAX = 75.0  # longer than Prometheus' longest customary interval
JUDGED_AT_ONCE_MAX = 4  # each is two calls to the API server, on behalf of somebody unknown
DELEGATOR = "grant nobiru's account the ClusterRole system:auth-delegator"
ANY_HOST = "0.0.0.0"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Verdict(Struct, frozen=True):
    """Whether a bearer may get a path; `why` is for the bearer."""

    ruling: Literal["allowed", "unauthenticated", "forbidden"]
    why: str = ""


class Authorizer(Protocol):
    """Judges a bearer token."""

    async def judge(self, token: str, path: str) -> Verdict:
        """Whether whoever has the token may get the path.

        Raises:  KubeDenied where nobiru itself may not ask, other NobiruErrors where there is no answer.
        """
        ...


def make_app(
    *,
    metrics: Callable[[], bytes],
    health: Callable[[], tuple[int, str]],
    plans: Callable[[int | None], bytes],
    authorizer: Authorizer,
    profiling: bool = False,
    snapshotz: bool = False,
) -> web.Application:
    """The application; `profiling` and `snapshotz` say that these paths were asked for, to answer why they are not there."""
    judging = asyncio.Semaphore(JUDGED_AT_ONCE_MAX)

    async def get_metrics(request: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": METRICS_TYPE})

    async def get_health(request: web.Request) -> web.Response:
        status, text = health()
        return web.Response(status=status, text=text)

    async def get_plans(request: web.Request) -> web.Response:
        last = _last(request)
        token = _bearer(request)
        if judging.locked():
            raise web.HTTPTooManyRequests(text="too many at once\n", headers={"Retry-After": "1"})
        async with judging:
            await _admit(authorizer, token)
        return web.Response(body=plans(last), content_type="application/json")

    async def get_no_snapshot(request: web.Request) -> web.Response:
        return web.Response(status=501, text=f"there is no /snapshotz here; {PLANS_PATH} shows every plan\n")

    async def get_no_profile(request: web.Request) -> web.Response:
        return web.Response(status=501, text="Go's profiles do not exist here\n")

    app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[_in_time])
    app.router.add_get("/metrics", get_metrics)
    app.router.add_get("/health-check", get_health)
    app.router.add_get(PLANS_PATH, get_plans)
    if snapshotz:
        app.router.add_get("/snapshotz", get_no_snapshot)
    if profiling:
        app.router.add_get("/debug/pprof/{rest:.*}", get_no_profile)
    return app


@web.middleware
async def _in_time(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        async with asyncio.timeout(REQUEST_S_MAX):
            return await handler(request)
    except TimeoutError:
        raise web.HTTPServiceUnavailable(text="no answer in time\n") from None


def _last(request: web.Request) -> int | None:
    text = request.query.get("last")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 4):
        raise web.HTTPBadRequest(text="last is a whole number\n")
    return int(text)


def _bearer(request: web.Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise _unauthorized("a bearer token is needed")
    return token.strip()


def _unauthorized(why: str) -> web.HTTPUnauthorized:
    return web.HTTPUnauthorized(text=f"{why}\n", headers={"WWW-Authenticate": "Bearer"})


async def _admit(authorizer: Authorizer, token: str) -> None:
    """Return where the bearer may see the journal; raise the HTTP answer where not."""
    try:
        verdict = await authorizer.judge(token, PLANS_PATH)
    except KubeDenied as error:
        raise web.HTTPForbidden(text=f"nobiru may not ask the API server about you: {DELEGATOR}\n") from error
    except NobiruError as error:
        raise web.HTTPServiceUnavailable(text="the API server does not say whether you may see this\n") from error
    match verdict.ruling:
        case "unauthenticated":
            raise _unauthorized(verdict.why)
        case "forbidden":
            raise web.HTTPForbidden(text=f"{verdict.why}\n")


@asynccontextmanager
async def serving(app: web.Application, address: str) -> AsyncIterator[int]:
    """Serve while inside; gives the port.

    Raises:  ConfigError where the address cannot be used.
    """
    host, port = split_address(address)
    runner = web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        shutdown_timeout=1.0,
        keepalive_timeout=IDLE_S_MAX,
        max_field_size=HEADER_BYTES_MAX,
        max_line_size=HEADER_BYTES_MAX,
    )
    await runner.setup()
    try:
        yield await _listen(runner, host, port, address)
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, host: str | None, port: int, address: str) -> int:
    """Listen, on IPv4 alone where there is no IPv6; the port."""
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            if host is not None or error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
            await web.TCPSite(runner, ANY_HOST, port).start()
    except OSError as error:
        raise ConfigError(f"--address: {address} cannot be listened on: {_why(error)}") from error
    found: int = runner.addresses[0][1]
    return found


def _why(error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return "another process listens there; stop it or give another --address"
        case errno.EACCES:
            return "this user may not use that port; give one above 1023"
        case errno.EADDRNOTAVAIL:
            return "this machine does not have that address"
    return error.strerror or str(error)
