"""Printing for all commands.

Text that users wrote (names, messages, output of pods) cannot steer the terminal: controls and characters that change
the direction of text are escaped when they are printed.
"""

from __future__ import annotations

import codecs
import os
import shlex
import shutil
import sys
from collections.abc import Iterable
from typing import IO, TYPE_CHECKING, Any

import click

from peloton.model.text import MULTI_LINE, escape

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def echo(
    text: str = "",
    err: bool = False,
    nl: bool = True,
    file: IO[Any] | None = None,
    prefix: str = "",
    fg: str | None = None,
    bold: bool | None = None,
) -> None:
    """Print a text, which may have lines and tabs. ``prefix`` is the command's own and printed unescaped; so is the
    style."""
    shown = escape(text, MULTI_LINE)
    click.echo(prefix + (click.style(shown, fg=fg, bold=bold) if fg or bold else shown), err=err, nl=nl, file=file)


def program() -> str:
    """Return what to type to run this program again: its name where PATH leads to it, and else the path as typed."""
    typed = sys.argv[0]
    found = shutil.which("peloton")
    is_script = os.path.basename(typed) == "peloton" and os.path.exists(typed)
    if not is_script or (found and os.path.samefile(found, typed)):
        return "peloton"
    return shlex.quote(typed)


def echo_output(chunks: Iterable[bytes], raw: bool, prefix: str = "") -> None:
    """Print bytes that a pod wrote, after the command's own ``prefix``.

    They are escaped on a terminal, unless ``raw``; files and pipes receive them unchanged.
    """
    if raw or not sys.stdout.isatty():
        for chunk in chunks:
            click.echo(prefix.encode() + chunk, nl=False)
            prefix = ""
        return
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    for chunk in chunks:  # one may end within a character
        echo(decoder.decode(chunk), nl=False, prefix=prefix)
        prefix = ""
    if rest := decoder.decode(b"", final=True):
        echo(rest, nl=False)


def console(err: bool = False) -> Console:
    """Return a console for pictures that are ``Visible``."""
    from rich.console import Console

    return Console(stderr=err, highlight=False)


class Visible:
    """A wrapper of a Rich renderable that escapes foreign text in it."""

    def __init__(self, picture: RenderableType) -> None:
        self._picture = picture

    def __rich_console__(self, drawn_on: Console, options: Any) -> Iterable[Any]:
        from rich.segment import Segment

        for segment in drawn_on.render(self._picture, options):
            yield segment if segment.control else Segment(escape(segment.text, "\n"), segment.style)
