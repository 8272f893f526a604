"""Telling what a loop did: log lines, events, metrics, the journal, the status ConfigMap.

Edge of the room.  Invariant: telling never changes what is done, and trouble in telling never ends a loop.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from nobiru.kernel.clock import Clock
from nobiru.kernel.errors import CloudError, KubeConflict, KubeError, KubeNotFound
from nobiru.kernel.objects import ConfigMap, Key
from nobiru.kernel.reason import Reason, Why
from nobiru.kube.change import Changer
from nobiru.kube.client import CONFIGMAPS, Client
from nobiru.kube.events import Recorder, Subject
from nobiru.nodes.announce import Announcement, announcements
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.measure import measure
from nobiru.nodes.model import (
    BeginRemoval,
    Evict,
    MarkCandidate,
    Memory,
    Outcome,
    Plan,
    RaiseDesired,
    RollBack,
    Snapshot,
    Terminate,
    UnmarkCandidate,
)
from nobiru.nodes.plan import persist
from nobiru.nodes.status import ANNOTATION, Transitions, go_time, initializing, render, transitions, words
from nobiru.sinks.health import Pulse
from nobiru.sinks.journal import Journal
from nobiru.sinks.log import Log
from nobiru.sinks.prometheus import NodesMetrics

log = Log("nodes")

POD_EVENTS_MAX = 500  # per loop: a burst of ten thousand pods is told on the group and in the journal
EVENT_PAUSE_MS = 300_000
UidOf = Callable[[str, Key], str]  # (kind, key) -> uid, "" where it is not known


class Reporter:
    """The sinks of one process."""

    def __init__(
        self,
        *,
        client: Client,
        recorder: Recorder,
        metrics: NodesMetrics,
        journal: Journal,
        clock: Clock,
        config: NodesConfig,
        uid_of: UidOf,
        note_status: Callable[[dict[str, str]], None],
        own_write: Callable[[], None],
    ) -> None:
        self._client, self._changer = client, Changer(client)
        self._recorder, self._metrics = recorder, metrics
        self._journal, self._clock, self._config = journal, clock, config
        self._uid_of, self._note_status, self._own_write = uid_of, note_status, own_write
        self._since: Transitions = {}
        self._told: dict[str, str] = {}
        self._status_trouble = ""
        self.pulse = Pulse()
        limits = config.limits
        for direction, cores, gib in (
            ("minimum", limits.cores_min, limits.memory_gib_min),
            ("maximum", limits.cores_max, limits.memory_gib_max),
        ):
            metrics.cpu_limits.labels(direction).set(cores)
            metrics.memory_limits.labels(direction).set(gib * 2**30)

    # The loop's hooks

    def leading(self) -> None:
        """This replica leads from now on: the loop is watched."""
        self.pulse = Pulse(since_ms=self._clock.monotonic_ms())

    def started(self) -> None:
        self.pulse = replace(self.pulse, activity_ms=self._clock.monotonic_ms())
        self._metrics.last_activity.labels("main").set(self._clock.now_ms() / 1000)

    def failed(self, error: Exception, duration_ms: int) -> None:
        """A loop ended without a plan."""
        kind = "cloudProviderError" if isinstance(error, CloudError) else "apiCallError"
        if isinstance(error, CloudError | KubeError):
            log.warning("loop failed", error=str(error), kind=type(error).__name__)
        else:
            kind = "internalError"
            log.failed("loop failed", error)
        self._metrics.errors.labels(kind).inc()

    async def report(self, snap: Snapshot, plan: Plan, outcomes: tuple[Outcome, ...], memory: Memory) -> None:
        """Tell everything about one loop."""
        if any(isinstance(each.action, RaiseDesired | Terminate) for each in outcomes):
            self._own_write()
        for note in plan.notes:
            log.warning("note", text=note)
        for outcome in outcomes:
            self._log_outcome(plan, outcome)
        self._log_left_alone(plan)
        self._send_events(plan, outcomes)
        measure(self._metrics, snap, plan, outcomes, memory, self._config)
        self._journal.write(journal_entry(snap, plan, outcomes))
        if self._config.process.write_status:
            await self._write_status(plan, memory)
        took_ms = self._clock.monotonic_ms() - (self.pulse.activity_ms or 0)
        self._metrics.duration.observe("main", took_ms / 1000)
        self.pulse = replace(self.pulse, success_ms=self._clock.monotonic_ms())
        log.detail("loop done", plan=plan.id, took_ms=took_ms, actions=len(outcomes), unneeded=len(plan.unneeded))

    # Log

    def _log_outcome(self, plan: Plan, outcome: Outcome) -> None:
        message, facts = outcome_line(outcome)
        facts["plan"] = plan.id
        if outcome.ok:
            log.info(message, **facts)
        else:
            log.warning(f"{message} failed", error=outcome.error, code=outcome.code, **facts)

    def _log_left_alone(self, plan: Plan) -> None:
        """One line per group of equal pods and per group that waits, when what is said of them changes."""
        said: dict[str, str] = {}
        for told in plan.pods:
            fits_here = told.why.reason is Reason.FITS_ON_EXISTING_NODE and not told.why.detail
            if fits_here or told.why.reason is Reason.NODE_GROUP_GROWS:
                continue
            said[f"pod {told.pods[0][0]}/{told.pods[0][1]}"] = str(told.why)
            if self._told.get(f"pod {told.pods[0][0]}/{told.pods[0][1]}") != str(told.why):
                log.info(
                    "pods wait",
                    why=told.why.reason.name,
                    text=str(told.why),
                    pods=len(told.pods),
                    first="/".join(told.pods[0]),
                    groups=told.groups,
                    plan=plan.id,
                )
        for name, why in plan.groups.items():
            quiet = why.reason in (Reason.NO_PENDING_POD, Reason.NOT_CHOSEN_BY_EXPANDER, Reason.NO_PENDING_POD_FITS)
            said[f"group {name}"] = why.reason.name
            if not quiet and self._told.get(f"group {name}") != why.reason.name:
                log.info("group stays", group=name, why=why.reason.name, text=str(why), plan=plan.id)
        for name, why in plan.nodes.items():
            said[f"node {name}"] = why.reason.name
            if self._told.get(f"node {name}") != why.reason.name:
                log.detail("node stays", node=name, why=why.reason.name, text=str(why), plan=plan.id)
        self._told = said

    # Events

    def _send_events(self, plan: Plan, outcomes: tuple[Outcome, ...]) -> None:
        pods = 0
        for each in announcements(plan, outcomes, self._config):
            pods += each.kind == "pod"
            if each.kind != "pod" or pods <= POD_EVENTS_MAX:
                self._recorder.record(self._subject(each), each.type, each.reason, each.message)

    def _subject(self, each: Announcement) -> Subject:
        match each.kind:
            case "pod":
                return Subject(kind="Pod", namespace=each.key[0], name=each.key[1], uid=self._uid_of("Pod", each.key))
            case "node":
                # The kubelet's own events carry the node's name as uid; kubectl describe node finds both.
                return Subject(kind="Node", name=each.key[1], uid=self._uid_of("Node", each.key))
        process = self._config.process
        return Subject(kind="ConfigMap", namespace=process.namespace, name=process.status_name)

    # The status ConfigMap

    async def prepare_status(self) -> str:
        """Write "Initializing" where nothing is yet; returns what an earlier leader kept for its successor.

        Raises:  KubeError.
        """
        process = self._config.process
        try:
            found = await self._client.get(CONFIGMAPS, process.namespace, process.status_name, ConfigMap)
        except KubeNotFound:
            if process.write_status:
                text = initializing(self._clock.now_ms(), self._config.compat)
                await self._create_status({"status": text})
            return ""
        self._note_status(found.annotations)
        return (found.data or {}).get(persist.KEY, "")

    async def _write_status(self, plan: Plan, memory: Memory) -> None:
        now_ms = plan.now_ms
        self._since = transitions(self._since, words(plan, memory), now_ms)
        data = {"status": render(plan, memory, self._since, self._config.compat), persist.KEY: persist.dump(memory)}
        process = self._config.process
        body = {"metadata": {"annotations": {ANNOTATION: go_time(now_ms)}}, "data": data}
        try:
            try:
                written = await self._changer.merge(CONFIGMAPS, process.namespace, process.status_name, body, ConfigMap)
                self._note_status(written.annotations)
            except KubeNotFound:
                await self._create_status(data)
            self._status_trouble = ""
        except KubeError as error:
            if str(error) != self._status_trouble:
                log.warning("the status ConfigMap cannot be written", error=str(error))
            self._status_trouble = str(error)

    async def _create_status(self, data: dict[str, str]) -> None:
        process = self._config.process
        meta = {"name": process.status_name, "annotations": {ANNOTATION: go_time(self._clock.now_ms())}}
        try:
            await self._client.create(CONFIGMAPS, process.namespace, {"metadata": meta, "data": data}, ConfigMap)
        except KubeConflict:
            return


def outcome_line(outcome: Outcome) -> tuple[str, dict[str, Any]]:
    """(message, facts) of an outcome's log line."""
    match outcome.action:
        case RaiseDesired(group=group, start=start, target=target, pods=pods, why=why):
            reached = outcome.reached if outcome.reached is not None else target
            return "scale up", {"group": group, "from": start, "to": reached, "pods": len(pods), "why": why}
        case MarkCandidate(node=node):
            return "mark unneeded", {"node": node}
        case UnmarkCandidate(node=node):
            return "unmark unneeded", {"node": node}
        case BeginRemoval(node=node, group=group, empty=empty, pods=pods, utilization=utilization):
            facts = {"node": node, "group": group, "empty": empty, "pods": len(pods)}
            return "begin removal", {**facts, "utilization": round(utilization, 3)}
        case RollBack(node=node, why=why):
            return "roll removal back", {"node": node, "why": why}
        case Evict(pod=pod, node=node, grace_s=grace_s):
            return "evict pod", {"pod": "/".join(pod), "node": node, "grace_s": grace_s}
        case Terminate(instance=instance, group=group, node=node, reason=reason):
            return "terminate instance", {"instance": instance, "group": group, "node": node, "reason": reason}


