"""From a kubeconfig, a ServiceAccount or a URL to a Client: lightkube's configuration, our authentication, TLS verified.

Invariant: whatever is wrong with the configuration is one ConfigError that names the file and what to do.
"""

import os
import ssl
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx2 as httpx
import msgspec
import yaml
from lightkube.config.client_adapter import user_auth, verify_cluster
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError as LightkubeConfigError

from nobiru.kernel.errors import ConfigError
from nobiru.kube.auth import ExecAuth, RenewedTransport, TokenFileAuth
from nobiru.kube.client import Client
from nobiru.kube.transport import AiohttpTransport

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
CONNECTIONS_MAX = 64  # watches hold one each
CONNECT_S, READ_S = 3.0, 30.0


def connect(
    kubeconfig: str = "",
    *,
    kubernetes_url: str = "",
    user_agent: str = "nobiru",
    transport: httpx.AsyncBaseTransport | None = None,
) -> Client:
    """A Client for the named kubeconfig, else the URL, else $KUBECONFIG, else the pod's ServiceAccount, else ~/.kube/config.

    `kubernetes_url` is Cluster Autoscaler's --kubernetes: another server, with the pod's credentials where there are any,
    unless it ends in `?inClusterConfig=false`.
    Raises:  ConfigError.
    """
    config = find_config(kubeconfig, kubernetes_url)
    server = config.cluster.server
    try:
        context = verify_cluster(config.cluster, config.user or User(), config.abs_file)
        pool = RenewedTransport(lambda: AiohttpTransport(context, connections_max=CONNECTIONS_MAX))
        auth = _auth(config, context, pool.renew)
    except (LightkubeConfigError, OSError, ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{_source(kubeconfig)}: certificates or credentials cannot be used: {error}") from error
    # Python 3.13 demands extensions that the authorities of EKS and of older clusters lack, and that client-go does
    # not ask for; chain and host name stay verified.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    http = httpx.AsyncClient(
        base_url=server,
        auth=auth,
        transport=transport or pool,
        timeout=httpx.Timeout(READ_S, connect=CONNECT_S),
        headers={"User-Agent": user_agent},
        trust_env=False,
    )
    return Client(http, server)


def _auth(config: SingleConfig, context: ssl.SSLContext, renewed: Callable[[], None]) -> httpx.Auth | None:
    user = config.user
    if user is not None and user.exec is not None:
        plugin, command = user.exec, user.exec.command
        if os.sep in command:  # as in kubectl: beside the kubeconfig, not where we happen to be started
            plugin = msgspec.structs.replace(plugin, command=str(config.abs_file(command)))
        return ExecAuth(plugin, config.cluster.server or "", context, renewed)
    if user is not None and user.token_file is not None:
        return TokenFileAuth(str(config.abs_file(user.token_file)))
    auth: httpx.Auth | None = user_auth(user)
    return auth


def _source(kubeconfig: str) -> str:
    return kubeconfig or os.environ.get("KUBECONFIG") or "the ServiceAccount's files or ~/.kube/config"


def find_config(kubeconfig: str, kubernetes_url: str) -> SingleConfig:
    """The configuration to use.

    Raises:  ConfigError.
    """
    if kubeconfig:
        return _from_file(kubeconfig, "--kubeconfig")
    inside = bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and Path(SERVICE_ACCOUNT, "token").exists()
    if kubernetes_url:
        return _from_url(kubernetes_url, inside)
    named = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    if named:
        return _from_file(named, "KUBECONFIG")
    if inside:
        return _in_cluster()
    default = Path.home() / ".kube" / "config"
    if default.exists():
        return _from_file(str(default), "kubeconfig")
    raise ConfigError(
        "no API server to talk to: give --kubeconfig, set KUBECONFIG, or run in a pod with a ServiceAccount "
        f"({SERVICE_ACCOUNT}/token does not exist)"
    )


def _from_url(kubernetes_url: str, inside: bool) -> SingleConfig:
    """The server of the flag; options behind "?" are those of Cluster Autoscaler."""
    parts = urlsplit(kubernetes_url)
    server = f"{parts.scheme}://{parts.netloc}{parts.path}" if parts.netloc else ""
    options = parse_qs(parts.query)
    if inside and options.get("inClusterConfig", ["true"])[-1] != "false":
        return _in_cluster(server)
    if parts.scheme not in ("http", "https") or not server:
        raise ConfigError(f"--kubernetes: {kubernetes_url!r} is no http or https URL")
    return _single(KubeConfig.from_server(server), "--kubernetes")


def _in_cluster(server: str = "") -> SingleConfig:
    """The pod's own credentials, for the server that its environment names unless another is given."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not Path(SERVICE_ACCOUNT, "ca.crt").exists():
        raise ConfigError(f"{SERVICE_ACCOUNT}/ca.crt does not exist: mount the ServiceAccount's files")
    host = f"[{host}]" if ":" in host else host
    config = {
        "clusters": [
            {
                "name": "pod",
                "cluster": {
                    "server": server or f"https://{host}:{port}",
                    "certificate-authority": f"{SERVICE_ACCOUNT}/ca.crt",
                },
            }
        ],
        "users": [{"name": "pod", "user": {"tokenFile": f"{SERVICE_ACCOUNT}/token"}}],
        "contexts": [{"name": "pod", "context": {"cluster": "pod", "user": "pod"}}],
        "current-context": "pod",
    }
    return _single(KubeConfig.from_dict(config), SERVICE_ACCOUNT)


def _from_file(path: str, flag: str) -> SingleConfig:
    if Path(path).is_dir():
        raise ConfigError(f"{flag}: {path} is a directory, not a kubeconfig: name the file in it")
    try:
        config = KubeConfig.from_file(path)
    except IsADirectoryError as error:
        raise ConfigError(f"{flag}: {path} is a directory, not a kubeconfig") from error
    except OSError as error:
        raise ConfigError(f"{flag}: {path} cannot be read: {error.strerror}") from error
    except LightkubeConfigError as error:
        if not Path(path).exists():
            raise ConfigError(f"{flag}: {path} does not exist") from error
        raise ConfigError(f"{flag}: {path} is no kubeconfig: {error}") from error
    except msgspec.ValidationError as error:
        raise ConfigError(f"{flag}: {path} is no kubeconfig: {error}") from error
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{flag}: {path} is no kubeconfig: it cannot be parsed") from error
    return _single(config, f"{flag}: {path}")


def _single(config: KubeConfig, source: str) -> SingleConfig:
    try:
        found = config.get()
    except (LightkubeConfigError, KeyError) as error:
        raise ConfigError(f"{source}: its current context cannot be used: {error}") from error
    if found is None or found.cluster is None or not found.cluster.server:
        raise ConfigError(f"{source}: it names no cluster to use: set current-context")
    return found
