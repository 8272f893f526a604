"""The product dies at the worst moments, is frozen, or loses its API server; the next one goes on, and nothing is done twice."""

import asyncio
import itertools
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from nobiru.kernel.objects import Node
from nobiru.nodes.plan.marks import CANDIDATE_TAINT, CORDONED_BY_US, DELETE_TAINT, MARKED_BY
from nobiru.sim.asg_state import Call, Timing
from nobiru.sim.kubelet_model import HollowPod
from tests.cluster.controlplane.control_plane import ControlPlane
from tests.cluster.controlplane.manifests import fill, walkthrough
from tests.cluster.controlplane.pod_process import PodProcess, run_as_pod
from tests.cluster.controlplane.processes import free_ports
from tests.cluster.stage import EVICTION_ROLE, GROUP, PROJECT, Stage, binding, openshift_stage

CRASHING = Path(__file__).with_name("crashing.py")
APP = "scale-up"
# Two static compute nodes hold six pods; two more need one machine of the group.
MANY, FEW = 8, 5
FAST = (
    "--scan-interval=300ms",
    "--scale-down-unneeded-time=1s",
    "--scale-down-delay-after-add=0s",
    "--node-delete-delay-after-taint=300ms",
    "--scale-down-utilization-threshold=0.9",
)
ALONE = (*FAST, "--leader-elect=false")
LEASE_S, RETRY_S = 3.0, 0.5
ELECTED = (
    *FAST,
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=500ms",
)
# How late a busy machine may tell what happened.
LATE_S = 1.5
EXIT_LOST_LOCK = 3


def start_crashing(stage: Stage, moment: str, number: int, *flags: str) -> PodProcess:
    """The product as the Deployment's pod, ending itself at that effect."""
    trap = [sys.executable, str(CRASHING), moment, str(number)]
    return run_as_pod(
        stage.control_plane,
        fill(stage.manifest, **{"Auto Scaling Group名": GROUP}),
        command_rewrite=lambda words: [*trap, *words, *flags, f"--address=127.0.0.1:{free_ports(1)[0]}"],
        extra_env={"AWS_ENDPOINT_URL": stage.cloud.endpoint_url},
    )


class Pod:
    """The Deployment's one pod: first the product with a trap, then, once that killed it, the product."""

    def __init__(self, stage: Stage, moment: str, number: int) -> None:
        self.stage, self.crashed = stage, False
        self.trapped = self.process = start_crashing(stage, moment, number, *ALONE)

    def look(self) -> None:
        """Start the next one if this one is dead; only its own trap may have killed it."""
        if self.process.running:
            return
        assert self.process.returncode == -signal.SIGKILL, self.process.log_tail()
        assert not self.crashed, "the product itself does not die"
        self.crashed = True
        self.process = self.stage.autoscaler(*ALONE)

    async def until(self, what: str, check: Callable[[], Awaitable[bool]]) -> None:
        """Wait while the pod is kept alive."""

        async def looked() -> bool:
            self.look()
            return await check()

        await self.stage.until(what, looked, timeout_s=60)
        self.look()


