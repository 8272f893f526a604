"""A world that obeys: what a scale-down plan asks for happens at once, and time runs from wake to wake.

Marks are made by the real patches; evicted pods leave at the end of their grace and run again elsewhere; machines go as
soon as they are terminated.
"""

from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from nobiru.kernel.objects import Node, Pod, PodDisruptionBudget, Taint, milliseconds
from nobiru.kernel.selector import selector_matches
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import (
    Action,
    BeginRemoval,
    Evict,
    MarkCandidate,
    Memory,
    Outcome,
    RollBack,
    Terminate,
    UnmarkCandidate,
)
from nobiru.nodes.plan.marks import candidate_patch, removal_patch, rollback_patch, uncandidate_patch
from nobiru.nodes.plan.remember import remember
from nobiru.nodes.plan.scale_down import ScaleDown
from nobiru.placement.books import Books
from tests.unit.nodes.builders_down import NOW_MS, GroupOf, World, acts, flags, plan

IDLE_MS = 10_000  # the scan interval: how long nothing happens before the next loop


class Play(Struct, kw_only=True):
    """A world, the configuration, and what was done so far, each line with its second.

    `forget` gives every loop an empty Memory, as after a restart; a disrupted pod runs again after `replace_s`, until
    when its budget gives one less.
    """

    world: World
    config: NodesConfig = flags()
    log: list[str] = []
    forget: bool = False
    replace_s: float = 0
    evicted: dict[str, int] = {}  # pod names, by when their replacement runs

    def run(self, *, until_s: float = 3_600, rounds: int = 200) -> None:
        """Loop from wake to wake until nothing is left to do or the time is over."""
        for _ in range(rounds):
            got = self.loop()
            now_ms = self.world.now_ms
            if not got.actions and got.wake_at_ms is None and not self.evicted:
                return
            self.advance((self._next_ms(got, now_ms) - now_ms) / 1000)
            if self.world.now_ms - NOW_MS > until_s * 1000:
                return

    def _next_ms(self, got: ScaleDown, now_ms: int) -> int:
        """When the next loop is: at the plan's own word, after what was done, or when the world has news."""
        moments = [now_ms + IDLE_MS] if got.actions or got.wake_at_ms is None else [got.wake_at_ms]
        moments += [] if got.wake_at_ms is None else [got.wake_at_ms]
        moments += self.evicted.values()
        moments += [milliseconds(each.metadata.deletion_timestamp) for each in self.world.pods]
        return min(moment for moment in moments if moment > now_ms)

    def loop(self) -> ScaleDown:
        """One loop, all of whose actions succeed."""
        given = replace(self.world, memory=Memory()) if self.forget else self.world
        got = plan(given, self.config)
        second = (self.world.now_ms - NOW_MS) // 1000
        self.log = [*self.log, *(f"{second:>4} {text}" for text in acts(got.actions))]
        for action in got.actions:
            self._do(action)
        outcomes = [Outcome(action=action) for action in got.actions]
        memory = remember(got.memory, outcomes, self.world.now_ms, self.config)
        self.world = replace(self.world, memory=memory)
        return got

    def advance(self, seconds: float) -> None:
        """Let time pass: pods whose grace is over are gone, replacements run."""
        now_ms = self.world.now_ms + round(seconds * 1000)
        pods = tuple(
            each
            for each in self.world.pods
            if not each.metadata.deletion_timestamp or milliseconds(each.metadata.deletion_timestamp) > now_ms
        )
        ready = [name for name, at_ms in self.evicted.items() if at_ms <= now_ms]
        for name in ready:
            self._give_back(name)
        self.evicted = {name: at_ms for name, at_ms in self.evicted.items() if name not in ready}
        self.world = replace(self.world, pods=pods, now_ms=now_ms)

    # What actions do

    def _do(self, action: Action) -> None:
        now_ms = self.world.now_ms
        match action:
            case BeginRemoval(node=name, cordon=cordon):
                self._patch(name, removal_patch(self._node(name), now_ms=now_ms, identity="nobiru-1", cordon=cordon))
            case RollBack(node=name):
                self._patch(name, rollback_patch(self._node(name)))
            case MarkCandidate(node=name, since_ms=since_ms):
                self._patch(name, candidate_patch(self._node(name), since_ms))
            case UnmarkCandidate(node=name):
                self._patch(name, uncandidate_patch(self._node(name)))
            case Evict():
                self._evict(action)
            case Terminate(node=name):
                self._terminate(name)

    def _node(self, name: str) -> Node:
        return next(each for each in self.world.nodes if each.name == name)

    def _patch(self, name: str, patch: dict[str, object] | None) -> None:
        if patch is not None:
            nodes = tuple(patched(each, patch) if each.name == name else each for each in self.world.nodes)
            self.world = replace(self.world, nodes=nodes)

    def _evict(self, action: Evict) -> None:
        """The pod leaves at the end of its grace; its controller has made another one already."""
        pod = next(each for each in self.world.pods if each.key == action.pod)
        assert action.grace_s is not None
        gone = datetime.fromtimestamp(self.world.now_ms / 1000 + action.grace_s, UTC)
        meta = replace(pod.metadata, deletion_timestamp=gone, deletion_grace_period_seconds=action.grace_s)
        others = tuple(each for each in self.world.pods if each.key != pod.key)
        leaving = (replace(pod, metadata=meta),) if action.grace_s else ()
        self._charge(pod)
        self.world = replace(self.world, pods=(*others, *leaving))
        if pod.controller is None or pod.controller.kind != "DaemonSet":
            self._again(pod)

    def _again(self, pod: Pod) -> None:
        """The replacement, on the first node by name that takes it; without one it waits for ever, unseen."""
        books = Books()
        for node in self.world.nodes:
            books.upsert_node(node)
        for each in self.world.pods:
            books.upsert_pod(each)
        cluster = books.freeze()
        pod_class = books.classes.intern(pod)
        for index, node in enumerate(cluster.nodes.nodes):
            free = dict(zip(cluster.nodes.resources, cluster.nodes.free[:, index].tolist(), strict=True))
            hard = [taint for taint in node.taints if taint.effect == "NoSchedule"]
            fits = all(free.get(name, 0) >= amount for name, amount in pod_class.request.items())
            if fits and not hard and not node.spec.unschedulable:
                name = f"{pod.name}-again"
                created = datetime.fromtimestamp(self.world.now_ms / 1000, UTC)
                meta = replace(pod.metadata, name=name, uid=f"uid-{name}", creation_timestamp=created)
                other = replace(pod, metadata=meta, spec=replace(pod.spec, node_name=node.name))
                self.world = replace(self.world, pods=(*self.world.pods, other))
                return

    def _charge(self, pod: Pod) -> None:
        """One disruption less until the replacement runs; a budget that has none left refuses."""
        for budget in self._budgets_of(pod):
            assert budget.status.disruptions_allowed > 0, f"{pod.name} was evicted although its budget gives nothing"
            self._change_budget(budget.name, -1)
        if self.replace_s:
            self.evicted = {**self.evicted, pod.name: self.world.now_ms + round(self.replace_s * 1000)}
        else:
            for budget in self._budgets_of(pod):
                self._change_budget(budget.name, +1)

    def _budgets_of(self, pod: Pod) -> list[PodDisruptionBudget]:
        return [
            each
            for each in self.world.budgets
            if each.metadata.namespace == pod.metadata.namespace and selector_matches(each.spec.selector, pod.labels)
        ]

    def _change_budget(self, name: str, by: int) -> None:
        budgets = tuple(
            replace(each, status=replace(each.status, disruptions_allowed=each.status.disruptions_allowed + by))
            if each.name == name
            else each
            for each in self.world.budgets
        )
        self.world = replace(self.world, budgets=budgets)

    def _give_back(self, name: str) -> None:
        for pod in self.world.pods:
            if pod.name == f"{name}-again":
                for budget in self._budgets_of(pod):
                    self._change_budget(budget.name, +1)

    def _terminate(self, name: str) -> None:
        """The machine, its node and the pods on it are gone, desired capacity is one lower."""
        groups = self.world.groups or (GroupOf(name="g", nodes=tuple(each.name for each in self.world.nodes)),)
        self.world = replace(
            self.world,
            nodes=tuple(each for each in self.world.nodes if each.name != name),
            pods=tuple(each for each in self.world.pods if each.spec.node_name != name),
            groups=tuple(
                replace(
                    each,
                    nodes=tuple(other for other in each.nodes if other != name),
                    desired=None if each.desired is None else each.desired - (name in each.nodes),
                )
                for each in groups
            ),
        )


def patched(node: Node, patch: dict[str, object]) -> Node:
    """The node after a merge patch of its annotations and spec."""
    annotations = dict(node.annotations)
    meta, spec = patch.get("metadata", {}), patch.get("spec", {})
    assert isinstance(meta, dict)
    assert isinstance(spec, dict)
    for key, value in meta.get("annotations", {}).items():
        if value is None:
            annotations.pop(key, None)
        else:
            annotations[key] = value
    taints = node.taints
    if "taints" in spec:
        taints = tuple(Taint(**taint) for taint in spec["taints"] or ())
    unschedulable = bool(spec["unschedulable"]) if "unschedulable" in spec else node.spec.unschedulable
    return replace(
        node,
        metadata=replace(node.metadata, annotations=annotations),
        spec=replace(node.spec, taints=taints, unschedulable=unschedulable),
    )
