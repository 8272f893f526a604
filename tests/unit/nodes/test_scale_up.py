"""Which groups grow, by how much, and what every pod and group is told: whole plans by rows."""

import pytest
from msgspec import Struct

from nobiru.kernel.cloud import NodeGroup
from nobiru.kernel.objects import Node, OwnerReference, Pod, Taint, Toleration
from nobiru.nodes.announce import announcements
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import Backoff, DaemonPod, Demand, Memory, Rights, Snapshot
from nobiru.nodes.plan.decide import decide
from nobiru.placement.classes import ClassTable
from tests.unit.nodes.builders_down import NOW_MS, daemon_pod, flags, node, pod
from tests.unit.nodes.builders_up import group, group_whys, pending, plan_for, raises, template, whys, world

RS = OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="web", uid="rs-web", controller=True)
BLUE = Taint(key="team", value="blue", effect="NoSchedule")


class Case(Struct, frozen=True, kw_only=True):
    name: str
    groups: list[NodeGroup]
    pods: list[Pod]
    nodes: list[Node] = []
    config: NodesConfig | None = None
    memory: Memory | None = None
    want: dict[str, int]
    pod_whys: dict[str, str] = {}
    group_whys: dict[str, str] = {}


def some(count: int, cpu: str = "500m", **more: object) -> list[Pod]:
    return [pending(f"p{number}", cpu, **more) for number in range(count)]  # type: ignore[arg-type]


def filled(*names: str) -> list[Pod]:
    """Pods that leave no room on these nodes."""
    return [pod(f"on-{name}", name, "950m") for name in names]


RESTING = Memory(
    backoff={
        "a": Backoff(until_ms=NOW_MS + 60_000, duration_ms=300_000, failed_ms=NOW_MS - 1, code="x", message="no room")
    }
)

