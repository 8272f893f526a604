"""What kubelets ask of an API server, one bounded call for each action.

It refuses to know: when, in which order, and what is remembered of it.  Invariant: a call that found things done already is
a success; a call about a pod or Node never reaches a namesake of it.
"""

from nobiru.kernel.clock import Clock
from nobiru.kernel.errors import KubeConflict, KubeNotFound
from nobiru.kernel.objects import KubeObject, Node
from nobiru.kube.client import LEASES, NODES, PODS, Client
from nobiru.sim.kubelet_model import Beat, EndPod, HollowPod, Machine, RemovePod, Report, StartPod
from nobiru.sim.kubelet_wire import (
    LEASE_NAMESPACE,
    Body,
    ended_body,
    lease_body,
    node_body,
    renewal_body,
    running_body,
    status_body,
)


class Calls:
    """The calls; each raises KubeError where it did not succeed."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock

    async def register(self, machine: Machine) -> None:
        """Create the Node; one that is there already is taken over, unless it is an earlier machine's."""
        try:
            await self._client.create(NODES, "", node_body(machine, self._clock.now_ms()), KubeObject)
        except KubeConflict:
            there = await self._client.get(NODES, "", machine.node, Node)
            if there.spec.provider_id not in ("", machine.provider_id):
                raise

    async def report(self, action: Report) -> None:
        """Write the Node's status."""
        body = status_body(
            action.machine, ready=action.ready, turned=action.turned, gpus=action.gpus, now_ms=self._clock.now_ms()
        )
        name = action.machine.node
        await self._client.patch(NODES, "", name, body, KubeObject, kind="strategic", subresource="status")

    async def beat(self, action: Beat) -> None:
        """Renew the Node's Lease, or create it."""
        if action.create:
            try:
                await self._create_lease(action)
            except KubeConflict:
                await self._renew_lease(action)
            return
        try:
            await self._renew_lease(action)
        except KubeNotFound:  # it went with an earlier Node
            await self._create_lease(action)

    async def _create_lease(self, action: Beat) -> None:
        body = lease_body(action.machine.node, action.uid, self._clock.now_ms())
        await self._client.create(LEASES, LEASE_NAMESPACE, body, KubeObject)

    async def _renew_lease(self, action: Beat) -> None:
        body = renewal_body(self._clock.now_ms())
        await self._client.patch(LEASES, LEASE_NAMESPACE, action.machine.node, body, KubeObject)

    async def start(self, action: StartPod, ip: str) -> None:
        """Report the pod Running at that address."""
        await self._patch(action.pod, running_body(action, ip, self._clock.now_ms()))

    async def end(self, action: EndPod) -> None:
        """Report the pod Succeeded or Failed."""
        await self._patch(action.pod, ended_body(action, self._clock.now_ms()))

    async def remove(self, action: RemovePod) -> None:
        """Delete the pod for good."""
        pod = action.pod
        await self._client.delete(PODS, pod.metadata.namespace, pod.name, grace_s=0, uid=pod.metadata.uid)

    async def _patch(self, pod: HollowPod, body: Body) -> None:
        await self._client.patch(
            PODS, pod.metadata.namespace, pod.name, body, KubeObject, kind="strategic", subresource="status"
        )
