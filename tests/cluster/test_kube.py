"""The kube edge against a real API server: what fakes cannot prove."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nobiru.kernel.errors import KubeConflict, KubeDenied, KubeNotFound
from nobiru.kernel.objects import ConfigMap, Node, Pod
from nobiru.kube.cache import Cache, Follow, follow
from nobiru.kube.client import CONFIGMAPS, NODES, PODS, Client
from nobiru.kube.connect import connect
from nobiru.kube.events import Recorder, Subject
from nobiru.kube.lease import Elector, LeaseConfig
from tests.cluster.controlplane.control_plane import ControlPlane


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


CLOCK = SystemClock()
# As the Helm chart and Cluster Autoscaler's own manifests grant it: leases and endpoints by get and update, no patch.
LOCK_ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: locks}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}
- {apiGroups: [coordination.k8s.io], resources: [leases], resourceNames: [cluster-autoscaler], verbs: [get, update]}
- {apiGroups: [""], resources: [endpoints, configmaps], verbs: [create]}
- {apiGroups: [""], resources: [endpoints, configmaps], resourceNames: [cluster-autoscaler], verbs: [get, update]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: locker}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: locks}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: locks}
subjects: [{kind: ServiceAccount, name: locker}]
"""


def as_account(control_plane: ControlPlane, namespace: str, name: str, directory: Path) -> Client:
    """A client with the rights of a service account."""
    path = directory / f"{namespace}-{name}.yaml"
    control_plane.write_kubeconfig(path, token=control_plane.service_account_token(namespace, name))
    return connect(str(path))


async def until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 (the server has no event for us to wait on)
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("kind", ["leases", "configmaps", "endpoints", "endpointsleases", "configmapsleases"])
async def test_a_lock_is_renewed_with_the_rights_of_the_chart(
    control_plane: ControlPlane, tmp_path: Path, kind: str
) -> None:
    """The lock is taken, outlives its renew deadline by renewals alone, and once released the next takes it at once."""
    namespace = f"lock-{kind}"
    await asyncio.to_thread(control_plane.namespace, namespace)
    await asyncio.to_thread(control_plane.apply, LOCK_ROLE, namespace)
    client = await asyncio.to_thread(as_account, control_plane, namespace, "locker", tmp_path)

    def elector(identity: str) -> Elector:
        config = LeaseConfig(
            kind=kind,
            namespace=namespace,
            name="cluster-autoscaler",
            identity=identity,
            lease_duration_ms=3_000,
            renew_deadline_ms=1_500,
            retry_period_ms=200,
        )
        return Elector(client, CLOCK, config)

    first, second = elector("first"), elector("second")
    async with asyncio.timeout(20):
        await first.acquire()
        holding = asyncio.create_task(first.hold())
        waiting = asyncio.create_task(second.acquire())
        await asyncio.sleep(3.5)
        assert first.held()
        assert not waiting.done()
        holding.cancel()
        await first.release()
        began_s = time.monotonic()
        await waiting
    assert second.held()
    assert not first.held()
    assert time.monotonic() - began_s < 1.5
    await second.release()
    await client.aclose()


async def test_a_cache_follows_what_kubectl_does(control_plane: ControlPlane) -> None:
    """Created, changed and deleted objects are told to listeners in order, each once."""
    await asyncio.to_thread(control_plane.namespace, "cached")
    told: list[str] = []
    cache: Cache[ConfigMap] = Cache(CONFIGMAPS, ConfigMap)
    cache.listen(
        lambda before, now: told.append(f"{'+' if before is None else '~'}{now.name}") if now.name == "seen" else None,
        lambda last: told.append(f"-{last.name}"),
    )
    client = connect(str(control_plane.kubeconfig_path()))
    following = asyncio.create_task(follow(cache, client, CLOCK, Follow(namespace="cached")))
    await asyncio.wait_for(cache.synced.wait(), 10)
    for arguments in (
        ["create", "configmap", "seen", "--from-literal=a=1", "-n", "cached"],
        ["label", "configmap", "seen", "b=2", "-n", "cached"],
        ["delete", "configmap", "seen", "-n", "cached"],
    ):
        await asyncio.to_thread(control_plane.kubectl, *arguments)
    await until(lambda: "-seen" in told)
    assert told == ["+seen", "~seen", "-seen"]
    following.cancel()
    await client.aclose()


