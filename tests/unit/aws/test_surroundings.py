"""Region, CA bundle and credentials file as the machine has them; each trouble is one line that says what to do."""

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import certifi
import pytest

from nobiru.aws.surroundings import (
    Bundle,
    bundle_trouble,
    ca_bundle,
    credentials_trouble,
    file_trouble,
    instance_region,
    no_credentials,
    region,
    token_trouble,
)
from nobiru.kernel.errors import ConfigError

NOTHING = {"AWS_EC2_METADATA_DISABLED": "true"}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Paths of a good bundle and of what stands in its place by mistake."""
    good = Path(certifi.where())
    (tmp_path / "directory").mkdir()
    (tmp_path / "empty").write_text("")
    (tmp_path / "words").write_text("no certificate\n")
    (tmp_path / "good").write_bytes(good.read_bytes())
    return {name: str(tmp_path / name) for name in ("directory", "empty", "words", "good", "absent")}


TROUBLES = [
    ("good", ""),
    ("directory", "it is a directory"),
    ("empty", "the file is empty"),
    ("words", "it holds no PEM certificate"),
    ("absent", "there is no such file"),
]


@pytest.mark.parametrize(("name", "text"), TROUBLES)
def test_bundle_trouble(files: dict[str, str], name: str, text: str) -> None:
    """Why a file is no CA bundle: the directory is what a missing hostPath becomes."""
    got = bundle_trouble(files[name])

    assert text in got
    assert bool(got) == bool(text)


@pytest.mark.parametrize("variable", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
@pytest.mark.parametrize(("name", "text"), TROUBLES)
def test_named_bundle_must_work(files: dict[str, str], variable: str, name: str, text: str) -> None:
    """A bundle that the user names is used, or refused with the variable's name."""
    if not text:
        assert ca_bundle({variable: files[name]}, None, ()) == Bundle(path=files[name])
        return
    with pytest.raises(ConfigError, match=f"^{variable} names .*{name}: {text}.*correct or unset it$"):
        ca_bundle({variable: files[name]}, None, ())


def test_order_of_bundles(files: dict[str, str], tmp_path: Path) -> None:
    """AWS_CA_BUNDLE, the configuration's, the system's first usable one, else the library's; a useless one is said."""
    other = tmp_path / "other"
    other.write_bytes(Path(files["good"]).read_bytes())

    assert ca_bundle({"AWS_CA_BUNDLE": files["good"]}, str(other), ()).path == files["good"]
    assert ca_bundle({}, str(other), (files["good"],)).path == str(other)
    assert ca_bundle({}, None, (files["absent"], files["good"])) == Bundle(path=files["good"])
    passed = ca_bundle({}, None, (files["directory"], files["good"]))
    assert passed.path == files["good"]
    assert passed.warning.startswith(f"the CA bundle {files['directory']} is not used: it is a directory")
    assert ca_bundle({}, None, (files["absent"],)) == Bundle(path=None)


def test_the_system_has_a_bundle() -> None:
    """On a machine with a bundle it is found, and Python's own TLS takes it."""
    found = ca_bundle({}, None).path
    if found is not None:
        assert ssl.create_default_context(cafile=found)


def test_credentials_file(files: dict[str, str], tmp_path: Path) -> None:
    """The Secret's file may be absent or a directory: the line names variable and path, never content."""
    creds = tmp_path / "creds"
    creds.write_text("[other]\naws_access_key_id = AKID\naws_secret_access_key = topsecret\n")
    named = {"AWS_SHARED_CREDENTIALS_FILE": str(creds)}

    assert credentials_trouble({}) == ""
    assert credentials_trouble(named) == ""
    assert "no such file" in credentials_trouble({"AWS_SHARED_CREDENTIALS_FILE": files["absent"]})
    assert "it is a directory" in credentials_trouble({"AWS_SHARED_CREDENTIALS_FILE": files["directory"]})
    assert "no such file" in token_trouble({"AWS_WEB_IDENTITY_TOKEN_FILE": files["absent"]})
    assert "has no [default] section" in no_credentials(named)
    assert "has no [prod] section" in no_credentials({**named, "AWS_PROFILE": "prod"})
    assert "topsecret" not in no_credentials(named)
    assert "mount the file there" in no_credentials({"AWS_SHARED_CREDENTIALS_FILE": files["absent"]})
    assert "give the pod a role" in no_credentials({})


def test_a_file_without_the_right_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose mode keeps it from us says so (root reads everything, so the refusal is the operating system's own)."""
    path = tmp_path / "creds"
    path.write_text("x")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("builtins.open", refuse)
    assert file_trouble(str(path)) == "it cannot be read (Permission denied)"


REGIONS = [
    ({"AWS_REGION": "ap-northeast-1", "AWS_DEFAULT_REGION": "us-east-1"}, "eu-west-1", "ap-northeast-1"),
    ({"AWS_DEFAULT_REGION": "us-east-1"}, "eu-west-1", "us-east-1"),
    ({}, "eu-west-1", "eu-west-1"),
    ({"AWS_REGION": ""}, "us-gov-west-1", "us-gov-west-1"),
]


@pytest.mark.parametrize(("env", "profile", "want"), REGIONS)
def test_region(env: dict[str, str], profile: str, want: str) -> None:
    """AWS_REGION, then AWS_DEFAULT_REGION, then the profile's."""
    assert region({**NOTHING, **env}, profile) == want


@pytest.mark.parametrize(
    ("env", "text"),
    [({}, "no AWS region: set AWS_REGION"), ({"AWS_REGION": "<region>"}, '"<region>" is no AWS region')],
)
def test_no_region(env: dict[str, str], text: str) -> None:
    """Without a region, or with a placeholder for one, the line says which variable to set."""
    with pytest.raises(ConfigError, match=text):
        region({**NOTHING, **env}, None)


class Metadata(BaseHTTPRequestHandler):
    """The instance's metadata service, version 2, in a Local Zone."""

    def do_PUT(self) -> None:
        self._say(200, "token")

    def do_GET(self) -> None:
        known = self.headers.get("X-aws-ec2-metadata-token") == "token"
        asked = self.path == "/latest/meta-data/placement/region"
        self._say(200, "us-west-2\n") if known and asked else self._say(401, "")

    def _say(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def metadata() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join(5)


def test_region_of_the_instance(metadata: str) -> None:
    """The metadata service tells the region, in any kind of zone; without one there is none."""
    assert instance_region({"AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata}) == "us-west-2"
    assert region({"AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata}, None) == "us-west-2"
    assert instance_region({"AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata, **NOTHING}) == ""
    assert instance_region({"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"}) == ""
