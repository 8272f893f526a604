"""Hollow kubelets and the node lifecycle at work, in virtual time, on an API server in memory with faults."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from nobiru.kernel.errors import ConfigError, KubeConflict
from nobiru.kernel.objects import Taint
from nobiru.sim.instances import Instances
from nobiru.sim.kubelet_calls import Calls
from nobiru.sim.kubelet_fleet import Fleet
from nobiru.sim.kubelet_model import EXIT_CODE, RUN_MS, STOP_MS, Kubelets, Profile, Special
from nobiru.sim.world import World, WorldConfig, openshift_nodes
from tests.unit.sim.builders_kubelet import FakeApi, FakeCloud, LoopClock

pytestmark = pytest.mark.looptime

N4 = "ip-172-31-0-4.ec2.internal"


class Stage:
    """A world with its API server and cloud."""

    def __init__(self, api: FakeApi, cloud: FakeCloud, world: World) -> None:
        self.api, self.cloud, self.world = api, cloud, world

    async def pass_ms(self, span_ms: int) -> None:
        """Let virtual time pass."""
        await asyncio.sleep(span_ms / 1000)


@asynccontextmanager
async def staged(config: Kubelets | None = None, **world: Any) -> AsyncIterator[Stage]:
    """A running stage; afterwards no task is left but the test's own."""
    api, cloud = FakeApi(), FakeCloud()
    before = asyncio.all_tasks()
    async with World(cloud, api.client(), WorldConfig(kubelets=config or Kubelets(), **world), LoopClock()) as running:
        yield Stage(api, cloud, running)
    assert asyncio.all_tasks() == before


async def test_node_comes_and_goes() -> None:
    """An instance that runs becomes a Node with its providerID, Ready in its time; it goes 2 s after the instance."""
    async with staged() as stage:
        name = stage.cloud.start(4)
        await stage.pass_ms(100)
        node = stage.api.node(name)
        assert node is not None
        assert node["spec"] == {"providerID": "aws:///us-east-1a/i-4", "taints": []}
        assert stage.api.ready(name) == "False"
        await stage.pass_ms(150)
        assert stage.api.ready(name) == "True"
        lease = stage.api.objects[f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"]
        assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]

        stage.cloud.end(4)
        await stage.pass_ms(1_950)
        assert stage.api.node(name) is not None
        await stage.pass_ms(100)
        assert stage.api.node(name) is None
        assert stage.api.count("POST", "/nodes") == 1


async def test_labels_and_taints() -> None:
    """A Node has what kubelet and cloud put on it, in old and new names, and what its group's machines bring along."""
    taint = Taint(key="dedicated", value="gpu", effect="NoSchedule")
    compute = {"node-role.kubernetes.io/compute": "true"}
    async with staged(Kubelets(groups={"web": Profile(node_labels=compute, taints=(taint,))})) as stage:
        for number, group in ((4, "web"), (5, "other")):
            stage.cloud.start(number, group=group)
        await stage.pass_ms(100)

        node, other = stage.api.node(N4), stage.api.node("ip-172-31-0-5.ec2.internal")
        assert node is not None
        assert other is not None
        assert node["metadata"]["labels"] == {
            "kubernetes.io/hostname": N4,
            "kubernetes.io/arch": "amd64", "beta.kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": "m5.large", "beta.kubernetes.io/instance-type": "m5.large",
            "topology.kubernetes.io/zone": "us-east-1a", "failure-domain.beta.kubernetes.io/zone": "us-east-1a",
            "topology.kubernetes.io/region": "us-east-1", "failure-domain.beta.kubernetes.io/region": "us-east-1",
            **compute,
        }  # fmt: skip
        assert node["spec"]["taints"] == [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]
        assert other["metadata"]["labels"].keys() == node["metadata"]["labels"].keys() - compute.keys()


async def test_heartbeats() -> None:
    """A Lease every 10 s and a status every 5 minutes, and never two calls for one Node at once."""
    async with staged() as stage:
        stage.cloud.start(4)
        await stage.pass_ms(1_000)
        beats, reports = stage.api.count("PATCH", "/leases/"), stage.api.count("PATCH", f"/nodes/{N4}/status")

        await stage.pass_ms(600_000)

        assert stage.api.count("PATCH", "/leases/") - beats == pytest.approx(60, abs=1)
        assert stage.api.count("PATCH", f"/nodes/{N4}/status") - reports == 2
        assert stage.api.busy_max == 1


