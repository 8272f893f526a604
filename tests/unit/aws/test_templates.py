"""What a new machine of a group would be: from its launch configuration, template, policy, machines and tags."""

import pytest
from msgspec import Struct
from msgspec.structs import replace

from nobiru.aws.allocatable import Amounts, Family, estimate, least
from nobiru.aws.answers import GroupAnswer, LaunchConfigurationAnswer, RequirementsAnswer, TemplateVersionAnswer, read
from nobiru.aws.instance_types import bundled_types
from nobiru.aws.templates import (
    Launch,
    launch_by_configuration,
    launch_by_template,
    matching,
    node_template,
    weights_problem,
)
from nobiru.kernel.cloud import NodeTemplate
from nobiru.kernel.objects import Taint
from tests.unit.aws.builders import (
    LATEST,
    NODE_TEMPLATE,
    REGION,
    ZONE_A,
    ZONE_C,
    attributes,
    configuration,
    group,
    machine,
    mixed,
    version,
)

DENIED = "launch template workers version $Latest cannot be read: allow ec2:DescribeLaunchTemplateVersions"
TYPES = bundled_types()


def launch(
    of: GroupAnswer, read_: LaunchConfigurationAnswer | TemplateVersionAnswer | None = None, why: str = ""
) -> Launch:
    if of.launch_configuration_name:
        assert not isinstance(read_, TemplateVersionAnswer)
        return launch_by_configuration(of, read_, why)
    assert not isinstance(read_, LaunchConfigurationAnswer)
    return launch_by_template(of, read_, why)


def template(of: GroupAnswer, how: Launch, family: Family = "eks") -> NodeTemplate:
    got, problem = node_template(of, how, TYPES.get, region=REGION, family=family)
    assert got is not None, problem
    return got


class Case(Struct, frozen=True, kw_only=True):
    """A group, what could be read of how it starts machines, and the types and the source that follow."""

    name: str
    group: GroupAnswer
    read: LaunchConfigurationAnswer | TemplateVersionAnswer | None = None
    why: str = ""
    types: tuple[str, ...] = ()
    source: str = ""
    problem: str = ""


