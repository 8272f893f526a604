"""Which groups are found and used on a real control plane: by several tags, by name, beside nodes that are no machines."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nobiru.sim.asg_state import CallFault, Faults
from nobiru.sim.cloud import Cloud
from nobiru.sim.kubelet_model import Kubelets, StaticNode
from tests.cluster.controlplane.build import Programs
from tests.cluster.controlplane.control_plane import ControlPlane, Settings
from tests.cluster.eks_parts import OF_ITS_TIME, host_with_bundle, workload
from tests.cluster.stage import EKS_NAMESPACE, EKS_NODE, PROJECT, QUICK, REGION, EksStage, eks_stage

# The roles of the article's time have no right to leases; the defaults are today's but for that.
ENDPOINTS = "--leader-elect-resource-lock=endpoints"
NO_SCALE_DOWN = "--scale-down-enabled=false"
FIND = "--node-group-auto-discovery=asg:tag="
BARE = StaticNode(name=f"bare-metal-1.{REGION}.compute.internal", private_ip="10.0.9.20", zone=f"{REGION}a")


@pytest.fixture(scope="module")
def eks(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane without OpenShift's selectors."""
    with ControlPlane(programs, tmp_path_factory.mktemp("discovery") / "own", Settings()) as own:
        yield own


async def tagged_groups(cloud: Cloud) -> None:
    """One group with each tag, one with both, one with neither, one with the wrong value."""
    await cloud.create_launch_configuration("workers", instance_type="m5.large")
    tags = {
        "red": {"fleet/red": "yes"},
        "blue": {"fleet/blue": "yes"},
        "both": {"fleet/red": "yes", "fleet/blue": "yes"},
        "neither": {"fleet/green": "yes"},
        "other value": {"fleet/red": "no"},
    }
    for name, of_group in tags.items():
        await cloud.create_group(name, 0, 3, 0, configuration="workers", tags=of_group)


async def groups_seen(stage: EksStage, *flags: str, host: Path) -> set[str]:
    """The groups that the status ConfigMap names when the program runs with these flags."""
    where = ("configmap", "cluster-autoscaler-status", "-n", EKS_NAMESPACE)
    await stage.kubectl("delete", *where, "--ignore-not-found")
    with stage.pod(*flags, host_root=host):

        async def seen() -> set[str]:
            text = await stage.kubectl("get", *where, "-o", "jsonpath={.data.status}", "--ignore-not-found")
            return set(re.findall(r"^[- ]*[Nn]ame: +(.+?) *$", text, re.MULTILINE))

        return await stage.until("a first status", seen)


async def test_several_discovery_flags(eks: ControlPlane, tmp_path: Path) -> None:
    """Two flags find the groups of either; with --compat-version only those of both, as in Cluster Autoscaler; a value counts."""
    host = host_with_bundle(tmp_path)
    two = (FIND + "fleet/red=yes", FIND + "fleet/blue")
    async with eks_stage(eks, tagged_groups) as stage:
        assert await groups_seen(stage, ENDPOINTS, *two, host=host) == {"red", "blue", "both"}
        assert await groups_seen(stage, OF_ITS_TIME, *two, host=host) == {"both"}
        assert await groups_seen(stage, ENDPOINTS, FIND + "fleet/red,fleet/blue", host=host) == {"both"}
        assert await groups_seen(stage, ENDPOINTS, FIND + "fleet/red", host=host) == {"red", "both", "other value"}


async def named_groups(cloud: Cloud) -> None:
    """A group at two of ten machines, and one whose desired capacity cannot be set for a while."""
    await cloud.create_launch_configuration("workers", instance_type="m5.large")
    await cloud.create_group("small", 0, 10, 2, configuration="workers")
    await cloud.create_group("locked", 0, 3, 0, configuration="workers")
    await cloud.set_faults(Faults(calls=(CallFault(action="SetDesiredCapacity", group="locked", calls=None),)))


async def test_named_groups_in_trouble(eks: ControlPlane, tmp_path: Path) -> None:
    """B29, B44, and an unknown name: the known group grows to its minimum in one raise, a node of no cloud is left alone.

    A group whose calls are throttled is raised by itself once they are not.
    """
    host = host_with_bundle(tmp_path)
    names = ("--nodes=6:10:small", "--nodes=0:3:locked", "--nodes=0:3:no such group")
    async with eks_stage(eks, named_groups, kubelets=Kubelets(static=(EKS_NODE, BARE))) as stage:
        await stage.world.wait_for_nodes(4)
        await stage.apply(workload(15), PROJECT)  # twelve fit on the four that exist
        with stage.pod(ENDPOINTS, *names, *QUICK, "--expander=random", host_root=host) as process:
            # B29: below its minimum and wanted for one machine more: the minimum, at once.
            await stage.until_desired(6, "small")
            await stage.world.wait_for_pods(15, PROJECT, app="web", timeout_s=40)
            assert await stage.raises("small") == [6]

            # Both groups suit these; the other one is full, so that only the throttled one is left.
            await stage.cloud.perform("UpdateAutoScalingGroup", {"AutoScalingGroupName": "small", "MaxSize": 6})
            await stage.apply(workload(12, "more"), PROJECT)

            async def throttled() -> bool:
                return "throttles autoscaling:SetDesiredCapacity" in process.log()

            await stage.until("a throttled call is said", throttled)
            await stage.cloud.set_faults(Faults())
            await stage.world.wait_for_pods(12, PROJECT, app="more", timeout_s=60)
            assert await stage.desired("locked") > 0

            # B44: pods ran on it, it stood idle, and nobody ever marked it.
            await stage.kubectl("delete", "deployment", "web", "more", "-n", PROJECT)
            await stage.until_desired(0, "locked", timeout_s=40)
            bare = stage.world.node(BARE.name)
            assert bare is not None
            assert bare.spec.provider_id == ""
            assert all("ClusterAutoscaler" not in taint.key for taint in bare.taints)
            assert await stage.desired("small") == 6, "never below its minimum"

            log = process.log()
            unknown = 'Auto Scaling Group \\"no such group\\" does not exist'
            assert len([line for line in log.splitlines() if unknown in line and '"note"' in line]) == 1
            assert log.count(BARE.name) < 20, "it is not said in every loop"
            assert "Traceback" not in log
            told = [event["message"] for event in await stage.events("NodeGroupProblem", EKS_NAMESPACE)]
            assert [text for text in told if "no such group" in text] != []
