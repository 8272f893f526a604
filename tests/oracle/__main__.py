"""`python -m tests.oracle FIRST-LAST`: the cases of these seeds, ours against the real scheduler's plugins."""

import json
import sys
import time

from tests.cluster.controlplane.build import BuildFailed, Unavailable
from tests.oracle.build import program
from tests.oracle.cases import case
from tests.oracle.compare import differences
from tests.oracle.oracle import Oracle

BATCH = 500
SHOWN_MAX = 5
PROGRESS_S = 2.0


def say(line: str) -> None:
    sys.stderr.write(f"oracle: {line}\n")


def main(seeds: str) -> int:
    """0 where every seed agrees; the first few that do not are shown whole."""
    first, _, last = seeds.partition("-")
    if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        say(f'SEEDS: "{seeds}" is not FIRST-LAST, such as 1-2000')
        return 2
    try:
        built = program(say)
    except (Unavailable, BuildFailed) as error:
        say(str(error))
        return 1
    numbers = range(int(first), int(last) + 1)
    apart = 0
    told_s = time.monotonic()
    with Oracle(built) as oracle:
        for start in range(0, len(numbers), BATCH):
            batch = numbers[start : start + BATCH]
            cases = [case(seed) for seed in batch]
            for seed, each, answer in zip(batch, cases, oracle.ask(cases), strict=True):
                found = differences(each, answer)
                if found:
                    apart += 1
                    if apart <= SHOWN_MAX:
                        sys.stdout.write(f"seed {seed}:\n  " + "\n  ".join(found) + f"\n  {json.dumps(each)}\n")
            if time.monotonic() - told_s > PROGRESS_S:
                told_s = time.monotonic()
                say(f"{start + len(batch)} of {len(numbers)} seeds")
    sys.stdout.write(f"{len(numbers) - apart} of {len(numbers)} seeds agree\n")
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "1-2000"))
