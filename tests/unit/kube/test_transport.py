"""The wire: aiohttp's connections told as httpx's answers and errors."""

import asyncio
import gzip
import re
from collections.abc import Awaitable, Callable

import httpx2 as httpx
import pytest
from aiohttp import web

from nobiru.kernel.errors import KubeUnavailable
from nobiru.kube.client import CONFIGMAPS, Client
from tests.unit.kube.server import serving, stream

pytestmark = pytest.mark.asyncio


async def cut_head(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def cut_body(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "100"})
    await response.prepare(request)
    await response.write(b"{}")
    assert request.transport is not None
    request.transport.abort()
    return response


async def silent(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
TROUBLE: list[tuple[Answer, float, str]] = [
    (cut_head, 5.0, "Server disconnected|reset"),
    (cut_body, 5.0, "the answer was cut short"),
    (silent, 0.3, "no answer within 0.3 s"),
]


@pytest.mark.parametrize(("answer", "timeout_s", "words"), TROUBLE, ids=[row[0].__name__ for row in TROUBLE])
async def test_trouble_on_the_wire_is_unavailable(answer: Answer, timeout_s: float, words: str) -> None:
    """No library's exception leaves the client, and the reason stands in the error."""
    async with serving(answer) as client:
        with pytest.raises(KubeUnavailable) as raised:
            await client.request("GET", "/x", timeout_s=timeout_s)
    assert re.search(words, str(raised.value))


async def watched(client: Client) -> list[bytes]:
    async with client.watch(CONFIGMAPS, "ns", since="1", timeout_s=9, silence_s=0.2) as chunks:
        return [chunk async for chunk in chunks]


async def test_a_silent_watch_ends() -> None:
    """After the head nothing comes: the line is given up after the silence that the caller allows."""

    async def answer(request: web.Request) -> web.StreamResponse:
        await stream(request, b"")
        await asyncio.sleep(60)
        return web.Response()

    async with serving(answer) as client:
        with pytest.raises(KubeUnavailable, match=r"said nothing for 0\.2 s"):
            await watched(client)


async def test_compressed_answers_are_read() -> None:
    """API servers compress large lists."""

    async def answer(request: web.Request) -> web.StreamResponse:
        assert "gzip" in request.headers["Accept-Encoding"]
        return web.Response(body=gzip.compress(b'{"a": 1}'), headers={"Content-Encoding": "gzip"})

    async with serving(answer) as client:
        assert await client.request("GET", "/x") == b'{"a": 1}'


async def test_requests_arrive_as_they_were_made() -> None:
    """Path and query as they were encoded, the body once, our own headers and no others."""
    seen: list[tuple[str, bytes, dict[str, str]]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append((request.raw_path, await request.read(), dict(request.headers)))
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    async with serving(answer) as client:
        await client.request("POST", "/a%2Fb", query={"labelSelector": "a in (b,c)"}, body={"x": 1})
    ((path, body, headers),) = seen
    assert path == str(httpx.URL("/a%2Fb", params={"labelSelector": "a in (b,c)"}))
    assert body == b'{"x":1}'
    assert headers["User-Agent"] == "nobiru"
    assert headers["Content-Type"] == "application/json"


async def test_connections_are_used_again() -> None:
    """Ten calls in a row need one connection; a watch that was left closes its own."""
    peers: list[object] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        peers.append(request.transport)
        return await stream(request, b"{}\n") if "watch" in request.query else web.Response(body=b"{}")

    async with serving(answer) as client:
        for _ in range(10):
            await client.request("GET", "/x")
        assert len(set(map(id, peers))) == 1
        async with client.watch(CONFIGMAPS, "ns", since="1", timeout_s=9, silence_s=5) as chunks:
            assert await anext(chunks) == b"{}\n"
        assert await client.request("GET", "/x") == b"{}"
