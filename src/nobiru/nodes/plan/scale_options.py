"""When a node may go: thresholds and times of its group, and the pauses after additions, removals and failures.

It refuses to know: nodes.  Invariant: a tag that cannot be read leaves the flag's value and is said.
Source: cluster-autoscaler 1.36 cloudprovider/aws GetOptions (tags), core/scaledown/planner, processors/scaledowncandidates.
"""

from collections.abc import Mapping
from typing import TypeVar

from msgspec import Struct

from nobiru.kernel.cloud import GroupName, NodeGroup
from nobiru.kernel.duration import format_duration, parse_duration
from nobiru.kernel.errors import DurationError
from nobiru.nodes.config import NodesConfig, ScaleDownConfig
from nobiru.nodes.model import Memory

OPTION_TAG = "k8s.io/cluster-autoscaler/node-template/autoscaling-options/"
# strconv.ParseBool, as Go reads flags and tags.
_BOOLS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
# Cluster Autoscaler 1.2 counted its pauses from the start of the process and blocked a node at the threshold itself.
_NO_PAUSE_AT_START = (1, 3)


Read = TypeVar("Read", float, int, bool)


class GroupOptions(Struct, frozen=True, kw_only=True):
    """When nodes of one group are unneeded, and for how long they must be."""

    utilization_threshold: float
    gpu_utilization_threshold: float
    unneeded_time_ms: int
    unready_time_ms: int
    ignore_daemonsets: bool

    def wait_ms(self, *, unready: bool) -> int:
        """How long a node must be unneeded before it goes."""
        return self.unready_time_ms if unready else self.unneeded_time_ms


def options_of_flags(flags: ScaleDownConfig) -> GroupOptions:
    """What holds for a group without tags."""
    return GroupOptions(
        utilization_threshold=flags.utilization_threshold,
        gpu_utilization_threshold=flags.gpu_utilization_threshold,
        unneeded_time_ms=flags.unneeded_time_ms,
        unready_time_ms=flags.unready_time_ms,
        ignore_daemonsets=flags.ignore_daemonsets_utilization,
    )


def options_of_group(group: NodeGroup, flags: GroupOptions) -> tuple[GroupOptions, tuple[str, ...]]:
    """(the group's options, one line per tag that cannot be read)."""
    if not any(key.startswith(OPTION_TAG) for key in group.tags):
        return flags, ()
    read = _TagReader(group)
    options = GroupOptions(
        utilization_threshold=read.ratio("scaledownutilizationthreshold", flags.utilization_threshold),
        gpu_utilization_threshold=read.ratio("scaledowngpuutilizationthreshold", flags.gpu_utilization_threshold),
        unneeded_time_ms=read.duration("scaledownunneededtime", flags.unneeded_time_ms),
        unready_time_ms=read.duration("scaledownunreadytime", flags.unready_time_ms),
        ignore_daemonsets=read.boolean("ignoredaemonsetsutilization", flags.ignore_daemonsets),
    )
    return options, tuple(read.notes)


class _TagReader:
    """Typed access to one group's option tags; lives for one call."""

    def __init__(self, group: NodeGroup) -> None:
        self.group = group
        self.notes: list[str] = []

    def ratio(self, key: str, default: float) -> float:
        text = self.group.tags.get(OPTION_TAG + key)
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        return value if 0.0 <= value < float("inf") else self._keep(key, text, "a number of 0 or more", default)

    def duration(self, key: str, default_ms: int) -> int:
        text = self.group.tags.get(OPTION_TAG + key)
        if text is None:
            return default_ms
        try:
            value_ms = parse_duration(text)
        except DurationError:
            value_ms = -1
        return value_ms if value_ms >= 0 else self._keep(key, text, "a duration such as 10m", default_ms)

    def boolean(self, key: str, default: bool) -> bool:
        text = self.group.tags.get(OPTION_TAG + key)
        if text is None:
            return default
        found = _BOOLS.get(text)
        return self._keep(key, text, "true or false", default) if found is None else found

    def _keep(self, key: str, text: str, want: str, default: Read) -> Read:
        self.notes.append(f'group {self.group.name}: tag {OPTION_TAG}{key} is "{text[:80]}", not {want}: ignored')
        return default


class Pause(Struct, frozen=True, kw_only=True):
    """Until when nothing is begun, and what it waits after."""

    until_ms: int
    after: str

    def text(self, now_ms: int) -> str:
        return f"{format_duration(max(0, self.until_ms - now_ms))} left after {self.after}"


class Pauses(Struct, frozen=True, kw_only=True):
    """The pauses that hold now: of everything, or per group with --scale-down-delay-type-local."""

    everywhere: Pause | None
    groups: Mapping[GroupName, Pause]

    def of(self, group: GroupName) -> Pause | None:
        """What the group's nodes wait for, if they do."""
        return self.groups.get(group, self.everywhere)


def pauses(
    memory: Memory, config: NodesConfig, groups: Mapping[GroupName, object], now_ms: int, *, scaled_up: bool
) -> Pauses:
    """The pauses that hold now; a scale-up in the very plan pauses all, since its end is not known yet."""
    flags = config.scale_down
    floor_ms = memory.started_ms if config.compat < _NO_PAUSE_AT_START else 0
    if scaled_up:
        # Even without a pause the plan does not grow and shrink at once.
        until_ms = now_ms + max(1, flags.delay_after_add_ms)
        return Pauses(everywhere=Pause(until_ms=until_ms, after="a scale-up"), groups={})
    if not flags.delay_type_local:
        last = (memory.last_scale_up_ms, memory.last_removal_ms, memory.last_removal_failure_ms)
        return Pauses(everywhere=_pause(last, flags, floor_ms, now_ms), groups={})
    local = {
        name: _pause(
            (
                memory.group_scale_up_ms.get(name, 0),
                memory.group_removal_ms.get(name, 0),
                memory.group_removal_failure_ms.get(name, 0),
            ),
            flags,
            floor_ms,
            now_ms,
        )
        for name in groups
    }
    return Pauses(everywhere=None, groups={name: pause for name, pause in local.items() if pause is not None})


def _pause(last: tuple[int, int, int], flags: ScaleDownConfig, floor_ms: int, now_ms: int) -> Pause | None:
    """The longest pause after (scale-up, removal, failed removal); a moment of 0 never was."""
    delays = (flags.delay_after_add_ms, flags.delay_after_delete_ms, flags.delay_after_failure_ms)
    words = ("a scale-up", "a removal", "a failed removal")
    holding = [
        Pause(until_ms=max(at_ms, floor_ms) + delay_ms, after=word if at_ms >= floor_ms and at_ms else "the start")
        for at_ms, delay_ms, word in zip(last, delays, words, strict=True)
        if max(at_ms, floor_ms) and max(at_ms, floor_ms) + delay_ms > now_ms
    ]
    return max(holding, key=lambda pause: pause.until_ms, default=None)
