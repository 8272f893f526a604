"""Links between pages, and the paths of modules that pages name, exist."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import ROOT

_LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")
_MODULE = re.compile(r"`((?:aws|cli|kernel|kube|nodes|placement|sim|sinks)/[\w/]+\.py)`")
COMPAT = "docs/compat.md"


def pages(root: Path) -> Iterator[Path]:
    """Every page of the documentation."""
    yield from sorted(root.glob("*.md"))
    yield from sorted((root / "docs").rglob("*.md"))


def broken_links(root: Path = ROOT) -> list[str]:
    """One line for each link to a file that does not exist, and for each module that docs/compat.md names and is not there."""
    lines = [
        f"{page.relative_to(root)}: {target} does not exist"
        for page in pages(root)
        for target in _LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    compat = root / COMPAT
    named = _MODULE.findall(compat.read_text(encoding="utf-8")) if compat.is_file() else []
    return lines + [
        f"{COMPAT}: {name} does not exist" for name in named if not (root / "src" / "nobiru" / name).is_file()
    ]