class Watcher:
    """When each pod was last seen on which node."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.seen_ms: dict[tuple[str, str], int] = {}

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            now_ms = time.time_ns() // 1_000_000
            for pod in pods(self.stage):
                self.seen_ms[pod.spec.node_name or "", pod.metadata.uid] = now_ms
            await asyncio.sleep(0.05)


def pods(stage: Stage) -> tuple[HollowPod, ...]:
    return stage.world.pods(PROJECT, app=APP)


def group_nodes(stage: Stage) -> tuple[Node, ...]:
    return stage.world.nodes(group=GROUP)


def static_pods(stage: Stage) -> set[str]:
    """The uids of the pods on the nodes that stay."""
    leaving = {node.name for node in group_nodes(stage)}
    return {pod.metadata.uid for pod in pods(stage) if pod.spec.node_name not in leaving}


def marks(node: Node) -> set[str]:
    """Everything that a removal leaves on a node, by name."""
    found = {taint.key for taint in node.taints} & {DELETE_TAINT, CANDIDATE_TAINT}
    found |= node.annotations.keys() & {MARKED_BY, CORDONED_BY_US}
    return found | ({"cordon"} if node.spec.unschedulable else set())


async def scale(stage: Stage, replicas: int) -> None:
    await stage.kubectl("scale", "deployment", APP, "-n", PROJECT, f"--replicas={replicas}")


async def new_calls(stage: Stage, since: int) -> Sequence[Call]:
    return (await stage.cloud.calls()).calls[since:]


def raises_in(calls: Sequence[Call]) -> list[tuple[int, int]]:
    return [(call.desired_before, call.desired_after) for call in calls if call.action == "SetDesiredCapacity"]


async def grow_and_shrink(stage: Stage, pod: Pod) -> None:
    """Eight pods come, three go: one machine comes, is drained of two pods that can move, and goes."""
    since = len((await stage.cloud.calls()).calls)
    await scale(stage, MANY)

    async def all_run() -> bool:
        return len([each for each in pods(stage) if each.status.phase == "Running"]) == MANY

    await pod.until("all pods run", all_run)
    assert await stage.desired() == 1, "the least number of machines"
    names = {node.metadata.name for node in group_nodes(stage)}

    await scale(stage, FEW)
    await stage.world.wait_until("three pods go", lambda: len(pods(stage)) <= FEW)
    kept = static_pods(stage)

    async def settled() -> bool:
        return await stage.desired() == 0 and not group_nodes(stage) and len(static_pods(stage)) == FEW

    await pod.until("the machine is drained and gone", settled)
    await stage.world.wait_for_pods(FEW, PROJECT, app=APP)
    calls = await new_calls(stage, since)
    assert raises_in(calls) == [(0, 1)], "one raise in all, whoever died"
    ends = [call for call in calls if call.action == "TerminateInstanceInAutoScalingGroup"]
    assert [(call.desired_before, call.desired_after) for call in ends] == [(1, 0)]
    assert kept, "pods are on the nodes that stay"
    assert kept <= static_pods(stage), "no pod of a node that stays was touched"
    assert len(names) == 1
    for node in stage.world.nodes():
        assert marks(node) == set(), f"{node.name} keeps {marks(node)}"


def assert_empty_when_ended(watcher: Watcher, calls: Sequence[Call]) -> None:
    """No pod was on a machine of the group when its termination was asked for."""
    ended_ms = max(call.at_ms for call in calls if call.action == "TerminateInstanceInAutoScalingGroup")
    left = {uid for (node, uid), at_ms in watcher.seen_ms.items() if node and at_ms > ended_ms + 500}
    assert left <= static_pods(watcher.stage), "pods were still there after the machine's end was asked for"


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_killed_at_every_effect(own_control_plane: ControlPlane, moment: str) -> None:
    """Killed before or after each effect in turn: one raise, one drained machine gone, no pod lost, no mark left."""
    async with openshift_stage(own_control_plane) as stage:
        await stage.apply(EVICTION_ROLE)
        await stage.apply(binding("evict", "ClusterRole", "evict"))
        await stage.apply(walkthrough("openshift/scale-up.yaml").replace("replicas: 20", "replicas: 0"), PROJECT)
        for number in itertools.count(1):
            # At the first effect the machine boots for longer than the next process needs to look for it.
            boot_ms = 5_000 if number == 1 else 300
            await stage.cloud.set_timing(Timing(pending_ms=200, boot_ms=boot_ms, terminating_ms=1_500))
            pod, watcher = Pod(stage, moment, number), Watcher(stage)
            watching = asyncio.create_task(watcher.run(), name="watch pods")
            try:
                since = len((await stage.cloud.calls()).calls)
                await grow_and_shrink(stage, pod)
            finally:
                pod.process.kill()
                watching.cancel()
                print(f"{moment} {number}: {time.strftime('%X')}", pod.trapped.log_path)
            assert_empty_when_ended(watcher, await new_calls(stage, since))
            await scale(stage, 0)
            await stage.world.wait_for_pods(0, PROJECT, phase="", app=APP)
            if not pod.crashed:
                break
            assert f"effect {number}:" in pod.trapped.log()
        told = pod.trapped.log()
        assert number > 5, "raise, two marks, two evictions and a termination were all crashed at"
        assert all(f": {kind}\n" in told for kind in ("raise", "mark", "evict", "terminate"))
