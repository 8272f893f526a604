"""The command lines of the two published walk-throughs, verbatim, mean what their authors meant."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from nobiru.cli.flags import nodes_config
from nobiru.cli.pflag import parse, strip_program
from nobiru.kernel.errors import ConfigError
from nobiru.nodes.config import NodesConfig
from nobiru.nodes.flags import FLAGS

WALKTHROUGHS = Path(__file__).parents[3] / "scenarios" / "walkthroughs"


def container(path: str) -> dict[str, Any]:
    """The first container of a manifest's Deployment."""
    manifest = yaml.safe_load((WALKTHROUGHS / path).read_text(encoding="utf-8"))
    found: dict[str, Any] = manifest["spec"]["template"]["spec"]["containers"][0]
    return found


def config_of(words: list[str]) -> NodesConfig:
    return nodes_config(parse(strip_program(words), FLAGS))


def test_the_openshift_manifest() -> None:
    """`args` begin with the program; the switch is written False; the lock is a ConfigMap in the project's namespace."""
    args = [
        word.replace("<Auto Scaling Group名>", "prod openshift compute")
        for word in container("openshift/cluster-autoscaler.yaml")["args"]
    ]
    config = config_of(args)

    assert args[0] == "/bin/cluster-autoscaler"
    assert [(spec.min_size, spec.max_size, spec.name) for spec in config.groups.explicit] == [
        (0, 6, "prod openshift compute")
    ]
    assert not config.scale_down.skip_nodes_with_local_storage
    assert (config.leader.kind, config.leader.namespace, config.leader.name) == (
        "configmaps",
        "cluster-autoscaler",
        "cluster-autoscaler",
    )
    assert (config.log.verbosity, config.log.stderr_threshold, config.log.file) == (4, "INFO", "")
    assert config.warnings == ()


def test_the_openshift_manifest_with_its_placeholder() -> None:
    """The placeholder that was not filled is named in one line."""
    with pytest.raises(ConfigError, match=r"--nodes: .*<Auto Scaling Group名>.* still has a placeholder"):
        config_of(container("openshift/cluster-autoscaler.yaml")["args"])


def test_the_eks_manifest() -> None:
    """`command` begins with the program; no group is named, so the tags decide."""
    command = container("eks/cluster-autoscaler-changes.yaml")["command"]
    config = config_of(command)

    assert command[0] == "./cluster-autoscaler"
    assert (config.groups.explicit, config.groups.discovery) == ((), ())
    assert not config.scale_down.skip_nodes_with_local_storage
    assert (config.leader.kind, config.leader.namespace) == ("leases", "kube-system")
    assert (config.log.verbosity, config.log.stderr_threshold) == (4, "INFO")
    assert config.warnings == ()


STRAY_CASES = [
    (["--leader-elect", "false"], ('"false" is no flag and is passed over; a switch takes its value as --name=false',)),
    (["extra", "--v=4"], ('"extra" is no flag and is passed over',)),
    (["--v=4", "--", "-x"], ('"-x" is no flag and is passed over',)),
]


@pytest.mark.parametrize(("words", "want"), STRAY_CASES)
def test_words_that_are_no_flags_are_said(words: list[str], want: tuple[str, ...]) -> None:
    """The peer passes over them silently; a switch that looks turned off is not."""
    config = config_of(words)
    assert config.warnings == want
    assert config.leader.enabled
