"""Several groups on a real control plane: trouble stays with the group that has it, and another cluster's groups are left alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from nobiru.sim.asg_state import CallFault, Faults, LaunchFault
from nobiru.sim.cloud import Cloud
from nobiru.sim.kubelet_model import Kubelets, Profile
from tests.cluster.controlplane.build import Programs
from tests.cluster.controlplane.control_plane import ControlPlane, Settings
from tests.cluster.eks_parts import ENABLED, MINE, OF_ITS_TIME, host_with_bundle, workload
from tests.cluster.stage import EKS_NAMESPACE, EKS_NODE, PROJECT, QUICK, eks_stage

LABEL = "k8s.io/cluster-autoscaler/node-template/label/pool"
POOLS = ("throttled", "denied", "well")
OUT_OF_STOCK = "We currently do not have sufficient m5.large capacity in the Availability Zone you requested"
# The lock of that time with the status of today.
ENDPOINTS = "--leader-elect-resource-lock=endpoints"
NO_SCALE_DOWN = "--scale-down-enabled=false"


@pytest.fixture(scope="module")
def eks(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane without OpenShift's selectors."""
    with ControlPlane(programs, tmp_path_factory.mktemp("groups") / "own", Settings()) as own:
        yield own


async def three_pools(cloud: Cloud) -> None:
    """Three groups, one for each pool's pods, two of whose raises go wrong; and one of another cluster."""
    await cloud.create_launch_configuration("workers", instance_type="m5.large")
    for pool in POOLS:
        await cloud.create_group(pool, 0, 3, 0, configuration="workers", tags={**MINE, LABEL: pool})
    other = {ENABLED: "true", "k8s.io/cluster-autoscaler/other": ""}
    await cloud.create_group("others", 0, 3, 0, configuration="workers", tags=other)
    calls = (
        CallFault(action="SetDesiredCapacity", group="throttled", kind="throttle", calls=None),
        CallFault(action="SetDesiredCapacity", group="denied", kind="deny", calls=None),
    )
    await cloud.set_faults(Faults(calls=calls))


async def test_trouble_stays_with_its_group(eks: ControlPlane, tmp_path: Path) -> None:
    """No way to tell whose the groups are: none is touched.  Told: two of three cannot be raised, the third is, each is said."""
    pools = {pool: Profile(node_labels={"pool": pool}) for pool in POOLS}
    host = host_with_bundle(tmp_path)
    flags = (OF_ITS_TIME, *QUICK, NO_SCALE_DOWN)
    async with eks_stage(eks, three_pools, kubelets=Kubelets(static=(EKS_NODE,), groups=pools)) as stage:
        for pool in POOLS:
            await stage.apply(workload(2, pool, nodeSelector={"pool": pool}), PROJECT)
        with stage.pod(*flags, host_root=host) as process:

            async def undecided() -> bool:
                return "nothing tells which is this one" in process.log()

            await stage.until("it says that nothing tells", undecided)
            assert all([await stage.desired(group) == 0 for group in (*POOLS, "others")])
            told = [line for line in process.log().splitlines() if '"note" text="the tagged groups' in line]
            assert len(told) == 1

        with stage.pod(*flags, "--cluster-name=demo", host_root=host) as process:
            await stage.world.wait_for_pods(2, PROJECT, app="well", timeout_s=40)

            async def failed() -> bool:
                told = " ".join(event["message"] for event in await stage.events("FailedToScaleUpGroup"))
                return "group throttled" in told and "group denied" in told

            await stage.until("both failures have their event", failed)
            assert [await stage.desired(group) for group in (*POOLS, "others")] == [0, 0, 1, 0]
            log = process.log()
            assert log.count("group others is left alone") == 1
            assert "Traceback" not in log


async def two_groups(cloud: Cloud) -> None:
    """Two groups that suit every pod; the first is out of stock."""
    await cloud.create_launch_configuration("workers", instance_type="m5.large")
    await cloud.create_group("a-empty", 0, 3, 0, configuration="workers", tags={**MINE, LABEL: "any"})
    await cloud.create_group("b-stocked", 0, 3, 0, configuration="workers", tags={**MINE, LABEL: "any"})
    await cloud.set_faults(Faults(launches=(LaunchFault(group="a-empty", message=OUT_OF_STOCK),)))


async def test_out_of_stock_goes_elsewhere(eks: ControlPlane, tmp_path: Path) -> None:
    """B4, B5: a group that cannot launch rests, with AWS's own words, and its pods run in another."""
    kubelets = Kubelets(static=(EKS_NODE,), default=Profile(node_labels={"pool": "any"}))
    activities = ("autoscaling:DescribeScalingActivities",)
    async with eks_stage(eks, two_groups, kubelets=kubelets, more_actions=activities) as stage:
        await stage.cloud.perform("UpdateAutoScalingGroup", {"AutoScalingGroupName": "b-stocked", "MaxSize": 0})
        with stage.pod(ENDPOINTS, *QUICK, NO_SCALE_DOWN, host_root=host_with_bundle(tmp_path)):
            await stage.apply(workload(6, nodeSelector={"pool": "any"}), PROJECT)
            await stage.until_desired(2, "a-empty")
            await stage.cloud.perform("UpdateAutoScalingGroup", {"AutoScalingGroupName": "b-stocked", "MaxSize": 3})
            await stage.world.wait_for_pods(6, PROJECT, app="web", timeout_s=60)

            async def told() -> bool:
                events = await stage.events("ScaleUpFailed", EKS_NAMESPACE)
                return any(OUT_OF_STOCK in event["message"] for event in events)

            await stage.until("an event has AWS's words", told)

            async def resting() -> bool:
                text = await stage.kubectl(
                    *("get", "configmap", "cluster-autoscaler-status", "-n", EKS_NAMESPACE),
                    *("-o", "jsonpath={.data.status}"),
                )
                return "a-empty" in text and OUT_OF_STOCK in " ".join(str(yaml.safe_load(text)).split())

            await stage.until("the status has AWS's words", resting)
            assert await stage.desired("b-stocked") == 2
