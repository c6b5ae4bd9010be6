"""Extras of the distribution: optional packages that only some roles and commands need."""

from __future__ import annotations

from importlib.util import find_spec

from peloton.errors import Unimplemented


def require_extra(extra: str, package: str, user: str) -> None:
    """Raise Unimplemented with the command that installs the extra, unless its package is installed."""
    if find_spec(package) is None:
        raise missing_extra(extra, package, user)


def missing_extra(extra: str, package: str, user: str) -> Unimplemented:
    return Unimplemented(f"{user} needs {package}, which is not installed: pip install 'peloton-temporal[{extra}]'")
