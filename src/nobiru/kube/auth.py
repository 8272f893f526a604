"""Who we are towards the API server: bearer tokens from files that rotate, and exec plugins of both versions.

lightkube reads kubeconfigs; this closes its gaps: exec credentials `v1`, client certificates from exec plugins, expiry.
Invariant: a token is asked for again before it expires and after any 401, and never stands in a message.
"""

import asyncio
import json
import os
import ssl
import tempfile
import time
from collections.abc import AsyncGenerator, Generator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2 as httpx
from lightkube.config.models import UserExec

from nobiru.kernel.errors import ConfigError

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
            self.read()
        request.headers["Authorization"] = f"Bearer {self._token}"
        response = yield request
        if response.status_code == 401:
            self.read()
            request.headers["Authorization"] = f"Bearer {self._token}"
            yield request


class ExecAuth(httpx.Auth):
    """Credentials from a plugin, run again when they expire or are refused."""

    requires_request_body = False

    def __init__(self, plugin: UserExec, server: str, context: ssl.SSLContext) -> None:
        if plugin.apiVersion not in API_VERSIONS:
            raise ConfigError(
                f'exec credential plugin "{plugin.command}": apiVersion {plugin.apiVersion} is not supported: '
                f"use {' or '.join(API_VERSIONS)}"
            )
        self._plugin, self._server, self._context = plugin, server, context
        self._token = ""
        self._expires_s: float | None = None
        self._fresh = False
        self._lock = asyncio.Lock()

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        await self._ensure()
        self._sign(request)
        response = yield request
        if response.status_code == 401:
            self._fresh = False
            await self._ensure()
            self._sign(request)
            yield request

    def _sign(self, request: httpx.Request) -> None:
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"

    async def _ensure(self) -> None:
        async with self._lock:
            expired = self._expires_s is not None and time.time() > self._expires_s - EXPIRY_MARGIN_S
            if not self._fresh or expired:
                self._take(await self._run())

    async def _run(self) -> dict[str, Any]:
        """The plugin's answer.  Raises ConfigError that names the plugin and what went wrong."""
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
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise ConfigError(
                f"{name} cannot be started: {error.strerror}; install it or correct the kubeconfig"
            ) from error
        try:
            async with asyncio.timeout(EXEC_S_MAX):
                out, err = await process.communicate()
        except TimeoutError as error:
            process.kill()
            raise ConfigError(f"{name} did not end within {EXEC_S_MAX:.0f} s") from error
        if process.returncode:
            text = err.decode(errors="replace").strip().splitlines()
            raise ConfigError(
                f"{name} ended with exit code {process.returncode}: {text[-1][:200] if text else 'no output'}"
            )
        try:
            answer: dict[str, Any] = json.loads(out)["status"]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{name} printed no ExecCredential with a status") from error
        return answer

    def _take(self, status: dict[str, Any]) -> None:
        self._token = str(status.get("token") or "")
        expires = status.get("expirationTimestamp")
        self._expires_s = datetime.fromisoformat(expires).timestamp() if expires else None
        if status.get("clientCertificateData") and status.get("clientKeyData"):
            load_certificate(self._context, status["clientCertificateData"], status["clientKeyData"])
        self._fresh = True


def load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a client certificate given as PEM texts; ssl wants a file, so one exists for a moment, readable by us alone."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        os.chmod(file.name, 0o600)
        file.write(certificate + "\n" + key + "\n")
        file.flush()
        context.load_cert_chain(file.name)
