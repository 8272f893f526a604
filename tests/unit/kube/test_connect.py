"""Which server and whose credentials: flags before the environment, the pod's own before the user's file."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from nobiru.kernel.errors import ConfigError, KubeDenied, KubeUnavailable
from nobiru.kernel.objects import ConfigMap
from nobiru.kube import connect as connect_module
from nobiru.kube.client import CONFIGMAPS
from nobiru.kube.connect import connect, find_config
from tests.unit.kube.server import map_of, serving, status
from tests.unit.kube.test_auth import Guarded, calls, in_seconds, kubeconfig, plugin, read


class Places:
    """A machine where every place that may name a cluster can be filled."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory, self._monkeypatch = directory, monkeypatch
        for variable in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setenv("HOME", str(directory / "home"))

    def file(self, name: str) -> str:
        """A kubeconfig whose server is http://NAME."""
        path = self._directory / name / "config"
        path.parent.mkdir(parents=True)
        return str(kubeconfig(path.parent, {"server": f"http://{name}"}, {}))

    def fill(self, *places: str) -> None:
        account = self._directory / "account"
        if "pod" in places:
            account.mkdir()
            (account / "token").write_text("t\n")
            (account / "ca.crt").write_text("unread here")
            self._monkeypatch.setattr(connect_module, "SERVICE_ACCOUNT", str(account))
            self._monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
            self._monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
        if "environment" in places:
            self._monkeypatch.setenv("KUBECONFIG", self.file("environment"))
        if "home" in places:
            Path(self.file("home")).rename(self._directory / "home" / "taken")
            (self._directory / "home" / ".kube").mkdir()
            (self._directory / "home" / "taken").rename(self._directory / "home" / ".kube" / "config")


ALL = ("pod", "environment", "home")
URL = "http://127.0.0.1:8001"
PRECEDENCE: list[tuple[str, tuple[str, ...], dict[str, str], str, bool]] = [
    # name, filled places, flags, wanted server, whether with the pod's token
    ("--kubeconfig before all", ALL, {"file": "flag", "url": URL}, "http://flag", False),
    ("--kubernetes before KUBECONFIG", ("environment", "home"), {"url": URL}, URL, False),
    ("--kubernetes in a pod keeps its credentials", ALL, {"url": URL}, URL, True),
    ("... unless told otherwise", ALL, {"url": f"{URL}?inClusterConfig=false"}, URL, False),
    ("... and may carry options alone", ("pod",), {"url": "?inClusterConfig=true"}, "https://10.0.0.1:6443", True),
    ("KUBECONFIG before the pod", ALL, {}, "http://environment", False),
    ("the pod before the home directory", ("pod", "home"), {}, "https://10.0.0.1:6443", True),
    ("the home directory at last", ("home",), {}, "http://home", False),
]


@pytest.mark.parametrize(("name", "filled", "flags", "server", "token"), PRECEDENCE, ids=[row[0] for row in PRECEDENCE])
def test_precedence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    filled: tuple[str, ...],
    flags: dict[str, str],
    server: str,
    token: bool,
) -> None:
    """What is said explicitly wins; a pod's own account wins over files that happen to lie about."""
    places = Places(tmp_path, monkeypatch)
    places.fill(*filled)
    found = find_config(places.file(flags["file"]) if "file" in flags else "", flags.get("url", ""))
    assert found.cluster.server == server
    assert (found.user is not None and found.user.token_file is not None) == token


@pytest.mark.parametrize(
    ("url", "want"), [("localhost:8001", "no http or https URL"), ("ftp://a", "ftp://a"), ("", "give --kubeconfig")]
)
def test_no_cluster_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, want: str) -> None:
    """A wrong URL is named; where nothing names a cluster, the ways to do so are."""
    Places(tmp_path, monkeypatch)
    with pytest.raises(ConfigError, match=want) as raised:
        connect(kubernetes_url=url)
    assert "\n" not in str(raised.value)


def test_a_relative_plugin_lies_beside_its_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in kubectl: wherever we are started, and only where the command has a directory in it."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    script = tmp_path / "bin" / "plugin"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    user: dict[str, Any] = {"apiVersion": "client.authentication.k8s.io/v1", "command": "./bin/plugin"}
    connect(str(kubeconfig(tmp_path, {"server": "http://127.0.0.1:1"}, {"exec": user})))
    script.unlink()
    hinted = kubeconfig(
        tmp_path, {"server": "http://127.0.0.1:1"}, {"exec": {**user, "installHint": "get it\nfrom the wiki"}}
    )
    with pytest.raises(ConfigError, match=r"bin/plugin.*get it from the wiki"):
        connect(str(hinted))


async def test_a_plugin_slower_than_a_call_still_ends(tmp_path: Path) -> None:
    """A caller that stops waiting does not end the plugin's run, which serves the next one."""
    started, go = tmp_path / "started", tmp_path / "go"
    script = f"""
import json, pathlib, time
pathlib.Path({str(started)!r}).touch()
while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)
print(json.dumps({{"status": {{"token": "1"}}}}))
"""
    async with Guarded(tmp_path) as server:
        client = server.client(exec={**plugin(tmp_path), "args": ["-c", script]})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await read(client)
        async with asyncio.timeout(10):
            while not started.exists():  # noqa: ASYNC110 (another process)
                await asyncio.sleep(0.01)
            started.unlink()
            waiting = asyncio.create_task(read(client))
            await asyncio.sleep(0.05)
            go.touch()
            assert await waiting == "a"
        assert not started.exists()  # one run served both
        await client.aclose()


async def test_many_refused_calls_run_the_plugin_once(tmp_path: Path) -> None:
    """A token that is revoked refuses all calls under way; the first to hear renews it for all."""
    async with Guarded(tmp_path) as server:
        client = server.client(exec=plugin(tmp_path, token="1"))
        await read(client)
        server.token = "2"
        (tmp_path / "status").write_text(json.dumps({"token": "2", "expirationTimestamp": in_seconds(3_600)}))
        assert set(await asyncio.gather(*(read(client) for _ in range(10)))) == {"a"}
        assert calls(tmp_path) == 2
        await client.aclose()


async def test_a_certificate_that_does_not_load_names_its_plugin(tmp_path: Path) -> None:
    """And shows nothing of it: it stands beside its key."""
    async with Guarded(tmp_path) as server:
        client = server.client(exec=plugin(tmp_path, clientCertificateData="no PEM", clientKeyData="secret"))
        with pytest.raises(KubeUnavailable, match="client certificate does not load") as raised:
            await read(client)
        assert sys.executable in str(raised.value)
        assert "secret" not in str(raised.value)
        await client.aclose()


async def test_a_server_that_refuses_for_good_is_asked_twice_not_for_ever(tmp_path: Path) -> None:
    """A fresh token that gets a 401 as well is the server's word."""
    asked = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal asked
        asked += 1
        return status(401) if asked <= 2 else web.json_response(map_of("a", 1))

    async with serving(answer) as plain:
        user = {"exec": plugin(tmp_path, token="1")}
        client = connect(str(kubeconfig(tmp_path, {"server": plain.server}, user)))
        with pytest.raises(KubeDenied):
            await client.get(CONFIGMAPS, "ns", "a", ConfigMap)
        assert asked == 2
        assert await read(client) == "a"
        assert calls(tmp_path) == 2
        await client.aclose()
