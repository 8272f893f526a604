"""Which nodes can go: room is taken for good, failures leave no trace, the fewest nodes stay."""

import numpy as np
import pytest

from nobiru.placement.columns import Bools, Ints
from nobiru.placement.pack import Candidate, Removal, plan_removals


def ints(*rows: list[int]) -> Ints:
    return np.array(rows, dtype=np.int64)


def bools(*rows: list[int]) -> Bools:
    return np.array(rows, dtype=np.bool_)


def outcomes(removals: tuple[Removal, ...]) -> list[str]:
    return [removal.outcome for removal in removals]


@pytest.mark.parametrize(("nodes", "want"), [(5, 3), (400, 240), (2_000, 1_200)])
def test_nodes_at_forty_percent_pack_tightly(nodes: int, want: int) -> None:
    """Forty pods each on nodes for a hundred: three of five can go."""
    candidates = [Candidate(node=node, rows=(0,), counts=(40,)) for node in range(nodes)]
    removals = plan_removals(ints([1]), bools([1] * nodes), ints([60] * nodes), candidates)

    assert outcomes(removals).count("goes") == want
    assert outcomes(removals).count("took_pods") == nodes - want
    assert all(sum(pods for _, _, pods in removal.destinations) == 40 for removal in removals if removal.goes)


def test_nodes_that_stay_anyway_are_filled_first() -> None:
    """Pods go to nodes that are no candidates while those have room, then to the last candidates."""
    removals = plan_removals(
        ints([10]),
        bools([1] * 4),
        ints([0, 0, 50, 20]),
        [Candidate(node=0, rows=(0,), counts=(4,)), Candidate(node=2, rows=(0,), counts=(3,))],
    )

    assert removals == (
        Removal(node=0, outcome="goes", destinations=((0, 3, 2), (0, 2, 2))),
        Removal(node=2, outcome="took_pods"),
    )


def test_a_node_that_goes_takes_nothing() -> None:
    """Room on a node that is leaving is no room; its own room neither."""
    removals = plan_removals(
        ints([10]), bools([1, 1]), ints([90, 10]), [Candidate(node=0), Candidate(node=1, rows=(0,), counts=(1,))]
    )

    assert removals == (Removal(node=0, outcome="goes"), Removal(node=1, outcome="blocked", blocked_by=0))


def test_a_failure_leaves_no_trace() -> None:
    """What a candidate took before it failed is there for the next one."""
    removals = plan_removals(
        ints([10], [99]),
        bools([1, 1, 1], [1, 1, 1]),
        ints([0, 0, 30]),
        [Candidate(node=0, rows=(0, 1), counts=(3, 1)), Candidate(node=1, rows=(0,), counts=(3,))],
    )

    assert removals == (
        Removal(node=0, outcome="blocked", blocked_by=1),
        Removal(node=1, outcome="goes", destinations=((0, 2, 3),)),
    )


def test_a_candidate_that_failed_can_still_take_pods() -> None:
    """It stays, so its room counts for those after it."""
    removals = plan_removals(
        ints([10], [50]),
        bools([1, 1], [1, 1]),
        ints([30, 0]),
        [Candidate(node=0, rows=(1,), counts=(1,)), Candidate(node=1, rows=(0,), counts=(3,))],
    )

    assert outcomes(removals) == ["blocked", "goes"]


def test_only_where_they_may_run() -> None:
    """Masks hold for destinations, and so does the list of nodes that may receive."""
    one = [Candidate(node=0, rows=(0,), counts=(2,))]

    assert outcomes(plan_removals(ints([1]), bools([1, 0, 1]), ints([9, 9, 1]), one)) == ["blocked"]
    assert outcomes(plan_removals(ints([1]), bools([1, 0, 1]), ints([9, 9, 2]), one)) == ["goes"]
    assert outcomes(plan_removals(ints([1]), bools([1, 1, 1]), ints([9, 9, 9]), one, receives=bools([1, 0, 0])[0])) == [
        "blocked"
    ]


def test_no_more_than_the_limit() -> None:
    """The rest is not even tried; blocked ones do not count."""
    candidates = [Candidate(node=0, rows=(0,), counts=(1,)), *(Candidate(node=node) for node in range(1, 4))]
    removals = plan_removals(ints([99]), bools([1] * 4), ints([0] * 4), candidates, limit=2)

    assert outcomes(removals) == ["blocked", "goes", "goes", "over_limit"]


def test_at_most_one_per_node() -> None:
    """Pods that want a node for themselves need as many nodes as they are."""
    removals = plan_removals(
        ints([1]),
        bools([0, 0, 1, 1]),
        ints([9] * 4),
        [Candidate(node=0, rows=(0,), counts=(2,)), Candidate(node=1, rows=(0,), counts=(1,))],
        per_node_max=np.array([1]),
    )

    assert removals[0].destinations == ((0, 2, 1), (0, 3, 1))
    assert outcomes(removals) == ["goes", "blocked"]


def test_limits_per_node_are_each_classes_own() -> None:
    """Two classes that look the same but want to be alone among their own do not stand in each other's way."""
    (removal,) = plan_removals(
        ints([1], [1]),
        bools([0, 1, 1], [0, 1, 1]),
        ints([9] * 3),
        [Candidate(node=0, rows=(0, 1), counts=(2, 2))],
        per_node_max=np.array([1, 1]),
    )

    assert removal.destinations == ((0, 1, 1), (0, 2, 1), (1, 1, 1), (1, 2, 1))


def test_rivals_do_not_meet() -> None:
    """A node that took a pod takes none of its rivals, but after a failure it would."""
    apart = bools([0, 1, 0], [1, 0, 0], [0, 0, 0])
    request, fits, free = ints([1], [1], [50]), bools([0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1]), ints([0, 0, 0, 9])
    failing = Candidate(node=0, rows=(0, 2), counts=(1, 1))
    one, other = Candidate(node=1, rows=(0,), counts=(1,)), Candidate(node=2, rows=(1,), counts=(1,))

    assert outcomes(plan_removals(request, fits, free, [one, other], conflicts=apart)) == ["goes", "blocked"]
    assert outcomes(plan_removals(request, fits, free, [failing, other], conflicts=apart)) == ["blocked", "goes"]


def test_big_pods_are_moved_first() -> None:
    """Within a node the biggest pod chooses first, whatever the order it is named in."""
    free = ints([0, 10, 9])
    for rows in ((0, 1), (1, 0)):
        candidate = Candidate(node=0, rows=rows, counts=(1, 1))
        (removal,) = plan_removals(ints([9], [10]), bools([1] * 3, [1] * 3), free, [candidate])

        assert removal.destinations == ((1, 1, 1), (0, 2, 1))


def test_nothing_that_came_in_is_changed() -> None:
    """Arrays of a snapshot stay as they are."""
    free = ints([60, 60])
    plan_removals(ints([1]), bools([1, 1]), free, [Candidate(node=0, rows=(0,), counts=(40,))])

    assert free.tolist() == [[60, 60]]


def test_no_candidates() -> None:
    """Nothing to do."""
    assert plan_removals(ints([1]), bools([1]), ints([5]), []) == ()
