"""Published manifests made ready for a current API server, in memory: placeholders, RBAC versions, project selectors.

Text in, text out. It refuses to talk to anything, and changes no file. Invariant: a document that needs nothing
passes through unchanged.
"""

from pathlib import Path
from typing import Any

import yaml

WALKTHROUGHS = Path(__file__).parents[3] / "scenarios" / "walkthroughs"

OPENSHIFT_NODE_SELECTOR = "openshift.io/node-selector"
# What kube-apiserver's PodNodeSelector admission reads: the same idea under its upstream name.
POD_NODE_SELECTOR = "scheduler.alpha.kubernetes.io/node-selector"

RBAC_KINDS = frozenset({"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"})
RBAC_VERSION = "rbac.authorization.k8s.io/v1"

# OpenShift ships this role and a plain cluster does not. There it lists each kind; here it may read everything.
CLUSTER_READER = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: cluster-reader
rules:
- apiGroups: ["*"]
  resources: ["*"]
  verbs: [get, list, watch]
- nonResourceURLs: ["*"]
  verbs: [get]
"""


def walkthrough(name: str) -> str:
    """The text of one published file, such as `openshift/role.yaml`, exactly as it was published."""
    return (WALKTHROUGHS / name).read_text(encoding="utf-8")


def fill(text: str, **placeholders: str) -> str:
    """`text` with each `<name>` replaced by its value: `fill(text, **{"Auto Scaling Group名": "workers"})`.

    Raises:  KeyError for a name that the text does not have.
    """
    for name, value in placeholders.items():
        if f"<{name}>" not in text:
            raise KeyError(f"no placeholder <{name}> in this text")
        text = text.replace(f"<{name}>", value)
    return text


def openshift_rbac_modern(text: str) -> str:
    """RBAC documents of OpenShift 3 with today's apiVersion and without `attributeRestrictions`.

    Only OpenShift 3 takes roles as `apiVersion: v1`; `attributeRestrictions` never had an effect there.
    """
    documents = load(text)
    for document in documents:
        if document.get("kind") in RBAC_KINDS and document.get("apiVersion") == "v1":
            document["apiVersion"] = RBAC_VERSION
            for rule in document.get("rules") or []:
                rule.pop("attributeRestrictions", None)
    return dump(documents) if documents != load(text) else text


def with_project_selectors(text: str) -> str:
    """Namespaces that carry OpenShift's node selector annotation get it under the upstream name too.

    An empty value is copied as it is: it overrides the cluster's default selector.
    """
    documents = load(text)
    for document in documents:
        if document.get("kind") == "Namespace":
            annotations = (document.get("metadata") or {}).get("annotations") or {}
            if OPENSHIFT_NODE_SELECTOR in annotations:
                annotations.setdefault(POD_NODE_SELECTOR, annotations[OPENSHIFT_NODE_SELECTOR])
    return dump(documents) if documents != load(text) else text


def load(text: str) -> list[dict[str, Any]]:
    """The YAML documents of a text, empty ones left out."""
    return [document for document in yaml.safe_load_all(text) if document]


def dump(documents: list[dict[str, Any]]) -> str:
    """YAML documents as one text, keys in their given order."""
    return str(yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True))
