"""Which instance and group a node belongs to, by its provider id.

Invariant: a node without a usable provider id is a plain unmanaged node, never an error.
Source: cluster-autoscaler 1.36 cloudprovider/aws: aws:///<zone>/<instance id>, a third segment is Fargate.
"""

import re
from collections.abc import Iterable

from nobiru.kernel.cloud import GroupName, Instance, NodeGroup

_PROVIDER_ID = re.compile(r"aws:///[-0-9a-z]*/(i-[-0-9a-zA-Z]+)")
STANDBY = ("Standby", "EnteringStandby", "Warmed")
UNMANAGED_ANNOTATION = "k8s.io/cluster-autoscaler-enabled"


def instance_id(provider_id: str) -> str:
    """The EC2 instance id in a provider id; "" for Fargate, other clouds, and nodes without one."""
    match = _PROVIDER_ID.fullmatch(provider_id)
    return match[1] if match else ""


def beside_desired(instance: Instance) -> bool:
    """Whether the group lists the machine beside its desired capacity: ending it with a decrement would cost another one."""
    return instance.lifecycle.startswith(STANDBY)


def owners(groups: Iterable[NodeGroup]) -> dict[str, GroupName]:
    """The group of each listed instance that its desired capacity counts; one on standby is its owner's own affair."""
    return {each.id: group.name for group in groups for each in group.instances if not beside_desired(each)}
