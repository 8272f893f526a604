"""`nobiru nodes`: flags to a configuration to a running node autoscaler."""

import sys
from collections.abc import Sequence

from nobiru.cli.help import nodes_help
from nobiru.cli.pflag import parse, strip_program
from nobiru.kernel.errors import ConfigError
from nobiru.nodes.config import NodesConfig, make_config
from nobiru.nodes.flags import FLAGS
from nobiru.sinks import log as log_sink


def nodes(words: Sequence[str]) -> int:
    """Run the node autoscaler with Cluster Autoscaler's command line; returns the exit code.

    Raises:  NobiruError.
    """
    rest = strip_program(words)
    if any(word in ("-h", "--help") for word in rest):
        sys.stdout.write(nodes_help())
        return 0
    config = make_config(parse(rest, FLAGS))
    set_up_log(config)
    from nobiru.cli.wire import run_nodes  # boto3 and numpy load here: a wrong flag is answered at once

    return run_nodes(config)


def set_up_log(config: NodesConfig) -> None:
    """Raises ConfigError where the log file cannot be written."""
    wanted = config.log
    try:
        log_sink.set_up(
            verbosity=wanted.verbosity,
            form=wanted.format,
            stderr=wanted.stderr,
            threshold=wanted.stderr_threshold,
            file=wanted.file,
        )
    except OSError as error:
        raise ConfigError(f"--log-file: {wanted.file} cannot be written: {error.strerror}") from error
