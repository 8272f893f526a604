"""What the scenarios on the EKS stage share: a node's file system, a workload, the flags that shorten the waits."""

import shutil
from pathlib import Path

import yaml

BUNDLE = "etc/ssl/certs/ca-bundle.crt"
# The article's image is a release of 1.2, whose lock is an endpoints object: this is how one asks for that time's defaults.
OF_ITS_TIME = "--compat-version=1.3"
ENABLED = "k8s.io/cluster-autoscaler/enabled"
MINE = {ENABLED: "true", "k8s.io/cluster-autoscaler/demo": ""}


def host_with_bundle(root: Path) -> Path:
    """A node's file system with the CA bundle where Amazon Linux has it."""
    bundle = root / "host" / BUNDLE
    bundle.parent.mkdir(parents=True)
    shutil.copy("/etc/ssl/certs/ca-certificates.crt", bundle)
    return root / "host"


def workload(replicas: int, name: str = "web", **more: object) -> str:
    """A Deployment of pods with 2Gi each; an m5.large holds three."""
    labels = {"app": name}
    container = {"name": "app", "image": "app", "resources": {"requests": {"memory": "2Gi"}}}
    return yaml.safe_dump(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container], **more}},
            },
        }
    )
