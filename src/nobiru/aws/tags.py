"""What an Auto Scaling Group's tags say of its new nodes: labels, taints, resources.

It refuses to know: options of the same prefix that concern the plan (`autoscaling-options/`).
Invariant: prefixes are exact; a tag that says nothing usable is a warning that names it, never silence.
Source: cluster-autoscaler 1.36 cloudprovider/aws/aws_manager.go; differs: there a prefix may stand
anywhere in a key, and bad values are dropped.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

from nobiru.kernel.errors import QuantityError
from nobiru.kernel.objects import Taint
from nobiru.kernel.quantity import resource_amount

PREFIX = "k8s.io/cluster-autoscaler/node-template/"
OPTIONS = "autoscaling-options"
_TAINT = re.compile(r"([^:]*):(NoSchedule|PreferNoSchedule|NoExecute)")
# A label's or taint's key and value.  Source: apimachinery util/validation, IsQualifiedName and IsValidLabelValue.
_WORD = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:[a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_WORD}")
_VALUE = re.compile(rf"(?:{_WORD})?")
# What EKS itself puts on nodes of a managed group whose Auto Scaling Group carries the tag.
_EKS_GROUP_TAG, _EKS_GROUP_LABEL = "eks:nodegroup-name", "eks.amazonaws.com/nodegroup"
EKS_TAGS = ("eks:cluster-name", _EKS_GROUP_TAG)


class TagFacts(Struct, frozen=True, kw_only=True):
    """What the tags say.  Units: resources as `kernel.quantity.resource_amount`."""

    labels: dict[str, str]
    taints: tuple[Taint, ...]
    resources: dict[str, int]
    warnings: tuple[str, ...]


def read_tags(tags: Mapping[str, str]) -> TagFacts:
    """Everything that the node-template tags say.

    Order:   all by tag key.
    """
    labels: dict[str, str] = {}
    taints: list[Taint] = []
    resources: dict[str, int] = {}
    warnings: list[str] = []
    if tags.get(_EKS_GROUP_TAG):
        labels[_EKS_GROUP_LABEL] = tags[_EKS_GROUP_TAG]
    for key in sorted(tags):
        if not key.startswith(PREFIX):
            continue
        kind, _, name = key.removeprefix(PREFIX).partition("/")
        match kind:
            case "label":
                problem = _label_problem(name, tags[key])
                if not problem:
                    labels[name] = tags[key]
            case "taint":
                found = _TAINT.fullmatch(tags[key])
                problem = _taint_problem(name, found)
                if found and not problem:
                    taints.append(Taint(key=name, value=found[1], effect=found[2]))
            case "resources":
                problem = _resource_problem(name, tags[key])
                if not problem:
                    resources[name] = resource_amount(name, tags[key])
            case "autoscaling-options":
                problem = ""
            case _:
                problem = "node-template tags are label/, taint/, resources/ and autoscaling-options/"
        if problem:
            warnings.append(f'tag {key} with value "{tags[key]}" is ignored: {problem}')
    return TagFacts(labels=labels, taints=tuple(taints), resources=resources, warnings=tuple(warnings))


def _label_problem(name: str, value: str) -> str:
    if not _KEY.fullmatch(name):
        return f'"{name}" can be no label\'s key'
    if _TAINT.fullmatch(value):
        return "that looks like a taint, whose tag is node-template/taint/<key>"
    return "" if _VALUE.fullmatch(value) else "no label can have that value"


def _taint_problem(name: str, found: re.Match[str] | None) -> str:
    if not _KEY.fullmatch(name):
        return f'"{name}" can be no taint\'s key'
    if found is None:
        return "a taint is <value>:NoSchedule, <value>:PreferNoSchedule or <value>:NoExecute"
    return "" if _VALUE.fullmatch(found[1]) else f'no taint can have the value "{found[1]}"'


def _resource_problem(name: str, text: str) -> str:
    if not _KEY.fullmatch(name):
        return f'"{name}" can be no resource\'s name'
    try:
        amount = resource_amount(name, text)
    except QuantityError as error:
        return str(error)
    return "an amount cannot be negative" if amount < 0 else ""


def identity_tags(tags: Mapping[str, str]) -> list[tuple[str, str]]:
    """The tags that change what a new node is, by key."""
    options = f"{PREFIX}{OPTIONS}/"
    return sorted(
        (key, value)
        for key, value in tags.items()
        if (key.startswith(PREFIX) and not key.startswith(options)) or key in EKS_TAGS
    )
