"""Hollow kubelets, the node lifecycle and the simulated cloud on the real control plane."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nobiru.kube.connect import connect
from nobiru.sim.asg_state import Timing
from nobiru.sim.cloud import Cloud
from nobiru.sim.kubelet_model import EXIT_CODE, RUN_MS, STOP_MS, Kubelets, Special, StaticNode
from nobiru.sim.world import OPENSHIFT_COMPUTE, World, WorldConfig, openshift_nodes
from tests.cluster.controlplane.build import Programs
from tests.cluster.controlplane.control_plane import ControlPlane, Settings
from tests.cluster.controlplane.manifests import walkthrough

TIMING = Timing(launch_ms=50, pending_ms=100, boot_ms=800, terminating_ms=200)
GROUPS = Kubelets(groups={"compute": OPENSHIFT_COMPUTE})
GRACE_S = 6  # how long the real controller waits for a heartbeat, where a test is impatient
FARGATE = (
    "aws:///eu-west-1b/120328e333-369fe1b7ba8b4416ab87216be91dc4f1/"
    "fargate-ip-192-168-159-181.eu-west-1.compute.internal"
)


@pytest.fixture(scope="module")
def control_plane(own_control_plane: ControlPlane) -> ControlPlane:
    """Not the shared one: it is filled with nodes, and its API server is killed."""
    return own_control_plane


class Stage:
    """A cloud with the group `compute` of m5.large, at 0 of 6; a world; kubectl."""

    def __init__(self, control_plane: ControlPlane, cloud: Cloud, world: World) -> None:
        self.control_plane, self.cloud, self.world = control_plane, cloud, world

    async def kubectl(self, *arguments: str) -> str:
        """What kubectl prints."""
        return await asyncio.to_thread(self.control_plane.kubectl, *arguments)

    async def apply(self, namespace: str, *objects: str | dict[str, Any]) -> None:
        """Apply manifests in a namespace, which is made if it is new."""
        await asyncio.to_thread(self.control_plane.namespace, namespace)
        for each in objects:
            text = each if isinstance(each, str) else json.dumps(each)
            await asyncio.to_thread(self.control_plane.apply, text, namespace)

    async def resize(self, desired: int) -> None:
        """Set the group's desired capacity."""
        await self.cloud.perform("SetDesiredCapacity", {"AutoScalingGroupName": "compute", "DesiredCapacity": desired})

    async def terminate(self, provider_id: str) -> None:
        """Terminate an instance and let the group want one less."""
        await self.cloud.perform(
            "TerminateInstanceInAutoScalingGroup",
            {"InstanceId": provider_id.rpartition("/")[2], "ShouldDecrementDesiredCapacity": True},
        )


@asynccontextmanager
async def staged(control_plane: ControlPlane, kubelets: Kubelets = GROUPS) -> AsyncIterator[Stage]:
    """A stage; in the end no Node is left."""
    client = connect(str(control_plane.kubeconfig_path()))
    try:
        async with Cloud.start(timing=TIMING) as cloud:
            await cloud.create_launch_configuration("compute")
            await cloud.create_group("compute", 0, 6, configuration="compute")
            async with World(cloud, client, WorldConfig(kubelets=kubelets, lifecycle_ms=500)) as world:
                yield Stage(control_plane, cloud, world)
    finally:
        await client.aclose()
        await asyncio.to_thread(control_plane.kubectl, "delete", "nodes", "--all")


def pod_spec(**more: Any) -> dict[str, Any]:
    """One container that asks for little."""
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "100m"}}}
    return {"containers": [container], "terminationGracePeriodSeconds": 5, **more}


