"""What is checked before anything is contacted: CA bundles that are none.

A hostPath that does not exist on the node is created as an empty directory, so a wrong path of the bundle mounts a directory.
Invariant: each trouble is one ConfigError that names the variable, the path, and what to do.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from nobiru.kernel.errors import ConfigError

BUNDLE_VARIABLES = ("AWS_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
# Where manifests of this kind of program mount the host's bundle, whatever the distribution calls it there.
MOUNTED_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/certs/ca-bundle.crt")
_WELL_KNOWN = "Amazon Linux has /etc/ssl/certs/ca-bundle.crt, Debian and Ubuntu /etc/ssl/certs/ca-certificates.crt"


def check_ca_bundles(environment: Mapping[str, str]) -> None:
    """Check every bundle that the environment names, and those that are mounted.

    Raises:  ConfigError.
    """
    for variable in BUNDLE_VARIABLES:
        if environment.get(variable):
            check_ca_bundle(environment[variable], variable)
    for path in MOUNTED_BUNDLES:
        if os.path.isdir(path):
            check_ca_bundle(path, "the mounted CA bundle")


def check_ca_bundle(path: str, source: str) -> None:
    """Check one bundle.  Raises ConfigError."""
    if os.path.isdir(path):
        raise ConfigError(
            f"{source}: {path} is a directory, not a CA bundle: the hostPath does not exist on the node, so an empty "
            f"directory was mounted; correct it ({_WELL_KNOWN})"
        )
    try:
        with Path(path).open("rb") as file:
            head = file.read(4 * 2**20)
    except FileNotFoundError as error:
        raise ConfigError(f"{source}: {path} does not exist: correct the path ({_WELL_KNOWN})") from error
    except OSError as error:
        raise ConfigError(f"{source}: {path} cannot be read: {error.strerror}") from error
    if not head.strip():
        raise ConfigError(f"{source}: {path} is empty: mount a CA bundle there ({_WELL_KNOWN})")
    if b"-----BEGIN CERTIFICATE-----" not in head and b"-----BEGIN TRUSTED CERTIFICATE-----" not in head:
        raise ConfigError(f"{source}: {path} has no certificate in it: give a PEM bundle")
