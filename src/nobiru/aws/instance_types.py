"""What each EC2 instance type has: a bundled, dated table, and EC2's own answer for types newer than it.

It refuses to know: nodes, kubelets, what is left for pods (`allocatable`).
Invariant: an unknown type is None, never a guess.
"""

import gzip
from functools import lru_cache
from importlib import resources
from typing import Any

import msgspec
from msgspec import Struct


class InstanceType(Struct, frozen=True, kw_only=True):
    """One type.  Units: memory in MiB, counts."""

    name: str
    vcpu: int
    memory_mib: int
    arch: str = "amd64"
    gpu_count: int = 0
    gpu_maker: str = ""
    accelerators: int = 0  # Inferentia or Trainium chips
    eni_max: int = 2
    ipv4_per_eni: int = 4

    @property
    def eni_pods(self) -> int:
        """Pods that the VPC network plugin can give an address: (ENIs * (addresses - 1)) + 2.

        Source: amazon-vpc-cni-k8s, eni-max-pods.txt.
        """
        return self.eni_max * (self.ipv4_per_eni - 1) + 2


class Table(Struct, frozen=True, kw_only=True):
    """The bundled table, with the date and the source it was made from."""

    date: str
    source: str
    types: list[InstanceType]


@lru_cache(maxsize=1)
def bundled() -> Table:
    """The table that comes with nobiru."""
    packed = resources.files("nobiru.aws").joinpath("data/instance_types.json.gz").read_bytes()
    return msgspec.json.decode(gzip.decompress(packed), type=Table)


@lru_cache(maxsize=1)
def _by_name() -> dict[str, InstanceType]:
    return {each.name: each for each in bundled().types}


def lookup(name: str) -> InstanceType | None:
    """The bundled facts of a type."""
    return _by_name().get(name)


def from_answer(item: dict[str, Any]) -> InstanceType:
    """One entry of an ec2:DescribeInstanceTypes answer."""
    network = item.get("NetworkInfo") or {}
    gpus = (item.get("GpuInfo") or {}).get("Gpus") or []
    neurons = (item.get("NeuronInfo") or {}).get("NeuronDevices") or []
    neurons += (item.get("InferenceAcceleratorInfo") or {}).get("Accelerators") or []
    archs = (item.get("ProcessorInfo") or {}).get("SupportedArchitectures") or []
    return InstanceType(
        name=item["InstanceType"],
        vcpu=int(item["VCpuInfo"]["DefaultVCpus"]),
        memory_mib=int(item["MemoryInfo"]["SizeInMiB"]),
        arch="arm64" if "arm64" in archs else "amd64",
        gpu_count=sum(int(each.get("Count", 0)) for each in gpus),
        gpu_maker=str(gpus[0].get("Manufacturer", "")).lower() if gpus else "",
        accelerators=sum(int(each.get("Count", 0)) for each in neurons[:1]),
        eni_max=int(network.get("MaximumNetworkInterfaces", 2)),
        ipv4_per_eni=int(network.get("Ipv4AddressesPerInterface", 4)),
    )
