"""Placement against slow, plain references: pod by pod, node by node, label by label."""

from collections.abc import Iterable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nobiru.kernel.objects import Node, Pod, Taint
from nobiru.kernel.selector import terms_match, tolerates, untolerated
from nobiru.placement.books import Books, placed_alike
from nobiru.placement.columns import Bools, Cluster, Ints, NodeColumns
from nobiru.placement.filters import fits, refusals, room
from nobiru.placement.pack import Candidate, Removal, pack_new, place, plan_removals
from tests.unit.placement.builders import Json, anti_affinity, books_of, node, node_affinity, pod, taint, unschedulable

CALM = settings(max_examples=150, deadline=None)


# Packing


class Problem:
    """Classes, nodes and who may share them, all small."""

    def __init__(
        self, request: Ints, count: Ints, suits: Bools, free: Ints, per_node_max: Ints, conflicts: Bools | None
    ) -> None:
        self.request, self.count, self.suits, self.free = request, count, suits, free
        self.per_node_max, self.conflicts = per_node_max, conflicts

    def __repr__(self) -> str:
        return f"{self.request=}\n{self.count=}\n{self.suits=}\n{self.free=}\n{self.per_node_max=}\n{self.conflicts=}"

    def may_join(self, row: int, here: dict[int, int], free: Iterable[int]) -> bool:
        """Whether one more pod of the class may join the pods `here` on a node with so much room."""
        if any(ask > 0 and ask > left for ask, left in zip(self.request[row].tolist(), free, strict=True)):
            return False
        if self.per_node_max[row] and here.get(row, 0) >= self.per_node_max[row]:
            return False
        return self.conflicts is None or not any(self.conflicts[row, other] for other in here)


@st.composite
def problems(draw: st.DrawFn, *, resources: int = 2) -> Problem:
    classes, nodes = draw(st.integers(1, 6)), draw(st.integers(1, 8))
    amounts = st.lists(st.integers(0, 6), min_size=resources, max_size=resources)
    # The last resource is "pods": everybody asks for one, so no node takes pods without end.
    request = np.array([[*draw(amounts), 1] for _ in range(classes)], dtype=np.int64)
    room_of = st.lists(st.integers(-3, 30), min_size=resources, max_size=resources)
    free = np.array([[*draw(room_of), draw(st.integers(0, 12))] for _ in range(nodes)], dtype=np.int64).T
    flags = st.lists(st.booleans(), min_size=nodes, max_size=nodes)
    suits = np.array([draw(flags) for _ in range(classes)], dtype=np.bool_)
    count = np.array([draw(st.integers(0, 30)) for _ in range(classes)], dtype=np.int64)
    per_node_max = np.array([draw(st.sampled_from([0, 0, 0, 1, 2])) for _ in range(classes)], dtype=np.int64)
    conflicts = None
    if draw(st.booleans()):
        pairs = draw(st.sets(st.tuples(st.integers(0, classes - 1), st.integers(0, classes - 1)), max_size=4))
        conflicts = np.zeros((classes, classes), dtype=np.bool_)
        for one, other in pairs:
            conflicts[one, other] = conflicts[other, one] = True
    return Problem(request, count, suits, np.ascontiguousarray(free), per_node_max, conflicts)


def slow_first_fit(problem: Problem, suits: Bools, free: list[list[int]]) -> list[dict[int, int]]:
    """Every pod by itself onto the first node that takes it: per node, pods by class."""
    here: list[dict[int, int]] = [{} for _ in free]
    for row, count in enumerate(problem.count.tolist()):
        for _ in range(count):
            for place_, left in enumerate(free):
                if suits[row, place_] and problem.may_join(row, here[place_], left):
                    here[place_][row] = here[place_].get(row, 0) + 1
                    for resource, ask in enumerate(problem.request[row].tolist()):
                        left[resource] -= ask
                    break
    return here


