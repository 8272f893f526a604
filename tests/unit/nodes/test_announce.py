"""Events, status text, what survives a restart: what people and tools read."""

import yaml
from msgspec.structs import replace

from nobiru.kernel.reason import Reason, Why
from nobiru.nodes.announce import announcements
from nobiru.nodes.model import (
    Backoff,
    BeginRemoval,
    Evict,
    Failure,
    GroupReport,
    Learned,
    Memory,
    Outcome,
    Plan,
    PodGroupWhy,
    Raise,
    RaiseDesired,
    RollBack,
    Terminate,
)
from nobiru.nodes.plan.persist import BYTES_MAX, dump, load
from nobiru.nodes.status import go_time, initializing, render, transitions, words
from tests.unit.nodes.builders_down import NOW_MS, flags
from tests.unit.nodes.builders_up import group, plan_for

PLAN = Plan(id="p", now_ms=NOW_MS)
GROW = RaiseDesired(group="a b", start=1, target=3, max_size=6, pods=(("default", "p"),))


def said(plan: Plan, *outcomes: Outcome) -> list[tuple[str, str, str]]:
    """(what it is on, reason, message) of every event."""
    return [(each.key[1] or each.kind, each.reason, each.message) for each in announcements(plan, outcomes, flags())]


def test_scale_up_events() -> None:
    """The group's and the pod's event carry the size that was reached."""
    assert said(PLAN, Outcome(action=GROW, reached=4)) == [
        ("status", "ScaledUpGroup", "Scale-up: group a b size set to 4 instead of 1 (max: 6)"),
        ("p", "TriggeredScaleUp", "pod triggered scale-up: [{a b 1->4 (max: 6)}]"),
    ]


def test_failed_scale_up_event() -> None:
    """AWS's own words stand in the event."""
    assert said(PLAN, Outcome(action=GROW, error="denied", code="CloudDenied")) == [
        ("status", "FailedToScaleUpGroup", "Scale-up failed for group a b: denied")
    ]


def test_removal_events() -> None:
    """A drained node, an empty node, a rolled-back one, evictions."""
    drained = BeginRemoval(
        node="n", group="a", instance="i", empty=False, utilization=0.25, pods=(("d", "x"), ("d", "y"))
    )
    end = Terminate(instance="i", group="a", node="n", reason="empty")
    lost = Terminate(instance="i", group="a", node="", reason="unregistered")
    evict = Evict(pod=("d", "x"), uid="u", node="n", grace_s=30)

    assert said(PLAN, Outcome(action=drained))[1][2] == (
        "Scale-down: removing node n, utilization: 0.250, pods to reschedule: x,y"
    )
    assert said(PLAN, Outcome(action=end))[1] == ("status", "ScaleDownEmpty", "Scale-down: empty node n removed")
    assert said(PLAN, Outcome(action=lost)) == [("status", "DeleteUnregistered", "Removed unregistered node i")]
    assert said(PLAN, Outcome(action=evict)) == [("x", "ScaleDown", "deleting pod for node scale down")]
    assert said(PLAN, Outcome(action=RollBack(node="n", group="a", why="a pod came")))[0][1] == "ScaleDownFailed"


def test_not_triggered_in_the_peers_words() -> None:
    """Counted reasons, most frequent first; told even while another pod triggers."""
    told = PodGroupWhy(
        pods=(("d", "x"),),
        why=Why(reason=Reason.NO_GROUP_FITS),
        peer_groups={"max node group size reached": 1, "Insufficient cpu": 2},
    )
    events = said(replace(PLAN, pods=(told,)), Outcome(action=GROW, reached=3))

    assert events[-1] == (
        "x",
        "NotTriggerScaleUp",
        "pod didn't trigger scale-up: 2 Insufficient cpu, 1 max node group size reached",
    )


def test_a_group_that_cannot_be_used_has_its_event_once() -> None:
    """An unknown name or a bad template: a warning beside the line, not again while it stays so."""
    broken = group("gone", problem='Auto Scaling Group "gone" does not exist')
    first = plan_for([broken, group("well")], [])
    second = plan_for([broken, group("well")], [], memory=first.memory)

    assert said(first) == [("status", "NodeGroupProblem", 'group gone: Auto Scaling Group "gone" does not exist')]
    assert said(second) == []


