"""What pods ask for: amounts as kube-scheduler counts them, and host ports."""

from typing import Any

import pytest

from nobiru.placement.requests import amounts_of, effective_request, host_ports, ports_clash
from tests.unit.placement.builders import container, pod

GI = 2**30
SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"containers": []}, {"pods": 1}),
        ({"containers": [container("500m"), container("1", "1Gi")]}, {"cpu": 1500, "memory": GI, "pods": 1}),
        (
            {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}]},
            {"cpu": 2000, "memory": GI, "pods": 1},
        ),
        (
            {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]},
            {"cpu": 1000, "pods": 1},
        ),
        ({"containers": [container("1")], "initContainers": [container("3")]}, {"cpu": 3000, "pods": 1}),
        ({"containers": [container("1")], "initContainers": [container("500m")]}, {"cpu": 1000, "pods": 1}),
        ({"containers": [container("1")], "initContainers": [container("2", **SIDECAR)]}, {"cpu": 3000, "pods": 1}),
        (
            {"containers": [container("1")], "initContainers": [container("2", **SIDECAR), container("5")]},
            {"cpu": 7000, "pods": 1},
        ),
        (
            {"containers": [container("1")], "initContainers": [container("5"), container("2", **SIDECAR)]},
            {"cpu": 5000, "pods": 1},
        ),
        (
            {"containers": [container("1")], "overhead": {"cpu": "250m", "memory": "1Gi"}},
            {"cpu": 1250, "memory": GI, "pods": 1},
        ),
        (
            {
                "containers": [container("1", "1Gi")],
                "resources": {"requests": {"cpu": "500m", "ephemeral-storage": "1Gi"}},
                "overhead": {"cpu": "100m"},
            },
            {"cpu": 600, "memory": GI, "pods": 1},
        ),
        (
            {"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "2", "hugepages-2Mi": "4Mi"}}}]},
            {"nvidia.com/gpu": 2, "hugepages-2Mi": 4 * 2**20, "pods": 1},
        ),
    ],
    ids=[
        "nothing",
        "containers add up",
        "a limit stands for a missing request",
        "a request wins over its limit",
        "a big init container",
        "a small init container",
        "a sidecar counts all along",
        "an init container beside an earlier sidecar",
        "an init container before the sidecar",
        "overhead comes on top",
        "pod-level amounts replace, where they are allowed",
        "extended resources",
    ],
)
def test_effective_request(spec: dict[str, Any], want: dict[str, int]) -> None:
    """The amounts of component-helpers' PodRequests, and one pod."""
    assert effective_request(pod(**spec).spec) == (want, "")


def test_what_cannot_be_read_is_named_by_its_field() -> None:
    """The first bad amount is reported; what can be read still counts."""
    amounts, problem = effective_request(pod(containers=[container("1", "1GB"), container("x")]).spec)

    assert amounts == {"cpu": 1000, "pods": 1}
    assert problem.startswith('spec.containers[main].resources.requests.memory: invalid quantity "1GB"')


def test_a_nodes_bad_amount_is_left_out() -> None:
    """One unreadable figure does not cost the whole node."""
    amounts, problem = amounts_of({"cpu": "2", "memory": "?"})

    assert amounts == {"cpu": 2000}
    assert problem.startswith("status.allocatable.memory:")


def test_host_ports_of_containers_and_sidecars() -> None:
    """Ports of containers and sidecars, each once, sorted; init containers that end hold none."""
    http = {"containerPort": 80, "hostPort": 80}
    spec = pod(
        containers=[container(ports=[http, {"containerPort": 1}]), container(ports=[http])],
        initContainers=[
            container(ports=[{"containerPort": 9, "hostPort": 9, "protocol": "UDP", "hostIP": "10.0.0.1"}], **SIDECAR),
            container(ports=[{"containerPort": 7, "hostPort": 7}]),
        ],
    ).spec

    assert host_ports(spec) == (("TCP", "0.0.0.0", 80), ("UDP", "10.0.0.1", 9))


@pytest.mark.parametrize(
    ("one", "other", "want"),
    [
        (("TCP", "0.0.0.0", 80), ("TCP", "0.0.0.0", 80), True),
        (("TCP", "0.0.0.0", 80), ("TCP", "10.0.0.1", 80), True),
        (("TCP", "10.0.0.1", 80), ("TCP", "0.0.0.0", 80), True),
        (("TCP", "10.0.0.1", 80), ("TCP", "10.0.0.1", 80), True),
        (("TCP", "10.0.0.1", 80), ("TCP", "10.0.0.2", 80), False),
        (("TCP", "0.0.0.0", 80), ("UDP", "0.0.0.0", 80), False),
        (("TCP", "0.0.0.0", 80), ("TCP", "0.0.0.0", 81), False),
    ],
)
def test_ports_clash(one: tuple[str, str, int], other: tuple[str, str, int], want: bool) -> None:
    """Same protocol and port, and the same address or one that means all."""
    assert ports_clash(one, other) is want
    assert ports_clash(other, one) is want
