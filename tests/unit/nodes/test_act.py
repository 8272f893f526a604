"""Acting: one bounded call per Action, its end an Outcome; what is remembered of it."""

import asyncio
from collections.abc import Callable

import pytest

from nobiru.kernel.errors import CloudDenied, CloudRejected, CloudThrottled, KubeError, KubeNotFound, KubeThrottled
from nobiru.kernel.objects import Key, Node
from nobiru.nodes.act import Ports, act
from nobiru.nodes.model import (
    Action,
    BeginRemoval,
    Evict,
    MarkCandidate,
    Memory,
    Outcome,
    Plan,
    RaiseDesired,
    RollBack,
    Terminate,
)
from nobiru.nodes.plan.remember import remember
from nobiru.nodes.ports import Description
from tests.unit.nodes.builders_down import NOW_MS, flags, marked, node


class World:
    """A cloud and an API server that note what they were asked, and fail as told."""

    def __init__(
        self, nodes: dict[str, Node] | None = None, failing: Exception | None = None, slow: bool = False
    ) -> None:
        self.nodes = nodes or {}
        self.failing, self.slow = failing, slow
        self.calls: list[str] = []
        self.leading = True

    def now_ms(self) -> int:
        return NOW_MS

    def monotonic_ms(self) -> int:
        return NOW_MS

    def held(self) -> bool:
        return self.leading

    async def describe(self, node_instance_ids: frozenset[str]) -> Description:
        raise NotImplementedError

    async def raise_desired(self, group: str, target: int) -> int:
        await self._do(f"raise {group} {target}")
        return target

    async def terminate(self, instance_id: str) -> None:
        await self._do(f"terminate {instance_id}")

    async def evict(self, pod: Key, grace_s: int | None, uid: str) -> None:
        await self._do(f"evict {pod[1]}")

    async def change_node(self, name: str, change: Callable[[Node], dict[str, object] | None]) -> bool:
        if name not in self.nodes:
            raise KubeNotFound(name)
        patch = change(self.nodes[name])
        if patch is not None:
            await self._do(f"patch {name}")
        return patch is not None

    async def _do(self, call: str) -> None:
        if self.slow:
            await asyncio.sleep(3600)
        if self.failing:
            raise self.failing
        self.calls.append(call)


def run(world: World, *actions: Action) -> tuple[Outcome, ...]:
    ports = Ports(groups=world, nodes=world, leadership=world, clock=world, identity="me")
    return asyncio.run(act(Plan(id="p", now_ms=NOW_MS, actions=actions), ports))


GROW = RaiseDesired(group="a", start=1, target=3, max_size=6)
END = Terminate(instance="i-n", group="a", node="n", reason="empty")


def test_terminate_needs_our_mark() -> None:
    """A node without our delete taint, with a stranger's, or gone, is never terminated."""
    for nodes in ({"n": node("n")}, {"n": marked(node("n"), 10, ours=False)}, {}):
        world = World(nodes)
        (outcome,) = run(world, END)
        assert not outcome.ok
        assert world.calls == []

    world = World({"n": marked(node("n"), 10)})
    assert run(world, END)[0].ok
    assert world.calls == ["terminate i-n"]


def test_nothing_starts_without_the_lock() -> None:
    """A paused leader that wakes up starts nothing."""
    world = World({"n": marked(node("n"), 10)})
    world.leading = False
    outcomes = run(world, GROW, END, MarkCandidate(node="n", since_ms=0))

    assert {outcome.code for outcome in outcomes} == {"LockLost"}
    assert world.calls == []


def test_one_failure_stops_no_other() -> None:
    """Outcomes stand in the actions' order, each with its own end."""
    world = World({"n": node("n")})
    outcomes = run(world, RollBack(node="gone", group="a", why=""), END, GROW)

    assert [outcome.ok for outcome in outcomes] == [True, False, True]


def test_mark_that_somebody_else_set_is_a_failure() -> None:
    """A node that got a delete taint meanwhile is left alone."""
    begin = BeginRemoval(node="n", group="a", instance="i", empty=True, utilization=0)
    (outcome,) = run(World({"n": marked(node("n"), 1, ours=False)}), begin)

    assert outcome.code == "KubeConflict"


