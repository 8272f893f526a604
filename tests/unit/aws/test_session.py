"""The connection to AWS over a real socket: attempts, time limits, rights, renewed credentials, and lines without secrets."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nobiru.aws import session
from nobiru.aws.session import DENIED_PAUSE_MS, Aws, Clients, Rights
from nobiru.kernel.errors import (
    CloudDenied,
    CloudError,
    CloudRejected,
    CloudThrottled,
    CloudUnavailable,
    ConfigError,
    NobiruError,
)
from tests.unit.aws.fake_aws import (
    ACCESS_KEY,
    SECRET_KEY,
    SET_DONE,
    FakeAws,
    Reply,
    failure,
    group_xml,
    groups_reply,
    silence,
)

SET, DESCRIBE = "autoscaling:SetDesiredCapacity", "autoscaling:DescribeAutoScalingGroups"


class ManualClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at_ms = 1_000_000

    def now_ms(self) -> int:
        return self.at_ms

    def monotonic_ms(self) -> int:
        return self.at_ms


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An environment that leads nowhere: no variable of AWS's, a home without files."""
    for name in list(os.environ):
        if name.startswith("AWS_") or name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


@pytest.fixture
def fake(clean: pytest.MonkeyPatch) -> Iterator[FakeAws]:
    with FakeAws() as server:
        for name, value in server.environment().items():
            clean.setenv(name, value)
        yield server


def set_desired(aws: Aws) -> Callable[[Clients], None]:
    def work(clients: Clients) -> None:
        with aws.calling(SET):
            clients.writes.set_desired_capacity(AutoScalingGroupName="web", DesiredCapacity=2)

    return work


def describe(aws: Aws) -> Callable[[Clients], int]:
    def work(clients: Clients) -> int:
        with aws.calling(DESCRIBE):
            return len(clients.autoscaling.describe_auto_scaling_groups()["AutoScalingGroups"])

    return work


ERRORS = [
    ("throttled", failure("Throttling", "Rate exceeded"), CloudThrottled),
    ("refused", failure("AccessDenied", "not authorized", 403), CloudDenied),
    ("expired", failure("ExpiredToken", f"the token {SECRET_KEY} is expired", 403), CloudDenied),
    ("another clock", failure("RequestExpired", "", 400), CloudDenied),
    (
        "outside the limits",
        failure("ValidationError", "New SetDesiredCapacity value 9 is above max value 6"),
        CloudRejected,
    ),
    ("out of order", failure("InternalFailure", "", 500), CloudUnavailable),
    ("nonsense", Reply(body="<html>Internal Server Error</html>", status=500), CloudUnavailable),
]


@pytest.mark.parametrize(("name", "reply", "want"), ERRORS, ids=[row[0] for row in ERRORS])
async def test_a_write_is_tried_once(fake: FakeAws, name: str, reply: Reply, want: type[CloudError]) -> None:
    """Whatever AWS answers to a write: one request, one error of ours, no secret, and the time it took is told."""
    told: list[tuple[str, str, float]] = []
    fake.answer("SetDesiredCapacity", reply)
    aws = Aws(observe=lambda *call: told.append(call))
    try:
        with pytest.raises(want) as caught:
            await aws.run(set_desired(aws))
    finally:
        aws.close()

    assert fake.actions() == ["SetDesiredCapacity"]
    assert SECRET_KEY not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [(endpoint, status) for endpoint, status, _ in told] == [("SetDesiredCapacity", "error")]
    assert 0 < told[0][2] < 5


async def test_a_read_is_tried_again(fake: FakeAws) -> None:
    """Throttled or out of order once: the read succeeds all the same, and counts as one call."""
    told: list[str] = []
    fake.answer("DescribeAutoScalingGroups", failure("Throttling"), groups_reply(group_xml("web", 1)))
    aws = Aws(observe=lambda endpoint, status, seconds: told.append(status))
    try:
        assert await aws.run(describe(aws)) == 1
    finally:
        aws.close()

    assert len(fake.asked) == 2
    assert told == ["success"]