async def test_special_machines() -> None:
    """Of a group's machines the next two never register and one hangs; the rest is well, and profiles may change."""
    config = Kubelets(
        special=(
            Special(group="web", count=2, profile=Profile(register_ms=None)),
            Special(group="web", profile=Profile(silent_ms=0, without_provider_id=True)),
        )
    )
    async with staged(config) as stage:
        names = [stage.cloud.start(number) for number in (4, 5, 6, 7)]
        await stage.pass_ms(5_000)
        assert [stage.api.ready(name) for name in names] == ["", "", "False", "True"]
        assert "providerID" not in (stage.api.node(names[2]) or {})["spec"]
        assert stage.api.count("POST", "/leases") == 1

        stage.world.fleet.set_profile(names[0], Profile())
        stage.world.fleet.set_profile(names[2], Profile())
        stage.world.fleet.set_profile(names[3], Profile(ready_ms=None))
        await stage.pass_ms(500)

        assert [stage.api.ready(name) for name in names] == ["True", "", "True", "False"]


async def test_gpu_plugin_late() -> None:
    """The Node is Ready without its GPU first (report B17)."""
    async with staged(Kubelets(groups={"gpu": Profile(gpu_ms=3_000)})) as stage:
        name = stage.cloud.start(4, group="gpu", kind="p2.xlarge")
        await stage.pass_ms(2_900)
        assert stage.api.ready(name) == "True"
        assert "nvidia.com/gpu" not in (stage.api.node(name) or {})["status"]["allocatable"]

        await stage.pass_ms(200)

        assert (stage.api.node(name) or {})["status"]["allocatable"]["nvidia.com/gpu"] == "1"


async def test_node_deleted_by_hand() -> None:
    """A Node that somebody deletes stays away while its machine runs on (report B10)."""
    async with staged() as stage:
        name = stage.cloud.start(4)
        await stage.pass_ms(1_000)
        stage.api.delete(f"/api/v1/nodes/{name}")
        await stage.pass_ms(60_000)

        assert stage.api.node(name) is None
        assert name in stage.world.fleet.machines


async def test_pod_life() -> None:
    """A pod that is bound runs after 50 ms with an address in 10/8; deleted, it goes after its time to stop."""
    async with staged() as stage:
        name = stage.cloud.start(4)
        await stage.pass_ms(500)
        unbound, path = stage.api.pod("waits"), stage.api.pod("p", name)
        await stage.pass_ms(45)
        assert stage.api.objects[path]["status"]["phase"] == "Pending"
        await stage.pass_ms(10)
        status = stage.api.objects[path]["status"]
        assert (status["phase"], status["hostIP"], status["podIP"][:3]) == ("Running", "172.31.0.4", "10.")
        assert [each["ready"] for each in status["containerStatuses"]] == [True]
        assert stage.api.objects[unbound]["status"]["phase"] == "Pending"

        stage.api.leave(path)
        await stage.pass_ms(95)
        assert path in stage.api.objects
        await stage.pass_ms(10)
        assert path not in stage.api.objects


async def test_pod_words() -> None:
    """A pod's annotations say how long it runs, how it ends, and how long it takes to stop; hostNetwork is the host's."""
    async with staged() as stage:
        name = stage.cloud.start(4)
        await stage.pass_ms(500)
        job = stage.api.pod("job", name, restartPolicy="Never", annotations={RUN_MS: "2000", EXIT_CODE: "3"})
        slow = stage.api.pod("slow", name, annotations={STOP_MS: "9000"}, hostNetwork=True)
        await stage.pass_ms(1_000)
        assert stage.api.objects[slow]["status"]["podIP"] == "172.31.0.4"
        stage.api.leave(slow)
        await stage.pass_ms(2_000)
        status = stage.api.objects[job]["status"]
        assert (status["phase"], status["containerStatuses"][0]["state"]["terminated"]["exitCode"]) == ("Failed", 3)
        assert slow in stage.api.objects
        await stage.pass_ms(7_100)

        assert slow not in stage.api.objects


