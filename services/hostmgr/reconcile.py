"""When to compare what storage believes to be on hosts with what the cluster knows, and about which pods not to ask."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum

from peloton.model.ids import PodId
from peloton.model.pod import PodState
from services.hostmgr.driver import PodOnHost, PodReport

log = logging.getLogger(__name__)

PERIOD_S = 1_800.0
FOLLOW_UPS_S = (20.0, 60.0, 180.0, 600.0)
"""After a comparison of everything. A cluster that still waits for hosts does not answer for their pods."""

ASKED_MAX = 20_000
"""Pods that are asked about before there are answers for others: the queue of reports takes all answers."""
PATIENCE_S = 2.0
"""When no answer has come for so long, the next question does not wait for those that are left."""
HOST_BACK_REST_S = 5.0
"""After a host came back to a control plane that did not know what runs there, pods that must end are told again."""

Row = tuple[PodId, str, str, PodState]
"""Pod, host, the cluster's id of the host, stored state."""


class Look(IntEnum):
    NONE = 0
    UNSETTLED = 1  # pods that should have moved on: launched and not seen since, or killed and not ended
    ALL = 2

    def covers(self, state: PodState) -> bool:
        return self is Look.ALL or state in (PodState.LAUNCHED, PodState.KILLING)


class ReconcileSchedule:
    """One thread takes what is due; any thread may want a look now."""

    def __init__(self, settled_s: float = FOLLOW_UPS_S[-1]) -> None:
        """``settled_s``: so long after a look at everything all hosts have come that will."""
        self._follow_ups_s = sorted({delay_s for delay_s in (*FOLLOW_UPS_S, settled_s) if 0 < delay_s < PERIOD_S})
        self._lock = threading.Lock()
        self._wanted = Look.ALL
        self._due_s: list[float] = []  # the last one is a look at everything

    @property
    def is_wanted(self) -> bool:
        return self._wanted is not Look.NONE

    def want(self, look: Look) -> None:
        with self._lock:
            self._wanted = max(self._wanted, look)

    def want_by(self, due_s: float) -> None:
        """A look at what is unsettled, unless one is due before: however many ask, there is one at a time."""
        with self._lock:
            if self._due_s and due_s < self._due_s[0]:
                self._due_s.insert(0, due_s)

    def take(self, now_s: float) -> Look:
        """What is to be done now; whoever fails at it wants it again."""
        with self._lock:
            look, self._wanted = self._wanted, Look.NONE
            while self._due_s and self._due_s[0] <= now_s:
                look = max(look, Look.UNSETTLED if len(self._due_s) > 1 else Look.ALL)
                del self._due_s[0]
            if look is Look.ALL:
                self._due_s = [now_s + delay_s for delay_s in (*self._follow_ups_s, PERIOD_S)]
            return look


class InFlight:
    """Pods between their commit as LAUNCHED and their launch: the cluster has not heard of them, and would call them
    lost."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: Counter[PodId] = Counter()

    @contextmanager
    def launching(self, pods: Sequence[PodId]) -> Iterator[None]:
        with self._lock:
            self._pods.update(pods)
        try:
            yield
        finally:
            with self._lock:
                self._pods.subtract(pods)
                for pod_id in pods:
                    if self._pods[pod_id] <= 0:
                        del self._pods[pod_id]

    def landed(self, rows: Sequence[Row]) -> list[Row]:
        """Rows read from storage before, without those in flight: what has landed since is known to the cluster."""
        with self._lock:
            return [row for row in rows if row[0] not in self._pods]


class Answers:
    """What the cluster has said of the pods that it was asked about. Filled by one thread, asked by others."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._awaited: set[str] = set()
        self._late_count = 0  # of those that are awaited: nobody waits for them any more
        # Pod -> state that is stored: until the cluster has told it once more, or another one, or the next look at all.
        self._said: dict[str, str] = {}
        self._asked_count = 0
        self._began_s = 0.0

    def begin(self, look: Look = Look.ALL) -> frozenset[str]:
        """Questions follow; returns those that are still open, as if they had not been asked. After a look at
        everything the cluster tells all that it knows, for seconds: a smaller look does not forget what is stored."""
        with self._changed:
            before = frozenset(self._awaited)
            self._awaited.clear()
            if look is Look.ALL:
                self._said.clear()
            self._late_count, self._asked_count, self._began_s = 0, 0, self._clock()
            return before

    def ask(self, pods: Collection[str], running: Iterable[str] = (), is_late: bool = False) -> None:
        """``running``: those of which storage says so."""
        with self._changed:
            before = len(self._awaited)
            self._awaited.update(pods)
            self._said.update(dict.fromkeys(running, PodState.RUNNING.value))
            self._asked_count += len(self._awaited) - before
            self._late_count += is_late * (len(self._awaited) - before)

    def is_news(self, report: PodReport) -> bool:
        """False for an answer that says what is stored. Nearly all do: they need no look at storage."""
        pod = report.pod
        with self._changed:
            if not report.is_answer or self._said.get(pod) != report.told:
                self._said.pop(pod, None)
                return True
            if pod in self._awaited:
                self._close([pod])
            else:  # told with all the others, and not a third time
                del self._said[pod]
            return False

    def take(self, reports: Iterable[PodReport]) -> None:
        """Reports that are stored, or that say nothing that could be."""
        with self._changed:
            said = {report.pod: report.told for report in reports}
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
            log.info("the cluster has answered for all pods: the last %d within %.1f s", self._asked_count, seconds)

    def wait(self, most: int) -> None:
        """Until no more than so many answers are awaited, or none comes any more."""
        with self._changed:
            while len(self._awaited) - self._late_count > most:
                if not self._changed.wait(PATIENCE_S):
                    self._late_count = len(self._awaited)


Ask = Callable[[Sequence[PodOnHost]], None]


class Reconciler:
    """Asks the cluster about the pods that storage believes on hosts, so many at a time, and then about all."""

    def __init__(self, pages: Callable[[], Iterator[Sequence[Row]]], in_flight: InFlight) -> None:
        self._pages = pages
        self._in_flight = in_flight
        self.answers = Answers()

    def ask(self, look: Look, ask: Ask) -> list[Row]:
        """Returns the pods that must end and have not. Pods for which no answer ever came, as their hosts have not come
        back yet, are in every look. Raises what ``ask`` does."""
        open_ids = self.answers.begin(look)
        try:
            ending = self._ask_pages(look, open_ids, ask)
        except BaseException:
            self.answers.ask(open_ids, is_late=True)
            raise
        if look is Look.ALL:
            self.answers.wait(0)
            ask([])
        return ending

    def _ask_pages(self, look: Look, open_ids: Collection[str], ask: Ask) -> list[Row]:
        ending = []
        for page in self._pages():
            asked = self._in_flight.landed([row for row in page if look.covers(row[3]) or str(row[0]) in open_ids])
            if asked:
                self.answers.wait(ASKED_MAX - len(asked))
                running = [str(row[0]) for row in asked if row[3] is PodState.RUNNING]
                self.answers.ask([str(row[0]) for row in asked], running)
                ask([PodOnHost(*row[:3]) for row in asked])
            ending += [row for row in asked if row[3] is PodState.KILLING]
        return ending
