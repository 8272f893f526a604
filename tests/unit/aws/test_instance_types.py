"""The bundled table of instance types, and how an entry of EC2's answer is read."""

import gzip
import time
from datetime import date
from pathlib import Path

import msgspec
import pytest

from nobiru.aws import update_instance_types
from nobiru.aws.answers import InstanceTypeAnswer, read
from nobiru.aws.instance_types import InstanceType, Table, bundled, bundled_types, from_answer
from tests.unit.aws.fake_aws import FakeAws, Reply

# Source: awslabs/amazon-eks-ami files/eni-max-pods.txt and nodeadm's.
ENI_PODS = {
    "t2.nano": 4,
    "m4.large": 20,
    "m5.large": 29,
    "m5.xlarge": 58,
    "m5.24xlarge": 737,
    "c1.medium": 12,
    "m4.10xlarge": 234,
    "f1.16xlarge": 394,
    "g3.16xlarge": 737,
    "p2.xlarge": 58,
    "p3.16xlarge": 234,
    "p4d.24xlarge": 737,
    "p5.48xlarge": 100,
    "trn1.32xlarge": 247,
}


@pytest.mark.parametrize(("name", "pods"), ENI_PODS.items())
def test_eni_pods(name: str, pods: int) -> None:
    """Addresses for pods as amazon-vpc-cni counts them; several network cards count as one."""
    assert bundled_types()[name].eni_pods == pods


DEVICES = {
    "m5.large": {},
    "p2.xlarge": {"nvidia.com/gpu": 1},
    "p4d.24xlarge": {"nvidia.com/gpu": 8},
    "g6f.large": {"nvidia.com/gpu": 1},
    "g4ad.8xlarge": {"amd.com/gpu": 2},
    "inf2.24xlarge": {"aws.amazon.com/neuron": 6, "aws.amazon.com/neuroncore": 12},
}


@pytest.mark.parametrize(("name", "devices"), DEVICES.items())
def test_devices(name: str, devices: dict[str, int]) -> None:
    """What device plugins will register; a part of a GPU counts as one."""
    assert bundled_types()[name].devices == devices


def test_table() -> None:
    """It is dated, says its source, is ordered by name, and holds plain facts of well-known types."""
    table = bundled()
    names = [each.name for each in table.types]

    assert date.fromisoformat(table.date) <= date.today()
    assert table.source
    assert names == sorted(set(names))
    assert len(names) > 1000
    assert bundled_types()["m5.large"] == InstanceType(
        name="m5.large", vcpu=2, memory_mib=8192, eni_max=3, ipv4_per_eni=10
    )
    assert bundled_types()["m7g.large"].arch == "arm64"
    assert "m5.enormous" not in bundled_types()


def test_loads_fast() -> None:
    """The first look-up costs at most 50 ms: it happens on the way to the first scale-up."""
    took_s = []
    for _ in range(3):
        began_s = time.perf_counter()
        bundled.__wrapped__()
        took_s.append(time.perf_counter() - began_s)

    assert min(took_s) < 0.05


def test_answer_with_everything() -> None:
    """An answer's entry becomes plain facts, whatever it has beside them."""
    answer = {
        "InstanceType": "x9.big",
        "VCpuInfo": {"DefaultVCpus": 8, "DefaultCores": 4},
        "MemoryInfo": {"SizeInMiB": 65536},
        "ProcessorInfo": {"SupportedArchitectures": ["arm64"], "Manufacturer": "AWS"},
        "GpuInfo": {"Gpus": [{"Name": "T4g", "Manufacturer": "NVIDIA", "Count": 2, "LogicalGpuCount": 2}]},
        "NeuronInfo": {"NeuronDevices": [{"Count": 3, "CoreInfo": {"Count": 2}}]},
        "NetworkInfo": {
            "MaximumNetworkInterfaces": 30,
            "Ipv4AddressesPerInterface": 50,
            "DefaultNetworkCardIndex": 1,
            "NetworkCards": [
                {"NetworkCardIndex": 0, "MaximumNetworkInterfaces": 20},
                {"NetworkCardIndex": 1, "MaximumNetworkInterfaces": 10},
            ],
        },
        "Hypervisor": "nitro",
    }

    assert from_answer(read(answer, InstanceTypeAnswer)) == InstanceType(
        name="x9.big",
        vcpu=8,
        memory_mib=65536,
        arch="arm64",
        gpu_count=2,
        gpu_maker="nvidia",
        gpu_name="T4g",
        neuron_count=3,
        neuron_cores=6,
        eni_max=10,
        ipv4_per_eni=50,
    )


XML = """<DescribeInstanceTypesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><instanceTypeSet><item>
<instanceType>x9.big</instanceType><vCpuInfo><defaultVCpus>8</defaultVCpus></vCpuInfo>
<memoryInfo><sizeInMiB>65536</sizeInMiB></memoryInfo>
<processorInfo><supportedArchitectures><item>arm64</item></supportedArchitectures></processorInfo>
<networkInfo><maximumNetworkInterfaces>4</maximumNetworkInterfaces>
<ipv4AddressesPerInterface>15</ipv4AddressesPerInterface></networkInfo>
</item></instanceTypeSet></DescribeInstanceTypesResponse>"""


def test_the_script_that_makes_the_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It reads what EC2 tells, keeps the earlier types, says where the data is from; --check only tells the difference."""
    target = tmp_path / "types.json.gz"
    monkeypatch.setattr(update_instance_types, "TARGET", target)
    with FakeAws() as aws:
        aws.answer("DescribeInstanceTypes", Reply(body=XML))
        for name, value in aws.environment().items():
            monkeypatch.setenv(name, value)

        assert update_instance_types.main(["--check"]) == 1
        assert not target.exists()
        assert update_instance_types.main(["--source", "a test"]) == 0

    made = msgspec.json.decode(gzip.decompress(target.read_bytes()), type=Table)
    assert (made.source, len(made.types)) == ("a test", len(update_instance_types.EARLIER) + 1)
    assert made.types[-1] == InstanceType(
        name="x9.big", vcpu=8, memory_mib=65536, arch="arm64", eni_max=4, ipv4_per_eni=15
    )
    assert bundled_types()["p2.xlarge"] in made.types
    assert capsys.readouterr().out.startswith("the table of ")
