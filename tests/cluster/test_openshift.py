"""The OpenShift walk-through on a real control plane: pods wait, machines come, pods run; pods leave, machines go."""

import asyncio
import re
import time
from collections.abc import Sequence

from nobiru.sim.kubelet_model import HollowPod
from tests.cluster.controlplane.control_plane import ControlPlane
from tests.cluster.controlplane.manifests import walkthrough
from tests.cluster.controlplane.pod_process import PodProcess
from tests.cluster.stage import EVICTION_ROLE, GROUP, LABEL_TAG, PROJECT, QUICK, TAGS, Stage, binding, openshift_stage

# Two compute nodes exist and hold three pods of 2Gi each (an m5.large offers 7.5 GiB at most); fourteen are left, three a node.
LEAST = 5


async def wait_all_running(stage: Stage, count: int = 20) -> Sequence[HollowPod]:
    return await stage.world.wait_for_pods(count, PROJECT, app="scale-up", timeout_s=40)


def held_back(process: PodProcess) -> set[str]:
    """The nodes that the log says stay because their pods may not be moved."""
    pattern = re.compile(r'"node stays" node="([^"]+)" why="EVICTION_NOT_ALLOWED"')
    return set(pattern.findall(process.log()))


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
    flags = (*QUICK, "--scale-down-utilization-threshold=0.9")
    async with openshift_stage(own_control_plane) as stage:
        await stage.apply(walkthrough("openshift/scale-up.yaml"), PROJECT)
        with stage.autoscaler(*flags) as process:
            await wait_all_running(stage)
            # The ReplicaSet ends pods on full nodes first: two of five stay on the node that the last two got.
            await stage.kubectl("scale", "deployment", "scale-up", "-n", PROJECT, "--replicas=5")
            five = await stage.world.wait_for_pods(5, PROJECT, app="scale-up")
            occupied = {pod.spec.node_name for pod in five}

            async def refused() -> set[str]:
                return held_back(process) & occupied

            held = await stage.until("nodes with movable pods are held", refused)
            await stage.until_desired(len(held))
            began = time.monotonic()
            while time.monotonic() - began < 4:
                for node in stage.world.nodes():
                    if node.name in held:
                        assert not any("ToBeDeleted" in taint.key for taint in node.taints)
                await asyncio.sleep(0.1)

        await stage.apply(EVICTION_ROLE)
        await stage.apply(binding("evict", "ClusterRole", "evict"))
        with stage.autoscaler(*flags):
            await stage.until_desired(0, timeout_s=60)
            await stage.world.wait_for_pods(5, PROJECT, app="scale-up", timeout_s=40)
            assert await stage.raises() == [LEAST]
            evicted = await stage.events("ScaleDown", PROJECT)
            assert "deleting pod for node scale down" in {event["message"] for event in evicted}