def workload(kind: str, name: str, template: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A controller of pods with the label app=name."""
    version = "batch/v1" if kind == "Job" else "apps/v1"
    labels = {"app": name}
    selector = {} if kind == "Job" else {"selector": {"matchLabels": labels}}
    metadata = {"labels": labels, "annotations": spec.pop("annotations", {})}
    whole = {"metadata": metadata, "spec": template or pod_spec()}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {**selector, **spec, "template": whole},
    }


async def test_group_grows_and_shrinks(control_plane: ControlPlane) -> None:
    """0 -> 3 machines: 3 Ready nodes that hold nine pods of 2Gi and no tenth; what is terminated takes its Node along."""
    async with staged(control_plane) as stage:
        await stage.resize(3)
        nodes = await stage.world.wait_for_nodes(3, group="compute")
        assert {node.labels["node-role.kubernetes.io/compute"] for node in nodes} == {"true"}
        assert {node.spec.provider_id for node in nodes} == {
            f"aws:///{instance.zone}/{instance.id}" for instance in await stage.cloud.instances()
        }

        await stage.apply("grows", walkthrough("openshift/scale-up.yaml").replace("replicas: 20", "replicas: 10"))
        pods = await stage.world.wait_for_pods(9, "grows")
        await stage.world.wait_for_pods(1, "grows", phase="Pending")
        assert Counter(pod.spec.node_name for pod in pods) == {node.name: 3 for node in nodes}
        assert len({pod.status.pod_ip for pod in pods}) == 9

        await stage.kubectl("-n", "grows", "delete", "deployment", "scale-up")
        await stage.world.wait_for_pods(0, "grows", phase="")

        await stage.terminate(nodes[1].spec.provider_id)
        await stage.world.wait_for_no_node(nodes[1].name)
        assert [node.name for node in stage.world.nodes(ready=True)] == [nodes[0].name, nodes[2].name]


async def test_api_server_killed(control_plane: ControlPlane) -> None:
    """While the API server is gone a machine boots and another ends; once it is back all that is caught up on."""
    async with staged(control_plane) as stage:
        await stage.resize(2)
        first, second = await stage.world.wait_for_nodes(2)
        await stage.apply("killed", workload("Deployment", "web", replicas=4))
        await stage.world.wait_for_pods(4, "killed", app="web")

        await asyncio.to_thread(control_plane.kill_api_server)
        await stage.resize(3)
        await stage.terminate(first.spec.provider_id)
        await stage.cloud.wait_for(lambda machines: sum(machine.ready for machine in machines) == 2)
        await asyncio.to_thread(control_plane.start_api_server)

        await stage.world.wait_for_no_node(first.name)
        nodes = await stage.world.wait_for_nodes(2)
        assert second.name in {node.name for node in nodes}
        for node in nodes:  # bound here, since the real scheduler takes its time to find the API server again
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"on-{node.name}", "labels": {"app": "late"}},
            }
            await stage.apply("killed", {**pod, "spec": pod_spec(nodeName=node.name)})
        await stage.world.wait_for_pods(2, "killed", app="late")
        await stage.kubectl("-n", "killed", "delete", "pods", "-l", "app=late", "--wait=false")
        await stage.world.wait_for_pods(0, "killed", phase="", app="late")


async def test_walkthrough_nodes(control_plane: ControlPlane) -> None:
    """Nodes outside any group: the walk-through's three, a Fargate node and one of no cloud; none goes for want of an instance."""
    static = (
        *openshift_nodes(),
        StaticNode(name="fargate-ip-192-168-159-181", private_ip="192.168.159.181", zone="eu-west-1b", provider_id=FARGATE),
        StaticNode(name="bare", private_ip="192.168.0.9", zone="rack-1"),
    )  # fmt: skip
    async with staged(control_plane, Kubelets(groups=GROUPS.groups, static=static)) as stage:
        await stage.resize(1)
        await stage.world.wait_for_nodes(6)
        await stage.apply("static", walkthrough("openshift/scale-up.yaml").replace("replicas: 20", "replicas: 12"))
        pods = await stage.world.wait_for_pods(9, "static")

        by_name = {node.name: node for node in stage.world.nodes()}
        assert {by_name[pod.spec.node_name].labels.get("node-role.kubernetes.io/compute") for pod in pods} == {"true"}
        assert by_name["bare"].spec.provider_id == ""
        await stage.kubectl("-n", "static", "delete", "deployment", "scale-up")
        await stage.resize(0)
        await stage.world.wait_for_nodes(0, group="compute", ready=False)
        assert len(stage.world.nodes(ready=True)) == 5


async def test_lives_of_pods(control_plane: ControlPlane) -> None:
    """Jobs succeed and fail, DaemonSets cover nodes, StatefulSets come in order, evicted pods take their time and come again."""
    async with staged(control_plane, Kubelets(default=OPENSHIFT_COMPUTE)) as stage:
        await stage.resize(2)
        nodes = await stage.world.wait_for_nodes(2)
        once = pod_spec(restartPolicy="Never")
        await stage.apply(
            "lives",
            workload("Job", "good", once, annotations={RUN_MS: "300"}, completions=3, parallelism=2),
            workload("Job", "bad", once, annotations={RUN_MS: "100", EXIT_CODE: "2"}, backoffLimit=0),
            workload("Job", "endless", once, annotations={RUN_MS: "600000"}),
            workload("DaemonSet", "agent"),
            workload("StatefulSet", "db", replicas=2, serviceName="db"),
            workload("Deployment", "slow", annotations={STOP_MS: "1500"}, replicas=1),
        )
        await stage.kubectl("-n", "lives", "wait", "--for=condition=Complete", "job/good", "--timeout=20s")
        await stage.kubectl("-n", "lives", "wait", "--for=condition=Failed", "job/bad", "--timeout=20s")
        await stage.world.wait_for_pods(3, "lives", phase="Succeeded", app="good")
        agents = await stage.world.wait_for_pods(2, "lives", app="agent")
        assert {pod.spec.node_name for pod in agents} == {node.name for node in nodes}
        assert [pod.name for pod in await stage.world.wait_for_pods(2, "lives", app="db")] == ["db-0", "db-1"]

        (slow,) = await stage.world.wait_for_pods(1, "lives", app="slow")
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": slow.name, "namespace": "lives"},
        }
        path = f"/api/v1/namespaces/lives/pods/{slow.name}/eviction"
        await asyncio.to_thread(control_plane.kubectl, "create", "--raw", path, "-f", "-", input=json.dumps(eviction))
        await stage.world.wait_for_pods(2, "lives", app="slow")  # the old one still stops, the new one runs
        (again,) = await stage.world.wait_for_pods(1, "lives", app="slow")
        assert again.name != slow.name
        await stage.kubectl("-n", "lives", "delete", "job", "--all", "--wait=true", "--timeout=30s")
        await stage.kubectl("-n", "lives", "delete", "all", "--all", "--wait=true", "--timeout=30s")
        await stage.world.wait_for_pods(0, "lives", phase="")


