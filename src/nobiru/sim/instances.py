"""The machines that the cloud lists, followed by long polls, for all who live by them.

It refuses to know: what anybody does with a machine.  Invariant: a cloud that does not answer changes nothing: what was
listed last still counts as there.
"""

import asyncio
from collections.abc import Callable
from typing import Never, Protocol

from nobiru.kernel.errors import CloudError
from nobiru.sim.cloud_api import CloudInstance, InstanceList
from nobiru.sinks.log import Log

log = Log("instances")

WAIT_MS = 20_000
RETRY_S_FIRST, RETRY_S_MAX = 0.1, 2.0


class Listing(Protocol):
    """A cloud that can be asked what there is; `sim.cloud.Cloud` is one."""

    @property
    def region(self) -> str:
        """The region that its machines are in."""
        ...

    async def instance_list(self, *, after: int = 0, wait_ms: int = 0) -> InstanceList:
        """All machines, once the revision is above `after` or `wait_ms` are over.  Raises CloudError."""
        ...


class Instances:
    """The last listing, by instance id."""

    def __init__(self, cloud: Listing) -> None:
        self._cloud = cloud
        self.region = cloud.region
        self.listed: dict[str, CloudInstance] = {}
        self.synced = asyncio.Event()
        self._tell: list[Callable[[], None]] = []

    def listen(self, changed: Callable[[], None]) -> None:
        """Have it told when `listed` is another."""
        self._tell.append(changed)

    async def follow(self) -> Never:
        """Keep the listing current until cancelled."""
        after, wait_s = 0, RETRY_S_FIRST
        while True:
            try:
                found = await self._cloud.instance_list(after=after, wait_ms=WAIT_MS if self.synced.is_set() else 0)
            except CloudError as error:
                if wait_s == RETRY_S_FIRST:
                    log.warning("the cloud does not list its machines", error=str(error))
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, RETRY_S_MAX)
                continue
            after, wait_s = found.revision, RETRY_S_FIRST
            listed = {instance.id: instance for instance in found.instances}
            if listed != self.listed or not self.synced.is_set():
                self.listed = listed
                self.synced.set()
                for tell in self._tell:
                    tell()
