"""Following a server that refuses for long: it is asked as it asked to be, and a revision that is worth nothing is given up."""

import asyncio
import logging
import time

import pytest
from aiohttp import web

from nobiru.kernel.objects import ConfigMap
from nobiru.kube.cache import Cache, Follow, follow
from nobiru.kube.client import CONFIGMAPS
from tests.unit.kube.server import map_of, page, serving, status, stream
from tests.unit.kube.test_cache import SystemClock, Watched, following, quiet

FUTURE, PRESENT = 9, 5
REFUSALS = [
    ("too large", 504, 0.1),
    ("in trouble", 500, 0.1),
    ("wrong request", 400, 60.0),
]


@pytest.mark.parametrize(("name", "code", "give_up_s"), REFUSALS, ids=[row[0] for row in REFUSALS])
async def test_a_revision_that_is_refused_for_long_is_given_up(name: str, code: int, give_up_s: float) -> None:
    """etcd was restored and our revision lies in its future: list again, at once where the request itself is wrong."""
    lists = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal lists
        if "watch" not in request.query:
            lists += 1
            return page([map_of("a" if lists == 1 else "b", 1)], FUTURE if lists == 1 else PRESENT)
        if request.query["resourceVersion"] == str(FUTURE):
            return status(code, "Too large resource version: 9, current: 5")
        return await quiet(request)

    watched = Watched()
    how = Follow(backoff_s=(0.01, 0.02), give_up_s=give_up_s)
    async with serving(answer) as client:
        task = asyncio.create_task(follow(watched.cache, client, SystemClock(), how))
        await watched.hear("-a")
        task.cancel()
    assert (watched.told, lists) == (["+a", "+b", "-a"], 2)


async def test_a_watch_that_opens_but_stays_silent_is_given_up() -> None:
    """From a revision in the future the watch cache sends nothing at all: silence, too, ends in a list."""
    lists = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal lists
        if "watch" in request.query:
            return await quiet(request)
        lists += 1
        return page([map_of("a" if lists == 1 else "b", 1)], FUTURE if lists == 1 else PRESENT)

    watched = Watched()
    how = Follow(backoff_s=(0.01, 0.02), silence_s_max=0.1, give_up_s=0.25)
    async with serving(answer) as client:
        task = asyncio.create_task(follow(watched.cache, client, SystemClock(), how))
        await watched.hear("-a")
        task.cancel()


async def test_a_server_that_is_away_for_a_moment_need_not_list_again() -> None:
    """A restart refuses everybody: the revision is good afterwards, and large lists from all at once would hurt."""
    lists = watches = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal lists, watches
        if "watch" not in request.query:
            lists += 1
            return page([map_of("a", 1)], PRESENT)
        watches += 1
        return status(503) if watches < 8 else await quiet(request)

    watched = Watched()
    async with serving(answer) as client, following(client, watched.cache):
        async with asyncio.timeout(5):
            while watches < 8:  # noqa: ASYNC110 (the server counts, it has no event)
                await asyncio.sleep(0.01)
    assert lists == 1


@pytest.mark.parametrize("what", ["list", "watch"])
async def test_a_server_that_asks_for_time_gets_it(what: str) -> None:
    """429 with Retry-After is honoured for lists and for watches."""
    asked_s: list[float] = []
    done = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if ("watch" in request.query) == (what == "watch"):
            asked_s.append(time.monotonic())
            if len(asked_s) == 1:
                return status(429, "slow down", **{"Retry-After": "1"})
            done.set()
        return await quiet(request) if "watch" in request.query else page([], PRESENT)

    async with serving(answer) as client, following(client, Cache(CONFIGMAPS, ConfigMap)):
        await asyncio.wait_for(done.wait(), 5)
    assert asked_s[1] - asked_s[0] >= 1.0


async def test_what_a_new_list_shows_unchanged_is_no_news() -> None:
    """Listeners hear each change once, however often the object is listed."""
    lists = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal lists
        if "watch" in request.query:
            return status(410) if lists < 3 else await quiet(request)
        lists += 1
        return page([map_of("same", 1), map_of("changed", lists)], 10 * lists)

    watched = Watched()
    async with serving(answer) as client, following(client, watched.cache):
        async with asyncio.timeout(5):
            while watched.told.count("~changed") < 2:  # noqa: ASYNC110 (told in between)
                await asyncio.sleep(0.01)
    assert watched.told == ["+same", "+changed", "~changed", "~changed"]


async def test_an_object_made_anew_is_news_whatever_its_revision() -> None:
    """Another uid is another object, even where a restored etcd counts revisions again."""
    lists = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal lists
        if "watch" in request.query:
            return await stream(request) if lists > 1 else status(410)
        lists += 1
        item = map_of("a", 1)
        item["metadata"]["uid"] = str(lists)
        return page([item], 10)

    watched = Watched()
    async with serving(answer) as client, following(client, watched.cache):
        await watched.hear("~a")


async def test_a_server_that_is_away_for_long_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Ten tries in a row are one warning, not ten: the same again is for those who asked for details."""
    tries = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal tries
        tries += 1
        return status(503, "away")

    caplog.set_level(logging.DEBUG, "nobiru.cache")
    async with serving(answer) as client:
        how = Follow(backoff_s=(0.005, 0.01))
        task = asyncio.create_task(follow(Cache(CONFIGMAPS, ConfigMap), client, SystemClock(), how))
        while tries < 10:  # noqa: ASYNC110 (the server has no event for it)
            await asyncio.sleep(0.01)
        task.cancel()
    said = [record.levelname for record in caplog.records if record.getMessage() == "watch lost"]
    assert said.count("WARNING") == 1
    assert said.count("DEBUG") >= 8
