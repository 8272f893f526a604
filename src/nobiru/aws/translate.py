"""The AWS library's exceptions as nobiru's errors, each one line that says what to do.

It refuses to know: which call is retried.  Invariant: no library exception and no secret leaves here; where credentials are refused,
AWS's own text is left out, since it may quote what was signed.
"""

import os
import re

from boto3.exceptions import Boto3Error
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from nobiru.aws.surroundings import no_credentials
from nobiru.kernel.errors import (
    CloudDenied,
    CloudError,
    CloudRejected,
    CloudThrottled,
    CloudUnavailable,
    ConfigError,
    NoCapacity,
)
from nobiru.sinks.redact import safe

LIBRARY_ERRORS = (boto.BotoCoreError, boto.ClientError, Boto3Error, ResponseParserError, OSError)

# Source for the codes: botocore retries/standard.py (throttling, transient); EC2 and Auto Scaling API references, "Common errors".
_THROTTLED = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "RequestThrottled",
        "RequestThrottledException",
        "RequestLimitExceeded",
        "TooManyRequestsException",
        "PriorRequestNotComplete",
        "BandwidthLimitExceeded",
        "SlowDown",
        "EC2ThrottledException",
        "ProvisionedThroughputExceededException",
        "LimitExceededException",
    }
)
_DENIED = frozenset(
    {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "UnauthorizedAccess", "OptInRequired"}
)
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})
_UNKNOWN_KEY = frozenset(
    {
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "AuthFailure",
        "InvalidAccessKeyId",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "IncompleteSignature",
    }
)
_BAD_SIGNATURE = frozenset({"SignatureDoesNotMatch", "InvalidSignatureException"})
_CLOCK = frozenset({"RequestExpired", "RequestTimeTooSkewed", "RequestInTheFuture"})
_NO_CAPACITY = frozenset(
    {
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientCapacity",
        "InstanceLimitExceeded",
        "VcpuLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "SpotMaxPriceTooLow",
        "UnfulfillableCapacity",
    }
)
_BUSY = frozenset({"ScalingActivityInProgress", "ResourceContention", "ResourceContentionFault"})
_UNAVAILABLE = frozenset(
    {
        "InternalFailure",
        "InternalError",
        "InternalServerError",
        "ServiceUnavailable",
        "Unavailable",
        "RequestTimeout",
        "RequestTimeoutException",
        "TransactionInProgressException",
    }
)
_TEXT_LENGTH_MAX = 400
_RENEW = "renew them where AWS_SHARED_CREDENTIALS_FILE, the environment or the role says"


def one_line(text: str) -> str:
    """The text on one line, without EC2's encoded appendix and without credentials, not too long."""
    text = safe(text.split("Encoded authorization failure message", 1)[0])
    return re.sub(r"\s+", " ", text).strip()[:_TEXT_LENGTH_MAX]


def translated(error: Exception, action: str) -> CloudError | ConfigError:
    """The error of our tree for a library exception that the IAM action `action` ended with."""
    if isinstance(error, boto.ClientError):
        return _from_answer(error, action)
    return _from_library(error, action)


def _from_answer(error: boto.ClientError, action: str) -> CloudError:
    details = error.response.get("Error", {})
    code, text = str(details.get("Code", "")), one_line(str(details.get("Message", "")))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code in _THROTTLED or status == 429:
        return CloudThrottled(f"AWS throttles {action} ({code}): {text}")
    if code in _DENIED:
        return CloudDenied(f"AWS refuses {action}: {text}", action=action)
    refused = _refused_credentials(code, text)
    if refused:
        return CloudDenied(refused)
    if code in _NO_CAPACITY:
        return NoCapacity(f"AWS has no capacity ({code}): {text}")
    if code in _BUSY:
        return CloudUnavailable(f"AWS is busy with the group ({code}): {text}", retry_after_ms=2_000)
    if code in _UNAVAILABLE or status >= 500:
        return CloudUnavailable(f"AWS cannot answer {action} now ({code or status}): {text}")
    return CloudRejected(f"AWS rejects {action} ({code}): {text}")


def _refused_credentials(code: str, text: str) -> str:
    """The line for refused credentials; "" where the code means something else."""
    if code in _EXPIRED:
        return f"the AWS credentials have expired ({code}): {_RENEW}"
    if code in _CLOCK or (code in _BAD_SIGNATURE and "xpired" in text):
        return f"AWS says that the request is too old or too new ({code}): set this machine's clock"
    if code in _BAD_SIGNATURE:
        return f"AWS refuses the secret access key ({code}): it does not belong to the access key id; correct it"
    if code in _UNKNOWN_KEY:
        return f"AWS does not know the access key ({code}): correct the credentials, or their region"
    return ""


def _from_library(error: Exception, action: str) -> CloudError | ConfigError:
    match error:
        case boto.NoCredentialsError():
            return CloudDenied(no_credentials(os.environ))
        case boto.PartialCredentialsError():
            where, field = error.kwargs.get("provider", "one source"), error.kwargs.get("cred_var", "a part")
            return CloudDenied(f"the AWS credentials are not complete: {where} lacks {field}")
        case boto.NoRegionError():
            return ConfigError("no AWS region: set AWS_REGION, such as AWS_REGION=ap-northeast-1")
        case boto.ProfileNotFound():
            return ConfigError(
                f'AWS profile "{error.kwargs.get("profile", "")}" is in no AWS configuration or credentials file: correct AWS_PROFILE'
            )
        case boto.ConfigParseError() | boto.ConfigNotFound():
            return ConfigError(
                f"the AWS file {error.kwargs.get('path', '')} cannot be read: it wants [profile] sections with name = value lines"
            )
        case boto.CredentialRetrievalError() | boto.TokenRetrievalError() | boto.SSOError() | boto.LoginError():
            return CloudDenied(f"no AWS credentials could be had: {one_line(str(error))}")
        case boto.MetadataRetrievalError():
            return CloudUnavailable(f"the instance's metadata service gives no credentials: {one_line(str(error))}")
        case boto.InvalidRegionError():
            return ConfigError(f'"{error.kwargs.get("region_name", "")}" is no AWS region: correct AWS_REGION')
        case boto.SSLError():
            return CloudUnavailable(
                f"the TLS connection to AWS failed: check the CA bundle (AWS_CA_BUNDLE) and the proxy: {one_line(str(error))}"
            )
        case boto.ReadTimeoutError() | boto.ConnectTimeoutError():
            return CloudUnavailable(f"AWS did not answer {action} in time")
        case boto.ParamValidationError():
            return CloudRejected(f"{action} cannot be asked so: {one_line(str(error))}")
        case boto.ConnectionError() | boto.HTTPClientError() | ResponseParserError():
            return CloudUnavailable(f"AWS cannot be reached for {action}: {one_line(str(error))}")
    return CloudUnavailable(f"{action} failed: {one_line(str(error)) or type(error).__name__}")


def credentials_refused(error: CloudError | ConfigError) -> bool:
    """Whether it is the credentials rather than a right that AWS refuses: reading them anew may help."""
    return isinstance(error, CloudDenied) and not error.action
