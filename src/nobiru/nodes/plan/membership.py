"""Which instance and group a node belongs to, by its provider id.

Invariant: a node without a usable provider id is a plain unmanaged node, never an error.
Source: cluster-autoscaler 1.36 cloudprovider/aws: aws:///<zone>/<instance id>, a third segment is Fargate.
"""

import re
from collections.abc import Iterable

from nobiru.kernel.cloud import GroupName, NodeGroup

_PROVIDER_ID = re.compile(r"aws:///[-0-9a-z]*/(i-[-0-9a-zA-Z]+)")
UNMANAGED_ANNOTATION = "k8s.io/cluster-autoscaler-enabled"


def instance_id(provider_id: str) -> str:
    """The EC2 instance id in a provider id; "" for Fargate, other clouds, and nodes without one."""
    match = _PROVIDER_ID.fullmatch(provider_id)
    return match[1] if match else ""


def owners(groups: Iterable[NodeGroup]) -> dict[str, GroupName]:
    """The group of each listed instance."""
    return {instance.id: group.name for group in groups for instance in group.instances}
