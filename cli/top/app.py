"""The application of `peloton top`: five tabs and the pages opened from them, polled repeatedly, and the keys."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from rich.text import Text
from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widgets import DataTable, Input, Static

from cli.errors import failure
from cli.top.grid import visible
from cli.top.help import HelpScreen
from cli.top.hosts import HostsPage
from cli.top.jobs import JobsPage
from cli.top.overview import OverviewPage
from cli.top.page import Page, Picture
from cli.top.pools import PoolsPage
from cli.top.reading import Reader
from cli.top.schedules import SchedulesPage

READS_MAX = 4
"""Limit of concurrent reads: the one that is shown, and abandoned ones that have not ended."""
REST_FACTOR = 9
"""The pause after an answer, as a multiple of its duration.

One viewer thus keeps the API busy for a tenth of the time at most, whatever the period.
"""
OPENED_MAX = 8
"""Limit of the pages opened one from the other."""
LATE_S = 3.0
"""Seconds after which a read is reported as late."""
HINTS = "? help  q quit  / filter  s sort  c CLI"

CSS = """
#tabs, .note { height: 1; }
#status { height: auto; max-height: 5; }
.note { text-style: bold; }
#pages { height: 1fr; }
Page { height: 1fr; }
.head { height: auto; max-height: 60%; }
.lines { height: auto; width: 1fr; }
GridTable { height: 1fr; background: transparent; }
GridTable > .datatable--header { text-style: bold underline; background: transparent; }
GridTable > .datatable--cursor, GridTable:focus > .datatable--cursor {
    background: transparent; color: ansi_default; text-style: reverse;
}
#filter { height: 1; border: none; padding: 0; }
#filter.hidden { display: none; }
HelpScreen { align: center middle; }
#help { width: 76; height: auto; max-height: 100%; border: round; padding: 0 1; }
"""


class TopApp(App[None]):
    """The application. It shows no traceback, whatever the API answers: a failure stands in the last line until it is
    over."""

    CSS = CSS
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"tab({number - 1})") for number in range(1, 6)),
        Binding("tab", "next_tab(1)", priority=True),
        Binding("shift+tab", "next_tab(-1)", priority=True),
        Binding("escape,backspace", "close_page"),
        Binding("slash", "filter"),
        Binding("s", "sort"),
        Binding("r", "kind"),
        Binding("n", "turn(1)"),
        Binding("p", "turn(-1)"),
        Binding("d", "scroll_above(1)"),
        Binding("u", "scroll_above(-1)"),
        Binding("c", "same_as"),
        Binding("question_mark,h", "help"),
        Binding("q,ctrl+c", "quit"),
    ]

    def __init__(self, reader: Reader, period_s: float) -> None:
        super().__init__()
        self.theme = "ansi-dark"  # the terminal's own colours, dark or light
        self.reader, self.period_s = reader, period_s
        self.tabs: Sequence[Page] = (OverviewPage(), PoolsPage(), JobsPage(), HostsPage(), SchedulesPage())
        self.tab_index = 0
        self.trail: list[Page] = []  # opened from the tab, each from the previous one
        self._threads = ThreadPoolExecutor(READS_MAX, "reading")
        self._wake = asyncio.Event()
        self._notice = self._problem = ""
        self._answered_at = ""
        self._tabs_line, self._status = Static(id="tabs"), Static(id="status")
        self._filter = Input(id="filter", classes="hidden", placeholder="words, or state:failed; enter applies")

    def compose(self) -> ComposeResult:
        yield self._tabs_line
        with Container(id="pages"):
            yield from self.tabs
        yield self._filter
        yield self._status

    @property
    def page(self) -> Page:
        return self.trail[-1] if self.trail else self.tabs[self.tab_index]

    def on_mount(self) -> None:
        self._turn_to_page()
        self._following = self.run_worker(self._follow())

    def on_unmount(self) -> None:
        self._following.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.reader.close()

    # -- reading

    async def _follow(self) -> None:
        """Read the picture on the screen, until the application ends.

        A change of the page starts another read at once, and abandons the present one.
        """
        while True:
            self._wake.clear()
            page, began_s = self.page, time.monotonic()
            reading = asyncio.get_running_loop().run_in_executor(self._threads, page.make_query(), self.reader)
            try:
                await self._wait_for_answer(reading, began_s)
            finally:
                reading.cancel()
            if reading.cancelled() or page is not self.page:
                continue
            self._take(page, reading)
            await self._wait_for_wake(max(self.period_s, REST_FACTOR * (time.monotonic() - began_s)))

    async def _wait_for_answer(self, reading: asyncio.Future[Picture], began_s: float) -> None:
        """Wait until the read is done or another picture is requested; report a late answer meanwhile."""
        while not reading.done() and not await self._wait_for_wake(LATE_S, reading):
            if not reading.done():
                self._problem = f"no answer from {self.reader.address} for {time.monotonic() - began_s:.0f} s"
                self._show_lines()

    async def _wait_for_wake(self, within_s: float, *others: asyncio.Future[Any]) -> bool:
        """Wait for the wake-up, the timeout, or one of the others; return whether the wake-up came."""
        waking = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait({waking, *others}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
            return waking.done()
        finally:
            waking.cancel()

    def _take(self, page: Page, reading: asyncio.Future[Picture]) -> None:
        try:
            page.show(reading.result())
        except Exception as error:
            shown = failure(error, self.reader.settings)
            self._problem = f"{getattr(shown, 'message', shown)}; asking again"
        else:
            self._problem, self._answered_at = "", time.strftime("%H:%M:%S")
        self._show_lines()

    # -- the screen around the page

    def _turn_to_page(self) -> None:
        for page in (*self.tabs, *self.trail):
            page.display = page is self.page
        self._filter.add_class("hidden")
        self.page.table.focus()
        self._notice = ""
        self._show_lines()
        self._wake.set()

    def _show_lines(self) -> None:
        line = Text(no_wrap=True, overflow="ellipsis")
        for index, page in enumerate(self.tabs):
            is_here = index == self.tab_index
            line.append(f"[{index + 1} {page.title}]" if is_here else f" {index + 1} {page.title} ",
                        "bold reverse" if is_here else "")  # fmt: skip
        line.append("".join(f" > {page.title}" for page in self.trail))
        self._tabs_line.update(visible(line))
        if self._notice:
            status = Text(self._notice, "bold")
        elif self._problem:
            since = f"! as of {self._answered_at}" if self._answered_at else "!"
            status = Text(f"{since}: {self._problem}", "bold red")
        else:
            shown = f"{HINTS} | {self.reader.address} {self._answered_at} every {self.period_s:g}s"
            status = Text(shown, no_wrap=True, overflow="ellipsis")
        self._status.update(visible(status))

    def _show_notice(self, text: str) -> None:
        """Show a notice until the next key."""
        self._notice = text
        self._show_lines()

    def on_key(self, event: events.Key) -> None:
        if self._notice:
            self._show_notice("")

    def on_resize(self) -> None:
        self._wake.set()

    # -- keys

    def action_tab(self, index: int) -> None:
        for page in self.trail:
            page.remove()
        self.trail.clear()
        self.tab_index = index
        self._turn_to_page()

    def action_next_tab(self, step: int) -> None:
        self.action_tab((self.tab_index + step) % len(self.tabs))

    @on(DataTable.RowSelected)
    async def open_row(self) -> None:
        key = self.page.table.key
        page = self.page.open_page(key) if key is not None else None
        if page is None or len(self.trail) >= OPENED_MAX:
            return
        self.trail.append(page)
        await self.query_one("#pages").mount(page)
        self._turn_to_page()

    def action_close_page(self) -> None:
        """Go back to the previous page, or to all rows of a filtered tab; abandon a filter that is being typed."""
        if self._filter.has_focus:
            self._turn_to_page()
        elif self.trail:
            self.trail.pop().remove()
            self._turn_to_page()
        elif self.page.wanted:
            self.page.filter("")
            self._wake.set()

    def action_filter(self) -> None:
        self._filter.value = self.page.wanted
        self._filter.remove_class("hidden")
        self._filter.focus()

    @on(Input.Submitted)
    def apply_filter(self, event: Input.Submitted) -> None:
        try:
            self.page.filter(event.value.strip())
        except Exception as error:
            self._show_notice(f"! {getattr(error, 'message', error)}")
            return
        self._turn_to_page()

    def action_sort(self) -> None:
        if self.page.next_order():
            self._wake.set()

    def action_kind(self) -> None:
        if self.page.next_kind():
            self._wake.set()

    def action_turn(self, pages: int) -> None:
        if self.page.turn(pages):
            self._wake.set()

    def action_scroll_above(self, pages: int) -> None:
        self.page.scroll_above(pages)

    def action_same_as(self) -> None:
        line = self.page.same_as()
        if (address := self.reader.settings.given_address) is not None:
            line = line.replace("peloton ", f"peloton -a {address} ")
        self.copy_to_clipboard(line)
        self._show_notice(f"copied: {line}")

    def action_help(self) -> None:
        self.push_screen(HelpScreen())
