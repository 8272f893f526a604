"""One measured figure against its target, and the table and file that they go into."""

import json
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct, to_builtins
from rich.console import Console
from rich.table import Table

TARGET_FILE = Path("build/bench.json")


class Row(Struct, frozen=True, kw_only=True):
    """A figure; `at_least` where more is better."""

    name: str
    value: float
    unit: str
    target: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.target if self.at_least else self.value <= self.target


def show(rows: Sequence[Row]) -> None:
    """The rows as a table on standard output."""
    table = Table("figure", "measured", "target", "")
    for row in rows:
        sign = ">=" if row.at_least else "<="
        mark = "[green]met[/]" if row.met else "[red]missed[/]"
        table.add_row(row.name, f"{row.value:g} {row.unit}", f"{sign} {row.target:g} {row.unit}", mark)
    Console(width=140).print(table)


def write(rows: Sequence[Row]) -> None:
    """The rows into build/bench.json: a list of {name, value, unit, target, met}."""
    TARGET_FILE.parent.mkdir(exist_ok=True)
    entries = [{**to_builtins(row), "met": row.met} for row in rows]
    for entry in entries:
        del entry["at_least"]
    TARGET_FILE.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
