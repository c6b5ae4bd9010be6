"""What commands print: tables, YAML, and with ``--json`` whole responses."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from rich.console import Console

    from cli.settings import Settings

TERMINAL_ROWS_MAX = 1_000  # beyond, folding takes longer than anybody waits
STATE_STYLES = {
    "RUNNING": "cyan",
    "SUCCEEDED": "green",
    "FAILED": "red",
    "LOST": "red",
    "KILLED": "magenta",
    "PENDING": "yellow",
    "UP": "green",
    "DRAINING": "yellow",
    "DRAINED": "magenta",
    "DOWN": "red",
}


ALIKE = {"█": "#", "▓": "=", "│": "|", "┆": ":", "·": ".", "…": "."}


def alike(error: UnicodeError) -> tuple[str, int]:
    """What an encoding lacks is shown by something like it, or by ``?``."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(ALIKE.get(character, "?") for character in error.object[error.start : error.end]), error.end


codecs.register_error("alike", alike)


def show_anything(*streams: object) -> None:
    """Characters that a terminal does not have do not end a command."""
    for stream in streams:
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="alike")


def as_json(message: Message) -> str:
    """Protobuf JSON with the field names of the .proto files; default values are left out."""
    from google.protobuf import json_format

    return json_format.MessageToJson(message, preserving_proto_field_name=True, indent=2)


def as_yaml(message: Message) -> str:
    from peloton.api.yaml_config import dump_message

    return dump_message(message).rstrip("\n")


def print_message(settings: Settings, message: Message) -> None:
    """The message as YAML, or as JSON when asked."""
    click.echo(as_json(message) if settings.json else as_yaml(message))


def print_json_or(settings: Settings, message: Message, text: str, lines: bool = False) -> None:
    """With ``--json`` the response, in one line if more ``lines`` follow; else the line that says what it means."""
    click.echo((as_json_line if lines else as_json)(message) if settings.json else text)


def as_json_line(message: Message) -> str:
    from google.protobuf import json_format

    return json_format.MessageToJson(message, preserving_proto_field_name=True, indent=None)


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns in the order given, two blanks between. Coloured and folded to fit on a terminal; elsewhere, and for
    many rows, one line each, because another program or a pager reads them."""
    texts = [[one_line(cell) for cell in row] for row in rows]
    if sys.stdout.isatty() and len(texts) <= TERMINAL_ROWS_MAX:
        print_terminal_table(header, texts)
        return
    widths = [max(map(len, column)) for column in zip(header, *texts, strict=True)]
    for row in [header, *texts]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_terminal_table(header: Sequence[str], texts: Sequence[Sequence[str]], console: Console | None = None) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in header:
        table.add_column(title, overflow="fold")
    for row in texts:
        table.add_row(*(Text(cell, style=STATE_STYLES.get(cell, "")) for cell in row))
    (console or Console(highlight=False)).print(table)


def one_line(cell: object) -> str:
    return " ".join(str(cell).split())


def not_told(silent_clusters: Iterable[str]) -> str:
    return f"Not told: hosts of {', '.join(silent_clusters)}, whose host managers do not answer"


def id_list(ids: Iterable[object]) -> str:
    return "[" + " ".join(str(item) for item in ids) + "]"
