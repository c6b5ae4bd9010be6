"""The authenticators that the settings name."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from peloton.access.caller import Role
from peloton.errors import InvalidSettings
from services.access.access import Access, Authenticators, anonymous_with
from services.access.basic import BasicUsers
from services.access.bindings import BindingsFile
from services.access.files import describe, read_bounded
from services.access.tokens import Tokens
from services.settings import Settings

SECRET_CHARS_MIN, SECRET_BYTES_MAX = 32, 4_096


def make_access(settings: Settings) -> Access | None:
    """Return what identifies callers; None when everyone may do everything. Raises InvalidSettings for a bad file."""
    proves = (settings.auth_tokens_file, settings.auth_basic_file, settings.auth_role_token_file)
    anonymous = settings.auth_anonymous
    if not anonymous:
        anonymous = Role.ADMIN if not any(proves) and is_loopback(settings.host) else "none"
    if anonymous == Role.ADMIN and not any(proves):
        return None
    return Access(
        Authenticators(
            tokens=Tokens(settings.auth_tokens_file) if settings.auth_tokens_file else None,
            basic=BasicUsers(settings.auth_basic_file) if settings.auth_basic_file else None,
            bindings=BindingsFile(settings.auth_roles_file) if settings.auth_roles_file else None,
            role_secret=read_secret(settings.auth_role_token_file) if settings.auth_role_token_file else "",
            anonymous=anonymous_with(anonymous),
        )
    )


def read_secret(path: str) -> str:
    """Return the secret that the processes of Peloton share. Raises InvalidSettings."""
    try:
        secret = read_bounded(path, SECRET_BYTES_MAX).strip()
    except (OSError, ValueError) as error:
        raise InvalidSettings(f"role token file {Path(path)}: {describe(error)}") from error
    if len(secret) < SECRET_CHARS_MIN:
        raise InvalidSettings(
            f"role token file {path}: the secret has {len(secret)} characters, want {SECRET_CHARS_MIN}"
        )
    return secret


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
