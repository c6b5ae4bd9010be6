"""Lifetime of offers: unused offers return to Mesos for other frameworks, and are requested when pods wait.

    offers arrive -> used by launches, or idle for the hold time -> declined; Mesos hides them until they grow
    no lease is requested -> SUPPRESS: no offers arrive
    a lease finds too few free resources -> REVIVE: all free resources are offered within milliseconds

Some idle offers are kept, in proportion to the offers that launches have used recently, so that a large job does not
repeatedly request the whole cluster.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from peloton.model.pod import PodShape, Strategy
from services.hostmgr.driver import CapacityRequest, Holder
from services.hostmgr.mesos.codec import accept_call, decline_call
from services.hostmgr.mesos.resources import Json

log = logging.getLogger(__name__)

REFUSED_S = 3_600.0
"""Seconds for which Mesos hides declined resources, unless more become free there, or the framework sends REVIVE."""
WAITING_AGE_S = 60.0
"""Seconds for which an unsatisfied lease counts as waiting: its placement is retried within half of this time."""
ASK_AGAIN_S, ASK_AGAIN_MAX_S = 60.0, 600.0
"""Backoff of pods for which all offers of Mesos were not enough: they cause the next REVIVE after this time, which
doubles up to the maximum: meanwhile other frameworks get no offers of the resources held here."""
FAILED_MAX = 10_000
"""Limit of recorded pairs of holder and shape; the ones with the oldest requests are dropped."""
OFFERS_WAIT_S = 0.5
"""Seconds for which a lease waits for the offers that it requested; later offers wake its job."""
KEPT_PER_USED = 10
"""Idle offers kept for each offer that launches have used within two hold times."""
PERIOD_MAX_S = 10.0
DECLINE_BATCH = 1_000
DECLINED_MAX = 20_000
"""Limit per round."""

SendAll = Callable[[Sequence[Json]], Sequence[object]]
TakeIdle = Callable[[float, int, int], list[str]]
"""``(until_s, kept, limit)`` -> ids of idle offers received up to ``until_s``, which leases no longer get."""


class OfferReturns:
    """Offers to return to Mesos. Any thread adds, one sends."""

    def __init__(self) -> None:
        self._offer_ids: deque[str] = deque()  # claimed, and possibly not returned yet

    @property
    def are_due(self) -> bool:
        return bool(self._offer_ids)

    def add(self, offer_ids: Sequence[str]) -> None:
        self._offer_ids.extend(offer_ids)

    def clear(self) -> None:
        """Remove all offers, which end with the subscription."""
        self._offer_ids.clear()

    def send(self, send_all: Callable[[Sequence[Json]], object]) -> None:
        """Send the returns. Raises what ``send_all`` raises; the offers are then sent the next time."""
        offer_ids: list[str] = []
        with suppress(IndexError):
            while True:
                offer_ids.append(self._offer_ids.popleft())
        if offer_ids:
            try:
                send_all([accept_call(offer_ids, [])])
            except BaseException:
                self._offer_ids.extend(offer_ids)
                raise


class OfferController:
    """Controller of offers. ``_sending`` is held during calls to Mesos, so that they arrive in the order of the
    decisions. It is held as long as a call hangs, so the driver's thread never acquires it."""

    def __init__(
        self, take_idle: TakeIdle, send_all: SendAll, hold_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.returns = OfferReturns()  # return to Mesos without being hidden
        self._take_idle = take_idle
        self._send_all = send_all
        self._hold_s = hold_s
        self._clock = clock
        self._came = threading.Event()
        self._came.set()
        self._used_count = 0  # hosts whose offers launches have used
        self._used: deque[tuple[float, int]] = deque()  # time, count of used hosts until then
        self._sending = threading.Lock()
        self._lock = threading.Lock()  # protects the following attributes; acquired last, for short times
        # Possible states of Mesos: set before a call that makes it true, cleared after a call that makes it false.
        self._is_suppressed = False
        self._are_some_declined = False
        self._asked_s = self._short_s = self._revived_s = clock()
        # -> time of the next request, wait after that
        self._failed: OrderedDict[tuple[Holder, PodShape], tuple[float, float]] = OrderedDict()

    @property
    def period_s(self) -> float:
        """Return the seconds between rounds."""
        return min(self._hold_s / 4, PERIOD_MAX_S)

    def reset(self) -> None:
        """Reset the state: a new subscription is not suppressed, and has not declined offers."""
        with self._lock:
            self._is_suppressed = self._are_some_declined = False
            self._asked_s = self._revived_s = self._clock()

    def offers_came(self) -> None:
        self._came.set()

    def hosts_joined(self) -> None:
        """End the backoffs: a host that has joined may be the one that pods wait for, and its offers may have been
        returned before they ask."""
        with self._lock:
            self._failed.clear()

    def note_used(self, host_count: int) -> None:
        with self._lock:
            self._used_count += host_count

    def record_demand_met(self, holder: Holder, shapes: Iterable[PodShape]) -> None:
        """Record that a lease found enough resources for pods of these shapes."""
        with self._lock:
            for shape in shapes:
                self._failed.pop((holder, shape), None)

    def want(self, request: CapacityRequest) -> bool:
        """Request offers of Mesos if that may help; return whether offers have arrived meanwhile. Pods that are
        spread or prefer hosts, and pods that would run where pods of their job failed, require offers of all hosts."""
        holder, short = request.holder, request.short
        now_s = self._clock()
        with self._lock:
            self._asked_s = now_s
            if short:
                self._short_s = now_s
            not_yet = {shape for shape in short if self._failed.get((holder, shape), (now_s, 0.0))[0] > now_s}
        asking = [shape for shape in request.shapes if shape not in not_yet]
        wants_all = any(request.has_deprioritized_hosts or _compares_hosts(shape) for shape in asking)
        if not (short or wants_all):
            return False
        may_fit = wants_all or request.may_fit(asking)
        with self._sending:  # another lease may have requested offers meanwhile
            now_s = self._clock()
            has_asked = self._may_help(may_fit, not not_yet.issuperset(short), now_s) and self._revive(now_s)
            if has_asked:
                self._wait_longer(holder, short - not_yet, now_s)
            left_s = self._revived_s + OFFERS_WAIT_S - now_s
        is_open = has_asked or not self._came.is_set()  # by another lease, very recently
        return is_open and left_s > 0 and self._came.wait(left_s)

    def _may_help(self, may_fit: bool, is_short: bool, now_s: float) -> bool:
        with self._lock:
            # Once a minute in any case: a SUPPRESS may have overtaken a subscription.
            in_doubt = self._are_some_declined or (is_short and now_s - self._revived_s >= WAITING_AGE_S)
            return self._is_suppressed or (in_doubt and may_fit)

    def _wait_longer(self, holder: Holder, shapes: Iterable[PodShape], now_s: float) -> None:
        """Doubles the backoff of these shapes, until a lease finds enough resources for them."""
        with self._lock:
            for shape in shapes:
                _, wait_s = self._failed.pop((holder, shape), (0.0, ASK_AGAIN_S))
                self._failed[holder, shape] = now_s + wait_s, min(2 * wait_s, ASK_AGAIN_MAX_S)
            while len(self._failed) > FAILED_MAX:
                self._failed.popitem(last=False)

    def _revive(self, now_s: float) -> bool:
        self._came.clear()
        try:
            refusals = self._send_all([{"type": "REVIVE"}])
        except OSError as error:
            self._came.set()
            log.info(
                "offers not requested, retrying: %s", error
            )  # waiting jobs ask again, or a subscription wakes them
            return False
        if any(refusals):
            self._came.set()
            log.warning("Mesos rejected the request for offers: %s", refusals[0])
            return False
        with self._lock:
            self._is_suppressed = self._are_some_declined = False
            self._revived_s = now_s
        return True

    def run_periodic(self) -> None:
        """Return offers that launches did not use, and idle ones. Raises what sending raises: it is then unknown what
        Mesos has processed, and ``want`` requests offers when in doubt."""
        self.returns.send(self._send_all)
        with self._sending:
            now_s = self._clock()
            suppresses = self._suppresses(now_s)
            calls: list[Json] = [{"type": "SUPPRESS"}] if suppresses else []
            idle = self._take_idle(now_s - self._hold_s, self._count_kept(now_s), DECLINED_MAX)
            batches = (idle[start : start + DECLINE_BATCH] for start in range(0, len(idle), DECLINE_BATCH))
            calls += [decline_call(batch, REFUSED_S) for batch in batches]
            self._set_mesos_state(suppresses, bool(idle))
            try:
                if refused := [refusal for refusal in (self._send_all(calls) if calls else ()) if refusal]:
                    raise OSError(f"Mesos refuses to take offers back: {refused[0]}")
            except BaseException:
                self.returns.add(idle)
                raise
            finally:
                self._set_mesos_state(suppresses, bool(idle))  # again: a new subscription may have started meanwhile

    def _suppresses(self, now_s: float) -> bool:
        with self._lock:
            is_idle = now_s - self._asked_s >= self._hold_s and now_s - self._short_s >= WAITING_AGE_S
            if not is_idle or self._is_suppressed:
                return False
        log.info("no pod waits for a host: suppressed offers")
        return True

    def _set_mesos_state(self, is_suppressed: bool, are_some_declined: bool) -> None:
        with self._lock:
            self._is_suppressed |= is_suppressed
            self._are_some_declined |= are_some_declined

    def _count_kept(self, now_s: float) -> int:
        self._used.append((now_s, self._used_count))
        while self._used[0][0] < now_s - 2 * self._hold_s:
            self._used.popleft()
        return KEPT_PER_USED * (self._used_count - self._used[0][1])


def _compares_hosts(shape: PodShape) -> bool:
    """Return whether a host without an offer may be better for the pod than one that takes it."""
    return shape.strategy is not Strategy.PACK_HOST or bool(shape.preferences)
