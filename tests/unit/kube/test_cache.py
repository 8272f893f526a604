"""Caches against a server that misbehaves: nothing is lost, nothing is told twice."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from msgspec.structs import replace

from nobiru.kernel.objects import ConfigMap
from nobiru.kube.cache import Cache, Follow, follow
from nobiru.kube.client import CONFIGMAPS, Client
from tests.unit.kube.server import line, map_of, page, serving, status, stream


class SystemClock:
    """The machine's clock: the server here is real, too."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


# As in production but for the waits, which are the machine's here.
HOW = Follow(seed=1, silence_s_max=0.2, backoff_s=(0.01, 0.02), denied_s=0.05)


class Watched:
    """A cache with what its listeners heard."""

    def __init__(self) -> None:
        self.cache: Cache[ConfigMap] = Cache(CONFIGMAPS, ConfigMap)
        self.told: list[str] = []
        self._changed = asyncio.Event()
        self.cache.listen(self._up, lambda last: self._tell(f"-{last.name}"))

    def _up(self, before: ConfigMap | None, now: ConfigMap) -> None:
        self._tell(f"{'+' if before is None else '~'}{now.name}")

    def _tell(self, word: str) -> None:
        self.told.append(word)
        self._changed.set()

    async def hear(self, word: str) -> None:
        """Return when a listener heard this."""
        async with asyncio.timeout(5):
            while word not in self.told:
                self._changed.clear()
                await self._changed.wait()

    async def relisted(self) -> None:
        """Return when the cache has a revision to watch from."""
        async with asyncio.timeout(5):
            while not self.cache.revision:  # noqa: ASYNC110 (the end of a list has no event after the first)
                await asyncio.sleep(0)


@asynccontextmanager
async def following(client: Client, *caches: Cache[ConfigMap], how: Follow = HOW) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(follow(cache, client, SystemClock(), how)) for cache in caches]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def quiet(request: web.Request) -> web.StreamResponse:
    """A watch on which nothing happens for long."""
    response = await stream(request)
    await asyncio.sleep(60)
    return response


async def test_a_watch_that_ends_goes_on_where_it_was() -> None:
    """A clean end, a cut line and a silent server resume from the last revision; the list is asked for once."""
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            asked.append("list")
            return page([map_of("a", 1)], 10)
        asked.append(request.query["resourceVersion"])
        match len(asked):
            case 2:
                return await stream(request, line("ADDED", map_of("b", 11)))
            case 3:
                response = await stream(request, line("BOOKMARK", {"metadata": {"resourceVersion": "15"}}))
                await response.write(line("ADDED", map_of("lost", 16))[:20])
                assert request.transport is not None
                request.transport.abort()
                return response
            case 4:
                return await quiet(request)
        return await stream(request, line("DELETED", map_of("a", 17)))

    watched = Watched()
    async with serving(answer) as client, following(client, watched.cache):
        await watched.hear("-a")
    assert asked[:5] == ["list", "10", "11", "15", "15"]
    assert watched.told == ["+a", "+b", "-a"]


async def test_an_expired_revision_lists_again_and_tells_what_vanished() -> None:
    """410 as a status or in the stream: objects that went meanwhile are deleted, the others stay."""
    lists = iter(([map_of("a", 1), map_of("b", 2)], [map_of("b", 2), map_of("c", 3)], [map_of("c", 3)]))
    watches = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal watches
        if "watch" not in request.query:
            return page(next(lists), 10)
        watches += 1
        if watches == 1:
            return status(410)
        if watches == 2:
            return await stream(request, line("ERROR", {"kind": "Status", "code": 410, "message": "too old"}))
        return await quiet(request)

    watched = Watched()
    async with serving(answer) as client, following(client, watched.cache):
        await watched.hear("-b")
        assert [item.name for item in watched.cache.freeze()] == ["c"]
    assert [word for word in watched.told if word[0] != "~"] == ["+a", "+b", "+c", "-a", "-b"]


