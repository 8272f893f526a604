"""Client certificates from plugins: shown while connecting, so a new one needs new connections."""

import json
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from nobiru.kube.connect import connect
from tests.unit.kube.server import map_of, status
from tests.unit.kube.test_auth import calls, kubeconfig, plugin, read


class Authority:
    """Signs certificates for 127.0.0.1 and for users."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign("authority", self._key.public_key(), authority=True)

    def issue(self, name: str) -> tuple[str, str]:
        """Certificate and key as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return self._sign(name, key.public_key(), authority=False), pem.decode()

    def _sign(self, name: str, key: ec.EllipticCurvePublicKey, *, authority: bool) -> str:
        now = datetime.now(UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        builder = (
            x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


async def test_a_renewed_certificate_is_shown_on_new_connections(tmp_path: Path) -> None:
    """A server that refuses the old certificate gets the new one within the same call."""
    authority = Authority()
    (tmp_path / "ca.crt").write_text(authority.certificate)
    (tmp_path / "server.pem").write_text("".join(authority.issue("server")))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "ca.crt"))
    tls.load_cert_chain(tmp_path / "server.pem")
    tls.verify_mode = ssl.CERT_REQUIRED
    welcome = "first"

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        subject = request.transport.get_extra_info("peercert")["subject"]
        return web.json_response(map_of("a", 1)) if subject == ((("commonName", welcome),),) else status(401)

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()

    def printed(name: str) -> dict[str, str]:
        certificate, key = authority.issue(name)
        return {"clientCertificateData": certificate, "clientKeyData": key}

    server = {"server": "https://127.0.0.1:{1}".format(*runner.addresses[0]), "certificate-authority": "ca.crt"}
    client = connect(str(kubeconfig(tmp_path, server, {"exec": plugin(tmp_path, **printed("first"))})))
    assert await read(client) == "a"
    for count, name in enumerate(("second", "third", "fourth"), start=2):
        welcome = name
        (tmp_path / "status").write_text(json.dumps(printed(name)))
        assert await read(client) == "a"
        assert calls(tmp_path) == count
    await client.aclose()
    await runner.cleanup()
