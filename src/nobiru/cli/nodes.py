"""`nobiru nodes`, also `cluster-autoscaler`: flags to a configuration to a running node autoscaler."""

import sys
from collections.abc import Sequence
from importlib.metadata import version

from nobiru.cli.errors import exit_code
from nobiru.cli.flags import nodes_config
from nobiru.cli.help import nodes_help
from nobiru.cli.pflag import parse, strip_program
from nobiru.kernel.errors import ConfigError, NobiruError
from nobiru.nodes.config import NodesConfig, make_config
from nobiru.nodes.flags import FLAGS
from nobiru.sinks import log as log_sink
from nobiru.sinks.log import Log

log = Log("nodes")


def nodes(words: Sequence[str]) -> int:
    """Run the node autoscaler with Cluster Autoscaler's command line; returns the exit code.

    Raises:  NobiruError.
    """
    parsed = parse(strip_program(words), FLAGS)
    match parsed.asked:
        case "help":
            compat = {name: texts for name, texts in parsed.given.items() if name == "compat-version"}
            sys.stdout.write(nodes_help(make_config(compat).compat))
            return 0
        case "version":
            sys.stdout.write(f"{version('nobiru')}\n")
            return 0
    config = nodes_config(parsed)
    set_up_log(config)
    try:
        return run(config)
    except NobiruError as error:
        code = exit_code(error)
        if config.log.file or config.log.format == "json":
            log.error("nobiru nodes ends", error=str(error), code=int(code))
        if config.log.format == "json":
            return code  # who reads JSON reads nothing else
        raise


def run(config: NodesConfig) -> int:
    """Say who starts and what is to be said of the flags, and run; returns the exit code.

    Raises:  NobiruError.
    """
    release, ours = f"{config.compat[0]}.{config.compat[1]}", version("nobiru")
    log.info(f"Cluster Autoscaler {release}, by nobiru {ours}", version=ours, compat=release)
    for warning in config.warnings:
        log.warning("flags", text=warning)
    from nobiru.cli.wire import run_nodes  # boto3 and numpy load here: a wrong flag is answered at once

    return run_nodes(config)


def set_up_log(config: NodesConfig) -> None:
    """Send lines where the flags say.  Raises ConfigError where the log file cannot be written."""
    wanted = config.log
    try:
        log_sink.set_up(
            verbosity=wanted.verbosity, form=wanted.format, threshold=wanted.stderr_threshold, file=wanted.file
        )
    except OSError as error:
        raise ConfigError(f"the log file {wanted.file} cannot be written: {error.strerror}") from error
