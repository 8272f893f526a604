"""From what a machine has to what its kubelet will offer to pods: an estimate for machines nobody has seen yet.

Three things are taken off: what firmware and kernel keep, what the kubelet reserves, the eviction threshold; pods are bounded by
addresses or by the platform itself.  Where the platform is unknown the smallest of the known answers is given: too small a
guess starts one machine too many, too large a guess starts machines that help nobody; real nodes correct it (`nodes.plan.templates`).
Invariant: pure; allocatable never exceeds capacity.
"""

from typing import Literal

from nobiru.aws.instance_types import InstanceType

Family = Literal["eks", "openshift", ""]

MIB = 2**20
# Memory that EC2 advertises and a guest never sees: at most 7.5 % over all types (Karpenter's default vmMemoryOverheadPercent).
HIDDEN_MEMORY_PERMILLE = 75
EVICTION_BYTES = 100 * MIB  # kubelet's default memory.available threshold
PODS_KUBELET = 110  # kubelet's default --max-pods
PODS_OPENSHIFT = 250  # OpenShift 3.11 node configuration: max-pods
PODS_PER_CORE_OPENSHIFT = 10  # and pods-per-core
# amazon-eks-ami bootstrap: kube-reserved cpu is 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest.
_CPU_STEPS = ((1, 60), (1, 10), (2, 5))
_CPU_REST_PER_10_CORES = 25
# amazon-eks-ami bootstrap: kube-reserved memory is 255 MiB and 11 MiB for each possible pod.
_MEMORY_BASE_MIB, _MEMORY_POD_MIB = 255, 11
GPU_RESOURCE = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "habana": "habana.ai/gaudi"}
NEURON_RESOURCE = "aws.amazon.com/neuron"


def reserved_cpu_milli(vcpu: int) -> int:
    """Millicores that EKS's bootstrap reserves for the kubelet."""
    reserved, left = 0, vcpu
    for cores, milli in _CPU_STEPS:
        used = min(left, cores)
        reserved += used * milli
        left -= used
    return reserved + -(-left * _CPU_REST_PER_10_CORES // 10)


def pods_max(kind: InstanceType, family: Family) -> int:
    """How many pods a kubelet of the family takes."""
    if family == "openshift":
        return min(PODS_OPENSHIFT, PODS_PER_CORE_OPENSHIFT * kind.vcpu)
    return min(PODS_KUBELET, kind.eni_pods) if family == "" else kind.eni_pods


def capacity(kind: InstanceType, family: Family = "") -> dict[str, int]:
    """What the node will report as capacity.

    Units:   cpu millicores, memory bytes, others counts.
    """
    amounts = {
        "cpu": kind.vcpu * 1000,
        "memory": kind.memory_mib * MIB * (1000 - HIDDEN_MEMORY_PERMILLE) // 1000,
        "pods": pods_max(kind, family),
    }
    if kind.gpu_count:
        amounts[GPU_RESOURCE.get(kind.gpu_maker, f"{kind.gpu_maker}.com/gpu")] = kind.gpu_count
    if kind.accelerators:
        amounts[NEURON_RESOURCE] = kind.accelerators
    return amounts


def allocatable(kind: InstanceType, family: Family = "") -> dict[str, int]:
    """What the node will offer to pods; units as `capacity`."""
    amounts = capacity(kind, family)
    amounts["memory"] = max(0, amounts["memory"] - EVICTION_BYTES)
    if family != "openshift":  # OpenShift 3.11 reserves nothing by default
        pods = min(kind.eni_pods, PODS_KUBELET) if family == "" else kind.eni_pods
        amounts["cpu"] -= reserved_cpu_milli(kind.vcpu)
        amounts["memory"] = max(0, amounts["memory"] - (_MEMORY_BASE_MIB + _MEMORY_POD_MIB * pods) * MIB)
    return amounts


def least(tables: list[dict[str, int]]) -> dict[str, int]:
    """The smallest amount of each resource that every table has: what any of several types surely gives."""
    shared = set(tables[0]).intersection(*tables[1:])
    return {name: min(table[name] for table in tables) for name in sorted(shared)}
