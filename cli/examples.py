"""``peloton examples``: the example files, which are part of the package."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from cli.command import Command
from cli.terminal import echo

INSTALLED = Path(__file__).parent / "example_files"
EXAMPLES = INSTALLED if INSTALLED.is_dir() else Path(__file__).parents[1] / "examples"
"""The folder of the installed package, or of the repository."""


@click.command(cls=Command)
@click.argument("folder", type=click.Path(path_type=Path), default="examples")
def examples(folder: Path) -> None:
    """Copy the example files into a new FOLDER, ./examples by default.

    The examples of other commands name these files.

    \b
    Examples:
      peloton examples
      peloton examples /tmp/peloton-examples
    """
    if folder.exists():
        raise click.ClickException(f"{folder} exists: name another folder, which is then made")
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("__pycache__"))
    echo(f"copied the examples into {folder}: begin with {folder / 'tutorial' / 'hello.yaml'}")
