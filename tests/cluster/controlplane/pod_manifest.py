"""What a Deployment says about its pod's process: words, environment, files, account. Read, not run.

Knows the fields of a pod spec that our own Deployments use; refuses, by name, those that it does not play.
Invariant: nothing of a manifest is silently left out.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tests.cluster.controlplane.manifests import load

SERVICE_ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"

# The contents of a Secret or ConfigMap of the pod's namespace: ("secret" | "configmap", name) -> key -> bytes.
Lookup = Callable[[str, str], Mapping[str, bytes]]


class NotPlayed(Exception):
    """The manifest asks for something that the harness does not play, or that a kubelet would refuse too."""


# Structs name only the fields that are read; others of the manifest are ignored by the decoder.


class KeyRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    key: str
    optional: bool = False


class FieldRef(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    field_path: str


class EnvSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    field_ref: FieldRef | None = None
    secret_key_ref: KeyRef | None = None
    config_map_key_ref: KeyRef | None = None


class EnvVar(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    value: str | None = None
    value_from: EnvSource | None = None


class VolumeMount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    mount_path: str
    read_only: bool = False
    sub_path: str = ""


class Item(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    key: str
    path: str


class SecretSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    secret_name: str
    items: tuple[Item, ...] = ()
    default_mode: int = 0o644
    optional: bool = False


class ConfigMapSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    items: tuple[Item, ...] = ()
    default_mode: int = 0o644
    optional: bool = False


class HostPathSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    path: str
    type: str = ""


class Volume(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    secret: SecretSource | None = None
    config_map: ConfigMapSource | None = None
    host_path: HostPathSource | None = None
    empty_dir: dict[str, Any] | None = None


class Container(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[dict[str, Any], ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    working_dir: str = "/"


class PodSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    containers: tuple[Container, ...]
    init_containers: tuple[dict[str, Any], ...] = ()
    volumes: tuple[Volume, ...] = ()
    service_account_name: str = "default"
    automount_service_account_token: bool = True
    node_name: str = ""
    host_network: bool = False


class Template(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    spec: PodSpec


class DeploymentSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    template: Template


class Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    namespace: str = "default"


class Deployment(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    metadata: Metadata
    spec: DeploymentSpec


def deployment(manifest: str | Mapping[str, Any]) -> Deployment:
    """The Deployment of a manifest: a text's only one, or an object.

    Raises:  NotPlayed if there is none, more than one, or it asks for what is not played.
    """
    documents = load(manifest) if isinstance(manifest, str) else [dict(manifest)]
    found = [document for document in documents if document.get("kind") == "Deployment"]
    if len(found) != 1:
        raise NotPlayed(f"{len(found)} Deployments in this manifest, wanted one")
    try:
        parsed = msgspec.convert(found[0], Deployment)
    except msgspec.ValidationError as error:
        raise NotPlayed(f"not a Deployment that an API server takes: {error}") from error
    pod = parsed.spec.template.spec
    if pod.init_containers or len(pod.containers) != 1:
        raise NotPlayed("only pods of one container, without init containers, are played")
    if pod.containers[0].env_from:
        raise NotPlayed("envFrom is not played: give the variables one by one")
    return parsed


def environment(container: Container, facts: Mapping[str, str], lookup: Lookup) -> dict[str, str]:
    """The container's variables, with `$(NAME)` of earlier ones expanded; `facts` are downward API field paths.

    Raises:  NotPlayed for a source that is not played or a key that does not exist.
    """
    values: dict[str, str] = {}
    for variable in container.env:
        if variable.value_from is None:
            values[variable.name] = expand(variable.value or "", values)
            continue
        found = from_source(variable.value_from, facts, lookup)
        if found is not None:
            values[variable.name] = found
    return values


def from_source(source: EnvSource, facts: Mapping[str, str], lookup: Lookup) -> str | None:
    """One variable's value from a field, Secret or ConfigMap; None for an optional key that is not there."""
    if source.field_ref is not None:
        if source.field_ref.field_path not in facts:
            raise NotPlayed(f"fieldRef {source.field_ref.field_path} is not played")
        return facts[source.field_ref.field_path]
    for kind, ref in (("secret", source.secret_key_ref), ("configmap", source.config_map_key_ref)):
        if ref is not None:
            contents = lookup(kind, ref.name)
            if ref.key not in contents and not ref.optional:
                raise NotPlayed(f"{kind} {ref.name} has no key {ref.key}: a kubelet would not start this pod")
            return contents[ref.key].decode() if ref.key in contents else None
    raise NotPlayed("of valueFrom, fieldRef, secretKeyRef and configMapKeyRef are played")


def words(container: Container, values: Mapping[str, str]) -> list[str]:
    """Command and arguments as the container would run them, `$(NAME)` expanded."""
    return [expand(word, values) for word in (*container.command, *container.args)]


def expand(text: str, values: Mapping[str, str]) -> str:
    """`$(NAME)` becomes the variable's value; unknown names stay; `$$(NAME)` is a literal `$(NAME)`."""

    def one(found: re.Match[str]) -> str:
        return found.group(0)[1:] if found.group(1) else values.get(found.group(2), found.group(0))

    return re.sub(r"(\$?)\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)", one, text)
