"""The product with a `kill -9` of itself just before or just after the N-th effect it has on the world.

    python tests/cluster/crashing.py before 3 /bin/cluster-autoscaler --cloud-provider=aws ...

An effect is one raise of a desired capacity, one change of a node that is written, one eviction or one termination.
Invariant: but for its end, the process is the product: the same words, the same wiring.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence

from nobiru.cli.errors import guarded
from nobiru.cli.flags import nodes_config
from nobiru.cli.nodes import set_up_log
from nobiru.cli.pflag import parse, strip_program
from nobiru.cli.wire import run_nodes
from nobiru.kernel.objects import Key, Node
from nobiru.nodes.act import Ports
from nobiru.nodes.flags import FLAGS
from nobiru.nodes.ports import Description, Groups, Nodes

Change = Callable[[Node], dict[str, object] | None]
MOMENTS = ("before", "after")


class Trap:
    """Counts effects in the order in which they begin, and ends the process at the N-th."""

    def __init__(self, moment: str, number: int) -> None:
        assert moment in MOMENTS
        self._moment, self._number, self._begun = moment, number, 0

    def begins(self, what: str) -> int:
        """The number of the effect that is about to happen."""
        self._begun += 1
        sys.stderr.write(f"effect {self._begun}: {what}\n")
        self._end_at("before", self._begun)
        return self._begun

    def happened(self, number: int) -> None:
        """That effect is in the world; nobody here knows it yet."""
        self._end_at("after", number)

    def _end_at(self, moment: str, number: int) -> None:
        if (moment, number) == (self._moment, self._number):
            os.kill(os.getpid(), signal.SIGKILL)


class CrashingGroups:
    """The cloud's side."""

    def __init__(self, inner: Groups, trap: Trap) -> None:
        self._inner, self._trap = inner, trap

    async def describe(self, node_instance_ids: frozenset[str]) -> Description:
        """Reading is no effect."""
        return await self._inner.describe(node_instance_ids)

    async def raise_desired(self, group: str, target: int) -> int:
        number = self._trap.begins("raise")
        reached = await self._inner.raise_desired(group, target)
        self._trap.happened(number)
        return reached

    async def terminate(self, instance_id: str) -> None:
        number = self._trap.begins("terminate")
        await self._inner.terminate(instance_id)
        self._trap.happened(number)


class CrashingNodes:
    """The API server's side."""

    def __init__(self, inner: Nodes, trap: Trap) -> None:
        self._inner, self._trap = inner, trap

    async def change_node(self, name: str, change: Change) -> bool:
        number = 0

        def counted(node: Node) -> dict[str, object] | None:
            nonlocal number
            patch = change(node)
            if patch is not None and not number:
                number = self._trap.begins("mark")
            return patch

        written = await self._inner.change_node(name, counted)
        if written:
            self._trap.happened(number)
        return written

    async def evict(self, pod: Key, grace_s: int | None, uid: str) -> None:
        number = self._trap.begins("evict")
        await self._inner.evict(pod, grace_s, uid)
        self._trap.happened(number)


def crashing_nodes(words: Sequence[str]) -> int:
    """`nobiru nodes` with a trap; the first two words say where it lies."""
    trap = Trap(words[0], int(words[1]))

    def wrap(ports: Ports) -> Ports:
        return Ports(
            groups=CrashingGroups(ports.groups, trap),
            nodes=CrashingNodes(ports.nodes, trap),
            leadership=ports.leadership,
            clock=ports.clock,
            identity=ports.identity,
        )

    config = nodes_config(parse(strip_program(words[2:]), FLAGS))
    set_up_log(config)
    return run_nodes(config, wrap=wrap)


if __name__ == "__main__":
    sys.exit(guarded(crashing_nodes, sys.argv[1:]))
