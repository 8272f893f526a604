"""Troubles that users of such programs reported, each as a scenario with the right outcome, on a real control plane."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from nobiru.nodes.plan.marks import DELETE_TAINT
from nobiru.sim.asg_state import Timing
from nobiru.sim.cloud import Cloud
from nobiru.sim.kubelet_model import Kubelets, StaticNode
from tests.cluster.controlplane.build import Programs
from tests.cluster.controlplane.control_plane import ControlPlane, Settings
from tests.cluster.eks_parts import MINE, OF_ITS_TIME, host_with_bundle, workload
from tests.cluster.stage import EKS_NODE, PROJECT, QUICK, REGION, eks_stage

WORKERS = "eks-workers"
FARGATE = StaticNode(
    name=f"fargate-ip-10-0-9-11.{REGION}.compute.internal",
    private_ip="10.0.9.11",
    zone=f"{REGION}a",
    provider_id=f"aws:///{REGION}a/120328e333-369fe1b7/fargate-ip-10-0-9-11.{REGION}.compute.internal",
)
STATIC = (EKS_NODE, FARGATE)
SLOW_TO_GO = (*QUICK[:2], "--node-delete-delay-after-taint=4s", "--scan-interval=1s")
PROVISION = "--max-node-provision-time=8s"


@pytest.fixture(scope="module")
def eks(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane without OpenShift's selectors."""
    with ControlPlane(programs, tmp_path_factory.mktemp("reports") / "own", Settings()) as own:
        yield own


async def one_group(cloud: Cloud) -> None:
    """The tagged group, empty."""
    await cloud.create_launch_configuration("workers", instance_type="m5.large")
    await cloud.create_group(WORKERS, 0, 6, 0, configuration="workers", tags=MINE)


def pinned(node: str) -> str:
    """A pod that must not be moved, bound to that node by its author."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "pinned",
                "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
            },
            "spec": {"nodeName": node, "containers": [{"name": "app", "image": "app"}]},
        }
    )


async def test_restart_lost_node_and_late_pod(eks: ControlPlane, tmp_path: Path) -> None:
    """B7, B10, B38, B43 in one life of a cluster with a Fargate node."""
    host = host_with_bundle(tmp_path)
    timing = Timing(launch_ms=200, pending_ms=300, boot_ms=3_000, terminating_ms=300)
    async with eks_stage(eks, one_group, kubelets=Kubelets(static=STATIC), timing=timing) as stage:
        await stage.apply(workload(12), PROJECT)  # six fit on the two that exist
        with stage.pod(OF_ITS_TIME, *SLOW_TO_GO, PROVISION, host_root=host):
            await stage.until_desired(2, WORKERS)
        # B7: killed during the boot; the next one counts the machines that are on their way.
        with stage.pod(OF_ITS_TIME, *SLOW_TO_GO, PROVISION, host_root=host) as process:
            await stage.world.wait_for_pods(12, PROJECT, app="web", timeout_s=40)
            assert await stage.raises(WORKERS) == [2]

            # B10: somebody deletes a Node; its pods run elsewhere, its machine ends.
            lost = stage.world.nodes(group=WORKERS)[0].name
            orphan = stage.world.fleet.machines[lost].instance_id
            await stage.kubectl("delete", "node", lost)

            async def ended() -> bool:
                calls = (await stage.cloud.calls()).calls
                ends = [call for call in calls if call.action == "TerminateInstanceInAutoScalingGroup"]
                return bool(ends) and all(each.id != orphan for each in await stage.cloud.instances())

            await stage.until("the orphan is terminated", ended, timeout_s=40)
            await stage.world.wait_for_pods(12, PROJECT, app="web", timeout_s=40)

            # B38: the node is about to go, and a pod lands that may not be moved.
            await stage.kubectl("delete", "deployment", "web", "-n", PROJECT)
            tainted = await stage.world.wait_until(
                "a node about to go",
                lambda: next(
                    (
                        node.name
                        for node in stage.world.nodes(group=WORKERS)
                        if any(taint.key == DELETE_TAINT for taint in node.taints)
                    ),
                    None,
                ),
                timeout_s=40,
            )
            await stage.apply(pinned(tainted), PROJECT)
            await stage.until_desired(1, WORKERS, timeout_s=40)

            def untainted() -> bool:
                node = stage.world.node(tainted)
                assert node is not None, "the node with the late pod stays"
                return all(taint.key != DELETE_TAINT for taint in node.taints)

            await stage.world.wait_until("the removal is given up", untainted, timeout_s=40)
            assert await stage.desired(WORKERS) == 1
            # B43: a node that is no machine of a group is nobody's trouble.
            assert {each.name for each in STATIC} <= {node.name for node in stage.world.nodes()}
            assert "Traceback" not in process.log()
            lowered = [
                call
                for call in (await stage.cloud.calls()).calls
                if call.action == "SetDesiredCapacity" and call.desired_after < call.desired_before
            ]
            assert lowered == [], "B1, B2: nothing lowers a desired capacity"
