"""Texts of flags to typed values, with Go's syntax for numbers and Cluster Autoscaler's for groups, tags and chains.

Pure.  Invariant: what Go accepts is accepted with the same value; everything else is one ConfigError that says what to do.
Source: Go strconv (ParseInt, ParseFloat, ParseBool); cluster-autoscaler config/dynamic, cloudprovider/aws, expander/factory.
"""

import math
import re
from typing import Literal

from msgspec import Struct

from nobiru.kernel.errors import ConfigError

Severity = Literal["INFO", "WARNING", "ERROR", "FATAL"]
SEVERITIES: tuple[Severity, ...] = ("INFO", "WARNING", "ERROR", "FATAL")
EXPANDERS = ("least-waste", "most-pods", "least-nodes", "random")
LATER_EXPANDERS = ("priority", "grpc")  # accepted with a warning: the rest of the chain decides, else least-waste
FALLBACK_EXPANDER = "least-waste"

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
# Go's base 0: an underscore may stand between digits and after a prefix; a leading 0 alone means octal.
_WHOLE = re.compile(
    r"([+-]?)(?:0[xX]((?:_?[0-9a-fA-F])+)|0[bB]((?:_?[01])+)|0[oO]?((?:_?[0-7])+)|(0|[1-9](?:_?[0-9])*))", re.ASCII
)
_BASES = (16, 2, 8, 10)
# Go's floats: decimal or hexadecimal with a binary exponent; the same rule for underscores.
_DIGITS, _HEX = r"[0-9](?:_?[0-9])*", r"[0-9a-fA-F](?:_?[0-9a-fA-F])*"
_DECIMAL = re.compile(rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?", re.ASCII)
_HEX_FLOAT = re.compile(rf"[+-]?0[xX]_?(?:{_HEX}(?:\.(?:{_HEX})?)?|\.{_HEX})[pP][+-]?{_DIGITS}", re.ASCII)
_INT64_MAX, _INT32_MAX = 2**63 - 1, 2**31 - 1
# What published manifests carry for their reader to replace: <name>, ${NAME}, {{name}}, NODEGROUP_NAME, YOUR-CLUSTER.
_PLACEHOLDER = re.compile(
    r"<[^<>]+>|\$\{[^}]*\}|\$\([A-Za-z_]+\)|\{\{.*\}\}|^NODEGROUP_NAME$|\bYOUR[-_ ][A-Z]|^my-asg-name-here$"
)


class NodeGroupSpec(Struct, frozen=True, kw_only=True):
    """One --nodes=min:max:name."""

    min_size: int
    max_size: int
    name: str


class DiscoverySpec(Struct, frozen=True, kw_only=True):
    """One --node-group-auto-discovery: all tags must be there; a value of None asks for the key only."""

    tags: tuple[tuple[str, str | None], ...]


class GpuLimit(Struct, frozen=True, kw_only=True):
    """One --gpu-total=type:min:max."""

    gpu: str
    min_count: int
    max_count: int


# Numbers


def parse_bool(text: str) -> bool:
    """Whether Go's ParseBool says true.

    Raises:  ConfigError.
    """
    if text not in _TRUE and text not in _FALSE:
        raise ConfigError(f'"{text}" is not true or false')
    return text in _TRUE


def parse_whole(text: str) -> int:
    """The int64 that Go's ParseInt with base 0 reads: 10, -0x1f, 0b101, 0o17, 017, 1_000.

    Raises:  ConfigError.
    """
    match = _WHOLE.fullmatch(text)
    if match is None:
        raise ConfigError(f'"{text}" is no whole number')
    digits, base = next((part, base) for part, base in zip(match.groups()[1:], _BASES, strict=True) if part)
    value = int(digits.replace("_", ""), base) * (-1 if match[1] == "-" else 1)
    if not -_INT64_MAX - 1 <= value <= _INT64_MAX:
        raise ConfigError(f'"{text}" is too large')
    return value


def parse_level(text: str) -> int:
    """A verbosity: a decimal int32, as klog reads it.

    Raises:  ConfigError.
    """
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text, re.ASCII) or not -_INT32_MAX - 1 <= int(text) <= _INT32_MAX:
        raise ConfigError(f'"{text}" is no verbosity: use a whole number such as 4')
    return int(text)


def parse_float(text: str) -> float:
    """The finite float64 that Go's ParseFloat reads.

    Raises:  ConfigError; infinities and NaN, which Go accepts, are refused too: they limit nothing.
    """
    if _DECIMAL.fullmatch(text):
        value = float(text.replace("_", ""))
    elif _HEX_FLOAT.fullmatch(text):
        value = _hex_float(text.replace("_", ""))
    else:
        raise ConfigError(f'"{text}" is no number')
    if not math.isfinite(value):
        raise ConfigError(f'"{text}" is too large')
    return value


