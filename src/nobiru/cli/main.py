"""The commands: `nobiru`, and `cluster-autoscaler` as another name of `nobiru nodes`.

Invariant: the flags of `nobiru nodes` follow pflag's rules (decision 0002); cyclopts reads all other words.
"""

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Literal

import cyclopts

from nobiru.cli.completion import script
from nobiru.cli.errors import guarded
from nobiru.cli.nodes import nodes
from nobiru.kernel.errors import ConfigError

app = cyclopts.App(
    name="nobiru",
    help="Elastic Kubernetes on AWS: machines come when pods need room and go when they stand idle.",
    version=version("nobiru"),
    version_flags=["--version"],
)


@app.command(name="nodes", help_flags=[], version_flags=[])
def nodes_command(*words: Annotated[str, cyclopts.Parameter(allow_leading_hyphen=True, show=False)]) -> int:
    """Grow and shrink Auto Scaling Groups, in the place of Cluster Autoscaler."""
    return nodes(words)


@app.command
def completion(shell: Literal["bash", "zsh", "fish"]) -> int:
    """Print the completion script of a shell: source <(nobiru completion bash)."""
    sys.stdout.write(script(shell))
    return 0


def nobiru(words: Sequence[str]) -> int:
    """Run `nobiru` with these words; returns the exit code.

    Raises:  NobiruError, SystemExit.
    """
    if words and words[0] == "nodes":
        return nodes(words[1:])
    try:
        code = app(list(words), result_action="return_value", exit_on_error=False, print_error=False)
    except cyclopts.CycloptsError as error:
        raise ConfigError(" ".join(str(error).split())) from error
    return code if isinstance(code, int) else 0


def main() -> None:
    """`nobiru`."""
    sys.exit(guarded(nobiru, sys.argv[1:]))


def cluster_autoscaler() -> None:
    """`cluster-autoscaler`."""
    sys.exit(guarded(nodes, sys.argv[1:]))
