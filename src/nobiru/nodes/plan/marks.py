"""The marks a removal leaves on a Node: reading them, and the merge patches that write and erase them.

Cluster Autoscaler's taints carry its keys and values, so that its runbooks hold; our annotations say which marks are ours.
Invariant: an erasing patch touches our own marks only; a cordon that was there before us stays.
Source: cluster-autoscaler 1.36 utils/taints (keys, unix seconds as value, effects).
"""

from msgspec import Struct

from nobiru.kernel.objects import Node, Taint

DELETE_TAINT = "ToBeDeletedByClusterAutoscaler"
CANDIDATE_TAINT = "DeletionCandidateOfClusterAutoscaler"
MARKED_BY = "nobiru.io/marked-by"
CORDONED_BY_US = "nobiru.io/cordoned"
CANDIDATE_SINCE = "nobiru.io/unneeded-since"  # where soft taints are off or over their limit
SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
DELAY_DELETION_PREFIX = "delay-deletion.cluster-autoscaler.kubernetes.io/"


class DeleteMark(Struct, frozen=True, kw_only=True):
    """A delete taint found on a node."""

    since_ms: int
    ours: bool  # nobiru.io/marked-by is there too
    marked_by: str = ""
    cordoned_by_us: bool = False


def _seconds(value: str) -> int | None:
    return int(value) if value.isdecimal() and len(value) <= 12 else None


def _taint(node: Node, key: str) -> Taint | None:
    return next((taint for taint in node.taints if taint.key == key), None)


def delete_mark(node: Node) -> DeleteMark | None:
    """The delete taint of a node, if it carries one; an unreadable value counts as marked long ago."""
    taint = _taint(node, DELETE_TAINT)
    if taint is None:
        return None
    marked_by = node.annotations.get(MARKED_BY, "")
    return DeleteMark(
        since_ms=(_seconds(taint.value) or 0) * 1000,
        ours=bool(marked_by),
        marked_by=marked_by,
        cordoned_by_us=node.annotations.get(CORDONED_BY_US) == "true",
    )


def candidate_since_ms(node: Node) -> int | None:
    """Since when the node is unneeded, by its soft taint or our annotation; None where neither says."""
    taint = _taint(node, CANDIDATE_TAINT)
    seconds = _seconds(taint.value) if taint else _seconds(node.annotations.get(CANDIDATE_SINCE, ""))
    return None if seconds is None else seconds * 1000


def has_candidate_taint(node: Node) -> bool:
    return _taint(node, CANDIDATE_TAINT) is not None


def removal_disabled(node: Node) -> bool:
    return node.annotations.get(SCALE_DOWN_DISABLED) == "true"


def deletion_delays(node: Node) -> tuple[str, ...]:
    """The delay-deletion annotations: somebody asks to wait before the instance goes."""
    return tuple(sorted(key for key in node.annotations if key.startswith(DELAY_DELETION_PREFIX)))


def _taints_patch(node: Node, *, without: str, add: Taint | None = None) -> list[dict[str, str]]:
    kept = [taint for taint in node.taints if taint.key != without]
    wanted = [*kept, add] if add else kept
    return [
        {"key": taint.key, "effect": taint.effect, **({"value": taint.value} if taint.value else {})}
        for taint in wanted
    ]


def candidate_patch(node: Node, since_ms: int) -> dict[str, object] | None:
    """The patch that puts the soft taint on; None where the node carries it already or is being deleted."""
    if has_candidate_taint(node) or delete_mark(node):
        return None
    taint = Taint(key=CANDIDATE_TAINT, value=str(since_ms // 1000), effect="PreferNoSchedule")
    return {"spec": {"taints": _taints_patch(node, without=CANDIDATE_TAINT, add=taint)}}


def uncandidate_patch(node: Node) -> dict[str, object] | None:
    """The patch that takes the soft taint off; None where there is none."""
    if not has_candidate_taint(node):
        return None
    return {"spec": {"taints": _taints_patch(node, without=CANDIDATE_TAINT)}}


def removal_patch(node: Node, *, now_ms: int, identity: str, cordon: bool) -> dict[str, object] | None:
    """The patch that begins a removal: delete taint, our name, and a cordon unless a human's is there already.

    None where somebody marked the node meanwhile.
    """
    if delete_mark(node):
        return None
    cordons = cordon and not node.spec.unschedulable
    taint = Taint(key=DELETE_TAINT, value=str(now_ms // 1000), effect="NoSchedule")
    spec: dict[str, object] = {"taints": _taints_patch(node, without=DELETE_TAINT, add=taint)}
    if cordons:
        spec["unschedulable"] = True
    annotations = {MARKED_BY: identity, CORDONED_BY_US: "true" if cordons else None}
    return {"metadata": {"annotations": annotations}, "spec": spec}


def rollback_patch(node: Node) -> dict[str, object] | None:
    """The patch that ends a removal that will not happen; None where no delete taint is left.

    The taint itself is erased whoever put it there (the caller decides when that is right); the cordon only if it was ours.
    """
    mark = delete_mark(node)
    if mark is None:
        return None
    spec: dict[str, object] = {"taints": _taints_patch(node, without=DELETE_TAINT)}
    if mark.cordoned_by_us:
        spec["unschedulable"] = None
    return {"metadata": {"annotations": {MARKED_BY: None, CORDONED_BY_US: None}}, "spec": spec}
