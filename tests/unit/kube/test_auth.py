"""Credentials and configuration: plugins that really run, tokens that really rotate, one line for what is wrong."""

import json
import os
import ssl
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from nobiru.kernel.errors import ConfigError, KubeDenied, KubeUnavailable
from nobiru.kernel.objects import ConfigMap
from nobiru.kube.client import CONFIGMAPS, Client
from nobiru.kube.connect import connect
from tests.unit.kube.server import map_of, status


class Guarded:
    """A server that takes one token at a time, and a kubeconfig for it."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.token, self.seen = directory, "1", list[str]()

    async def __aenter__(self) -> "Guarded":
        application = web.Application()
        application.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = "http://127.0.0.1:{1}".format(*self._runner.addresses[0])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request.headers.get("Authorization", ""))
        return web.json_response(map_of("a", 1)) if self.seen[-1] == f"Bearer {self.token}" else status(401)

    def client(self, **user: Any) -> Client:
        return connect(str(kubeconfig(self.directory, {"server": self.url}, user)))


def kubeconfig(directory: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    path = directory / "kubeconfig"
    text = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(text))
    return path


def plugin(directory: Path, version: str = "v1", **status: Any) -> dict[str, Any]:
    """A plugin that prints the status in its file, one call a line in `calls`, and checks what it is told."""
    (directory / "status").write_text(json.dumps(status))
    script = f"""
import json, os
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert info["kind"] == "ExecCredential" and info["spec"]["interactive"] is False, info
open({str(directory / "calls")!r}, "a").write("called\\n")
status = json.load(open({str(directory / "status")!r}))
print(json.dumps({{"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": status}}))
"""
    return {
        "apiVersion": f"client.authentication.k8s.io/{version}",
        "command": sys.executable,
        "args": ["-c", script],
        "interactiveMode": "Never",
    }


def calls(directory: Path) -> int:
    return len((directory / "calls").read_text().splitlines())


def in_seconds(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


async def read(client: Client) -> str:
    return (await client.get(CONFIGMAPS, "ns", "a", ConfigMap)).name


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_a_plugin_is_run_once_and_again_after_a_401(tmp_path: Path, version: str) -> None:
    """Both versions; a refused token is replaced without the caller noticing."""
    async with Guarded(tmp_path) as server:
        client = server.client(exec=plugin(tmp_path, version, token="1"))
        assert [await read(client) for _ in range(3)] == ["a", "a", "a"]
        assert calls(tmp_path) == 1
        server.token = "2"
        (tmp_path / "status").write_text(json.dumps({"token": "2"}))
        assert await read(client) == "a"
        assert calls(tmp_path) == 2
        await client.aclose()


@pytest.mark.parametrize(("seconds", "want"), [(3_600, 1), (5, 3)])
async def test_a_plugin_is_run_again_before_its_credential_expires(tmp_path: Path, seconds: int, want: int) -> None:
    """Half a minute before expiry is too late to go on with it."""
    async with Guarded(tmp_path) as server:
        client = server.client(exec=plugin(tmp_path, token="1", expirationTimestamp=in_seconds(seconds)))
        for _ in range(3):
            await read(client)
        assert calls(tmp_path) == want
        await client.aclose()


FAILING: list[tuple[str, list[str]]] = [
    ("ends with an error", ["-c", "import sys; sys.exit('no session: sign in')"]),
    ("prints no JSON", ["-c", "print('hello')"]),
    ("prints nothing useful", ["-c", "print('{\"status\": {}}')"]),
    ("prints a list", ["-c", "print('{\"status\": []}')"]),
]


@pytest.mark.parametrize(("name", "arguments"), FAILING, ids=[name for name, _ in FAILING])
async def test_a_failing_plugin_is_trouble_of_the_moment(tmp_path: Path, name: str, arguments: list[str]) -> None:
    """The token service may answer the next time: it is retried like any outage, and ends nothing."""
    async with Guarded(tmp_path) as server:
        client = server.client(exec={**plugin(tmp_path), "args": arguments})
        with pytest.raises(KubeUnavailable, match="exec credential plugin"):
            await read(client)
        await client.aclose()


async def test_a_token_file_is_read_again_after_a_401_and_survives_its_loss(tmp_path: Path) -> None:
    """The kubelet renews it; while it is being replaced the old token may still be good."""
    path = tmp_path / "token"
    path.write_text("1\n")
    async with Guarded(tmp_path) as server:
        client = server.client(tokenFile="token")
        assert await read(client) == "a"
        path.write_text("2\n")
        server.token = "2"
        assert await read(client) == "a"
        path.unlink()
        server.token = "3"
        with pytest.raises(KubeDenied):
            await read(client)
        server.token = "2"
        assert await read(client) == "a"
        await client.aclose()


def test_tls_is_verified_but_not_beyond_what_client_go_asks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Authorities without key identifiers (EKS, old clusters) are fine; chain and host name are checked."""
    made: list[ssl.SSLContext] = []
    original = ssl.create_default_context

    def strict(*arguments: Any, **named: Any) -> ssl.SSLContext:
        context = original(*arguments, **named)
        context.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 does
        made.append(context)
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    authority = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
    if not os.path.exists(authority):
        pytest.skip("this machine has no bundle of authorities to read")
    connect(str(kubeconfig(tmp_path, {"server": "https://127.0.0.1:1", "certificate-authority": authority}, {})))
    assert made[0].verify_mode is ssl.CERT_REQUIRED
    assert made[0].check_hostname
    assert not made[0].verify_flags & ssl.VERIFY_X509_STRICT


WRONG: list[tuple[str, str | None, str]] = [
    ("missing", None, "does not exist"),
    ("no YAML", "a: [", "cannot be parsed"),
    ("a list", "[1]", "cannot be parsed"),
    ("empty", "", "cannot be parsed"),
    ("wrong type", "{clusters: [], contexts: [], users: [{name: a, user: {token: 5}}]}", "token"),
    ("no context", "{clusters: [], contexts: []}", "context"),
    ("unknown context", "{clusters: [], contexts: [], current-context: gone}", "gone"),
    ("unknown cluster", "{clusters: [], contexts: [{name: x, context: {cluster: lost}}], current-context: x}", "lost"),
]


@pytest.mark.parametrize(("name", "text", "want"), WRONG, ids=[row[0] for row in WRONG])
def test_a_wrong_kubeconfig_is_one_line_that_names_it(tmp_path: Path, name: str, text: str | None, want: str) -> None:
    """Whoever wrote it reads which file, and what in it."""
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=want) as raised:
        connect(str(path))
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_plugin_that_is_not_installed_is_said_at_the_start(tmp_path: Path) -> None:
    """Not at the first call, an hour later."""
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin"}}
    with pytest.raises(ConfigError, match="no-such-plugin"):
        connect(str(kubeconfig(tmp_path, {"server": "http://127.0.0.1:1"}, user)))
