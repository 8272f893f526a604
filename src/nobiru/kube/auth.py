"""Who we are towards the API server: bearer tokens from files that rotate, and exec plugins of both versions.

lightkube reads kubeconfigs; this closes its gaps: exec credentials `v1`, client certificates from exec plugins, expiry.
Invariant: a token is asked for again before it expires and after any 401, and never stands in a message.
"""

import asyncio
import json
import os
import shutil
import ssl
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Generator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2 as httpx
from lightkube.config.models import UserExec

from nobiru.kernel.errors import ConfigError, KubeUnavailable

API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
TOKEN_FILE_S = 60.0  # client-go re-reads a token file once a minute
EXPIRY_MARGIN_S = 30.0
EXEC_S_MAX = 60.0


class TokenFileAuth(httpx.Auth):
    """A bearer token from a file that the kubelet rotates."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._token = ""
        self._read_at = 0.0
        self.read()

    def read(self) -> None:
        """Read the file again.  Raises ConfigError where it cannot be read."""
        try:
            self._token = Path(self._path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigError(f"token file {self._path} cannot be read: {error.strerror}") from error
        self._read_at = time.monotonic()

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if time.monotonic() - self._read_at > TOKEN_FILE_S:
            self._reread()
        request.headers["Authorization"] = f"Bearer {self._token}"
        response = yield request
        if response.status_code == 401:
            self._reread()
            request.headers["Authorization"] = f"Bearer {self._token}"
            yield request

    def _reread(self) -> None:
        """Read again; while the file cannot be read, the token that we have may still be good."""
        try:
            self.read()
        except ConfigError:
            self._read_at = time.monotonic()


class ExecAuth(httpx.Auth):
    """Credentials from a plugin, run again when they expire or are refused."""

    requires_request_body = False

    def __init__(
        self, plugin: UserExec, server: str, context: ssl.SSLContext, renewed: Callable[[], None] = lambda: None
    ) -> None:
        """`renewed` is called when connections made so far show an outdated certificate."""
        if plugin.apiVersion not in API_VERSIONS:
            raise ConfigError(
                f'exec credential plugin "{plugin.command}": apiVersion {plugin.apiVersion} is not supported: '
                f"use {' or '.join(API_VERSIONS)}"
            )
        path = next((each.value for each in plugin.env or () if each.name == "PATH"), None)
        if shutil.which(plugin.command, path=path) is None:
            hint = " ".join((plugin.installHint or "install it or correct the kubeconfig").split())
            raise ConfigError(f'exec credential plugin "{plugin.command}" cannot be found: {hint}')
        self._plugin, self._server, self._context, self._renewed = plugin, server, context, renewed
        self._certificate = ""
        self._token = ""
        self._expires_s: float | None = None
        self._number = 0  # of the credential in use; 0 before the first
        self._refused = 0  # the number of the last one that got a 401
        self._running: asyncio.Task[None] | None = None

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        await self._ensure()
        used = self._number
        self._sign(request)
        response = yield request
        if response.status_code == 401:
            self._refused = max(self._refused, used)  # several calls may be refused with one token: one run renews it
            await self._ensure()
            self._sign(request)
            yield request

    def _sign(self, request: httpx.Request) -> None:
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"

    def _usable(self) -> bool:
        expired = self._expires_s is not None and time.time() > self._expires_s - EXPIRY_MARGIN_S
        return self._number > self._refused and not expired

    async def _ensure(self) -> None:
        """Have a credential; one run of the plugin serves all who wait.

        The run outlives a caller that stops waiting: calls have seconds, a plugin that starts cold may need more, and
        begun anew by each call it would never end.  It is bounded by itself, so no TaskGroup needs to hold it.
        """
        if self._usable():
            return
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._renew(), name="exec credential plugin")
            self._running.add_done_callback(_look_at)
        await asyncio.shield(self._running)

    async def _renew(self) -> None:
        self._take(await self._run())

    async def _run(self) -> dict[str, Any]:
        """The plugin's answer.  Raises KubeUnavailable that names the plugin and what went wrong: it may work later."""
        plugin = self._plugin
        environment = dict(os.environ)
        for each in plugin.env or ():
            environment[each.name] = each.value
        spec = {"interactive": False, "cluster": {"server": self._server}}
        info = {"apiVersion": plugin.apiVersion, "kind": "ExecCredential", "spec": spec}
        environment["KUBERNETES_EXEC_INFO"] = json.dumps(info)
        name = f'exec credential plugin "{plugin.command}"'
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *(plugin.args or ()),
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise KubeUnavailable(f"{name} cannot be started: {error.strerror}") from error
        try:
            async with asyncio.timeout(EXEC_S_MAX):
                out, err = await process.communicate()
        except TimeoutError as error:
            raise KubeUnavailable(f"{name} did not end within {EXEC_S_MAX:.0f} s") from error
        finally:
            if process.returncode is None:  # too slow, or nobody waits for it any more
                process.kill()
                await process.wait()
        if process.returncode:
            text = err.decode(errors="replace").strip().splitlines()
            raise KubeUnavailable(
                f"{name} ended with exit code {process.returncode}: {text[-1][:200] if text else 'no output'}"
            )
        try:
            answer: dict[str, Any] = json.loads(out)["status"]
        except (ValueError, KeyError, TypeError) as error:
            raise KubeUnavailable(f"{name} printed no ExecCredential with a status") from error
        if not isinstance(answer, dict) or not (answer.get("token") or answer.get("clientCertificateData")):
            raise KubeUnavailable(f"{name} printed neither a token nor a client certificate")
        return answer

    def _take(self, status: dict[str, Any]) -> None:
        self._token = str(status.get("token") or "")
        expires = status.get("expirationTimestamp")
        try:
            self._expires_s = datetime.fromisoformat(expires).timestamp() if expires else None
        except (ValueError, TypeError) as error:
            raise KubeUnavailable(f'exec credential plugin "{self._plugin.command}": no time: {expires!r}') from error
        certificate = str(status.get("clientCertificateData") or "")
        if certificate and certificate != self._certificate:
            try:
                load_certificate(self._context, certificate, str(status.get("clientKeyData") or ""))
            except ssl.SSLError as error:
                raise KubeUnavailable(
                    f'exec credential plugin "{self._plugin.command}": its client certificate does not load'
                ) from error
            if self._certificate:
                self._renewed()
            self._certificate = certificate
        self._number += 1


def _look_at(task: asyncio.Task[None]) -> None:
    """A failure that nobody waits for any more is no news: the next call runs the plugin again."""
    if not task.cancelled():
        task.exception()


class RenewedTransport(httpx.AsyncBaseTransport):
    """Connections that can be left for new ones: TLS shows a client certificate only while connecting."""

    def __init__(self, make: Callable[[], httpx.AsyncBaseTransport]) -> None:
        self._make = make
        self._now = make()
        self._past: list[httpx.AsyncBaseTransport] = []

    def renew(self) -> None:
        """Connect anew from the next request on; what is under way ends on the old connections."""
        self._past.append(self._now)
        self._now = self._make()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        now = self._now
        while len(self._past) > 1:  # the last ones may still carry watches
            await self._past.pop(0).aclose()
        return await now.handle_async_request(request)

    async def aclose(self) -> None:
        for each in (*self._past, self._now):
            await each.aclose()


def load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a client certificate given as PEM texts; ssl wants a file, so one exists for a moment, readable by us alone."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        os.chmod(file.name, 0o600)
        file.write(certificate + "\n" + key + "\n")
        file.flush()
        context.load_cert_chain(file.name)
