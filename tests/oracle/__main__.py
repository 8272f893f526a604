"""`python -m tests.oracle FIRST-LAST`: the cases of these seeds, ours against the real scheduler's plugins."""

import json
import sys
import time
from collections import Counter

from tests.cluster.controlplane.build import BuildFailed, Unavailable
from tests.oracle.build import program
from tests.oracle.cases import case
from tests.oracle.compare import PLUGINS, differences
from tests.oracle.oracle import Oracle

BATCH = 500
SHOWN_MAX = 5
SEEDS_TELLING = 500  # from so many cases on, each plugin must have refused something
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
    seen: Counter[str] = Counter()
    told_s = time.monotonic()
    with Oracle(built) as oracle:
        for start in range(0, len(numbers), BATCH):
            batch = numbers[start : start + BATCH]
            cases = [case(seed) for seed in batch]
            for seed, each, answer in zip(batch, cases, oracle.ask(cases), strict=True):
                found = differences(each, answer)
                seen.update(plugin for of_pod in answer.refused for plugin in of_pod)
                if found:
                    apart += 1
                    if apart <= SHOWN_MAX:
                        sys.stdout.write(f"seed {seed}:\n  " + "\n  ".join(found) + f"\n  {json.dumps(each)}\n")
            if time.monotonic() - told_s > PROGRESS_S:
                told_s = time.monotonic()
                say(f"{start + len(batch)} of {len(numbers)} seeds")
    sys.stdout.write(f"{len(numbers) - apart} of {len(numbers)} seeds agree\n")
    sys.stdout.write("refused by " + ", ".join(f"{plugin} {seen[plugin]}" for plugin in PLUGINS) + "\n")
    unseen = [plugin for plugin in PLUGINS if not seen[plugin]] if len(numbers) >= SEEDS_TELLING else []
    if unseen:
        say(f"no case makes {', '.join(unseen)} refuse anything: the cases say nothing about it")
    return 1 if apart or unseen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "1-2000"))
