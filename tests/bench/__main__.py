"""`make bench`: every figure against its target, as a table and in build/bench.json."""

import importlib
import random
import sys
import time

from tests.bench.rows import Row, show, write

# Each has rows() -> list[Row]; later capabilities add theirs.
MODULES = ("placement", "plans", "caches", "reaction")


def yardstick() -> str:
    """What this machine does just now: shared ones differ several times over from hour to hour, memory most of all."""
    places = list(range(3_000_000))
    random.Random(0).shuffle(places)
    began_s, total = time.process_time(), 0
    for number in range(5_000_000):
        total += number * number
    counted_s = time.process_time()
    for place in places:
        total += places[place]
    looked_s = time.process_time() - counted_s
    return f"five million additions in {counted_s - began_s:.2f} s, three million random reads in {looked_s:.2f} s"


def main(names: list[str]) -> int:
    """Measure all modules, or the named ones; 0 where every target is met."""
    found: list[Row] = []
    sys.stderr.write(f"this machine now: {yardstick()}\n")
    for name in names or MODULES:
        sys.stderr.write(f"measuring {name}\n")
        found += importlib.import_module(f"tests.bench.{name}").rows()
    show(found)
    write(found)
    return 0 if all(row.met for row in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