@CALM
@given(problems())
def test_place_is_first_fit_pod_by_pod(problem: Problem) -> None:
    """The same pods on the same nodes as one pod after the other; nothing that came in is changed."""
    before = problem.free.copy(), problem.suits.copy()
    slow_free = problem.free.T.tolist()
    want = slow_first_fit(problem, problem.suits, slow_free)

    got = place(
        problem.request, problem.count, problem.suits, problem.free, problem.per_node_max, conflicts=problem.conflicts
    )

    here: list[dict[int, int]] = [{} for _ in want]
    for row, (nodes, counts) in enumerate(zip(got.nodes, got.counts, strict=True)):
        for at, pods in zip(nodes.tolist(), counts.tolist(), strict=True):
            here[at][row] = pods
    assert here == want
    assert got.free_after.T.tolist() == slow_free
    assert got.placed.tolist() == [sum(each.get(row, 0) for each in want) for row in range(len(problem.count))]
    assert np.array_equal(problem.free, before[0])
    assert np.array_equal(problem.suits, before[1])


@CALM
@given(problems(), st.integers(0, 12))
def test_new_nodes_are_first_fit_pod_by_pod(problem: Problem, nodes_max: int) -> None:
    """The same pods on the same new nodes as one pod after the other; no node is over its room or unused."""
    template, suits = problem.free[:, 0], problem.suits[:, 0]
    slow_free = [template.tolist() for _ in range(nodes_max)]
    want = slow_first_fit(problem, np.repeat(suits[:, None], nodes_max, axis=1), slow_free)
    want = [each for each in want if each]

    got = pack_new(
        problem.request, problem.count, suits, template, nodes_max, problem.per_node_max, conflicts=problem.conflicts
    )

    here: list[dict[int, int]] = [{} for _ in range(got.nodes)]
    for row, holds in enumerate(got.holds):
        for hold in holds:
            for at in range(hold.first, hold.first + hold.nodes):
                here[at][row] = here[at].get(row, 0) + hold.each
    assert here == want
    assert got.free_after.T.tolist() == slow_free[: got.nodes]
    assert got.placed.tolist() == [sum(each.get(row, 0) for each in want) for row in range(len(problem.count))]


@CALM
@given(problems())
def test_more_room_never_places_fewer_pods_of_one_class(problem: Problem) -> None:
    """For a class by itself, room that is added can only help."""
    one = np.s_[:1]
    less = place(problem.request[one], problem.count[one], problem.suits[one], problem.free)
    more = place(problem.request[one], problem.count[one], problem.suits[one], problem.free + 5)

    assert (more.placed >= less.placed).all()


# Removals


def slow_removals(
    problem: Problem, candidates: list[Candidate], limit: int | None
) -> list[tuple[str, dict[tuple[int, int], int]]]:
    """One candidate after the other, pod by pod, on copies: (outcome, pods by (class, node))."""
    nodes = problem.free.shape[1]
    named = [each.node for each in candidates]
    trial = [at for at in range(nodes) if at not in named] + named[::-1]
    free, here = problem.free.T.tolist(), [dict[int, int]() for _ in range(nodes)]
    gone: set[int] = set()
    took: set[int] = set()
    result: list[tuple[str, dict[tuple[int, int], int]]] = []
    largest = np.maximum(problem.free.max(axis=1), 1)
    share = (problem.request / largest).max(axis=1).tolist()
    for candidate in candidates:
        if limit is not None and len(gone) >= limit:
            result.append(("over_limit", {}))
            continue
        if candidate.node in took:
            result.append(("took_pods", {}))
            continue
        moves = sorted(
            zip(candidate.rows, candidate.counts, strict=True),
            key=lambda move: (
                -share[move[0]],
                problem.request[move[0]].tolist(),
                problem.suits[move[0]][trial].tobytes(),
            ),
        )
        trial_free, trial_here = [list(each) for each in free], [dict(each) for each in here]
        moved: dict[tuple[int, int], int] = {}
        ok = True
        for row, count in moves:
            for _ in range(count):
                at = next(
                    (
                        at
                        for at in trial
                        if at != candidate.node
                        and at not in gone
                        and problem.suits[row, at]
                        and problem.may_join(row, trial_here[at], trial_free[at])
                    ),
                    None,
                )
                if at is None:
                    ok = False
                    break
                trial_here[at][row] = trial_here[at].get(row, 0) + 1
                moved[row, at] = moved.get((row, at), 0) + 1
                for resource, ask in enumerate(problem.request[row].tolist()):
                    trial_free[at][resource] -= ask
            if not ok:
                break
        if ok:
            free, here = trial_free, trial_here
            gone.add(candidate.node)
            took.update(at for _, at in moved)
        result.append(("goes", moved) if ok else ("blocked", {}))
    return result