async def test_dead_machine_does_nothing() -> None:
    """Pods of a machine that is gone are nobody's: neither started nor stopped, until somebody else collects them."""
    async with staged(lifecycle_ms=None) as stage:
        name = stage.cloud.start(4)
        await stage.pass_ms(500)
        path = stage.api.pod("p", name)
        await stage.pass_ms(200)
        stage.cloud.end(4)
        await stage.pass_ms(100)
        calls = len(stage.api.calls)
        stage.api.leave(path)
        stage.api.pod("late", name)
        await stage.pass_ms(60_000)

        assert len(stage.api.calls) == calls
        assert stage.api.node(name) is not None
        assert stage.world.node(name) is not None


async def test_same_name_again() -> None:
    """A pod of the same name is another pod; an instance of the same name registers once the old Node is gone."""
    async with staged() as stage:
        name = stage.cloud.start(4)
        await stage.pass_ms(500)
        path = stage.api.pod("p-0", name)
        await stage.pass_ms(200)
        stage.api.delete(path)
        stage.api.pod("p-0", name)
        await stage.pass_ms(100)
        assert stage.api.objects[path]["status"]["phase"] == "Running"

        stage.cloud.instances["i-9"] = replace(stage.cloud.instances["i-4"], id="i-9")
        stage.cloud.end(4)
        await stage.pass_ms(1_000)
        assert (stage.api.node(name) or {})["spec"]["providerID"].endswith("/i-4")
        await stage.pass_ms(2_000)

        assert (stage.api.node(name) or {})["spec"]["providerID"].endswith("/i-9")
        assert stage.api.ready(name) == "True"


FAULTS = [409, 429, 500, 503, 422, 403]


@pytest.mark.parametrize("status", FAULTS)
async def test_refusals_are_tried_again(status: int) -> None:
    """Whatever the API server answers a few times, in the end the Node is there, and so are its pods."""
    async with staged() as stage:
        stage.api.faults = [status] * 4
        name = stage.cloud.start(4)
        await stage.pass_ms(10_000)
        assert stage.api.ready(name) == "True"
        stage.api.faults = [status] * 4
        path = stage.api.pod("p", name)
        await stage.pass_ms(10_000)
        assert stage.api.objects[path]["status"]["phase"] == "Running"
        stage.api.faults = [status] * 4
        stage.api.leave(path)
        stage.cloud.end(4)
        await stage.pass_ms(10_000)

        assert stage.api.node(name) is None


async def test_api_server_away() -> None:
    """While the API server is away few calls try it; when it is back, all goes on within a second or the longest wait."""
    async with staged(Kubelets(retry_ms=(100, 1_000))) as stage:
        name = stage.cloud.start(4)
        await stage.pass_ms(1_000)
        paths = [stage.api.pod(f"p{number}", name) for number in range(200)]
        await stage.pass_ms(20)
        stage.api.down = True
        stage.api.wake()
        late = stage.cloud.start(5)
        await stage.pass_ms(30_000)
        assert stage.api.refused < 500  # 200 pods, each once a second, would be 6,000
        calls = len(stage.api.calls)
        stage.api.down = False
        await stage.pass_ms(3_000)

        assert len(stage.api.calls) > calls
        assert all(stage.api.objects[path]["status"]["phase"] == "Running" for path in paths)
        assert stage.api.ready(late) == "True"

        paths = [stage.api.pod(f"q{number}", name) for number in range(5)]
        await stage.pass_ms(20)
        stage.api.down = True  # again, and not taken for the end of the first time
        await stage.pass_ms(100)
        stage.api.down = False
        await stage.pass_ms(300)
        assert all(stage.api.objects[path]["status"]["phase"] == "Running" for path in paths)


async def test_one_object_that_always_fails() -> None:
    """It is tried ever more rarely, and holds up nobody else."""
    async with staged() as stage:
        name = stage.cloud.start(4)
        await stage.pass_ms(500)
        stage.api.faults = [500]  # of another, which is well again
        stage.api.pod("once", name)
        await stage.pass_ms(500)
        stage.api.poison = "/pods/bad"
        stage.api.pod("bad", name)
        for number in range(20):
            path = stage.api.pod(f"p{number}", name)
            await stage.pass_ms(60)
            assert stage.api.objects[path]["status"]["phase"] == "Running", number
            await stage.pass_ms(17)
        await stage.pass_ms(58_000)

        assert 10 < stage.api.count("PATCH", "/pods/bad") < 25


