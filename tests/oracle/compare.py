"""Our filters' answers in the oracle's terms, and where they differ."""

import msgspec

from nobiru.kernel.objects import Node, Pod
from nobiru.placement.affinity import Namespaces
from nobiru.placement.books import Books
from nobiru.placement.classes import PodClass
from nobiru.placement.columns import NodeColumns
from nobiru.placement.filters import refusals
from tests.oracle.oracle import ALL_NODES, Answer, Json

# Which plugin says what, by the beginning of its words.
PLUGIN_OF = (
    ("node(s) were unschedulable", "NodeUnschedulable"),
    ("node(s) had untolerated taint", "TaintToleration"),
    ("node(s) didn't match Pod's node affinity", "NodeAffinity"),
    ("node(s) didn't have free ports", "NodePorts"),
    ("Insufficient ", "NodeResourcesFit"),
    ("Too many pods", "NodeResourcesFit"),
    ("node(s) didn't match pod topology spread", "PodTopologySpread"),
    ("node(s) didn't match pod affinity", "InterPodAffinity"),
    ("node(s) didn't satisfy existing pods anti-affinity", "InterPodAffinity"),
    ("node(s) didn't match pod anti-affinity", "InterPodAffinity"),
)
PLUGINS = tuple(dict.fromkeys(plugin for _, plugin in PLUGIN_OF))
# A plugin that stops at its first reason names no others: which of them it names is its own affair.
FIRST_ONLY = ("InterPodAffinity", "PodTopologySpread")
UNRESOLVED = "left out before filtering"

Refusals = dict[tuple[str, str], frozenset[str]]  # (node, plugin) -> reasons


def ours(case: Json) -> Refusals:
    """What our filters say of the wanted pod."""
    books = Books()
    for node in case["nodes"]:
        books.upsert_node(msgspec.convert(node, Node))
    for pod in case["pods"]:
        books.upsert_pod(books.admit(msgspec.convert(pod, Pod)))
    wanted = books.classes.intern(msgspec.convert(case["wanted"][0], Pod))
    nodes = books.freeze().nodes
    namespaces = {each["metadata"]["name"]: each["metadata"]["labels"] for each in case["namespaces"]}
    found: Refusals = {}
    for index, name in enumerate(nodes.names):
        for plugin, reasons in _by_plugin(wanted, nodes, index, namespaces).items():
            found[name, plugin] = frozenset(reasons)
    return found


def _by_plugin(wanted: PodClass, nodes: NodeColumns, index: int, namespaces: Namespaces) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for refusal in refusals(wanted, nodes, index, namespaces):
        plugin = next((plugin for words, plugin in PLUGIN_OF if refusal.reason.startswith(words)), "")
        if plugin:  # else the rule is not planned for, which is said of the pod and not of the node
            found.setdefault(plugin, set()).add(refusal.reason)
    return found


def theirs(case: Json, answer: Answer) -> Refusals:
    """What the oracle says of the wanted pod, as far as the plugins are ours too."""
    found: Refusals = {}
    (of_pod,) = answer.refused
    for plugin, by_node in of_pod.items():
        if plugin not in PLUGINS:
            continue
        for node, refused in by_node.items():
            names = [each["metadata"]["name"] for each in case["nodes"]] if node == ALL_NODES else [node]
            for name in names:
                found[name, plugin] = frozenset(refused.reasons or ())
    return found


def differences(case: Json, answer: Answer) -> list[str]:
    """One line for each node and plugin that is judged otherwise; none where all agree."""
    mine, real = ours(case), theirs(case, answer)
    lines = []
    for node, plugin in sorted(mine.keys() | real.keys()):
        here, there = mine.get((node, plugin)), real.get((node, plugin))
        agree = (here is None) == (there is None)
        if agree and here is not None and there is not None and UNRESOLVED not in there:
            agree = here >= there if plugin in FIRST_ONLY else here == there
        if not agree:
            lines.append(f"{plugin} on {node}: ours {sorted(here or ())}, kube-scheduler's {sorted(there or ())}")
    return lines