def test_quiet_reasons_make_no_event() -> None:
    """Pods that have room, or never count, are not bothered."""
    quiet = PodGroupWhy(pods=(("d", "x"),), why=Why(reason=Reason.FITS_ON_UPCOMING_NODE))
    assert said(replace(PLAN, pods=(quiet,))) == []


def test_failure_events() -> None:
    """A stock-out with AWS's text; machines that never registered with the flag's time."""
    stock = Failure(group="a", code="placeholder-cannot-be-fulfilled", message="no m5.large", count=2)
    late = Failure(group="a", code="timeout", message="no node for i-1", count=1)
    reasons = [each[1:] for each in said(replace(PLAN, failures=(stock, late)))]

    assert reasons[0][0] == "ScaleUpFailed"
    assert "no m5.large" in reasons[0][1]
    assert reasons[1] == ("ScaleUpTimedOut", "Nodes added to group a failed to register within 15m0s: no node for i-1")


REPORT = GroupReport(name="a", min_size=0, max_size=6, target=3, ready=2, not_started=1, scaling_up=True)
MEMORY = Memory(
    backoff={"a": Backoff(until_ms=NOW_MS + 9, duration_ms=9, failed_ms=NOW_MS, code="c", message="m")},
    raises={"a": Raise(at_ms=1, start=0, target=3)},
    terminated_ms=(1, 2),
)


def test_yaml_status() -> None:
    """The fields that tools read, as Cluster Autoscaler names them."""
    plan = replace(PLAN, reports=(REPORT,))
    since = transitions({}, words(plan, MEMORY), NOW_MS)
    status = yaml.safe_load(render(plan, MEMORY, since, (1, 37)))

    assert status["autoscalerStatus"] == "Running"
    assert status["clusterWide"]["health"]["nodeCounts"]["registered"]["total"] == 3
    (group,) = status["nodeGroups"]
    assert group["health"]["cloudProviderTarget"] == 3
    assert group["scaleUp"]["status"] == "Backoff"
    assert group["scaleUp"]["backoffInfo"] == {"errorCode": "c", "errorMessage": "m"}


def test_prose_status() -> None:
    """Releases before 1.30 wrote prose."""
    plan = replace(PLAN, reports=(REPORT,))
    text = render(plan, Memory(), transitions({}, words(plan, Memory()), NOW_MS), (1, 2))

    assert text.startswith("Cluster-autoscaler status at ")
    assert "cloudProviderTarget=3 (minSize=0, maxSize=6)" in text
    assert "ScaleUp:     InProgress" in text
    assert initializing(NOW_MS, (1, 2)) == "Initializing"


def test_transition_time_stays_while_the_word_stays() -> None:
    """lastTransitionTime moves only with the word."""
    first = transitions({}, {"x": "Healthy"}, 1)
    assert transitions(first, {"x": "Healthy"}, 2)["x"].since_ms == 1
    assert transitions(first, {"x": "Unhealthy"}, 2)["x"].since_ms == 2


def test_go_time() -> None:
    """Go's layout, without trailing zeros."""
    assert go_time(1_538_388_000_123) == "2018-10-01 10:00:00.123 +0000 UTC"
    assert go_time(1_538_388_000_000) == "2018-10-01 10:00:00 +0000 UTC"


def test_memory_survives_a_restart() -> None:
    """What is kept comes back; what cannot be read is as good as nothing."""
    back = load(dump(MEMORY), started_ms=NOW_MS)

    assert (back.backoff, back.raises, back.terminated_ms) == (MEMORY.backoff, MEMORY.raises, (1, 2))
    assert back.started_ms == NOW_MS
    assert load("{broken", started_ms=7) == Memory(started_ms=7)
    assert load(None, started_ms=7) == Memory(started_ms=7)


def test_kept_text_is_bounded() -> None:
    """What nodes taught goes first; back-offs stay."""
    lesson = Learned(identity="x", allocatable={}, capacity={}, labels={"l": "x" * 1000}, taints=(), since_ms=0)
    many = replace(MEMORY, learned={f"g{number}": lesson for number in range(1000)})

    assert len(dump(many)) < BYTES_MAX
    assert load(dump(many), started_ms=NOW_MS).backoff == MEMORY.backoff
