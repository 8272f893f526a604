"""Flags to typed values: names, kinds and defaults of every release, values and their one-line refusals."""

import json
from pathlib import Path
from typing import Any

import pytest

from nobiru.kernel.errors import ConfigError
from nobiru.nodes.config import NodesConfig, make_config
from nobiru.nodes.flag_reader import Reader
from nobiru.nodes.flag_values import DiscoverySpec, GpuLimit, NodeGroupSpec
from nobiru.nodes.flags import DEFAULTS_BEFORE, FLAGS, NEWEST, by_name, defaults

PEER_FLAGS: list[dict[str, str]] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "ca_flags.json").read_text(encoding="utf-8")
)


def made(*flags: str) -> NodesConfig:
    """The configuration that --name=value texts mean."""
    given: dict[str, list[str]] = {}
    for flag in flags:
        name, _, value = flag.removeprefix("--").partition("=")
        given.setdefault(name, []).append(value)
    return make_config(given)


def refusal(*flags: str) -> str:
    """The line that refuses these flags."""
    with pytest.raises(ConfigError) as caught:
        made(*flags)
    return str(caught.value)


def value(config: NodesConfig, path: str) -> Any:
    """The attribute at a dotted path."""
    found: Any = config
    for name in path.split("."):
        found = getattr(found, name)
    return found


# The table itself


@pytest.mark.parametrize("peer", PEER_FLAGS, ids=lambda peer: peer["name"])
def test_every_flag_of_the_peer_is_known(peer: dict[str, str]) -> None:
    """Each flag that any release had exists with its kind, and with its default of the newest release."""
    flag = by_name()[peer["name"].replace("_", "-")]
    assert flag.kind == peer["kind"]
    if "default" in peer:
        read = Reader({flag.name: [peer["default"]]}, defaults(NEWEST), NEWEST)
        assert read.means(flag, flag.default)


def test_no_flag_is_described_twice_and_only_ours_are_new() -> None:
    """Beyond the peer's there are klog's newest flag and the five of nobiru."""
    names = [flag.name for flag in FLAGS]
    peers = {peer["name"].replace("_", "-") for peer in PEER_FLAGS}
    ours = {"compat-version", "dry-run", "batch-idle", "batch-max", "max-terminations-per-10m"}
    assert len(names) == len(set(names))
    assert set(names) == peers | ours | {"alsologtostderrthreshold"}


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_defaults_are_legal_and_say_nothing(flag: Any) -> None:
    """Giving any flag its own default is accepted without a warning, in the newest release and in the oldest."""
    if flag.kind in ("strings", "slice", "map") or not flag.default:
        return
    for compat in ("1.37", "1.2"):
        text = defaults((1, int(compat.split(".")[1])))[flag.name]
        config = made(f"--{flag.name}={text}", f"--compat-version={compat}")
        unsaid = flag.effect and not Reader({flag.name: [text]}, {}, NEWEST).means(flag, flag.holds)
        assert bool(config.warnings) == bool(unsaid)


# Defaults by release

COMPAT_CASES = [
    #  release  attribute                                      want
    ("1.2", "scale_up.expander", ("random",)),
    ("1.32", "scale_up.expander", ("random",)),
    ("1.33", "scale_up.expander", ("least-waste",)),
    ("", "scale_up.expander", ("least-waste",)),
    ("1.11", "scale_up.expendable_pods_priority_cutoff", 0),
    ("1.12", "scale_up.expendable_pods_priority_cutoff", -10),
    ("1.33", "scale_down.cordon", False),
    ("1.34", "scale_down.cordon", True),
    ("1.14", "scale_down.delay_after_delete_ms", 10_000),
    ("1.15", "scale_down.delay_after_delete_ms", 0),
    ("1.16", "leader.kind", "endpoints"),
    ("1.17", "leader.kind", "leases"),
    ("1.13", "scale_down.max_bulk_soft_taint_count", 0),
    ("1.14", "scale_down.max_bulk_soft_taint_count", 10),
    ("1.20", "drain.daemonset_eviction_for_occupied_nodes", False),
    ("1.21", "drain.daemonset_eviction_for_occupied_nodes", True),
    ("1.25", "drain.node_delete_delay_after_taint_ms", 0),
    ("1.26", "drain.node_delete_delay_after_taint_ms", 5_000),
    ("1.2", "health.max_total_unready_percentage", 45.0),
    ("v1.2.5", "compat", (1, 2)),
    ("1.37", "compat", (1, 37)),
    ("", "compat", (1, 37)),
    ("1.36", "groups.discovery_union", False),
]


