"""Log lines are klog's or component-base's JSON, and no credential is in them."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from nobiru.sinks.log import Log, set_up
from nobiru.sinks.redact import hide, safe

log = Log("test")


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Logging as it was before."""
    loggers = [logging.getLogger(), logging.getLogger("nobiru")]
    before = [(list(each.handlers), each.level, each.propagate) for each in loggers]
    raising = logging.raiseExceptions
    yield
    logging.captureWarnings(False)
    logging.raiseExceptions = raising
    for each, (handlers, level, propagate) in zip(loggers, before, strict=True):
        each.handlers[:], each.propagate = handlers, propagate
        each.setLevel(level)


Severity = Literal["INFO", "WARNING", "ERROR", "FATAL"]


def start(
    form: Literal["text", "json"] = "text", *, verbosity: int = 0, threshold: Severity = "INFO", file: str = ""
) -> None:
    set_up(verbosity=verbosity, form=form, threshold=threshold, file=file)


FACTS_CASES: list[tuple[dict[str, Any], str]] = [
    ({"group": "a", "nodes": 2}, '"scale up" group="a" nodes=2'),
    ({}, '"scale up"'),
    ({"ok": True, "ratio": 0.5, "none": None}, '"scale up" ok=true ratio=0.5 none=null'),
    ({"group": 'prod "x" 名前'}, '"scale up" group="prod \\"x\\" 名前"'),
    ({"text": "two\nlines"}, '"scale up" text="two\\nlines"'),
    ({"names": ["a", "b"], "map": {"a": 1}}, '"scale up" names=["a","b"] map={"a":1}'),
    ({"strange": {(1, 2): 3}}, '"scale up" strange={"(1, 2)":3}'),
    ({"bad": "\ud800"}, '"scale up" bad="\\ud800"'),
    ({"path": Path("/x")}, '"scale up" path="/x"'),
]


