"""The README's commands are real: its make targets exist, its command lines parse, its pages are there."""

import re
import shlex
from collections.abc import Iterator

import pytest

from nobiru.cli.flags import nodes_config
from nobiru.cli.pflag import parse, strip_program
from nobiru.nodes.flags import FLAGS
from tests.docs.pages import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def commands() -> Iterator[list[str]]:
    """The words of every line that a reader types."""
    for line in README.splitlines():
        if line.startswith("$ "):
            yield shlex.split(line.removeprefix("$ "), comments=True)


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
def test_command_is_real(words: list[str]) -> None:
    """A make target exists; a command line of the product is accepted by its own parser."""
    if words[0] == "make":
        assert words[1] in TARGETS
    elif words[:2] == ["nobiru", "nodes"] or words[0] == "cluster-autoscaler":
        rest = words[2:] if words[0] == "nobiru" else words[1:]
        assert nodes_config(parse(strip_program(rest), FLAGS)).process.namespace == "kube-system"
    else:
        pytest.fail(f"the README types something that nobody checks: {words}")
