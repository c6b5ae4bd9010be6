"""Conditions and events of owners that are held suspended: why they wait, and what became of them."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

from services.hostmgr.external_port import PodCondition
from services.hostmgr.kubernetes.apiserver.wire import GONE_OR_CHANGED, Answer, ApiServer, Request, check_answers
from services.hostmgr.kubernetes.external.external_requests import event_about, make_reference
from services.hostmgr.kubernetes.suspend.held_owner import HeldOwner, condition_request, read_condition

log = logging.getLogger(__name__)

CONDITIONS_MAX = 500
"""Limit of conditions written in one call. The others follow in the next calls, before later ones."""
EVENTS_MAX, EVENTS_WAITING_MAX = 100, 10_000
"""Limits of events written in one call, and of unwritten ones; the oldest are dropped."""


@dataclass(slots=True)
class Said:
    """The condition that an owner shows, and the call that wrote it last."""

    reason: str = ""
    message: str = ""
    call: int = 0


class _Sent(NamedTuple):
    owner: HeldOwner
    said: Said
    condition: PodCondition
    before: str  # the reason that it showed


class Notices:
    """Any thread may call."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._calls = itertools.count(1)
        self._unwritten: deque[Request] = deque(maxlen=EVENTS_WAITING_MAX)

    def show(self, told: Iterable[tuple[HeldOwner, Said, PodCondition]]) -> None:
        """Write conditions of owners; an event follows each new reason. Raises OSError."""
        sent = self._choose(told)
        answers = self._api.ask_all([condition_request(owner, one.reason, one.message) for owner, _, one, _ in sent])
        failed: list[Answer | OSError] = []
        for (owner, said, condition, before), answer in zip(sent, answers, strict=True):
            if isinstance(answer, OSError) or answer.status == HTTPStatus.CONFLICT or answer.may_pass:
                with self._lock:
                    said.reason = said.message = ""
                failed.append(answer)
                continue
            if not answer.is_ok:  # some kinds have no such status while they wait: the event says it
                log.debug("%s: its condition is not written: %s", owner.title, answer.message)
            if before != condition.reason:
                kind = "Normal" if condition.is_expected else "Warning"
                self.write(owner, kind, condition.reason, condition.message)
        check_answers(failed, *GONE_OR_CHANGED)

    def _choose(self, told: Iterable[tuple[HeldOwner, Said, PodCondition]]) -> list[_Sent]:
        """Return the conditions to write now: first those of the owners whose last one is oldest."""
        sent: list[_Sent] = []
        with self._lock:
            call = next(self._calls)
            for owner, said, condition in sorted(told, key=lambda each: each[1].call):
                wanted = condition.reason, condition.message
                if (said.reason, said.message) == wanted:
                    continue
                shown = read_condition(owner)
                if shown != wanted:
                    if len(sent) == CONDITIONS_MAX:
                        continue
                    sent.append(_Sent(owner, said, condition, shown[0] or said.reason))
                    said.call = call
                said.reason, said.message = wanted
        return sent

    def write(self, owner: HeldOwner, kind: str, reason: str, message: str) -> None:
        """Note an event, which is written later; ``kind`` is Normal or Warning."""
        about = make_reference(owner.object, owner.kind.api_version, owner.kind.kind)
        self._unwritten.append(event_about(about, kind, reason, message))

    def write_events(self) -> None:
        """Write some of the events. Raises OSError."""
        some = [self._unwritten.popleft() for _ in range(min(len(self._unwritten), EVENTS_MAX))]
        check_answers(self._api.ask_all(some), *GONE_OR_CHANGED)
