"""What a machine leaves for pods, against nodes that were measured."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from nobiru.aws.allocatable import (
    FAMILIES,
    MIB,
    Amounts,
    Family,
    cluster_family,
    eks_reserved_milli,
    estimate,
    family_of,
    kernel_mib,
    least,
    with_learned,
)
from nobiru.aws.instance_types import InstanceType, bundled_types
from nobiru.kernel.cloud import NodeTemplate
from nobiru.kernel.quantity import parse_quantity, resource_amount
from nobiru.sim.machines import HARDWARE, Image, shape_of

TYPES = sorted(bundled_types())


class Measured(Struct, frozen=True, kw_only=True):
    """One real node with Amazon Linux, as kubectl showed it; "" for what was not shown."""

    type_: str
    capacity: str = ""
    allocatable: str = ""
    cpu_milli: int = 0
    source: str


NODES = [
    Measured(
        type_="m5.large",
        capacity="7824344Ki",
        allocatable="7134168Ki",
        cpu_milli=1930,
        source="kubectl describe node, EKS 1.27, Amazon Linux 2, 2023-08",
    ),
    Measured(type_="t3.medium", capacity="3931728Ki", source="EKS 1.32, Amazon Linux 2023"),
    Measured(type_="t3.medium", capacity="3935568Ki", source="EKS, Amazon Linux 2"),
    Measured(type_="i4i.32xlarge", allocatable="1007423Mi", source="aws/karpenter-provider-aws #6611, 2024"),
]


@pytest.mark.parametrize("node", NODES, ids=lambda node: f"{node.type_}, {node.source}")
def test_estimate_promises_no_more_than_real_nodes_have(node: Measured) -> None:
    """The estimate is below what was measured, and by no more than an eighteenth."""
    got = estimate(bundled_types()[node.type_], "eks")

    for mine, real in ((got.capacity, node.capacity), (got.allocatable, node.allocatable)):
        if real:
            assert 0.945 <= mine["memory"] / parse_quantity(real) <= 1
    if node.cpu_milli:
        assert got.allocatable["cpu"] == node.cpu_milli


@pytest.mark.parametrize("image", ["al2", "al2023", "rhel-3.11"])
@pytest.mark.parametrize("type_", sorted(HARDWARE))
def test_estimate_against_measured_machines(image: Image, type_: str) -> None:
    """For every machine that the simulated world plays from measurements: nothing is promised that it lacks, and most of what it has."""
    real, kind = shape_of(image, HARDWARE[type_]), bundled_types()[type_]
    family: Family = "openshift3" if image == "rhel-3.11" else "eks"
    got, blind = estimate(kind, family), estimate(kind, "unknown")

    assert family_of(real.kubelet_version, real.os_image) == family
    for name in ("cpu", "memory", "pods"):
        has = resource_amount(name, real.allocatable[name])
        assert blind.allocatable[name] <= got.allocatable[name] <= has
    memory = resource_amount("memory", real.allocatable["memory"])
    assert memory - got.allocatable["memory"] <= 320 * MIB + memory * 28 // 1000
    assert kind.arch == real.arch
    assert kind.devices.get("nvidia.com/gpu", 0) == real.gpus


# Memory in MiB that the kubelet did not see.  Source: aws/karpenter-provider-aws 15e8769 zz_generated.memory_overhead.go, in MiB.
HIDDEN_MIB = {
    "t3.nano": 88.7,
    "t3.micro": 103.4,
    "t3.medium": 252.7,
    "a1.medium": 240.4,
    "a1.2xlarge": 953.4,
    "a1.4xlarge": 1769.3,
    "c5.large": 432.7,
    "c5.9xlarge": 3520.6,
    "c5.18xlarge": 6727.0,
    "c5n.large": 456.7,
    "c6g.medium": 208.5,
    "c6a.48xlarge": 14439.2,
    "m5.large": 558.7,
    "m5.xlarge": 867.1,
    "m5d.24xlarge": 14604.7,
    "m6a.48xlarge": 28647.4,
    "r6a.32xlarge": 38112.7,
    "r6a.48xlarge": 57071.7,
    "i4i.32xlarge": 32696.4,
    "x2iedn.32xlarge": 81849.9,
}


@pytest.mark.parametrize(("type_", "hidden_mib"), HIDDEN_MIB.items())
def test_kernel_memory(type_: str, hidden_mib: float) -> None:
    """As much memory is left to the kernel as was measured on any machine, so that no pod is promised it."""
    assert kernel_mib(bundled_types()[type_].memory_mib) >= hidden_mib


@pytest.mark.parametrize(
    ("vcpu", "milli"), [(1, 60), (2, 70), (3, 75), (4, 80), (8, 90), (16, 110), (48, 190), (96, 310)]
)
def test_eks_reserved_cpu(vcpu: int, milli: int) -> None:
    """6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest (kubelets on EKS show these)."""
    assert eks_reserved_milli(vcpu) == milli


def test_three_pods_of_two_gib_on_an_m5_large() -> None:
    """The walk-through's pods: three fit on any m5.large, not the four that 8 GiB would hold."""
    for family in FAMILIES:
        memory = estimate(bundled_types()["m5.large"], family).allocatable["memory"]
        assert memory // (2048 * MIB) == 3, family


