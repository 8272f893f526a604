"""Command-line words to flag texts, exactly as Go's pflag reads them.

`--name=value`, `--name value`, `-v=4`, `-v 4`; a boolean never takes the next word; `--` ends the flags; underscores in names are
dashes; a "strings" flag keeps commas, a "slice" flag splits at them.  It refuses to know what the values mean.
Source: spf13/pflag flag.go, string_array.go, string_slice.go; decision 0002.
"""

import csv
import difflib
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from nobiru.kernel.errors import ConfigError
from nobiru.nodes.flags import Flag

PROGRAM_NAMES = frozenset({"cluster-autoscaler", "nobiru"})


def strip_program(words: Sequence[str]) -> list[str]:
    """The words without a leading program name: OpenShift's manifests have /bin/cluster-autoscaler as the first of args."""
    if words and not words[0].startswith("-") and PurePosixPath(words[0]).name in PROGRAM_NAMES:
        return list(words[1:])
    return list(words)


def parse(words: Sequence[str], flags: Iterable[Flag]) -> dict[str, list[str]]:
    """The texts given for each flag, in order.

    Raises:  ConfigError for an unknown flag, a missing value, or a word that is no flag.
    """
    known = {flag.name: flag for flag in flags}
    given: dict[str, list[str]] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            if rest:
                raise ConfigError(f'"{rest[0]}" is not a flag: this command takes flags only')
            break
        if not word.startswith("-") or word == "-":
            raise ConfigError(f'"{word}" is not a flag: this command takes flags only, as --name=value')
        name, equals, value = word.lstrip("-").partition("=")
        flag = known.get(name.replace("_", "-"))
        if flag is None or (not word.startswith("--") and len(name) > 1):
            raise ConfigError(unknown(word.split("=", 1)[0], name.replace("_", "-"), known))
        if not equals:
            if flag.kind == "bool":
                value = "true"
            elif rest:
                value = rest.pop(0)
            else:
                raise ConfigError(f"{word} needs a value: {word}=...")
        given.setdefault(flag.name, []).extend(_split(flag, value))
    return given


def _split(flag: Flag, value: str) -> list[str]:
    if flag.kind != "slice":
        return [value]
    return next(csv.reader([value]), []) if value else []


def unknown(word: str, name: str, known: Iterable[str]) -> str:
    """The line for a flag that nobody knows, with the nearest that exists."""
    names = list(known)
    if name in names:
        return f"unknown flag {word}: did you mean --{name}?"
    near = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean --{near[0]}?" if near else ""
    return f"unknown flag {word}.{hint} All flags: nobiru nodes --help"
