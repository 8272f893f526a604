"""The documentation is in step with the code."""

import re
from pathlib import Path

import msgspec
import pytest

from nobiru.nodes import config
from nobiru.nodes.flags import by_name
from tests.docs.links import broken_links, pages
from tests.docs.pages import PAGES, ROOT, stale_pages

SOURCES = ROOT / "src" / "nobiru"
# Options of other programs that pages speak of.
OTHER_PROGRAMS = frozenset({"help", "version"})


def test_generated_pages_are_what_the_code_makes() -> None:
    """`python -m tests.docs.update` was run after the last change."""
    assert stale_pages() == []


def test_a_stale_or_missing_page_is_noticed(tmp_path: Path) -> None:
    """A page that was edited by hand, or is not there, is named."""
    name, *others = PAGES
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(PAGES[name](), encoding="utf-8")
    assert stale_pages(tmp_path) == others
    (tmp_path / name).write_text("edited", encoding="utf-8")
    assert stale_pages(tmp_path) == [name, *others]


def test_links_lead_somewhere() -> None:
    """Files that pages link to, and modules that docs/compat.md names, exist."""
    assert broken_links() == []


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    """A link to nowhere is named with its page."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("[a](docs/a.md) [b](https://example.org/) [c](#x)", encoding="utf-8")
    assert broken_links(tmp_path) == ["README.md: docs/a.md does not exist"]


@pytest.mark.parametrize(
    "page", [page for page in pages(ROOT) if "decisions" not in page.parts], ids=lambda page: page.name
)
def test_flags_that_pages_name_exist(page: Path) -> None:
    """A page never speaks of a flag that the program would refuse."""
    named = re.findall(r"(?<![\w-])--([a-z][a-z0-9_-]+)", page.read_text(encoding="utf-8"))
    assert set(named) - set(by_name()) <= OTHER_PROGRAMS


def settings() -> list[tuple[str, str]]:
    """(part, attribute) of every setting."""
    parts = [field for field in msgspec.structs.fields(config.NodesConfig) if isinstance(field.type, type)]
    return [
        (part.name, field.name)
        for part in parts
        if issubclass(part.type, config.Part)
        for field in msgspec.structs.fields(part.type)
    ]


UNREAD = {("limits", "gpus")}  # said to have no effect


@pytest.mark.parametrize(("part", "name"), [each for each in settings() if each not in UNREAD], ids=".".join)
def test_a_setting_that_works_is_read(part: str, name: str) -> None:
    """A flag is not said to work while nothing reads its value."""
    readers = [path for path in SOURCES.rglob("*.py") if not path.name.startswith(("config", "flag"))]
    assert any(re.search(rf"\.{name}\b", path.read_text(encoding="utf-8")) for path in readers)
