"""Shared parts of commands that watch: the pace of polling, the limit of an outage of the API, and the display."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from cli.errors import Failed
from cli.terminal import Visible, console, echo
from peloton.model.text import MULTI_LINE, escape

if TYPE_CHECKING:
    import grpc
    from rich.console import Console, RenderableType

    from peloton.client import Client, RetryPolicy

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WatchPace:
    """The pace of polling, and the limit of an outage of the API."""

    interval_s: float = 0.5
    retry_s_max: float = 5.0  # the wait doubles from interval_s up to this
    away_s_max: float = 120.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def policy(self, say: Callable[[str], None] = lambda text: None) -> RetryPolicy:
        """Return the bounds of an outage for the client: one person watches, so that waits need no jitter."""
        from peloton.client import RetryPolicy

        return RetryPolicy(
            away_s=self.away_s_max,
            first_wait_s=self.interval_s,
            wait_s_max=self.retry_s_max,
            say=say,
            clock=self.clock,
            chance=lambda: 0.0,
        )


@dataclass
class Retrier:
    """A caller that repeats a call while the API is unavailable. ``subject`` and ``later`` appear in its messages."""

    client: Client
    pace: WatchPace
    subject: str  # a kind and a name, such as "job hello"
    later: str  # the command that watches again

    def ask(self, say: Callable[[str], None], call: Callable[[], T]) -> T:
        """Call until the API answers. Raises Failed for an error that waiting cannot help, and after a long outage."""
        import grpc

        from peloton.client import Outage, is_away

        outage = Outage(self.pace.policy())
        while True:
            is_first = outage.since_s is None
            try:
                answer = call()
            except grpc.RpcError as error:
                if not is_away(error):
                    raise Failed(f"cannot watch {self.subject}: {error.details()} ({error.code().name})") from error
                wait_s = outage.next_wait_s()
                if wait_s is None:
                    raise self.give_up(error, outage.seconds) from error
                if is_first:
                    say(f"{self.client.last_address} does not answer; the {self.kind} continues, retrying ...")
            else:
                if not is_first:
                    say(f"{self.client.last_address} answers again")
                return answer
            self.pace.sleep(wait_s)

    @property
    def kind(self) -> str:
        return self.subject.partition(" ")[0]

    def give_up(self, error: grpc.RpcError, away_s: float) -> Failed:
        return Failed(
            f"{self.client.last_address} has not answered for {away_s:.0f} s ({error.code().name}): gave up watching; "
            f"the {self.kind} is not affected, see `{self.later}` later"
        )


def progress_console(is_for_programs: bool) -> Console:
    """Return standard output, or standard error when standard output belongs to programs."""
    return console(err=is_for_programs)


@dataclass
class Display(Generic[T]):
    """The display of a watch: ``show`` prints the watched state, ``say`` an additional line."""

    console: Console
    show: Callable[[T], object]

    def say(self, text: str) -> None:
        print_line(self.console, text)


def print_line(console: Console, text: str) -> None:
    console.print(escape(text, MULTI_LINE), markup=False, highlight=False, soft_wrap=True)


@contextmanager
def display_on(
    console: Console,
    is_json: bool,
    json_of: Callable[[T], str],
    lines_of: Callable[[T], Mapping[str, Sequence[str]]],
    live: Callable[[], AbstractContextManager[Callable[[T], object]]],
) -> Iterator[Display[T]]:
    """Yield a display.

    With ``is_json`` it prints a line of JSON for each change; on a terminal the picture of ``live``; elsewhere the
    groups of lines that changed.
    """
    shown: dict[str, Sequence[str]] = {}

    def print_changed(groups: Mapping[str, Sequence[str]], print_one: Callable[[str], None]) -> None:
        for name, lines in groups.items():
            if shown.get(name) != lines:
                shown[name] = lines
                for line in lines:
                    print_one(line)

    if is_json:
        yield Display(console, lambda state: print_changed({"": [json_of(state)]}, echo))
    elif not console.is_terminal:
        yield Display(console, lambda state: print_changed(lines_of(state), lambda line: print_line(console, line)))
    else:
        with live() as show:
            yield Display(console, show)


@contextmanager
def redrawn(console: Console, picture: Callable[[T], RenderableType]) -> Iterator[Callable[[T], None]]:
    """Yield a function that draws the picture again in place for each state."""
    from rich.live import Live

    with Live(console=console, auto_refresh=False) as live:
        yield lambda state: live.update(Visible(picture(state)), refresh=True)
