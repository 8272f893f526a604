"""What hollow kubelets do next, as tables; times are milliseconds since the machine started."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from nobiru.kernel.errors import ConfigError
from nobiru.kernel.objects import Condition, Key, Node, NodeSpec, NodeStatus, ObjectMeta
from nobiru.sim.kubelet_model import (
    EXIT_CODE,
    RUN_MS,
    START_MS,
    STOP_MS,
    Beat,
    EndPod,
    HollowMeta,
    HollowPod,
    HollowPodSpec,
    HollowPodStatus,
    Kubelets,
    Life,
    Machine,
    Profile,
    Register,
    RemovePod,
    Report,
    Seat,
    StartPod,
    StaticNode,
    Step,
)
from nobiru.sim.kubelet_plan import NEW, View, beaten, decide, decide_node, offered, registered, reported, watched
from nobiru.sim.machines import HARDWARE, shape_of

HERE = "aws:///us-east-1a/i-1"
GONE = datetime(2026, 12, 1, tzinfo=UTC)


def machine(*, kind: str = "m5.large", **profile: Any) -> Machine:
    """A machine that started at 0."""
    made = Profile(**profile)
    return Machine(
        node="n", provider_id=HERE, zone="us-east-1a", region="us-east-1", instance_type=kind, instance_id="i-1",
        private_ip="172.31.0.4", started_ms=0, shape=shape_of(made.image, HARDWARE[kind]), profile=made,
    )  # fmt: skip


def node(of: Machine, *, ready: str = "False", provider_id: str = HERE, gpus: bool = True) -> Node:
    """The Node of that machine as the API server shows it."""
    return Node(
        metadata=ObjectMeta(name="n", uid="node-uid"),
        spec=NodeSpec(provider_id=provider_id),
        status=NodeStatus(
            allocatable=offered(of, gpus=gpus)["allocatable"], conditions=(Condition(type="Ready", status=ready),)
        ),
    )


def pod(
    phase: str = "Pending",
    *,
    name: str = "p",
    uid: str = "u1",
    on: str = "n",
    restarts: str = "Always",
    leaving: bool = False,
    grace_s: int = 30,
    finalizer: bool = False,
    **annotations: str,
) -> HollowPod:
    """A pod; annotations by the names that `WORDS` gives them."""
    return HollowPod(
        metadata=HollowMeta(
            namespace="default",
            name=name,
            uid=uid,
            annotations={WORDS[word]: value for word, value in annotations.items()},
            deletion_timestamp=GONE if leaving else None,
            deletion_grace_period_seconds=grace_s if leaving else None,
            finalizers=("batch.kubernetes.io/job-tracking",) if finalizer else (),
        ),
        spec=HollowPodSpec(node_name=on, restart_policy=restarts),
        status=HollowPodStatus(phase=phase),
    )


WORDS = {"run": RUN_MS, "exit_code": EXIT_CODE, "start": START_MS, "stop": STOP_MS}


def told(step: Step | None) -> str:
    """A step in words."""
    match step:
        case None | Step(action=None, wake_ms=None):
            return "nothing"
        case Step(action=None, wake_ms=at_ms):
            return f"look at {at_ms}"
        case Step(action=Report(ready=ready, turned=turned, gpus=gpus)):
            words = ("ready" if ready else "not ready") + (", turned" if turned else "") + (", gpus" if gpus else "")
            return f"report {words}"
        case Step(action=Beat(create=create)):
            return "make lease" if create else "beat"
        case Step(action=EndPod(exit_code=code, started_ms=started_ms)):
            return f"end {code}, started {started_ms}"
        case Step(action=Register()):
            return "register"
        case Step(action=StartPod()):
            return "start"
        case Step(action=RemovePod()):
            return "remove"
    raise AssertionError(step)


@dataclass
class NodeCase:
    name: str
    machine: Machine
    seat: Seat
    node: Node | None
    now_ms: int
    want: str


M = machine()
BEATS = Seat(registered_ms=0, lease_made=True, lease_at_ms=9_000, status_at_ms=300_000)
LATE_GPU = machine(kind="p2.xlarge", gpu_ms=5_000)
FOREIGN = node(M, provider_id="aws:///us-east-1a/i-0")

NODE_CASES = [
    NodeCase("registers as it starts", M, NEW, None, 0, "register"),
    NodeCase("registers late", machine(register_ms=700), NEW, None, 699, "look at 700"),
    NodeCase("late is over", machine(register_ms=700), NEW, None, 700, "register"),
    NodeCase("never registers (B47)", machine(register_ms=None), NEW, None, 10**9, "nothing"),
    NodeCase("takes over its own node", M, NEW, node(M), 0, "register"),
    NodeCase("takes over a node without providerID", M, NEW, node(M, provider_id=""), 0, "register"),
    NodeCase("waits while an earlier machine's node is there", M, NEW, FOREIGN, 0, "nothing"),
    NodeCase("a node deleted under a running kubelet stays away (B10)", M, BEATS, None, 10**9, "nothing"),
    NodeCase("lease at once", M, registered(M, 0), node(M), 0, "make lease"),
    NodeCase("ready after its time", M, BEATS, node(M), 199, "look at 200"),
    NodeCase("ready now", M, BEATS, node(M), 200, "report ready, turned, gpus"),
    NodeCase("never ready", machine(ready_ms=None), BEATS, node(M), 8_000, "look at 9000"),
    NodeCase("quiet", M, BEATS, node(M, ready="True"), 8_000, "look at 9000"),
    NodeCase("beats", M, BEATS, node(M, ready="True"), 9_000, "beat"),
    NodeCase("status is due", M, BEATS, node(M, ready="True"), 300_000, "report ready, gpus"),
    NodeCase("a controller called it lost", M, BEATS, node(M, ready="Unknown"), 300, "report ready, turned, gpus"),
    NodeCase("told to be unready", machine(ready_ms=None), BEATS, node(M, ready="True"), 1, "report not ready, turned, gpus"),
    NodeCase("gpu plugin not there yet", LATE_GPU, BEATS, node(LATE_GPU, ready="True", gpus=False), 4_999, "look at 5000"),
    NodeCase("gpu plugin there", LATE_GPU, BEATS, node(LATE_GPU, ready="True", gpus=False), 5_000, "report ready, gpus"),
    NodeCase("other resources", machine(resources={"a/b": "2"}), BEATS, node(M, ready="True"), 300, "report ready, gpus"),
    NodeCase("hangs", machine(silent_ms=400), BEATS, node(M, ready="True"), 10**9, "nothing"),
    NodeCase("hangs before it is ready", machine(silent_ms=0), BEATS, node(M), 200, "nothing"),
]  # fmt: skip


@pytest.mark.parametrize("case", NODE_CASES, ids=lambda case: case.name)
def test_nodes(case: NodeCase) -> None:
    """A machine registers once, is ready in its time, and beats for as long as its kubelet does not hang."""
    got = decide_node(case.machine, case.seat, case.node, case.now_ms)

    assert told(got) == case.want


@dataclass
class PodCase:
    name: str
    pod: HollowPod
    now_ms: int
    want: str
    life: dict[str, Any] = field(default_factory=dict)  # seen at 0; what else is remembered


STARTED = {"started_ms": 100}
LEAVES = {**STARTED, "leaving_ms": 1_000}

POD_CASES = [
    PodCase("a moment to start", pod(), 49, "look at 50"),
    PodCase("starts", pod(), 50, "start"),
    PodCase("starts when it says", pod(start="900"), 50, "look at 900"),
    PodCase("a word that is no number counts as none", pod(start="soon"), 50, "start"),
    PodCase("runs", pod("Running"), 5_000, "nothing", STARTED),
    PodCase("started, not yet shown so", pod(), 5_000, "nothing", STARTED),
    PodCase("job runs", pod("Running", restarts="Never", run="600"), 699, "look at 700", STARTED),
    PodCase("job ends", pod("Running", restarts="Never", run="600"), 700, "end 0, started 100", STARTED),
    PodCase("job fails", pod("Running", restarts="Never", run="600", exit_code="3"), 700, "end 3, started 100", STARTED),
    PodCase("on failure: success ends", pod("Running", restarts="OnFailure", run="1"), 700, "end 0, started 100", STARTED),
    PodCase("on failure: starts again", pod("Running", restarts="OnFailure", run="1", exit_code="1"), 700, "nothing", STARTED),
    PodCase("always starts again", pod("Running", run="1"), 700, "nothing", STARTED),
    PodCase("ended, not yet shown so", pod("Running", restarts="Never", run="1"), 900, "nothing", {**STARTED, "ended": True}),
    PodCase("terminal stays", pod("Succeeded", restarts="Never", run="1"), 900, "nothing", {"ended": True}),
    PodCase("deleted: a moment to stop", pod("Running", leaving=True), 1_050, "look at 1100", LEAVES),
    PodCase("deleted: stopped", pod("Running", leaving=True), 1_100, "remove", LEAVES),
    PodCase("deleted: stops when it says", pod("Running", leaving=True, stop="5000"), 5_999, "look at 6000", LEAVES),
    PodCase("deleted: grace is the limit", pod("Running", leaving=True, grace_s=2, stop="5000"), 3_000, "remove", LEAVES),
    PodCase("deleted before it ran", pod(leaving=True), 10, "remove", {"leaving_ms": 10}),
    PodCase("deleted, terminal", pod("Failed", leaving=True), 10, "remove", {"leaving_ms": 10, "ended": True}),
    PodCase("deleted, somebody waits", pod("Running", leaving=True, finalizer=True), 1_100, "end 143, started 100", LEAVES),
    PodCase("deleted, its end is told", pod("Failed", leaving=True, finalizer=True), 1_200, "remove", {**LEAVES, "ended": True}),
    PodCase("removed, held by a finalizer", pod("Failed", leaving=True), 9_000, "nothing", {**LEAVES, "removed": True}),
    PodCase("another pod of that name", pod(uid="u2"), 900, "nothing"),
    PodCase("on a node that is nobody's", pod(on="elsewhere"), 900, "nothing"),
]  # fmt: skip


@pytest.mark.parametrize("case", POD_CASES, ids=lambda case: case.name)
def test_pods(case: PodCase) -> None:
    """A pod starts, ends and goes in its time, and only where a kubelet is."""
    key: Key = ("default", "p")
    lives = {key: Life(uid="u1", seen_ms=0, **case.life)}
    view = View(machines={"n": M}, nodes={}, pods={key: case.pod}, lives=lives)

    assert told(decide(view, [key], case.now_ms).get(key)) == case.want


def test_whole_world() -> None:
    """Each topic gets its own step; those without one are left out; a hanging kubelet's pods are left alone."""
    hanging = machine(silent_ms=0)
    keys: list[Key] = [("default", "p"), ("default", "q"), ("default", "gone"), ("", "n"), ("", "h"), ("", "unknown")]
    view = View(
        machines={"n": M, "h": hanging},
        nodes={("", "n"): node(M), ("", "h"): node(hanging)},
        pods={keys[0]: pod(), keys[1]: pod(name="q", on="h")},
        seats={"n": BEATS, "h": BEATS},
        lives={keys[0]: Life(uid="u1", seen_ms=0), keys[1]: Life(uid="u1", seen_ms=0)},
    )

    got = decide(view, keys, 60)

    assert {key: told(step) for key, step in got.items()} == {("default", "p"): "start", ("", "n"): "look at 200"}