async def test_bounded_and_not_starved() -> None:
    """Never more than `calls_max` at once; a Node that comes while a thousand pods start does not wait for them."""
    async with staged(Kubelets(calls_max=8)) as stage:
        name = stage.cloud.start(4)
        await stage.pass_ms(500)
        stage.api.latency_ms = 20
        paths = [stage.api.pod(f"p{number}", name) for number in range(1_000)]
        await stage.pass_ms(80)
        for path in paths:
            stage.api.put(path, stage.api.objects[path])  # somebody writes to them meanwhile
        await stage.pass_ms(20)
        late = stage.cloud.start(5)
        await stage.pass_ms(400)
        assert stage.api.ready(late) == "True"
        assert sum(stage.api.objects[path]["status"]["phase"] == "Running" for path in paths) < 500
        await stage.pass_ms(3_000)

        assert all(stage.api.objects[path]["status"]["phase"] == "Running" for path in paths)
        assert stage.api.busy_max == 8
        assert stage.api.count("PATCH", "/pods/") == 1_000


async def test_a_call_never_reaches_a_namesake() -> None:
    """A pod that is replaced while it is being reported Running: the new one starts in its own time."""
    async with staged() as stage:
        name = stage.cloud.start(4)
        await stage.pass_ms(500)
        stage.api.latency_ms = 20
        path = stage.api.pod("p-0", name)
        await stage.pass_ms(60)
        stage.api.delete(path)
        stage.api.pod("p-0", name)
        await stage.pass_ms(40)
        assert stage.api.objects[path]["status"]["phase"] == "Pending"
        await stage.pass_ms(40)

        assert stage.api.objects[path]["status"]["phase"] == "Running"


async def test_machine_replaced_while_it_registers() -> None:
    """The registration of a machine that is gone before its answer is no registration of the next of that name."""
    async with staged() as stage:
        stage.api.latency_ms = 50
        name = stage.cloud.start(4)
        await stage.pass_ms(30)
        stage.cloud.instances["i-9"] = replace(stage.cloud.instances["i-4"], id="i-9")
        stage.cloud.end(4)
        await stage.pass_ms(1_000)
        assert (stage.api.node(name) or {})["spec"]["providerID"].endswith("/i-4")
        await stage.pass_ms(3_000)

        assert (stage.api.node(name) or {})["spec"]["providerID"].endswith("/i-9")


@pytest.mark.parametrize(("there", "want"), [("i-4", True), ("i-3", False), ("", True)])
async def test_register_finds_a_node(there: str, want: bool) -> None:
    """A Node that is there before the watch shows it is taken over, unless it is another machine's."""
    api, cloud = FakeApi(), FakeCloud()
    provider_id = f"aws:///us-east-1a/{there}" if there else ""
    api.put(f"/api/v1/nodes/{N4}", {"metadata": {"name": N4}, "spec": {"providerID": provider_id}})
    fleet = Fleet(Kubelets(), instances := Instances(cloud), LoopClock())
    following = asyncio.create_task(instances.follow())
    cloud.start(4)
    await instances.synced.wait()
    call = Calls(api.client(), LoopClock()).register(fleet.machines[N4])

    if want:
        await call
    else:
        with pytest.raises(KubeConflict):
            await call
    following.cancel()


async def test_nothing_is_written_twice_for_want_of_news() -> None:
    """A watch that is late does not make a kubelet report again what it has reported."""
    async with staged() as stage:
        stage.api.watch_lag_ms = 300
        name = stage.cloud.start(4)
        stage.api.pod("p", name)
        await stage.pass_ms(5_000)

        assert stage.api.ready(name) == "True"
        assert stage.api.count("PATCH", "/nodes/") == 1
        assert stage.api.count("PATCH", "/pods/") == 1


async def test_news_during_a_call() -> None:
    """What happens while a call is under way is looked at as soon as it is over: the Node is Ready in its time."""
    async with staged() as stage:
        stage.api.reply_ms = 100
        name = stage.cloud.start(4)
        await stage.pass_ms(350)

        assert stage.api.ready(name) == "True"


async def test_lease_lost() -> None:
    """A Lease that somebody deleted is made again."""
    async with staged() as stage:
        name = stage.cloud.start(4)
        await stage.pass_ms(1_000)
        lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
        stage.api.delete(lease)
        await stage.pass_ms(11_000)

        owner = stage.api.objects[lease]["metadata"]["ownerReferences"][0]
        assert owner["uid"] == (stage.api.node(name) or {})["metadata"]["uid"]


