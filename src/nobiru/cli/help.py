"""The help text of `nobiru nodes` and the reference page, both from the table of flags."""

import textwrap

from nobiru.nodes.flags import DEFAULTS_BEFORE, NEWEST, OLDEST, SECTIONS, Flag, defaults

KINDS = {
    "string": "text",
    "int": "whole number",
    "level": "whole number",
    "float": "number",
    "bool": "true or false",
    "duration": "duration",
    "strings": "text, may be repeated",
    "slice": "list with commas",
    "map": "name=value list",
}
NAME_WIDTH, TEXT_WIDTH = 46, 70


def nodes_help(compat: tuple[int, int] = NEWEST) -> str:
    """What `nobiru nodes --help` prints: flags that work, by topic, then the names of those without effect."""
    lines = [
        "Usage: nobiru nodes [--flag=value ...]      (also installed as cluster-autoscaler)",
        "",
        "Grows and shrinks AWS Auto Scaling Groups so that pods find room and idle machines go.",
        f"The flags are Cluster Autoscaler's; defaults are those of release {compat[0]}.{compat[1]}.",
        "Durations are written as in Go: 300ms, 90s, 10m0s, 1h30m. A switch takes its value as --name=false.",
    ]
    fallback = defaults(compat)
    for _, title, flags in SECTIONS:
        working = [flag for flag in flags if not flag.effect]
        if working:
            lines += ["", f"{title}:"]
            lines += [line for flag in working for line in _entry(flag, fallback[flag.name])]
    idle = ", ".join(f"--{flag.name}" for _, _, flags in SECTIONS for flag in flags if flag.effect)
    lines += ["", "Accepted, without effect here (docs/reference/flags.md says why):"]
    lines += textwrap.wrap(idle, 110, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def _entry(flag: Flag, default: str) -> list[str]:
    unit = f", {flag.unit}" if flag.unit else ""
    shown = f" (default {default}{unit})" if default else f" ({flag.unit})" if flag.unit else ""
    head = f"  {'-' if len(flag.name) == 1 else '--'}{flag.name}"
    text = textwrap.wrap(flag.sentence + shown, TEXT_WIDTH, break_on_hyphens=False)
    indent = " " * NAME_WIDTH
    if len(head) >= NAME_WIDTH:
        return [head, *(indent + line for line in text)]
    return [f"{head:<{NAME_WIDTH}}{text[0]}", *(indent + line for line in text[1:])]


def flags_page() -> str:
    """docs/reference/flags.md."""
    lines = [
        "# Flags of `nobiru nodes`",
        "",
        "Made from `src/nobiru/nodes/flags.py`; `python -m tests.docs.update` makes it again.",
        "",
        "Every flag of Cluster Autoscaler 0.5 to 1.37 is accepted and read exactly as Go's pflag reads it.",
        "One that has no effect is said once in the log, unless its value asks for what is so anyway.",
        "Durations are written as in Go: `300ms`, `90s`, `10m0s`, `1h30m`.",
        "Words that are no flags are passed over with a warning; the first word may be the program's name.",
    ]
    for _, title, flags in SECTIONS:
        lines += ["", f"## {title}", "", "| flag | type | default | meaning | here |", "|---|---|---|---|---|"]
        lines += [_row(flag) for flag in flags]
    lines += ["", "## Defaults by release", ""]
    lines += [
        f"`--compat-version={OLDEST[0]}.{OLDEST[1]}` to `{NEWEST[0]}.{NEWEST[1]}` brings back what a release had."
    ]
    lines += ["", "| flag | before | default |", "|---|---|---|"]
    for name, changed, before in DEFAULTS_BEFORE:
        shown = "`--scan-interval`" if name == "scale-down-delay-after-delete" else f"`{before}`"
        lines.append(f"| `--{name}` | {changed[0]}.{changed[1]} | {shown} |")
    lines.append("")
    lines.append(
        "It also brings back that several `--node-group-auto-discovery` find only the groups that match all of them."
    )
    return "\n".join(lines) + "\n"


def _row(flag: Flag) -> str:
    default = f"`{flag.default}`" if flag.default else ""
    kind = KINDS[flag.kind] + (f", {flag.unit}" if flag.unit else "")
    here = f"no effect: {flag.effect}" if flag.effect else "works"
    return f"| `--{flag.name}` | {kind} | {default} | {flag.sentence} | {here} |"
