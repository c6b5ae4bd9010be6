"""A certificate authority in a folder, for a local cluster and for tests.

It issues certificates with SPIFFE ids for roles and for people. Keys are readable by the owner of the folder alone.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from peloton.files import read_file, write_private_file
from services.tls.peer import spiffe_id_of_role

AUTHORITY_VALID = timedelta(days=3650)
VALID = timedelta(days=365)
CLOCK_SKEW = timedelta(minutes=5)
"""Age that a new certificate has already, for clocks that are behind."""


@dataclass(frozen=True)
class IssuedFiles:
    """Paths of a certificate and its key."""

    cert: Path
    key: Path


class LocalAuthority:
    """Authority whose certificate and key are in a folder; it makes them when they are not there."""

    def __init__(self, folder: Path, trust_domain: str) -> None:
        self.folder = folder
        self.trust_domain = trust_domain
        self.ca_file = folder / "ca.pem"
        self._key_file = folder / "ca.key"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (self.ca_file.exists() and self._key_file.exists()):
            self._make()
        self._certificate = x509.load_pem_x509_certificate(read_file(self.ca_file, "authority"))
        key = serialization.load_pem_private_key(read_file(self._key_file, "key of the authority"), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey), self._key_file
        self._key = key

    def issue_role(self, role: str, hosts: Sequence[str], valid: timedelta = VALID) -> IssuedFiles:
        """Issue the certificate of a role, which serves at ``hosts`` and calls other roles."""
        return self.issue(role, spiffe_id_of_role(self.trust_domain, role), hosts, valid)

    def issue_user(self, name: str) -> IssuedFiles:
        """Issue a certificate by which a person calls the api."""
        return self.issue(name, f"spiffe://{self.trust_domain}/user/{name}")

    def issue_server(self, name: str, hosts: Sequence[str]) -> Path:
        """Issue the certificate of another server, and return the file that has it with its key."""
        issued, both = self.issue(name, hosts=hosts), self.folder / f"{name}-server.pem"
        write_private_file(both, read_file(issued.cert, "certificate") + read_file(issued.key, "key"))
        return both

    def issue(self, name: str, spiffe_id: str = "", hosts: Sequence[str] = (), valid: timedelta = VALID) -> IssuedFiles:
        """Write ``NAME.pem`` and ``NAME.key`` to the folder; a server's has ``hosts``, addresses or names."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [_host_name(host) for host in hosts]
        if spiffe_id:
            names.append(x509.UniformResourceIdentifier(spiffe_id))
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else ())]
        builder = (
            _builder(_subject(name), self._certificate.subject, key, valid)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._certificate.public_key()),  # type: ignore[arg-type]
                critical=False,
            )
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        issued = IssuedFiles(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        write_private_file(issued.key, _pem_of(key))
        write_private_file(
            issued.cert, builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )
        return issued

    def write_browser_file(self, issued: IssuedFiles) -> Path:
        """Write a certificate, its key and the authority as ``NAME.p12``, which browsers import without a password."""
        key = serialization.load_pem_private_key(read_file(issued.key, "key"), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey), issued.key
        certificate = x509.load_pem_x509_certificate(read_file(issued.cert, "certificate"))
        name, plain = issued.cert.stem.encode(), serialization.NoEncryption()
        content = pkcs12.serialize_key_and_certificates(name, key, certificate, [self._certificate], plain)
        write_private_file(issued.cert.with_suffix(".p12"), content)
        return issued.cert.with_suffix(".p12")

    def _make(self) -> None:
        key, name = ec.generate_private_key(ec.SECP256R1()), _subject(f"authority of {self.trust_domain}")
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
            data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        certificate = (
            _builder(name, name, key, AUTHORITY_VALID)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        write_private_file(self._key_file, _pem_of(key))
        write_private_file(self.ca_file, certificate.public_bytes(serialization.Encoding.PEM))


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, valid: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + valid) - CLOCK_SKEW)
        .not_valid_after(now + valid)
    )


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
