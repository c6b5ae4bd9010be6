"""The owner of the state of the hosts: it applies events one at a time and performs their effects."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar, cast

from peloton.hosts.effects import Effect, HostAvoided, HostReserved, ReservationEnded, effects_of
from peloton.hosts.state import HostState
from peloton.lifecycle.reason_text import misfit_text, reservation_text
from services.hostmgr.hosts.host_event_recorder import HostEventRecorder

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")


class HostOwner:
    """Owner of a state. Any thread may call."""

    validates = False
    """True in tests: the state is validated after each event."""

    def __init__(
        self,
        state: HostState,
        clock: Callable[[], float],
        wall_ns: Callable[[], int],
        recorder: HostEventRecorder,
    ) -> None:
        self._state, self._clock, self._wall_ns, self._recorder = state, clock, wall_ns, recorder
        self._lock = threading.Lock()

    def apply(self, event: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Apply one event, or a query, at the present time; performs the effects of an event."""
        state = self._state
        with self._lock:
            state.table.now_s, state.table.now_ns = self._clock(), self._wall_ns()
            declared = effects_of(event)
            try:
                return event(*args, **kwargs)
            finally:
                for effect in state.take_effects():
                    assert type(effect) in (declared or ()), f"{event} may not have the effect {effect}"
                    self._perform(effect)
                if self.validates and declared is not None:
                    state.validate()

    def _perform(self, effect: Effect) -> None:
        """Log and record an effect. The recorder only queues, so it delays no other event."""
        match effect:
            case HostAvoided(hostname, why, for_s):
                log.warning("host %s is %s; for %.0f s", hostname, misfit_text(why), for_s)
                self._recorder.record_avoided(hostname, why, for_s)
            case HostReserved(made):
                log.info("host %s is reserved %s", made.hostname, reservation_text(made))
                self._recorder.record_reserved(made)
            case ReservationEnded(kept, launched_on, is_late):
                outcome = "expired before enough resources were free" if is_late else "ended"
                level = logging.WARNING if is_late else logging.INFO
                log.log(level, "reservation of host %s %s: it was %s", kept.hostname, outcome, reservation_text(kept))
                self._recorder.record_released(kept, is_late, launched_on)

    def part(self, part: T) -> T:
        """Return a part of the state each of whose methods and properties is applied by the owner."""
        return cast(T, _OwnedPart(part, self))


class _OwnedPart:
    def __init__(self, part: object, owner: HostOwner) -> None:
        self._part, self._owner = part, owner

    def __getattr__(self, name: str) -> Any:
        if not callable(getattr(type(self._part), name, None)):
            return self._owner.apply(getattr, self._part, name)
        return partial(self._owner.apply, getattr(self._part, name))
