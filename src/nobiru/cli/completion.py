"""Completion scripts for bash, zsh and fish, from the table of flags.

cyclopts' own scripts know the commands but not the flags of `nobiru nodes`, which it does not read (decision 0002).
"""

from typing import Literal

from nobiru.nodes.config import LOCK_KINDS, LOG_FORMATS
from nobiru.nodes.flag_values import EXPANDERS, SEVERITIES
from nobiru.nodes.flags import FLAGS, Flag

CHOICES = {
    "cloud-provider": ("aws",),
    "expander": EXPANDERS,
    "leader-elect-resource-lock": LOCK_KINDS,
    "logging-format": LOG_FORMATS,
    "stderrthreshold": tuple(word.lower() for word in SEVERITIES),
}
_FILES = frozenset({"kubeconfig", "log-file", "log-dir", "cloud-config", "scheduler-config-file"})

_BASH = """\
# bash completion for nobiru; use: source <(nobiru completion bash)
_nobiru() {
  local current="${COMP_WORDS[COMP_CWORD]}" flag="" words=""
  if [[ $current == "=" ]]; then flag="${COMP_WORDS[COMP_CWORD-1]}" current=""
  elif [[ ${COMP_WORDS[COMP_CWORD-1]} == "=" ]]; then flag="${COMP_WORDS[COMP_CWORD-2]}"
  fi
  case "$flag" in
@choices@
    "")
      if [[ ${COMP_WORDS[0]##*/} == cluster-autoscaler || ${COMP_WORDS[1]} == nodes && $COMP_CWORD -gt 1 ]]; then
        words="@flags@"
      elif [[ $COMP_CWORD -eq 1 ]]; then words="nodes completion --help --version"
      elif [[ ${COMP_WORDS[1]} == completion ]]; then words="bash zsh fish"
      fi ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ ${COMPREPLY[0]} == *= ]]; then compopt -o nospace; fi
}
complete -o default -F _nobiru nobiru cluster-autoscaler
"""

_ZSH = """\
#compdef nobiru cluster-autoscaler
# zsh completion for nobiru; use: source <(nobiru completion zsh)
_nobiru_flags() {
  _arguments -S \\
@flags@
    '--help[show all flags]'
}
_nobiru() {
  if [[ ${words[1]:t} == cluster-autoscaler ]]; then _nobiru_flags; return; fi
  if (( CURRENT == 2 )); then
    compadd -- nodes completion --help --version
  elif [[ ${words[2]} == nodes ]]; then
    shift words; (( CURRENT-- )); _nobiru_flags
  elif [[ ${words[2]} == completion ]]; then
    compadd bash zsh fish
  fi
}
compdef _nobiru nobiru cluster-autoscaler
"""

_FISH = """\
# fish completion for nobiru; use: nobiru completion fish | source
complete -c nobiru -f
complete -c nobiru -n __fish_use_subcommand -a nodes -d 'Grow and shrink Auto Scaling Groups'
complete -c nobiru -n __fish_use_subcommand -a completion -d 'Print a completion script'
complete -c nobiru -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'
complete -c cluster-autoscaler -f
"""


def script(shell: Literal["bash", "zsh", "fish"]) -> str:
    """The completion script of a shell."""
    match shell:
        case "bash":
            return _bash()
        case "zsh":
            return _ZSH.replace("@flags@", "\n".join(f"    {_zsh_flag(flag)} \\" for flag in FLAGS))
    return _FISH + "".join(_fish_flag(flag) for flag in FLAGS)


def _choices(flag: Flag) -> tuple[str, ...]:
    return ("true", "false") if flag.kind == "bool" else CHOICES.get(flag.name, ())


def _bash() -> str:
    names = " ".join(f"--{flag.name}" + ("" if flag.kind == "bool" else "=") for flag in FLAGS)
    by_choices: dict[tuple[str, ...], list[str]] = {}
    for flag in FLAGS:
        if _choices(flag):
            by_choices.setdefault(_choices(flag), []).append(f"--{flag.name}")
    cases = [f'    {"|".join(flags)}) words="{" ".join(choices)}" ;;' for choices, flags in by_choices.items()]
    return _BASH.replace("@choices@", "\n".join(cases)).replace("@flags@", names)


def _zsh_flag(flag: Flag) -> str:
    text = flag.sentence.replace("'", "'\\''").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    repeat = "*" if flag.kind in ("strings", "slice") else ""
    action = f"({' '.join(_choices(flag))})" if _choices(flag) else "_files" if flag.name in _FILES else " "
    value = f"=-::value:{action}" if flag.kind == "bool" else f"=:value:{action}"
    name, _, rest = value.partition(":")
    return f"'{repeat}--{flag.name}{name}[{text}]:{rest}'"


def _fish_flag(flag: Flag) -> str:
    text = flag.sentence.replace("\\", "\\\\").replace("'", "\\'")
    wants = "" if flag.kind == "bool" else " -r"
    if _choices(flag):
        wants += f" -a '{' '.join(_choices(flag))}'"
    elif flag.name in _FILES:
        wants += " -F"
    return "".join(
        f"complete -c {command} {where}-l {flag.name}{wants} -d '{text}'\n"
        for command, where in (("nobiru", "-n '__fish_seen_subcommand_from nodes' "), ("cluster-autoscaler", ""))
    )