def journal_entry(snap: Snapshot, plan: Plan, outcomes: tuple[Outcome, ...]) -> dict[str, object]:
    """One entry of the journal: what was seen in short, the whole plan, and how each action went."""
    whole = {name: getattr(plan, name) for name in plan.__struct_fields__ if name not in ("memory", "id")}
    whole["pods"] = [
        {"pods": each.pods, "why": _said(each.why), "groups": each.groups, "peer_groups": each.peer_groups}
        for each in plan.pods
    ]
    whole["groups"] = {name: _said(why) for name, why in plan.groups.items()}
    whole["nodes"] = {name: _said(why) for name, why in plan.nodes.items()}
    whole["blocking"] = {
        name: {"pod": pod, "reason": reason.name, "text": reason.sentence}
        for name, (pod, reason) in plan.blocking.items()
    }
    return {
        "id": plan.id,
        "now_ms": plan.now_ms,
        "snapshot": {
            "nodes": len(snap.cluster.nodes.names),
            "pending_pods": sum(len(each.pods) for each in snap.cluster.pending),
            "groups": {each.name: {"desired": each.desired, "instances": len(each.instances)} for each in snap.groups},
            "rights": snap.rights,
            "paused": sorted(snap.paused),
        },
        "plan": whole,
        "outcomes": outcomes,
    }


def _said(why: Why) -> dict[str, str]:
    return {"reason": why.reason.name, "text": str(why)}
