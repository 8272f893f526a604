"""`make bench`: every figure against its target, as a table and in build/bench.json."""

import importlib
import sys
import time

from tests.bench.rows import Row, show, write

# Each has rows() -> list[Row]; later capabilities add theirs.
MODULES = ("placement", "plans", "caches", "reaction")


def yardstick_s() -> float:
    """A plain loop's processor time: shared machines differ twofold from hour to hour, and figures must be read beside it."""
    began_s, total = time.process_time(), 0
    for number in range(5_000_000):
        total += number * number
    return time.process_time() - began_s


def main(names: list[str]) -> int:
    """Measure all modules, or the named ones; 0 where every target is met."""
    found: list[Row] = []
    sys.stderr.write(f"this machine now adds five million times in {yardstick_s():.2f} s\n")
    for name in names or MODULES:
        sys.stderr.write(f"measuring {name}\n")
        found += importlib.import_module(f"tests.bench.{name}").rows()
    show(found)
    write(found)
    return 0 if all(row.met for row in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