async def test_silence_ends_within_four_seconds(fake: FakeAws) -> None:
    """A server that takes the write and says nothing: CloudUnavailable, worth a retry, and only one request."""
    fake.answer("SetDesiredCapacity", silence())
    aws = Aws()
    began_s = time.monotonic()
    try:
        with pytest.raises(CloudUnavailable, match=r"did not answer .* in time") as caught:
            await aws.run(set_desired(aws))
    finally:
        aws.close()

    assert time.monotonic() - began_s < 4
    assert caught.value.retry_after_ms is not None
    assert fake.actions() == ["SetDesiredCapacity"]


async def test_nobody_listens(fake: FakeAws, clean: pytest.MonkeyPatch) -> None:
    """No server at all is an outage, not a bug."""
    clean.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    aws = Aws()
    try:
        with pytest.raises(CloudUnavailable, match="AWS cannot be reached for autoscaling:SetDesiredCapacity"):
            await aws.run(set_desired(aws))
    finally:
        aws.close()


async def test_waiting_for_a_thread_counts(fake: FakeAws) -> None:
    """With all threads busy a call ends at its time limit, and never begins later."""
    fake.answer("SetDesiredCapacity", SET_DONE)
    aws = Aws()
    free = threading.Event()
    try:
        busy = [asyncio.ensure_future(aws.run(lambda _: free.wait(20))) for _ in range(session.THREADS)]
        await asyncio.sleep(0)
        with pytest.raises(CloudUnavailable, match=r"within 0\.05 s"):
            await aws.run(set_desired(aws), limit_ms=50)
        free.set()
        await asyncio.gather(*busy)
        await aws.run(lambda _: None)
    finally:
        free.set()
        aws.close()

    assert fake.asked == []


async def test_refused_actions_are_facts_for_ten_minutes(fake: FakeAws) -> None:
    """A refused action is known as denied, is due again after ten minutes, and is forgotten once AWS does it."""
    clock = ManualClock()
    fake.answer("SetDesiredCapacity", failure("AccessDenied", "no", 403), SET_DONE)
    aws = Aws(clock=clock)
    try:
        with pytest.raises(CloudDenied) as caught:
            await aws.run(set_desired(aws))
        assert caught.value.action == SET
        assert aws.rights.denied == {SET}
        assert not aws.rights.may(SET)
        assert aws.rights.may(DESCRIBE)
        clock.at_ms += DENIED_PAUSE_MS
        assert aws.rights.denied == frozenset()
        await aws.run(set_desired(aws))
        clock.at_ms -= DENIED_PAUSE_MS
        assert aws.rights.denied == frozenset()
    finally:
        aws.close()


def test_rights_are_kept_by_action() -> None:
    """A second refusal starts the ten minutes again; other actions are untouched."""
    clock = ManualClock()
    rights = Rights(clock)
    rights.refuse("a:B")
    clock.at_ms += DENIED_PAUSE_MS - 1
    rights.refuse("a:B")
    clock.at_ms += DENIED_PAUSE_MS - 1

    assert rights.denied == {"a:B"}
    rights.allow("a:B")
    assert rights.denied == frozenset()


