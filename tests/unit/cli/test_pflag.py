"""Words are read as Go's pflag reads them, proved by what pflag itself made of the same words."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nobiru.cli.pflag import Parsed, parse, strip_program
from nobiru.kernel.duration import parse_duration
from nobiru.kernel.errors import ConfigError
from nobiru.nodes.flag_values import parse_bool, parse_float, parse_level, parse_whole
from nobiru.nodes.flags import FLAGS

VECTORS = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "vectors" / "pflag.json").read_text(encoding="utf-8").splitlines()
]
# The flags that the recorded program defined, one or two of each kind.
RECORDED = {
    "max-nodes-total",
    "v",
    "scale-down-utilization-threshold",
    "leader-elect",
    "skip-nodes-with-local-storage",
    "scan-interval",
    "namespace",
    "nodes",
    "allowed-scheduler-names",
}
PARSERS: dict[str, Callable[[str], str]] = {
    "int": lambda text: str(parse_whole(text)),
    "level": lambda text: str(parse_level(text)),
    "float": lambda text: f"{parse_float(text):.17g}",
    "bool": lambda text: str(parse_bool(text)).lower(),
    "duration": lambda text: str(parse_duration(text)),
    "string": lambda text: text,
}


def read(words: list[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What our parser and value readers make of the words, in the form of the vectors."""
    flags = {flag.name: flag for flag in FLAGS if flag.name in RECORDED}
    parsed = parse(words, flags.values())
    given: dict[str, Any] = {}
    for name, texts in parsed.given.items():
        kind = flags[name].kind
        given[name] = texts if kind in ("strings", "slice") else [PARSERS[kind](text) for text in texts][-1]
    return given, parsed.strays


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: " ".join(vector["words"]) or "nothing")
def test_words_mean_what_they_mean_to_pflag(vector: dict[str, Any]) -> None:
    """The same words are accepted with the same values, or refused."""
    if vector["error"]:
        with pytest.raises(ConfigError):
            read(vector["words"])
    else:
        assert read(vector["words"]) == (vector.get("given", {}), tuple(vector.get("rest", ())))


PROGRAM_CASES = [
    (["/bin/cluster-autoscaler", "--v=4"], ["--v=4"]),
    (["./cluster-autoscaler", "--v=4"], ["--v=4"]),
    (["cluster-autoscaler"], []),
    (["/usr/local/bin/nobiru", "--v=4"], ["--v=4"]),
    (["--v=4", "/bin/cluster-autoscaler"], ["--v=4", "/bin/cluster-autoscaler"]),
    (["/bin/sh", "--v=4"], ["/bin/sh", "--v=4"]),
    ([], []),
]


@pytest.mark.parametrize(("words", "want"), PROGRAM_CASES)
def test_a_program_name_is_passed_over_only_as_the_first_word(words: list[str], want: list[str]) -> None:
    """OpenShift's manifest has the program as the first of args, EKS's as the first of command."""
    assert strip_program(words) == want


ALL = "All flags: nobiru nodes --help"
DASHES = "with two dashes; all flags: nobiru nodes --help"
UNKNOWN_CASES = [
    ("--scan-intervall=10s", f"unknown flag --scan-intervall: did you mean --scan-interval? {ALL}"),
    ("--expanders", f"unknown flag --expanders: did you mean --expander? {ALL}"),
    ("--zzz", f"unknown flag --zzz: {ALL}"),
    ("-expander=random", f"unknown flag -expander: write --expander, {DASHES}"),
    ("-scale_down_enabled=1", f"unknown flag -scale_down_enabled: write --scale-down-enabled, {DASHES}"),
    ("--nodes", "--nodes needs a value: --nodes=..."),
    ("dry-run", '"dry-run" is no flag: write --dry-run'),
    ("nodes=1:5:a", '"nodes=1:5:a" is no flag: write --nodes=1:5:a'),
]


@pytest.mark.parametrize(("word", "line"), UNKNOWN_CASES)
def test_a_wrong_word_is_answered_with_what_to_write(word: str, line: str) -> None:
    """One line: the word, the nearest flag, where all are listed."""
    with pytest.raises(ConfigError) as caught:
        parse([word], FLAGS)
    assert str(caught.value) == line


ASKED_CASES = [
    (["--help"], "help"),
    (["-h"], "help"),
    (["--v=4", "-h", "--nonsense"], "help"),
    (["--version"], "version"),
    (["--namespace", "--help"], ""),
    (["--", "--help"], ""),
]


@pytest.mark.parametrize(("words", "want"), ASKED_CASES)
def test_help_is_answered_where_it_stands(words: list[str], want: str) -> None:
    """--help ends the reading at once; as another flag's value it is a value."""
    assert parse(words, FLAGS).asked == want


def test_nothing_is_nothing() -> None:
    """No words, no flags."""
    assert parse([], FLAGS) == Parsed()
