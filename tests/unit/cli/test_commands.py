"""The commands end with their exit codes, and whatever goes wrong is one line on standard error."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nobiru.cli.errors import Exit, error_line, guarded
from nobiru.cli.main import nobiru
from nobiru.cli.nodes import nodes
from nobiru.kernel.errors import (
    CloudDenied,
    ConfigError,
    InvariantError,
    KubeUnavailable,
    NobiruError,
)
from nobiru.nodes.flags import FLAGS

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "exit-codes.md"


def failing(error: BaseException) -> Callable[[Sequence[str]], int]:
    """A command that raises."""

    def run(words: Sequence[str]) -> int:
        raise error

    return run


ERROR_CASES = [
    #  error                                            code            line
    (ConfigError("--v: no"), Exit.CONFIG, "nobiru: error: --v: no\n"),
    (KubeUnavailable("no answer\nfrom 127.0.0.1"), Exit.WORLD, "nobiru: error: no answer from 127.0.0.1\n"),
    (CloudDenied("expired"), Exit.WORLD, "nobiru: error: expired\n"),
    (NobiruError("x"), Exit.WORLD, "nobiru: error: x\n"),
    (InvariantError("x"), Exit.BUG, "nobiru: error: this is a bug of nobiru, please report it: x\n"),
    (ConfigError("token=abcdefgh1"), Exit.CONFIG, "nobiru: error: token=[hidden]\n"),
    (KeyboardInterrupt(), Exit.INTERRUPTED, ""),
]


@pytest.mark.parametrize(("error", "code", "line"), ERROR_CASES, ids=lambda value: str(value)[:30])
def test_errors_end_in_one_line(
    error: BaseException, code: Exit, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each branch of the error tree has its exit code; no traceback, no line break, no credential."""
    assert guarded(failing(error), []) == code
    assert capsys.readouterr().err == line


def test_every_exit_code_is_documented() -> None:
    """The page of exit codes has a row for each, and no other."""
    rows = [
        line.split("|")[1].strip() for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")
    ]
    assert sorted(int(row) for row in rows if row.isdecimal()) == sorted(Exit)


def test_help_lists_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    """--help names all flags, with or without effect, and fits a terminal of 120 columns."""
    assert nodes(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"--{flag.name}" in text or f"-{flag.name}" in text for flag in FLAGS)
    assert max(len(line) for line in text.splitlines()) <= 120


def test_help_shows_the_defaults_of_the_named_release(capsys: pytest.CaptureFixture[str]) -> None:
    """--compat-version before --help changes the defaults shown."""
    assert nodes(["--compat-version=1.16", "--help"]) == 0
    text = capsys.readouterr().out
    assert "release 1.16" in text
    assert "(default endpoints)" in text


@pytest.mark.parametrize("words", [["--version"], ["nodes", "--version"]])
def test_version(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The version is one line."""
    assert nobiru(words) == 0
    assert capsys.readouterr().out == "0.1.0\n"


def test_the_commands_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """`nobiru --help` names the commands."""
    assert nobiru(["--help"]) == 0
    text = capsys.readouterr().out
    assert "nodes" in text
    assert "completion" in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_flag(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The scripts of all three shells name every flag and both programs."""
    assert nobiru(["completion", shell]) == 0
    text = capsys.readouterr().out
    long = "-l {}" if shell == "fish" else "--{}"
    assert all(long.format(flag.name) in text for flag in FLAGS)
    assert "cluster-autoscaler" in text


BASH_CASES = [
    #  words, the last one being completed             want
    (["nobiru", ""], "nodes completion --help --version"),
    (["nobiru", "completion", "z"], "zsh"),
    (["nobiru", "nodes", "--scale-down-unn"], "--scale-down-unneeded-time="),
    (["cluster-autoscaler", "--expan"], "--expander="),
    (["nobiru", "nodes", "--logging-format", "="], "text json"),
    (["nobiru", "nodes", "--leader-elect", "=", "f"], "false"),
]


@pytest.mark.parametrize(("words", "want"), BASH_CASES, ids=lambda value: " ".join(value))
def test_bash_completes(words: list[str], want: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The script, run by bash itself, proposes commands, flags and their choices."""
    assert nobiru(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    quoted = " ".join(f"'{word}'" for word in words)
    ask = (
        f'\ncompopt() {{ :; }}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _nobiru; echo "${{COMPREPLY[*]}}"\n'
    )
    done = subprocess.run(["bash", "-c", script + ask], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout.strip() == want


@pytest.mark.parametrize("words", [["--nodes=1:5"], ["--nope"], ["--address=x"]])
def test_the_process_itself(words: list[str]) -> None:
    """`python -m nobiru nodes` with a wrong flag: exit code 2, one line, no traceback."""
    command = [sys.executable, "-m", "nobiru", "nodes", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == Exit.CONFIG
    assert done.stdout == ""
    assert done.stderr.startswith("nobiru: error: ")
    assert done.stderr.count("\n") == 1


def test_json_to_the_end(tmp_path: Path) -> None:
    """Who asked for JSON lines gets nothing else, the last line with the error and the code included."""
    command = [sys.executable, "-m", "nobiru", "nodes", "--logging-format=json", f"--kubeconfig={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == Exit.CONFIG
    assert (lines[-1]["level"], lines[-1]["code"]) == ("error", 2)
    assert "--kubeconfig" in lines[-1]["error"]


@pytest.mark.parametrize("words", [["nope"], ["--foo"], ["completion", "tcsh"], ["completion"]], ids=" ".join)
def test_what_is_no_command_is_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """It ends as a wrong flag does: one line, exit code 2."""
    assert guarded(nobiru, words) == 2
    said = capsys.readouterr().err
    assert said.startswith("nobiru: error: ")
    assert said.count("\n") == 1


def test_error_line_is_one_line() -> None:
    """Line breaks in the world's text become spaces."""
    assert error_line(ConfigError("a\n  b\tc")) == "nobiru: error: a b c"