async def test_cloud_away() -> None:
    """A cloud that does not answer ends no Node; what happened meanwhile is seen when it does."""
    async with staged() as stage:
        first = stage.cloud.start(4)
        await stage.pass_ms(1_000)
        stage.cloud.away = True
        second = stage.cloud.start(5)
        await stage.pass_ms(60_000)
        assert (stage.api.ready(first), stage.api.ready(second)) == ("True", "")
        stage.cloud.away = False
        await stage.pass_ms(3_000)

        assert (stage.api.ready(first), stage.api.ready(second)) == ("True", "True")


async def test_started_anew() -> None:
    """Another world on the same API server takes over: nothing is created twice, pods run on, what was missed is done."""
    api, cloud = FakeApi(), FakeCloud()
    async with World(cloud, api.client(), clock=LoopClock()):
        name = cloud.start(4)
        await asyncio.sleep(0.5)
        running = api.pod("p", name)
        await asyncio.sleep(0.5)
    left = api.pod("q", name)
    api.leave(running)
    address = api.objects[running]["status"]["podIP"]
    async with World(cloud, api.client(), clock=LoopClock()) as world:
        await world.wait_for_pods(1, "default")
        await asyncio.sleep(1)

        assert running not in api.objects
        assert api.objects[left]["status"]["podIP"] != address
        assert api.count("POST", "/nodes") == 2
        assert (await world.wait_for_nodes(1))[0].name == name


async def test_static_nodes() -> None:
    """The walk-through's three nodes outside any group: registered, Ready, and never deleted for want of an instance."""
    async with staged(Kubelets(static=openshift_nodes("us-east-1"))) as stage:
        nodes = await stage.world.wait_for_nodes(3)
        await stage.pass_ms(10_000)

        assert [node.name for node in stage.world.nodes(ready=True)] == [node.name for node in nodes]
        roles = [sorted(label.rpartition("/")[2] for label in node.labels if "role" in label) for node in nodes]
        assert sorted(roles) == [["compute"], ["compute"], ["infra"]]
        assert all(node.spec.provider_id.startswith("aws:///us-east-1") for node in nodes)
        assert {(node.status.allocatable or {})["cpu"] for node in nodes} == {"2"}


async def test_static_node_stopped() -> None:
    """A machine that a test switches off leaves its Node behind; the next of its name lives by the cloud alone."""
    (static, *_) = openshift_nodes("us-east-1")
    async with staged(Kubelets(static=(replace(static, name=N4),))) as stage:
        await stage.world.wait_for_nodes(1)
        stage.world.fleet.stop(N4)
        await stage.pass_ms(60_000)
        assert stage.api.ready(N4) == "True"
        assert stage.api.count("PATCH", "/leases/") == 0
        stage.cloud.start(4)
        await stage.pass_ms(100)
        assert N4 in stage.world.fleet.machines
        stage.cloud.end(4)
        await stage.pass_ms(100)

        assert N4 not in stage.world.fleet.machines


async def test_unknown_type_ends_the_world() -> None:
    """A machine that nobody has measured ends the world with the words that say what to do."""
    with pytest.RaisesGroup(pytest.RaisesExc(ConfigError, match="no measured node for x9")):
        async with staged() as stage:
            stage.cloud.start(4, kind="x9")
            await stage.world.wait_until("never", lambda: None)


async def test_waits_end_with_the_world() -> None:
    """A wait in another task ends as well when a task of the world has failed."""
    with pytest.RaisesGroup(pytest.RaisesExc(ConfigError)):
        async with staged() as stage:
            waiting = asyncio.create_task(stage.world.wait_for_nodes(2))
            stage.cloud.start(4, kind="x9")
            await stage.pass_ms(1_000)
    await asyncio.wait([waiting])
    assert isinstance(waiting.exception(), RuntimeError)


async def test_a_wait_that_is_over_shows_the_world() -> None:
    """A wait is bounded, and says what it waited for and what there was instead."""
    async with staged() as stage:
        stage.cloud.start(4)
        with pytest.raises(
            TimeoutError, match=r"not within 5 s: 2 nodes of web; 1 machines run, 1 nodes of which 1 ready"
        ):
            await stage.world.wait_for_nodes(2, group="web", timeout_s=5)


async def test_a_failing_test_fails_as_itself() -> None:
    """An error in the body of a world leaves it as it is."""
    with pytest.raises(AssertionError, match="mine"):
        async with staged():
            raise AssertionError("mine")
