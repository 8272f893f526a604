"""The way to AWS: boto3 in a bounded pool of threads, its errors translated, its credentials and region explained.

The only place with threads.  Reads are retried by the SDK, writes are tried once.  It refuses to know what the calls are for.
Invariant: no botocore exception leaves this module, and no secret stands in any message.
"""

import asyncio
import functools
import os
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, ParamSpec, TypeVar

import boto3
import botocore.exceptions as failures
from botocore.config import Config

from nobiru.kernel.errors import (
    CloudDenied,
    CloudError,
    CloudRejected,
    CloudThrottled,
    CloudUnavailable,
    ConfigError,
    NoCapacity,
)

THREADS = 8
CONNECT_S, READ_S = 1.5, 2.0  # one attempt of a write stays within 4 s, inside the lease minus the renew deadline
READ_ATTEMPTS = 4
READ_S_MAX = 20.0

_THROTTLED = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "RequestLimitExceeded",
        "TooManyRequestsException",
        "RequestThrottled",
        "SlowDown",
    }
)
_DENIED = frozenset(
    {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "UnauthorizedAccess", "AuthFailure"}
)
_CREDENTIALS = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "InvalidClientTokenId", "UnrecognizedClientException"}
    | {"InvalidAccessKeyId", "SignatureDoesNotMatch", "IncompleteSignature", "MissingAuthenticationToken"}
)
_CAPACITY = frozenset({"InsufficientInstanceCapacity", "InsufficientCapacity", "InstanceLimitExceeded"})

Service = Literal["autoscaling", "ec2", "sts"]
Observe = Callable[[str, str, float], None]  # (endpoint, status, seconds)
P = ParamSpec("P")
T = TypeVar("T")


def _ignore(endpoint: str, status: str, seconds: float) -> None:
    """Nobody measures."""


class Aws:
    """Clients of one region, and the pool that runs them."""

    def __init__(self, *, region: str = "", observe: Observe = _ignore) -> None:
        """Raises ConfigError where the environment names no region or a profile that does not exist."""
        self._pool = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="aws")
        self._observe = observe
        try:
            self._session = boto3.session.Session(region_name=region or None)
            self.region = region or find_region(self._session)
            verify = ca_bundle()
            reads = Config(
                max_pool_connections=THREADS,
                connect_timeout=CONNECT_S,
                read_timeout=10,
                retries={"mode": "standard", "max_attempts": READ_ATTEMPTS},
                user_agent_extra="nobiru",
            )
            writes = reads.merge(Config(read_timeout=READ_S, retries={"mode": "standard", "max_attempts": 1}))
            make = functools.partial(self._session.client, region_name=self.region, verify=verify)
            self.autoscaling: Any = make("autoscaling", config=reads)
            self.autoscaling_write: Any = make("autoscaling", config=writes)
            self.ec2: Any = make("ec2", config=reads)
        except (failures.BotoCoreError, ValueError) as error:
            raise ConfigError(f"AWS cannot be used: {explain(error)}") from error

    async def run(self, call: Callable[[], T], *, timeout_s: float = READ_S_MAX) -> T:
        """Run blocking code that uses the clients in the pool.

        Raises:  CloudError; CloudUnavailable after `timeout_s` (the thread's own time limits end it soon after).
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                return await loop.run_in_executor(self._pool, call)
        except TimeoutError as error:
            raise CloudUnavailable(f"AWS did not answer within {timeout_s:g} s") from error

    def call(self, action: str, method: Callable[..., Any], **arguments: Any) -> Any:
        """One API call, inside the pool's thread; `action` is its IAM name, "autoscaling:SetDesiredCapacity".

        Raises:  CloudError.
        """
        began = time.monotonic()
        status = "success"
        try:
            return method(**arguments)
        except (failures.BotoCoreError, failures.ClientError) as error:
            status = "error"
            raise translate(error, action) from error
        finally:
            self._observe(action.partition(":")[2], status, time.monotonic() - began)

    def pages(self, action: str, paginator: Any, key: str, **arguments: Any) -> list[Any]:
        """All items of a paged call, inside the pool's thread."""
        began = time.monotonic()
        status = "success"
        try:
            return [item for page in paginator.paginate(**arguments) for item in page[key]]
        except (failures.BotoCoreError, failures.ClientError) as error:
            status = "error"
            raise translate(error, action) from error
        finally:
            self._observe(action.partition(":")[2], status, time.monotonic() - began)

    def close(self) -> None:
        """End the pool without waiting for calls that hang."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def find_region(session: boto3.session.Session) -> str:
    """The region: AWS_REGION, AWS_DEFAULT_REGION, the profile's, or the one this machine runs in.

    Raises:  ConfigError.
    """
    region = os.environ.get("AWS_REGION") or session.region_name
    if region:
        return region
    from botocore.utils import InstanceMetadataRegionFetcher  # a private network lookup: only where nothing else says

    try:
        found = InstanceMetadataRegionFetcher(timeout=1, num_attempts=1).retrieve_region()
    except failures.BotoCoreError:
        found = None
    if not found:
        raise ConfigError("no AWS region: set AWS_REGION, or run on an EC2 instance whose metadata service answers")
    return str(found)


def ca_bundle() -> str | None:
    """The CA bundle to verify AWS with: AWS_CA_BUNDLE, else the system's, else botocore's own (None).

    Raises:  ConfigError where AWS_CA_BUNDLE names something that is no bundle.
    """
    named = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE")
    if named:
        return named
    system = ssl.get_default_verify_paths().cafile
    return system if system and os.path.isfile(system) and os.path.getsize(system) > 0 else None


def explain(error: Exception) -> str:
    """One line that says what is wrong with credentials, profile or connection, and what to do."""
    match error:
        case failures.NoCredentialsError() | failures.PartialCredentialsError():
            return (
                "no AWS credentials were found: set AWS_SHARED_CREDENTIALS_FILE or AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or give the pod or instance a role"
            )
        case failures.ProfileNotFound():
            return f"{error}: correct AWS_PROFILE or the shared configuration file"
        case failures.ConfigParseError() | failures.ConfigNotFound():
            return f"{error}: correct the shared credentials or configuration file"
        case failures.SSLError():
            return f"TLS verification failed: {error}; check AWS_CA_BUNDLE"
        case failures.NoRegionError():
            return "no AWS region: set AWS_REGION"
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def translate(error: Exception, action: str) -> CloudError:
    """The kernel's error for a botocore one."""
    if not isinstance(error, failures.ClientError):
        if isinstance(
            error, failures.NoCredentialsError | failures.PartialCredentialsError | failures.CredentialRetrievalError
        ):
            return CloudDenied(f"{action}: {explain(error)}", action=action)
        return CloudUnavailable(f"{action}: {explain(error)}")
    body = error.response.get("Error", {})
    code, message = str(body.get("Code", "")), str(body.get("Message", ""))
    text = f"{action}: {message or code}"
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code in _THROTTLED or status == 429:
        return CloudThrottled(text)
    if code in _CREDENTIALS:
        return CloudDenied(f"{action}: {code}: {message} (renew the credentials)", action=action)
    if code in _DENIED or status == 403:
        return CloudDenied(text, action=action)
    if code in _CAPACITY:
        return NoCapacity(text)
    if status >= 500 or code in ("InternalFailure", "InternalError", "ServiceUnavailable"):
        return CloudUnavailable(text)
    return CloudRejected(text)


def is_credential_trouble(error: CloudError) -> bool:
    """Whether the refusal is about who we are, not about one action."""
    return isinstance(error, CloudDenied) and ("credentials" in str(error))
