"""The commands: `nobiru`, and `cluster-autoscaler` as another name of `nobiru nodes`.

Exit codes: 0 done or told to stop, 1 trouble outside, 2 wrong input, 3 the leader lock was lost.
Invariant: whatever goes wrong with the user's input or the world ends in one line, never in a traceback.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Annotated

import cyclopts

from nobiru.cli.nodes import nodes
from nobiru.kernel.errors import ConfigError, NobiruError
from nobiru.sinks.log import safe

app = cyclopts.App(
    name="nobiru",
    help="Elastic Kubernetes on AWS: machines come when pods need room and go when they stand idle.",
    version=version("nobiru"),
    version_flags=["--version"],
)


@app.command(name="nodes", help_flags=[])
def nodes_command(*words: Annotated[str, cyclopts.Parameter(allow_leading_hyphen=True, show=False)]) -> int:
    """Grow and shrink Auto Scaling Groups, in the place of Cluster Autoscaler."""
    return nodes(words)


@app.command
def completion(shell: str) -> int:
    """Print the completion script for bash, zsh or fish."""
    if shell not in ("bash", "zsh", "fish"):
        raise ConfigError(f'completion: "{shell}" is unknown: use bash, zsh or fish')
    sys.stdout.write(app.generate_completion(shell=shell))  # type: ignore[arg-type]
    return 0


def guarded(run: Callable[[Sequence[str]], int], words: Sequence[str]) -> int:
    """The exit code of a command, with its errors as one line."""
    try:
        return run(words)
    except ConfigError as error:
        return _say(error, 2)
    except NobiruError as error:
        return _say(error, 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0


def _say(error: NobiruError, code: int) -> int:
    sys.stderr.write(f"nobiru: error: {safe(str(error))}\n")
    return code


def _run_app(words: Sequence[str]) -> int:
    if words and words[0] == "nodes":
        return nodes(words[1:])  # its flags follow pflag's rules, decision 0002
    code = app(list(words), exit_on_error=True, result_action="return_value")
    return code if isinstance(code, int) else 0


def main() -> None:
    """`nobiru`."""
    sys.exit(guarded(_run_app, sys.argv[1:]))


def cluster_autoscaler() -> None:
    """`cluster-autoscaler`."""
    sys.exit(guarded(nodes, sys.argv[1:]))
