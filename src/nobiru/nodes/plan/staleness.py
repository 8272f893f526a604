"""Whether what is known is too old to take anything away by; growing from what is known stays allowed (invariant 9)."""

from nobiru.kernel.duration import format_duration
from nobiru.kernel.reason import Reason, Why
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.model import Snapshot

# A healthy watch brings a bookmark about once a minute (kube-apiserver watch cache), so after two the line is dead.
KUBE_AGE_MS_MAX = 120_000
# Groups are described every scan interval; three that failed in a row, and a minute for a call that hangs, are an outage.
CLOUD_SCANS_MAX = 3
CLOUD_GRACE_MS = 60_000


def stale(snap: Snapshot, config: NodesConfig) -> Why | None:
    """What is too old, and by how much; None where all is fresh enough."""
    cloud_ms_max = CLOUD_SCANS_MAX * config.process.scan_interval_ms + CLOUD_GRACE_MS
    for word, age_ms, limit_ms in (
        ("the API server", snap.freshness.kube_age_ms, KUBE_AGE_MS_MAX),
        ("AWS", snap.freshness.cloud_age_ms, cloud_ms_max),
    ):
        if age_ms > limit_ms:
            detail = f"{word}: {format_duration(age_ms)} old, at most {format_duration(limit_ms)}"
            return Why(reason=Reason.STALE_KNOWLEDGE, detail=detail)
    return None
