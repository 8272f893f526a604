"""Ports that act on nothing: a dry run is the same loop with these.

Invariant: no call here reaches the world; each is printed, and the plan goes on as if it had been asked for.
"""

from collections.abc import Callable

from nobiru.kernel.objects import Key, Node
from nobiru.nodes.ports import Description, Groups
from nobiru.sinks.log import Log

log = Log("dry-run")


class DryGroups:
    """Reads the cloud, never writes it."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    async def describe(self, node_instance_ids: frozenset[str]) -> Description:
        return await self._groups.describe(node_instance_ids)

    async def raise_desired(self, group: str, target: int) -> int:
        log.info("would raise desired capacity", group=group, target=target)
        return target

    async def terminate(self, instance_id: str) -> None:
        log.info("would terminate", instance=instance_id)


class DryNodes:
    """Changes no node and evicts no pod."""

    async def change_node(self, name: str, change: Callable[[Node], dict[str, object] | None]) -> bool:
        log.info("would change node", node=name)
        return True

    async def evict(self, pod: Key, grace_s: int | None, uid: str) -> None:
        log.info("would evict", pod="/".join(pod), grace_s=grace_s)
