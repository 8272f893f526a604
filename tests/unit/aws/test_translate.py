"""The AWS library's exceptions as nobiru's errors: one line, what to do, no secret."""

from datetime import UTC, datetime

import pytest
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from nobiru.aws.answers import ActivityAnswer
from nobiru.aws.conversion import activity
from nobiru.aws.translate import LIBRARY_ERRORS, credentials_refused, translated
from nobiru.kernel.errors import (
    CloudDenied,
    CloudError,
    CloudRejected,
    CloudThrottled,
    CloudUnavailable,
    ConfigError,
    NoCapacity,
)

ACTION = "autoscaling:SetDesiredCapacity"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


def answer(code: str, message: str = "", status: int = 400) -> boto.ClientError:
    response = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return boto.ClientError(response, "SetDesiredCapacity")  # type: ignore[arg-type]


CODES = [
    ("Throttling", 400, CloudThrottled),
    ("RequestLimitExceeded", 503, CloudThrottled),
    ("Unheard", 429, CloudThrottled),
    ("AccessDenied", 403, CloudDenied),
    ("UnauthorizedOperation", 403, CloudDenied),
    ("ExpiredToken", 403, CloudDenied),
    ("InvalidClientTokenId", 403, CloudDenied),
    ("SignatureDoesNotMatch", 403, CloudDenied),
    ("AuthFailure", 401, CloudDenied),
    ("RequestExpired", 400, CloudDenied),
    ("InsufficientInstanceCapacity", 500, NoCapacity),
    ("ScalingActivityInProgress", 400, CloudUnavailable),
    ("ServiceUnavailable", 503, CloudUnavailable),
    ("InternalFailure", 500, CloudUnavailable),
    ("Unheard", 502, CloudUnavailable),
    ("ValidationError", 400, CloudRejected),
    ("Unheard", 400, CloudRejected),
]


@pytest.mark.parametrize(("code", "status", "want"), CODES, ids=[f"{row[0]} {row[1]}" for row in CODES])
def test_codes(code: str, status: int, want: type[CloudError]) -> None:
    """Each code has its place in the error tree, which says whether a retry helps; the message names code or action."""
    got = translated(answer(code, "something", status), ACTION)

    assert type(got) is want
    assert code in str(got) or ACTION in str(got)
    retried = want in (CloudThrottled, NoCapacity, CloudUnavailable)
    assert (got.retry_after_ms is not None) == retried


def test_a_refused_action_is_not_refused_credentials() -> None:
    """A missing right names its action; refused credentials name none, since no right would help."""
    right = translated(answer("AccessDenied", "User: arn:aws:iam::1:user/ca is not authorized to perform: x"), ACTION)
    keys = translated(answer("ExpiredToken", "The security token included in the request is expired"), ACTION)

    assert isinstance(right, CloudDenied)
    assert right.action == ACTION
    assert "arn:aws:iam::1:user/ca" in str(right)
    assert not credentials_refused(right)
    assert isinstance(keys, CloudDenied)
    assert keys.action == ""
    assert credentials_refused(keys)


CREDENTIALS = [
    ("ExpiredToken", "expired", "the AWS credentials have expired"),
    ("InvalidClientTokenId", "invalid", "AWS does not know the access key"),
    ("SignatureDoesNotMatch", f"we signed {SECRET}", "AWS refuses the secret access key"),
    ("SignatureDoesNotMatch", "Signature expired: 20261201T is now earlier than", "set this machine's clock"),
    ("RequestTimeTooSkewed", "", "set this machine's clock"),
]


@pytest.mark.parametrize(("code", "text", "want"), CREDENTIALS, ids=[f"{row[0]}: {row[2][:30]}" for row in CREDENTIALS])
def test_refused_credentials(code: str, text: str, want: str) -> None:
    """Each kind of refusal says what to do, and repeats nothing that was signed."""
    got = str(translated(answer(code, text, 403), ACTION))

    assert want in got
    assert SECRET not in got


def test_credentials_in_awss_words_are_blotted() -> None:
    """What AWS quotes ends in events, the status ConfigMap and the journal: a key id is nothing for there."""
    words = "key AKIAIOSFODNN7EXAMPLE is odd"
    moment = datetime(2026, 12, 1, tzinfo=UTC)
    told = activity(ActivityAnswer(activity_id="1", status_code="Failed", status_message=words, start_time=moment))

    assert "AKIA" not in str(translated(answer("ValidationError", words), ACTION))
    assert "AKIA" not in told.message


def test_ec2s_encoded_appendix_is_cut() -> None:
    """EC2 adds kilobytes of encoded text to a refusal; the line stays one line."""
    text = "You are not authorized to perform this operation. Encoded authorization failure message: " + "x" * 3000
    got = str(translated(answer("UnauthorizedOperation", text, 403), "ec2:DescribeInstanceTypes"))

    assert got.endswith("not authorized to perform this operation.")
    assert "\n" not in str(translated(answer("ValidationError", "two\nlines"), ACTION))


LIBRARY: list[tuple[Exception, type[Exception], str]] = [
    (boto.NoCredentialsError(), CloudDenied, "no AWS credentials found"),
    (
        boto.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"),
        CloudDenied,
        "env lacks AWS_SECRET_ACCESS_KEY",
    ),
    (boto.NoRegionError(), ConfigError, "set AWS_REGION"),
    (boto.ProfileNotFound(profile="prod"), ConfigError, '"prod" is in no AWS configuration'),
    (boto.ConfigParseError(path="/creds"), ConfigError, "the AWS file /creds cannot be read"),
    (boto.CredentialRetrievalError(provider="x", error_msg="no role"), CloudDenied, "no role"),
    (boto.SSLError(endpoint_url="https://x", error=OSError("self-signed")), CloudUnavailable, "AWS_CA_BUNDLE"),
    (boto.ReadTimeoutError(endpoint_url="https://x"), CloudUnavailable, f"did not answer {ACTION} in time"),
    (boto.ConnectTimeoutError(endpoint_url="https://x"), CloudUnavailable, "in time"),
    (boto.EndpointConnectionError(endpoint_url="https://x"), CloudUnavailable, "cannot be reached"),
    (boto.ConnectionClosedError(endpoint_url="https://x"), CloudUnavailable, "cannot be reached"),
    (ResponseParserError("<html>"), CloudUnavailable, "cannot be reached"),
    (boto.ParamValidationError(report="bad"), CloudRejected, "cannot be asked so"),
    (FileNotFoundError(2, "No such file", "/token"), CloudUnavailable, "/token"),
]


@pytest.mark.parametrize(("error", "want", "text"), LIBRARY, ids=[type(row[0]).__name__ for row in LIBRARY])
def test_library_errors(error: Exception, want: type[Exception], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the library raises without an answer from AWS."""
    monkeypatch.delenv("AWS_SHARED_CREDENTIALS_FILE", raising=False)
    assert isinstance(error, LIBRARY_ERRORS)
    got = translated(error, ACTION)

    assert type(got) is want
    assert text in str(got)
    assert "\n" not in str(got)
