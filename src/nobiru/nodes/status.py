"""The text of the status ConfigMap, as people and tools know it from Cluster Autoscaler: YAML, or the old prose.

Pure: a Plan and the previous transitions in, a text out.
Source: cluster-autoscaler 1.36 clusterstate/api (YAML since 1.30), 1.2 clusterstate/utils/status.go (prose).
"""

from datetime import UTC, datetime

import yaml

from nobiru.nodes.model import Backoff, GroupReport, Memory, Plan, Value

ANNOTATION = "cluster-autoscaler.kubernetes.io/last-updated"
YAML_SINCE = (1, 30)


class Transition(Value, frozen=True, kw_only=True):
    """A state word and since when it holds."""

    word: str
    since_ms: int


Transitions = dict[str, Transition]


def go_time(moment_ms: int) -> str:
    """A moment as Go's layout "2006-01-02 15:04:05.999999999 -0700 MST" prints it: no trailing zeros."""
    moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    fraction = f".{moment.microsecond:06d}".rstrip("0").rstrip(".")
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"


def _rfc3339(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def words(plan: Plan, memory: Memory) -> dict[str, str]:
    """Every state word of the plan: {"cluster/health": "Healthy", "group/a/scaleUp": "Backoff"}."""
    reports = plan.reports
    result = {
        "cluster/health": "Healthy" if plan.healthy else "Unhealthy",
        "cluster/scaleUp": "InProgress" if any(each.scaling_up for each in reports) else "NoActivity",
        "cluster/scaleDown": "CandidatesPresent" if plan.unneeded else "NoCandidates",
    }
    for each in reports:
        result[f"group/{each.name}/health"] = "Healthy" if each.healthy else "Unhealthy"
        result[f"group/{each.name}/scaleUp"] = _scale_up_word(each, memory.backoff.get(each.name), plan.now_ms)
        result[f"group/{each.name}/scaleDown"] = "CandidatesPresent" if each.candidates else "NoCandidates"
    return result


def _scale_up_word(report: GroupReport, backoff: Backoff | None, now_ms: int) -> str:
    if backoff is not None and now_ms < backoff.until_ms:
        return "Backoff"
    if not report.healthy:
        return "Unhealthy"
    return "InProgress" if report.scaling_up else "NoActivity"


def transitions(before: Transitions, now_words: dict[str, str], now_ms: int) -> Transitions:
    """Since when each word holds."""
    return {
        name: before[name] if name in before and before[name].word == word else Transition(word=word, since_ms=now_ms)
        for name, word in now_words.items()
    }


def render(plan: Plan, memory: Memory, since: Transitions, compat: tuple[int, int]) -> str:
    """The text for key `status`."""
    return _yaml(plan, memory, since) if compat >= YAML_SINCE else _prose(plan, since)


def initializing(now_ms: int, compat: tuple[int, int]) -> str:
    """The text before the first plan."""
    if compat < YAML_SINCE:
        return "Initializing"
    return yaml.safe_dump({"time": go_time(now_ms), "autoscalerStatus": "Initializing"}, sort_keys=False)


def _totals(plan: Plan) -> GroupReport:
    names = ("ready", "unready", "not_started", "unregistered", "long_unregistered", "being_deleted", "target")
    sums = {name: sum(getattr(each, name) for each in plan.reports) for name in names}
    return GroupReport(name="", min_size=0, max_size=0, candidates=len(plan.unneeded), **sums)


def _health(report: GroupReport, key: str, since: Transitions, now_ms: int, extra: dict[str, int]) -> dict[str, object]:
    registered = report.ready + report.unready + report.not_started
    return {
        "status": since[f"{key}/health"].word,
        "nodeCounts": {
            "registered": {
                "total": registered + report.being_deleted,
                "ready": report.ready,
                "notStarted": report.not_started,
                "beingDeleted": report.being_deleted,
                "unready": {"total": report.unready, "resourceUnready": 0},
            },
            "longUnregistered": report.long_unregistered,
            "unregistered": report.unregistered,
        },
        **extra,
        **_times(f"{key}/health", since, now_ms),
    }


def _times(key: str, since: Transitions, now_ms: int) -> dict[str, str]:
    return {"lastProbeTime": _rfc3339(now_ms), "lastTransitionTime": _rfc3339(since[key].since_ms)}


def _activity(key: str, since: Transitions, now_ms: int, extra: dict[str, object]) -> dict[str, object]:
    return {"status": since[key].word, **extra, **_times(key, since, now_ms)}


def _yaml(plan: Plan, memory: Memory, since: Transitions) -> str:
    now_ms, total = plan.now_ms, _totals(plan)
    down = {"candidates": total.candidates} if total.candidates else {}
    groups = []
    for each in plan.reports:
        key = f"group/{each.name}"
        backoff = memory.backoff.get(each.name)
        info = {"errorCode": backoff.code, "errorMessage": backoff.message} if backoff else {}
        resting = {"backoffInfo": info} if since[f"{key}/scaleUp"].word == "Backoff" else {}
        sizes = {"cloudProviderTarget": each.target, "minSize": each.min_size, "maxSize": each.max_size}
        groups.append(
            {
                "name": each.name,
                "health": _health(each, key, since, now_ms, sizes),
                "scaleUp": _activity(f"{key}/scaleUp", since, now_ms, dict(resting)),
                "scaleDown": _activity(
                    f"{key}/scaleDown", since, now_ms, {"candidates": each.candidates} if each.candidates else {}
                ),
            }
        )
    document = {
        "time": go_time(now_ms),
        "autoscalerStatus": "Running",
        "clusterWide": {
            "health": _health(total, "cluster", since, now_ms, {}),
            "scaleUp": _activity("cluster/scaleUp", since, now_ms, {}),
            "scaleDown": _activity("cluster/scaleDown", since, now_ms, dict(down)),
        },
        "nodeGroups": groups,
    }
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=10_000)


def _prose(plan: Plan, since: Transitions) -> str:
    now_ms, total = plan.now_ms, _totals(plan)
    lines = [f"Cluster-autoscaler status at {go_time(now_ms)}:", "Cluster-wide:"]
    lines += _prose_block(total, "cluster", since, now_ms, "")
    if plan.reports:
        lines += ["", "NodeGroups:"]
    for each in plan.reports:
        sizes = f" cloudProviderTarget={each.target} (minSize={each.min_size}, maxSize={each.max_size})"
        lines.append(f"  Name:        {each.name}")
        lines += [*_prose_block(each, f"group/{each.name}", since, now_ms, sizes), ""]
    return "\n".join(lines) + "\n"


def _prose_block(report: GroupReport, key: str, since: Transitions, now_ms: int, sizes: str) -> list[str]:
    registered = report.ready + report.unready + report.not_started + report.being_deleted
    target = f" cloudProviderTarget={report.target}" if sizes else f" registered={registered}"
    facts = {
        "Health": f"ready={report.ready} unready={report.unready} notStarted={report.not_started} longNotStarted=0"
        f" registered={registered} longUnregistered={report.long_unregistered}{sizes}",
        "ScaleUp": f"ready={report.ready}{target}",
        "ScaleDown": f"candidates={report.candidates}",
    }
    names = {"Health": "health", "ScaleUp": "scaleUp", "ScaleDown": "scaleDown"}
    lines = []
    for title, numbers in facts.items():
        transition = since[f"{key}/{names[title]}"]
        lines += [
            f"  {title + ':':<12} {transition.word} ({numbers})",
            f"               LastProbeTime:      {go_time(now_ms)}",
            f"               LastTransitionTime: {go_time(transition.since_ms)}",
        ]
    return lines
