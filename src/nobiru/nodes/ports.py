"""What the node autoscaler may ask of the world, as Protocols; a dry run and a simulation bring their own.

Each call is bounded in time by its implementation and raises only `kernel.errors.WorldError`.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from nobiru.kernel.cloud import GroupName, NodeGroup
from nobiru.kernel.objects import Key, Node
from nobiru.kernel.reason import Why


class Groups(Protocol):
    """The cloud's groups of machines."""

    async def describe(self, node_instance_ids: frozenset[str]) -> "Description":
        """All groups that are ours; one that cannot be read has its `problem` set."""
        ...

    async def raise_desired(self, group: GroupName, target: int) -> int:
        """Raise the desired capacity to `target`, never lower it; returns what it is afterwards."""
        ...

    async def terminate(self, instance_id: str) -> None:
        """Terminate one instance and lower desired capacity by one with it."""
        ...


class Description(Protocol):
    """What describe() found."""

    @property
    def groups(self) -> tuple[NodeGroup, ...]: ...
    @property
    def others(self) -> dict[GroupName, Why]: ...
    @property
    def problem(self) -> str: ...
    @property
    def denied(self) -> frozenset[str]: ...


class Nodes(Protocol):
    """The API server, as far as acting goes."""

    async def change_node(self, name: str, change: Callable[[Node], dict[str, object] | None]) -> bool:
        """Read the node, let `change` make a merge patch, write it on that revision; None changes nothing.

        Returns whether something was written; conflicts are retried a few times.
        """
        ...

    async def evict(self, pod: Key, grace_s: int | None, uid: str) -> None:
        """Evict one pod; a pod that is gone already is success."""
        ...


class Leadership(Protocol):
    """Whether we may act at all."""

    def held(self) -> bool:
        """False as soon as the lock is lost or its renewal is overdue by our own clock."""
        ...


class EventSink(Protocol):
    """Where events go."""

    def pod(self, pods: Iterable[Key], type_: str, reason: str, message: str) -> None: ...
    def node(self, node: str, type_: str, reason: str, message: str) -> None: ...
    def status(self, type_: str, reason: str, message: str) -> None: ...
