"""One running control plane: start it, ask it with kubectl, break its parts, end it.

Knows the order of starts and what "ready" means; refuses to know the product.
Invariant: every client here verifies the API server's certificate.
"""

import json
import os
import secrets
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.cluster.controlplane import components
from tests.cluster.controlplane.build import Programs
from tests.cluster.controlplane.certificates import write_certificates
from tests.cluster.controlplane.components import USERS, Ports, Settings, Site
from tests.cluster.controlplane.manifests import with_project_selectors
from tests.cluster.controlplane.processes import LoggedProcess, NotReady, free_ports, wait_until

# A cold start on two busy cores took 5 s (2026-12); CI machines do worse things than that.
READY_WITHIN_S = 60.0

__all__ = ["ControlPlane", "KubectlFailed", "Settings"]


class KubectlFailed(Exception):
    """kubectl ended with an error; the message is what it said."""


class ControlPlane:
    """etcd, kube-apiserver, kube-scheduler and kube-controller-manager on free ports of 127.0.0.1.

    A context manager: ready inside, gone after. All methods block; in a coroutine call them with
    `asyncio.to_thread`. Each component is a `LoggedProcess` of its own, so a test may kill, pause and restart it:
    `kill_api_server()` and `start_api_server()` keep port, data and certificates.
    """

    def __init__(self, programs: Programs, directory: Path, settings: Settings | None = None) -> None:
        settings = settings or Settings()
        for name in ("logs", "pki", "kubeconfigs", "kubectl"):
            (directory / name).mkdir(parents=True)
        etcd, etcd_peer, api_server, controller_manager, scheduler = free_ports(5)
        self.site = Site(
            programs=programs,
            ports=Ports(
                etcd=etcd,
                etcd_peer=etcd_peer,
                api_server=api_server,
                controller_manager=controller_manager,
                scheduler=scheduler,
            ),
            certificates=write_certificates(directory / "pki"),
            directory=directory,
            tokens={user: secrets.token_hex(16) for user in USERS},
        )
        self.etcd = components.etcd(self.site)
        self.api_server = components.api_server(self.site, settings)
        self.controller_manager = components.controller_manager(
            self.site, settings, self.kubeconfig_path("system:kube-controller-manager")
        )
        self.scheduler = components.scheduler(self.site, settings, self.kubeconfig_path("system:kube-scheduler"))
        self.guests: list[LoggedProcess] = []  # processes that run on this control plane and end with it
        self._tls = ssl.create_default_context(cafile=self.ca_path)

    @property
    def server_url(self) -> str:
        """Where the API server listens, as a URL."""
        return self.site.server_url

    @property
    def ca_path(self) -> Path:
        """The CA that the API server's certificate must be verified with."""
        return self.site.certificates.ca

    @property
    def directory(self) -> Path:
        """Where its logs, data and the pods' files are."""
        return self.site.directory

    @property
    def processes(self) -> tuple[LoggedProcess, ...]:
        return (self.etcd, self.api_server, self.controller_manager, self.scheduler)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Starts everything and returns when a pod could be created and scheduled.

        Raises:  NotReady with the log tails of what did not come up.
        """
        self.etcd.start()
        self.api_server.start()  # waits for etcd by itself
        self._wait_ready(self.api_server, self.server_url, "/readyz")
        # Both would rather end than wait long for an API server, so they start when it answers.
        self.controller_manager.start()
        self.scheduler.start()
        self._wait_ready(self.controller_manager, self._local(self.site.ports.controller_manager), "/healthz")
        self._wait_ready(self.scheduler, self._local(self.site.ports.scheduler), "/readyz")
        # Without its default service account a namespace admits no pods; a controller makes it.
        wait_until("service account `default`", self._has_default_account, READY_WITHIN_S)

    def close(self) -> None:
        """Ends everything at once: the data is a test's, nothing is lost by not asking politely."""
        for process in (*self.guests, *reversed(self.processes)):
            process.kill()

    def kill_api_server(self) -> None:
        """`kill -9` of the API server: connections break, nothing is said."""
        self.api_server.kill()

    def start_api_server(self) -> None:
        """Starts the API server again, on its port and with its data, and returns when it is ready."""
        self.api_server.start()
        self._wait_ready(self.api_server, self.server_url, "/readyz")

    def kubeconfig_path(self, user: str = "admin") -> Path:
        """A kubeconfig for a user of the token file (`components.USERS`)."""
        path = self.directory / "kubeconfigs" / f"{user.replace(':', '-')}.yaml"
        if not path.exists():
            self.write_kubeconfig(path, token=self.site.tokens[user])
        return path

    def write_kubeconfig(self, path: Path, *, token: str) -> None:
        """A kubeconfig that carries this token, such as a service account's, and verifies the server."""
        cluster = {"server": self.server_url, "certificate-authority": str(self.ca_path)}
        configuration = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(configuration))

    def kubectl(
        self, *arguments: str, input: str | None = None, kubeconfig: Path | None = None, timeout_s: float = 60.0
    ) -> str:
        """What kubectl prints for these arguments, as admin unless a kubeconfig is given.

        Raises:  KubectlFailed with what kubectl said; subprocess.TimeoutExpired.
        """
        answer = subprocess.run(
            [str(self.site.programs.kubectl), *arguments],
            input=input,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.directory / "kubectl"),  # its discovery cache is per control plane
                "KUBECONFIG": str(kubeconfig or self.kubeconfig_path()),
            },
        )
        if answer.returncode != 0:
            raise KubectlFailed(f"kubectl {' '.join(arguments)}: {answer.stderr.strip()}")
        return answer.stdout

    def get(self, *arguments: str, namespace: str | None = None) -> Any:
        """`kubectl get ... -o json`, decoded: one object, or a List with `items`."""
        where = ["--namespace", namespace] if namespace else []
        return json.loads(self.kubectl("get", *arguments, *where, "--output", "json"))

    def apply(self, manifest: str, namespace: str | None = None) -> None:
        """`kubectl apply` of one or more YAML documents, unchanged but for OpenShift's project selectors."""
        where = ["--namespace", namespace] if namespace else []
        self.kubectl("apply", "--filename", "-", *where, input=with_project_selectors(manifest))

    def namespace(self, name: str, annotations: Mapping[str, str] | None = None) -> None:
        """Creates (or updates) a namespace and returns when pods can be created in it, as `oc new-project` does."""
        metadata = {"name": name, "annotations": dict(annotations or {})}
        self.apply(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
        wait_until(
            f"service account `default` in {name}",
            lambda: self.kubectl("get", "serviceaccount", "default", "-n", name, "--ignore-not-found"),
        )

    def service_account_token(self, namespace: str, name: str, duration_s: int = 3600) -> str:
        """A token of this service account, from the API server (TokenRequest; at least 600 s)."""
        return self.kubectl("create", "token", name, "--namespace", namespace, f"--duration={duration_s}s").strip()

    def _has_default_account(self) -> bool:
        request = urllib.request.Request(
            f"{self.server_url}/api/v1/namespaces/default/serviceaccounts/default",
            headers={"Authorization": f"Bearer {self.site.tokens['admin']}"},
        )
        try:
            with urllib.request.urlopen(request, context=self._tls, timeout=5):
                return True
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return False

    def _wait_ready(self, process: LoggedProcess, url: str, path: str) -> None:
        """Returns when `process` answers `path` with 200; raises NotReady if it ends or never does."""
        # The scheduler and the controller manager make themselves a certificate at each start that no file holds:
        # a health check sends them nothing and learns only that they answer.
        tls = self._tls if process is self.api_server else ssl._create_unverified_context()
        deadline_s = time.monotonic() + READY_WITHIN_S
        while not answers(f"{url}{path}", tls):
            if not process.running or time.monotonic() > deadline_s:
                tails = "\n".join(each.log_tail() for each in {self.etcd, process})
                raise NotReady(f"{process.name} did not become ready\n{tails}")
            time.sleep(0.03)

    @staticmethod
    def _local(port: int) -> str:
        return f"https://127.0.0.1:{port}"


def answers(url: str, tls: ssl.SSLContext) -> bool:
    """Whether a GET of this URL gives 200 within 5 s."""
    try:
        with urllib.request.urlopen(url, context=tls, timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):  # refused, reset, 500 while the checks still fail
        return False