def _hex_float(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return math.inf


def parse_severity(text: str) -> Severity:
    """The severity of a name in any case, or of a number 0 to 3.

    Raises:  ConfigError.
    """
    word = SEVERITIES[int(text)] if text in ("0", "1", "2", "3") else text.upper()
    for severity in SEVERITIES:
        if severity == word:
            return severity
    raise ConfigError(f'"{text}" is no severity: use info, warning, error, fatal or 0 to 3')


def parse_range(text: str) -> tuple[int, int]:
    """The two ends of min:max, neither negative.

    Raises:  ConfigError.
    """
    match = re.fullmatch(r"([0-9]{1,12}):([0-9]{1,12})", text, re.ASCII)
    if match is None or int(match[1]) > int(match[2]):
        raise ConfigError(f'"{text}" is not min:max with 0 <= min <= max')
    return int(match[1]), int(match[2])


# Groups


def is_placeholder(text: str) -> bool:
    """Whether a manifest's reader was to put a name of their own there."""
    return _PLACEHOLDER.search(text) is not None


def parse_group(text: str) -> NodeGroupSpec:
    """What one --nodes says; the name may contain anything, colons and spaces too.

    Raises:  ConfigError.
    """
    usage = "use min:max:name, such as 1:5:my-group"
    parts = text.split(":", 2)
    if len(parts) != 3:
        raise ConfigError(f'"{text}" has {len(parts)} of 3 parts: {usage}')
    if is_placeholder(text) or is_placeholder(parts[2]):
        raise ConfigError(f'"{text}" still has a placeholder: put the Auto Scaling Group\'s name there')
    sizes = []
    for word, part in (("min", parts[0]), ("max", parts[1])):
        if not re.fullmatch(r"[+-]?[0-9]{1,9}", part, re.ASCII):
            raise ConfigError(f'{word} "{part}" in "{text}" is no number: {usage}')
        sizes.append(int(part))
    if not parts[2].strip():
        raise ConfigError(f'"{text}" names no group: {usage}')
    if sizes[0] < 0:
        raise ConfigError(f'min {sizes[0]} in "{text}" is negative: use 0 or more')
    if sizes[1] < sizes[0]:
        raise ConfigError(f'max {sizes[1]} is below min {sizes[0]} in "{text}": {usage}')
    return NodeGroupSpec(min_size=sizes[0], max_size=sizes[1], name=parts[2])


def parse_discovery(text: str) -> DiscoverySpec:
    """What one --node-group-auto-discovery says; a tag given twice counts with its last value.

    Raises:  ConfigError.
    """
    usage = "use asg:tag=key or asg:tag=key=value,key2"
    kind, _, rest = text.partition(":")
    word, equals, pairs = rest.partition("=")
    if kind != "asg" or word != "tag" or not equals:
        raise ConfigError(f'"{text}" is not understood: {usage}')
    tags: dict[str, str | None] = {}
    for pair in pairs.split(","):
        key, _, value = pair.partition("=")
        if not key.strip():
            raise ConfigError(f'"{text}" has a tag without a key: {usage}')
        if is_placeholder(pair):
            raise ConfigError(f'"{pair}" is a placeholder: put your own name there')
        tags[key] = value or None
    return DiscoverySpec(tags=tuple(tags.items()))


def parse_gpu_limit(text: str) -> GpuLimit:
    """What one --gpu-total says.

    Raises:  ConfigError.
    """
    gpu, _, ends = text.partition(":")
    if not gpu or not ends:
        raise ConfigError(f'"{text}" is not type:min:max')
    least, most = parse_range(ends)
    return GpuLimit(gpu=gpu, min_count=least, max_count=most)


# Chains


def parse_expanders(text: str) -> tuple[str, ...]:
    """The expanders that decide here, in order; those that nobiru does not have yet are left out.

    Raises:  ConfigError for unknown, doubled or misplaced ones, and for `price`, for which AWS gives no prices.
    """
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    choice = ", ".join(EXPANDERS)
    if not names:
        raise ConfigError(f"name at least one of {choice}")
    for place, name in enumerate(names):
        if name == "price":
            raise ConfigError("price needs a cloud that tells prices, AWS does not: use least-waste")
        if name not in (*EXPANDERS, *LATER_EXPANDERS):
            raise ConfigError(f'"{name}" is unknown: use {choice}')
        if name in names[:place]:
            raise ConfigError(f"{name} is named twice")
    if "random" in names[:-1]:
        raise ConfigError("nothing may follow random, since it leaves one group")
    return tuple(name for name in names if name not in LATER_EXPANDERS) or (FALLBACK_EXPANDER,)


def later_expanders(text: str) -> tuple[str, ...]:
    """The expanders of a chain that nobiru does not have yet."""
    return tuple(name for name in (part.strip() for part in text.split(",")) if name in LATER_EXPANDERS)


def parse_drain_priorities(text: str) -> tuple[tuple[int, int], ...]:
    """(priority, seconds) pairs by priority.

    Raises:  ConfigError.
    """
    pairs = []
    for part in text.split(",") if text else ():
        match = re.fullmatch(r"\s*([+-]?[0-9]{1,10}):([0-9]{1,7})\s*", part, re.ASCII)
        if match is None:
            raise ConfigError(f'"{part}" is not priority:seconds, such as 1000:60')
        pairs.append((int(match[1]), int(match[2])))
    return tuple(sorted(pairs))
