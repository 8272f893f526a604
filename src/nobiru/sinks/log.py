"""Log lines: klog's format by default, JSON on demand; facts are fields, the message is constant.

`I1201 10:00:00.123456    1234 loop.py:12] "scale up" group="a" nodes=2`
It refuses to know: where lines are shipped.  Invariant: no credential is ever printed; values of fields that name one are blotted out.
Source: k8s.io/klog header and structured formats.
"""

import json
import logging
import os
import re
import sys
import time
from typing import Any, Literal

_LETTER = {logging.DEBUG: "I", logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "F"}
_WORD = {logging.DEBUG: "info", logging.INFO: "info", logging.WARNING: "warning", logging.ERROR: "error"}
_LEVEL = {"INFO": logging.DEBUG, "WARNING": logging.WARNING, "ERROR": logging.ERROR, "FATAL": logging.CRITICAL}
_SECRET_NAME = re.compile(r"secret|token|password|authorization|credential|session_key|access_key", re.IGNORECASE)
# Bearer tokens, JSON Web Tokens, AWS access key ids with their usual neighbours.
_SECRET_TEXT = re.compile(
    r"(?i:bearer\s+)[A-Za-z0-9._~+/=-]{8,}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
)
BLOT = "[hidden]"
ROOT = "nobiru"


def safe(text: str) -> str:
    """The text with what looks like a credential blotted out."""
    return _SECRET_TEXT.sub(BLOT, text)


def safe_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """The fields with credentials blotted out, by name and by look."""
    return {
        name: BLOT if _SECRET_NAME.search(name) else safe(value) if isinstance(value, str) else value
        for name, value in facts.items()
    }


class Log:
    """A named logger whose facts are keyword arguments: `log.info("scale up", group="a", nodes=2)`."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"{ROOT}.{name}")

    def info(self, message: str, **facts: Any) -> None:
        self._write(logging.INFO, message, facts)

    def warning(self, message: str, **facts: Any) -> None:
        self._write(logging.WARNING, message, facts)

    def error(self, message: str, **facts: Any) -> None:
        self._write(logging.ERROR, message, facts)

    def detail(self, message: str, **facts: Any) -> None:
        """A line that is wanted from verbosity 4 on, as klog's V(4)."""
        self._write(logging.DEBUG, message, facts)

    def failed(self, message: str, error: BaseException, **facts: Any) -> None:
        """An error of ours, with its traceback."""
        self._logger.error(message, exc_info=error, extra={"facts": facts}, stacklevel=2)

    def _write(self, level: int, message: str, facts: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, message, extra={"facts": facts}, stacklevel=3)


def _quoted(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=str)


class KlogFormatter(logging.Formatter):
    """klog's structured text."""

    def __init__(self) -> None:
        super().__init__()
        self._pid = os.getpid()

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%m%d %H:%M:%S", time.localtime(record.created))
        micros = int(record.created % 1 * 1_000_000)
        letter = _LETTER.get(record.levelno, "I")
        facts = safe_facts(getattr(record, "facts", {}))
        head = f"{letter}{stamp}.{micros:06d} {self._pid:>7} {record.filename}:{record.lineno}] "
        line = head + json.dumps(safe(record.getMessage()), ensure_ascii=False)
        for name, value in facts.items():
            line += f" {name}={_quoted(value)}"
        if record.exc_info:
            line += "\n" + safe(self.formatException(record.exc_info))
        return line


class JsonFormatter(logging.Formatter):
    """component-base's JSON: ts in milliseconds, caller, msg, v, then the facts."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "ts": round(record.created * 1000, 3),
            "level": _WORD.get(record.levelno, "error"),
            "caller": f"{record.filename}:{record.lineno}",
            "msg": safe(record.getMessage()),
            "v": 4 if record.levelno == logging.DEBUG else 0,
            **safe_facts(getattr(record, "facts", {})),
        }
        if record.exc_info:
            entry["err"] = safe(self.formatException(record.exc_info))
        return json.dumps(entry, ensure_ascii=False, default=str)


def set_up(
    *,
    verbosity: int,
    form: Literal["text", "json"],
    stderr: bool,
    threshold: Literal["INFO", "WARNING", "ERROR", "FATAL"],
    file: str,
) -> None:
    """Send nobiru's lines to standard error and, where `file` names one, to that file.

    Raises:  OSError if the file cannot be opened.
    """
    root = logging.getLogger(ROOT)
    root.handlers.clear()
    root.propagate = False
    root.setLevel(logging.DEBUG if verbosity >= 4 else logging.INFO)
    formatter: logging.Formatter = JsonFormatter() if form == "json" else KlogFormatter()
    handlers: list[logging.Handler] = []
    if stderr:
        stream = logging.StreamHandler(sys.stderr)
        stream.setLevel(_LEVEL[threshold])
        handlers.append(stream)
    if file:
        handlers.append(logging.FileHandler(file, encoding="utf-8"))
    for handler in handlers:
        handler.setFormatter(formatter)
        root.addHandler(handler)
