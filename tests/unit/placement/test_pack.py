"""First fit onto nodes and onto copies of a template, in whole classes."""

import numpy as np
import pytest

from nobiru.placement.columns import Bools, Ints
from nobiru.placement.pack import Hold, order, pack_new, place

RESOURCES = ("cpu", "memory", "pods")


def ints(*rows: list[int]) -> Ints:
    return np.array(rows, dtype=np.int64)


def bools(*rows: list[int]) -> Bools:
    return np.array(rows, dtype=np.bool_)


def test_place_fills_the_first_nodes_first() -> None:
    """A class fills each node up to its room; the next class finds what is left."""
    placed = place(
        ints([100, 10, 1], [300, 0, 1]),
        np.array([5, 3]),
        bools([1, 1, 1], [1, 1, 1]),
        ints([250, 400, 900], [99, 99, 99], [9, 9, 9]),
    )

    assert placed.placed.tolist() == [5, 3]
    assert [nodes.tolist() for nodes in placed.nodes] == [[0, 1], [2]]
    assert [counts.tolist() for counts in placed.counts] == [[2, 3], [3]]
    assert placed.free_after.tolist() == [[50, 100, 0], [79, 69, 99], [7, 6, 6]]
    assert placed.touched == {0, 1, 2}


def test_place_respects_masks_and_gives_what_there_is() -> None:
    """Where a class may not run it does not; what finds no room stays."""
    placed = place(ints([100], [100]), np.array([9, 9]), bools([0, 1], [1, 0]), ints([250, 400]))

    assert placed.placed.tolist() == [4, 2]
    assert placed.touched == {0, 1}


def test_what_is_not_asked_for_does_not_limit() -> None:
    """An overdrawn resource refuses only those who ask for it."""
    placed = place(ints([0, 1], [1, 1]), np.array([2, 2]), bools([1], [1]), ints([-5], [10]))

    assert placed.placed.tolist() == [2, 0]


def test_place_in_another_order_of_nodes() -> None:
    """Nodes are tried in the order given; results carry the nodes' own places."""
    placed = place(ints([100]), np.array([3]), bools([1, 1, 1]), ints([200, 200, 200]), node_order=np.array([2, 0, 1]))

    assert placed.nodes[0].tolist() == [2, 0]
    assert placed.free_after.tolist() == [[100, 200, 0]]


def test_at_most_so_many_per_node() -> None:
    """A limit per node holds for its class alone."""
    placed = place(ints([1], [1]), np.array([5, 5]), bools([1, 1, 1], [1, 1, 1]), ints([9, 9, 9]), np.array([1, 0]))

    assert placed.placed.tolist() == [3, 5]
    assert placed.counts[0].tolist() == [1, 1, 1]


def test_rivals_never_share_a_node() -> None:
    """Classes in conflict go to different nodes, a class in conflict with itself to one node each."""
    apart = bools([1, 1, 0], [1, 1, 0], [0, 0, 0])
    placed = place(
        ints([1], [1], [1]),
        np.array([1, 5, 5]),
        bools([1, 1, 1], [1, 1, 1], [1, 1, 1]),
        ints([9, 9, 9]),
        conflicts=apart,
    )

    assert [nodes.tolist() for nodes in placed.nodes] == [[0], [1, 2], [0]]


def test_place_changes_nothing_that_came_in() -> None:
    """Arrays of a snapshot stay as they are."""
    free, fits = ints([500, 500]), bools([1, 1])
    place(ints([100]), np.array([7]), fits, free, conflicts=bools([1]))

    assert free.tolist() == [[500, 500]]
    assert fits.tolist() == [[True, True]]


def test_new_nodes_for_one_class() -> None:
    """Ten thousand pods, fifty a node, are exactly two hundred nodes."""
    new = pack_new(ints([100, 10, 1]), np.array([10_000]), bools([1])[0], np.array([5_000, 9_999, 110]), 1_000)

    assert new.nodes == 200
    assert new.placed.tolist() == [10_000]
    assert new.holds == ((Hold(first=0, nodes=200, each=50),),)
    assert new.free_after.shape == (3, 200)
    assert (new.free_after[0] == 0).all()


def test_smaller_pods_fill_what_bigger_ones_leave() -> None:
    """The second class goes into the gaps of the first one's nodes before it opens new ones."""
    new = pack_new(ints([600], [300], [200]), np.array([3, 2, 9]), bools([1, 1, 1])[0], np.array([1_000]), 10)

    assert new.nodes == 5
    assert new.placed.tolist() == [3, 2, 9]
    assert new.holds[0] == (Hold(first=0, nodes=3, each=1),)
    assert new.holds[1] == (Hold(first=0, nodes=2, each=1),)
    assert sum(hold.nodes * hold.each for hold in new.holds[2]) == 9
    assert new.free_after.sum() == 5_000 - 3 * 600 - 2 * 300 - 9 * 200