@st.composite
def removal_problems(draw: st.DrawFn) -> tuple[Problem, list[Candidate], int | None]:
    problem = draw(problems())
    classes, nodes = len(problem.count), problem.free.shape[1]
    named = draw(st.lists(st.integers(0, nodes - 1), unique=True, max_size=nodes))
    candidates = []
    for at in named:
        rows = draw(st.lists(st.integers(0, classes - 1), unique=True, max_size=3))
        candidates.append(Candidate(node=at, rows=tuple(rows), counts=tuple(draw(st.integers(1, 4)) for _ in rows)))
    return problem, candidates, draw(st.sampled_from([None, None, 0, 1, 3]))


def moved_by(removal: Removal) -> dict[tuple[int, int], int]:
    moved: dict[tuple[int, int], int] = {}
    for row, at, pods in removal.destinations:
        moved[row, at] = moved.get((row, at), 0) + pods
    return moved


@settings(max_examples=400, deadline=None)
@given(removal_problems())
def test_removals_are_what_moving_pod_by_pod_gives(given_: tuple[Problem, list[Candidate], int | None]) -> None:
    """The same candidates go, with the same pods on the same nodes; cursors and bounds only save time."""
    problem, candidates, limit = given_
    before = problem.free.copy()

    got = plan_removals(
        problem.request,
        problem.suits,
        problem.free,
        candidates,
        limit=limit,
        per_node_max=problem.per_node_max,
        conflicts=problem.conflicts,
    )

    assert [(each.outcome, moved_by(each)) for each in got] == slow_removals(problem, candidates, limit)
    assert np.array_equal(problem.free, before)


@CALM
@given(removal_problems())
def test_the_order_of_classes_does_not_matter_to_removals(
    given_: tuple[Problem, list[Candidate], int | None],
) -> None:
    """Rows named in another order: the same nodes go."""
    problem, candidates, limit = given_
    back = np.arange(len(problem.count))[::-1]
    turned = [
        Candidate(
            node=each.node, rows=tuple(len(back) - 1 - row for row in reversed(each.rows)), counts=each.counts[::-1]
        )
        for each in candidates
    ]

    one = plan_removals(problem.request, problem.suits, problem.free, candidates, limit=limit)
    other = plan_removals(problem.request[back], problem.suits[back], problem.free, turned, limit=limit)

    assert [each.outcome for each in one] == [each.outcome for each in other]


# Filters

