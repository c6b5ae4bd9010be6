"""The output of commands: tables and lines for people; JSON, YAML and names for programs."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import TextIOWrapper
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cli.settings import Settings
from cli.terminal import console, echo
from peloton.model.text import escape

if TYPE_CHECKING:
    from google.protobuf.message import Message
    from rich.console import Console
    from rich.table import Table as RichTable

Row = Sequence[object]
T = TypeVar("T")
TERMINAL_ROWS_MAX = 1_000  # folding more takes too long
ROWS_DEFAULT = 1_000
GAP = 2
FOLDED_WIDTH = 12  # a longer text is folded before columns are left out
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


SUBSTITUTES = {"█": "#", "▓": "=", "│": "|", "┆": ":", "·": ".", "…": "."}
SUBSTITUTES |= dict(zip("▁▂▃▄▅▆▇", "__--==+", strict=True))


def substitute(error: UnicodeError) -> tuple[str, int]:
    """Replace a character that the encoding lacks by a similar one, or by ``?``."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(SUBSTITUTES.get(character, "?") for character in error.object[error.start : error.end]), error.end


codecs.register_error("substitute", substitute)


def substitute_unprintable(*streams: object) -> None:
    """Keep commands from failing at a character that the terminal does not have."""
    for stream in streams:
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="substitute")


def as_json(message: Message, indent: int | None = 2) -> str:
    """Return the JSON of Protocol Buffers: lowerCamelCase names, and fields without a value: an empty list is
    ``[]``."""
    from google.protobuf import json_format

    return json_format.MessageToJson(message, indent=indent, always_print_fields_with_no_presence=True)


def as_json_line(message: Message) -> str:
    return as_json(message, indent=None)


def as_yaml(message: Message) -> str:
    """Return the YAML of files: names of the .proto files, no fields without a value."""
    from peloton.api.yaml_config import dump_message

    return dump_message(message).rstrip("\n")


def print_for_programs(settings: Settings, message: Message, names: Iterable[str] = (), lines: bool = False) -> bool:
    """Print JSON, YAML, or one name a line, if the user requested it; return whether it was. ``lines``: more
    follows."""
    if settings.output == "json":
        echo(as_json_line(message) if lines else as_json(message))
    elif settings.output == "yaml":
        echo(f"---\n{as_yaml(message)}" if lines else as_yaml(message))
    elif settings.output == "name":
        for name in names:
            echo(name)
    return settings.is_for_programs


def print_rows_for_programs(settings: Settings, rows: Sequence[Mapping[str, Any]], names: Iterable[str]) -> bool:
    """Do the same as ``print_for_programs`` for rows that are no message of the API."""
    if settings.output == "json":
        echo(json.dumps(rows, indent=2))
    elif settings.output == "yaml":
        import yaml

        echo(yaml.safe_dump(rows, sort_keys=False))
    elif settings.output == "name":
        echo("\n".join(names))
    return settings.is_for_programs


def print_message(settings: Settings, message: Message, names: Iterable[str] = ()) -> None:
    """Print the message as YAML, or in the requested format."""
    if not print_for_programs(settings, message, names):
        echo(as_yaml(message))


def print_outcome(
    settings: Settings, message: Message, text: str, names: Iterable[str] = (), lines: bool = False
) -> None:
    """Print the line that describes the message, or the message in the requested format."""
    if not print_for_programs(settings, message, names, lines):
        echo(text)


def rows_wanted(settings: Settings, limit: int | None) -> int | None:
    """Return how many rows of a list to print; None: all.

    Without ``limit`` a table is bounded, and the output for programs is complete.
    """
    if limit is None:
        return None if settings.is_for_programs else ROWS_DEFAULT
    return limit or None


def say_more(shown: int, total: int | None, how: str = "--limit 0 shows all") -> None:
    """Print on stderr that a list is incomplete; ``total``: None if it is unknown."""
    of = f"{shown} of {total}" if total is not None else f"the first {shown}"
    echo(f"These are {of}: {how}", err=True)


