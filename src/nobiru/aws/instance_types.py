"""What each EC2 instance type has: a bundled, dated table, read on first use.

It refuses to know: nodes, kubelets, what is left for pods (`allocatable`), how to ask AWS (`launch`).
Invariant: an unknown type is None, never a guess.
"""

import gzip
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources

import msgspec
from msgspec import Struct

from nobiru.aws.answers import InstanceTypeAnswer

TABLE = "data/instance_types.json.gz"
# Resource names that the makers' device plugins register (their manuals).
_GPU_RESOURCE = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "habana": "habana.ai/gaudi"}


class InstanceType(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One type.  Units: memory in MiB, all others counts."""

    name: str
    vcpu: int
    memory_mib: int
    arch: str = "amd64"
    gpu_count: int = 0
    gpu_maker: str = ""
    gpu_name: str = ""
    neuron_count: int = 0  # Inferentia or Trainium chips
    neuron_cores: int = 0
    eni_max: int = 2
    ipv4_per_eni: int = 4

    @property
    def eni_pods(self) -> int:
        """Pods that the VPC network plugin can give an address: every ENI keeps one of its own, two pods use the host's.

        Source: aws/amazon-vpc-cni-k8s misc/eni-max-pods.txt.
        """
        return self.eni_max * (self.ipv4_per_eni - 1) + 2

    @property
    def devices(self) -> dict[str, int]:
        """What its device plugins register, by resource name."""
        found: dict[str, int] = {}
        if self.gpu_count and self.gpu_maker in _GPU_RESOURCE:
            found[_GPU_RESOURCE[self.gpu_maker]] = self.gpu_count
        if self.neuron_count:
            found["aws.amazon.com/neuron"] = self.neuron_count
        if self.neuron_cores:
            found["aws.amazon.com/neuroncore"] = self.neuron_cores
        return found


class Table(Struct, frozen=True, kw_only=True):
    """The bundled table, with the date and the source it was made from."""

    date: str
    source: str
    types: tuple[InstanceType, ...]


@lru_cache(maxsize=1)
def bundled() -> Table:
    """The table that comes with nobiru."""
    packed = resources.files("nobiru.aws").joinpath(TABLE).read_bytes()
    return msgspec.json.decode(gzip.decompress(packed), type=Table)


@lru_cache(maxsize=1)
def bundled_types() -> Mapping[str, InstanceType]:
    """The bundled table by name."""
    return {each.name: each for each in bundled().types}


def from_answer(answer: InstanceTypeAnswer) -> InstanceType:
    """One entry of an ec2:DescribeInstanceTypes answer.

    A type with several network cards gives pods addresses on its first card only (amazon-vpc-cni-k8s), so that card's ENIs count.
    """
    gpus, neurons = answer.gpu_info.gpus, answer.neuron_info.neuron_devices
    network = answer.network_info
    cards = {card.network_card_index: card.maximum_network_interfaces for card in network.network_cards}
    return InstanceType(
        name=answer.instance_type,
        vcpu=answer.v_cpu_info.default_v_cpus,
        memory_mib=answer.memory_info.size_in_mi_b,
        arch="arm64" if "arm64" in answer.processor_info.supported_architectures else "amd64",
        gpu_count=sum(each.logical_gpu_count or each.count for each in gpus),
        gpu_maker=gpus[0].manufacturer.lower() if gpus else "",
        gpu_name=gpus[0].name if gpus else "",
        neuron_count=sum(each.count for each in neurons),
        neuron_cores=sum(each.count * each.core_info.count for each in neurons),
        eni_max=cards.get(network.default_network_card_index, network.maximum_network_interfaces),
        ipv4_per_eni=network.ipv4_addresses_per_interface,
    )