@pytest.mark.parametrize(("release", "path", "want"), COMPAT_CASES)
def test_compat_version_brings_back_defaults(release: str, path: str, want: object) -> None:
    """The defaults are those of the named release, to the very release that changed them."""
    assert value(made(f"--compat-version={release}"), path) == want


def test_given_values_win_over_a_release_s_defaults() -> None:
    """--compat-version sets defaults only; what followed --scan-interval follows it still."""
    config = made("--compat-version=1.2", "--expander=most-pods", "--scan-interval=30s")
    assert config.scale_up.expander == ("most-pods",)
    assert config.scale_down.delay_after_delete_ms == 30_000


def test_changed_defaults_name_flags_that_exist() -> None:
    """Every row of the list of changed defaults is about a flag, and changes something."""
    for name, _, before in DEFAULTS_BEFORE:
        assert by_name()[name].default != before


# Values

VALUE_CASES = [
    #  flag                                            attribute                            want
    ("--nodes=1:5:a", "groups.explicit", (NodeGroupSpec(min_size=1, max_size=5, name="a"),)),
    ("--nodes=0:6:prod openshift compute", "groups.explicit", (NodeGroupSpec(min_size=0, max_size=6, name="prod openshift compute"),)),
    ("--nodes=0:3:名前:x", "groups.explicit", (NodeGroupSpec(min_size=0, max_size=3, name="名前:x"),)),
    ("--nodes=3:3:a", "groups.explicit", (NodeGroupSpec(min_size=3, max_size=3, name="a"),)),
    ("--node-group-auto-discovery=asg:tag=k8s.io/cluster-autoscaler/enabled,kubernetes.io/cluster/c=owned", "groups.discovery",
     (DiscoverySpec(tags=(("k8s.io/cluster-autoscaler/enabled", None), ("kubernetes.io/cluster/c", "owned"))),)),
    ("--node-group-auto-discovery=asg:tag=a=b=c", "groups.discovery", (DiscoverySpec(tags=(("a", "b=c"),)),)),
    ("--node-group-auto-discovery=asg:tag=a=", "groups.discovery", (DiscoverySpec(tags=(("a", None),)),)),
    ("--cores-total=8:64", "limits.cores_max", 64),
    ("--memory-total=1:256", "limits.memory_gib_min", 1),
    ("--gpu-total=nvidia-tesla-v100:0:4", "limits.gpus", (GpuLimit(gpu="nvidia-tesla-v100", min_count=0, max_count=4),)),
    ("--max-nodes-total=0x20", "limits.max_nodes_total", 32),
    ("--expander=least-waste,random", "scale_up.expander", ("least-waste", "random")),
    ("--expander=priority,most-pods", "scale_up.expander", ("most-pods",)),
    ("--expander=priority", "scale_up.expander", ("least-waste",)),
    ("--scan-interval=1m0s", "process.scan_interval_ms", 60_000),
    ("--scan-interval=0", "process.scan_interval_ms", 100),
    ("--scale-down-utilization-threshold=0.65", "scale_down.utilization_threshold", 0.65),
    ("--expendable-pods-priority-cutoff=-100", "scale_up.expendable_pods_priority_cutoff", -100),
    ("--drain-priority-config=1000:60, -5:10", "drain.priorities", ((-5, 10), (1000, 60))),
    ("--max-empty-bulk-delete=3", "scale_down.max_parallelism", 3),
    ("--ignore-taint=a", "scale_up.startup_taints", ("a",)),
    ("--namespace=ops", "leader.namespace", "ops"),
    ("--leader-elect-resource-lock=configmaps", "leader.kind", "configmaps"),
    ("--stderrthreshold=info", "log.stderr_threshold", "INFO"),
    ("--stderrthreshold=2", "log.stderr_threshold", "ERROR"),
    ("--stderrthreshold=Warning", "log.stderr_threshold", "WARNING"),
    ("--v=4", "log.verbosity", 4),
    ("--logging-format=json", "log.format", "json"),
    ("--log-file=/tmp/x", "log.file", ""),
    ("--skip-nodes-with-local-storage=False", "scale_down.skip_nodes_with_local_storage", False),
]  # fmt: skip


