"""``peloton admin token``: makes, lists and revokes tokens in a file that role api reads."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from cli.command import Group
from cli.errors import Failed
from cli.output import Table, print_rows_for_programs, print_table
from cli.params import DURATION
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from peloton.access.caller import CallerKind
from peloton.access.tokens import KINDS, RANDOM_BYTES, TokenRow, make_token, parse_rows
from peloton.errors import InvalidArgument
from peloton.files import read_text_file, write_private_file

FILE_BYTES_MAX = 4 * 2**20
NAME_CHARS_MAX = 200
TABLE: Table[TokenRow] = Table(
    ("Id", lambda row: row.id),
    ("Name", lambda row: row.name),
    ("Kind", lambda row: row.kind),
    ("Groups", lambda row: ", ".join(row.groups) or "--"),
    ("Created", lambda row: row.created),
    ("Expires", lambda row: row.expires or "never"),
    nothing="The file has no tokens",
    name=lambda row: row.id,
)
file_option = click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path),
    required=True,
    envvar="PELOTON_AUTH_TOKENS_FILE",
    show_envvar=True,
    help="The file of tokens.",
)


@click.group(cls=Group)
def token() -> None:
    """Make, list and revoke tokens in the file that PELOTON_AUTH_TOKENS_FILE names.

    The file has hashes of tokens. Role api reads it again within a second after a change.
    """


@token.command()
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice([str(kind) for kind in KINDS[:2]]),
    default="user",
    show_default=True,
    help="The kind of the owner.",
)
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="A group of the owner; may be repeated.")
@click.option("--expires-in", type=DURATION, help="The lifetime, such as 720h; without it the token never expires.")
@file_option
@pass_settings
def create(
    settings: Settings, name: str, kind: str, groups: Sequence[str], expires_in: float | None, path: Path
) -> None:
    """Make a token for NAME, and print it: the file has only its hash, so that it cannot be printed again.

    \b
    Example:
      peloton admin token create alice --group maps --expires-in 720h --file tokens
    """
    if not name.strip() or len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise Failed(f"the name of a token has 1 to {NAME_CHARS_MAX} printable characters")
    chance = secrets.token_bytes(RANDOM_BYTES)
    made, row = make_token(name, CallerKind(kind), tuple(groups), expires_in or 0.0, time.time(), chance)
    _change(path, lambda lines: [*lines, row.to_line()])
    echo(f"token {row.id} of {name} is in {path}:", err=True)
    echo(made)


@token.command("list")
@file_option
@pass_settings
def list_tokens(settings: Settings, path: Path) -> None:
    """List the tokens of the file."""
    rows = list(parse_rows("\n".join(_read_lines(path))).values())
    shown = [
        {"id": row.id, "name": row.name, "kind": str(row.kind), "groups": list(row.groups), "expires": row.expires}
        for row in rows
    ]
    if not print_rows_for_programs(settings, shown, [row.id for row in rows]):
        print_table(TABLE, rows)


@token.command()
@click.argument("token_id", metavar="ID")
@file_option
def revoke(token_id: str, path: Path) -> None:
    """Delete the token with an ID from the file; calls with it are refused within two seconds."""

    def delete(lines: list[str]) -> list[str]:
        kept = [line for line in lines if token_id not in parse_rows(line)]
        if len(kept) == len(lines):
            raise Failed(f"{path} has no token {token_id}")
        return kept

    _change(path, delete)
    echo(f"revoked token {token_id}")


def _read_lines(path: Path) -> list[str]:
    """Return the lines of the file, which may not exist yet. Raises Failed for a bad one."""
    try:
        text = read_text_file(path, "file of tokens", FILE_BYTES_MAX)
        parse_rows(text)
    except FileNotFoundError:
        return []
    except (OSError, ValueError, InvalidArgument) as error:
        raise Failed(f"{path}: {error}") from error
    return text.splitlines()


def _change(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    """Replace the file by one with changed lines, readable by the user alone. Raises Failed."""
    lines = change(_read_lines(path))
    try:
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        write_private_file(path, "".join(f"{line}\n" for line in lines).encode(), mode=mode)
    except OSError as error:
        raise Failed(f"{path} cannot be written: {error.strerror}") from error
