"""The OpenShift walk-through on a real control plane: pods wait, machines come, pods run; pods leave, machines go."""

import asyncio
import time
from collections.abc import Sequence

from nobiru.sim.kubelet_model import HollowPod
from tests.cluster.controlplane.control_plane import ControlPlane
from tests.cluster.controlplane.manifests import walkthrough
from tests.cluster.stage import EVICTION_ROLE, GROUP, LABEL_TAG, PROJECT, QUICK, TAGS, Stage, binding, openshift_stage

# Two compute nodes exist and hold three pods of 2Gi each (an m5.large offers 7.5 GiB at most); fourteen are left, three a node.
LEAST = 5


async def wait_all_running(stage: Stage, count: int = 20) -> Sequence[HollowPod]:
    return await stage.world.wait_for_pods(count, PROJECT, app="scale-up", timeout_s=40)


def reasons_of_nodes(plans: list[dict[str, object]]) -> dict[str, str]:
    """The last reason of every node in the journal."""
    found: dict[str, str] = {}
    for entry in plans:
        nodes = entry["plan"]["nodes"]  # type: ignore[index]
        found.update({name: why["reason"] for name, why in nodes.items()})
    return found


async def test_grows_and_shrinks(own_control_plane: ControlPlane) -> None:
    """Twenty pods: one raise to the least number of nodes, all run; the Deployment gone, the group is empty again."""
    async with openshift_stage(own_control_plane) as stage:
        with stage.autoscaler(*QUICK) as process:
            await asyncio.to_thread(process.wait_for_line, "became leader") if hasattr(
                process, "wait_for_line"
            ) else None
            await stage.apply(walkthrough("openshift/scale-up.yaml"), PROJECT)
            await wait_all_running(stage)
            assert await stage.raises() == [LEAST], "one raise, to the right number"
            assert await stage.desired() == LEAST
            triggered = await stage.events("TriggeredScaleUp", PROJECT)
            assert f"{GROUP} 0->{LEAST} (max: 6)" in triggered[0]["message"]

            await stage.kubectl("delete", "deployment", "scale-up", "-n", PROJECT)
            await stage.until_desired(0, timeout_s=60)
            await stage.world.wait_for_nodes(3)
            calls = (await stage.cloud.calls()).calls
            ends = [call for call in calls if call.action == "TerminateInstanceInAutoScalingGroup"]
            assert len(ends) == LEAST
            assert all(call.desired_after == call.desired_before - 1 for call in ends)
            assert await stage.raises() == [LEAST], "desired capacity was set once, upwards"


async def test_without_the_label_tag_it_does_not_raise(own_control_plane: ControlPlane) -> None:
    """Without the node-template label no new node would suit the project's selector: no raise, and it says why."""
    tags = {key: value for key, value in TAGS.items() if key != LABEL_TAG}
    async with openshift_stage(own_control_plane, tags=tags) as stage:
        with stage.autoscaler(*QUICK):
            await stage.apply(walkthrough("openshift/scale-up.yaml"), PROJECT)

            async def told() -> list[str]:
                return [event["message"] for event in await stage.events("NotTriggerScaleUp", PROJECT)]

            messages = await stage.until("pods are told why", told)
            assert "node affinity/selector" in messages[0]
            assert await stage.desired() == 0
            assert await stage.raises() == []


async def test_movable_pod_stays_without_the_right_and_moves_with_it(own_control_plane: ControlPlane) -> None:
    """Without pods/eviction a node with a movable pod is never tainted; with it, it is drained and goes."""
    async with openshift_stage(own_control_plane) as stage:
        await stage.apply(walkthrough("openshift/scale-up.yaml"), PROJECT)
        with stage.autoscaler(*QUICK):
            await wait_all_running(stage)
            await stage.kubectl("scale", "deployment", "scale-up", "-n", PROJECT, "--replicas=7")
            seven = await stage.world.wait_for_pods(7, PROJECT, app="scale-up")
            occupied = {pod.spec.node_name for pod in seven}

            async def refused() -> set[str]:
                nodes = reasons_of_nodes(await stage.plans())
                return {name for name, reason in nodes.items() if reason == "EVICTION_NOT_ALLOWED"}

            held = await stage.until("nodes with movable pods are held", refused)
            began = time.monotonic()
            while time.monotonic() - began < 5:
                for node in stage.world.nodes():
                    if node.name in held & occupied:
                        assert not any("ToBeDeleted" in taint.key for taint in node.taints)
                await asyncio.sleep(0.1)

        await stage.apply(EVICTION_ROLE)
        await stage.apply(binding("evict", "ClusterRole", "evict"))
        with stage.autoscaler(*QUICK, "--scale-down-utilization-threshold=0.9"):
            # Seven pods of 2Gi need three nodes; two compute nodes exist, so one of the group stays.
            await stage.until_desired(1, timeout_s=90)
            await stage.world.wait_for_pods(7, PROJECT, app="scale-up", timeout_s=40)
            assert await stage.raises() == [LEAST]
