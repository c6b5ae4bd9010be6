"""Settings of TLS between roles, and from clients to roles."""

from __future__ import annotations

from dataclasses import dataclass

from services.setting_rules import ALL, PORT_MAX, WORD, one_of, setting

REQUIRED, NONE = "required", "none"


@dataclass(frozen=True)
class TransportSettings:
    tls_cert_file: str = setting(
        "",
        ALL,
        "PEM file of the certificate of this process, which it shows as a server and as a client of other roles; it is "
        "read again when it changes. Empty: plain text. See [transport](transport.md)",
    )
    tls_key_file: str = setting("", ALL, "PEM file of its key; empty: it is in the same file")
    tls_ca_file: str = setting(
        "",
        ALL,
        "PEM file of the authorities that sign certificates of roles and clients; set with `PELOTON_TLS_CERT_FILE`",
    )
    tls_clients: str = setting(
        REQUIRED,
        ALL,
        "whether clients must show a certificate when there is TLS: `required`, or `none` where they have tokens. "
        "Other roles must always",
        form=one_of(REQUIRED, NONE),
    )
    tls_server_name: str = setting(
        "",
        ALL,
        "name that certificates of other roles must have; empty: the one by which they are reached",
        form=WORD,
    )
    tls_roles: str = setting(
        "",
        ALL,
        "names of the certificates of roles, SPIFFE ids or common names, with commas, from which private calls are "
        "taken; empty: `spiffe://TRUST-DOMAIN/role/ROLE` with the trust domain of the process's own certificate",
    )
    tls_denied_file: str = setting(
        "",
        ALL,
        "file of certificates that are denied before they expire: a SPIFFE id, a common name or `serial:HEX` per line; "
        "it is read again when it changes. See [revocation](transport.md#revocation)",
    )
    roles_port: int = setting(
        0,
        ALL,
        "one more port of the API, which asks for a certificate where `PELOTON_TLS_CLIENTS` is `none`: for roles `web` "
        "and `aurorabridge`; 0: none",
        low=0,
        high=PORT_MAX,
    )
    insecure: bool = setting(
        False,
        ALL,
        "listen beyond loopback without TLS, or without credentials of clients: in a network where all are trusted",
    )
