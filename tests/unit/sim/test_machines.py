"""What nodes report, against whole nodes that people have shown in public."""

import pytest

from nobiru.kernel.errors import ConfigError
from nobiru.kernel.quantity import parse_quantity
from nobiru.sim.machines import HARDWARE, Hardware, Image, hardware_of, kube_reserved_milli, shape_of

GIB = 2**30

# (where it was seen, image, type, capacity memory, allocatable memory, cpu, pods, how far the capacity may be off in KiB):
# the same type differs by some MiB between regions, kernels and hosts; what is kept back of it does not.
SEEN: list[tuple[str, Image, str, str, str, str, int, int]] = [
    ("EKS 1.27, AL2, m5.large, eu-west-1", "al2", "m5.large", "7824344Ki", "7134168Ki", "1930m", 29, 10_000),
    ("EKS 1.32, AL2023, t3.medium, ap-south-1", "al2023", "t3.medium", "3931728Ki", "3376720Ki", "1930m", 17, 0),
]


@pytest.mark.parametrize(("where", "image", "kind", "capacity", "allocatable", "cpu", "pods", "off"), SEEN)
def test_seen_nodes(
    where: str, image: Image, kind: str, capacity: str, allocatable: str, cpu: str, pods: int, off: int
) -> None:
    """Capacity as measured, and exactly as much kept back from it as on the real node."""
    shape = shape_of(image, hardware_of(kind))

    got = parse_quantity(shape.capacity["memory"])
    assert abs(got - parse_quantity(capacity)) <= off * 1024, where
    assert got - parse_quantity(shape.allocatable["memory"]) == parse_quantity(capacity) - parse_quantity(allocatable)
    assert (shape.allocatable["cpu"], shape.allocatable["pods"]) == (cpu, str(pods))


def test_openshift_3_11() -> None:
    """A node of OpenShift 3.11 with RHEL 7.6 as seen on a plain virtual machine: only 100Mi are kept back, pods 250."""
    plain = Hardware(vcpu=4, memory_mib=8192, hidden_kib=271_956, pods=20)

    shape = shape_of("rhel-3.11", plain)

    assert (shape.capacity["memory"], shape.allocatable["memory"]) == ("8008852Ki", "7906452Ki")
    assert (shape.capacity["cpu"], shape.allocatable["cpu"]) == ("4", "4")
    assert (shape.capacity["pods"], shape.allocatable["pods"]) == ("250", "250")
    assert "ephemeral-storage" not in shape.capacity


STORAGE = [("al2023", "20893676Ki", "18181869946")]


@pytest.mark.parametrize(("image", "capacity", "allocatable"), STORAGE)
def test_ephemeral_storage(image: Image, capacity: str, allocatable: str) -> None:
    """A tenth, as the kubelet's 32-bit float has it, and 1Gi are kept back: to the byte as on the real node."""
    shape = shape_of(image, hardware_of("t3.medium"))

    assert shape.capacity["ephemeral-storage"] == capacity
    assert shape.allocatable["ephemeral-storage"] == allocatable


@pytest.mark.parametrize(("vcpu", "want"), [(1, 60), (2, 70), (4, 80), (8, 90), (48, 190), (96, 310)])
def test_kube_reserved_cpu(vcpu: int, want: int) -> None:
    """What EKS keeps of the cores; 2, 4, 8 and 48 as seen on nodes (1930m, 3920m, 7910m, 47810m)."""
    assert kube_reserved_milli(vcpu) == want


@pytest.mark.parametrize("image", ["al2", "al2023", "rhel-3.11"])
def test_walkthrough_machine_holds_three(image: Image) -> None:
    """Three pods of 2Gi fit an m5.large, four do not: not even into its capacity."""
    shape = shape_of(image, hardware_of("m5.large"))

    assert parse_quantity(shape.allocatable["memory"]) >= 3 * 2 * GIB
    assert parse_quantity(shape.capacity["memory"]) < 4 * 2 * GIB


@pytest.mark.parametrize("image", ["al2", "al2023", "rhel-3.11"])
@pytest.mark.parametrize("kind", sorted(HARDWARE))
def test_every_machine_is_sound(image: Image, kind: str) -> None:
    """Allocatable is never above capacity, capacity never above what the type has on paper, and all are quantities."""
    hardware = HARDWARE[kind]
    shape = shape_of(image, hardware)

    assert shape.capacity.keys() == shape.allocatable.keys()
    for name, quantity in shape.allocatable.items():
        assert 0 <= parse_quantity(quantity, 1000) <= parse_quantity(shape.capacity[name], 1000), name
    assert 0.85 < parse_quantity(shape.capacity["memory"]) / (hardware.memory_mib * 2**20) < 1


def test_unknown_type_says_what_to_do() -> None:
    """A type that was never measured is refused by name, not guessed."""
    with pytest.raises(ConfigError, match=r"no measured node for m99\.huge: add it"):
        hardware_of("m99.huge")
