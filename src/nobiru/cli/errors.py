"""How a command ends: its exit code, and one line on standard error for whatever went wrong.

Invariant: the user's input and the world's troubles never end in a traceback, and no credential is printed.
"""

import os
import sys
from collections.abc import Callable, Sequence
from enum import IntEnum

from nobiru.kernel.errors import ConfigError, InvariantError, NobiruError
from nobiru.sinks.log import safe


class Exit(IntEnum):
    """The exit codes; docs/reference/exit-codes.md explains them."""

    OK = 0  # done, or told to stop by SIGTERM or SIGINT while running
    WORLD = 1  # the API server or AWS refused or did not answer
    CONFIG = 2  # a flag, a file or the environment is wrong: also the code of Go's flag parsers
    LOST_LOCK = 3  # another replica has the leader lock now: a restart waits for it
    BUG = 70  # sysexits.h EX_SOFTWARE: something that cannot be true was
    INTERRUPTED = 130  # 128 + SIGINT, before anything ran


def guarded(run: Callable[[Sequence[str]], int], words: Sequence[str]) -> int:
    """The exit code of a command, with its errors said as one line."""
    try:
        code = run(words)
        sys.stdout.flush()
        return code
    except NobiruError as error:
        sys.stderr.write(error_line(error) + "\n")
        return exit_code(error)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader of a help text went away; without this, Python would complain while flushing at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK


def error_line(error: NobiruError) -> str:
    """The one line for an error, whatever line breaks the world's text has."""
    text = " ".join(safe(str(error)).split())
    if isinstance(error, InvariantError):
        text = f"this is a bug of nobiru, please report it: {text}"
    return f"nobiru: error: {text}"


def exit_code(error: NobiruError) -> Exit:
    """The exit code that an error means."""
    match error:
        case ConfigError():
            return Exit.CONFIG
        case InvariantError():
            return Exit.BUG
    return Exit.WORLD