def test_slow_call_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Action lasts longer than its bound."""
    monkeypatch.setattr("nobiru.nodes.act.ACTION_S_MAX", 0.01)
    (outcome,) = run(World(slow=True), GROW)

    assert outcome.code == "Timeout"


CASES = [
    #   error                                        code              denied
    (CloudDenied("no", action="autoscaling:X"), "CloudDenied", "autoscaling:X"),
    (CloudThrottled("slow down"), "CloudThrottled", ""),
    (CloudRejected("above max"), "CloudRejected", ""),
]


@pytest.mark.parametrize(("error", "code", "denied"), CASES)
def test_errors_become_outcomes(error: Exception, code: str, denied: str) -> None:
    """The error's class, its words and the refused right are facts."""
    (outcome,) = run(World(failing=error), GROW)

    assert (outcome.code, outcome.denied, outcome.error) == (code, denied, str(error))


def test_remembered_success() -> None:
    """A raise is on its way, a terminated instance is gone."""
    memory = remember(Memory(), (Outcome(action=GROW, reached=4), Outcome(action=END)), NOW_MS, flags())

    assert memory.raises["a"].target == 4
    assert memory.last_scale_up_ms == NOW_MS
    assert memory.terminating == {"i-n": NOW_MS}
    assert memory.terminated_ms == (NOW_MS,)


def test_only_what_was_reached_is_on_its_way() -> None:
    """A group whose own maximum let through less: the rest is not waited for, nor is it room for pods."""
    memory = remember(Memory(), (Outcome(action=GROW, reached=GROW.start + 1),), NOW_MS, flags())

    assert memory.raises["a"].target == GROW.start + 1 < GROW.target


def test_remembered_failure_rests_the_group() -> None:
    """A rejected call rests the group for the flag's time, a throttled one for seconds."""
    rejected = Outcome(action=GROW, error="above max", code="CloudRejected")
    throttled = Outcome(action=GROW, error="slow", code="CloudThrottled", retry_after_ms=2000)

    assert remember(Memory(), (rejected,), NOW_MS, flags()).backoff["a"].duration_ms == 300_000
    once = remember(Memory(), (throttled,), NOW_MS, flags())
    assert once.backoff["a"].duration_ms == 5_000
    assert remember(once, (throttled,), NOW_MS, flags()).backoff["a"].duration_ms == 10_000


@pytest.mark.parametrize(
    ("code", "rests"),
    [
        ("KubeUnavailable", False),
        ("KubeThrottled", False),
        ("Timeout", False),
        ("KubeConflict", True),
        ("KubeDenied", True),
    ],
)
def test_a_silent_api_server_rests_no_node(code: str, rests: bool) -> None:
    """A removal that could not begin rests its node for minutes, but not where nobody answered: the next loop tries again."""
    begin = BeginRemoval(node="n", group="a", instance="i-n", empty=True, utilization=0.0)
    memory = remember(Memory(), (Outcome(action=begin, error="x", code=code),), NOW_MS, flags())

    assert (memory.failed_removal_ms == {"n": NOW_MS}) is rests
    assert (memory.last_removal_failure_ms == NOW_MS) is rests


def test_lost_lock_is_nobodys_failure() -> None:
    """The next leader decides anew."""
    memory = remember(Memory(), (Outcome(action=GROW, error="x", code="LockLost"),), NOW_MS, flags())

    assert memory == Memory()


def test_evictions_are_counted() -> None:
    """Each try with its time and the server's words."""
    refused: KubeError = KubeThrottled("Cannot evict pod as it would violate the pod's disruption budget.")
    evict = Evict(pod=("d", "x"), uid="u", node="n", grace_s=30)
    (outcome,) = run(World(failing=refused), evict)
    memory = remember(
        remember(Memory(), (outcome,), NOW_MS, flags()), (Outcome(action=evict),), NOW_MS + 10_000, flags()
    )

    assert memory.evictions["u"].count == 2
    assert memory.evictions["u"].first_ms == NOW_MS
    assert memory.evictions["u"].message == ""


def test_refused_rights_are_remembered_and_tried_again() -> None:
    """A refusal becomes a fact for ten minutes."""
    denied = Outcome(action=GROW, error="no", code="CloudDenied", denied="autoscaling:SetDesiredCapacity")
    memory = remember(Memory(), (denied,), NOW_MS, flags())

    assert "autoscaling:SetDesiredCapacity" in memory.refused
    assert remember(memory, (), NOW_MS + 600_000, flags()).refused == {}
