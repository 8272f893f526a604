"""Command-line words to flag texts, exactly as Go's pflag reads them.

`--name=value`, `--name value`, `-v=4`, `-v 4`, `-v4`; a boolean never takes the next word; `--` ends the flags; underscores in
names are dashes; a "strings" flag keeps commas, a "slice" flag splits at them.  It refuses to know what the values mean.
Words that are no flags are passed over, as the peer does, but said; one that names a flag is refused, since it was meant as one.
Source: spf13/pflag 1.0.9 flag.go, string_array.go, string_slice.go; decision 0002; tests/vectors/pflag.json.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Literal

from msgspec import Struct, field

from nobiru.kernel.errors import ConfigError
from nobiru.nodes.flags import Flag

PROGRAM_NAMES = frozenset({"cluster-autoscaler", "nobiru"})
HELP = "nobiru nodes --help"
_CSV_FIELD = re.compile(r'(?:"((?:[^"]|"")*)"|([^",]*))(,|$)', re.DOTALL)
NEAR = 0.6  # difflib's own cutoff for a good match


class Parsed(Struct, frozen=True, kw_only=True):
    """What the words say: texts by flag in order, words that are no flags, and a request for help or version."""

    given: dict[str, list[str]] = field(default_factory=dict)
    strays: tuple[str, ...] = ()
    asked: Literal["", "help", "version"] = ""


def strip_program(words: Sequence[str]) -> list[str]:
    """The words without a leading program name: OpenShift's manifests have /bin/cluster-autoscaler as the first of args."""
    if words and not words[0].startswith("-") and PurePosixPath(words[0]).name in PROGRAM_NAMES:
        return list(words[1:])
    return list(words)


def parse(words: Sequence[str], flags: Iterable[Flag]) -> Parsed:
    """The texts given for each flag; help and version end the reading where they stand.

    Raises:  ConfigError for an unknown flag, a missing value, or a word that names a flag without its dashes.
    """
    known = {flag.name: flag for flag in flags}
    given: dict[str, list[str]] = {}
    strays: list[str] = []
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        if word == "--":
            strays += reversed(rest)
            break
        if not word.startswith("-") or word == "-":
            strays.append(word)
            continue
        name, value = _split_word(word)
        if name in ("help", "version") and name not in known:
            return Parsed(given=given, asked="help" if name == "help" else "version")
        flag = known.get(name)
        if flag is None:
            raise ConfigError(_unknown(word, known))
        if value is None:
            value = _next_value(word, flag, rest)
        given.setdefault(flag.name, []).extend(_items(word, flag, value))
    for word in strays:
        _refuse_bare_name(word, known)
    return Parsed(given=given, strays=tuple(strays))


def _split_word(word: str) -> tuple[str, str | None]:
    """(name, value or None) of one word that begins with a dash; a single dash has one letter, and its value may follow at once."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        return name.replace("_", "-"), value if equals else None
    letter, value = word[1], word[2:]
    if letter == "h":
        return "help", None
    if letter != "v":
        return word, None  # no flag has such a name
    if value.startswith("=") and len(value) > 1:
        value = value[1:]
    return letter, value or None


def _next_value(word: str, flag: Flag, rest: list[str]) -> str:
    if flag.kind == "bool":
        return "true"
    if not rest:
        raise ConfigError(f"{word} needs a value: {word}=...")
    return rest.pop()


def _items(word: str, flag: Flag, value: str) -> list[str]:
    """The texts of one value: a "slice" is one CSV record, as Go's encoding/csv reads it."""
    if flag.kind != "slice":
        return [value]
    items: list[str] = []
    position, more = 0, bool(value)
    while more:
        item = _CSV_FIELD.match(value, position)
        if item is None:
            raise ConfigError(f"{word}: quotes do not match")
        items.append(item[2] if item[1] is None else item[1].replace('""', '"'))
        position, more = item.end(), bool(item[3])
    return items


def _unknown(word: str, known: Mapping[str, Flag]) -> str:
    """The line for a flag that nobody knows, with the nearest that exists."""
    shown = word.partition("=")[0]
    name = shown.lstrip("-").replace("_", "-")
    if name in known:
        return f"unknown flag {shown}: write --{name}, with two dashes; all flags: {HELP}"
    near = difflib.get_close_matches(name, known, n=1, cutoff=NEAR)
    hint = f"did you mean --{near[0]}? " if near else ""
    return f"unknown flag {shown}: {hint}All flags: {HELP}"


def _refuse_bare_name(word: str, known: Mapping[str, Flag]) -> None:
    name = word.partition("=")[0].replace("_", "-")
    if len(name) > 1 and name in known:
        raise ConfigError(f'"{word}" is no flag: write --{word}')
