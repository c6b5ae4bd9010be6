"""Conversion of every error into one line and an exit code: 1 refused or failed, 2 wrong usage (Click's own)."""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING, Any, TypeGuard

import click

from cli.settings import Settings
from cli.terminal import echo
from peloton.api.limits import code_of, is_connection_failure
from peloton.errors import InvalidSettings, PelotonError

if TYPE_CHECKING:
    import grpc


class Failed(click.ClickException):
    """A refusal or failure; the message is the whole line, and the lines of several faults are joined."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        lines = filter(None, (" ".join(line.split()) for line in self.message.splitlines()))
        echo("; ".join(lines), file=file or sys.stderr)


class Misconfigured(Failed):
    """Settings that break rules: a line for each fault, and the exit code of wrong usage."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        echo(self.message, file=file or sys.stderr)


CONNECTS_TO_NONE = ("connections to all backends failing", "failed to connect to all addresses")
"""Beginnings of gRPC's text when no address takes a connection, with one address or several."""


def failure(error: Exception, settings: Settings | None) -> Exception:
    """Return the exception to raise in place of ``error``; exceptions of Click are complete themselves."""
    while isinstance(error, ExceptionGroup):  # of concurrent parts; the first failure is the cause
        error = error.exceptions[0]
    if isinstance(error, (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError)):
        return error  # a pipe whose reader has ended, such as head, is for Click: it ends silently
    if isinstance(error, InvalidSettings):
        return Misconfigured(error.message)
    if isinstance(error, PelotonError):
        return Failed(error.message)
    if is_rpc_error(error):
        return Failed(rpc_failure(error, settings))
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return Failed(f"{place}{error.strerror or error}")
    if type(error).__name__ == "ConfigError":  # of peloton.api.yaml_config, which is slow to import
        return Failed(str(error))
    return Failed(f"internal error: {type(error).__name__}: {error} (run with --debug for the trace)")


def is_rpc_error(error: BaseException) -> TypeGuard[grpc.RpcError]:
    grpc_module = sys.modules.get("grpc")  # an error of grpc exists only where grpc has been imported
    return grpc_module is not None and isinstance(error, grpc_module.RpcError)


def rpc_failure(error: grpc.RpcError, settings: Settings | None) -> str:
    code, details = code_of(error), error.details() or ""
    client = settings.open_client if settings else None
    address = client.last_address if client else "the API"
    if code == "UNAVAILABLE" and "handshake failed" in details:
        reason = details.rpartition("OPENSSL_internal:")[2].removesuffix(": OK")
        return f"no TLS with Peloton at {address}: {reason} (--ca-file names the authorities that you trust)"
    if code == "UNAVAILABLE" and details.startswith(CONNECTS_TO_NONE) and details.endswith("Socket closed"):
        return (
            f"Peloton at {address} closes the connection: TLS with a certificate may be needed "
            "(--ca-file, --cert-file and --key-file)"
        )
    if code == "UNAVAILABLE" and is_connection_failure(error):
        return f'cannot reach Peloton at {address}: is "peloton up" running? (or name another with --address)'
    if code == "UNAVAILABLE":
        return f"{details} (UNAVAILABLE at {address}, try again)"
    if code == "DEADLINE_EXCEEDED":
        seconds = f" within {client.timeout_s:g} s" if client else ""
        return f"no answer from {address}{seconds} (DEADLINE_EXCEEDED); a longer --timeout may help"
    if code == "UNAUTHENTICATED":
        return f"{details} (UNAUTHENTICATED at {address}; peloton login signs in)"
    if code == "UNIMPLEMENTED":
        return f"{address} does not offer this call (UNIMPLEMENTED): {details}"
    return f"{details or 'failed'} ({code})"