async def test_credentials_of_a_rotated_secret(fake: FakeAws, clean: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After a refusal of the keys the file is read again, so that a rotated Secret needs no restart."""
    creds = tmp_path / "creds"
    creds.write_text("[default]\naws_access_key_id = OLD\naws_secret_access_key = s\n")
    clean.delenv("AWS_ACCESS_KEY_ID")
    clean.delenv("AWS_SECRET_ACCESS_KEY")
    clean.setenv("AWS_SHARED_CREDENTIALS_FILE", str(creds))
    clean.setattr(session, "RENEW_PAUSE_S", 0.0)
    fake.answer("SetDesiredCapacity", failure("InvalidClientTokenId", "no", 403), SET_DONE)
    aws = Aws()
    try:
        with pytest.raises(CloudDenied, match="AWS does not know the access key"):
            await aws.run(set_desired(aws))
        assert aws.rights.denied == frozenset()
        creds.write_text("[default]\naws_access_key_id = NEW\naws_secret_access_key = s\n")
        await aws.run(set_desired(aws))
    finally:
        aws.close()

    assert [each.access_key for each in fake.asked] == ["OLD", "NEW"]


async def test_agent_and_key(fake: FakeAws) -> None:
    """Calls carry our name, and the key of the environment."""
    fake.answer("SetDesiredCapacity", SET_DONE)
    aws = Aws(agent="cluster-autoscaler/nobiru")
    try:
        await aws.run(set_desired(aws))
    finally:
        aws.close()

    assert fake.asked[0].access_key == ACCESS_KEY
    assert "cluster-autoscaler/nobiru" in fake.asked[0].user_agent


Environment = dict[str, str]
CREDS = "[default]\naws_access_key_id = AKID\naws_secret_access_key = topsecret\n"
STARTS: list[tuple[str, Environment, str, type[NobiruError], str]] = [
    ("no region", {}, "", ConfigError, "no AWS region: set AWS_REGION"),
    ("no credentials", {"AWS_REGION": "us-east-1"}, "", CloudDenied, "no AWS credentials found: give the pod a role"),
    (
        "half of the credentials",
        {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "AKID"},
        "",
        CloudDenied,
        "the AWS credentials are not complete: env lacks AWS_SECRET_ACCESS_KEY",
    ),
    (
        "a credentials file that is absent",
        {"AWS_REGION": "us-east-1", "AWS_SHARED_CREDENTIALS_FILE": "absent"},
        "",
        CloudDenied,
        "AWS_SHARED_CREDENTIALS_FILE names .*: there is no such file; mount the file there",
    ),
    (
        "a credentials file that is none",
        {"AWS_REGION": "us-east-1", "AWS_SHARED_CREDENTIALS_FILE": "creds"},
        "aws_secret_access_key = topsecret\n",
        ConfigError,
        "the AWS file .*creds cannot be read",
    ),
    (
        "another section",
        {"AWS_REGION": "us-east-1", "AWS_SHARED_CREDENTIALS_FILE": "creds"},
        CREDS.replace("default", "other"),
        CloudDenied,
        r"has no \[default\] section",
    ),
    (
        "a profile that is missing",
        {"AWS_REGION": "us-east-1", "AWS_SHARED_CREDENTIALS_FILE": "creds", "AWS_PROFILE": "prod"},
        CREDS,
        ConfigError,
        '"prod" is in no AWS configuration or credentials file: correct AWS_PROFILE',
    ),
    (
        "a CA bundle that is a directory",
        {"AWS_REGION": "us-east-1", "AWS_CA_BUNDLE": "directory"},
        "",
        ConfigError,
        "^AWS_CA_BUNDLE names .*directory: it is a directory",
    ),
    (
        "a web identity without its token",
        {"AWS_REGION": "us-east-1", "AWS_ROLE_ARN": "arn:aws:iam::1:role/ca", "AWS_WEB_IDENTITY_TOKEN_FILE": "absent"},
        "",
        ConfigError,
        "AWS_WEB_IDENTITY_TOKEN_FILE names .*: there is no such file; mount the service account token",
    ),
]


@pytest.mark.parametrize(("name", "env", "content", "want", "text"), STARTS, ids=[row[0] for row in STARTS])
def test_what_is_missing_at_the_start(
    clean: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    env: Environment,
    content: str,
    want: type[NobiruError],
    text: str,
) -> None:
    """Each thing that may be missing is one line that names it, before anything is asked of AWS."""
    (tmp_path / "creds").write_text(content)
    (tmp_path / "directory").mkdir()
    for variable, value in env.items():
        clean.setenv(variable, str(tmp_path / value) if value in ("creds", "absent", "directory") else value)

    with pytest.raises(want, match=text) as caught:
        Aws()
    assert "topsecret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_chain_goes_on_past_an_absent_file(clean: pytest.MonkeyPatch) -> None:
    """Where another source has credentials, an absent file is only worth a warning, as for the SDKs."""
    clean.setenv("AWS_REGION", "us-east-1")
    clean.setenv("AWS_ACCESS_KEY_ID", "AKID")
    clean.setenv("AWS_SECRET_ACCESS_KEY", "topsecret")
    clean.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/creds")
    aws = Aws()
    aws.close()

    assert aws.region == "us-east-1"
    assert any("credentials of another source are used (env)" in each for each in aws.warnings)


@pytest.mark.parametrize(("text", "want"), [("7", 7), ("", 3), ("0", 3), ("many", 3), ("9999", 3)])
def test_attempts(text: str, want: int) -> None:
    """AWS_MAX_ATTEMPTS says how often a read is tried; nonsense leaves the standard."""
    assert session._attempts({"AWS_MAX_ATTEMPTS": text}) == want
