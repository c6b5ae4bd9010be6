"""``peloton schema``: the JSON schemas of files, for editors."""

from __future__ import annotations

import json

import click

from cli.command import Command
from cli.terminal import echo

FILES = ("job", "service", "pool")
"""The kinds of ``peloton.api.config_schema``, which is loaded when it is used."""


@click.command(cls=Command)
@click.argument("file", type=click.Choice(FILES))
def schema(file: str) -> None:
    """Print the JSON schema of job, service or pool files, for editors.

    Editors with a language server for YAML complete and check a file whose first line names its schema:

    \b
      # yaml-language-server: $schema=job.schema.json

    \b
    Examples:
      peloton schema job > job.schema.json
      peloton schema pool > pool.schema.json
    """
    from peloton.api.config_schema import schema_of

    echo(json.dumps(schema_of(file), indent=2))
