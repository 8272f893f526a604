"""The published files, and what the harness changes in them, in memory."""

import hashlib

import pytest
import yaml

from tests.cluster.controlplane.manifests import (
    WALKTHROUGHS,
    fill,
    openshift_rbac_modern,
    walkthrough,
    with_project_selectors,
)


def test_walkthroughs_are_as_published() -> None:
    """Every file still has the checksum that it was published with, and none is without one."""
    sums = (WALKTHROUGHS / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    recorded = {name: digest for digest, name in (line.split("  ") for line in sums)}
    ours = WALKTHROUGHS / "eks" / "cluster-autoscaler.yaml"
    everything = {path for folder in ("openshift", "eks") for path in (WALKTHROUGHS / folder).iterdir()}
    published = sorted(everything - {ours})

    found = {str(path.relative_to(WALKTHROUGHS)): hashlib.sha256(path.read_bytes()).hexdigest() for path in published}

    assert found == recorded


@pytest.mark.parametrize("name", ["openshift/role.yaml", "openshift/clusterrole.yaml"])
def test_openshift_rbac_modern(name: str) -> None:
    """Roles get today's apiVersion and lose attributeRestrictions; their rules stay, in order."""
    before = yaml.safe_load(walkthrough(name))

    after = yaml.safe_load(openshift_rbac_modern(walkthrough(name)))

    assert "attributeRestrictions" in before["rules"][0]
    for rule in before["rules"]:
        del rule["attributeRestrictions"]
    assert after == before | {"apiVersion": "rbac.authorization.k8s.io/v1"}


@pytest.mark.parametrize("name", ["openshift/serviceaccount.yaml", "openshift/scale-up.yaml", "eks/tiller-rbac.yaml"])
def test_openshift_rbac_modern_leaves_the_rest(name: str) -> None:
    """Other kinds, and RBAC with a version of its own, pass through byte for byte."""
    assert openshift_rbac_modern(walkthrough(name)) == walkthrough(name)


def test_fill() -> None:
    """Each angle-bracket placeholder is replaced, spaces and Japanese included, and nothing else."""
    text = walkthrough("openshift/cluster-autoscaler.yaml")

    filled = fill(text, **{"Auto Scaling Group名": "compute nodes"})

    assert filled == text.replace("0:6:<Auto Scaling Group名>", "0:6:compute nodes")


def test_fill_refuses_a_name_that_is_not_there() -> None:
    """A misspelt placeholder is an error, or a test would run with the published text."""
    with pytest.raises(KeyError, match="<Group>"):
        fill(walkthrough("openshift/cluster-autoscaler.yaml"), Group="workers")


OPENSHIFT, UPSTREAM = "openshift.io/node-selector", "scheduler.alpha.kubernetes.io/node-selector"

SELECTORS = [
    # name, annotations given, value under the upstream name
    ("empty overrides", {OPENSHIFT: ""}, ""),
    ("a selector", {OPENSHIFT: "zone=a"}, "zone=a"),
    ("upstream's own wins", {OPENSHIFT: "zone=a", UPSTREAM: "zone=b"}, "zone=b"),
]


@pytest.mark.parametrize(("name", "given", "want"), SELECTORS, ids=[case[0] for case in SELECTORS])
def test_with_project_selectors(name: str, given: dict[str, str], want: str) -> None:
    """A namespace's OpenShift selector is also written where the API server's admission reads it."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "annotations": given}}

    after = yaml.safe_load(with_project_selectors(yaml.safe_dump(namespace)))

    annotations = {**given, UPSTREAM: want}
    assert after == {**namespace, "metadata": {"name": "a", "annotations": annotations}}


def test_with_project_selectors_leaves_the_rest() -> None:
    """Texts without such a namespace pass through byte for byte."""
    assert with_project_selectors(walkthrough("openshift/scale-up.yaml")) == walkthrough("openshift/scale-up.yaml")
