"""Which Auto Scaling Groups are ours: named ones, ones with wanted tags, or, with neither flag, Cluster Autoscaler's own tags.

It refuses to know: what a group is made of.  Invariant: pure; a group that is left alone has its Why.
Source: cluster-autoscaler 1.36 aws auto_scaling_groups.go; union of several flags and the tags without a flag are ours.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from nobiru.kernel.reason import Reason, Why

ENABLED = "k8s.io/cluster-autoscaler/enabled"
_CLUSTER_PREFIX = "k8s.io/cluster-autoscaler/"
Answer = Mapping[str, Any]
TagSpec = tuple[tuple[str, str | None], ...]


class Chosen(Struct, frozen=True, kw_only=True):
    """The groups that are ours by name, those of others, and one line where nothing may be chosen at all."""

    names: frozenset[str]
    others: dict[str, Why] = {}
    problem: str = ""


def tags_of(group: Answer) -> dict[str, str]:
    """A group's tags as a dict."""
    return {tag["Key"]: tag.get("Value", "") for tag in group.get("Tags") or []}


def matches(spec: TagSpec, tags: Mapping[str, str]) -> bool:
    """Whether the group's tags have all that the spec asks for."""
    return all(key in tags and (value is None or tags[key] == value) for key, value in spec)


def by_specs(groups: Sequence[Answer], specs: Sequence[TagSpec], *, union: bool) -> Chosen:
    """The groups that match any of the specs, or (union=False, as the peer has it) all of them merged."""
    merged: TagSpec = tuple({key: value for spec in specs for key, value in spec}.items())
    wanted = specs if union else [merged]
    names = {group["AutoScalingGroupName"] for group in groups if any(matches(spec, tags_of(group)) for spec in wanted)}
    problem = "" if names else "no Auto Scaling Group has the tags of --node-group-auto-discovery"
    return Chosen(names=frozenset(names), problem=problem)


def cluster_names(tags: Mapping[str, str]) -> frozenset[str]:
    """The clusters that a group's tags name: k8s.io/cluster-autoscaler/<name>."""
    names = {key.removeprefix(_CLUSTER_PREFIX) for key in tags if key.startswith(_CLUSTER_PREFIX)}
    return frozenset(name for name in names if name and name != "enabled" and "/" not in name)


def by_own_tags(groups: Sequence[Answer], *, cluster_name: str, node_instances: Collection[str]) -> Chosen:
    """The enabled groups of this cluster.

    Which cluster this is: --cluster-name, else the one name whose groups own this cluster's nodes, else the only name
    there is.  Groups that name no cluster belong to whoever finds them.
    """
    enabled = [group for group in groups if ENABLED in tags_of(group)]
    if not enabled:
        return Chosen(
            names=frozenset(),
            problem=f"no Auto Scaling Group is tagged {ENABLED}: tag the groups, or give --nodes or --node-group-auto-discovery",
        )
    named = {group["AutoScalingGroupName"]: cluster_names(tags_of(group)) for group in enabled}
    all_names = frozenset().union(*named.values())
    own, problem = _own_name(enabled, named, all_names, cluster_name, node_instances)
    if problem:
        return Chosen(names=frozenset(), problem=problem)
    ours = {group for group, names in named.items() if not names or own in names}
    others = {
        group: Why(reason=Reason.OTHER_CLUSTER, detail=", ".join(sorted(named[group])))
        for group in sorted(named)
        if group not in ours
    }
    return Chosen(names=frozenset(ours), others=others)


def _own_name(
    enabled: Sequence[Answer],
    named: Mapping[str, frozenset[str]],
    all_names: frozenset[str],
    cluster_name: str,
    node_instances: Collection[str],
) -> tuple[str, str]:
    """(our cluster's name, "") or ("", why nobody can tell)."""
    if cluster_name:
        return cluster_name, ""
    owning = {
        name
        for group in enabled
        if any(each["InstanceId"] in node_instances for each in group.get("Instances") or [])
        for name in named[group["AutoScalingGroupName"]]
    }
    candidates = owning or all_names
    if len(candidates) > 1:
        names = ", ".join(sorted(candidates))
        return (
            "",
            f"tagged groups name several clusters ({names}) and none can be told to be this one: give --cluster-name",
        )
    return next(iter(candidates), ""), ""
