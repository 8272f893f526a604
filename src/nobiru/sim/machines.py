"""What a kubelet reports for each kind of machine: capacity and allocatable as measured on real nodes.

It refuses to know: how the product estimates the same (`nobiru.aws`): the estimate is tested against this table, so the two
never share a line.  Invariant: every figure is a measurement, or follows by a cited formula from one.

Sources:
 - memory that never reaches the kubelet, Amazon Linux 2: measured machine by machine on EKS (2023), karpenter-provider-aws
   commit 15e87699 pkg/providers/instancetype/zz_generated.memory_overhead.go;
 - pods: amazon-eks-ami nodeadm/internal/kubelet/eni-max-pods.txt (network interfaces x (addresses - 1) + 2);
 - checked against whole nodes seen in public, in tests/unit/sim/test_machines.py.
"""

from typing import Literal

from msgspec import Struct

from nobiru.kernel.errors import ConfigError
from nobiru.kernel.quantity import format_cpu

Image = Literal["al2", "al2023", "rhel-3.11"]

# amazon-eks-ami bootstrap.sh and nodeadm: memory reserved for the kubelet is 255 MiB and 11 MiB for each possible pod.
KUBE_RESERVED_MIB, KUBE_RESERVED_MIB_A_POD = 255, 11
KUBE_RESERVED_STORAGE_BYTES = 2**30  # the same two: 1Gi
# The same two: of the first core 6 %, of the second 1 %, of the next two 0.5 %, of the rest 0.25 %, in tenths of a millicore.
KUBE_RESERVED_CPU = ((1000, 600), (1000, 100), (2000, 50), (2**31, 25))
EVICTION_MIB = 100  # kubelet: eviction-hard memory.available<100Mi
# kubelet: eviction-hard nodefs.available<10%, which it keeps as the nearest 32-bit float.
EVICTION_STORAGE_NUMERATOR, EVICTION_STORAGE_DENOMINATOR = 13_421_773, 2**27

# A t3.medium on AL2023 (kernel 6.1.159, EKS 1.32) reports 3931728Ki; on AL2 it is 3935568Ki.
AL2023_LESS_KIB = 3_840
# OpenShift 3.11 on RHEL 7.6 (kernel 3.10.0-957) in a virtual machine of 8 GiB reports 8008852Ki, AL2 on an m4.large of 8 GiB
# 8116652Ki: the crash kernel (crashkernel=auto, from 2 GiB on) and what else that kernel keeps.
RHEL_LESS_KIB, RHEL_CRASHKERNEL_FROM_MIB = 107_800, 2_048
RHEL_PODS = 250  # origin 3.11, the node's default for max-pods; without pods-per-core

# Root volumes as the images come: 20 GB.  Capacity seen on nodes with AL2 and AL2023.
ROOT_KIB: dict[Image, int] = {"al2": 20_959_212, "al2023": 20_893_676}


class Hardware(Struct, frozen=True, kw_only=True):
    """One instance type: what it has on paper, and how much of the memory the kernel never hands out on AL2."""

    vcpu: int
    memory_mib: int
    hidden_kib: int
    pods: int
    gpus: int = 0
    arch: Literal["amd64", "arm64"] = "amd64"


class Shape(Struct, frozen=True, kw_only=True):
    """What a kubelet says it has, as quantities; GPUs apart, since a device plugin adds them later."""

    capacity: dict[str, str]
    allocatable: dict[str, str]
    gpus: int = 0
    arch: str = "amd64"
    os_image: str
    kernel_version: str
    kubelet_version: str
    container_runtime: str


def shape_of(image: Image, hardware: Hardware) -> Shape:
    """What the kubelet of such a machine reports on that operating system.

    Units:  memory in KiB as kubelets print it; ephemeral-storage allocatable in bytes.
    """
    if image == "rhel-3.11":
        return _openshift(hardware)
    memory_kib = hardware.memory_mib * 1024 - hardware.hidden_kib - (AL2023_LESS_KIB if image == "al2023" else 0)
    reserved_mib = KUBE_RESERVED_MIB + KUBE_RESERVED_MIB_A_POD * hardware.pods + EVICTION_MIB
    storage_bytes = ROOT_KIB[image] * 1024
    evicted_bytes = storage_bytes * EVICTION_STORAGE_NUMERATOR // EVICTION_STORAGE_DENOMINATOR
    same = {"hugepages-1Gi": "0", "hugepages-2Mi": "0", "pods": str(hardware.pods)}
    al2 = image == "al2"
    return Shape(
        capacity={
            "cpu": str(hardware.vcpu),
            "ephemeral-storage": f"{ROOT_KIB[image]}Ki",
            "memory": f"{memory_kib}Ki",
            **same,
        },
        allocatable={
            "cpu": format_cpu(hardware.vcpu * 1000 - kube_reserved_milli(hardware.vcpu)),
            "ephemeral-storage": str(storage_bytes - evicted_bytes - KUBE_RESERVED_STORAGE_BYTES),
            "memory": f"{max(0, memory_kib - reserved_mib * 1024)}Ki",
            **same,
        },
        gpus=hardware.gpus,
        arch=hardware.arch,
        os_image="Amazon Linux 2" if al2 else "Amazon Linux 2023.10.20260105",
        kernel_version="5.10.184-175.749.amzn2.x86_64" if al2 else "6.1.159-181.297.amzn2023.x86_64",
        kubelet_version="v1.27.3-eks-a5565ad" if al2 else "v1.32.9-eks-ecaa3a6",
        container_runtime="containerd://1.6.19" if al2 else "containerd://2.1.5",
    )


