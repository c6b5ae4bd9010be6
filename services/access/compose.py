"""The authenticators that the settings name."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from peloton.access.caller import Caller, CallerKind, Role
from peloton.errors import InvalidArgument, InvalidSettings, Unauthenticated
from peloton.extras import require_extra
from services.access.access import Access, Authenticators, SignInPlace, anonymous_with
from services.access.basic import BasicUsers
from services.access.bindings import BindingsFile
from services.access.caller import CERTIFICATE, UNNAMED_ROLE
from services.access.tokens import Tokens
from services.servers.role_surface import denial_text
from services.settings import Settings
from services.tls.peer import identity_of
from services.tls.transport import Transport

if TYPE_CHECKING:
    from services.access.oidc import Oidc


def make_access(settings: Settings, transport: Transport, unserved: Collection[str] = ()) -> Access | None:
    """Return what identifies callers; None when everyone may do everything. Raises InvalidSettings for a bad file.

    ``unserved`` are methods that the original's file may name although they are not served.
    """
    files = (settings.auth_tokens_file, settings.auth_basic_file, settings.auth_roles_file)
    proves = any(files) or bool(settings.auth_oidc_issuer)
    anonymous = settings.auth_anonymous or ("none" if proves else Role.ADMIN)
    if anonymous == Role.ADMIN and not proves:
        return None
    login_client = settings.auth_oidc_login_client or settings.auth_oidc_audience
    return Access(
        Authenticators(
            tokens=Tokens(settings.auth_tokens_file) if settings.auth_tokens_file else None,
            basic=BasicUsers(settings.auth_basic_file, unserved) if settings.auth_basic_file else None,
            oidc=_make_oidc(settings) if settings.auth_oidc_issuer else None,
            bindings=BindingsFile(settings.auth_roles_file) if settings.auth_roles_file else None,
            anonymous=anonymous_with(anonymous),
            sign_in=SignInPlace(settings.auth_oidc_issuer, login_client),
            certified=find_certified(transport),
        )
    )


def _make_oidc(settings: Settings) -> Oidc:
    require_extra("secure", "jwt", "PELOTON_AUTH_OIDC_ISSUER")
    from peloton.issuer import check_address, make_fetch
    from services.access.oidc import Oidc, OidcConfig

    try:
        check_address(settings.auth_oidc_issuer)
        fetch = make_fetch(settings.auth_oidc_ca_file)
    except (OSError, ValueError, InvalidArgument) as error:
        raise InvalidSettings(f"PELOTON_AUTH_OIDC_ISSUER, PELOTON_AUTH_OIDC_CA_FILE: {error}") from error
    config = OidcConfig(
        settings.auth_oidc_issuer,
        settings.auth_oidc_audience,
        settings.auth_oidc_name_claim,
        settings.auth_oidc_groups_claim,
        settings.auth_oidc_login_client,
    )
    return Oidc(config, fetch)


def find_certified(transport: Transport) -> Callable[[Any], Caller | None]:
    """Return what finds the caller that the connection of a call proves, and the secret of roles."""

    def find(context: Any) -> Caller | None:
        if not transport.proves_roles:
            return None
        if name := transport.find_denied(context):
            raise Unauthenticated(denial_text(name))
        identity = identity_of(context) if transport.has_tls else None
        if transport.is_role(context):
            name = identity.role if identity is not None else ""
            return Caller(name or UNNAMED_ROLE, CallerKind.ROLE, issuer=CERTIFICATE if name else "role token")
        return Caller(identity.name, CallerKind.SERVICE, issuer=CERTIFICATE) if identity is not None else None

    return find