async def test_what_is_wrong_is_said_in_the_kernels_words(control_plane: ControlPlane) -> None:
    """Missing, existing and outdated objects raise their own kinds, with the server's message."""
    await asyncio.to_thread(control_plane.namespace, "words")
    client = connect(str(control_plane.kubeconfig_path()))
    with pytest.raises(KubeNotFound, match='configmaps "absent" not found'):
        await client.get(CONFIGMAPS, "words", "absent", ConfigMap)
    body = {"metadata": {"name": "here"}, "data": {"a": "1"}}
    made = await client.create(CONFIGMAPS, "words", body, ConfigMap)
    with pytest.raises(KubeConflict, match="already exists"):
        await client.create(CONFIGMAPS, "words", body, ConfigMap)
    await client.patch(CONFIGMAPS, "words", "here", {"data": {"a": "2"}}, ConfigMap)
    stale = {"metadata": {"name": "here", "resourceVersion": made.metadata.resource_version}, "data": {}}
    with pytest.raises(KubeConflict, match="the object has been modified"):
        await client.update(CONFIGMAPS, "words", "here", stale, ConfigMap)
    assert await client.review_access("delete", "", "nodes")
    await client.aclose()


async def test_a_missing_right_is_a_fact(control_plane: ControlPlane, tmp_path: Path) -> None:
    """Without rights calls are denied, reviews say so, and a cache is `denied` instead of waiting for ever."""
    await asyncio.to_thread(control_plane.namespace, "poor")
    client = await asyncio.to_thread(as_account, control_plane, "poor", "default", tmp_path)
    with pytest.raises(KubeDenied, match="cannot list resource"):
        await client.list(NODES, Node)
    assert not await client.review_access("delete", "", "nodes")
    cache: Cache[Node] = Cache(NODES, Node)
    following = asyncio.create_task(follow(cache, client, CLOCK, Follow()))
    await asyncio.wait_for(cache.synced.wait(), 10)
    assert "cannot list resource" in cache.denied
    following.cancel()
    await client.aclose()


POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody"}}


async def test_evictions_are_of_one_pod_and_respect_budgets(control_plane: ControlPlane) -> None:
    """A budget refuses with 429; another pod of the same name stays; a pod that is gone is success."""
    await asyncio.to_thread(control_plane.namespace, "evicted")
    client = connect(str(control_plane.kubeconfig_path()))
    pod = await client.create(PODS, "evicted", POD, Pod)
    await client.evict(("evicted", "p"), 0, "00000000-0000-0000-0000-000000000000")
    assert (await client.get(PODS, "evicted", "p", Pod)).metadata.uid == pod.metadata.uid
    await client.evict(("evicted", "p"), 0, pod.metadata.uid)
    with pytest.raises(KubeNotFound):
        await client.get(PODS, "evicted", "p", Pod)
    await client.evict(("evicted", "p"), 0, pod.metadata.uid)
    await client.aclose()


async def test_an_event_is_what_kubectl_shows(control_plane: ControlPlane) -> None:
    """Events on namespaced and cluster-scoped objects arrive; an equal one within five minutes does not repeat."""
    await asyncio.to_thread(control_plane.namespace, "told")
    client = connect(str(control_plane.kubeconfig_path()))
    recorder = Recorder(client, CLOCK, component="cluster-autoscaler")
    running = asyncio.create_task(recorder.run())
    for subject in (Subject(kind="Pod", name="p", namespace="told"), Subject(kind="Node", name="told-node")):
        for _ in range(3):
            recorder.record(subject, "Normal", "ScaleDown", "marked the node")
    await recorder.drain(5)
    assert recorder.dropped == 0
    for namespace, name in (("told", "p"), ("default", "told-node")):
        found = await asyncio.to_thread(
            control_plane.get, "events", "--field-selector", f"involvedObject.name={name}", namespace=namespace
        )
        assert [(each["reason"], each["count"], each["source"]) for each in found["items"]] == [
            ("ScaleDown", 1, {"component": "cluster-autoscaler"})
        ]
    running.cancel()
    await client.aclose()