@pytest.mark.parametrize(
    ("nodes_max", "fits", "count", "want"),
    [(0, 1, 5, (0, 0)), (-3, 1, 5, (0, 0)), (2, 1, 50, (2, 20)), (9, 0, 5, (0, 0)), (9, 1, 0, (0, 0))],
)
def test_limits_of_new_nodes(nodes_max: int, fits: int, count: int, want: tuple[int, int]) -> None:
    """Never more nodes than allowed, none for pods that do not fit or are not there."""
    new = pack_new(ints([100]), np.array([count]), bools([fits])[0], np.array([1_000]), nodes_max)

    assert (new.nodes, int(new.placed[0])) == want
    assert new.free_after.shape == (1, want[0])


def test_a_pod_too_big_for_the_template_opens_no_node() -> None:
    """What does not fit on an empty node never will; others are not held up."""
    new = pack_new(ints([2_000], [500]), np.array([3, 3]), bools([1, 1])[0], np.array([1_000]), 10)

    assert (new.nodes, new.placed.tolist()) == (2, [0, 3])


def test_one_per_new_node() -> None:
    """A class that wants a node for itself gets as many nodes as pods; others share them."""
    new = pack_new(ints([10], [10]), np.array([4, 8]), bools([1, 1])[0], np.array([1_000]), 10, np.array([1, 0]))

    assert new.nodes == 4
    assert new.holds == ((Hold(first=0, nodes=4, each=1),), (Hold(first=0, nodes=1, each=8),))


def test_rivals_on_new_nodes() -> None:
    """Classes in conflict open nodes of their own."""
    apart = bools([1, 1, 0], [1, 1, 0], [0, 0, 0])
    new = pack_new(
        ints([10], [10], [10]), np.array([2, 3, 200]), bools([1, 1, 1])[0], np.array([500]), 10, conflicts=apart
    )

    assert new.nodes == 5
    assert new.holds[0] == (Hold(first=0, nodes=2, each=1),)
    assert new.holds[1] == (Hold(first=2, nodes=3, each=1),)
    assert new.placed.tolist() == [2, 3, 200]


def test_alike_classes_are_dealt_in_order() -> None:
    """Classes that only their names tell apart are packed together, and each gets its own pods back."""
    new = pack_new(ints(*[[300]] * 3), np.array([2, 5, 1]), bools([1, 1, 1])[0], np.array([1_000]), 10)
    placed = place(ints(*[[300]] * 3), np.array([2, 5, 1]), bools(*[[1, 1, 1]] * 3), ints([1_000, 1_000, 1_000]))

    assert new.nodes == 3
    assert new.holds == (
        (Hold(first=0, nodes=1, each=2),),
        (Hold(first=0, nodes=1, each=1), Hold(first=1, nodes=1, each=3), Hold(first=2, nodes=1, each=1)),
        (Hold(first=2, nodes=1, each=1),),
    )
    assert [nodes.tolist() for nodes in placed.nodes] == [[0], [0, 1, 2], [2]]
    assert [counts.tolist() for counts in placed.counts] == [[2], [1, 3, 1], [1]]


def test_order_by_priority_then_share() -> None:
    """Higher priority first, then the bigger share of a node, then as given."""
    request = ints([100, 0, 1], [0, 500, 1], [100, 0, 1], [900, 0, 1])
    reference = np.array([1_000, 1_000, 10])

    assert order(request, reference, RESOURCES).tolist() == [3, 1, 0, 2]
    assert order(request, reference, RESOURCES, np.array([0, 0, 5, -1])).tolist() == [2, 1, 0, 3]


def test_nothing_to_place() -> None:
    """No classes, no nodes, no trouble."""
    nothing = place(
        np.zeros((0, 3), np.int64), np.zeros(0, np.int64), np.zeros((0, 4), np.bool_), np.ones((3, 4), np.int64)
    )
    nowhere = place(ints([1, 1, 1]), np.array([5]), np.zeros((1, 0), np.bool_), np.zeros((3, 0), np.int64))
    new = pack_new(np.zeros((0, 3), np.int64), np.zeros(0, np.int64), np.zeros(0, np.bool_), np.ones(3, np.int64), 5)

    assert nothing.touched == frozenset()
    assert nowhere.placed.tolist() == [0]
    assert (new.nodes, new.holds) == (0, ())
