"""``peloton version``."""

from __future__ import annotations

import json

import click

from cli.command import Command
from cli.settings import Settings, pass_settings
from cli.terminal import echo


def read_version() -> str:
    from importlib import metadata

    try:
        return metadata.version("peloton-temporal")
    except metadata.PackageNotFoundError:
        return "(not installed: runs from its source folder)"


@click.command(cls=Command)
@pass_settings
def version(settings: Settings) -> None:
    """Print the version of this command, as --version does."""
    text = read_version()
    echo(json.dumps({"version": text}, indent=2) if settings.json else f"peloton {text}")
