"""What kubelets ask of an API server, one bounded call for each action.

It refuses to know: when, in which order, and what is remembered of it.  Invariant: a call that found things done already is
a success; a call about a pod or Node never reaches a namesake of it.
"""

from typing import Literal

from nobiru.kernel.clock import Clock
from nobiru.kernel.errors import KubeConflict, KubeNotFound
from nobiru.kernel.objects import Node
from nobiru.kube.client import LEASES, NODES, PATCH_TYPES, PODS, Client, Resource
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

# A crowded API server answers late, and asking again makes it later: a kubelet waits far longer than the product may.
CALL_S_MAX = 30.0


class Calls:
    """The calls; each raises KubeError where it did not succeed."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock

    async def register(self, machine: Machine) -> None:
        """Create the Node; one that is there already is taken over, unless it is an earlier machine's."""
        try:
            await self._create(NODES, "", node_body(machine, self._clock.now_ms()))
        except KubeConflict:
            there = await self._client.get(NODES, "", machine.node, Node)
            if there.spec.provider_id not in ("", machine.provider_id):
                raise

    async def report(self, action: Report) -> None:
        """Write the Node's status."""
        body = status_body(
            action.machine, ready=action.ready, turned=action.turned, gpus=action.gpus, now_ms=self._clock.now_ms()
        )
        await self._patch(NODES.path("", action.machine.node) + "/status", body, "strategic")

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
        await self._create(LEASES, LEASE_NAMESPACE, body)

    async def _renew_lease(self, action: Beat) -> None:
        body = renewal_body(self._clock.now_ms())
        await self._patch(LEASES.path(LEASE_NAMESPACE, action.machine.node), body, "merge")

    async def start(self, action: StartPod, ip: str) -> None:
        """Report the pod Running at that address."""
        await self._patch_pod(action.pod, running_body(action, ip, self._clock.now_ms()))

    async def end(self, action: EndPod) -> None:
        """Report the pod Succeeded or Failed."""
        await self._patch_pod(action.pod, ended_body(action, self._clock.now_ms()))

    async def remove(self, action: RemovePod) -> None:
        """Delete the pod for good."""
        pod = action.pod
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        body: Body = {**options, "preconditions": {"uid": pod.metadata.uid}}
        try:
            await self._client.request("DELETE", PODS.path(*pod.key), body=body, timeout_s=CALL_S_MAX)
        except KubeNotFound:
            return

    async def _patch_pod(self, pod: HollowPod, body: Body) -> None:
        await self._patch(PODS.path(*pod.key) + "/status", body, "strategic")

    async def _create(self, resource: Resource, namespace: str, body: Body) -> None:
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        await self._client.request("POST", resource.path(namespace), body=whole, timeout_s=CALL_S_MAX)

    async def _patch(self, path: str, body: Body, kind: Literal["merge", "strategic"]) -> None:
        await self._client.request("PATCH", path, body=body, content_type=PATCH_TYPES[kind], timeout_s=CALL_S_MAX)
