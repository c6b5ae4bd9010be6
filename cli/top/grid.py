"""A table as a value: columns, rows of styled texts, and the fitting to a width."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from rich.text import Text

from cli.output import one_line
from peloton.model.text import escape, is_printable

T = TypeVar("T")
GAP = 1
"""Number of blanks on either side of a column."""


class Column(NamedTuple, Generic[T]):
    """A column. ``cell`` returns the text of a row. ``least``: the width to which texts may be cut; None: never.

    ``spare``: where the columns do not all fit, empty ones go first and then the ones with the least of these; 0: it
    stays.
    """

    title: str
    is_number: bool = False
    least: int | None = None
    spare: int = 0
    cell: Callable[[T], Text] = lambda item: Text()


class Row(NamedTuple):
    """A row. ``key`` names the page that ``enter`` opens."""

    key: str
    cells: tuple[Text, ...]


@dataclass(frozen=True)
class Grid:
    """A table. ``nothing`` is the text when there are no rows; ``shown_of`` the number of all rows if some are left
    out."""

    columns: tuple[Column[Any], ...]
    rows: tuple[Row, ...]
    nothing: str = ""
    shown_of: int = 0


def rows_of(columns: Sequence[Column[T]], items: Iterable[T], key: Callable[[T], str]) -> tuple[Row, ...]:
    """Return the rows of these items; ``key`` returns what names an item's page."""
    return tuple(Row(key(item), tuple(column.cell(item) for column in columns)) for item in items)


def text(content: object, style: str = "") -> Text:
    """Return the content as one line."""
    return Text(one_line(content), style=style, no_wrap=True, end="")


def visible(shown: Text) -> Text:
    """Return a text of several lines or styles in which nothing can steer the terminal."""
    if not is_printable(shown.plain, "\n"):
        shown = shown.copy()
        shown.plain = escape(shown.plain, "\n")
    return shown


def fit_columns(grid: Grid, width: int) -> list[tuple[int, int]]:
    """Return the columns that are shown, by number, each with its width.

    First the longest texts that may be cut are cut, then columns are left out.
    """
    natural = [
        max([len(column.title), *(row.cells[index].cell_len for row in grid.rows)])
        for index, column in enumerate(grid.columns)
    ]
    least = [
        size if column.least is None else min(size, max(column.least, len(column.title)))
        for column, size in zip(grid.columns, natural, strict=True)
    ]
    shown = list(range(len(grid.columns)))

    def width_left(widths: Sequence[int]) -> int:
        return width - sum(widths[index] + 2 * GAP for index in shown)

    empty = {index for index in shown if not any(row.cells[index] for row in grid.rows)}
    for index in sorted(shown, key=lambda each: (each not in empty, grid.columns[each].spare)):
        if width_left(least) >= 0:
            break
        if grid.columns[index].spare:
            shown.remove(index)
    widths = list(natural)
    while width_left(widths) < 0:
        longest = max(shown, key=lambda index: widths[index] - least[index])
        if widths[longest] <= least[longest]:
            break  # the table is scrolled
        widths[longest] -= 1
    return [(index, widths[index]) for index in shown]


def cut(cell: Text, width: int, is_number: bool) -> Text:
    """Return a cell as wide as its column; a number is aligned right."""
    shown = cell.copy()
    shown.truncate(width, overflow="ellipsis")
    if is_number:
        shown.align("right", width)
    return shown