ZONES, TEAMS = ["1", "2", "17"], ["x", "y"]
requirements = st.builds(
    lambda key, operator, values: {"key": key, "operator": operator, "values": values},
    st.sampled_from(["zone", "team", "none"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    st.lists(st.sampled_from([*ZONES, *TEAMS]), max_size=2),
)
name_fields = st.builds(
    lambda operator, name: {"key": "metadata.name", "operator": operator, "values": [name]},
    st.sampled_from(["In", "NotIn"]),
    st.sampled_from(["n0", "n1", "n9"]),
)
terms = st.fixed_dictionaries(
    {},
    optional={"matchExpressions": st.lists(requirements, max_size=2), "matchFields": st.lists(name_fields, max_size=1)},
)
tolerations = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "key": st.sampled_from(["team", "node.kubernetes.io/unschedulable"]),
            "operator": st.sampled_from(["Exists", "Equal"]),
            "value": st.sampled_from(TEAMS),
            "effect": st.sampled_from(["NoSchedule", "NoExecute"]),
        },
    ),
    max_size=2,
)
taints = st.lists(
    st.builds(
        taint,
        st.just("team"),
        st.sampled_from(TEAMS),
        st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
    ),
    max_size=2,
)
labels = st.dictionaries(st.sampled_from(["zone", "team"]), st.sampled_from([*ZONES, *TEAMS]))
affinities = st.one_of(st.none(), st.lists(terms, max_size=2).map(lambda drawn: node_affinity(*drawn)))


@st.composite
def node_lists(draw: st.DrawFn) -> list[Node]:
    return [
        node(
            f"n{number}",
            cpu=str(draw(st.integers(0, 3))),
            pods=str(draw(st.integers(0, 5))),
            labels=draw(labels),
            taints=draw(taints),
            cordoned=draw(st.booleans()),
        )
        for number in range(draw(st.integers(1, 5)))
    ]


@st.composite
def loose_pods(draw: st.DrawFn) -> Pod:
    spec: Json = {"tolerations": draw(tolerations), "nodeSelector": draw(st.one_of(st.just({}), labels))}
    return pod("p", cpu=f"{draw(st.integers(0, 9))}00m", affinity=draw(affinities), **spec)


def slow_fits(given_: Pod, on: Node) -> bool:
    """The rules, for one pod and one node, by kernel.selector alone."""
    bearing = given_.spec.tolerations or ()
    cordon = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
    if on.spec.unschedulable and not any(tolerates(each, cordon) for each in bearing):
        return False
    if untolerated(on.taints, bearing) is not None:
        return False
    if any(on.labels.get(key) != value for key, value in (given_.spec.node_selector or {}).items()):
        return False
    affinity = given_.spec.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return True
    return terms_match(affinity.node_affinity.required.node_selector_terms, on.labels, {"metadata.name": on.name})


@settings(max_examples=300, deadline=None)
@given(node_lists(), st.lists(loose_pods(), min_size=1, max_size=4))
def test_filters_agree_with_the_rules_one_by_one(nodes: list[Node], pods: list[Pod]) -> None:
    """Whole columns say what each pod and node say; a node refuses with a reason exactly where it does not take the pod."""
    books = books_of(*nodes)
    classes = [books.classes.intern(each) for each in pods]
    columns = books.freeze().nodes
    mask = fits(classes, columns)
    request = np.array([[each.request.get(name, 0) for name in columns.resources] for each in classes], dtype=np.int64)
    roomy = room(request, columns)

    for row, given_ in enumerate(pods):
        for on in nodes:
            at = columns.index[on.name]
            assert mask[row, at] == slow_fits(given_, on)
            assert bool(refusals(classes[row], columns, at)) == (not (mask[row, at] and roomy[row, at]))


# Books

NAMES = ["a", "b", "c", "d"]


@st.composite
def events(draw: st.DrawFn) -> list[tuple[str, Pod | Node | str]]:
    made: list[tuple[str, Pod | Node | str]] = []
    for _ in range(draw(st.integers(1, 25))):
        kind = draw(st.sampled_from(["pod", "pod", "pod", "no pod", "node", "no node"]))
        name = draw(st.sampled_from(NAMES))
        if kind == "pod":
            made.append((kind, draw(any_pods(name))))
        elif kind == "node":
            extra = draw(st.sampled_from([{}, {"nvidia.com/gpu": "1"}]))
            made.append((kind, node(name, cpu=draw(st.sampled_from(["2", "4"])), labels=draw(labels), extra=extra)))
        else:
            made.append((kind, name))
    return made


