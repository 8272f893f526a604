"""What one flag is: name, kind, default, unit, sentence, and what it does here."""

from typing import Literal

from msgspec import Struct

Kind = Literal["string", "int", "level", "float", "bool", "duration", "strings", "slice", "map"]
Section = Literal["process", "groups", "scale-up", "scale-down", "aws", "logging", "retired", "nobiru"]


class Flag(Struct, frozen=True, kw_only=True):
    """One flag.

    `default` is written as on the command line; lists have "" for empty.  "strings" repeats and never splits at commas,
    "slice" splits as CSV does, "map" is k=v,k=v, "level" is klog's verbosity: a decimal int32.
    `effect` is "" where the flag works; else it is the reason why it has none here, and `holds` the value that describes
    what nobiru does anyway: giving that one deserves no warning.
    """

    name: str
    kind: Kind
    default: str
    sentence: str
    unit: str = ""
    section: Section = "process"
    effect: str = ""
    holds: str = ""


def works(kind: Kind, name: str, default: str, sentence: str, unit: str = "") -> Flag:
    """A flag that does what it does in Cluster Autoscaler."""
    return Flag(kind=kind, name=name, default=default, sentence=sentence, unit=unit)


def idle(kind: Kind, name: str, default: str, sentence: str, effect: str, holds: str | None = None) -> Flag:
    """A flag that is accepted and changes nothing, for the reason `effect`."""
    return Flag(
        kind=kind,
        name=name,
        default=default,
        sentence=sentence,
        effect=effect,
        holds=default if holds is None else holds,
    )
