"""CA bundles that are none are found before anything is contacted."""

from pathlib import Path

import pytest

from nobiru.cli.startup_checks import check_ca_bundle, check_ca_bundles
from nobiru.kernel.errors import ConfigError

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


def make(path: Path, what: str) -> None:
    """A path that is one of the traps, or a bundle."""
    match what:
        case "directory":
            path.mkdir()
        case "empty":
            path.write_text("")
        case "text":
            path.write_text("no certificate here")
        case "bundle":
            path.write_text("# comment\n" + PEM)


CASES = [
    ("directory", "is a directory, not a CA bundle: the hostPath does not exist on the node"),
    ("absent", "does not exist: correct the path"),
    ("empty", "is empty: mount a CA bundle there"),
    ("text", "has no certificate in it: give a PEM bundle"),
    ("bundle", ""),
]


@pytest.mark.parametrize(("what", "want"), CASES, ids=[case[0] for case in CASES])
@pytest.mark.parametrize("variable", ["AWS_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_bundles(what: str, want: str, variable: str, tmp_path: Path) -> None:
    """Each trap is one line with the variable, the path and what to do."""
    path = tmp_path / "bundle.crt"
    make(path, what)
    if not want:
        check_ca_bundle(str(path), variable)
        return
    with pytest.raises(ConfigError) as caught:
        check_ca_bundle(str(path), variable)
    line = str(caught.value)
    assert line.startswith(f"{variable}: {path} ")
    assert want in line
    assert "\n" not in line


def test_only_named_bundles_are_checked(tmp_path: Path) -> None:
    """An environment without the variables is fine; one with a wrong one is not."""
    check_ca_bundles({"PATH": "/bin", "AWS_CA_BUNDLE": ""})
    with pytest.raises(ConfigError, match="AWS_CA_BUNDLE"):
        check_ca_bundles({"AWS_CA_BUNDLE": str(tmp_path)})
