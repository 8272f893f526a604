"""Plans timed from a loaded cache to a complete Plan, freeze and snapshot included.

The shapes are those of Cluster Autoscaler's own benchmarks: equal pods without an owner onto an empty group, and groups whose nodes
are used at 40 %.
"""

import gc
import time
from collections.abc import Callable
from datetime import UTC, datetime

from nobiru.kernel.cloud import Instance, NodeGroup, NodeTemplate
from nobiru.kernel.objects import (
    Condition,
    Container,
    Node,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    milliseconds,
)
from nobiru.nodes.config import NodesConfig, make_config
from nobiru.nodes.model import Memory, Plan, RaiseDesired, Snapshot
from nobiru.nodes.plan.decide import decide
from nobiru.placement.books import Books
from tests.bench.rows import Row

BORN = datetime(2026, 1, 1, tzinfo=UTC)
NOW_MS = milliseconds(BORN) + 10_000_000
SAFE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
READY = (Condition(type="Ready", status="True", last_transition_time=BORN),)
UNSCHEDULABLE = (Condition(type="PodScheduled", status="False", reason="Unschedulable", last_transition_time=BORN),)
AMOUNTS = {"cpu": "1", "memory": "8Gi", "pods": "110"}
TRIES = 5


def pod(name: str, cpu: str, node: str = "") -> Pod:
    """An equal among equals; pending where it has no node."""
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid=name, creation_timestamp=BORN, annotations=SAFE),
        spec=PodSpec(
            node_name=node,
            containers=(Container(resources=ResourceRequirements(requests={"cpu": cpu, "memory": "1Mi"})),),
        ),
        status=PodStatus(phase="Running") if node else PodStatus(phase="Pending", conditions=UNSCHEDULABLE),
    )


def touch(books: Books) -> None:
    """Change one pod, so that a freeze has something to do, as between two real loops."""
    books.upsert_pod(pod("zz-touched", "1m", "nowhere"))
    books.delete_pod(("default", "zz-touched"))


def pending_world(count: int) -> tuple[Books, NodeGroup]:
    """So many pending pods, 50 of which fill a node, and an empty group."""
    books = Books()
    for number in range(count):
        books.upsert_pod(books.admit(pod(f"p{number:06}", "20m")))
    amounts = {"cpu": 1000, "memory": 2**33, "pods": 110}
    template = NodeTemplate(
        instance_type="x",
        zones=("a",),
        labels={},
        taints=(),
        capacity=amounts,
        allocatable=amounts,
        source="",
        identity="1",
    )
    return books, NodeGroup(name="g", min_size=0, max_size=10_000, desired=0, zones=("a",), template=template)


def idle_world(count: int, pods_each: int = 40, cpu: str = "10m") -> tuple[Books, NodeGroup]:
    """So many nodes of one group, each used by equal movable pods: at 40 % unless told otherwise."""
    books = Books()
    instances = []
    for number in range(count):
        name = f"n{number:05}"
        node = Node(
            metadata=ObjectMeta(name=name, creation_timestamp=BORN),
            spec=NodeSpec(provider_id=f"aws:///a/i-{number:08x}"),
            status=NodeStatus(capacity=AMOUNTS, allocatable=AMOUNTS, conditions=READY),
        )
        books.upsert_node(node)
        instances.append(Instance(id=f"i-{number:08x}", zone="a", lifecycle="InService"))
        for other in range(pods_each):
            books.upsert_pod(books.admit(pod(f"p{number}-{other}", cpu, name)))
    return books, NodeGroup(
        name="g", min_size=0, max_size=10_000, desired=count, instances=tuple(instances), zones=("a",)
    )


def one_plan(books: Books, group: NodeGroup, config: NodesConfig) -> Plan:
    snap = Snapshot(now_ms=NOW_MS, cluster=books.freeze(), groups=(group,))
    return decide(snap, Memory(), config)


def best_ms(books: Books, group: NodeGroup, config: NodesConfig, check: Callable[[Plan], bool]) -> float:
    """The median time of a plan after a change, in milliseconds; the plan must be right each time."""
    times = []
    for _ in range(TRIES):
        touch(books)
        gc.collect()
        began = time.perf_counter()
        plan = one_plan(books, group, config)
        times.append((time.perf_counter() - began) * 1000)
        assert check(plan), "the plan is wrong: its time says nothing"
    return sorted(times)[TRIES // 2]


def least_cpu_ms(books: Books, group: NodeGroup, config: NodesConfig, check: Callable[[Plan], bool]) -> float:
    """The least processor time of a plan, in milliseconds: what other processes do meanwhile hardly shows in it."""
    times = []
    for _ in range(TRIES):
        touch(books)
        gc.collect()
        began = time.process_time()
        plan = one_plan(books, group, config)
        times.append((time.process_time() - began) * 1000)
        assert check(plan), "the plan is wrong: its time says nothing"
    return min(times)


def raised_to(target: int) -> Callable[[Plan], bool]:
    return lambda plan: [each.target for each in plan.actions if isinstance(each, RaiseDesired)] == [target]


CONFIG = make_config({"max-nodes-per-scaleup": ["100000"]})


Timer = Callable[[Books, NodeGroup, NodesConfig, Callable[[Plan], bool]], float]


def up_ms(pods: int, timer: Timer = best_ms) -> float:
    return timer(*pending_world(pods), CONFIG, raised_to(pods // 50))


def down_ms(nodes: int, timer: Timer = best_ms) -> float:
    return timer(*idle_world(nodes), CONFIG, lambda plan: len(plan.unneeded) == nodes * 6 // 10)


def quiet_ms(nodes: int) -> float:
    """A loop in which one pod came and went, nodes used at 60 % stay, and nothing is done."""
    return best_ms(*idle_world(nodes, 30, "20m"), CONFIG, lambda plan: not plan.actions and not plan.unneeded)


def rows() -> list[Row]:
    """The figures of planning."""
    return [
        Row(name="plan: 10,000 pods onto 200 new nodes", value=round(up_ms(10_000), 1), unit="ms", target=60),
        Row(name="plan: 100,000 pods onto 2,000 new nodes", value=round(up_ms(100_000), 1), unit="ms", target=600),
        Row(name="plan: 400 nodes at 40 %, 240 removable", value=round(down_ms(400), 1), unit="ms", target=80),
        Row(name="plan: 2,000 nodes at 40 %, 1,200 removable", value=round(down_ms(2_000), 1), unit="ms", target=500),
        Row(
            name="quiet loop: 5,000 nodes, 150,000 pods, nothing to do",
            value=round(quiet_ms(5_000), 1),
            unit="ms",
            target=100,
        ),
    ]