class Table(Generic[T]):
    """The layout of a table.

    A column is a title with the function that returns the cell of a row; a title alone is the item at its place in rows
    that are sequences. ``whole``: columns that are never cut or folded. ``spare``: columns that are left out on a
    terminal that is too narrow for all, the first one first. ``nothing``: the text when there are no rows. ``name``
    returns what other commands take for a row.
    """

    def __init__(
        self,
        *columns: str | tuple[str, Callable[[T], object]],
        whole: Sequence[str] = (),
        spare: Sequence[str] = (),
        nothing: str = "",
        name: Callable[[T], str] = lambda row: "",
    ) -> None:
        pairs: list[tuple[str, Callable[[Any], object]]] = [
            (one, itemgetter(at)) if isinstance(one, str) else one for at, one in enumerate(columns)
        ]
        self.header = [title for title, _ in pairs]
        self.cells: Sequence[Callable[[T], object]] = [cell for _, cell in pairs]
        self.whole, self.spare, self.nothing, self.name = whole, spare, nothing, name

    def texts(self, rows: Iterable[T]) -> list[list[str]]:
        return [[one_line(cell(row)) for cell in self.cells] for row in rows]


def print_list(
    settings: Settings, message: Message, table: Table[T], rows: Iterable[T], names: Iterable[str] | None = None
) -> None:
    """Print the rows of a table, or the message in the requested format. ``names``: those of the rows if absent."""
    found = list(rows)
    if not print_for_programs(settings, message, map(table.name, found) if names is None else names):
        print_table(table, found, is_wide=settings.output == "wide")


def print_table(table: Table[T], rows: Iterable[T], is_wide: bool = False) -> None:
    """Print columns in the order given, two blanks between them.

    On a terminal they are coloured, and fitted unless ``is_wide``; elsewhere, and for many rows, each row is one line,
    because another program or a pager reads them.
    """
    texts = table.texts(rows)
    if not texts:
        echo(table.nothing)
        return
    if sys.stdout.isatty() and len(texts) <= TERMINAL_ROWS_MAX and not is_wide:
        print_terminal_table(table, texts)
        return
    widths = [max(map(len, column)) for column in zip(table.header, *texts, strict=True)]
    for row in [table.header, *texts]:
        echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_terminal_table(table: Table[T], texts: Sequence[Sequence[str]], drawn_on: Console | None = None) -> None:
    drawn_on = drawn_on or console()
    drawn_on.print(terminal_table(table, texts, drawn_on.width))


def terminal_table(table: Table[T], texts: Sequence[Sequence[str]], console_width: int) -> RichTable:
    from rich import table as rich_table
    from rich.text import Text

    shown = fitting_columns(table, texts, console_width)
    drawn = rich_table.Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for index in shown:
        title = table.header[index]
        width = max(len(row[index]) for row in [table.header, *texts]) if title in table.whole else None
        drawn.add_column(title, overflow="fold", no_wrap=title in table.whole, min_width=width)
    for row in texts:
        drawn.add_row(*(Text(row[index], style=STATE_STYLES.get(row[index], "")) for index in shown))
    return drawn


def fitting_columns(table: Table[T], texts: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the numbers of the columns that fit: empty ones go first, and long texts are folded rather than left
    out."""
    natural = [max(map(len, column)) for column in zip(table.header, *texts, strict=True)]
    needed = [
        size if title in table.whole else min(size, max(FOLDED_WIDTH, len(title)))
        for title, size in zip(table.header, natural, strict=True)
    ]
    shown = list(range(len(table.header)))
    empty = [index for index in shown if table.header[index] in table.spare and not any(row[index] for row in texts)]
    spare = [index for title in table.spare for index in shown if table.header[index] == title]
    for index in dict.fromkeys([*empty, *spare]):
        if sum(needed[each] + GAP for each in shown) - GAP <= width:
            break
        shown.remove(index)
    return shown


def one_line(cell: object) -> str:
    return escape(" ".join(str(cell).split()))


def silent_clusters_text(silent_clusters: Iterable[str]) -> str:
    return f"Without the hosts of {', '.join(silent_clusters)}, whose host managers do not answer"


def id_list(ids: Iterable[object]) -> str:
    return "[" + " ".join(str(item) for item in ids) + "]"