PODS = [
    ("t2.small", "eks", 11),
    ("m5.large", "eks", 29),
    ("m5.large", "openshift3", 250),
    ("m5.large", "plain", 110),
    ("m5.large", "unknown", 29),
    ("m5.24xlarge", "eks", 737),
    ("m5.24xlarge", "unknown", 110),
]


@pytest.mark.parametrize(("type_", "family", "pods"), PODS)
def test_pods(type_: str, family: Family, pods: int) -> None:
    """EKS: by addresses; others: the kubelet's setting; unknown: the least of them (report B15)."""
    assert estimate(bundled_types()[type_], family).allocatable["pods"] == pods


@given(type_=st.sampled_from(TYPES), family=st.sampled_from(FAMILIES), root_gib=st.sampled_from([None, 1, 8, 80, 500]))
def test_allocatable_is_within_capacity(type_: str, family: Family, root_gib: int | None) -> None:
    """Nothing is negative, nothing above capacity, and an unknown family gets no more than any that it may be."""
    kind = bundled_types()[type_]
    got = estimate(kind, family, root_gib)
    unknown = estimate(kind, "unknown", root_gib)

    assert got.capacity.keys() == got.allocatable.keys()
    assert all(0 <= got.allocatable[name] <= got.capacity[name] for name in got.capacity)
    assert got.capacity["memory"] < kind.memory_mib * MIB
    if family not in ("openshift4", "unknown"):
        assert all(unknown.allocatable[name] <= got.allocatable[name] for name in unknown.allocatable)


def test_root_volume() -> None:
    """Ephemeral storage of an 80 GiB volume is within one part in a thousand of an EKS node's, and below it."""
    got = estimate(bundled_types()["m5.large"], "eks", 80)

    assert got.capacity["ephemeral-storage"] <= 83873772 * 1024
    assert 0.999 < got.allocatable["ephemeral-storage"] / 76224326324 <= 1


def test_least_leaves_out_what_one_lacks() -> None:
    """A mixed group promises a GPU only if each of its types has one."""
    gpu, plain = estimate(bundled_types()["g5.xlarge"], "eks"), estimate(bundled_types()["m5.xlarge"], "eks")

    assert "nvidia.com/gpu" in least([gpu, gpu]).allocatable
    assert "nvidia.com/gpu" not in least([gpu, plain]).allocatable
    assert least([]) == Amounts(capacity={}, allocatable={})


FAMILY_CASES = [
    ("v1.27.3-eks-a5565ad", "Amazon Linux 2", "eks"),
    ("v1.32.9-eks-ecaa3a6", "Bottlerocket OS 1.20.0 (aws-k8s-1.29)", "eks"),
    ("v1.11.0+d4cacc0", "Red Hat Enterprise Linux Server 7.6 (Maipo)", "openshift3"),
    ("v1.27.6+f67aeb3", "Red Hat Enterprise Linux CoreOS 414.92.202310170514-0 (Plow)", "openshift4"),
    ("v1.29.1", "Ubuntu 22.04.3 LTS", "plain"),
    ("v1.29.1+k3s2", "Ubuntu 22.04.3 LTS", "plain"),
    ("", "", "unknown"),
]


@pytest.mark.parametrize(("kubelet", "image", "want"), FAMILY_CASES)
def test_family_of(kubelet: str, image: str, want: Family) -> None:
    """Kubelet version and OS image say who set a node up."""
    assert family_of(kubelet, image) == want


def test_cluster_family_needs_agreement() -> None:
    """Nodes that differ, or no nodes at all, leave the family unknown."""
    eks, plain = ("v1.27.3-eks-a5565ad", "Amazon Linux 2"), ("v1.29.1", "Ubuntu 22.04.3 LTS")

    assert cluster_family([eks, eks]) == "eks"
    assert cluster_family([eks, plain]) == "unknown"
    assert cluster_family([]) == "unknown"


def test_learned_amounts_replace_the_estimate() -> None:
    """What real nodes of the same type and identity had wins; other identities change nothing; tagged resources stay."""
    template = NodeTemplate(
        instance_type="m5.large",
        zones=(),
        labels={},
        taints=(),
        capacity={"memory": 10, "pods": 29},
        allocatable={"memory": 9, "pods": 29, "example.com/dongle": 1},
        source="",
        identity="new",
    )
    seen = Amounts(capacity={"memory": 8}, allocatable={"memory": 7})

    got = with_learned(template, {("m5.large", "new"): seen})
    assert got.allocatable == {"memory": 7, "pods": 29, "example.com/dongle": 1}
    assert got.capacity == {"memory": 8, "pods": 29}
    assert with_learned(template, {("m5.large", "old"): seen}) is template


def test_a_type_that_was_never_measured() -> None:
    """The formula holds for any size, so a type newer than this release has an estimate too."""
    kind = InstanceType(name="m99.large", vcpu=2, memory_mib=8192, eni_max=3, ipv4_per_eni=10)

    assert estimate(kind, "eks") == estimate(msgspec.structs.replace(kind, name="m5.large"), "eks")
