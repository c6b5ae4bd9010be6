"""The identity that a call has proven by the certificate of its connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

ROLE_PATH = "role"
"""First part of the path of a role's SPIFFE id: ``spiffe://TRUST-DOMAIN/role/NAME``."""
_SCHEME = "spiffe://"


class Context(Protocol):
    """The context of a call, of a server with threads or with an event loop."""

    def auth_context(self) -> Mapping[str, Iterable[bytes]]: ...


@dataclass(frozen=True)
class PeerIdentity:
    """Identity of a client's certificate, which an authority of this server has signed."""

    spiffe_id: str  # empty: the certificate has none
    common_name: str  # of its subject; empty: none

    @property
    def name(self) -> str:
        return self.spiffe_id or self.common_name

    @property
    def role(self) -> str:
        """Return the role of Peloton that the SPIFFE id names; empty: it is no role's."""
        return role_in(self.spiffe_id)

    @property
    def trust_domain(self) -> str:
        return trust_domain_of(self.spiffe_id)


def identity_of(context: Context) -> PeerIdentity | None:
    """Return the identity of the caller; None: its connection has no certificate, or one that names no identity."""
    found = context.auth_context()
    spiffe_id, common_name = _first(found, "peer_spiffe_id"), _first(found, "x509_common_name")
    if common_name.startswith(_SCHEME):  # authorities check names of this kind as such alone
        common_name = ""
    return PeerIdentity(spiffe_id, common_name) if spiffe_id or common_name else None


def _first(found: Mapping[str, Iterable[bytes]], key: str) -> str:
    return next(iter(found.get(key, ())), b"").decode(errors="replace")


def trust_domain_of(spiffe_id: str) -> str:
    return spiffe_id.removeprefix(_SCHEME).partition("/")[0] if spiffe_id.startswith(_SCHEME) else ""


def role_in(spiffe_id: str) -> str:
    domain = trust_domain_of(spiffe_id)
    kind, _, name = spiffe_id.removeprefix(f"{_SCHEME}{domain}/").partition("/")
    return name if domain and kind == ROLE_PATH else ""


def spiffe_id_of_role(trust_domain: str, role: str) -> str:
    return f"{_SCHEME}{trust_domain}/{ROLE_PATH}/{role}"