@pytest.mark.parametrize(("flag", "path", "want"), VALUE_CASES)
def test_values(flag: str, path: str, want: object) -> None:
    """Each text has its typed value."""
    assert value(made(flag), path) == want


TOGETHER_CASES = [
    (
        "the newer name wins",
        ["--max-empty-bulk-delete=3", "--max-scale-down-parallelism=4"],
        "scale_down.max_parallelism",
        4,
    ),
    (
        "the last of equal names counts",
        ["--nodes=1:2:a", "--nodes=0:9:a"],
        "groups.explicit",
        (NodeGroupSpec(min_size=0, max_size=9, name="a"),),
    ),
    ("taints of both names", ["--startup-taint=a", "--ignore-taint=b"], "scale_up.startup_taints", ("a", "b")),
    ("own lock namespace", ["--namespace=a", "--leader-elect-resource-namespace=b"], "leader.namespace", "b"),
    ("a file needs logtostderr=false", ["--logtostderr=false", "--log-file=/x"], "log.file", "/x"),
    ("a directory too", ["--logtostderr=false", "--log-dir=/x/"], "log.file", "/x/nobiru.log"),
    ("the file outranks it", ["--logtostderr=false", "--log-dir=/x", "--log-file=/y"], "log.file", "/y"),
    (
        "older releases ignore the threshold",
        ["--compat-version=1.30", "--stderrthreshold=error"],
        "log.stderr_threshold",
        "INFO",
    ),
    (
        "but for what goes to a file",
        ["--compat-version=1.30", "--logtostderr=false", "--log-file=/y"],
        "log.stderr_threshold",
        "ERROR",
    ),
    (
        "unless all goes to both",
        ["--compat-version=1.30", "--logtostderr=false", "--log-file=/y", "--alsologtostderr=true"],
        "log.stderr_threshold",
        "INFO",
    ),
    ("the newest has it always", ["--stderrthreshold=error"], "log.stderr_threshold", "ERROR"),
    (
        "a default beside drain priorities",
        ["--drain-priority-config=1:2", "--max-graceful-termination-sec=600"],
        "drain.priorities",
        ((1, 2),),
    ),
    (
        "several discovery flags: union",
        ["--node-group-auto-discovery=asg:tag=a", "--node-group-auto-discovery=asg:tag=b"],
        "groups.discovery_union",
        True,
    ),
]


@pytest.mark.parametrize(
    ("flags", "path", "want"), [case[1:] for case in TOGETHER_CASES], ids=[case[0] for case in TOGETHER_CASES]
)
def test_flags_together(flags: list[str], path: str, want: object) -> None:
    """What several flags mean together."""
    assert value(made(*flags), path) == want


# Refusals

