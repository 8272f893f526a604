"""Every flag of Cluster Autoscaler, and ours, described once: parsing, defaults, help and reference read this table.

Defaults are those of the newest release; `DEFAULTS_BEFORE` lists what older ones had, for --compat-version.
Invariant: no flag of any release since 0.5 is unknown.
"""

from msgspec.structs import replace

from nobiru.nodes.flag import Flag, Kind, Section
from nobiru.nodes.flags_process import GROUPS, LOGGING, NOBIRU, PROCESS
from nobiru.nodes.flags_retired import AWS, RETIRED
from nobiru.nodes.flags_scaling import SCALE_DOWN, SCALE_UP

__all__ = ["DEFAULTS_BEFORE", "FLAGS", "NEWEST", "OLDEST", "SECTIONS", "Flag", "Kind", "Section", "by_name", "defaults"]

OLDEST = (1, 2)  # what OpenShift 3.11 ships
NEWEST = (1, 37)

SECTIONS: tuple[tuple[Section, str, tuple[Flag, ...]], ...] = (
    ("nobiru", "Only nobiru has these", NOBIRU),
    ("groups", "Groups of machines, limits, health", GROUPS),
    ("scale-up", "Scale-up", SCALE_UP),
    ("scale-down", "Scale-down", SCALE_DOWN),
    ("process", "Process, API server, leader election", PROCESS),
    ("logging", "Logging", LOGGING),
    ("aws", "AWS and other clouds", AWS),
    ("retired", "Deprecated or removed by Cluster Autoscaler", RETIRED),
)

FLAGS: tuple[Flag, ...] = tuple(replace(flag, section=section) for section, _, flags in SECTIONS for flag in flags)

# (flag, release that changed it, default before).  Source: spec section 1.9, list of changed defaults; for the log,
# glog in 1.2, and klog 2.140 under the newest.
DEFAULTS_BEFORE: tuple[tuple[str, tuple[int, int], str], ...] = (
    ("expander", (1, 33), "random"),
    ("expendable-pods-priority-cutoff", (1, 12), "0"),
    ("cordon-node-before-terminating", (1, 34), "false"),
    ("scale-down-delay-after-delete", (1, 15), "10s"),  # --scan-interval, whatever that is; see nodes/config.py
    ("scale-down-simulation-timeout", (1, 27), "5m"),
    ("frequent-loops-enabled", (1, 35), "false"),
    ("enable-dynamic-resource-allocation", (1, 35), "false"),
    ("leader-elect-resource-lock", (1, 17), "endpoints"),
    ("max-bulk-soft-taint-count", (1, 14), "0"),
    ("daemonset-eviction-for-occupied-nodes", (1, 21), "false"),
    ("node-delete-delay-after-taint", (1, 26), "0s"),
    ("logtostderr", (1, 3), "false"),
    ("stderrthreshold", (1, 37), "ERROR"),
    ("legacy-stderr-threshold-behavior", (1, 37), "true"),
)


def by_name() -> dict[str, Flag]:
    """The flags by name."""
    return {flag.name: flag for flag in FLAGS}


def defaults(compat: tuple[int, int]) -> dict[str, str]:
    """The default of every flag in that release."""
    newest = {flag.name: flag.default for flag in FLAGS}
    return newest | {name: before for name, changed, before in DEFAULTS_BEFORE if compat < changed}
