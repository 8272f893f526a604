"""PodDisruptionBudgets as a plan sees them: which budgets cover which pods, and how many disruptions are left to give.

The API server has the last word on every eviction; what stands here keeps the plan from beginning what would be refused.
Invariant: within one plan no budget gives more than it allowed when the Snapshot was made.
Source: kubernetes 1.36 registry/core/pod/storage/eviction.go: a budget of an older generation refuses for now, and a pod
covered by several budgets is never evicted; policy/v1: an empty selector covers the whole namespace, none covers nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from nobiru.kernel.objects import Key, PodDisruptionBudget
from nobiru.kernel.selector import selector_matches
from nobiru.placement.classes import PodClass

KIND = "poddisruptionbudgets"  # as in Rights.unreadable


class Budgets(Struct, frozen=True, kw_only=True):
    """The budgets of a cluster, and those that cover each class.

    `allowed[b]` is what budget b gives now; `covering` has the class's index; classes that nothing covers are absent.
    """

    keys: tuple[Key, ...] = ()
    allowed: tuple[int, ...] = ()
    covering: dict[int, tuple[int, ...]] = {}

    def of(self, class_index: int) -> tuple[int, ...]:
        """The budgets that cover pods of the class."""
        return self.covering.get(class_index, ())

    def names(self, numbers: Iterable[int]) -> str:
        """The budgets' names, for people."""
        return ", ".join(self.keys[number][1] for number in numbers)


def match_budgets(budgets: Sequence[PodDisruptionBudget], classes: Iterable[PodClass]) -> Budgets:
    """Which budgets cover which of the classes.

    Order: budgets by key, whatever order they came in.
    """
    ordered = sorted(budgets, key=lambda budget: budget.key)
    finder = _ByLabel(classes)
    covering: dict[int, list[int]] = {}
    for number, budget in enumerate(ordered):
        for pod_class in finder.selected(budget):
            covering.setdefault(pod_class.index, []).append(number)
    return Budgets(
        keys=tuple(budget.key for budget in ordered),
        allowed=tuple(map(_allowed, ordered)),
        covering={index: tuple(numbers) for index, numbers in sorted(covering.items())},
    )


class _ByLabel:
    """Finds the classes that a budget covers by one of its labels: hundreds of each would be a hundred thousand pairs."""

    def __init__(self, classes: Iterable[PodClass]) -> None:
        self._all: dict[str, list[PodClass]] = defaultdict(list)
        self._with: dict[tuple[str, str, str], list[PodClass]] = defaultdict(list)
        for pod_class in classes:
            self._all[pod_class.namespace].append(pod_class)
            for key, value in pod_class.labels.items():
                self._with[pod_class.namespace, key, value].append(pod_class)

    def selected(self, budget: PodDisruptionBudget) -> list[PodClass]:
        """The classes of the budget's namespace that its selector selects."""
        namespace, selector = budget.metadata.namespace, budget.spec.selector
        found = self._all.get(namespace, [])
        for key, value in ((selector.match_labels or {}) if selector else {}).items():
            found = min(found, self._with.get((namespace, key, value), []), key=len)
        return [pod_class for pod_class in found if selector_matches(selector, pod_class.labels)]


def _allowed(budget: PodDisruptionBudget) -> int:
    """What the budget gives now: nothing while its status speaks of an older spec."""
    if budget.status.observed_generation < budget.metadata.generation:
        return 0
    return max(0, budget.status.disruptions_allowed)


class Allowance:
    """What is left of every budget while one plan is being made; lives for one call of `plan_scale_down`."""

    def __init__(self, budgets: Budgets) -> None:
        self.budgets = budgets
        self.left = list(budgets.allowed)

    def short(self, classes: Iterable[int]) -> tuple[int, int] | None:
        """(class, budget) of the first class whose budget has nothing left to give, if any."""
        return next(
            ((index, number) for index in classes for number in self.budgets.of(index) if self.left[number] < 1), None
        )

    def covers(self, moves: Iterable[tuple[int, int]]) -> bool:
        """Whether so many pods of each class (index, pods) may all be disrupted at once."""
        wanted: dict[int, int] = defaultdict(int)
        for index, pods in moves:
            for number in self.budgets.of(index):
                wanted[number] += pods
        return all(self.left[number] >= pods for number, pods in wanted.items())

    def spend(self, index: int, pods: int = 1) -> None:
        """Take so many disruptions of the class's pods, or what is left of them."""
        for number in self.budgets.of(index):
            self.left[number] = max(0, self.left[number] - pods)
