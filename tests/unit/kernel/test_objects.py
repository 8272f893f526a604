"""API objects as the API server writes them, decoded to the fields that nobiru reads."""

import json
from datetime import UTC, datetime

import msgspec

from nobiru.kernel.objects import Lease, Node, Pod, PodDisruptionBudget, Taint, Workload, milliseconds


def test_a_pod_decodes_to_what_is_read() -> None:
    """Unknown fields are skipped, camelCase and the odd capitals are mapped, absent parts take defaults."""
    pod = msgspec.json.decode(
        json.dumps(
            {
                "kind": "Pod",
                "metadata": {
                    "name": "web-1",
                    "namespace": "shop",
                    "creationTimestamp": "2024-05-01T10:00:00Z",
                    "managedFields": [{"manager": "kubectl"}],
                    "ownerReferences": [
                        {"kind": "Other", "name": "o", "uid": "1"},
                        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "2", "controller": True},
                    ],
                },
                "spec": {
                    "nodeName": "n1",
                    "containers": [
                        {"name": "c", "ports": [{"containerPort": 80, "hostPort": 80, "hostIP": "10.0.0.1"}]}
                    ],
                    "affinity": {
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {
                                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
                            }
                        }
                    },
                },
                "status": {"phase": "Running", "nominatedNodeName": "n2"},
            }
        ),
        type=Pod,
    )

    assert pod.key == ("shop", "web-1")
    assert pod.controller is not None
    assert pod.controller.name == "web"
    assert pod.labels == {}
    assert pod.annotations == {}
    assert milliseconds(pod.metadata.creation_timestamp) == 1714557600000
    assert pod.spec.containers is not None
    assert pod.spec.containers[0].ports is not None
    assert pod.spec.containers[0].ports[0].host_ip == "10.0.0.1"
    assert pod.spec.affinity is not None
    assert pod.spec.affinity.node_affinity is not None
    assert pod.spec.affinity.node_affinity.required is not None
    assert pod.spec.affinity.node_affinity.required.node_selector_terms[0].match_fields is None
    assert pod.status.nominated_node_name == "n2"


def test_nulls_that_bookmarks_and_old_servers_send_decode() -> None:
    """A bookmark's object has null lists; they are as good as absent."""
    text = '{"metadata":{"resourceVersion":"7","creationTimestamp":null},"spec":{"containers":null},"status":{}}'

    pod = msgspec.json.decode(text, type=Pod)

    assert pod.metadata.resource_version == "7"
    assert pod.spec.containers is None
    assert milliseconds(pod.metadata.creation_timestamp) == 0


def test_a_node_decodes() -> None:
    """providerID has its own spelling; a node without taints has none."""
    text = (
        '{"metadata":{"name":"n1"},"spec":{"providerID":"aws:///eu-west-1a/i-1","unschedulable":true,'
        '"taints":[{"key":"k","effect":"NoSchedule","timeAdded":"2024-05-01T10:00:00Z"}]},'
        '"status":{"allocatable":{"cpu":"2"},"images":[{"names":["x"]}]}}'
    )
    node = msgspec.json.decode(text, type=Node)

    assert node.spec.provider_id == "aws:///eu-west-1a/i-1"
    assert node.taints == (Taint(key="k", effect="NoSchedule"),)
    assert node.status.allocatable == {"cpu": "2"}
    assert msgspec.json.decode('{"metadata":{"name":"n"}}', type=Node).taints == ()


def test_other_kinds_decode() -> None:
    """Controllers, budgets and leases, with times in microseconds too."""
    workload = msgspec.json.decode(
        '{"metadata":{"name":"w","namespace":"d"},"spec":{"replicas":3,"template":{"spec":{}}}}', type=Workload
    )
    budget = msgspec.json.decode(
        '{"metadata":{"name":"b"},"spec":{"selector":{"matchLabels":{"a":"b"}}},"status":{"disruptionsAllowed":1}}',
        type=PodDisruptionBudget,
    )
    lease = msgspec.json.decode('{"metadata":{"name":"l"},"spec":{"renewTime":"2024-05-01T10:00:00.5Z"}}', type=Lease)

    assert workload.spec.replicas == 3
    assert workload.spec.template is not None
    assert budget.status.disruptions_allowed == 1
    assert lease.spec.renew_time == datetime(2024, 5, 1, 10, 0, 0, 500_000, tzinfo=UTC)


def test_values_encode_as_the_api_spells_them() -> None:
    """Defaults are left out, names are camelCase: a patch made from a value is a valid one."""
    assert msgspec.json.encode(Taint(key="k", effect="NoSchedule")) == b'{"key":"k","effect":"NoSchedule"}'
