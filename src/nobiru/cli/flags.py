"""The words of `nobiru nodes` to a configuration: parse, read, and gather what is to be said once about them."""

from collections.abc import Sequence

from msgspec.structs import replace

from nobiru.cli.pflag import Parsed
from nobiru.nodes.config import NodesConfig, make_config

_SWITCH_WORDS = frozenset({"true", "false", "t", "f", "0", "1", "yes", "no", "on", "off"})


def nodes_config(parsed: Parsed) -> NodesConfig:
    """The configuration, with one more warning for each word that is no flag.

    Raises:  ConfigError.
    """
    config = make_config(parsed.given)
    return replace(config, warnings=(*stray_warnings(parsed.strays), *config.warnings))


def stray_warnings(strays: Sequence[str]) -> tuple[str, ...]:
    """What is said of words that are no flags: Cluster Autoscaler passes them over silently."""
    lines = []
    for word in strays:
        hint = "; a switch takes its value as --name=false" if word.lower() in _SWITCH_WORDS else ""
        lines.append(f'"{word}" is no flag and is passed over{hint}')
    return tuple(lines)
