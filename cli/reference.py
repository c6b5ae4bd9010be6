"""The writer of docs/cli.md, from the commands, and docs/settings.md, from the table: ``python -m cli.reference``.

``--check`` only compares them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from cli.command import LazyGroup
from cli.main import peloton
from services import settings_page

TARGET = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
SETTINGS = TARGET.with_name("settings.md")
WIDTH = 100
OPENING = """# The `peloton` command

Generated from the commands by `python -m cli.reference`; do not edit.

The commands, their arguments and options are those of the original Peloton, with additions. Global options may stand
before or after the command's name, unless the command has an option of the same letter (`-a` of `job query`).

* **Exit codes**: 0 done; 1 refused or failed, with one line on standard error (the original printed refusals and exited
  with 0); 2 wrong usage; 130 interrupted (Ctrl-C).
* **Output**: tables, YAML and lines for people. `--output json` (or `--json`) is for programs: it prints the whole
  answer of the API as the JSON of Protocol Buffers, with names in lowerCamelCase, also for v1alpha, 64-bit integers as
  strings, and fields without a value, so that an empty list is `[]`. Commands that watch print one object per line.
  `-o yaml` prints the same answer in the form of files: names of the .proto files, without empty fields. `-o name`
  prints ids or names alone, one per line, for other commands: `peloton job ls -o name | xargs -n 1 peloton job delete`.
  Standard output contains nothing else then.
* **Tables** fit the terminal: columns are left out, ids are never broken. `-o wide` has all columns, and so has a table
  that goes into a file or a pipe. Tables of `list` commands end after 1,000 rows with a note; `--limit 0` prints all.
  `ls` is `list`.
* **Variables**: PELOTON_ADDRESS, PELOTON_TIMEOUT, PELOTON_JOBMGR_URL, PELOTON_RESMGR_URL and PELOTON_HOSTMGR_URL; the
  last three also without the prefix, as in the original.
* **JOB** is a job's id, the first 4 characters of it or more, its name (`hello`), or its pool and name
  (`/tutorial/hello`). A name is preferred to the beginning of an id. When several jobs have the name, the command takes
  the only one that has not ended and says so on standard error; otherwise it refuses and lists the jobs.
* **JOB INSTANCE** may be written in one word, `hello-7`.
* **Completion**: `peloton completion bash` (or `zsh`, `fish`) prints the script; its help says where to install it.
  Commands, options, states, pools, hosts, and jobs by name and by id are completed.
* **Services**: ENTITY-VERSION is the version of the job that a change is based on. Without it, the current version
  is read first. `--watch` shows the rollout until its end, as a bar on a terminal, as lines elsewhere and
  with `--json` as an object per line; the exit code is 0 only if it succeeded.
* **Files**: YAML whose keys are the field names of the API in any case (`instancecount`, `instanceCount`); `-`
  is standard input. An error names file, line and column.
* **Ranges** `FROM:TO` include FROM and not TO; either side may be empty.
* **`task logs -f`** follows the output, unless a file's name comes after it: as in the original, `-f stderr` means
  `--filename stderr`, and `-F --filename stderr` follows that file. A job id, a number, an option, or the only word
  that can name the job is not read as a file's name: `-f hello 7` follows.
"""


def iterate_commands(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Path, command and context of ``command`` and everything below it, parents first."""
    yield ctx.command_path, command, ctx
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(ctx):
        if isinstance(command, LazyGroup) and not command.is_installed(name):
            continue
        child = command.get_command(ctx, name)
        if child is not None and not child.hidden:
            yield from iterate_commands(child, context(child, name, ctx))


def context(command: click.Command, name: str, parent: click.Context | None = None) -> click.Context:
    settings = {**command.context_settings, "max_content_width": WIDTH, "terminal_width": WIDTH}
    return click.Context(command, info_name=name, parent=parent, **settings)


def reference() -> str:
    sections = [OPENING]
    for path, command, ctx in iterate_commands(peloton, context(peloton, "peloton")):
        sections.append(f"{'#' * min(4, len(path.split()) + 1)} `{path}`\n\n```text\n{command.get_help(ctx)}\n```\n")
    return "\n".join(sections)


def main(arguments: list[str]) -> int:
    pages = {TARGET: reference(), SETTINGS: settings_page.page()}
    if arguments == ["--check"]:
        old = [target.name for target, text in pages.items() if not target.is_file() or target.read_text() != text]
        click.echo(f"{', '.join(old)}: out of date, run python -m cli.reference" if old else "the pages are current")
        return 1 if old else 0
    if arguments:
        click.echo("usage: python -m cli.reference [--check]", err=True)
        return 2
    for target, text in pages.items():
        target.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
