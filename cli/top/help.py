"""The help screen: the keys and their effects."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

TEXT = """\
1 .. 5, tab    Overview, Pools, Jobs, Hosts, Schedules
up down, j k   move; g G to the first and the last row
enter          open the row: a pool, a job, an instance, a host;
               of a schedule the job of its last run
esc            back
/              filter; an empty one ends it
  pools, hosts   of the name; of hosts also of state, host pool, labels
  jobs           part of the name, state:failed,running state:active
                 pool:/eng owner:maps type:service label:k=v since:24h
  instances      states, host:h1
  schedules      of the name, the pool or the state
s              the next order
r              pools: the next kind of resource
n p            jobs, instances: the next page, the one before
d u            lines above the table that do not fit: down and up
c              copy the command that gives the same, and show it
?              this help;  q quits

States: R runs  L launched, starting  P waits  S succeeded  F failed
        X lost  K killed"""


class HelpScreen(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,h,enter,q", "dismiss")]

    def compose(self) -> ComposeResult:
        yield Static(Text(TEXT), id="help")
