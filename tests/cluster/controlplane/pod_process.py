"""Our own process in a pod's place: a Deployment's words, environment and mounted files, its account's token.

Knows how a kubelet lays out volumes; leaves the mounting itself to pod_init.py, inside a private mount namespace.
Invariant: nothing outside the control plane's own folder is created or changed on this machine.
"""

import base64
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from tests.cluster.controlplane.control_plane import ControlPlane, KubectlFailed
from tests.cluster.controlplane.pod_manifest import (
    SERVICE_ACCOUNT_PATH,
    ConfigMapSource,
    Deployment,
    HostPathSource,
    Lookup,
    NotPlayed,
    SecretSource,
    Volume,
    deployment,
    environment,
    words,
)
from tests.cluster.controlplane.processes import LoggedProcess

POD_INIT = Path(__file__).with_name("pod_init.py")
CLUSTER_AUTOSCALER = Path(sys.executable).with_name("cluster-autoscaler")

CONTAINER_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# A kubelet refuses a hostPath of these types when the path is missing or of another kind.
HOST_PATH_CHECKS: Mapping[str, Callable[[Path], bool]] = {
    "File": Path.is_file,
    "Directory": Path.is_dir,
    "Socket": Path.is_socket,
}

_serial = itertools.count(1)


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """One bind mount in the pod: `source` on this machine appears at `target`."""

    source: str
    target: str
    read_only: bool


class PodProcess(LoggedProcess):
    """A started pod's process. As a context manager it is killed at the end."""

    def __init__(self, name: str, argv: Sequence[str], *, directory: Path, log_path: Path) -> None:
        super().__init__(name, argv, log_path=log_path, env={"PATH": os.environ["PATH"]})
        self.directory = directory

    def write_token(self, token: str) -> None:
        """Replaces the mounted service account token in one step, as a kubelet does before it expires."""
        account = self.directory / "service-account"
        contents = {name: (account / name).read_bytes() for name in ("ca.crt", "namespace")}
        write_volume(account, contents | {"token": token.encode()}, mode=0o644)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def as_cluster_autoscaler(container_words: list[str]) -> list[str]:
    """The installed `cluster-autoscaler` with the Deployment's words as its arguments, its program's name included."""
    return [str(CLUSTER_AUTOSCALER), *container_words]


def run_as_pod(
    control_plane: ControlPlane,
    manifest: str | Mapping[str, Any],
    *,
    secrets: Mapping[str, Mapping[str, bytes]] | None = None,
    command_rewrite: Callable[[list[str]], list[str]] = as_cluster_autoscaler,
    extra_env: Mapping[str, str] | None = None,
    host_root: Path = Path("/"),
) -> PodProcess:
    """Starts a process as the pod of this Deployment (text or object) would run.

    `secrets` stands in for Secrets that the API server does not have. `command_rewrite` turns the container's command
    and arguments into what is run here. `extra_env` is what only this machine needs, such as the address of a
    simulated cloud. `host_root` is the folder that plays the node's file system for hostPath volumes.

    Raises:  NotPlayed for a manifest that asks for more than is played, or that no kubelet would start, and on a
             machine that gives no mount namespaces; KubectlFailed if there is no such service account.
    """
    check_namespaces()
    parsed = deployment(manifest)
    pod = parsed.spec.template.spec
    pod_name = f"{parsed.metadata.name}-{next(_serial)}"
    directory = control_plane.directory / "pods" / pod_name
    lookup = contents_lookup(control_plane, parsed.metadata.namespace, secrets or {})
    facts = {
        "metadata.name": pod_name,
        "metadata.namespace": parsed.metadata.namespace,
        "spec.nodeName": pod.node_name,
        "spec.serviceAccountName": pod.service_account_name,
    }
    container = pod.containers[0]
    values = environment(container, facts, lookup)
    specification = {
        "argv": command_rewrite(words(container, values)),
        "env": pod_environment(control_plane, pod_name) | values | dict(extra_env or {}),
        "hostname": pod_name,
        "working_dir": container.working_dir,
        "mounts": [msgspec.to_builtins(mount) for mount in mounts(control_plane, parsed, directory, lookup, host_root)],
        "root": str(directory / "root"),
        "parent_pid": os.getpid(),
    }
    (directory / "root").mkdir(parents=True, exist_ok=True)
    (directory / "pod.json").write_text(json.dumps(specification))
    process = PodProcess(
        pod_name,
        [*unshare_command(), sys.executable, "-I", "-S", str(POD_INIT), str(directory / "pod.json")],
        directory=directory,
        log_path=control_plane.directory / "logs" / f"pod-{pod_name}.log",
    )
    process.start()
    control_plane.guests.append(process)
    return process


def pod_environment(control_plane: ControlPlane, pod_name: str) -> dict[str, str]:
    """What every container finds in its environment: a path, its name, where the API server is."""
    port = str(control_plane.site.ports.api_server)
    return {
        "PATH": CONTAINER_PATH,
        "HOME": "/root",
        "HOSTNAME": pod_name,
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": port,
        "KUBERNETES_SERVICE_PORT_HTTPS": port,
        "KUBERNETES_PORT": f"tcp://127.0.0.1:{port}",
    }