CASES = [
    Case(
        name="one pod, one node", groups=[group("a")], pods=some(1), want={"a": 1}, pod_whys={"p0": "NODE_GROUP_GROWS"}
    ),
    Case(name="two share a node", groups=[group("a")], pods=some(2), want={"a": 1}),
    Case(name="least number of nodes", groups=[group("a")], pods=some(5), want={"a": 3}),
    Case(
        name="stops at max",
        groups=[group("a", max_size=2)],
        pods=some(3, "900m"),
        want={"a": 2},
        pod_whys={"p2": "NO_GROUP_CAN_GROW"},
    ),
    Case(
        name="the cloud's max counts too",
        groups=[group("a", max_size=5, cloud_max=1)],
        pods=some(3, "900m"),
        want={"a": 1},
    ),
    Case(
        name="full group skipped",
        groups=[group("a", 1, 1, nodes=["n1"]), group("b")],
        nodes=[node("n1")],
        pods=some(1) + filled("n1"),
        want={"b": 1},
        group_whys={"a": "GROUP_AT_MAX_SIZE"},
    ),
    Case(
        name="pod too big",
        groups=[group("a")],
        pods=some(1, "1001m"),
        want={},
        pod_whys={"p0": "NO_GROUP_FITS"},
        group_whys={"a": "NO_PENDING_POD_FITS"},
    ),
    Case(
        name="existing room first",
        groups=[group("a", 1, nodes=["n1"])],
        nodes=[node("n1")],
        pods=some(3),
        want={"a": 2},
        pod_whys={"p0": "FITS_ON_EXISTING_NODE", "p1": "FITS_ON_EXISTING_NODE", "p2": "NODE_GROUP_GROWS"},
    ),
    Case(
        name="booting machines count (B7)",
        groups=[group("a", 3, nodes=["n1"], booting=["b1", "b2"])],
        nodes=[node("n1")],
        pods=some(4) + filled("n1"),
        want={},
        pod_whys={"p0": "FITS_ON_UPCOMING_NODE", "p3": "FITS_ON_UPCOMING_NODE"},
    ),
    Case(
        name="wanted but unlisted machines count",
        groups=[group("a", 2)],
        pods=some(4),
        want={},
        pod_whys={"p3": "FITS_ON_UPCOMING_NODE"},
    ),
    Case(
        name="second group within one plan when the first is full",
        groups=[group("a", max_size=1), group("b", shape=template("4"))],
        pods=some(6, "900m"),
        want={"a": 1, "b": 2},
    ),
    Case(
        name="second group when the first rests after a failure",
        groups=[group("a"), group("b")],
        pods=some(1),
        memory=RESTING,
        want={"b": 1},
        group_whys={"a": "GROUP_BACKOFF"},
    ),
    Case(
        name="least waste wins",
        groups=[group("big", shape=template("8", "32Gi")), group("small")],
        pods=some(2),
        want={"small": 1},
        group_whys={"big": "NOT_CHOSEN_BY_EXPANDER"},
    ),
    Case(
        name="most pods wins when asked",
        groups=[group("big", shape=template("8", "32Gi")), group("small", max_size=1)],
        pods=some(8),
        config=flags(expander="most-pods"),
        want={"big": 1},
    ),
    Case(
        name="selector met by a label",
        groups=[group("a"), group("b", shape=template(labels={"disk": "ssd"}))],
        pods=some(1, selector={"disk": "ssd"}),
        want={"b": 1},
    ),
    Case(
        name="selector met by nobody",
        groups=[group("a")],
        pods=some(1, selector={"disk": "ssd"}),
        want={},
        pod_whys={"p0": "NO_GROUP_FITS"},
    ),
    Case(
        name="taint needs its toleration",
        groups=[group("a", shape=template(taints=[BLUE])), group("b", shape=template("4", "16Gi"))],
        pods=some(1),
        want={"b": 1},
    ),
    Case(
        name="tolerated taint is no obstacle",
        groups=[group("a", shape=template(taints=[BLUE]))],
        pods=some(1, tolerations=[Toleration(key="team", operator="Exists")]),
        want={"a": 1},
    ),
    Case(
        name="pods per node bound too (B15)",
        groups=[group("a", max_size=99, shape=template(pods=8))],
        pods=some(17, "10m"),
        want={"a": 3},
    ),
    Case(
        name="cpu that is reserved does not count (B14)",
        groups=[group("a", shape=template("1700m")), group("b", shape=template("3700m", "16Gi"))],
        pods=some(1, "1900m"),
        want={"b": 1},
    ),
    Case(
        name="below min goes to at least min (B29)",
        groups=[group("a", 2, 10, min_size=6, nodes=["n1", "n2"])],
        nodes=[node("n1"), node("n2")],
        pods=some(2, "900m") + filled("n1", "n2"),
        want={"a": 6},
    ),
    Case(
        name="enforced minimum without any pod",
        groups=[group("a", 0, 10, min_size=3)],
        pods=[],
        config=flags(enforce_node_group_min_size="true"),
        want={"a": 3},
    ),
    Case(
        name="max 0 never grows (B18)",
        groups=[group("a", 0, 0)],
        pods=some(1),
        want={},
        group_whys={"a": "GROUP_AT_MAX_SIZE"},
    ),
    Case(
        name="max-nodes-total counts every node",
        groups=[group("a")],
        nodes=[node("other", cpu="100m", provider_id="")],
        pods=some(6, "900m"),
        config=flags(max_nodes_total="3"),
        want={"a": 2},
    ),
    Case(
        name="max-nodes-total reached",
        groups=[group("a")],
        nodes=[node("other", cpu="100m", provider_id="")],
        pods=some(1),
        config=flags(max_nodes_total="1"),
        want={},
        pod_whys={"p0": "MAX_NODES_TOTAL"},
    ),
    Case(name="cores-total", groups=[group("a")], pods=some(6, "900m"), config=flags(cores_total="0:4"), want={"a": 4}),
    Case(
        name="memory-total",
        groups=[group("a")],
        pods=some(6, "900m"),
        config=flags(memory_total="0:9"),
        want={"a": 2},
    ),
    Case(
        name="most nodes per scale-up",
        groups=[group("a")],
        pods=some(6, "900m"),
        config=flags(max_nodes_per_scaleup="2"),
        want={"a": 6},  # two a pick, and the plan picks until nothing is left
    ),
    Case(
        name="expendable pods never cause anything",
        groups=[group("a")],
        pods=some(1, priority=-11),
        want={},
        pod_whys={"p0": "EXPENDABLE"},
    ),
    Case(name="the cutoff itself is not expendable", groups=[group("a")], pods=some(1, priority=-10), want={"a": 1}),
    Case(
        name="young pods wait",
        groups=[group("a")],
        pods=some(1, age_s=5),
        config=flags(new_pod_scale_up_delay="10s"),
        want={},
        pod_whys={"p0": "TOO_YOUNG"},
    ),
    Case(
        name="young GPU pods wait 30 s",
        groups=[group("a", shape=template(more={"nvidia.com/gpu": 1}))],
        pods=some(1, gpu="1", age_s=29),
        want={},
        pod_whys={"p0": "TOO_YOUNG"},
    ),
    Case(
        name="a GPU pod needs a GPU group",
        groups=[group("a"), group("g", shape=template(more={"nvidia.com/gpu": 1}))],
        pods=some(1, gpu="1"),
        want={"g": 1},
    ),
    Case(
        name="a group with a problem stops no other",
        groups=[group("a", problem="does not exist"), group("b")],
        pods=some(1),
        want={"b": 1},
        group_whys={"a": "GROUP_PROBLEM"},
    ),
    Case(
        name="Launch suspended",
        groups=[group("a", suspended=["Launch"])],
        pods=some(1),
        want={},
        group_whys={"a": "LAUNCH_SUSPENDED"},
    ),
    Case(name="no groups", groups=[], pods=some(1), want={}, pod_whys={"p0": "NO_GROUPS"}),
    Case(
        name="unready nodes take no pods",
        groups=[group("a", 1, nodes=["n1"])],
        nodes=[node("n1", unready_s=1800, age_s=7200)],
        pods=some(1),
        want={"a": 2},
    ),
    Case(
        name="a node that is starting counts as its template",
        groups=[group("a", 1, nodes=["n1"])],
        nodes=[node("n1", cpu="1m", unready_s=30, age_s=30)],
        pods=some(1),
        want={},
        pod_whys={"p0": "FITS_ON_UPCOMING_NODE"},
    ),
    Case(
        name="Fargate and unmanaged nodes are plain nodes (B43, B44)",
        groups=[group("a")],
        nodes=[
            node(
                "fargate",
                provider_id="aws:///eu-west-1b/120328e333-369f/fargate-ip-192-168-159-181.eu-west-1.compute.internal",
            ),
            node("bare", cpu="100m", provider_id=""),
        ],
        pods=some(3),
        want={"a": 1},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_scale_up(case: Case) -> None:
    """The wanted desired capacity of each raised group, and the reasons that the case names."""
    plan = plan_for(case.groups, case.pods, case.nodes, case.memory, case.config)

    assert raises(plan) == case.want
    assert {name: whys(plan).get(name) for name in case.pod_whys} == case.pod_whys
    assert {name: group_whys(plan).get(name) for name in case.group_whys} == case.group_whys
    told = {key for each in plan.pods for key in each.pods}
    assert told == {each.key for each in case.pods if not each.spec.node_name}, "every pending pod is told something"


def test_pod_gets_each_groups_reason() -> None:
    """A pod without room is told per group why, with the number that failed, and in the peer's words."""
    plan = plan_for([group("a"), group("b", 0, 0), group("c", problem="gone")], [pending("p", "1500m")])

    (told,) = plan.pods
    assert "cpu" in told.groups["a"]
    assert "1500m" in told.groups["a"]
    assert told.groups["c"].endswith("(gone)")
    assert told.peer_groups["Insufficient cpu"] == 2


def test_missing_replicas_lead_to_one_raise() -> None:
    """Replicas that the controller has not created yet are planned for with the pods that exist."""
    table = world([group("a")], [pending("p", by=RS)])
    demand = Demand(pod_class=table.cluster.pending[0].pod_class, count=5)
    plan = plan_for([group("a")], [pending("p", by=RS)])
    snap = Snapshot(now_ms=NOW_MS, cluster=table.cluster, groups=table.groups, missing=(demand,))

    assert raises(plan) == {"a": 1}
    assert raises(decide(snap, Memory(), flags())) == {"a": 3}


def test_daemon_pods_take_room_on_new_nodes() -> None:
    """A new node is planned with what its DaemonSets will take."""
    agent = DaemonPod(key=("kube-system", "agent"), pod_class=ClassTable().intern(daemon_pod("x", "", "200m")))
    plan = plan_for([group("a")], some(2), daemons=(agent,))

    assert raises(plan) == {"a": 2}


def test_refused_right_is_a_reason() -> None:
    """Without the right to raise, nothing is begun, and the plan says so once."""
    rights = Rights(denied_aws=frozenset({"autoscaling:SetDesiredCapacity"}))
    first = plan_for([group("a")], some(1), rights=rights)
    second = decide(world([group("a")], some(1), rights=rights), first.memory, flags())

    assert raises(first) == {}
    assert group_whys(first) == {"a": "RAISE_NOT_ALLOWED"}
    assert [note for note in first.notes if "SetDesiredCapacity" in note]
    assert second.notes == ()


def test_paused_up() -> None:
    """The pause annotation stops growing, and says so."""
    plan = plan_for([group("a")], some(1), paused=frozenset({"up"}))

    assert raises(plan) == {}
    assert whys(plan) == {"p0": "PAUSED"}


def test_order_of_input_changes_nothing() -> None:
    """Shuffled pods and groups give the same plan."""
    pods = [pending(f"p{number}", f"{100 + number * 37 % 700}m", memory=f"{1 + number % 3}Gi") for number in range(40)]
    groups = [group("a", max_size=3), group("b", shape=template("4", "16Gi"))]
    first = plan_for(groups, pods)

    assert plan_for(groups[::-1], pods[::-1]) == first


def test_second_plan_after_success_is_empty() -> None:
    """Once the machines are on their way nothing more is asked for."""
    plan = plan_for([group("a")], some(7))
    again = plan_for([group("a", raises(plan)["a"])], some(7), memory=plan.memory)

    assert raises(again) == {}
    assert set(whys(again).values()) == {"FITS_ON_UPCOMING_NODE"}


def test_scheduled_pods_are_left_alone() -> None:
    """Pods on nodes are no demand."""
    plan = plan_for([group("a", 1, nodes=["n1"])], [pod("w", "n1")], [node("n1")])

    assert plan.pods == ()


def test_scheduler_that_disagrees_is_said() -> None:
    """Room for a pod that the scheduler refuses for minutes is no silent no: an event tells it."""
    fresh = plan_for([], [pending("p", age_s=60)], [node("n1")])
    long = plan_for([], [pending("p", age_s=180)], [node("n1")])

    assert [each.reason for each in announcements(fresh, (), flags())] == []
    (event,) = announcements(long, (), flags())
    assert event.reason == "NotTriggerScaleUp"
    assert "such as a volume" in event.message
