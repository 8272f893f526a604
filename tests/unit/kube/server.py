"""A small API server on 127.0.0.1 that does just what a test tells it to, misbehaviour included."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from nobiru.kube.client import Client
from nobiru.kube.connect import connect

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def map_of(name: str, revision: int, **data: str) -> dict[str, Any]:
    """A ConfigMap as the API server sends it."""
    return {"metadata": {"name": name, "namespace": "ns", "resourceVersion": str(revision)}, "data": data}


def page(items: list[Any] | None, revision: int, token: str = "") -> web.Response:
    """One page of a list."""
    return web.json_response({"metadata": {"resourceVersion": str(revision), "continue": token}, "items": items})


def status(code: int, message: str = "no", **headers: str) -> web.Response:
    """A Status that refuses."""
    return web.json_response({"kind": "Status", "message": message, "code": code}, status=code, headers=headers)


def line(type_: str, item: Any) -> bytes:
    """One line of a watch."""
    return json.dumps({"type": type_, "object": item}).encode() + b"\n"


async def stream(request: web.Request, *chunks: bytes) -> web.StreamResponse:
    """A watch that sends these chunks and then ends."""
    response = web.StreamResponse()
    response.enable_chunked_encoding()
    await response.prepare(request)
    for chunk in chunks:
        await response.write(chunk)
    return response


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[Client]:
    """A client of a server whose every request gets this answer."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    client = connect(kubernetes_url=f"http://{host}:{port}")
    try:
        yield client
    finally:
        await client.aclose()
        await runner.cleanup()
