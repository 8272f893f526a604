"""Log lines: klog's format by default, JSON on demand; facts are fields, the message is constant.

`I1201 10:00:00.123456    1234 loop.py:12] "scale up" group="a" nodes=2`
It refuses to know: where lines are shipped.  Invariant: no credential is ever printed; a line is one line, but for tracebacks.
Source: k8s.io/klog v2 header and structured formats; k8s.io/component-base logs/json.
"""

import json
import logging
import logging.handlers
import os
import sys
import time
from typing import Literal

import msgspec

from nobiru.sinks.redact import BLOT, hide, names_secret, safe

__all__ = ["BLOT", "DETAIL_VERBOSITY", "JsonFormatter", "KlogFormatter", "Log", "hide", "safe", "set_up"]

ROOT = "nobiru"
DETAIL_VERBOSITY = 4  # what manifests customarily ask for
Severity = Literal["INFO", "WARNING", "ERROR", "FATAL"]
_LETTER = {logging.DEBUG: "I", logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "F"}
_WORD = {logging.DEBUG: "info", logging.INFO: "info", logging.WARNING: "warning", logging.ERROR: "error"}
_LEVEL = {"INFO": logging.DEBUG, "WARNING": logging.WARNING, "ERROR": logging.ERROR, "FATAL": logging.CRITICAL}
_encoder = msgspec.json.Encoder(enc_hook=str)


class Log:
    """A named logger whose facts are keyword arguments: `log.info("scale up", group="a", nodes=2)`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"{ROOT}.{name}")

    def info(self, message: str, **facts: object) -> None:
        self._write(logging.INFO, message, facts)

    def warning(self, message: str, **facts: object) -> None:
        """A human may act on it."""
        self._write(logging.WARNING, message, facts)

    def error(self, message: str, **facts: object) -> None:
        """We failed."""
        self._write(logging.ERROR, message, facts)

    def detail(self, message: str, **facts: object) -> None:
        """A line that is wanted from verbosity 4 on, as klog's V(4)."""
        self._write(logging.DEBUG, message, facts)

    def failed(self, message: str, error: BaseException, **facts: object) -> None:
        """A bug of ours, with its traceback."""
        self._logger.error(message, exc_info=error, extra={"facts": facts}, stacklevel=2)

    def _write(self, level: int, message: str, facts: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, message, extra={"facts": facts}, stacklevel=3)


def _facts(record: logging.LogRecord) -> dict[str, object]:
    facts: dict[str, object] = getattr(record, "facts", {})
    return facts


def _json(value: object) -> str:
    try:
        return _encoder.encode(value).decode()
    except (TypeError, ValueError):  # half of a surrogate pair, as in a file name that is not UTF-8
        return json.dumps(value, default=str, skipkeys=True)


class KlogFormatter(logging.Formatter):
    """klog's structured text."""

    def __init__(self) -> None:
        super().__init__()
        self._pid = f"{os.getpid():>7}"
        self._second, self._stamp = -1, ""

    def format(self, record: logging.LogRecord) -> str:
        second = int(record.created)
        if second != self._second:
            self._second, self._stamp = second, time.strftime("%m%d %H:%M:%S", time.localtime(second))
        micros = int((record.created - second) * 1_000_000)
        letter = _LETTER.get(record.levelno, "I")
        parts = [f"{letter}{self._stamp}.{micros:06d} {self._pid} {record.filename}:{record.lineno}]"]
        parts.append(_json(record.getMessage()))
        for name, value in _facts(record).items():
            parts.append(f"{name}={_json(BLOT if names_secret(name) else value)}")
        line = " ".join(parts)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return safe(line)


class JsonFormatter(logging.Formatter):
    """component-base's JSON: ts in milliseconds, caller, msg, v, then the facts; `level` is ours."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "ts": round(record.created * 1000, 3),
            "level": _WORD.get(record.levelno, "error"),
            "caller": f"{record.filename}:{record.lineno}",
            "msg": record.getMessage(),
            "v": DETAIL_VERBOSITY if record.levelno == logging.DEBUG else 0,
        }
        for name, value in _facts(record).items():
            entry[f"fact_{name}" if name in entry else name] = BLOT if names_secret(name) else value
        if record.exc_info:
            entry["err"] = self.formatException(record.exc_info)
        return safe(_json(entry))


def set_up(*, verbosity: int, form: Literal["text", "json"], threshold: Severity, file: str) -> None:
    """Send nobiru's lines, and other libraries' warnings, to standard error and, where `file` names one, to that file.

    The file may be moved away from outside: the next line opens it anew.
    Raises:  OSError if the file cannot be opened.
    """
    stream = logging.StreamHandler(sys.stderr)
    stream.setLevel(_LEVEL[threshold])
    handlers: list[logging.Handler] = [stream]
    if file:
        handlers.append(logging.handlers.WatchedFileHandler(file, encoding="utf-8"))
    formatter: logging.Formatter = JsonFormatter() if form == "json" else KlogFormatter()
    for handler in handlers:
        handler.setFormatter(formatter)
    ours, others = logging.getLogger(ROOT), logging.getLogger()
    for logger in (ours, others):
        for old in logger.handlers:
            old.close()
        logger.handlers[:] = handlers
    ours.propagate = False
    ours.setLevel(logging.DEBUG if verbosity >= DETAIL_VERBOSITY else logging.INFO)
    others.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    logging.raiseExceptions = (
        False  # a full disk or a closed stream must not end a loop, nor print a traceback for each line
    )
