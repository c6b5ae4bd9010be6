"""Names and dates of a certificate."""

from __future__ import annotations

from dataclasses import dataclass

from cryptography import x509
from cryptography.x509.oid import NameOID

from peloton.errors import InvalidArgument


@dataclass(frozen=True)
class Certificate:
    spiffe_id: str  # empty: it has none
    common_name: str
    expires_at: float  # seconds since the epoch; of a chain the earliest


def read_certificate(pem: bytes) -> Certificate:
    """Return the first certificate of a chain. Raises InvalidArgument."""
    try:
        chain = x509.load_pem_x509_certificates(pem)
        first = chain[0]
        expires_at = min(one.not_valid_after_utc.timestamp() for one in chain)
        uris = _uris(first)
        names = [str(one.value) for one in first.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    except ValueError as error:
        raise InvalidArgument(f"a certificate cannot be read: {error}") from None
    spiffe_ids = [uri for uri in uris if uri.startswith("spiffe://")]
    return Certificate("".join(spiffe_ids[:1]), "".join(names[:1]), expires_at)


def _uris(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)