REFUSALS = [
    (["--nodes=1:5"], '--nodes: "1:5" has 2 of 3 parts: use min:max:name, such as 1:5:my-group'),
    (["--nodes=my-group"], '--nodes: "my-group" has 1 of 3 parts: use min:max:name, such as 1:5:my-group'),
    (["--nodes=a:5:g"], '--nodes: min "a" in "a:5:g" is no number: use min:max:name, such as 1:5:my-group'),
    (["--nodes=1:1.5:g"], '--nodes: max "1.5" in "1:1.5:g" is no number: use min:max:name, such as 1:5:my-group'),
    (["--nodes=-1:5:g"], '--nodes: min -1 in "-1:5:g" is negative: use 0 or more'),
    (["--nodes=6:5:g"], '--nodes: max 5 is below min 6 in "6:5:g": use min:max:name, such as 1:5:my-group'),
    (["--nodes=1:5:"], '--nodes: "1:5:" names no group: use min:max:name, such as 1:5:my-group'),
    (["--nodes=1:5: "], '--nodes: "1:5: " names no group: use min:max:name, such as 1:5:my-group'),
    (["--nodes=0:6:<Auto Scaling Group名>"],
     '--nodes: "0:6:<Auto Scaling Group名>" still has a placeholder: put the Auto Scaling Group\'s name there'),
    (["--nodes=1:5:NODEGROUP_NAME"], '--nodes: "1:5:NODEGROUP_NAME" still has a placeholder: put the Auto Scaling Group\'s name there'),
    (["--nodes=<min>:<max>:<name>"], '--nodes: "<min>:<max>:<name>" still has a placeholder: put the Auto Scaling Group\'s name there'),
    (["--nodes=1:5:${ASG}"], '--nodes: "1:5:${ASG}" still has a placeholder: put the Auto Scaling Group\'s name there'),
    (["--node-group-auto-discovery=asg:tag=k8s.io/cluster-autoscaler/<YOUR CLUSTER NAME>"],
     '--node-group-auto-discovery: "k8s.io/cluster-autoscaler/<YOUR CLUSTER NAME>" is a placeholder: put your own name there'),
    (["--node-group-auto-discovery=mig:namePrefix=a"],
     '--node-group-auto-discovery: "mig:namePrefix=a" is not understood: use asg:tag=key or asg:tag=key=value,key2'),
    (["--node-group-auto-discovery=asg:tag=a,,b"],
     '--node-group-auto-discovery: "asg:tag=a,,b" has a tag without a key: use asg:tag=key or asg:tag=key=value,key2'),
    (["--cluster-name=<cluster name>"], '--cluster-name: "<cluster name>" is a placeholder: put your own name there'),
    (["--expander=price"], "--expander: price needs a cloud that tells prices, AWS does not: use least-waste"),
    (["--expander=cheapest"], '--expander: "cheapest" is unknown: use least-waste, most-pods, least-nodes, random'),
    (["--expander=random,random"], "--expander: random is named twice"),
    (["--expander=random,most-pods"], "--expander: nothing may follow random, since it leaves one group"),
    (["--expander="], "--expander: name at least one of least-waste, most-pods, least-nodes, random"),
    (["--estimator=magic"], '--estimator: "magic" is unknown: use binpacking'),
    (["--cloud-provider=gce"], '--cloud-provider: "gce" is not supported: use aws'),
    (["--cores-total=8"], '--cores-total: "8" is not min:max with 0 <= min <= max'),
    (["--cores-total=9:8"], '--cores-total: "9:8" is not min:max with 0 <= min <= max'),
    (["--memory-total=-1:8"], '--memory-total: "-1:8" is not min:max with 0 <= min <= max'),
    (["--gpu-total=v100"], '--gpu-total: "v100" is not type:min:max'),
    (["--gpu-total=v100:3:1"], '--gpu-total: "3:1" is not min:max with 0 <= min <= max'),
    (["--drain-priority-config=high:5"], '--drain-priority-config: "high:5" is not priority:seconds, such as 1000:60'),
    (["--drain-priority-config=1:5", "--max-graceful-termination-sec=60"],
     "--drain-priority-config and --max-graceful-termination-sec exclude each other: give one"),
    (["--predicate-parallelism=0"], "--predicate-parallelism: 0 is too small: use 1 or more"),
    (["--allowed-scheduler-names=a", "--bypassed-scheduler-names=b"],
     '--bypassed-scheduler-names: "b" is not among --allowed-scheduler-names: add it'),
    (["--leader-elect-resource-lock=file"],
     '--leader-elect-resource-lock: "file" is unknown: use leases, configmaps, endpoints, endpointsleases, configmapsleases'),
    (["--leader-elect-renew-deadline=15s"], "--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline"),
    (["--leader-elect-retry-period=9s"], "--leader-elect-renew-deadline must be longer than 1.2 times --leader-elect-retry-period"),
    (["--batch-idle=2s"], "--batch-idle must not be longer than --batch-max"),
    (["--scan-interval=10"],
     '--scan-interval: invalid duration "10": want a Go duration such as 10m or 1h30m; a number needs a unit, such as 10s'),
    (["--scan-interval=-1s"], "--scan-interval: -1s is negative: use 0s or more"),
    (["--scan-interval=bad", "--scan-interval=10s"], '--scan-interval: invalid duration "bad": want a Go duration such as 10m or 1h30m'),
    (["--max-nodes-total=ten"], '--max-nodes-total: "ten" is no whole number'),
    (["--salvo-scale-up=maybe"], '--salvo-scale-up: "maybe" is not true or false'),
    (["--scale-down-utilization-threshold=nan"], '--scale-down-utilization-threshold: "nan" is no number'),
    (["--scale-down-utilization-threshold=-0.5"], "--scale-down-utilization-threshold: -0.5 is negative: use 0 or more"),
    (["--stderrthreshold=loud"], '--stderrthreshold: "loud" is no severity: use info, warning, error, fatal or 0 to 3'),
    (["--compat-version=1.99"], '--compat-version: "1.99" is no Cluster Autoscaler release from 1.2 to 1.37'),
    (["--compat-version=latest"], '--compat-version: "latest" is no Cluster Autoscaler release from 1.2 to 1.37'),
    (["--address=8085"], '--address: "8085" is not host:port, such as :8085 or 127.0.0.1:8085'),
]  # fmt: skip


