"""The common parts of all pages of `peloton top`: lines at the top, a note, a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.widgets import DataTable, Static

from cli.top.asked import PAGE_ROWS
from cli.top.grid import GAP, Grid, cut, fit_columns, visible
from cli.top.reading import Reader

SCROLLBAR = 2
HEAD_LINES_MAX = 200
"""Limit of the lines above a table; they are scrolled."""


class Titled(Protocol):
    @property
    def title(self) -> str: ...


@dataclass(frozen=True)
class Picture:
    """The content of a page. ``note`` describes it; ``has_more``: whether there is a next page."""

    grid: Grid
    head: Sequence[Text] = ()
    note: str = ""
    has_more: bool = False
    next_token: str = ""


class GridTable(DataTable[Text]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", show=False),
        Binding("k", "cursor_up", show=False),
        Binding("g", "scroll_top", show=False),
        Binding("G", "scroll_bottom", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(cursor_type="row", cell_padding=GAP)
        self._drawn: tuple[Grid, int] | None = None

    @property
    def key(self) -> str | None:
        """Return the key of the row under the cursor."""
        rows = self._drawn[0].rows if self._drawn else ()
        return rows[self.cursor_row].key if 0 <= self.cursor_row < len(rows) else None

    def draw(self, grid: Grid, width: int) -> None:
        """Draw the grid; the cursor stays on its row, or in its place if the row is gone."""
        if self._drawn == (grid, width):
            return
        key, at, scrolled = self.key, self.cursor_row, self.scroll_offset
        with self.app.batch_update():
            self.clear(columns=True)
            shown = fit_columns(grid, width - SCROLLBAR)
            for index, size in shown:
                title = Text(grid.columns[index].title)
                self.add_column(cut(title, size, grid.columns[index].is_number), width=size)
            self.add_rows(
                [cut(row.cells[index], size, grid.columns[index].is_number) for index, size in shown]
                for row in grid.rows
            )
            self._drawn = grid, width
            if grid.rows:
                same = next((index for index, row in enumerate(grid.rows) if row.key == key), at)
                self.move_cursor(row=min(same, len(grid.rows) - 1), animate=False, scroll=False)
                self.scroll_to(scrolled.x, scrolled.y, animate=False, immediate=True)


class Page(Vertical):
    """A page with its ``title``, and the ``orders`` that the key ``s`` cycles through."""

    title = ""
    orders: Sequence[Titled] = ()
    turns = False  # whether it has pages

    def __init__(self) -> None:
        super().__init__()
        self.wanted = ""
        self.first = 0
        self.has_more = False
        self._order_index = 0
        self._above = VerticalScroll(classes="head", can_focus=False)
        self._head = Static(classes="lines")
        self._note = Static(classes="note")
        self.table = GridTable()

    def compose(self) -> ComposeResult:
        with self._above:
            yield self._head
        yield self._note
        yield self.table

    # -- the methods that each page defines

    def make_query(self) -> Callable[[Reader], Picture]:
        """Return a function that reads and draws the requested picture. Raises ValueError for an invalid filter.

        The function is called in a thread, and must not use the page.
        """
        raise NotImplementedError

    def same_as(self) -> str:
        """Return the command line with the same result."""
        raise NotImplementedError

    def open_page(self, key: str) -> Page | None:
        """Return the page that ``enter`` opens at a row."""
        return None

    def next_kind(self) -> bool:
        """Change to the next kind of resource; return whether there are several."""
        return False

    # -- the settings that the user changes

    @property
    def width(self) -> int:
        return self.app.size.width

    @property
    def order_index(self) -> int:
        return self._order_index % len(self.orders) if self.orders else 0

    def next_order(self) -> bool:
        self._order_index, self.first = self.order_index + 1, 0
        return bool(self.orders)

    def filter(self, wanted: str) -> None:
        """Set the filter. Raises ValueError, and leaves the old one in place."""
        before = self.wanted, self.first
        self.wanted, self.first = wanted, 0
        try:
            self.make_query()
        except ValueError:
            self.wanted, self.first = before
            raise

    def turn(self, pages: int) -> bool:
        """Go some pages forward or back; return whether there is such a page."""
        if not self.turns or (pages > 0 and not self.has_more) or (pages < 0 and not self.first):
            return False
        self.first = max(self.first + pages * PAGE_ROWS, 0)
        return True

    def show(self, picture: Picture) -> None:
        self.has_more = picture.has_more
        self._head.update(visible(Text("\n").join(picture.head[:HEAD_LINES_MAX])))
        self._above.display = bool(picture.head)
        self._note.update(visible(Text(self._note_of(picture), no_wrap=True, overflow="ellipsis")))
        self.table.draw(picture.grid, self.width)

    def scroll_above(self, pages: int) -> None:
        """Scroll the lines above the table."""
        (self._above.scroll_page_down if pages > 0 else self._above.scroll_page_up)(animate=False)

    def _note_of(self, picture: Picture) -> str:
        rows, of = len(picture.grid.rows), picture.grid.shown_of
        parts = []
        if not rows:
            parts.append(picture.grid.nothing)
        if self.first or picture.has_more:
            parts.append(f"page {self.first // PAGE_ROWS + 1}{', more: n' if picture.has_more else ''}")
        elif rows < of:
            parts.append(f"{rows} of {of}, others: /")
        if self.orders:
            parts.append(f"by {self.orders[self.order_index].title}")
        if self.wanted:
            parts.append(f"filter: {self.wanted}")
        return " | ".join(filter(None, (*parts, picture.note)))
