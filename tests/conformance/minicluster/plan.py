"""The plan of a replay and the differences that it finds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from services.lab.shared.hosts import HostSpec

if TYPE_CHECKING:
    from tests.conformance.minicluster.replayer import Replay

Hook = Callable[["Replay"], Awaitable[None]]


@dataclass(frozen=True)
class Found:
    """One difference: where (label or stream, with the line number) and what."""

    seq: int
    where: str
    path: str
    recorded: Any
    actual: Any

    def __str__(self) -> str:
        return f"line {self.seq} [{self.where}] {self.path}: recorded {self.recorded!r:.900}, got {self.actual!r:.900}"


@dataclass(frozen=True)
class Plan:
    """The way to replay one recording: settings, actions of the script outside the protocol, and parts that are left
    out."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    # line number -> action taken when the replay reaches that line
    hooks: dict[int, Hook] = field(default_factory=dict)
    # line number -> the call that is sent instead of the recorded one
    rewrites: dict[int, Callable[[Any], Any]] = field(default_factory=dict)
    # (first, last) line numbers that are not replayed
    skip: tuple[tuple[int, int], ...] = ()
    # (first, last) line numbers where equal agents are dealt out by chance: offers count, not which agent
    any_agent: tuple[tuple[int, int], ...] = ()
    # give back offers that only our ticks brought when a framework suppresses, as the script never knew of them
    tidy: bool = False
    # line numbers of events known not to come (they must be in the table of differences): not waited for
    absent: tuple[int, ...] = ()
    # where in the second the recorded allocation ticks fell, when most offers came at other moments
    phase: float | None = None


def make_host(name: str) -> HostSpec:
    """agentN.local as in the recordings."""
    number = int("".join(char for char in name if char.isdigit()))
    zone = "z1"
    attributes: dict[str, str | float] = {
        "rack": f"r{number}",
        "zone": zone,
        "index": float(number),
        "ports_a": "[1-5]",
    }
    return HostSpec(name, cpus=4.0, mem=4096.0, disk=8192.0, ports=((31000, 31099),), attributes=attributes)
