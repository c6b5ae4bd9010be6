"""``peloton version``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from cli.command import Command
from cli.settings import Settings, pass_settings
from cli.terminal import echo
from peloton.release import read_version

ROOT = Path(__file__).parents[1]
COMMIT_LETTERS = 12


def read_commit(root: Path = ROOT) -> str:
    """Return the commit of the checkout, or the one that the build noted, or ""."""
    import subprocess

    noted = root / "cli" / "commit.txt"
    if not (root / ".git").exists():
        return noted.read_text(encoding="utf-8").strip()[:COMMIT_LETTERS] if noted.exists() else ""
    try:
        found = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):  # without git, or in a checkout of another user
        return ""
    return found.stdout.strip()[:COMMIT_LETTERS]


def describe_version() -> str:
    commit = read_commit()
    return f"peloton {read_version()}{f' ({commit})' if commit else ''}"


@click.command(cls=Command)
@pass_settings
def version(settings: Settings) -> None:
    """Print the version and the commit of this command, as --version does."""
    answer = {"version": read_version(), "commit": read_commit()}
    echo(json.dumps(answer, indent=2) if settings.json else describe_version())
