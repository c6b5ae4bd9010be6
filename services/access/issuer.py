"""Keys of an OIDC issuer, found by its discovery document."""

from __future__ import annotations

from collections.abc import Mapping

import jwt

from peloton.issuer import Fetch, parse_document, read_discovery

KEYS_MAX = 100


def read_keys(issuer: str, fetch: Fetch) -> Mapping[str, jwt.PyJWK]:
    """Return the public signing keys of an issuer by their ids. Raises OSError, ValueError."""
    rows = parse_document(fetch(str(read_discovery(issuer, fetch).get("jwks_uri", "")))).get("keys")
    if not isinstance(rows, list) or not 0 < len(rows) <= KEYS_MAX:
        raise ValueError(f"{issuer} has no list of 1 to {KEYS_MAX} keys")
    found = {}
    for row in rows:
        if not isinstance(row, dict) or row.get("use", "sig") != "sig" or row.get("kty") == "oct":
            continue
        try:
            key = jwt.PyJWK(row)
        except (jwt.PyJWTError, ValueError):  # of an algorithm that is not known here
            continue
        found[key.key_id or ""] = key
    if not found:
        raise ValueError(f"{issuer} has no key that can be used")
    return found
