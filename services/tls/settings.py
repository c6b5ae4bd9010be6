"""The transport that settings describe."""

from __future__ import annotations

from peloton.api.tls_files import TlsPaths
from peloton.extras import require_extra
from services.setting_groups.transport import REQUIRED
from services.settings import Settings
from services.tls.transport import PLAINTEXT, Transport


def read_transport(settings: Settings) -> Transport:
    """Return the transport that the settings describe. Raises InvalidArgument naming a file, InvalidSettings, and
    Unimplemented without the extra.
    """
    inner = _read_inner(settings)
    if not settings.auth_role_token_file:
        return inner
    from services.access.role_token import RoleToken, TokenTransport, read_role_token

    return TokenTransport(inner, RoleToken(read_role_token(settings.auth_role_token_file)))


def _read_inner(settings: Settings) -> Transport:
    if not settings.tls_cert_file:
        return PLAINTEXT
    require_extra("secure", "cryptography", "TLS")
    from services.tls.secured import TlsTransport

    roles = [name for one in settings.tls_roles.split(",") if (name := one.strip())]
    return TlsTransport(
        TlsPaths(settings.tls_ca_file, settings.tls_cert_file, settings.tls_key_file),
        asks_clients=settings.tls_clients == REQUIRED,
        server_name=settings.tls_server_name,
        roles=roles,
        roles_port=settings.roles_port,
        denied_file=settings.tls_denied_file,
    )
