"""The bodies that kubelets send: Nodes, their status, Leases, and the status of pods.

It refuses to know: when they are sent.  Invariant: pure; a patch of a pod carries its uid, so it never reaches a namesake.
Source: Kubernetes API reference 1.36, Node, Lease and Pod.
"""

from datetime import UTC, datetime
from typing import Any

from nobiru.kernel.objects import Taint
from nobiru.sim.kubelet_model import EndPod, HollowContainer, HollowPod, Machine, StartPod
from nobiru.sim.kubelet_plan import offered

Body = dict[str, Any]

LEASE_NAMESPACE = "kube-node-lease"
LEASE_DURATION_S = 40  # kubelet: nodeLeaseDurationSeconds
HEALTHY = {  # condition -> reason while all is well
    "MemoryPressure": "KubeletHasSufficientMemory",
    "DiskPressure": "KubeletHasNoDiskPressure",
    "PIDPressure": "KubeletHasSufficientPID",
}


def stamp(now_ms: int) -> str:
    """A timestamp in whole seconds, as the API keeps most of them."""
    return datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_stamp(now_ms: int) -> str:
    """A timestamp with microseconds, as Leases have."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def node_body(machine: Machine, now_ms: int) -> Body:
    """The Node that a kubelet registers: not Ready, GPUs unknown yet."""
    spec: Body = {"taints": [taint_body(taint) for taint in machine.profile.taints]}
    if machine.provider_id and not machine.profile.without_provider_id:
        spec["providerID"] = machine.provider_id
    shape = machine.shape
    return {
        "metadata": {
            "name": machine.node,
            "labels": node_labels(machine),
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": spec,
        "status": {
            **offered(machine, gpus=False),
            "conditions": conditions_body(ready=False, turned=True, now_ms=now_ms),
            "addresses": [
                {"type": "InternalIP", "address": machine.private_ip},
                {"type": "InternalDNS", "address": machine.node},
                {"type": "Hostname", "address": machine.node},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": machine.instance_id,
                "systemUUID": machine.instance_id,
                "bootID": machine.instance_id,
                "kernelVersion": shape.kernel_version,
                "osImage": shape.os_image,
                "containerRuntimeVersion": shape.container_runtime,
                "kubeletVersion": shape.kubelet_version,
                "kubeProxyVersion": shape.kubelet_version,
                "operatingSystem": "linux",
                "architecture": shape.arch,
            },
        },
    }


def taint_body(taint: Taint) -> Body:
    """A taint; an empty value is left out."""
    body = {"key": taint.key, "effect": taint.effect}
    return body | {"value": taint.value} if taint.value else body


def node_labels(machine: Machine) -> dict[str, str]:
    """What the kubelet and the cloud put on every Node, and the machine's own labels.

    Source: kubernetes.io "Well-Known Labels, Annotations and Taints"; the beta names are deprecated, and still written.
    """
    labels = {
        "kubernetes.io/hostname": machine.node,
        "beta.kubernetes.io/arch": machine.shape.arch,
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/instance-type": machine.instance_type,
        "failure-domain.beta.kubernetes.io/zone": machine.zone,
        "failure-domain.beta.kubernetes.io/region": machine.region,
    }
    if not machine.profile.beta_labels_only:
        labels |= {
            "kubernetes.io/arch": machine.shape.arch,
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": machine.instance_type,
            "topology.kubernetes.io/zone": machine.zone,
            "topology.kubernetes.io/region": machine.region,
        }
    return labels | machine.profile.node_labels


def conditions_body(*, ready: bool, turned: bool, now_ms: int) -> list[Body]:
    """A Node's conditions; merged by type, so that those which did not turn keep the time of their last transition."""
    now = stamp(now_ms)
    conditions: list[Body] = [
        {"type": type_, "status": "False", "reason": reason, "message": "hollow", "lastHeartbeatTime": now}
        for type_, reason in HEALTHY.items()
    ]
    conditions.append(
        {
            "type": "Ready",
            "status": "True" if ready else "False",
            "reason": "KubeletReady" if ready else "KubeletNotReady",
            "message": "hollow kubelet is ready" if ready else "the hollow network is not ready",
            "lastHeartbeatTime": now,
        }
    )
    if turned:
        conditions[-1]["lastTransitionTime"] = now
    return conditions


def status_body(machine: Machine, *, ready: bool, turned: bool, gpus: bool, now_ms: int) -> Body:
    """A strategic merge patch of a Node's status."""
    conditions = conditions_body(ready=ready, turned=turned, now_ms=now_ms)
    return {"status": {**offered(machine, gpus=gpus), "conditions": conditions}}


def lease_body(node: str, uid: str, now_ms: int) -> Body:
    """A Node's Lease; it goes with the Node."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
    return {
        "metadata": {"name": node, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]},
        "spec": {"holderIdentity": node, "leaseDurationSeconds": LEASE_DURATION_S, "renewTime": micro_stamp(now_ms)},
    }


def renewal_body(now_ms: int) -> Body:
    """A merge patch that renews a Lease."""
    return {"spec": {"renewTime": micro_stamp(now_ms)}}


# Pods


def running_body(action: StartPod, ip: str, now_ms: int) -> Body:
    """A strategic merge patch of a pod's status: it runs, and is ready."""
    pod, host = action.pod, action.machine.private_ip
    address = host if pod.spec.host_network else ip
    now = stamp(now_ms)
    sidecars = {each.name for each in pod.spec.init_containers or () if each.restart_policy == "Always"}
    return _pod_status(
        pod,
        {
            "phase": "Running",
            "hostIP": host,
            "hostIPs": [{"ip": host}],
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": now,
            "conditions": [
                {"type": type_, "status": "True", "lastTransitionTime": now}
                for type_ in ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
            ],
            "containerStatuses": [
                _status(pod, each, {"running": {"startedAt": now}}, ready=True) for each in pod.spec.containers or ()
            ],
            "initContainerStatuses": [
                _status(
                    pod,
                    each,
                    {"running": {"startedAt": now}} if each.name in sidecars else _ended(0, now, now),
                    ready=True,
                )
                for each in pod.spec.init_containers or ()
            ],
        },
    )


def ended_body(action: EndPod, now_ms: int) -> Body:
    """A strategic merge patch of a pod's status: its containers ended."""
    pod = action.pod
    now = stamp(now_ms)
    reason = "PodCompleted" if action.exit_code == 0 else "PodFailed"
    return _pod_status(
        pod,
        {
            "phase": "Succeeded" if action.exit_code == 0 else "Failed",
            "conditions": [
                {"type": type_, "status": "False", "reason": reason, "lastTransitionTime": now}
                for type_ in ("PodReadyToStartContainers", "ContainersReady", "Ready")
            ],
            "containerStatuses": [
                _status(pod, each, _ended(action.exit_code, stamp(action.started_ms), now), ready=False)
                for each in pod.spec.containers or ()
            ],
        },
    )


def _pod_status(pod: HollowPod, status: Body) -> Body:
    return {"metadata": {"uid": pod.metadata.uid}, "status": status}


def _status(pod: HollowPod, container: HollowContainer, state: Body, *, ready: bool) -> Body:
    return {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "containerID": f"hollow://{pod.metadata.uid}/{container.name}",
        "ready": ready,
        "started": "running" in state,
        "restartCount": 0,
        "state": state,
    }


def _ended(exit_code: int, started: str, ended: str) -> Body:
    reason = "Completed" if exit_code == 0 else "Error"
    return {"terminated": {"exitCode": exit_code, "reason": reason, "startedAt": started, "finishedAt": ended}}
