"""The pages that are made from the code, and where they lie."""

from collections.abc import Callable
from pathlib import Path

from nobiru.cli.help import flags_page
from nobiru.kernel.reason import BlockingPodReason, Reason
from nobiru.sinks.metric_table import metrics_page

ROOT = Path(__file__).parents[2]


def reasons_page() -> str:
    """Every reason for leaving something alone, as docs/reference/reasons.md shows it."""
    lines = [
        "# Reasons",
        "",
        "Made from `src/nobiru/kernel/reason.py`; `python -m tests.docs.update` makes it again.",
        "Every pod, node and group that a plan leaves alone has one of these, with its facts, in `/nobiru/v1/plans`;",
        "events and the metric `unremovable_nodes_count` carry Cluster Autoscaler's word where it has one.",
        "",
        "| reason | meaning | Cluster Autoscaler's word |",
        "|---|---|---|",
        *(f"| `{each.name}` | {each.sentence} | {each.peer} |" for each in Reason),
        "",
        "A pod that must not be moved (with `BLOCKED_BY_POD`):",
        "",
        "| reason | meaning | Cluster Autoscaler's word |",
        "|---|---|---|",
        *(f"| `{each.name}` | {each.sentence} | {each.peer} |" for each in BlockingPodReason),
    ]
    return "\n".join(lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "docs/reference/flags.md": flags_page,
    "docs/reference/metrics.md": metrics_page,
    "docs/reference/reasons.md": reasons_page,
}


def stale_pages(root: Path = ROOT) -> list[str]:
    """The pages that are missing, or differ from what the code makes."""
    return [name for name, make in PAGES.items() if not _is(root / name, make())]


def _is(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text
