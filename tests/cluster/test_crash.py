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


async def change_node(stage: Stage, name: str, patch: str) -> None:
    await stage.kubectl("patch", "node", name, "--type=merge", "-p", patch)


async def test_rollback_erases_our_marks_alone(own_control_plane: ControlPlane) -> None:
    """B32: after a crash the next process takes off what we marked; a human's cordon stays, even beside a foreign, old taint."""
    async with openshift_stage(own_control_plane, boot_ms=300) as stage:
        wanted = {"AutoScalingGroupName": GROUP, "DesiredCapacity": 3}
        await stage.cloud.perform("SetDesiredCapacity", wanted)
        await stage.world.wait_for_nodes(3, group=GROUP)
        plain, cordoned, foreign = (node.metadata.name for node in group_nodes(stage))
        keep = '"annotations":{"cluster-autoscaler.kubernetes.io/scale-down-disabled":"true"}'
        since_s = int(time.time()) - 400  # older than the five minutes after which nobody goes on with it
        taint = f'{{"key":"{DELETE_TAINT}","value":"{since_s}","effect":"NoSchedule"}}'
        await change_node(stage, foreign, f'{{"metadata":{{{keep}}}}}')
        await stage.kubectl("cordon", cordoned)

        with stage.autoscaler(*ALONE, "--node-delete-delay-after-taint=1m") as process:

            def begun() -> bool:
                ours = {DELETE_TAINT, MARKED_BY, "cordon"}
                return marks_of(stage, plain) >= ours and marks_of(stage, cordoned) >= ours

            await stage.world.wait_until("two removals have begun", begun)
            process.kill()
        assert CORDONED_BY_US in marks_of(stage, plain)
        assert CORDONED_BY_US not in marks_of(stage, cordoned), "that cordon is a human's"
        for name in (plain, cordoned):
            await change_node(stage, name, f'{{"metadata":{{{keep}}}}}')
        await change_node(stage, foreign, f'{{"spec":{{"unschedulable":true,"taints":[{taint}]}}}}')

        with stage.autoscaler(*ALONE, "--node-delete-delay-after-taint=1m"):

            def rolled_back() -> bool:
                return all(DELETE_TAINT not in marks_of(stage, name) for name in (plain, cordoned, foreign))

            await stage.world.wait_until("the delete taints are taken off", rolled_back)
            await asyncio.sleep(1.5)  # several loops: nothing is marked again
        assert marks_of(stage, plain) == set()
        assert marks_of(stage, cordoned) == {"cordon"}
        assert marks_of(stage, foreign) == {"cordon"}
        assert await stage.desired() == 3


def marks_of(stage: Stage, name: str) -> set[str]:
    node = stage.world.node(name)
    assert node is not None, f"{name} is gone"
    return marks(node)


async def says(stage: Stage, process: PodProcess, text: str, timeout_s: float = 30.0) -> float:
    """The monotonic time at which the process's log was seen to have that text."""

    async def said() -> bool:
        return text in process.log()

    await stage.until(f"{process.name} says {text!r}", said, timeout_s)
    return time.monotonic()


async def test_one_acts_and_the_other_takes_over(own_control_plane: ControlPlane) -> None:
    """The standby acts within the lease time of the leader's death; a leader that slept past its lease starts nothing."""
    async with openshift_stage(own_control_plane) as stage:
        # Machines that boot for long leave pods pending: whoever wakes up has something to do.
        await stage.cloud.set_timing(Timing(boot_ms=8_000, terminating_ms=300))
        await stage.apply(walkthrough("openshift/scale-up.yaml").replace("replicas: 20", f"replicas: {MANY}"), PROJECT)
        first = stage.autoscaler(*ELECTED)
        await says(stage, first, "became leader")
        second = stage.autoscaler(*ELECTED)
        await says(stage, second, "standing by")
        await stage.until_desired(1)
        await asyncio.sleep(2 * RETRY_S)  # several renewals: the second still waits
        assert "became leader" not in second.log()

        first.kill()
        killed_s = time.monotonic()
        await scale(stage, MANY + 2)  # three on the new machine, one more needs another
        took_s = await says(stage, second, "became leader") - killed_s
        print(f"taken over {took_s:.2f} s after the leader's death")
        assert took_s <= LEASE_S + 2 * RETRY_S + LATE_S
        await stage.until_desired(2)

        third = stage.autoscaler(*ELECTED)
        await says(stage, third, "standing by")
        second.pause()
        await scale(stage, MANY + 5)
        await says(stage, third, "became leader")
        await stage.until_desired(3)
        second.resume()
        await lost_its_lock(second)

        # Nobody stands by: the one that slept finds its own record in the lock, and still starts nothing.
        third.pause()
        await scale(stage, MANY + 8)
        await asyncio.sleep(LEASE_S + RETRY_S)
        third.resume()
        await lost_its_lock(third)
        assert await stage.raises() == [1, 2, 3]

        with stage.autoscaler(*ELECTED):
            await stage.until_desired(4)
            await stage.world.wait_for_pods(MANY + 8, PROJECT, app=APP)
        assert await stage.raises() == [1, 2, 3, 4], "each step once, whoever led"
        assert [process.log().count('"scale up"') for process in (first, second, third)] == [1, 1, 1]


async def lost_its_lock(process: PodProcess) -> None:
    """It says so and ends, for its kubelet to start it again."""
    assert await asyncio.to_thread(process.wait) == EXIT_LOST_LOCK
    assert "the leader lock is lost" in process.log() or "the leader lock was taken" in process.log()


async def test_api_server_away_and_back(own_control_plane: ControlPlane) -> None:
    """A scale-up goes on by itself after the API server was away; a lock that could not be renewed ends in code 3."""
    async with openshift_stage(own_control_plane) as stage:
        await stage.cloud.set_timing(Timing(boot_ms=2_000, terminating_ms=300))
        await stage.apply(walkthrough("openshift/scale-up.yaml").replace("replicas: 20", f"replicas: {MANY}"), PROJECT)
        with stage.autoscaler(*ALONE) as process:
            await stage.until_desired(1)
            await api_server_away(stage, 4.0)
            await stage.world.wait_for_pods(MANY, PROJECT, app=APP, timeout_s=60)
            await scale(stage, MANY + 3)
            await stage.world.wait_for_pods(MANY + 3, PROJECT, app=APP, timeout_s=60)
            await scale(stage, 0)
            await api_server_away(stage, 2.0)
            await stage.until_desired(0, timeout_s=60)
            assert process.running, "it never ended"
            assert await stage.raises() == [1, 2]

        with stage.autoscaler(*ELECTED) as process:
            await says(stage, process, "became leader")
            await scale(stage, MANY)
            await stage.until_desired(1, timeout_s=60)
            await api_server_away(stage, LEASE_S)
            await lost_its_lock(process)
        with stage.autoscaler(*ELECTED):
            await stage.world.wait_for_pods(MANY, PROJECT, app=APP, timeout_s=60)
            assert await stage.raises() == [1, 2, 1]


async def api_server_away(stage: Stage, away_s: float) -> None:
    """Kill the API server and start it again after a while.

    The real controllers are started anew with it: their own back-off, of up to half a minute, is not what is shown here.
    """
    await asyncio.to_thread(stage.control_plane.kill_api_server)
    await asyncio.sleep(away_s)
    await asyncio.to_thread(stage.control_plane.start_api_server)
    for process in (stage.control_plane.controller_manager, stage.control_plane.scheduler):
        process.kill()
        process.start()
