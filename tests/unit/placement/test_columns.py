"""Columns of templates, and columns put side by side."""

import msgspec

from nobiru.kernel.objects import Taint
from nobiru.placement.columns import (
    TemplateNode,
    columns_of_templates,
    concat,
    label_codes,
    request_matrix,
    resource_names,
)
from tests.unit.placement.builders import class_of, cluster_of, node, pod

SMALL = TemplateNode(name="small", allocatable={"cpu": 2000, "pods": 10}, overhead={"cpu": 200, "pods": 1})
GPU = TemplateNode(
    name="gpu",
    labels={"accelerator": "x"},
    taints=(Taint(key="gpu", effect="NoSchedule"),),
    allocatable={"cpu": 8000, "pods": 20, "nvidia.com/gpu": 4},
)


def test_templates_as_columns() -> None:
    """In the order given, over the resources asked for, less what DaemonSets take."""
    wants_disk = class_of(pod(containers=[{"name": "c", "resources": {"requests": {"example.com/disk": "1"}}}]))
    resources = resource_names([SMALL, GPU], [wants_disk])
    columns = columns_of_templates([SMALL, GPU], resources)

    assert resources == ("cpu", "memory", "ephemeral-storage", "pods", "example.com/disk", "nvidia.com/gpu")
    assert columns.free.T.tolist() == [[1800, 0, 0, 9, 0, 0], [8000, 0, 0, 20, 0, 4]]
    assert columns.names == ("small", "gpu")
    assert columns.taints[1] == GPU.taints
    assert columns.held.ptr.tolist() == [0, 0, 0]
    assert request_matrix([wants_disk], resources).tolist() == [[0, 0, 0, 1, 1, 0]]


def test_real_nodes_and_templates_side_by_side() -> None:
    """The first ones keep their places and pods; rows are those of either."""
    real = cluster_of(node("a", cpu="4", labels={"zone": "z"}), pod("p", "1", node="a")).nodes
    columns = concat(real, columns_of_templates([GPU], resource_names([GPU], [])))

    assert columns.names == ("a", "gpu")
    assert columns.resources[4:] == ("nvidia.com/gpu",)
    assert columns.free[[0, 4]].tolist() == [[3000, 8000], [0, 4]]
    assert columns.held.of(0)[1].tolist() == [1]
    assert columns.held.of(1)[1].tolist() == []
    assert columns.classes == real.classes
    assert columns.index == {"a": 0, "gpu": 1}


def test_label_codes_name_each_distinct_value_once() -> None:
    """A node without the label has the value None."""
    nodes = cluster_of(node("a", labels={"z": "1"}), node("b"), node("c", labels={"z": "1"})).nodes
    values, codes = label_codes("z", nodes)

    assert [values[code] for code in codes.tolist()] == ["1", None, "1"]
    assert len(values) == 2


def test_templates_are_plain_values() -> None:
    """A template encodes to JSON and back, as the journal needs."""
    assert msgspec.json.decode(msgspec.json.encode(GPU), type=TemplateNode) == GPU