def _openshift(hardware: Hardware) -> Shape:
    """OpenShift 3.11: nothing is reserved but the eviction threshold, and no storage is counted.

    Source: openshift-ansible 3.11 roles/openshift_node_group/templates/node-config.yaml.j2 sets no kube-reserved; seen on a
            node of 3.11 with RHEL 7.6: capacity 8008852Ki, allocatable 7906452Ki, cpu 4 and 4, pods 250.
    """
    crash_kib = RHEL_LESS_KIB if hardware.memory_mib >= RHEL_CRASHKERNEL_FROM_MIB else 0
    memory_kib = hardware.memory_mib * 1024 - hardware.hidden_kib - crash_kib
    same = {"cpu": str(hardware.vcpu), "hugepages-1Gi": "0", "hugepages-2Mi": "0", "pods": str(RHEL_PODS)}
    return Shape(
        capacity={"memory": f"{memory_kib}Ki", **same},
        allocatable={"memory": f"{memory_kib - EVICTION_MIB * 1024}Ki", **same},
        gpus=hardware.gpus,
        arch=hardware.arch,
        os_image="Red Hat Enterprise Linux Server 7.6 (Maipo)",
        kernel_version="3.10.0-957.el7.x86_64",
        kubelet_version="v1.11.0+d4cacc0",
        container_runtime="docker://1.13.1",
    )


def kube_reserved_milli(vcpu: int) -> int:
    """Millicores that EKS's images keep for the kubelet: 2 cores -> 70, 4 -> 80, 8 -> 90."""
    left, reserved = vcpu * 1000, 0
    for milli, rate in KUBE_RESERVED_CPU:
        taken = min(left, milli)
        reserved += taken * rate
        left -= taken
    return reserved // 10_000


def hardware_of(instance_type: str) -> Hardware:
    """The machine of that type.

    Raises:  ConfigError where the table has none: add a measured one.
    """
    found = HARDWARE.get(instance_type)
    if found is None:
        raise ConfigError(
            f"no measured node for {instance_type}: add it to nobiru.sim.machines or to the configuration"
        )
    return found


def _table(text: str) -> dict[str, Hardware]:
    """Lines of: type, vCPU, MiB on paper, KiB hidden, pods, then GPUs and "arm64" where they apply."""
    rows = (line.split() for line in text.strip().splitlines())
    return {
        name: Hardware(
            vcpu=int(vcpu),
            memory_mib=int(memory),
            hidden_kib=int(hidden),
            pods=int(pods),
            gpus=int(next((word for word in more if word.isdigit()), "0")),
            arch="arm64" if "arm64" in more else "amd64",
        )
        for name, vcpu, memory, hidden, pods, *more in rows
    }


# p2.xlarge was not measured: it has the memory and the hypervisor of p3.2xlarge, and gets its figure.
HARDWARE = _table("""
    t2.micro       1    1024     80240    4
    t2.small       1    2048     98160   11
    t2.medium      2    4096    200276   17
    t2.large       2    8192    271964   35
    t3.micro       2    1024    105892    4
    t3.small       2    2048    134052   11
    t3.medium      2    4096    258736   17
    t3.large       2    8192    373424   35
    t3.xlarge      4   16384    603268   58
    t3.2xlarge     8   32768   1062976   58
    t4g.medium     2    4096    261756   17  arm64
    m4.large       2    8192    271956   20
    m4.xlarge      4   16384    415316   58
    m4.2xlarge     8   32768    702048   58
    m4.4xlarge    16   65536   1302232  234
    m5.large       2    8192    572076   29
    m5.xlarge      4   16384    887936   58
    m5.2xlarge     8   32768   1175612   58
    m5.4xlarge    16   65536   2783144  234
    m5.8xlarge    32  131072   5211792  234
    m5.12xlarge   48  196608   5672316  234
    m5.16xlarge   64  262144   7349488  737
    m5.24xlarge   96  393216  10826440  737
    m5a.large      2    8192    527012   29
    m5a.xlarge     4   16384    799872   58
    m5d.large      2    8192    486060   29
    m5d.xlarge     4   16384    887936   58
    m6i.large      2    8192    414376   29
    m6i.xlarge     4   16384    687236   58
    m6i.2xlarge    8   32768   1232956   58
    m6i.4xlarge   16   65536   2324392  234
    m6g.medium     1    4096    302520    8  arm64
    m6g.large      2    8192    462240   29  arm64
    m6g.xlarge     4   16384    783720   58  arm64
    c4.large       2    3840    129868   29
    c5.large       2    4096    443044   29
    c5.xlarge      4    8192    572540   58
    c5.2xlarge     8   16384    888884   58
    c5.4xlarge    16   32768   1521568  234
    c5.9xlarge    36   73728   3605044  234
    c5.18xlarge   72  147456   6888492  737
    r5.large       2   16384    715432   29
    r5.xlarge      4   32768   1174664   58
    r5.2xlarge     8   65536   2093132   58
    r5.4xlarge    16  131072   3831752  234
    r5.8xlarge    32  262144   7407312  234
    p2.xlarge      4   62464   1226340   58  1
    p3.2xlarge     8   62464   1226340   58  1
    p3.8xlarge    32  249856   4349736  234  4
    g4dn.xlarge    4   16384    715904   29  1
    g4dn.2xlarge   8   32768   1175612   29  1
    g4dn.12xlarge 48  196608   5672316  234  4
    g5.xlarge      4   16384    603264   58  1
    g5.4xlarge    16   65536   1982384  234  1
""")
