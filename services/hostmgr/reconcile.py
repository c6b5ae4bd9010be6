"""Reconciliation: when to compare the pods on hosts in storage with the cluster's, and which of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from enum import IntEnum

from peloton.model.ids import PodId
from peloton.model.pod import PodState
from services.hostmgr.driver import PodOnHost, PodReport
from services.hostmgr.in_flight import InFlight

log = logging.getLogger(__name__)

PERIOD_S = 1_800.0
FOLLOW_UPS_S = (20.0, 60.0, 180.0, 600.0)
"""Delays after a full reconciliation. A cluster that still waits for hosts does not answer for their pods."""

ASKED_MAX = 20_000
"""Limit of open questions: the queue of reports has space for all answers."""
ANSWER_TIMEOUT_S = 2.0
"""Seconds without an answer after which the next question does not wait for the open ones."""
HOST_BACK_REST_S = 5.0
"""Seconds after the return of a host to a control plane without records of its pods, until kills are repeated."""

Row = tuple[PodId, str, str, PodState]
"""Pod, host, the cluster's id of the host, stored state."""


class ReconcileScope(IntEnum):
    NONE = 0
    UNSETTLED = 1  # pods that should have progressed: launched and not reported since, or killed and not ended
    ALL = 2

    def covers(self, state: PodState) -> bool:
        return self is ReconcileScope.ALL or state in (PodState.LAUNCHED, PodState.KILLING)


class ReconcileSchedule:
    """Schedule of reconciliations. One thread takes due ones; any thread may request one."""

    def __init__(self, settled_s: float = FOLLOW_UPS_S[-1]) -> None:
        """``settled_s`` is the time after a full reconciliation within which hosts may still come back."""
        self._follow_ups_s = sorted({delay_s for delay_s in (*FOLLOW_UPS_S, settled_s) if 0 < delay_s < PERIOD_S})
        self._lock = threading.Lock()
        self._wanted = ReconcileScope.ALL
        self._due_s: list[float] = []  # the last entry is a full reconciliation

    @property
    def is_wanted(self) -> bool:
        return self._wanted is not ReconcileScope.NONE

    def want(self, scope: ReconcileScope) -> None:
        with self._lock:
            self._wanted = max(self._wanted, scope)

    def want_by(self, due_s: float) -> None:
        """Request a reconciliation of unsettled pods, unless one is due earlier: many requests result in one."""
        with self._lock:
            if self._due_s and due_s < self._due_s[0]:
                self._due_s.insert(0, due_s)

    def take(self, now_s: float) -> ReconcileScope:
        """Return the reconciliation that is due now; a caller that fails requests it again."""
        with self._lock:
            scope, self._wanted = self._wanted, ReconcileScope.NONE
            while self._due_s and self._due_s[0] <= now_s:
                scope = max(scope, ReconcileScope.UNSETTLED if len(self._due_s) > 1 else ReconcileScope.ALL)
                del self._due_s[0]
            if scope is ReconcileScope.ALL:
                self._due_s = [now_s + delay_s for delay_s in (*self._follow_ups_s, PERIOD_S)]
            return scope


class Answers:
    """The cluster's answers about the pods that it was asked about. One thread asks, others report."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._awaited: set[str] = set()
        self._late_count = 0  # of the awaited pods, the ones that ``wait`` ignores
        # Pod -> stored state, until the cluster reports it once more, reports another state, or a full reconciliation
        # starts.
        self._said: dict[str, str] = {}
        self._asked_count = 0
        self._began_s = 0.0

    def begin(self, scope: ReconcileScope = ReconcileScope.ALL) -> frozenset[str]:
        """Start a reconciliation; return the open questions and close them. For seconds after a full reconciliation
        the cluster repeats all known states, so a smaller one keeps the stored states."""
        with self._changed:
            before = frozenset(self._awaited)
            self._awaited.clear()
            if scope is ReconcileScope.ALL:
                self._said.clear()
            self._late_count, self._asked_count, self._began_s = 0, 0, self._clock()
            return before

    def ask(self, pods: Collection[str], running: Iterable[str] = (), is_late: bool = False) -> None:
        """Record questions. ``running`` are the pods that are RUNNING in storage."""
        with self._changed:
            before = len(self._awaited)
            self._awaited.update(pods)
            self._said.update(dict.fromkeys(running, PodState.RUNNING.value))
            self._asked_count += len(self._awaited) - before
            self._late_count += is_late * (len(self._awaited) - before)

    def is_news(self, report: PodReport) -> bool:
        """Return False for an answer that repeats the stored state. Nearly all answers do, and need no access to
        storage."""
        pod = report.pod
        with self._changed:
            if not report.is_answer or self._said.get(pod) != report.state_text:
                self._said.pop(pod, None)
                return True
            if pod in self._awaited:
                self._close([pod])
            else:  # repeated with all other pods, and not a third time
                del self._said[pod]
            return False

    def take(self, reports: Iterable[PodReport]) -> None:
        """Record reports that are stored, or have nothing to store."""
        with self._changed:
            said = {report.pod: report.state_text for report in reports}
            for pod in said.keys() & self._awaited:
                self._said[pod] = said[pod]
            self._close(said)

    def _close(self, pods: Iterable[str]) -> None:
        if not self._awaited:
            return
        self._awaited.difference_update(pods)
        self._late_count = min(self._late_count, len(self._awaited))
        self._changed.notify_all()
        if not self._awaited:
            seconds = self._clock() - self._began_s
            log.info("reconciliation complete: the last %d pods within %.1f s", self._asked_count, seconds)

    def wait(self, most: int) -> None:
        """Wait until at most ``most`` answers are open, or no further answer arrives."""
        with self._changed:
            while len(self._awaited) - self._late_count > most:
                if not self._changed.wait(ANSWER_TIMEOUT_S):
                    self._late_count = len(self._awaited)


Ask = Callable[[Sequence[PodOnHost]], None]


class Reconciler:
    """Asks the cluster about the pods that storage records on hosts, in bounded batches, and then about all pods."""

    def __init__(self, pages: Callable[[], Iterator[Sequence[Row]]], in_flight: InFlight[PodId]) -> None:
        self._pages = pages
        self._in_flight = in_flight
        self.answers = Answers()

    def ask(self, scope: ReconcileScope, ask: Ask) -> list[Row]:
        """Return the pods that must end and have not. Pods without an answer, because their host has not come back
        yet, are part of every reconciliation. Raises what ``ask`` raises."""
        open_ids = self.answers.begin(scope)
        try:
            ending = self._ask_pages(scope, open_ids, ask)
        except BaseException:
            self.answers.ask(open_ids, is_late=True)
            raise
        if scope is ReconcileScope.ALL:
            self.answers.wait(0)
            ask([])
        return ending

    def _ask_pages(self, scope: ReconcileScope, open_ids: Collection[str], ask: Ask) -> list[Row]:
        ending = []
        for page in self._pages():
            # Pods in flight are left out: they have not reached the cluster, which would report them as lost.
            concerned = (row for row in page if scope.covers(row[3]) or str(row[0]) in open_ids)
            asked = [row for row in concerned if row[0] not in self._in_flight]
            if asked:
                self.answers.wait(ASKED_MAX - len(asked))
                running = [str(row[0]) for row in asked if row[3] is PodState.RUNNING]
                self.answers.ask([str(row[0]) for row in asked], running)
                ask([PodOnHost(*row[:3]) for row in asked])
            ending += [row for row in asked if row[3] is PodState.KILLING]
        return ending
