"""The flags of other clouds, and those that Cluster Autoscaler renamed or removed: data, nothing else.

Source: cluster-autoscaler releases 0.5 to 1.37; spec sections 1.5, 1.6, 1.7, 1.9.
"""

from nobiru.nodes.flag import idle, works

_OTHER_CLOUD = "it belongs to another cloud"
_NOT_YET = "nobiru does not have this yet"
_SIMULATION = "nobiru plans all groups in one pass, which needs no such limit"
_REMOVED = "Cluster Autoscaler removed it in "

# fmt: off
AWS = (
    works("bool", "aws-use-static-instance-list", "false", "only the bundled table of instance types, no EC2 API"),
    idle("bool", "clusterapi-cloud-config-authoritative", "false", "Cluster API", _OTHER_CLOUD),
    idle("bool", "bulk-mig-instances-listing-enabled", "false", "GCE", _OTHER_CLOUD),
    idle("int", "gce-concurrent-refreshes", "1", "GCE", _OTHER_CLOUD),
    idle("duration", "gce-mig-instances-min-refresh-wait-time", "5s", "GCE", _OTHER_CLOUD),
    idle("string", "cloud-provider-gce-l7lb-src-cidrs", "130.211.0.0/22,35.191.0.0/16", "GCE", _OTHER_CLOUD),
    idle("string", "cloud-provider-gce-lb-src-cidrs", "130.211.0.0/22,209.85.152.0/22,209.85.204.0/22,35.191.0.0/16", "GCE", _OTHER_CLOUD),
)
RETIRED = (
    works("strings", "ignore-taint", "", "older name of --startup-taint"),
    works("int", "max-empty-bulk-delete", "10", "older name of --max-scale-down-parallelism; that one wins", "nodes"),
    idle("bool", "enable-dynamic-resource-allocation", "true", "dynamic resource claims", _NOT_YET, "false"),
    idle("int", "cluster-snapshot-parallelism", "16", "older name of --predicate-parallelism", _SIMULATION),
    idle("bool", "parallel-drain", "true", "the newer way to drain", _REMOVED + "1.32 and always drains so"),
    idle("bool", "node-autoprovisioning-enabled", "false", "create groups", _REMOVED + "1.33; it never worked on AWS"),
    idle("int", "max-autoprovisioned-node-group-count", "15", "most groups created", _REMOVED + "1.33; it never worked on AWS"),
    idle("bool", "gce-expander-ephemeral-storage-support", "false", "GCE", _OTHER_CLOUD),
    idle("bool", "filter-out-schedulable-pods-uses-packing", "true", "pack pending pods first", _REMOVED + "1.18 and always packs"),
    idle("string", "configmap", "", "groups from a ConfigMap", _REMOVED + "1.3: name groups by --nodes, or tag them"),
    idle("string", "gke-api-endpoint", "", "GKE", _OTHER_CLOUD),
    idle("duration", "unregistered-node-removal-time", "15m", "rest of stray machines", _REMOVED + "1.1: use --max-node-provision-time"),
    idle("duration", "scale-down-delay", "10m", "pause after a scale-up", _REMOVED + "1.0: use --scale-down-delay-after-add"),
    idle("duration", "scale-down-trial-interval", "1m", "pause between tries", _REMOVED + "1.0: see --scale-down-delay-after-failure"),
    idle("bool", "verify-unschedulable-pods", "true", "check that pending pods do not fit", _REMOVED + "1.0 and always checks"),
    idle("int", "max-grateful-termination-sec", "60", "limit for pods to end", _REMOVED + "0.6: use --max-graceful-termination-sec"),
)
# fmt: on
