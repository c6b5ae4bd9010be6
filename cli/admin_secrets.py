"""``peloton admin keyring`` and ``peloton admin rotate-secrets``: keys that encrypt, and what they encrypt."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.command import Command, Group
from cli.errors import Failed
from cli.output import print_rows_for_programs
from cli.serve import config_option
from cli.settings import Settings, pass_settings
from cli.terminal import echo

if TYPE_CHECKING:
    from services.secret_rotation import Rotation
    from services.secrets.keyring import Keyring

PROGRESS_JOBS = 1_000
"""Jobs of a rotation between two lines about its progress."""

file_argument = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
key_argument = click.argument("key", metavar="KEY")


def default_key() -> str:
    return time.strftime("%Y-%m-%d")


@click.group(cls=Group)
def keyring() -> None:
    """Make the keyring of PELOTON_SECRETS_KEYRING_FILE, and add and remove keys.

    FILE belongs on each machine that runs role api, worker, resmgr or hostmgr, readable for its user alone. Keep a copy
    in another place than the database: without the keyring, the secrets in the database are lost.
    """


@keyring.command()
@file_argument
@click.option("--key", help="The id of the key; default: today.")
def create(file: Path, key: str | None) -> None:
    """Create a keyring with one key.

    \b
    Example:
      peloton admin keyring create /etc/peloton/keyring.json
    """
    from services.secrets.keyring import Keyring, write_keyring

    made = Keyring("", {}).add(key or default_key(), is_active=True)
    try:
        write_keyring(file, made, is_new=True)
    except FileExistsError:
        raise Failed(f"{file} exists: `peloton admin keyring add` adds a key to it") from None
    echo(f"Created {file} with key {made.active}")


@keyring.command()
@file_argument
@click.option("--key", help="The id of the key; default: today.")
@click.option("--inactive", is_flag=True, help="Encrypt with the key only after `use`, once all machines have it.")
def add(file: Path, key: str | None, inactive: bool) -> None:
    """Add a key, which encrypts from now on.

    Where several machines have the file: add the key with --inactive, copy the file to all of them, then `use` it.

    \b
    Example:
      peloton admin keyring add /etc/peloton/keyring.json
    """
    new = key or default_key()
    changed = change(file, lambda found: found.add(new, is_active=not inactive))
    echo(f"Added key {new} to {file}; key {changed.active} encrypts")


@keyring.command()
@file_argument
@key_argument
def use(file: Path, key: str) -> None:
    """Encrypt with another key from now on."""
    changed = change(file, lambda found: found.use(key))
    echo(f"Key {changed.active} encrypts; encrypt again what others have: `peloton admin rotate-secrets`")


@keyring.command()
@file_argument
@key_argument
def remove(file: Path, key: str) -> None:
    """Remove a key that encrypts nothing any more: `peloton admin rotate-secrets` names those."""
    change(file, lambda found: found.remove(key))
    echo(f"Removed key {key} from {file}")


@keyring.command("ls")
@file_argument
@pass_settings
def list_keys(settings: Settings, file: Path) -> None:
    """List the ids of the keys; the keys themselves are never shown."""
    from services.secrets.keyring import read_keyring

    found = read_keyring(file)
    rows = [{"key": key, "is_active": key == found.active} for key in found.keys]
    if not print_rows_for_programs(settings, rows, list(found.keys)):
        for key in found.keys:
            echo(f"{key} (active)" if key == found.active else key)


def change(file: Path, act: Callable[[Keyring], Keyring]) -> Keyring:
    """Change a keyring; one change at a time. Raises InvalidArgument."""
    import fcntl

    from services.secrets.keyring import read_keyring, write_keyring

    folder = os.open(file.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        changed = act(read_keyring(file))
        write_keyring(file, changed)
        return changed
    finally:
        os.close(folder)


@click.command("rotate-secrets", cls=Command)
@config_option
@pass_settings
def rotate_secrets(settings: Settings, config: str) -> None:
    """Encrypt the secrets of all jobs again with the active key, while Peloton runs.

    It also encrypts secrets that were stored before there was a keyring, makes secrets of values that version 0.1 left
    in configurations of jobs, and moves secrets to where PELOTON_SECRETS_PROVIDER says; values in Vault to which no
    job refers are deleted. An interrupted rotation continues with what is left.

    \b
    Example:
      PELOTON_CONFIG=/etc/peloton.toml peloton admin rotate-secrets
    """
    from services.secret_rotation import rotate_secrets

    def show_progress(jobs: int, secrets: int) -> None:
        if jobs % PROGRESS_JOBS == 0:
            echo(f"{secrets} secrets of {jobs} jobs so far", err=True)

    done = rotate_secrets(config, show_progress)
    row = {
        "job_count": done.job_count,
        "secret_count": done.secret_count,
        "holder": done.holder,
        "holders": done.holders,
        "unused_keys": list(done.unused),
        "deleted_values": done.deleted_count,
        "values_of_configurations": done.taken_count,
        "jobs_with_values": done.left_count,
    }
    if not print_rows_for_programs(settings, [row], [done.holder]):
        for line in lines_of(done):
            echo(line)
    if done.left_count:
        raise Failed("\n".join([*done.left, f"{done.left_count} jobs keep secret values: update or delete them"]))
    if left := sum(count for holder, count in done.holders.items() if holder != done.holder):
        raise Failed(f"{left} secrets were stored meanwhile by roles with other settings: run it again")


def lines_of(done: Rotation) -> list[str]:
    """Return the counts in sentences."""
    place = {"": "as they are, without encryption", "vault": "in Vault"}.get(
        done.holder, f"encrypted with key {done.holder.removeprefix('key:')}"
    )
    lines = [
        f"{done.secret_count} secrets of {done.job_count} jobs moved; {done.holders.get(done.holder, 0)} are {place}"
    ]
    if done.taken_count:
        lines.insert(0, f"{done.taken_count} values of configurations are secrets now")
    if done.deleted_count:
        lines.append(f"{done.deleted_count} values in Vault had no job and were deleted")
    lines += [
        f"No secret is encrypted with key {key} any more: remove it by `peloton admin keyring remove`"
        for key in done.unused
    ]
    if done.unused and done.encrypts_payloads:
        lines.append("Histories of Temporal may need these keys: keep each for the retention of the namespace")
    return lines
