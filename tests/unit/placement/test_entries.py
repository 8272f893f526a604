"""In which state a pod stands for planning: the first condition that holds."""

from typing import Any

import pytest

from nobiru.kernel.objects import Pod
from nobiru.placement.entries import PodState, entry_of
from tests.unit.placement.builders import class_of, pod, unschedulable

DELETED = {"deletionTimestamp": "2024-05-01T10:01:00Z", "deletionGracePeriodSeconds": 30}


def condition(status: str = "False", reason: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": "PodScheduled", "status": status, "reason": reason}]}


@pytest.mark.parametrize(
    ("given", "want"),
    [
        (pod(node="n", status={"phase": "Succeeded"}), "finished"),
        (pod(status={"phase": "Failed"}), "finished"),
        (pod(node="n"), "scheduled"),
        (pod(node="n", meta=DELETED), "scheduled"),
        (pod(meta=DELETED, status=unschedulable()), "deleting"),
        (pod(status={**unschedulable(), "nominatedNodeName": "n"}), "nominated"),
        (pod(status=unschedulable()), "unschedulable"),
        (pod(), "unprocessed"),
        (pod(status=condition()), "unprocessed"),
        (pod(status=condition(reason="SchedulingGated")), "gated"),
        (pod(status=condition(reason="SchedulerError")), "other"),
        (pod(status=condition(status="True")), "other"),
    ],
)
def test_state(given: Pod, want: PodState) -> None:
    """Finished before scheduled before deleting before nominated; then what the scheduler said."""
    assert entry_of(given, class_of(given)).state == want


def test_moments_and_grace() -> None:
    """Times in milliseconds; a deletion has its moment and its grace, no deletion has neither."""
    gone = pod(node="n", meta=DELETED)
    stuck = pod(status=unschedulable("2024-05-01T10:00:05Z"))

    entry, other = entry_of(gone, class_of(gone)), entry_of(stuck, class_of(stuck))

    assert (entry.created_ms, entry.deleted_ms, entry.grace_ms) == (1714557600000, 1714557660000, 30_000)
    assert (other.deleted_ms, other.grace_ms, other.unschedulable_since_ms) == (0, 0, 1714557605000)