@st.composite
def any_pods(draw: st.DrawFn, name: str) -> Pod:
    where = draw(st.sampled_from(["", *NAMES[:2]]))
    status = draw(
        st.sampled_from(
            [unschedulable(), {"phase": "Running"}, {"phase": "Failed"}, {**unschedulable(), "nominatedNodeName": "b"}]
        )
    )
    number = draw(st.integers(80, 81))
    containers = [{"name": "c", "ports": [{"containerPort": number, "hostPort": number}]}]
    more: Json = draw(
        st.sampled_from(
            [
                {},
                {"labels": {"app": "x"}},
                {"cpu": "200m", "memory": "1Gi"},
                {"containers": containers},
                {"containers": [{"name": "c", "resources": {"requests": {"example.com/x": "1"}}}]},
                {"affinity": anti_affinity(labels={"app": "x"})},
            ]
        )
    )
    return pod(name, node=where, status=status, **more)


def shown(cluster: Cluster) -> Json:
    """Everything a Cluster says, free of class indexes, which depend on history."""
    nodes: NodeColumns = cluster.nodes
    names = {
        index: repr((each.labels, sorted(each.request.items()), each.host_ports))
        for index, each in enumerate(cluster.classes)
    }
    held = [
        sorted((names[index], count) for index, count in zip(*map(np.ndarray.tolist, cluster.held.of(at)), strict=True))
        for at in range(len(nodes))
    ]
    pods = [[(entry.key, entry.state, names[entry.pod_class.index]) for entry in on] for on in cluster.pods]
    pending = [(names[each.pod_class.index], [entry.key for entry in each.pods]) for each in cluster.pending]
    homeless = [entry.key for entry in cluster.homeless]
    arrays = [each.tolist() for each in (nodes.allocatable, nodes.requested, nodes.free, nodes.unschedulable)]
    facts = (nodes.names, nodes.resources, nodes.labels, nodes.taints, nodes.ports, [each.name for each in nodes.nodes])
    return facts, arrays, held, pods, pending, homeless, cluster.others


def counted(now: Pod, before: Pod | Node | None) -> Pod:
    """The pod with the generation that the API server gives it: one more where its spec changed, bindings aside."""
    generation = 1
    if isinstance(before, Pod):
        same = replace(now.spec, node_name="") == replace(before.spec, node_name="")
        generation = before.metadata.generation + (not same)
    return replace(now, metadata=replace(now.metadata, generation=generation))


@settings(max_examples=300, deadline=None)
@given(events(), st.sets(st.integers(0, 24)))
def test_books_fed_step_by_step_are_books_made_anew(fed: list[tuple[str, Pod | Node | str]], freezes: set[int]) -> None:
    """Whatever came and went, with freezes in between, a freeze shows the objects that exist, and only those."""
    books = Books()
    exist: dict[tuple[str, str], Pod | Node] = {}
    kept: dict[str, Pod] = {}
    for step, (kind, value) in enumerate(fed):
        if isinstance(value, Pod):
            before = kept.get(value.name)
            kept[value.name] = now = books.admit(counted(value, exist.get(("pod", value.name))), before)
            if before is None or not placed_alike(before, now):
                books.upsert_pod(now)
            exist["pod", value.name] = counted(value, exist.get(("pod", value.name)))
        elif isinstance(value, Node):
            books.upsert_node(value)
            exist["node", value.name] = value
        elif kind == "no pod":
            books.delete_pod(("default", value))
            exist.pop(("pod", value), None)
            kept.pop(value, None)
        else:
            books.delete_node(value)
            exist.pop(("node", value), None)
        if step in freezes:
            books.freeze()
            books.forget_unused()

    rebuilt = books_of(*(exist[key] for key in sorted(exist)))
    backwards = books_of(*(exist[key] for key in sorted(exist, reverse=True)))

    assert shown(books.freeze()) == shown(rebuilt.freeze())
    assert shown(backwards.freeze()) == shown(rebuilt.freeze())
