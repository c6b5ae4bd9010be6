"""Effects of events on the state of hosts: the owner of the state performs them after the event."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from peloton.model.ids import Hostname, JobId
from peloton.model.misfit import Misfit
from peloton.model.reservation import HostReservation


class HostAvoided(NamedTuple):
    """The avoidance of a host starts, and is recorded as an event of the host."""

    hostname: Hostname
    why: Misfit
    for_s: float


class HostReserved(NamedTuple):
    """A host is reserved for a pod, and the reservation is recorded as an event of the host."""

    reservation: HostReservation


class ReservationEnded(NamedTuple):
    """A reservation ended, and its end is recorded as an event of the host."""

    reservation: HostReservation
    launched_on: str = ""  # the pod's host; empty: the pod was not launched
    is_late: bool = False  # it expired before enough resources were free


Effect = HostAvoided | HostReserved | ReservationEnded
JobsToWake = set[JobId]
"""Jobs that may find hosts now; the caller of the event wakes them."""

Method = TypeVar("Method", bound=Callable[..., object])


def event(*effects: type[Effect]) -> Callable[[Method], Method]:
    """Mark a method as an event of the state, with the effects that it may have."""

    def mark(method: Method) -> Method:
        method.effects = effects  # type: ignore[attr-defined]
        return method

    return mark


def effects_of(method: object) -> tuple[type[Effect], ...] | None:
    """Return the effects that an event may have; None: the method is a query."""
    found: tuple[type[Effect], ...] | None = getattr(method, "effects", None)
    return found