def contents_lookup(control_plane: ControlPlane, namespace: str, given: Mapping[str, Mapping[str, bytes]]) -> Lookup:
    """Secrets and ConfigMaps by name: those given first, then those of the API server.

    Raises:  NotPlayed (from the answer) if there is none: a kubelet would wait for it for ever.
    """

    def lookup(kind: str, name: str) -> Mapping[str, bytes]:
        if kind == "secret" and name in given:
            return given[name]
        try:
            found = control_plane.get(kind, name, namespace=namespace)
        except KubectlFailed as error:
            raise NotPlayed(f"no {kind} {name} in {namespace}: {error}") from error
        binary = found.get("data" if kind == "secret" else "binaryData") or {}
        text = {} if kind == "secret" else found.get("data") or {}
        return {key: base64.b64decode(value) for key, value in binary.items()} | {
            key: value.encode() for key, value in text.items()
        }

    return lookup


def mounts(
    control_plane: ControlPlane, parsed: Deployment, directory: Path, lookup: Lookup, host_root: Path
) -> list[Mount]:
    """All bind mounts of the pod, parents before children, their sources laid out under `directory`."""
    pod = parsed.spec.template.spec
    container = pod.containers[0]
    sources: dict[str, Path] = {}
    found: list[Mount] = []
    for volume in pod.volumes:
        sources[volume.name] = lay_out(volume, directory / "volumes" / volume.name, lookup, host_root)
    for each in container.volume_mounts:
        if each.name not in sources:
            raise NotPlayed(f"volumeMount {each.name} names no volume: the API server would refuse this pod")
        source = sources[each.name] / each.sub_path
        found.append(Mount(source=str(source), target=each.mount_path, read_only=each.read_only))
    account_mounted = any(each.mount_path == SERVICE_ACCOUNT_PATH for each in container.volume_mounts)
    if pod.automount_service_account_token and not account_mounted:
        account = directory / "service-account"
        token = control_plane.service_account_token(parsed.metadata.namespace, pod.service_account_name)
        contents = {
            "token": token.encode(),
            "ca.crt": control_plane.ca_path.read_bytes(),
            "namespace": parsed.metadata.namespace.encode(),
        }
        write_volume(account, contents, mode=0o644)
        found.append(Mount(source=str(account), target=SERVICE_ACCOUNT_PATH, read_only=True))
    return sorted(found, key=lambda mount: Path(mount.target).parts)


def lay_out(volume: Volume, place: Path, lookup: Lookup, host_root: Path) -> Path:
    """The path on this machine that plays the volume, made under `place` unless it is a hostPath that exists."""
    if volume.host_path is not None:
        return host_path(volume.host_path, place, host_root)
    if volume.empty_dir is not None:
        place.mkdir(parents=True)
        return place
    source: SecretSource | ConfigMapSource
    if volume.secret is not None:
        kind, name, source = "secret", volume.secret.secret_name, volume.secret
    elif volume.config_map is not None:
        kind, name, source = "configmap", volume.config_map.name, volume.config_map
    else:
        raise NotPlayed(f"volume {volume.name}: only secret, configMap, hostPath and emptyDir are played")
    try:
        contents = lookup(kind, name)
    except NotPlayed:
        if not source.optional:
            raise
        contents = {}
    if source.items:
        contents = {item.path: contents[item.key] for item in source.items}
    write_volume(place, contents, mode=source.default_mode)
    return place


def host_path(source: HostPathSource, place: Path, host_root: Path) -> Path:
    """A node's path; where no type is given and nothing is there, the empty folder that a container runtime makes."""
    path = host_root / source.path.lstrip("/")
    check = HOST_PATH_CHECKS.get(source.type)
    if check is not None and not check(path):
        raise NotPlayed(f"hostPath {source.path} is no {source.type}: a kubelet would not start this pod")
    if path.exists():
        return path.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    if source.type == "FileOrCreate":
        place.touch()
    else:
        place.mkdir()
    return place


def write_volume(place: Path, contents: Mapping[str, bytes], *, mode: int) -> None:
    """Files as a kubelet mounts them: each a link through `..data`, which is swung to new contents in one step."""
    version = f"..{next(_serial)}"
    for name, value in contents.items():
        file = place / version / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(value)
        file.chmod(mode)
        top = Path(name).parts[0]
        if not (place / top).is_symlink():
            (place / top).symlink_to(Path("..data") / top)
    (place / version).mkdir(parents=True, exist_ok=True)
    (place / "..new").symlink_to(version)
    (place / "..new").rename(place / "..data")


def unshare_command() -> list[str]:
    """`unshare` for mounts of one's own and a hostname; another user than root also needs a user namespace."""
    own_user = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *own_user, "--mount", "--uts", "--"]


def check_namespaces() -> None:
    """Says nothing where a process can get mounts of its own; raises NotPlayed, with the kernel's word, elsewhere."""
    answer = subprocess.run([*unshare_command(), "true"], capture_output=True, text=True)
    if answer.returncode != 0:
        raise NotPlayed(
            f"this machine gives no mount namespaces ({answer.stderr.strip()}): run as root with CAP_SYS_ADMIN, "
            "or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces>0)"
        )