WATCHED = [
    ("new", None, pod(), Life(uid="u1", seen_ms=7)),
    ("known", Life(uid="u1", seen_ms=1, started_ms=3), pod("Running"), Life(uid="u1", seen_ms=1, started_ms=3)),
    ("runs already", None, pod("Running"), Life(uid="u1", seen_ms=7, started_ms=7)),
    ("ended already", None, pod("Failed"), Life(uid="u1", seen_ms=7, ended=True)),
    ("leaves", Life(uid="u1", seen_ms=1), pod(leaving=True), Life(uid="u1", seen_ms=1, leaving_ms=7)),
    ("left", Life(uid="u1", seen_ms=1, leaving_ms=2), pod(leaving=True), Life(uid="u1", seen_ms=1, leaving_ms=2)),
    ("a namesake", Life(uid="u0", seen_ms=1, started_ms=3), pod(), Life(uid="u1", seen_ms=7)),
]


@pytest.mark.parametrize(("name", "before", "seen", "want"), WATCHED, ids=[case[0] for case in WATCHED])
def test_watched(name: str, before: Life | None, seen: HollowPod, want: Life) -> None:
    """What is remembered of a pod that is seen, by its uid."""
    assert watched(before, seen, 7) == want


def test_heartbeats_spread() -> None:
    """Machines that registered together beat apart, each every `lease_ms`; a status report moves only the next report."""
    fresh = [registered(M, 0) for _ in range(200)]
    machines = [replace(M, node=f"ip-10-0-0-{number}") for number in range(200)]

    second = [beaten(each, seat, 0).lease_at_ms for each, seat in zip(machines, fresh, strict=True)]
    third = beaten(machines[0], beaten(machines[0], fresh[0], 0), second[0])

    assert 0 < min(second) <= max(second) <= 10_000
    assert max(sum(1 for at_ms in second if at_ms // 1_000 == slot) for slot in range(10)) < 60
    assert third.lease_at_ms == second[0] + 10_000
    assert reported(M, third, 50).lease_at_ms == third.lease_at_ms
    assert reported(M, third, 50).status_at_ms == 300_050


WRONG: list[tuple[str, type, dict[str, Any], str]] = [
    ("negative time", Profile, {"ready_ms": -1}, "times are not negative"),
    ("no time between beats", Profile, {"lease_ms": 0}, "at least 1 ms apart"),
    ("no quantity", Profile, {"resources": {"a/b": "many"}}, "resources: a/b"),
    ("no calls", Kubelets, {"calls_max": 0}, "calls_max is at least 1"),
    ("back-off falls", Kubelets, {"retry_ms": (5, 4)}, "retry_ms rises"),
    (
        "names twice",
        Kubelets,
        {"static": (StaticNode(name="a", private_ip="10.0.0.1", zone="z"),) * 2},
        "two static nodes have one name",
    ),
]


@pytest.mark.parametrize(("name", "kind", "fields", "want"), WRONG, ids=[case[0] for case in WRONG])
def test_wrong_configuration(name: str, kind: type, fields: dict[str, Any], want: str) -> None:
    """A configuration that makes no sense is refused where it is written."""
    with pytest.raises(ConfigError, match=want):
        kind(**fields)