@pytest.mark.parametrize(("flags", "line"), REFUSALS, ids=[" ".join(flags) for flags, _ in REFUSALS])
def test_what_is_wrong_is_one_line_that_says_what_to_do(flags: list[str], line: str) -> None:
    """The line names the flag, what is wrong, and what to write."""
    assert refusal(*flags) == line


# What is said of flags without effect

WARNING_CASES = [
    (["--balance-similar-node-groups"], ["--balance-similar-node-groups=true has no effect: nobiru does not have this yet"]),
    (["--parallel-scale-up=true"], []),
    (["--parallel-scale-up=false"], ["--parallel-scale-up=false has no effect: nobiru always does"]),
    (["--scale-up-from-zero=false"], ["--scale-up-from-zero=false has no effect: nobiru always does"]),
    (["--enable-dynamic-resource-allocation=false"], []),
    (["--salvo-scale-up-budget=60s"], []),
    (["--scale-down-delay=10m0s"], []),
    (["--scale-down-delay=5m"],
     ["--scale-down-delay=5m has no effect: Cluster Autoscaler removed it in 1.0: use --scale-down-delay-after-add"]),
    (["--expander=priority,least-waste"], ["--expander=priority,least-waste: nobiru does not have priority yet; least-waste decides"]),
    (["--expander=grpc"], ["--expander=grpc: nobiru does not have grpc yet; least-waste decides"]),
    (["--estimator=basic"], ["--estimator=basic has no effect: binpacking decides"]),
    (["--scan-interval=1ms"], ["--scan-interval is raised to 100ms"]),
    (["--nodes=1:2:a", "--nodes=1:3:a"], ['--nodes names group "a" more than once: the last one counts']),
    (["--log-file=/x"], ["--log-file has no effect: it needs --logtostderr=false"]),
    (["--v=4", "--stderrthreshold=info", "--logtostderr=true"], []),
]  # fmt: skip


@pytest.mark.parametrize(("flags", "want"), WARNING_CASES, ids=[" ".join(flags) for flags, _ in WARNING_CASES])
def test_a_flag_without_effect_is_said_once_and_only_then(flags: list[str], want: list[str]) -> None:
    """No warning where the flag asks for what is so anyway."""
    given = [flag if "=" in flag else f"{flag}=true" for flag in flags]
    assert list(made(*given).warnings) == want
