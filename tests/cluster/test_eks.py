"""The EKS walk-through's Deployment, completed by us, with the rights of its time: groups found by their tags, grown and shrunk."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from nobiru.sim.cloud import Cloud
from tests.cluster.controlplane.build import Programs
from tests.cluster.controlplane.control_plane import ControlPlane, Settings
from tests.cluster.eks_parts import BUNDLE, MINE, OF_ITS_TIME, host_with_bundle, workload
from tests.cluster.stage import EKS_NAMESPACE, PROJECT, QUICK, eks_stage

WORKERS = "eks-workers"
EXIT_CONFIG = 2


@pytest.fixture(scope="module")
def eks(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane without OpenShift's selectors."""
    with ControlPlane(programs, tmp_path_factory.mktemp("eks") / "own", Settings()) as own:
        yield own


@pytest.fixture
def amazon_linux(tmp_path: Path) -> Path:
    """A node of Amazon Linux."""
    return host_with_bundle(tmp_path)


async def tagged_group(cloud: Cloud) -> None:
    """The article's group: empty, and known by its two tags alone."""
    await cloud.create_launch_configuration("workers", instance_type="m5.large")
    await cloud.create_group(WORKERS, 0, 5, 0, configuration="workers", tags=MINE)


async def test_grows_and_shrinks(eks: ControlPlane, amazon_linux: Path) -> None:
    """Nine pods: the tagged group grows, all run; the pods leave, the nodes are marked by update alone, and go."""
    async with eks_stage(eks, tagged_group) as stage:
        with stage.pod(OF_ITS_TIME, *QUICK, host_root=amazon_linux) as process:
            await stage.apply(workload(9), PROJECT)
            await stage.world.wait_for_pods(9, PROJECT, app="web", timeout_s=40)
            assert await stage.raises(WORKERS) == [2]
            await stage.kubectl("delete", "deployment", "web", "-n", PROJECT)
            await stage.until_desired(0, WORKERS, timeout_s=60)
            assert await stage.raises(WORKERS) == [2]
            status = await stage.kubectl(
                "get", "configmap", "cluster-autoscaler-status", "-n", EKS_NAMESPACE, "-o", "jsonpath={.data.status}"
            )
            assert WORKERS in status
            lock = await stage.kubectl("get", "endpoints", "cluster-autoscaler", "-n", EKS_NAMESPACE, "-o", "yaml")
            assert "control-plane.alpha.kubernetes.io/leader" in lock
            log = process.log()
            assert "patch nodes" not in log
            assert "ConfigMap cannot be written" not in log
            assert "Traceback" not in log


async def test_the_lock_of_today_lacks_a_right_and_says_so(eks: ControlPlane, amazon_linux: Path) -> None:
    """Without that time's defaults the lock is a lease, which those roles do not grant: one line names it, nothing is done."""
    async with eks_stage(eks, tagged_group) as stage:
        await stage.apply(workload(5), PROJECT)
        with stage.pod(*QUICK, host_root=amazon_linux) as process:

            async def said() -> bool:
                return "the leader lock is refused" in process.log()

            await stage.until("the missing right is said", said)
            line = next(each for each in process.log().splitlines() if "the leader lock is refused" in each)
            assert "leases" in line
            assert "coordination.k8s.io" in line
            assert await stage.raises(WORKERS) == []


async def test_a_bundle_path_that_the_host_lacks(eks: ControlPlane, tmp_path: Path) -> None:
    """The article's trap: elsewhere than on its author's hosts the mount is an empty directory; one line, exit code 2."""
    async with eks_stage(eks, tagged_group) as stage:
        with stage.pod(OF_ITS_TIME, host_root=tmp_path) as process:

            async def ended() -> bool:
                return not process.running

            await stage.until("it ends", ended)
            assert process.returncode == EXIT_CONFIG
            log = process.log()
            assert "Traceback" not in log
            told = [line for line in log.splitlines() if "is a directory, not a CA bundle" in line]
            assert len(told) == 1
            assert await asyncio.to_thread(Path(tmp_path, BUNDLE).exists) is False
