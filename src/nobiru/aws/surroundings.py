"""What the machine says about how to reach AWS: region, CA bundle, credentials file; each trouble one line that says what to do.

It refuses to know: the AWS library.  Invariant: file contents are never quoted.
"""

import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from nobiru.kernel.errors import ConfigError

# Where distributions keep their CA bundle: Debian and Alpine, Amazon Linux and RHEL, the EKS walk-through's mount, Alpine's own.
SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)
IMDS = "http://169.254.169.254"
_IMDS_S_MAX = 1.0  # as the AWS SDKs: the service is one hop away


class Bundle(Struct, frozen=True, kw_only=True):
    """The CA bundle to trust: a file, or None for the one that comes with the AWS library."""

    path: str | None
    warning: str = ""


def ca_bundle(env: Mapping[str, str], configured: str | None, system: tuple[str, ...] = SYSTEM_BUNDLES) -> Bundle:
    """The bundle the user names, else the system's, else the library's.

    A system bundle that cannot be used is passed over with a warning; one that the user names must work.
    Raises:  ConfigError.
    """
    named = (
        ("AWS_CA_BUNDLE", env.get("AWS_CA_BUNDLE")),
        ("the AWS configuration's ca_bundle", configured),
        ("REQUESTS_CA_BUNDLE", env.get("REQUESTS_CA_BUNDLE")),
        ("SSL_CERT_FILE", env.get("SSL_CERT_FILE")),
    )
    for name, path in named:
        if path:
            trouble = bundle_trouble(path)
            if trouble:
                raise ConfigError(f"{name} names {path}: {trouble}; correct or unset it")
            return Bundle(path=path)
    warning = ""
    for path in system:
        if not os.path.lexists(path):
            continue
        trouble = bundle_trouble(path)
        if not trouble:
            return Bundle(path=path, warning=warning)
        warning = warning or f"the CA bundle {path} is not used: {trouble}"
    return Bundle(path=None, warning=warning)


def bundle_trouble(path: str) -> str:
    """Why a file is no CA bundle; "" where it is one."""
    trouble = file_trouble(path)
    if trouble:
        return trouble
    try:
        if Path(path).stat().st_size == 0:
            return "the file is empty"
        ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError):
        return "it holds no PEM certificate"
    return ""


def file_trouble(path: str) -> str:
    """Why a file cannot be read; "" where it can."""
    if os.path.isdir(path):
        return "it is a directory (the path of a hostPath or subPath mount that did not exist becomes one)"
    try:
        with open(path, "rb"):
            return ""
    except FileNotFoundError:
        return "there is no such file"
    except OSError as error:
        return f"it cannot be read ({error.strerror})"


def credentials_trouble(env: Mapping[str, str]) -> str:
    """What is wrong with the shared credentials file that the environment names; "" where nothing, or none is named."""
    path = env.get("AWS_SHARED_CREDENTIALS_FILE")
    trouble = file_trouble(os.path.expanduser(path)) if path else ""
    return f"AWS_SHARED_CREDENTIALS_FILE names {path}: {trouble}" if trouble else ""


def token_trouble(env: Mapping[str, str]) -> str:
    """What is wrong with the web identity token's file; "" where nothing."""
    path = env.get("AWS_WEB_IDENTITY_TOKEN_FILE")
    trouble = file_trouble(path) if path else ""
    return f"AWS_WEB_IDENTITY_TOKEN_FILE names {path}: {trouble}" if trouble else ""


def no_credentials(env: Mapping[str, str]) -> str:
    """The line for a chain of credential sources that gave nothing."""
    trouble = credentials_trouble(env)
    if trouble:
        return f"no AWS credentials found: {trouble}; mount the file there, or unset the variable"
    path = env.get("AWS_SHARED_CREDENTIALS_FILE")
    if path:
        profile = env.get("AWS_PROFILE") or env.get("AWS_DEFAULT_PROFILE") or "default"
        return (
            f"no AWS credentials found: AWS_SHARED_CREDENTIALS_FILE ({path}) has no [{profile}] section "
            "with aws_access_key_id and aws_secret_access_key"
        )
    return (
        "no AWS credentials found: give the pod a role, or set AWS_SHARED_CREDENTIALS_FILE, "
        "or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )


def region(env: Mapping[str, str], profile_region: str | None) -> str:
    """The AWS region: AWS_REGION, AWS_DEFAULT_REGION, the profile's, else the instance's own.

    Raises:  ConfigError where nothing says it.
    """
    found = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or profile_region or instance_region(env)
    if not found:
        raise ConfigError("no AWS region: set AWS_REGION, such as AWS_REGION=ap-northeast-1")
    if not found.replace("-", "").isalnum() or found != found.strip():
        raise ConfigError(f'"{found}" is no AWS region: set AWS_REGION to one such as ap-northeast-1')
    return found


def instance_region(env: Mapping[str, str]) -> str:
    """The region that the instance's metadata service tells; "" without such a service.

    Source: EC2 user guide, IMDSv2: a token first, then placement/region (a zone's name less its last letter is no region in Local Zones).
    """
    if env.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return ""
    base = env.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", IMDS).rstrip("/")
    if not base.startswith(("http://", "https://")):
        return ""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    ask_token = urllib.request.Request(
        f"{base}/latest/api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    )
    try:
        with opener.open(ask_token, timeout=_IMDS_S_MAX) as answer:
            token = answer.read(1024).decode("ascii")
        ask = urllib.request.Request(
            f"{base}/latest/meta-data/placement/region", headers={"X-aws-ec2-metadata-token": token}
        )
        with opener.open(ask, timeout=_IMDS_S_MAX) as answer:
            return str(answer.read(64).decode("ascii")).strip()
    except (OSError, ValueError, urllib.error.URLError):
        return ""
