"""Extras of the distribution: optional packages that only some roles and commands need; and modules that its build
makes, which a checkout lacks before."""

from __future__ import annotations

from importlib.util import find_spec

from peloton.errors import Unimplemented


def require_extra(extra: str, package: str, user: str) -> None:
    """Raise Unimplemented with the command that installs the extra, unless its package is installed."""
    if find_spec(package) is None:
        raise missing_extra(extra, package, user)


def missing_extra(extra: str, package: str, user: str, distribution: str = "peloton-temporal") -> Unimplemented:
    return Unimplemented(f"{user} needs {package}, which is not installed: pip install '{distribution}[{extra}]'")


PYMESOS = "services.hostmgr.mesos.pymesos.scheduler"


def require_pymesos(user: str) -> None:
    """Raise Unimplemented with the command that makes the modules of pymesos, unless the build has made them."""
    try:
        found = find_spec(PYMESOS)
    except ModuleNotFoundError:  # its package
        found = None
    if found is None:
        package = PYMESOS.rpartition(".")[0]
        raise Unimplemented(
            f"{user} needs {package}, which the build makes and this checkout lacks: run `pip install -e .` there, "
            "or `make dev`"
        )
