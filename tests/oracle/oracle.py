"""Asking the oracle: cases out, the real plugins' answers in.

A case is a dict of lists of objects as the API server sends them; the keys are main.go's.
"""

import subprocess
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
from msgspec import Struct

Json = dict[str, Any]
ALL_NODES = "*"  # a refusal before any node was looked at


class Refused(Struct, frozen=True):
    """One plugin's word on one node."""

    code: str
    reasons: tuple[str, ...] | None = None


class Answer(Struct, frozen=True, kw_only=True):
    """For each wanted pod: plugin -> node -> refusal; or the node it was placed on, "" where none would have it."""

    error: str = ""
    refused: tuple[dict[str, dict[str, Refused]], ...] = ()
    placed: tuple[str, ...] = ()


_decoder = msgspec.json.Decoder(Answer)


class OracleError(Exception):
    """The oracle could not answer a case: its own words."""


class Oracle:
    """One running oracle."""

    def __init__(self, program: Path) -> None:
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def ask(self, cases: Sequence[Json], mode: str = "filter") -> list[Answer]:
        """The answers in the cases' order.

        Raises:  OracleError.
        """
        # Both pipes fill up with many cases: one side writes while the other reads.
        writer = threading.Thread(target=self._write, args=(cases, mode), daemon=True)
        writer.start()
        answers = [self._read(case) for case in cases]
        writer.join()
        return answers

    def _write(self, cases: Iterable[Json], mode: str) -> None:
        assert self._process.stdin is not None
        for case in cases:
            self._process.stdin.write(msgspec.json.encode({**case, "mode": mode}) + b"\n")
        self._process.stdin.flush()

    def _read(self, case: Json) -> Answer:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise OracleError(f"the oracle ended with code {self._process.wait()}")
        answer = _decoder.decode(line)
        if answer.error:
            raise OracleError(f"{answer.error}, asked: {case}")
        return answer
