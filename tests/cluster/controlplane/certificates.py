"""Keys and certificates of one control plane: a CA, the API server's certificate, the service accounts' key.

Knows X.509 only. Invariant: every file is made anew for each control plane, so a client that does not verify, or
verifies against another run's CA, is found out.
"""

import datetime
import ipaddress
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# What clients may call the API server: by address from outside, by the service's names from inside a pod.
SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")

# Longer than any test run; an hour back, so that a clock that is set a little later does no harm.
VALID_FOR = datetime.timedelta(days=7)
VALID_SINCE = datetime.timedelta(hours=1)


class Certificates(msgspec.Struct, frozen=True, kw_only=True):
    """The files, all in PEM."""

    ca: Path
    server_certificate: Path
    server_key: Path
    service_account_key: Path
    service_account_public_key: Path


def write_certificates(directory: Path) -> Certificates:
    """Makes the files in `directory`: ECDSA P-256 throughout, which takes milliseconds."""
    ca_key = ec.generate_private_key(ec.SECP256R1())
    server_key = ec.generate_private_key(ec.SECP256R1())
    account_key = ec.generate_private_key(ec.SECP256R1())
    ca = sign(subject="nobiru-test-ca", public_key=ca_key.public_key(), issuer="nobiru-test-ca", issuer_key=ca_key)
    server = sign(
        subject="kube-apiserver", public_key=server_key.public_key(), issuer="nobiru-test-ca", issuer_key=ca_key
    )
    files = Certificates(
        ca=directory / "ca.crt",
        server_certificate=directory / "apiserver.crt",
        server_key=directory / "apiserver.key",
        service_account_key=directory / "service-account.key",
        service_account_public_key=directory / "service-account.pub",
    )
    files.ca.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    files.server_certificate.write_bytes(server.public_bytes(serialization.Encoding.PEM))
    write_key(files.server_key, server_key)
    write_key(files.service_account_key, account_key)
    files.service_account_public_key.write_bytes(
        account_key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    return files


def sign(
    *,
    subject: str,
    public_key: ec.EllipticCurvePublicKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    """A certificate: for the CA itself if subject and issuer are the same name, else for a server on 127.0.0.1."""
    now = datetime.datetime.now(datetime.UTC)
    is_ca = subject == issuer
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - VALID_SINCE)
        .not_valid_after(now + VALID_FOR)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        # Python 3.13's ssl module is strict: it wants the issuer's key named, and a CA's key usage.
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(key_usage(is_ca=is_ca), critical=True)
    )
    if not is_ca:
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in SERVER_NAMES]
        names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def key_usage(*, is_ca: bool) -> x509.KeyUsage:
    """Signing certificates for a CA, signing handshakes for a server."""
    return x509.KeyUsage(
        digital_signature=not is_ca,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Writes a private key for its owner alone, in the older form that Kubernetes' loader of account keys knows."""
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
