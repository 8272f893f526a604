"""Which Auto Scaling Groups are ours: named ones, ones with wanted tags, or, with neither flag, Cluster Autoscaler's own tags.

It refuses to know: what a group is made of, how AWS is asked.  Invariant: pure; a group that is found and left alone has its Why; where
nothing tells whose the groups are, none is touched.
Source: cluster-autoscaler 1.36 cloudprovider/aws/auto_scaling_groups.go; differs: several flags are a union unless the peer's way is asked
for, and the tags alone suffice, as the EKS walk-through expects.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from nobiru.aws.answers import GroupAnswer
from nobiru.kernel.reason import Reason, Why

ENABLED = "k8s.io/cluster-autoscaler/enabled"
_CLUSTER_PREFIX = "k8s.io/cluster-autoscaler/"
_OWNED_PREFIX = "kubernetes.io/cluster/"
TagSpec = tuple[tuple[str, str | None], ...]  # (key, value), all of them; a value of None asks for the key only


class Chosen(Struct, frozen=True, kw_only=True):
    """The groups that are ours by name, those of others, and one line where nothing may be chosen at all.

    `undecided`: the groups' tags alone do not say which cluster this is; the groups of its nodes may.
    """

    names: frozenset[str] = frozenset()
    others: dict[str, Why] = {}
    problem: str = ""
    undecided: bool = False


def specs_to_ask(specs: Sequence[TagSpec], *, union: bool) -> tuple[TagSpec, ...]:
    """The questions that find the groups of several discovery flags: one each for a union, one merged for the peer's way.

    Merged, the last value of a doubled key wins, as in the peer.
    """
    if union or len(specs) < 2:
        return tuple(dict.fromkeys(specs))
    return (tuple({key: value for spec in specs for key, value in spec}.items()),)


def matches(spec: TagSpec, tags: Mapping[str, str]) -> bool:
    """Whether the tags have all that the spec asks for."""
    return all(key in tags and (value is None or tags[key] == value) for key, value in spec)


def by_specs(groups: Iterable[GroupAnswer], specs: Sequence[TagSpec]) -> Chosen:
    """The groups that match any of the asked specs (`specs_to_ask`)."""
    names = frozenset(group.name for group in groups if any(matches(spec, group.tag_table) for spec in specs))
    problem = "" if names else "no Auto Scaling Group has the tags of --node-group-auto-discovery: tag the groups"
    return Chosen(names=names, problem=problem)


def cluster_names(tags: Mapping[str, str]) -> frozenset[str]:
    """The clusters that a group's tags name: k8s.io/cluster-autoscaler/<name>."""
    names = {key.removeprefix(_CLUSTER_PREFIX) for key in tags if key.startswith(_CLUSTER_PREFIX)}
    return frozenset(name for name in names if name not in ("", "enabled") and "/" not in name)


def owner_names(groups: Iterable[GroupAnswer]) -> frozenset[str]:
    """The clusters that groups of known nodes name, by either tag: k8s.io/cluster-autoscaler/<name>, kubernetes.io/cluster/<name>."""
    found: set[str] = set()
    for group in groups:
        tags = group.tag_table
        found |= cluster_names(tags)
        found |= {key.removeprefix(_OWNED_PREFIX) for key in tags if key.startswith(_OWNED_PREFIX)}
    return frozenset(found - {""})


def by_own_tags(
    groups: Iterable[GroupAnswer],
    *,
    cluster_name: str,
    node_instances: Collection[str],
    owners: frozenset[str] = frozenset(),
) -> Chosen:
    """The enabled groups of this cluster.

    Which cluster this is: --cluster-name, else the name whose groups have this cluster's nodes, else the name among `owners`
    (the clusters that the groups of its nodes name, enabled or not), else the only name there is.
    Groups that name no cluster belong to whoever finds them; one with the value "false" is not enabled.
    """
    enabled = [group for group in groups if group.tag_table.get(ENABLED, "false").lower() != "false"]
    if not enabled:
        text = (
            f"no Auto Scaling Group is tagged {ENABLED}: tag the groups, or give --nodes or --node-group-auto-discovery"
        )
        return Chosen(problem=text)
    named = {group.name: cluster_names(group.tag_table) for group in enabled}
    everything: frozenset[str] = frozenset().union(*named.values())
    sure = frozenset({cluster_name}) if cluster_name else _names_with_nodes(enabled, named, node_instances)
    own = sure or _own_names(everything, owners)
    if everything and not own:
        return Chosen(problem=_nobody_tells(everything, owners), undecided=not owners)
    ours = frozenset(group for group, names in named.items() if not names or names & own)
    others = {
        group: Why(reason=Reason.OTHER_CLUSTER, detail=", ".join(sorted(named[group])))
        for group in sorted(named.keys() - ours)
    }
    problem = "" if ours else f"no tagged Auto Scaling Group belongs to this cluster ({', '.join(sorted(own))})"
    return Chosen(names=ours, others=others, problem=problem, undecided=bool(everything) and not sure and not owners)


def _names_with_nodes(
    enabled: Sequence[GroupAnswer], named: Mapping[str, frozenset[str]], node_instances: Collection[str]
) -> frozenset[str]:
    """The names whose groups have this cluster's nodes.

    A group that names two clusters does not say which of them its node is of; a group that names one does.
    """
    here = (group for group in enabled if any(each.instance_id in node_instances for each in group.instances))
    return frozenset().union(*(named[group.name] for group in here if len(named[group.name]) == 1))


def _own_names(everything: frozenset[str], owners: frozenset[str]) -> frozenset[str]:
    """The name of this cluster as the groups of its nodes tell, else the only one there is; empty where nothing tells."""
    told = everything & owners
    if told:
        return told if len(told) == 1 else frozenset()
    return everything if len(everything) == 1 and not owners else frozenset()


def _nobody_tells(everything: frozenset[str], owners: frozenset[str]) -> str:
    names = ", ".join(sorted(everything))
    if owners and not owners & everything:
        here = ", ".join(sorted(owners))
        return f"the tagged groups belong to cluster {names}, this cluster's machines to {here}: give --cluster-name"
    return f"the tagged groups belong to several clusters ({names}) and nothing tells which is this one: give --cluster-name"
