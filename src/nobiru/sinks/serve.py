"""The HTTP port: /metrics, /health-check, and the journal behind the API server's own judgement.

It refuses to know: where texts come from.  Invariant: the journal is shown only to whom the API server allows it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from aiohttp import web

from nobiru.kernel.errors import ConfigError, NobiruError
from nobiru.sinks.address import split_address

PLANS_PATH = "/nobiru/v1/plans"
BODY_BYTES_MAX = 4096
HEADER_BYTES_MAX = 16_384


class Authorizer(Protocol):
    """Judges a bearer token."""

    async def allowed(self, token: str, path: str) -> tuple[bool, str]:
        """(whether whoever has the token may get the path, why not).  Raises NobiruError where it cannot be told."""
        ...


def make_app(
    *,
    metrics: Callable[[], bytes],
    health: Callable[[], tuple[int, str]],
    plans: Callable[[], bytes],
    authorizer: Authorizer,
) -> web.Application:
    """The application."""

    async def get_metrics(request: web.Request) -> web.Response:
        text = await asyncio.to_thread(metrics)
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def get_health(request: web.Request) -> web.Response:
        status, text = health()
        return web.Response(status=status, text=text)

    async def get_plans(request: web.Request) -> web.Response:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise web.HTTPUnauthorized(text="a bearer token is needed\n", headers={"WWW-Authenticate": "Bearer"})
        try:
            allowed, why = await authorizer.allowed(token.strip(), PLANS_PATH)
        except NobiruError as error:
            raise web.HTTPServiceUnavailable(text=f"the token cannot be judged: {error}\n") from error
        if not allowed:
            raise web.HTTPForbidden(text=f"{why}\n")
        return web.Response(body=plans(), content_type="application/json")

    app = web.Application(client_max_size=BODY_BYTES_MAX)
    app.router.add_get("/metrics", get_metrics)
    app.router.add_get("/health-check", get_health)
    app.router.add_get(PLANS_PATH, get_plans)
    return app


@asynccontextmanager
async def serving(app: web.Application, address: str) -> AsyncIterator[int]:
    """Serve while inside; gives the port.  Raises ConfigError where the address cannot be used."""
    host, port = split_address(address)
    runner = web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        shutdown_timeout=1.0,
        max_field_size=HEADER_BYTES_MAX,
        max_line_size=HEADER_BYTES_MAX,
    )
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    try:
        try:
            await site.start()
        except OSError as error:
            raise ConfigError(f"--address: {address} cannot be listened on: {error.strerror or error}") from error
        yield runner.addresses[0][1] if runner.addresses else port
    finally:
        await runner.cleanup()