@pytest.mark.parametrize(("facts", "want"), FACTS_CASES, ids=range(len(FACTS_CASES)))
def test_klog_lines(facts: dict[str, Any], want: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The header is klog's, the message is quoted, facts follow; a line is one line."""
    start()
    log.info("scale up", **facts)
    line = capsys.readouterr().err
    match = re.fullmatch(r"I\d{4} \d\d:\d\d:\d\d\.\d{6} {1,7}\d+ test_log\.py:\d+\] (.*)\n", line)
    assert match is not None, line
    assert match[1] == want


def test_letters(capsys: pytest.CaptureFixture[str]) -> None:
    """I, W and E; details are I and come from verbosity 4 on."""
    start(verbosity=4)
    log.detail("a")
    log.info("b")
    log.warning("c")
    log.error("d")
    assert [line[0] for line in capsys.readouterr().err.splitlines()] == ["I", "I", "W", "E"]


LEVEL_CASES: list[tuple[int, Severity, list[str]]] = [
    (0, "INFO", ["b", "c", "d"]),
    (3, "INFO", ["b", "c", "d"]),
    (4, "INFO", ["a", "b", "c", "d"]),
    (4, "WARNING", ["c", "d"]),
    (4, "ERROR", ["d"]),
    (4, "FATAL", []),
]


@pytest.mark.parametrize(("verbosity", "threshold", "want"), LEVEL_CASES)
def test_verbosity_and_threshold(
    verbosity: int, threshold: Severity, want: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """--v decides about details, --stderrthreshold about severities on standard error."""
    start(verbosity=verbosity, threshold=threshold)
    for write, message in ((log.detail, "a"), (log.info, "b"), (log.warning, "c"), (log.error, "d")):
        write(message)
    assert re.findall(r'\] "(.)"', capsys.readouterr().err) == want


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """ts in milliseconds, caller, msg, v, then the facts; a fact never hides a field."""
    start("json", verbosity=4)
    log.info("scale up", group="a", nodes=2, msg="mine")
    log.detail("more")
    first, second = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert first["ts"] > 1_600_000_000_000
    assert re.fullmatch(r"test_log\.py:\d+", first["caller"])
    assert {name: first[name] for name in ("level", "msg", "v", "group", "nodes", "fact_msg")} == {
        "level": "info", "msg": "scale up", "v": 0, "group": "a", "nodes": 2, "fact_msg": "mine",
    }  # fmt: skip
    assert second["v"] == 4


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_bug_has_its_traceback(form: Literal["text", "json"], capsys: pytest.CaptureFixture[str]) -> None:
    """Only `failed` shows one, without its credentials."""
    start(form)
    try:
        raise ValueError("token=abcdefgh12345")
    except ValueError as error:
        log.failed("loop failed", error)
    text = capsys.readouterr().err
    assert "Traceback" in text
    assert "test_log.py" in text
    assert "abcdefgh12345" not in text


def test_a_file_takes_everything_and_may_be_moved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file gets what standard error's threshold leaves out; after a move the next line opens a new one."""
    path = tmp_path / "nobiru.log"
    start(threshold="ERROR", file=str(path))
    log.info("one")
    path.rename(tmp_path / "old.log")
    log.info("two")
    for handler in logging.getLogger("nobiru").handlers:
        handler.close()
    assert '"one"' in (tmp_path / "old.log").read_text()
    assert '"two"' in path.read_text()
    assert capsys.readouterr().err == ""


def test_other_libraries_warnings_have_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    """What asyncio or boto3 warn about is a line like ours; what they chat about is not shown."""
    start()
    logging.getLogger("asyncio").error("Task exception was never retrieved")
    logging.getLogger("botocore").info("chat")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("E")
    assert lines[0].endswith('] "Task exception was never retrieved"')


JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhYmMifQ.c2lnbmF0dXJl"
SECRETS = [
    ("Authorization: Bearer abc.def-ghi_jkl", "abc.def-ghi_jkl"),
    ("sent bearer 0123456789abcdef", "0123456789abcdef"),
    (f"got {JWT}", JWT),
    ("key AKIAABCDEFGHIJKLMNOP", "AKIAABCDEFGHIJKLMNOP"),
    ("key ASIAABCDEFGHIJKLMNOP", "ASIAABCDEFGHIJKLMNOP"),
    ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI"),
    ('{"SecretAccessKey": "wJalrXUtnFEMI"}', "wJalrXUtnFEMI"),
    ("?X-Amz-Signature=0123abcd&X-Amz-Security-Token=FwoGZXIvYXdz", "0123abcd"),
    ("?X-Amz-Signature=0123abcd&X-Amz-Security-Token=FwoGZXIvYXdz", "FwoGZXIvYXdz"),
    ("https://user:hunter22@example.org/", "hunter22"),
    ("password=hunter22", "hunter22"),
    ('{"token": "hunter22"}', "hunter22"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----", "MIIEow"),
    ("-----BEGIN PRIVATE KEY-----\nMIIEow", "MIIEow"),
]


@pytest.mark.parametrize(("text", "secret"), SECRETS, ids=[text[:30] for text, _ in SECRETS])
@pytest.mark.parametrize("form", ["text", "json"])
def test_credentials_are_never_printed(
    text: str, secret: str, form: Literal["text", "json"], capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither as a message, nor as a fact, nor deep inside one."""
    start(form)
    log.info(text)
    log.info("x", fact=text, deep={"a": [text]})
    printed = capsys.readouterr().err
    assert secret not in printed
    assert printed.count("[hidden]") >= 3


@pytest.mark.parametrize("name", ["token", "session_token", "aws_secret_access_key", "password", "authorization"])
def test_facts_named_as_secrets_are_hidden(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever their value looks like."""
    start()
    log.info("x", **{name: "plain"})
    assert capsys.readouterr().err.endswith(f'{name}="[hidden]"\n')


def test_a_value_that_was_handed_over_is_hidden_everywhere() -> None:
    """A secret that looks like nothing is known by its value; very short ones are not, they would blot words."""
    hide("just-a-plain-looking-value")
    hide("node")
    assert safe("x=just-a-plain-looking-value; node") == "x=[hidden]; node"


HARMLESS = [
    "the token is not valid",
    "the token: the server refused it",
    'secret="default/aws-creds"',
    "no credentials were found in /var/run/secrets/aws-creds/creds",
    "https://127.0.0.1:6443/api/v1/pods?limit=500",
    "arn:aws:iam::123456789012:role/x",
    "group basic workers",
]


@pytest.mark.parametrize("text", HARMLESS)
def test_ordinary_texts_stay(text: str) -> None:
    """What only speaks of credentials is printed."""
    assert safe(text) == text