async def test_pages_that_expire_are_begun_again() -> None:
    """A 410 between two pages begins the list anew and loses nothing."""
    pages = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal pages
        if "watch" in request.query:
            return await quiet(request)
        pages += 1
        if request.query.get("continue"):
            return status(410) if pages == 2 else page([map_of("b", 2)], 10)
        return page([map_of("a", 1)], 10, "more")

    watched = Watched()
    async with serving(answer) as client, following(client, watched.cache):
        await asyncio.wait_for(watched.cache.synced.wait(), 5)
        assert [item.name for item in watched.cache.freeze()] == ["a", "b"]


async def test_a_refused_kind_is_a_fact_and_heals() -> None:
    """403: `denied` with the server's words, no endless wait; granted later, it fills."""
    granted = False

    async def answer(request: web.Request) -> web.StreamResponse:
        if not granted:
            return status(403, "you may not")
        return await quiet(request) if "watch" in request.query else page([map_of("a", 1)], 10)

    watched = Watched()
    async with serving(answer) as client, following(client, watched.cache):
        await asyncio.wait_for(watched.cache.synced.wait(), 5)
        assert "you may not" in watched.cache.denied
        granted = True
        await watched.hear("+a")
        await watched.relisted()
        assert watched.cache.denied == ""


@pytest.mark.parametrize(("refusals", "doubt_s", "denied"), [(3, 10.0, False), (1_000_000, 0.05, True)])
async def test_a_kind_that_was_read_is_refused_only_if_that_lasts(refusals: int, doubt_s: float, denied: bool) -> None:
    """403 from a server that just started and has not read its roles: the watch resumes; a right taken away is a fact."""
    left, lists = refusals, 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal left, lists
        if "watch" not in request.query and left == refusals:
            lists += 1
            return page([map_of("a", 1)], 10)
        if left:
            left -= 1
            return status(403, "you may not")
        response = await stream(request, line("ADDED", map_of("b", 11)))
        await asyncio.sleep(60)
        return response

    watched = Watched()
    async with serving(answer) as client, following(client, watched.cache, how=replace(HOW, doubt_s=doubt_s)):
        if denied:
            async with asyncio.timeout(5):
                while not watched.cache.denied:  # noqa: ASYNC110 (being refused has no event after the first list)
                    await asyncio.sleep(0.01)
        else:
            await watched.hear("+b")
            assert watched.cache.denied == ""
        assert lists == 1
        assert "a" in [item.name for item in watched.cache.freeze()], "what is known stays known"


async def test_an_unrecognised_token_is_no_missing_right() -> None:
    """401 is trouble of the moment: an empty cache must not pass for a cluster without objects."""
    refusals = 3

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal refusals
        if refusals:
            refusals -= 1
            return status(401, "Unauthorized")
        return await quiet(request) if "watch" in request.query else page([map_of("a", 1)], 10)

    watched = Watched()
    async with serving(answer) as client, following(client, watched.cache):
        await asyncio.wait_for(watched.cache.synced.wait(), 5)
        assert (len(watched.cache), watched.cache.denied) == (1, "")


async def test_what_cannot_be_read_is_counted() -> None:
    """Objects that were skipped, listed or watched, can be seen by who depends on completeness."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return page([{"metadata": {"name": 5}}, map_of("a", 1)], 10)
        response = await stream(request, b"garbage\n", line("ADDED", map_of("b", 11)))
        await asyncio.sleep(60)
        return response

    watched = Watched()
    async with serving(answer) as client, following(client, watched.cache):
        await watched.hear("+b")
        assert watched.cache.skipped == 2


async def test_garbage_is_collected_again_after_all_lists() -> None:
    """Caches list at the same time; the last one to end turns collection on again, however they overlap."""
    first, second = asyncio.Barrier(3), asyncio.Barrier(4)  # the fourth to come to the second is the test itself

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await quiet(request)
        if request.query.get("continue"):
            await second.wait()
            return page([], 10)
        await first.wait()
        return page([map_of("a", 1)], 10, "more")

    caches = [Cache(CONFIGMAPS, ConfigMap) for _ in range(3)]
    async with serving(answer) as client, following(client, *caches):
        async with asyncio.timeout(5):
            await second.wait()
        assert not gc.isenabled()
        for cache in caches:
            await asyncio.wait_for(cache.synced.wait(), 5)
        assert gc.isenabled()
