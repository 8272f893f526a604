"""The HTTP port answers as documented, and shows the journal only to whom the API server allows it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from nobiru.kernel.errors import ConfigError, KubeDenied, KubeUnavailable, NobiruError
from nobiru.sinks.address import split_address
from nobiru.sinks.serve import JUDGED_AT_ONCE_MAX, PLANS_PATH, Verdict, make_app, serving


class Judge:
    """An Authorizer that knows one token, may be told to fail, and may be held up."""

    def __init__(self, trouble: NobiruError | None = None) -> None:
        self.trouble = trouble
        self.asked: list[tuple[str, str]] = []
        self.full, self.go = asyncio.Event(), asyncio.Event()
        self.go.set()

    async def judge(self, token: str, path: str) -> Verdict:
        self.asked.append((token, path))
        if len(self.asked) == JUDGED_AT_ONCE_MAX:
            self.full.set()
        await self.go.wait()
        if self.trouble is not None:
            raise self.trouble
        if token == "good":
            return Verdict("allowed")
        if token == "weak":
            return Verdict("forbidden", "bob may not get it")
        return Verdict("unauthenticated", "the token is not valid")


@asynccontextmanager
async def site(judge: Judge | None = None, *, wanted: bool = False) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    """(base URL, client) of a running server."""
    app = make_app(
        metrics=lambda: b"m 1\n",
        health=lambda: (500, "Error: x"),
        plans=lambda last: b'{"plans":[%d]}' % (-1 if last is None else last),
        authorizer=judge or Judge(),
        profiling=wanted,
        snapshotz=wanted,
    )
    async with serving(app, "127.0.0.1:0") as port, aiohttp.ClientSession() as client:
        yield f"http://127.0.0.1:{port}", client


PLAIN_CASES = [
    #  method  path                     wanted  status  text
    ("GET", "/metrics", False, 200, "m 1\n"),
    ("HEAD", "/metrics", False, 200, ""),
    ("POST", "/metrics", False, 405, "405: Method Not Allowed"),
    ("GET", "/health-check", False, 500, "Error: x"),
    ("GET", "/snapshotz", False, 404, "404: Not Found"),
    ("GET", "/snapshotz", True, 501, "there is no /snapshotz here; /nobiru/v1/plans shows every plan\n"),
    ("GET", "/debug/pprof/heap", False, 404, "404: Not Found"),
    ("GET", "/debug/pprof/heap", True, 501, "Go's profiles do not exist here\n"),
    ("GET", "/", False, 404, "404: Not Found"),
    ("DELETE", PLANS_PATH, False, 405, "405: Method Not Allowed"),
]


@pytest.mark.parametrize(("method", "path", "wanted", "status", "text"), PLAIN_CASES)
async def test_paths(method: str, path: str, wanted: bool, status: int, text: str) -> None:
    """Each path has its answer; pprof and snapshotz only say why they are not there, and only when asked for by flag."""
    async with site(wanted=wanted) as (base, client), client.request(method, base + path) as answer:
        assert (answer.status, await answer.text()) == (status, text)


async def test_metrics_have_prometheus_content_type() -> None:
    """Prometheus 3 refuses a scrape without a known content type."""
    async with site() as (base, client), client.get(base + "/metrics") as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


DENIED = "nobiru may not ask the API server about you: grant nobiru's account the ClusterRole system:auth-delegator\n"
PLANS_CASES = [
    #  name                   header           trouble                     status  text
    ("no token", None, None, 401, "a bearer token is needed\n"),
    ("another scheme", "Basic Zm9vOmJhcg==", None, 401, "a bearer token is needed\n"),
    ("an empty token", "Bearer ", None, 401, "a bearer token is needed\n"),
    ("an unknown token", "Bearer bad", None, 401, "the token is not valid\n"),
    ("a weak token", "Bearer weak", None, 403, "bob may not get it\n"),
    ("a good token", "Bearer good", None, 200, '{"plans":[-1]}'),
    ("any case", "bearer  good", None, 200, '{"plans":[-1]}'),
    ("no right to ask", "Bearer good", KubeDenied("403 secret details"), 403, DENIED),
    ("no answer", "Bearer good", KubeUnavailable("x"), 503, "the API server does not say whether you may see this\n"),
]


@pytest.mark.parametrize(
    ("header", "trouble", "status", "text"), [case[1:] for case in PLANS_CASES], ids=[case[0] for case in PLANS_CASES]
)
async def test_the_journal_is_guarded(header: str | None, trouble: NobiruError | None, status: int, text: str) -> None:
    """401 without a valid token, 403 without the right, 503 where nobody can tell; never the journal."""
    headers = {} if header is None else {"Authorization": header}
    async with site(Judge(trouble)) as (base, client), client.get(base + PLANS_PATH, headers=headers) as answer:
        assert (answer.status, await answer.text()) == (status, text)
        assert ("WWW-Authenticate" in answer.headers) == (status == 401)


async def test_the_newest_plans_alone() -> None:
    """?last=N is passed on; nonsense is refused before anybody is asked."""
    judge, headers = Judge(), {"Authorization": "Bearer good"}
    async with site(judge) as (base, client):
        async with client.get(f"{base}{PLANS_PATH}?last=3", headers=headers) as answer:
            assert await answer.text() == '{"plans":[3]}'
        async with client.get(f"{base}{PLANS_PATH}?last=-1", headers=headers) as answer:
            assert answer.status == 400
    assert judge.asked == [("good", PLANS_PATH)]


async def test_few_are_judged_at_once() -> None:
    """Strangers cannot make nobiru ask the API server without bound."""
    judge, headers = Judge(), {"Authorization": "Bearer good"}
    judge.go.clear()
    async with site(judge) as (base, client), asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(client.get(base + PLANS_PATH, headers=headers)) for _ in range(JUDGED_AT_ONCE_MAX)]
        await judge.full.wait()
        async with client.get(base + PLANS_PATH, headers=headers) as answer:
            assert answer.status == 429
        judge.go.set()
        assert [(await task).status for task in waiting] == [200] * JUDGED_AT_ONCE_MAX


async def test_large_headers_are_refused() -> None:
    """A header beyond 16 KiB is answered with 400, and nobody is asked about it."""
    judge, headers = Judge(), {"Authorization": "Bearer " + "x" * 20_000}
    async with site(judge) as (base, client), client.get(base + PLANS_PATH, headers=headers) as answer:
        assert answer.status == 400
    assert judge.asked == []


async def test_a_port_in_use_is_one_line() -> None:
    """The line names the address and what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        app = make_app(metrics=bytes, health=lambda: (200, "OK"), plans=lambda last: b"", authorizer=Judge())
        with pytest.raises(ConfigError) as caught:
            async with serving(app, address):
                pass
    want = (
        f"--address: {address} cannot be listened on: another process listens there; stop it or give another --address"
    )
    assert str(caught.value) == want


ADDRESS_CASES = [
    (":8085", (None, 8085)),
    ("127.0.0.1:8085", ("127.0.0.1", 8085)),
    ("[::1]:8085", ("::1", 8085)),
    ("[::]:8085", ("::", 8085)),
    ("localhost:0", ("localhost", 0)),
]


@pytest.mark.parametrize(("text", "want"), ADDRESS_CASES)
def test_addresses(text: str, want: tuple[str | None, int]) -> None:
    """Go's listen addresses; without a host all interfaces."""
    assert split_address(text) == want


@pytest.mark.parametrize(
    "text", ["", "8085", ":", ":x", ":-1", ":65536", "::1:8085", "http://x:1", "a b:1", "[::1:8085"]
)
def test_wrong_addresses(text: str) -> None:
    """One line that shows what an address looks like."""
    with pytest.raises(ConfigError, match="is not host:port, such as :8085"):
        split_address(text)