CASES = [
    Case(
        name="launch configuration",
        group=group(),
        read=configuration("c5.xlarge"),
        types=("c5.xlarge",),
        source="launch configuration lc",
    ),
    Case(
        name="a launch configuration that is gone, with machines",
        group=group(instances=[machine(type_="c5.large")]),
        why="launch configuration lc does not exist any more: give its group another one",
        types=("c5.large",),
        source="the group's machines (launch configuration lc does not exist any more: give its group another one)",
    ),
    Case(
        name="a launch configuration that is gone, without machines",
        group=group(),
        why="launch configuration lc does not exist any more",
        source="launch configuration lc",
        problem="launch configuration lc does not exist any more",
    ),
    Case(
        name="launch template",
        group=group(LaunchTemplate=LATEST),
        read=version(7, "m5.xlarge"),
        types=("m5.xlarge",),
        source="launch template workers version 7",
    ),
    Case(
        name="a launch template without a type",
        group=group(LaunchTemplate=LATEST),
        read=version(7, ""),
        source="launch template workers version 7",
        problem="launch template workers version 7 names no instance type: give it one, or name types in the group's overrides",
    ),
    Case(
        name="no right to read it, machines there",
        group=group(
            LaunchTemplate=LATEST, instances=[machine("i-1", type_="m5.large"), machine("i-2", type_="m5a.large")]
        ),
        why=DENIED,
        types=("m5.large", "m5a.large"),
        source=f"the group's machines ({DENIED})",
    ),
    Case(
        name="no right to read it, a tag names the type",
        group=group(LaunchTemplate=LATEST, tags={f"{NODE_TEMPLATE}label/node.kubernetes.io/instance-type": "r5.large"}),
        why=DENIED,
        types=("r5.large",),
        source=f"the group's tags ({DENIED})",
    ),
    Case(
        name="no right to read it, and nothing else",
        group=group(LaunchTemplate=LATEST),
        why=DENIED,
        source="launch template workers version $Latest",
        problem=DENIED,
    ),
    Case(
        name="overrides win over the template's type",
        group=group(MixedInstancesPolicy=mixed("m5.large", "m5a.large", "m5.large")),
        read=version(2, "t3.nano"),
        types=("m5.large", "m5a.large"),
        source="launch template workers version 2",
    ),
    Case(
        name="overrides need no right",
        group=group(MixedInstancesPolicy=mixed("m5.large", "m5a.large")),
        why=DENIED,
        types=("m5.large", "m5a.large"),
        source="the overrides of launch template workers version $Latest",
    ),
    Case(
        name="a policy without overrides takes the template's type",
        group=group(MixedInstancesPolicy=mixed()),
        read=version(2, "m5.large"),
        types=("m5.large",),
        source="launch template workers version 2",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_launch(case: Case) -> None:
    """Where a group's machines come from, most exact source first; without one, the line says what is missing."""
    got = launch(case.group, case.read, case.why)

    assert (got.types, got.source, got.problem) == (case.types, case.source, case.problem)


def test_labels_taints_and_resources() -> None:
    """Both generations of labels, one zone, the tags' own words last; resources of tags replace and add."""
    web = group(
        tags={
            f"{NODE_TEMPLATE}label/node-role.kubernetes.io/compute": "true",
            f"{NODE_TEMPLATE}label/beta.kubernetes.io/os": "windows",
            f"{NODE_TEMPLATE}taint/dedicated": "ci:NoSchedule",
            f"{NODE_TEMPLATE}resources/pods": "12",
            f"{NODE_TEMPLATE}resources/example.com/dongle": "4",
            f"{NODE_TEMPLATE}taint/bad": "NoSchedule",
        }
    )
    got = template(web, launch(web, configuration(root_gib=80)))
    plain = estimate(TYPES["m5.large"], "eks", 80)

    assert got.labels == {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/instance-type": "m5.large",
        "beta.kubernetes.io/os": "windows",
        "failure-domain.beta.kubernetes.io/region": REGION,
        "failure-domain.beta.kubernetes.io/zone": ZONE_A,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node-role.kubernetes.io/compute": "true",
        "node.kubernetes.io/instance-type": "m5.large",
        "topology.ebs.csi.aws.com/zone": ZONE_A,
        "topology.kubernetes.io/region": REGION,
        "topology.kubernetes.io/zone": ZONE_A,
    }
    assert got.taints == (Taint(key="dedicated", value="ci", effect="NoSchedule"),)
    assert got.allocatable == {**plain.allocatable, "pods": 12, "example.com/dongle": 4}
    assert got.capacity == {**plain.capacity, "pods": 12, "example.com/dongle": 4}
    assert len(got.warnings) == 1
    assert f"{NODE_TEMPLATE}taint/bad" in got.warnings[0]


def test_several_zones_give_no_zone_label() -> None:
    """A group over several zones cannot say where its next machine comes up; the region it can, even in a Local Zone."""
    wide = group(zones=[ZONE_C, ZONE_A])
    got = template(wide, launch(wide, configuration()))

    assert got.zones == (ZONE_A, ZONE_C)
    assert not [key for key in got.labels if "zone" in key]
    assert got.labels["topology.kubernetes.io/region"] == REGION


def test_mixed_group_promises_the_least() -> None:
    """Of several types the least of each resource counts, and no type label is given (report: mixed instance types)."""
    both = group(MixedInstancesPolicy=mixed("m5.large", "c5.xlarge"))
    got = template(both, launch(both, None, DENIED))
    want = least([estimate(TYPES["m5.large"], "eks"), estimate(TYPES["c5.xlarge"], "eks")])

    assert Amounts(capacity=got.capacity, allocatable=got.allocatable) == want
    assert got.allocatable["cpu"] == 1930
    assert got.instance_type == ""
    assert not [key for key in got.labels if "instance-type" in key]
    assert got.labels["kubernetes.io/arch"] == "amd64"


def test_mixed_architectures() -> None:
    """Types of two architectures give no arch label, and a line says how to tell; a tag does."""
    both = group(MixedInstancesPolicy=mixed("m5.large", "m6g.large"))
    got = template(both, launch(both, None, DENIED))
    assert "kubernetes.io/arch" not in got.labels
    assert "amd64, arm64" in got.warnings[0]

    tagged = replace(both, tags=group(tags={f"{NODE_TEMPLATE}label/kubernetes.io/arch": "arm64"}).tags)
    got = template(tagged, launch(tagged, None, DENIED))
    assert got.labels["kubernetes.io/arch"] == "arm64"
    assert got.warnings == ()


def test_eks_tags_say_the_family() -> None:
    """A managed node group is EKS's, whatever other nodes the cluster has."""
    managed = group(tags={"eks:cluster-name": "c", "eks:nodegroup-name": "ng"})
    got = template(managed, launch(managed, configuration()), "unknown")

    assert got.allocatable == estimate(TYPES["m5.large"], "eks").allocatable
    assert got.labels["eks.amazonaws.com/nodegroup"] == "ng"


def test_gpu_types() -> None:
    """A GPU type's devices are on the node before any plugin says so (report B17)."""
    gpu = group()
    assert template(gpu, launch(gpu, configuration("p2.xlarge"))).allocatable["nvidia.com/gpu"] == 1


def test_unknown_type() -> None:
    """A type that nobody knows: one line that says what to do; tags with cpu and memory suffice; beside known ones it is left out."""
    new = group()
    got, problem = node_template(new, launch(new, configuration("m99.large")), TYPES.get, region=REGION, family="eks")
    assert got is None
    assert problem.startswith(
        "instance type m99.large is not in nobiru's table: allow ec2:DescribeInstanceTypes, or say"
    )

    told = group(tags={f"{NODE_TEMPLATE}resources/cpu": "2", f"{NODE_TEMPLATE}resources/memory": "8Gi"})
    told_template = template(told, launch(told, configuration("m99.large")))
    assert told_template.allocatable["cpu"] == 2000
    assert 1 < told_template.allocatable["pods"] <= 29
    assert told_template.instance_type == "m99.large"

    beside = group(MixedInstancesPolicy=mixed("m5.large", "m99.large"))
    got = template(beside, launch(beside, None, DENIED))
    assert got.warnings == ("instance type m99.large is not in nobiru's table and left out",)
    assert got.instance_type == ""


IDENTITY = [
    ("nothing", group(LaunchTemplate=LATEST), version(3), True),
    ("sizes and machines", group(LaunchTemplate=LATEST, sizes=(1, 2, 9), instances=[machine()]), version(3), True),
    ("another tag", group(LaunchTemplate=LATEST, tags={"Name": "web"}), version(3), True),
    ("a new version", group(LaunchTemplate=LATEST), version(4), False),
    ("another type (report B20)", group(LaunchTemplate=LATEST), version(3, "c5.4xlarge"), False),
    ("another image", group(LaunchTemplate=LATEST), version(3, image="ami-2"), False),
    ("a label", group(LaunchTemplate=LATEST, tags={f"{NODE_TEMPLATE}label/a": "b"}), version(3), False),
    (
        "a taint (report B20)",
        group(LaunchTemplate=LATEST, tags={f"{NODE_TEMPLATE}taint/a": "b:NoSchedule"}),
        version(3),
        False,
    ),
]


@pytest.mark.parametrize(("name", "changed", "its", "same"), IDENTITY, ids=[row[0] for row in IDENTITY])
def test_identity(name: str, changed: GroupAnswer, its: TemplateVersionAnswer, same: bool) -> None:
    """The identity changes exactly when a new machine would be different."""
    before = group(LaunchTemplate=LATEST)
    was = template(before, launch(before, version(3))).identity

    assert (template(changed, launch(changed, its)).identity == was) == same


def test_identity_without_the_right_does_not_flap() -> None:
    """A group that empties keeps its identity, so that what its nodes taught is not forgotten."""
    full = group(MixedInstancesPolicy=mixed("m5.large"), instances=[machine()])
    empty = group(MixedInstancesPolicy=mixed("m5.large"))

    assert template(full, launch(full, None, DENIED)).identity == template(empty, launch(empty, None, DENIED)).identity


WEIGHTS = [
    ("none", group(), False),
    ("all one", group(MixedInstancesPolicy=mixed("m5.large", "m5a.large", WeightedCapacity="1")), False),
    ("two", group(MixedInstancesPolicy=mixed("m5.large", "m5a.large", WeightedCapacity="2")), True),
]


@pytest.mark.parametrize(("name", "weighed", "problem"), WEIGHTS, ids=[row[0] for row in WEIGHTS])
def test_weights(name: str, weighed: GroupAnswer, problem: bool) -> None:
    """A group whose capacity is no number of machines cannot be counted, and says so."""
    assert bool(weights_problem(weighed)) == problem


# Attributes instead of types


def requirements(**wanted: object) -> RequirementsAnswer:
    return read(wanted, RequirementsAnswer)


ATTRIBUTES = [
    ("sizes", requirements(VCpuCount={"Min": 2, "Max": 4}, MemoryMiB={"Min": 4096}), {"m5.large"}, {"m5.4xlarge"}),
    ("no burstable", requirements(VCpuCount={"Min": 2}, MemoryMiB={"Min": 1024}), {"m5.large"}, {"t3.medium"}),
    (
        "burstable wanted",
        requirements(VCpuCount={"Min": 2}, MemoryMiB={"Min": 1024}, BurstablePerformance="required"),
        {"t3.medium"},
        {"m5.large"},
    ),
    ("no bare metal", requirements(VCpuCount={"Min": 2}, MemoryMiB={"Min": 1024}), {"m5.24xlarge"}, {"m5.metal"}),
    (
        "named patterns",
        requirements(AllowedInstanceTypes=["m5.*", "c5.large"], ExcludedInstanceTypes=["m5.24*"]),
        {"m5.large", "c5.large"},
        {"m5.24xlarge", "c5.xlarge"},
    ),
    ("makers", requirements(CpuManufacturers=["amazon-web-services"]), {"m7g.large"}, {"m5.large"}),
    ("accelerators", requirements(AcceleratorCount={"Min": 1}), {"g5.xlarge"}, {"m5.large"}),
    ("no accelerators", requirements(AcceleratorCount={"Max": 0}), {"m5.large"}, {"g5.xlarge"}),
]


@pytest.mark.parametrize(("name", "wanted", "within", "without"), ATTRIBUTES, ids=[row[0] for row in ATTRIBUTES])
def test_matching(name: str, wanted: RequirementsAnswer, within: set[str], without: set[str]) -> None:
    """The table's types that AWS might start for the attributes."""
    found = set(matching(wanted))

    assert within <= found
    assert not without & found


def test_attributes_promise_their_least() -> None:
    """A group by attributes promises what the least fitting type has, without any right; its machines tell the architecture."""
    wanted = attributes(VCpuCount={"Min": 4}, MemoryMiB={"Min": 16384})
    empty, running = (
        group(MixedInstancesPolicy=wanted),
        group(MixedInstancesPolicy=wanted, instances=[machine(type_="m5.xlarge")]),
    )
    got = template(empty, launch(empty, None, DENIED))
    assert got.capacity["cpu"] == 4000
    assert 13_000 * 2**20 < got.allocatable["memory"] < 16384 * 2**20
    assert "kubernetes.io/arch" not in got.labels

    again = template(running, launch(running, None, DENIED))
    assert again.labels["kubernetes.io/arch"] == "amd64"
    assert again.identity == got.identity


def test_attributes_of_the_launch_template() -> None:
    """Attributes may stand in the template itself; ones that nothing fits are a problem."""
    ours = group(LaunchTemplate=LATEST)
    asks = version(5, "", InstanceRequirements={"VCpuCount": {"Min": 2}, "MemoryMiB": {"Min": 4096}})
    assert launch(ours, asks).by_attributes

    nothing = version(5, "", InstanceRequirements={"VCpuCount": {"Min": 4096}})
    assert "names no instance type" in launch(ours, nothing).problem
