"""What an Auto Scaling Group's tags say of its nodes: labels, taints, resources.

Invariant: exact prefixes; a tag that says nothing usable is a warning that names it, never silence.
Source: cluster-autoscaler 1.36 cloudprovider/aws/aws_manager.go; differs: taint values must match as a whole.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

from nobiru.kernel.errors import QuantityError
from nobiru.kernel.objects import Taint
from nobiru.kernel.quantity import resource_amount

PREFIX = "k8s.io/cluster-autoscaler/node-template/"
_TAINT_VALUE = re.compile(r"(.*):(NoSchedule|NoExecute|PreferNoSchedule)")
_EKS_LABELS = {
    "eks:cluster-name": "alpha.eksctl.io/cluster-name",
    "eks:nodegroup-name": "eks.amazonaws.com/nodegroup",
}


class TagFacts(Struct, frozen=True, kw_only=True):
    """Labels, taints and resources from tags; resources in `kernel.quantity` units."""

    labels: dict[str, str]
    taints: tuple[Taint, ...]
    resources: dict[str, int]
    warnings: tuple[str, ...]


def read_tags(tags: Mapping[str, str]) -> TagFacts:
    """Everything the node-template tags say.

    Order: taints and warnings by tag key.
    """
    labels: dict[str, str] = {}
    taints: list[Taint] = []
    resources: dict[str, int] = {}
    warnings: list[str] = []
    for key in sorted(tags):
        value = tags[key]
        if key in _EKS_LABELS:
            labels[_EKS_LABELS[key]] = value
            continue
        if not key.startswith(PREFIX):
            continue
        what, _, name = key.removeprefix(PREFIX).partition("/")
        if what == "label" and name:
            labels[name] = value
        elif what == "taint" and name:
            match = _TAINT_VALUE.fullmatch(value)
            if match is None:
                warnings.append(
                    f'tag {key}="{value}" is no taint: use value:NoSchedule, value:NoExecute or value:PreferNoSchedule'
                )
            else:
                taints.append(Taint(key=name, value=match[1], effect=match[2]))
        elif what == "resources" and name:
            try:
                resources[name] = resource_amount(name, value)
            except QuantityError as error:
                warnings.append(f"tag {key}: {error}")
        elif what != "autoscaling-options":
            warnings.append(
                f"tag {key} is not understood: node-template tags are label/, taint/, resources/, autoscaling-options/"
            )
    return TagFacts(labels=labels, taints=tuple(taints), resources=resources, warnings=tuple(warnings))
