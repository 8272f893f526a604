"""The command lines and configuration files of etcd, kube-apiserver, kube-scheduler and kube-controller-manager.

Knows the flags; refuses to start anything. Invariant: everything listens on 127.0.0.1.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tests.cluster.controlplane.build import Programs
from tests.cluster.controlplane.certificates import Certificates
from tests.cluster.controlplane.processes import LoggedProcess

# OpenShift 3.11's default project node selector: pods of a project without a selector of its own get it.
OPENSHIFT_DEFAULT_NODE_SELECTOR = "node-role.kubernetes.io/compute=true"

# The API server insists on an address that is not loopback for the `kubernetes` Service, which no test dials:
# one of the documentation's (RFC 5737), and no endpoints are written for it.
ADVERTISED_ADDRESS = "192.0.2.1"

# Above what tests ask for, so that a client-side limit (20 requests/s by default) is never what a test measures.
CLIENT_QPS = 1000
CLIENT_BURST = 2000

NETWORK = "10.96.0.0/16"
ISSUER = "https://kubernetes.default.svc"

# Users of the token file; all may do everything, since what is proved here is the rights of the product's own account.
USERS = ("admin", "system:kube-scheduler", "system:kube-controller-manager")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a test may choose about its control plane; later flags win over the harness's own."""

    default_node_selector: str = ""
    api_server_flags: tuple[str, ...] = ()
    controller_manager_flags: tuple[str, ...] = ()
    scheduler_flags: tuple[str, ...] = ()

    @staticmethod
    def openshift() -> "Settings":
        """As OpenShift 3.11 sets it up: project pods go to compute nodes unless the project says otherwise."""
        return Settings(default_node_selector=OPENSHIFT_DEFAULT_NODE_SELECTOR)


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """The ports on 127.0.0.1, the same for every start of a component."""

    etcd: int
    etcd_peer: int
    api_server: int
    controller_manager: int
    scheduler: int


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """Where one control plane lives: programs, ports, certificates, the folder for everything else, user tokens."""

    programs: Programs
    ports: Ports
    certificates: Certificates
    directory: Path
    tokens: Mapping[str, str]

    @property
    def server_url(self) -> str:
        return f"https://127.0.0.1:{self.ports.api_server}"

    def process(self, name: str, program: Path, flags: list[str]) -> LoggedProcess:
        """A component that logs to `logs/<name>.log` and inherits nothing but a minimal environment."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.directory)}
        log_path = self.directory / "logs" / f"{name}.log"
        return LoggedProcess(name, [str(program), *flags], log_path=log_path, env=environment)


def etcd(site: Site) -> LoggedProcess:
    """One member, without fsync: a test's data need not survive a power cut."""
    client, peer = f"http://127.0.0.1:{site.ports.etcd}", f"http://127.0.0.1:{site.ports.etcd_peer}"
    flags = [
        "--name=only",
        f"--data-dir={site.directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=only={peer}",
        "--unsafe-no-fsync",
        # A lone member waits one election timeout (1 s by default) before it elects itself.
        "--heartbeat-interval=20",
        "--election-timeout=200",
        "--log-level=error",
    ]
    return site.process("etcd", site.programs.etcd, flags)


def api_server(site: Site, settings: Settings) -> LoggedProcess:
    """kube-apiserver with RBAC, token users, service accounts and the project node selector."""
    admission = site.directory / "admission.yaml"
    admission.write_text(admission_configuration(settings.default_node_selector))
    tokens = site.directory / "tokens.csv"
    tokens.write_text("".join(f'{token},{user},{user},"system:masters"\n' for user, token in site.tokens.items()))
    keys = site.certificates
    flags = [
        f"--etcd-servers=http://127.0.0.1:{site.ports.etcd}",
        "--bind-address=127.0.0.1",
        f"--secure-port={site.ports.api_server}",
        f"--advertise-address={ADVERTISED_ADDRESS}",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={keys.server_certificate}",
        f"--tls-private-key-file={keys.server_key}",
        f"--token-auth-file={tokens}",
        "--authorization-mode=Node,RBAC",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={keys.service_account_public_key}",
        f"--service-account-signing-key-file={keys.service_account_key}",
        f"--service-cluster-ip-range={NETWORK}",
        "--enable-admission-plugins=PodNodeSelector",
        f"--admission-control-config-file={admission}",
        "--profiling=false",
        *settings.api_server_flags,
    ]
    return site.process("kube-apiserver", site.programs.kube_apiserver, flags)


def admission_configuration(default_node_selector: str) -> str:
    """The API server's admission file: the selector for pods of namespaces that carry none. JSON is YAML too."""
    plugin = {"podNodeSelectorPluginConfig": {"clusterDefaultNodeSelector": default_node_selector}}
    return json.dumps(
        {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AdmissionConfiguration",
            "plugins": [{"name": "PodNodeSelector", "configuration": plugin}],
        }
    )


def controller_manager(site: Site, settings: Settings, kubeconfig: Path) -> LoggedProcess:
    """kube-controller-manager with all its default controllers but those of a cloud."""
    flags = [
        f"--kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={site.ports.controller_manager}",
        "--authentication-skip-lookup",
        "--leader-elect=false",
        f"--root-ca-file={site.certificates.ca}",
        f"--service-account-private-key-file={site.certificates.service_account_key}",
        f"--kube-api-qps={CLIENT_QPS}",
        f"--kube-api-burst={CLIENT_BURST}",
        "--node-monitor-period=1s",  # 5 s by default: how often silent nodes are looked for
        "--profiling=false",
        *settings.controller_manager_flags,
    ]
    return site.process("kube-controller-manager", site.programs.kube_controller_manager, flags)


def scheduler(site: Site, settings: Settings, kubeconfig: Path) -> LoggedProcess:
    """kube-scheduler with its default profile and back-off."""
    configuration = site.directory / "scheduler.yaml"
    configuration.write_text(
        json.dumps(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "leaderElection": {"leaderElect": False},
                "clientConnection": {"kubeconfig": str(kubeconfig), "qps": CLIENT_QPS, "burst": CLIENT_BURST},
                "enableProfiling": False,
            }
        )
    )
    flags = [
        f"--config={configuration}",
        "--bind-address=127.0.0.1",
        f"--secure-port={site.ports.scheduler}",
        "--authentication-skip-lookup",
        *settings.scheduler_flags,
    ]
    return site.process("kube-scheduler", site.programs.kube_scheduler, flags)
