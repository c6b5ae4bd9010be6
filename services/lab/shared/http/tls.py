"""TLS of an emulated cluster."""

from __future__ import annotations

import ssl
from pathlib import Path


def tls_context(cert: Path, ca: Path | None = None) -> ssl.SSLContext:
    """Create a TLS context. Raises ValueError naming the file."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(cert)
        if ca is not None:
            context.load_verify_locations(ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:
        raise ValueError(
            f"{cert}, {ca or 'no authority'}: no certificate with its key, or no authority: {error}"
        ) from None
    return context
