"""The help text of `nobiru nodes` and the reference page, both from the table of flags."""

import textwrap

from nobiru.nodes.flags import FLAGS, Flag

TITLES = {
    "process": "Process, API server and loop",
    "groups": "Node groups and limits",
    "scale-up": "Growing",
    "scale-down": "Shrinking",
    "aws": "Clouds",
    "logging": "Logging",
    "retired": "Older names, still understood",
    "nobiru": "nobiru's own",
}
KINDS = {
    "string": "text",
    "int": "number",
    "float": "number",
    "bool": "true or false",
    "duration": "duration, such as 10m0s",
    "strings": "text, may be repeated",
    "slice": "list, comma-separated",
}


def nodes_help() -> str:
    """What `nobiru nodes --help` prints: flags that work, by topic, then the names of those without effect."""
    lines = [
        "Usage: nobiru nodes [--flag=value ...]      (also installed as cluster-autoscaler)",
        "",
        "Grows and shrinks AWS Auto Scaling Groups so that pods find room and idle machines go.",
        "The flags are Cluster Autoscaler's.",
    ]
    for section, title in TITLES.items():
        working = [flag for flag in FLAGS if flag.section == section and not flag.effect]
        if working:
            lines += ["", f"{title}:"]
            lines += [line for flag in working for line in _entry(flag)]
    idle = ", ".join(f"--{flag.name}" for flag in FLAGS if flag.effect)
    lines += ["", "Accepted, without effect here (docs/reference/flags.md says why):"]
    lines += textwrap.wrap(idle, 110, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def _entry(flag: Flag) -> list[str]:
    default = f" (default {flag.default})" if flag.default else ""
    head = f"  --{flag.name}"
    text = textwrap.wrap(f"{flag.sentence}{default}", 66)
    if len(head) > 44:
        return [head, *(" " * 46 + line for line in text)]
    return [f"{head:<46}{text[0]}", *(" " * 46 + line for line in text[1:])]


def flags_page() -> str:
    """docs/reference/flags.md."""
    lines = [
        "# Flags of `nobiru nodes`",
        "",
        "Made from `src/nobiru/nodes/flags.py`; `python -m tests.docs.update` makes it again.",
        "All of Cluster Autoscaler's flags are accepted; one without effect is said once in the log.",
    ]
    for section, title in TITLES.items():
        lines += ["", f"## {title}", "", "| flag | type | default | meaning | here |", "|---|---|---|---|---|"]
        for flag in FLAGS:
            if flag.section == section:
                default = f"`{flag.default}`" if flag.default else ""
                here = f"no effect: {flag.effect}" if flag.effect else "works"
                lines.append(f"| `--{flag.name}` | {KINDS[flag.kind]} | {default} | {flag.sentence} | {here} |")
    return "\n".join(lines) + "\n"
