"""``peloton login``, ``logout``, ``whoami`` and ``can-i``: the identity of the caller, and what it may do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.command import Command
from cli.errors import Failed
from cli.output import print_for_programs
from cli.params import POOL_PATH
from cli.settings import Settings, pass_settings, without_scheme
from cli.terminal import echo
from cli.wire import v0

if TYPE_CHECKING:
    from peloton.client.sign_in import DeviceCode

TOKEN_CHARS_MAX = 16 * 1024


@click.command(cls=Command)
@click.option("--token-file", type=click.Path(path_type=Path), help="Read the token from a file; - is standard input.")
@click.option("--browser", is_flag=True, help="Sign in by a browser on this machine, not by a code.")
@click.option(
    "--issuer-ca-file",
    type=click.Path(path_type=Path),
    help="PEM file of the authorities of the issuer's certificate; without it: those of the system.",
)
@pass_settings
def login(settings: Settings, token_file: Path | None, browser: bool, issuer_ca_file: Path | None) -> None:
    """Sign in to the API at an address: at its OIDC issuer, or with a token.

    Where the cluster has an issuer, a page and a code are printed: open the page on any machine, and type the code.
    With --browser, or where the issuer has no such page, a browser is opened here. The token is renewed before it
    expires, as long as the issuer allows. Where the cluster has no issuer, a token is asked for.

    The token is stored in a file of your folder of configurations that only you can read, after a check that the API
    accepts it, and all commands and clients send it from then on. PELOTON_TOKEN and PELOTON_TOKEN_FILE precede it.

    \b
    Example:
      peloton login --address api.example.org:5397
    """
    from peloton.client.token_files import check_token, store_token

    address = without_scheme(settings.address)
    if token_file is None:
        with settings.connect(metadata=lambda: ()) as client:  # stored credentials may have expired
            place = client.access.WhoAmI(v0.access.WhoAmIRequest()).sign_in
        if place.issuer:
            sign_in_at(settings, place, browser, issuer_ca_file)
            return
        if browser or issuer_ca_file:
            raise Failed(f"{address} has no OIDC issuer: want a token")
    token = check_token(_read_token(token_file), "the token")
    who = _check(settings, token)
    path = store_token(address, token)
    if not who.is_enforced:
        echo(f"{address} asks for no credentials; the token is stored all the same", err=True)
    echo(f"{describe(who)} at {address}; the token is in {path}")


def sign_in_at(settings: Settings, place: v0.access.SignInPlace, browser: bool, ca_file: Path | None) -> None:
    """Sign in at the issuer of a cluster, and store the token that the API accepts."""
    from peloton.client.sign_in import DEVICE_ENDPOINT, sign_in_by_browser, sign_in_by_device, store_sign_in
    from peloton.issuer import discover

    address = without_scheme(settings.address)
    issuer = discover(place.issuer, str(ca_file.resolve()) if ca_file else "")
    if browser or not issuer.find(DEVICE_ENDPOINT):
        tokens = sign_in_by_browser(issuer, place.client_id, _open_page)
    else:
        tokens = sign_in_by_device(issuer, place.client_id, _show_code)
    who = _check(settings, tokens.id_token)
    path = store_sign_in(address, issuer, place.client_id, tokens)
    if not tokens.refresh_token:
        echo(f"{issuer.name} lets no token be renewed: sign in again when it expires", err=True)
    echo(f"{describe(who)} at {address}; the token is in {path}")
    _echo_expiry(who, address)


def _check(settings: Settings, token: str) -> v0.access.WhoAmIResponse:
    """Return the identity that the API finds in a token."""
    with settings.connect(metadata=lambda: (("authorization", f"Bearer {token}"),)) as client:
        return client.access.WhoAmI(v0.access.WhoAmIRequest())


def _show_code(code: DeviceCode) -> None:
    echo(f"Open {code.address} and type the code {code.user_code}", err=True)
    if code.complete_address:
        echo(f"or open {code.complete_address}", err=True)
    echo(f"Waiting for at most {code.expires_in_s / 60:.0f} min ...", err=True)


def _open_page(address: str) -> None:
    import webbrowser

    echo(f"Sign in at {address}", err=True)
    webbrowser.open(address)


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
    """Delete the stored token of the API at an address, and end the sign-in at its issuer.

    The token itself stays valid until it expires or is revoked.
    """
    from peloton.client.sign_in import delete_sign_in
    from peloton.client.token_files import credentials_file

    path = credentials_file(without_scheme(settings.address))
    try:
        deleted, fault = delete_sign_in(path)
    except FileNotFoundError:
        raise Failed(
            f"no token is stored for {settings.address}: a sign-in whose files are lost lasts until its issuer ends it"
        ) from None
    echo(f"deleted {' and '.join(map(str, deleted))}")
    if fault:
        echo(f"the sign-in at the issuer has not been ended: {fault}", err=True)


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
    _echo_expiry(who, without_scheme(settings.address))
    if who.method_role:
        echo(f"role of methods: {who.method_role}")
    for grant in who.grants:
        echo(f"role {grant.role} on {grant.pool}")
    for quota in who.quotas:
        echo(f"quota: {quota.limit:,} {quota.name.replace('_', ' ')}; the rule is {quota.rule}")
    if not who.grants and not who.method_role and who.kind != "role":
        echo("no role")


def _echo_expiry(who: v0.access.WhoAmIResponse, address: str) -> None:
    if not who.expires_at:
        return
    from peloton.client.credentials import find_credentials
    from peloton.client.token_files import read_sign_in

    stored = find_credentials(address).token_file
    is_renewed = bool(stored) and read_sign_in(Path(stored)) is not None
    echo(f"expires: {who.expires_at}{', and is renewed before that' if is_renewed else ''}")


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
