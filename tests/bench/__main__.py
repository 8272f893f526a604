"""`make bench`: every figure against its target, as a table and in build/bench.json."""

import importlib
import sys

from tests.bench.rows import Row, show, write

# Each has rows() -> list[Row]; later capabilities add theirs.
MODULES = ("placement", "plans", "caches", "reaction")


def main(names: list[str]) -> int:
    """Measure all modules, or the named ones; 0 where every target is met."""
    found: list[Row] = []
    for name in names or MODULES:
        sys.stderr.write(f"measuring {name}\n")
        found += importlib.import_module(f"tests.bench.{name}").rows()
    show(found)
    write(found)
    return 0 if all(row.met for row in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
