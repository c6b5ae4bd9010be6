"""The authenticators that the settings name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peloton.access.caller import Caller, CallerKind, Role
from services.access.access import Access, Authenticators, anonymous_with
from services.access.basic import BasicUsers
from services.access.bindings import BindingsFile
from services.access.caller import CERTIFICATE
from services.access.tokens import Tokens
from services.settings import Settings
from services.tls.peer import identity_of
from services.tls.transport import Transport


def make_access(settings: Settings, transport: Transport) -> Access | None:
    """Return what identifies callers; None when everyone may do everything. Raises InvalidSettings for a bad file."""
    files = (settings.auth_tokens_file, settings.auth_basic_file, settings.auth_roles_file)
    anonymous = settings.auth_anonymous or ("none" if any(files) else Role.ADMIN)
    if anonymous == Role.ADMIN and not any(files):
        return None
    return Access(
        Authenticators(
            tokens=Tokens(settings.auth_tokens_file) if settings.auth_tokens_file else None,
            basic=BasicUsers(settings.auth_basic_file) if settings.auth_basic_file else None,
            bindings=BindingsFile(settings.auth_roles_file) if settings.auth_roles_file else None,
            anonymous=anonymous_with(anonymous),
            certified=find_certified(transport),
        )
    )


def find_certified(transport: Transport) -> Callable[[Any], Caller | None]:
    """Return what finds the caller that the connection of a call proves, and the secret of roles."""

    def find(context: Any) -> Caller | None:
        if not transport.proves_roles:
            return None
        identity = identity_of(context) if transport.has_tls else None
        if transport.is_role(context):
            name = identity.role if identity is not None else ""
            return Caller(name or "peloton", CallerKind.ROLE, issuer=CERTIFICATE if name else "role token")
        return Caller(identity.name, CallerKind.SERVICE, issuer=CERTIFICATE) if identity is not None else None

    return find
