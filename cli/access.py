"""``peloton login``, ``logout``, ``whoami`` and ``can-i``: the identity of the caller, and what it may do."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from cli.command import Command
from cli.errors import Failed
from cli.output import print_for_programs
from cli.params import POOL_PATH
from cli.settings import Settings, pass_settings, without_scheme
from cli.terminal import echo
from cli.wire import v0

TOKEN_CHARS_MAX = 16 * 1024


@click.command(cls=Command)
@click.option("--token-file", type=click.Path(path_type=Path), help="Read the token from a file; - is standard input.")
@pass_settings
def login(settings: Settings, token_file: Path | None) -> None:
    """Store a token for the API at an address, after a check that the API accepts it.

    The token is asked for, or read from a file. It is stored in a file of your folder of configurations that only you
    can read, and all commands and clients send it from then on. PELOTON_TOKEN and PELOTON_TOKEN_FILE precede it.

    \b
    Example:
      peloton login --address api.example.org:5397
    """
    from peloton.client import Client
    from peloton.client.credentials import check_token, store_token

    token = check_token(_read_token(token_file), "the token")
    address = without_scheme(settings.address)
    with Client(address, timeout_s=settings.timeout, token=token) as client:
        who = client.access.WhoAmI(v0.access.WhoAmIRequest())
    path = store_token(address, token)
    if not who.is_enforced:
        echo(f"{address} asks for no credentials; the token is stored all the same", err=True)
    echo(f"{describe(who)} at {address}; the token is in {path}")


def _read_token(path: Path | None) -> str:
    if path is None:
        return str(click.prompt("Token", hide_input=True)).strip()
    if path == Path("-"):
        return sys.stdin.read(TOKEN_CHARS_MAX + 1).strip()
    from peloton.files import read_text_file

    return read_text_file(path, "token file", TOKEN_CHARS_MAX + 1).strip()


@click.command(cls=Command)
@pass_settings
def logout(settings: Settings) -> None:
    """Delete the stored token of the API at an address. It stays valid until it expires or is revoked."""
    from peloton.client.credentials import credentials_file

    path = credentials_file(without_scheme(settings.address))
    try:
        path.unlink()
    except FileNotFoundError:
        raise Failed(f"no token is stored for {settings.address}") from None
    echo(f"deleted {path}")


@click.command(cls=Command)
@pass_settings
def whoami(settings: Settings) -> None:
    """Show the identity that your calls have, and its roles.

    \b
    Example:
      peloton whoami
    """
    who = settings.client.access.WhoAmI(v0.access.WhoAmIRequest())
    if print_for_programs(settings, who, [who.name]):
        return
    echo(describe(who))
    if not who.is_enforced:
        echo("the cluster asks for no credentials: everyone may do everything")
        return
    for label, values in (("groups", who.groups), ("issuer", [who.issuer]), ("token", [who.token_id])):
        if any(values):
            echo(f"{label}: {', '.join(values)}")
    if who.method_role:
        echo(f"role of methods: {who.method_role}")
    for grant in who.grants:
        echo(f"role {grant.role} on {grant.pool}")
    if not who.grants and not who.method_role and who.kind != "role":
        echo("no role")


def describe(who: v0.access.WhoAmIResponse) -> str:
    return f"{who.kind} {who.name}" + (f" (by {who.via})" if who.via else "")


@click.command(cls=Command, name="can-i")
@click.argument("method")
@click.option("--pool", type=POOL_PATH, help="The path of a pool; without it: the cluster.")
@pass_settings
def can_i(settings: Settings, method: str, pool: str | None) -> None:
    """Show whether you may call a METHOD, such as JobManager/Create, or have a role, such as submitter.

    Exit code 1: you may not.

    \b
    Examples:
      peloton can-i submitter --pool /eng/maps
      peloton can-i AdminService/Lockdown
    """
    answer = settings.client.access.CanI(v0.access.CanIRequest(method=method, pool=pool or ""))
    if not print_for_programs(settings, answer):
        echo("yes" if answer.is_allowed else "no", nl=False)
        echo(f": {answer.reason}")
    if not answer.is_allowed:
        click.get_current_context().exit(1)