def lost(world: World, name: str) -> bool:
    """Whether the real controller has given that Node up."""
    node = world.node(name)
    return node is not None and any(taint.key == "node.kubernetes.io/unreachable" for taint in node.taints)


async def test_faulty_kubelets(programs: Programs, tmp_path: Path) -> None:
    """One that never registers has no Node (B47); one that hangs is given up by the real controller; heartbeats keep the rest."""
    settings = Settings(controller_manager_flags=(f"--node-monitor-grace-period={GRACE_S}s",))
    profile = replace(OPENSHIFT_COMPUTE, lease_ms=1_000)
    faulty = (
        Special(profile=replace(profile, register_ms=None)),
        Special(profile=replace(profile, silent_ms=3_000)),
    )
    control_plane = ControlPlane(programs, tmp_path / "impatient", settings)
    await asyncio.to_thread(control_plane.__enter__)
    try:
        async with staged(control_plane, Kubelets(default=profile, special=faulty)) as stage:
            await stage.resize(3)
            nodes = await stage.world.wait_for_nodes(2)
            assert len(stage.world.fleet.machines) == 3
            began_s = time.monotonic()
            await stage.world.wait_until("one is lost", lambda: any(lost(stage.world, node.name) for node in nodes))
            await asyncio.sleep(max(0.0, began_s + 1.5 * GRACE_S - time.monotonic()))

            (well,) = stage.world.nodes(ready=True)
            assert not lost(stage.world, well.name)
            hung = next(node.name for node in nodes if node.name != well.name)
            stage.world.fleet.set_profile(hung, profile)
            await stage.world.wait_until("found again", lambda: not lost(stage.world, hung))
    finally:
        await asyncio.to_thread(control_plane.close)
