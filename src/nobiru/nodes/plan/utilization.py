"""How much of each node its pods ask for: the number that decides whether a node is worth its money.

It refuses to know: thresholds.  Invariant: whole columns at a time; the only float is the ratio.
Source: cluster-autoscaler 1.36 simulator/utilization/info.go: the larger share of cpu and memory, for a GPU node that of its GPUs
alone; pods whose deletion hangs do not count; what ignored DaemonSet and mirror pods take is neither used nor there.
"""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from nobiru.nodes.plan.conditions import GPU_LABEL, GPU_RESOURCES
from nobiru.nodes.plan.loads import Loads, node_of_entries
from nobiru.placement.classes import PodClass
from nobiru.placement.columns import Bools, Cluster, Ints

_MEASURED = ("cpu", "memory")  # the first two rows of NodeColumns


class Utilization(Struct, frozen=True, kw_only=True, eq=False):
    """The use of each node.

    Shapes:  cpu, memory, value (N,) float64; gpu (N,) bool, where `value` is the GPUs'; known (N,) bool, False where the
             node reports no allocatable cpu or memory.
    """

    cpu: np.ndarray
    memory: np.ndarray
    value: np.ndarray
    gpu: Bools
    known: Bools

    def text(self, node: int) -> str:
        """The use of one node, for people."""
        if self.gpu[node]:
            return f"gpu {self.value[node]:.1%}"
        return f"cpu {self.cpu[node]:.1%}, memory {self.memory[node]:.1%}"


def measure(cluster: Cluster, loads: Loads, *, without_daemons: Sequence[bool], without_mirrors: bool) -> Utilization:
    """The utilisation of every node; `without_daemons` says for each node whether DaemonSet pods are left out."""
    nodes = cluster.nodes
    rows = [nodes.resources.index(name) for name in _MEASURED]
    used = nodes.requested[rows].copy()
    there = nodes.allocatable[rows].copy()
    ignoring = np.array(without_daemons, dtype=np.bool_)
    if ignoring.any():
        taken = np.where(ignoring, _taken(cluster, rows, _mask(cluster.classes, daemons=True)), 0)
        used, there = used - taken, there - taken
    if without_mirrors:
        taken = _taken(cluster, rows, _mask(cluster.classes, daemons=False))
        used, there = used - taken, there - taken
    for node, pod in loads.hung():
        pod_class = pod.pod_class
        left_out = ignoring[node] if pod_class.daemon else pod_class.mirror and without_mirrors
        if not left_out:
            used[:, node] -= cluster.request[pod_class.index][rows]
    share = np.divide(used, there, out=np.zeros(used.shape), where=there > 0)
    gpu, gpu_share = _gpus(cluster)
    value = np.where(gpu, gpu_share, share.max(axis=0, initial=0.0))
    known = gpu | (there > 0).all(axis=0)
    return Utilization(cpu=share[0], memory=share[1], value=value, gpu=gpu, known=known)


def _mask(classes: Sequence[PodClass], *, daemons: bool) -> Bools:
    """The classes of DaemonSet pods, or those of mirror pods."""
    return np.array([each.daemon if daemons else each.mirror and not each.daemon for each in classes], dtype=np.bool_)


def _taken(cluster: Cluster, rows: Sequence[int], mask: Bools) -> Ints:
    """What pods of the masked classes take of each node, (len(rows), N) int64."""
    held = cluster.held
    taken = np.zeros((len(rows), len(cluster.nodes)), dtype=np.int64)
    entries = np.flatnonzero(mask[held.class_index]) if len(mask) else np.zeros(0, dtype=np.int64)
    if entries.size:
        amounts = cluster.request[held.class_index[entries]][:, rows].T * held.count[entries]
        node_of = node_of_entries(held.ptr)[entries]
        for row in range(len(rows)):
            np.add.at(taken[row], node_of, amounts[row])
    return taken


def _gpus(cluster: Cluster) -> tuple[Bools, np.ndarray]:
    """(which nodes are GPU nodes, how much of their GPUs is asked for); GPUs not reported yet count as unused."""
    nodes = cluster.nodes
    gpu = np.array([GPU_LABEL in labels for labels in nodes.labels], dtype=np.bool_)
    share = np.zeros(len(nodes))
    for name in GPU_RESOURCES:
        if name in nodes.resources:
            row = nodes.resources.index(name)
            has = nodes.allocatable[row] > 0
            np.divide(nodes.requested[row], nodes.allocatable[row], out=share, where=has)
            gpu |= has
    return gpu, share
