"""Calls over a real socket: what statuses become, how pages join, what costs only itself."""

import pytest
from aiohttp import web

from nobiru.kernel import errors
from nobiru.kernel.objects import ConfigMap
from nobiru.kube.client import CONFIGMAPS, NODES, PDBS, PODS, Client
from nobiru.kube.connect import connect
from tests.unit.kube.server import map_of, page, serving, status

PATHS = [
    ("all namespaces", PODS.path(), "/api/v1/pods"),
    ("one namespace", PODS.path("ns"), "/api/v1/namespaces/ns/pods"),
    ("one object", PODS.path("ns", "a"), "/api/v1/namespaces/ns/pods/a"),
    ("cluster-scoped", NODES.path("", "a"), "/api/v1/nodes/a"),
    ("of a group", PDBS.path("ns"), "/apis/policy/v1/namespaces/ns/poddisruptionbudgets"),
]


@pytest.mark.parametrize(("name", "path", "want"), PATHS, ids=[row[0] for row in PATHS])
def test_paths(name: str, path: str, want: str) -> None:
    """Resources have the API's addresses."""
    assert path == want


STATUSES: list[tuple[int, dict[str, str], type[errors.KubeError], int | None]] = [
    (400, {}, errors.KubeRejected, None),
    (401, {}, errors.KubeDenied, 1_000),
    (403, {}, errors.KubeDenied, None),
    (404, {}, errors.KubeNotFound, None),
    (409, {}, errors.KubeConflict, 0),
    (410, {}, errors.RevisionExpired, 0),
    (422, {}, errors.KubeRejected, None),
    (429, {}, errors.KubeThrottled, 1_000),
    (429, {"Retry-After": "7"}, errors.KubeThrottled, 7_000),
    (500, {}, errors.KubeUnavailable, 1_000),
    (503, {"Retry-After": "3"}, errors.KubeUnavailable, 3_000),
]


@pytest.mark.parametrize(("code", "headers", "kind", "after_ms"), STATUSES)
async def test_a_status_has_its_error(
    code: int, headers: dict[str, str], kind: type[errors.KubeError], after_ms: int | None
) -> None:
    """The kind says what happened, the message is the server's, and Retry-After is honoured."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return status(code, "the server's own words", **headers)

    async with serving(answer) as client:
        with pytest.raises(kind, match="the server's own words") as raised:
            await client.get(CONFIGMAPS, "ns", "a", ConfigMap)
    assert type(raised.value) is kind
    assert raised.value.retry_after_ms == after_ms


async def names(client: Client) -> list[str]:
    return [item.name for item in await client.list(CONFIGMAPS, ConfigMap, "ns")]


async def test_pages_join() -> None:
    """A list goes on where the server said, until it says no more; an empty page may be null."""

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.query["limit"] == "500"
        match request.query.get("continue", ""):
            case "":
                return page([map_of("a", 1)], 9, "more")
            case "more":
                return page(None, 9, "last")
        return page([map_of("b", 2)], 9)

    async with serving(answer) as client:
        assert await names(client) == ["a", "b"]


async def test_one_object_that_cannot_be_read_costs_only_itself() -> None:
    """The rest of its page is there, and it is counted."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return page([map_of("a", 1), {"metadata": {"name": "bad", "labels": {"a": 1}}}, map_of("b", 2)], 9)

    async with serving(answer) as client:
        pages = [each async for each in client.pages(CONFIGMAPS, ConfigMap)]
    assert [[item and item.name for item in each.items()] for each in pages] == [["a", None, "b"]]


async def test_a_page_that_is_no_list_is_trouble_outside() -> None:
    """A proxy's page in between is no crash of ours."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>sign in</html>")

    async with serving(answer) as client:
        with pytest.raises(errors.KubeUnavailable):
            await names(client)


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    """No exception of the HTTP library leaves the edge."""
    client = connect(kubernetes_url="http://127.0.0.1:1")
    with pytest.raises(errors.KubeUnavailable, match="GET /api/v1"):
        await client.get(CONFIGMAPS, "ns", "a", ConfigMap)
    await client.aclose()


EVICTIONS = [
    ("gone", 404, None, None),
    ("refused by a budget", 429, None, errors.KubeThrottled),
    ("conflict, the name is another's", 409, "other", None),
    ("conflict, still there", 409, "mine", errors.KubeConflict),
    ("conflict, gone since", 409, None, None),
    ("server in trouble, still there", 503, "mine", errors.KubeUnavailable),
]


@pytest.mark.parametrize(("name", "code", "there", "want"), EVICTIONS, ids=[row[0] for row in EVICTIONS])
async def test_evictions(name: str, code: int, there: str | None, want: type[Exception] | None) -> None:
    """Success means that this very pod is gone or going."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.method == "POST":
            body = await request.json()
            assert body["deleteOptions"] == {"gracePeriodSeconds": 30, "preconditions": {"uid": "mine"}}
            return status(code)
        return web.json_response({"metadata": {"name": "p", "uid": there}}) if there else status(404)

    async with serving(answer) as client:
        if want is None:
            await client.evict(("ns", "p"), 30, "mine")
        else:
            with pytest.raises(want):
                await client.evict(("ns", "p"), 30, "mine")
