"""How soon the product acts: on a real control plane with emulated AWS and hollow machines, as in the walk-through.

Reaction: from the moment that our own watch shows the first of 50 pods created at once as unschedulable, to the moment at which
the cloud takes the call that sets the group's last desired capacity.  It counts what the scheduler needs for the other 49, and
is the time to the right number: a first raise to too few would not end it.
Walk-through: 20 pods of a Deployment, instances that boot in 2 s; from the last boot to the moment all 20 are shown running.
Both begin once the product has written its status.
Needs the control plane that `make cluster` builds; without it there are no rows.
"""

import asyncio
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from nobiru.kernel.objects import Pod
from nobiru.kube.cache import Cache, Follow, follow
from nobiru.kube.client import PODS
from nobiru.sim.asg_state import Call
from nobiru.sim.world import WallClock
from tests.bench.rows import Row
from tests.cluster.controlplane.build import Programs, Unavailable, find
from tests.cluster.controlplane.control_plane import ControlPlane, Settings
from tests.cluster.controlplane.manifests import walkthrough
from tests.cluster.stage import GROUP, NAMESPACE, PROJECT, QUICK, Stage, openshift_stage

TRIES, PODS_AT_ONCE = 5, 50
BOOT_MS = 2_000
# Two compute nodes exist and hold three pods of 2Gi each (an m5.large offers 7.5 GiB at most); fourteen are left, three a node.
LEAST = 5


def rows() -> list[Row]:
    """Reaction and walk-through against their targets; none, and a line that says why, without a control plane."""
    try:
        programs = find()
    except Unavailable as lack:
        sys.stderr.write(f"reaction: not measured: {lack}\n")
        return []
    return asyncio.run(_rows(programs))


async def _rows(programs: Programs) -> list[Row]:
    with tempfile.TemporaryDirectory() as directory:
        control_plane = ControlPlane(programs, Path(directory) / "own", Settings.openshift())
        await asyncio.to_thread(control_plane.start)
        try:
            async with openshift_stage(control_plane, boot_ms=BOOT_MS) as stage:
                with stage.autoscaler(*QUICK):
                    await stage.until("the product writes its status", lambda: has_status(stage))
                    return [*await walkthrough_rows(stage), await reaction_row(stage)]
        finally:
            await asyncio.to_thread(control_plane.close)


async def has_status(stage: Stage) -> bool:
    """Whether the status is written."""
    names = await stage.kubectl("get", "configmaps", "-n", NAMESPACE, "-o", "name")
    return "configmap/cluster-autoscaler-status" in names.split()


async def raising_calls(stage: Stage, since: int = 0) -> list[Call]:
    """The calls that set the group's desired capacity, after the first `since` of them."""
    calls = (await stage.cloud.calls()).calls
    return [call for call in calls if call.action == "SetDesiredCapacity" and call.group == GROUP][since:]


async def empty_again(stage: Stage) -> None:
    """Wait until the group has no machine and the cluster only its own nodes."""
    await stage.until_desired(0, timeout_s=60)
    await stage.world.wait_for_nodes(3, ready=False, timeout_s=30)


async def walkthrough_rows(stage: Stage) -> list[Row]:
    """One raise to the right number, and how long after the last boot everything runs."""
    await stage.apply(walkthrough("openshift/scale-up.yaml"), PROJECT)
    await stage.world.wait_for_pods(20, PROJECT, app="scale-up", timeout_s=60)
    running_ms = WallClock().now_ms()
    raises = [call.desired_after for call in await raising_calls(stage)]
    sys.stderr.write(f"walk-through: raised to {raises}\n")
    assert raises[-1:] == [LEAST], f"raised to {raises}: the times say nothing"
    machines = [each for each in await stage.cloud.instances() if each.group == GROUP]
    booted_ms = max(each.launch_ms + (each.boot_after_ms or 0) for each in machines)
    await stage.kubectl("delete", "deployment", "scale-up", "-n", PROJECT)
    await empty_again(stage)
    return [
        Row(name=f"walk-through: raises for 20 pods, to {LEAST} nodes", value=len(raises), unit="", target=1),
        Row(
            name="walk-through: 20 pods run after the last boot",
            value=round((running_ms - booted_ms) / 1000, 2),
            unit="s",
            target=3,
        ),
    ]


async def reaction_row(stage: Stage) -> Row:
    """The median of the tries."""
    async with first_unschedulable(stage) as seen:
        tries_s = [await one_reaction_s(stage, number, seen) for number in range(TRIES)]
    sys.stderr.write(f"reaction: {', '.join(f'{each:.2f}' for each in tries_s)} s\n")
    return Row(
        name=f"reaction: {PODS_AT_ONCE} pods unschedulable to SetDesiredCapacity, median of {TRIES}",
        value=round(statistics.median(tries_s), 2),
        unit="s",
        target=0.5,
    )


async def one_reaction_s(stage: Stage, number: int, seen: list[int]) -> float:
    """From the first of the pods shown unschedulable to the call after which no further one was needed."""
    before = len(await raising_calls(stage))
    seen.clear()
    names = [f"wave-{number}-{each:02}" for each in range(PODS_AT_ONCE)]
    await asyncio.gather(*(stage.client.create(PODS, PROJECT, body(name, number), Pod) for name in names))
    await stage.world.wait_for_pods(PODS_AT_ONCE, PROJECT, wave=str(number), timeout_s=60)
    raised = await raising_calls(stage, before)
    assert raised, "nothing was raised: the time says nothing"
    assert seen, "no pod was shown unschedulable: the time says nothing"
    await asyncio.gather(*(stage.client.delete(PODS, PROJECT, name, grace_s=0) for name in names))
    await empty_again(stage)
    return (raised[-1].at_ms - seen[0]) / 1000


def body(name: str, wave: int) -> dict[str, object]:
    """A pod that fits ten times at most on a machine of the group."""
    container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": "200m"}}}
    return {
        "metadata": {"name": name, "labels": {"wave": str(wave)}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }


@asynccontextmanager
async def first_unschedulable(stage: Stage) -> AsyncIterator[list[int]]:
    """A list that gets the moments (since 1970, ms) at which a watch of ours shows pods as unschedulable, in order."""
    seen: list[int] = []

    def upserted(_: Pod | None, pod: Pod) -> None:
        if any(each.type == "PodScheduled" and each.status == "False" for each in pod.status.conditions or ()):
            seen.append(WallClock().now_ms())

    pods: Cache[Pod] = Cache(PODS, Pod)
    pods.listen(upserted, lambda _: None)
    following = asyncio.create_task(follow(pods, stage.client, WallClock(), Follow(namespace=PROJECT)))
    try:
        await pods.synced.wait()
        yield seen
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
