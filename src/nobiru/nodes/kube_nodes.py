"""The acting port on the API server: read a node, change it on that revision, evict a pod.

Invariant: a node is only ever written on the revision that was just read; conflicts are tried again a few times within the Action's time.
"""

from collections.abc import Callable

from nobiru.kernel.errors import KubeConflict
from nobiru.kernel.objects import Key, Node
from nobiru.kube.change import Changer
from nobiru.kube.client import NODES, Client

TRIES_MAX = 4


class KubeNodes:
    """Nodes and pods through a Client."""

    def __init__(self, client: Client) -> None:
        self._client, self._changer = client, Changer(client)

    async def change_node(self, name: str, change: Callable[[Node], dict[str, object] | None]) -> bool:
        """Change a node by a merge patch that `change` makes from what is there; returns whether anything was written.

        Raises:  KubeConflict if others kept writing it, KubeError.
        """
        for left in reversed(range(TRIES_MAX)):
            node = await self._client.get(NODES, "", name, Node)
            patch = change(node)
            if patch is None:
                return False
            meta = patch.get("metadata")
            merged = {**(meta if isinstance(meta, dict) else {}), "resourceVersion": node.metadata.resource_version}
            try:
                await self._changer.merge(NODES, "", name, {**patch, "metadata": merged}, Node)
            except KubeConflict:
                if not left:
                    raise
            else:
                return True
        return False

    async def evict(self, pod: Key, grace_s: int | None, uid: str) -> None:
        """Evict a pod.  Raises KubeError."""
        await self._client.evict(pod, grace_s, uid)
