"""What a machine of a type leaves for pods: an estimate for types whose nodes were never seen, replaced by what real nodes show.

capacity    = what the kubelet will report: vCPUs, the advertised memory less what firmware and kernel keep, pods, devices
allocatable = capacity less what the kubelet sets aside, which depends on who set the node up: its Family

It refuses to know: groups, tags, AWS.  Invariant: the estimate promises no more than the measured nodes below had; where the family is
not known, each resource takes the least of the families that run in Auto Scaling Groups.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from nobiru.aws.instance_types import InstanceType
from nobiru.kernel.cloud import NodeTemplate

MIB = 2**20
GIB = 2**30

# eks: Amazon Linux 2 and 2023, Bottlerocket; openshift3: OpenShift 3.11 on RHEL or CentOS 7; openshift4: RHCOS;
# plain: kubeadm, kOps, k3s: the kubelet's own defaults.
Family = Literal["eks", "openshift3", "openshift4", "plain", "unknown"]
FAMILIES: tuple[Family, ...] = get_args(Family)
# OpenShift 4 scales Machines, not Auto Scaling Groups, so an unknown node is none of its.
_POSSIBLE: tuple[Family, ...] = ("eks", "openshift3", "plain")

# kubelet: evictionHard memory.available<100Mi, nodefs.available<10%; maxPods 110.  OpenShift 3.11 and 4: 250, and no podsPerCore any
# more: origin's kubelet_args.go had 10 a core until 3.10; a 3.11 node with 4 cores was seen with 250.
_EVICTION_BYTES = 100 * MIB
PODS_PLAIN = 110
_PODS_OPENSHIFT = 250
# OpenShift 4 node sizing: system-reserved cpu=500m, memory=1Gi.
_OPENSHIFT4_CPU_MILLI = 500
_OPENSHIFT4_BYTES = GIB
# The smallest root volume among the usual images (Amazon Linux and Ubuntu 8 GiB, RHEL 10, EKS 20), where nothing says the size.
_ROOT_GIB = 8
# A partition table, boot sectors and the file system's own blocks: 12.0 MiB of an 80 GiB volume (EKS node, measured 2023-08).
_ROOT_OVERHEAD_BYTES = 16 * MIB


class Amounts(Struct, frozen=True, kw_only=True):
    """What a node has and what of it pods may take.  Units: as `kernel.quantity.resource_amount`."""

    capacity: dict[str, int]
    allocatable: dict[str, int]


def kernel_mib(memory_mib: int) -> int:
    """Advertised memory that the kubelet never sees, because firmware and kernel keep it.

    A line above every type measured from 0.5 GiB to 6 TiB but for the media types vt1: 264 MiB and 4.6 % up to 144 GiB, 3.6 % beyond,
    never more than 18 %.  The points nearest to it, in MiB kept of MiB advertised: t3.nano 89 of 512, c5.large 433 of 4096, a1.4xlarge
    1769 of 32768, c5.18xlarge 6727 of 147456, m5d.24xlarge 14605 of 393216, r6a.48xlarge 57072 of 1572864; an m5.large keeps 559 of 8192.
    Source: aws/karpenter-provider-aws 15e8769 zz_generated.memory_overhead.go (EKS nodes, 2023); kubectl describe node of an
    m5.large with Amazon Linux 2, 2023-08: 551 MiB.
    """
    small, large = min(memory_mib, 144 * 1024), max(0, memory_mib - 144 * 1024)
    return min(264 + small * 46 // 1000 + large * 36 // 1000, memory_mib * 18 // 100)


def crash_kernel_mib(memory_mib: int) -> int:
    """What RHEL 7 and CentOS 7 keep besides for the crash kernel (crashkernel=auto): 160 MiB and 2 bits for every 4 KiB, from 2 GiB on.

    Source: RHEL 7 kernel administration guide, "Memory requirements for kdump"; a machine of 8 GiB with RHEL 7.6 was seen with 105 MiB
    less than one with Amazon Linux 2.
    """
    return 160 + memory_mib // 16_384 if memory_mib >= 2048 else 0


def eks_reserved_milli(vcpu: int) -> int:
    """kube-reserved CPU of EKS images: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the rest.

    Source: awslabs/amazon-eks-ami, bootstrap and nodeadm (kube-reserved from core count).
    """
    shares = (600, 100, 50, 50)  # hundredths of a percent of a core
    return sum(shares[:vcpu]) // 10 + max(0, vcpu - len(shares)) * 25 // 10


def pods_max(kind: InstanceType, family: Family) -> int:
    """How many pods the kubelet takes."""
    match family:
        case "eks":
            return kind.eni_pods
        case "openshift3" | "openshift4":
            return _PODS_OPENSHIFT
        case "plain":
            return PODS_PLAIN
        case "unknown":
            return min(pods_max(kind, each) for each in _POSSIBLE)


@lru_cache(maxsize=8192)
def estimate(kind: InstanceType, family: Family = "unknown", root_gib: int | None = None) -> Amounts:
    """The node that a machine of this type becomes.

    Units:   root_gib is the root volume's size, None where nothing says it.
    """
    if family == "unknown":
        return least([estimate(kind, each, root_gib) for each in _POSSIBLE])
    pods = pods_max(kind, family)
    hidden_mib = kernel_mib(kind.memory_mib) + (crash_kernel_mib(kind.memory_mib) if family == "openshift3" else 0)
    root_bytes = (root_gib or _ROOT_GIB) * GIB - _ROOT_OVERHEAD_BYTES
    capacity = {
        "cpu": kind.vcpu * 1000,
        "memory": (kind.memory_mib - hidden_mib) * MIB,
        "pods": pods,
        "ephemeral-storage": root_bytes,
        **kind.devices,
    }
    kept_milli, kept_bytes, kept_disk_bytes = 0, _EVICTION_BYTES, root_bytes // 10
    if family == "eks":
        # Memory: 11 MiB a pod and 255; ephemeral-storage: 1 GiB.  Source: awslabs/amazon-eks-ami.
        kept_milli = eks_reserved_milli(kind.vcpu)
        kept_bytes += (11 * pods + 255) * MIB
        kept_disk_bytes += GIB
    elif family == "openshift4":
        kept_milli = _OPENSHIFT4_CPU_MILLI
        kept_bytes += _OPENSHIFT4_BYTES
    kept = {"cpu": kept_milli, "memory": kept_bytes, "ephemeral-storage": kept_disk_bytes}
    allocatable = {name: max(0, amount - kept.get(name, 0)) for name, amount in capacity.items()}
    return Amounts(capacity=capacity, allocatable=allocatable)


def least(several: Iterable[Amounts]) -> Amounts:
    """The smallest amount of each resource; what one of them lacks is left out.

    Order:   by resource name.
    """
    found = list(several)
    return Amounts(
        capacity=_least([each.capacity for each in found]),
        allocatable=_least([each.allocatable for each in found]),
    )


def _least(tables: list[dict[str, int]]) -> dict[str, int]:
    shared = set(tables[0]).intersection(*tables[1:]) if tables else set()
    return {name: min(table[name] for table in tables) for name in sorted(shared)}


def with_learned(template: NodeTemplate, learned: Mapping[tuple[str, str], Amounts]) -> NodeTemplate:
    """The template with what real nodes of the same (instance type, identity) had in place of the estimate.

    Resources that no real node showed, such as those of a tag, stay.
    """
    measured = learned.get((template.instance_type, template.identity))
    if measured is None:
        return template
    return replace(
        template,
        capacity={**template.capacity, **measured.capacity},
        allocatable={**template.allocatable, **measured.allocatable},
    )


_OPENSHIFT_KUBELET = re.compile(r"v1\.(\d+)\.\d+\+[0-9a-f]{6,}")


def family_of(kubelet_version: str, os_image: str) -> Family:
    """Who set a node up, by what its kubelet says of itself.

    Source: kubectl get node: EKS "v1.27.3-eks-a5565ad"; OpenShift 3.11 "v1.11.0+d4cacc0" on RHEL or CentOS 7; OpenShift 4
    "v1.27.6+f67aeb3" on "Red Hat Enterprise Linux CoreOS 414.92...".
    """
    if "-eks-" in kubelet_version or os_image.startswith(("Amazon Linux", "Bottlerocket")):
        return "eks"
    openshift = _OPENSHIFT_KUBELET.fullmatch(kubelet_version)
    if openshift:
        # OpenShift 3 ended with Kubernetes 1.11, OpenShift 4 began with 1.12.
        return "openshift3" if int(openshift[1]) <= 11 else "openshift4"
    return "plain" if kubelet_version else "unknown"


def cluster_family(nodes: Iterable[tuple[str, str]]) -> Family:
    """The family that all of the cluster's nodes agree on, by their (kubelet version, OS image); "unknown" where they differ."""
    found = {family_of(kubelet_version, os_image) for kubelet_version, os_image in nodes}
    return found.pop() if len(found) == 1 else "unknown"
