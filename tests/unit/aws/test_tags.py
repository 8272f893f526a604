"""Tags of an Auto Scaling Group as labels, taints and resources; what is not usable is said, not dropped."""

import pytest
from msgspec import Struct

from nobiru.aws.tags import identity_tags, read_tags
from nobiru.kernel.objects import Taint
from tests.unit.aws.builders import NODE_TEMPLATE

LABEL, TAINT, RESOURCE = f"{NODE_TEMPLATE}label/", f"{NODE_TEMPLATE}taint/", f"{NODE_TEMPLATE}resources/"


class Case(Struct, frozen=True, kw_only=True):
    """One tag, and what it says."""

    name: str
    key: str
    value: str
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    resources: dict[str, int] = {}
    warning: str = ""  # a part of the only warning


CASES = [
    Case(
        name="the walk-through's label",
        key=f"{LABEL}node-role.kubernetes.io/compute",
        value="true",
        labels={"node-role.kubernetes.io/compute": "true"},
    ),
    Case(name="a label without a value", key=f"{LABEL}team", value="", labels={"team": ""}),
    Case(name="no label's key", key=LABEL, value="x", warning='"" can be no label\'s key'),
    Case(name="no label's value", key=f"{LABEL}team", value="a b", warning="no label can have that value"),
    Case(
        name="a taint under label (report B18)",
        key=f"{LABEL}restrict",
        value="monitoring-only:NoSchedule",
        warning="that looks like a taint",
    ),
    Case(
        name="a taint (report B18)",
        key=f"{TAINT}restrict",
        value="monitoring-only:NoSchedule",
        taints=(Taint(key="restrict", value="monitoring-only", effect="NoSchedule"),),
    ),
    Case(
        name="a taint without a value",
        key=f"{TAINT}dedicated",
        value=":NoExecute",
        taints=(Taint(key="dedicated", value="", effect="NoExecute"),),
    ),
    Case(
        name="a taint that prefers",
        key=f"{TAINT}example.com/slow",
        value="yes:PreferNoSchedule",
        taints=(Taint(key="example.com/slow", value="yes", effect="PreferNoSchedule"),),
    ),
    Case(
        name="a taint without an effect (report B17)",
        key=f"{TAINT}nvidia.com/gpu",
        value="true",
        warning="k8s.io/cluster-autoscaler/node-template/taint/nvidia.com/gpu",
    ),
    Case(name="an unknown effect", key=f"{TAINT}a", value="b:NoScheduling", warning="a taint is <value>:NoSchedule"),
    Case(name="an effect with a tail", key=f"{TAINT}a", value="b:NoSchedule:x", warning="a taint is <value>"),
    Case(name="no taint's value", key=f"{TAINT}a", value="b c:NoSchedule", warning='the value "b c"'),
    Case(name="memory", key=f"{RESOURCE}memory", value="7Gi", resources={"memory": 7 * 2**30}),
    Case(name="cpu", key=f"{RESOURCE}cpu", value="1500m", resources={"cpu": 1500}),
    Case(
        name="an extended resource",
        key=f"{RESOURCE}smarter-devices/fuse",
        value="20",
        resources={"smarter-devices/fuse": 20},
    ),
    Case(name="no quantity", key=f"{RESOURCE}memory", value="much", warning='invalid quantity "much"'),
    Case(name="a negative amount", key=f"{RESOURCE}cpu", value="-1", warning="cannot be negative"),
    Case(name="an option of the plan's", key=f"{NODE_TEMPLATE}autoscaling-options/x", value="y"),
    Case(
        name="a word nobody knows", key=f"{NODE_TEMPLATE}labels/x", value="y", warning="node-template tags are label/"
    ),
    Case(name="the prefix in the middle", key=f"my/{LABEL}x", value="y"),
    Case(name="EKS's word in the middle", key="aws:eks:nodegroup-name", value="y"),
    Case(name="EKS's own tag", key="eks:nodegroup-name", value="ng-1", labels={"eks.amazonaws.com/nodegroup": "ng-1"}),
    Case(name="another tag", key="Name", value="web"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_read_tags(case: Case) -> None:
    """Exact prefixes, strict values; a tag that says nothing usable is warned of by name."""
    got = read_tags({case.key: case.value})

    assert (got.labels, got.taints, got.resources) == (case.labels, case.taints, case.resources)
    assert len(got.warnings) == (1 if case.warning else 0)
    if case.warning:
        assert case.warning in got.warnings[0]
        assert f"tag {case.key} " in got.warnings[0]


def test_order_is_by_key() -> None:
    """Equal tags in any order say the same."""
    tags = {f"{TAINT}b": "x:NoSchedule", f"{TAINT}a": "x:NoSchedule", f"{RESOURCE}cpu": "?", f"{LABEL}z": "a:b"}

    assert read_tags(tags) == read_tags(dict(reversed(tags.items())))
    assert [taint.key for taint in read_tags(tags).taints] == ["a", "b"]


def test_identity_tags() -> None:
    """Only tags that change a node are part of what it is."""
    assert identity_tags({"Name": "web", f"{NODE_TEMPLATE}autoscaling-options/x": "1"}) == []
    assert len(identity_tags({f"{LABEL}a": "1", f"{TAINT}b": "1:NoSchedule", "eks:nodegroup-name": "x"})) == 3
