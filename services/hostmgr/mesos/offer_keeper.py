"""How long offers are kept: what nobody uses goes back to Mesos, for other frameworks, and is asked for when pods wait.

    offers come -> used by launches, or idle for the hold time -> declined; Mesos hides them until they grow
    nobody asks for hosts -> SUPPRESS: no offers come
    a lease finds too little of what there is -> REVIVE: all free resources are offered within milliseconds

The number of idle offers that are kept nevertheless follows the number that launches have used of late, so that a large
job does not ask for the whole cluster again and again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence

from peloton.model.pod import PodShape, Strategy
from services.hostmgr.driver import Holder, RoomWish
from services.hostmgr.mesos.codec import decline_call
from services.hostmgr.mesos.offer_returns import OfferReturns
from services.hostmgr.mesos.resources import Json

log = logging.getLogger(__name__)

REFUSED_S = 3_600.0
"""How long Mesos hides what was declined, unless more than that becomes free there, or it is asked."""
WAITING_AGE_S = 60.0
"""Who found too little waits: a placement in vain is tried again within half of this."""
ASK_AGAIN_S, ASK_AGAIN_MAX_S = 60.0, 600.0
"""Pods for which all that Mesos offers was not enough have it asked again after so long, and twice as long each time.
What they need is elsewhere, and other frameworks would do without offers for as long as they wait."""
IN_VAIN_MAX = 10_000
"""Shapes of holders of which that is remembered; those that asked longest ago are forgotten."""
OFFERS_WAIT_S = 0.5
"""A lease waits so long for the offers that it asked for; those that come later wake its job."""
KEPT_PER_USED = 10
"""Idle offers that are kept for each that launches have used within two hold times."""
PERIOD_MAX_S = 10.0
DECLINE_BATCH = 1_000
DECLINED_MAX = 20_000
"""In one round; the others follow in the next."""

SendAll = Callable[[Sequence[Json]], Sequence[object]]
TakeIdle = Callable[[float, int, int], list[str]]
"""Offers that came until then, but for so many that are kept, and at most so many: nobody else uses them any more."""


class OfferKeeper:
    """``_telling`` is held while Mesos is told, so that it hears things in the order in which they are decided: as long
    as a call hangs. The driver's thread never takes it."""

    def __init__(
        self, take_idle: TakeIdle, send_all: SendAll, hold_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.returns = OfferReturns()  # what goes back without being hidden
        self._take_idle = take_idle
        self._send_all = send_all
        self._hold_s = hold_s
        self._clock = clock
        self._came = threading.Event()
        self._came.set()
        self._used_count = 0  # hosts whose offers launches have used
        self._used: deque[tuple[float, int]] = deque()  # when, used until then
        self._telling = threading.Lock()
        self._lock = threading.Lock()  # of what follows; taken last, and for moments
        # What Mesos may believe: set before it is told, unset when it has been told otherwise.
        self._is_suppressed = False
        self._are_some_declined = False
        self._asked_s = self._short_s = self._revived_s = clock()
        # -> when to ask again, and how long after that
        self._in_vain: OrderedDict[tuple[Holder, PodShape], tuple[float, float]] = OrderedDict()

    @property
    def period_s(self) -> float:
        """How often to look."""
        return min(self._hold_s / 4, PERIOD_MAX_S)

    def subscribed(self) -> None:
        """A new subscription is neither suppressed nor has it refused anything."""
        with self._lock:
            self._is_suppressed = self._are_some_declined = False
            self._asked_s = self._revived_s = self._clock()

    def offers_came(self) -> None:
        self._came.set()

    def note_used(self, host_count: int) -> None:
        """By a launch."""
        with self._lock:
            self._used_count += host_count

    def sufficed(self, holder: Holder, shapes: Iterable[PodShape]) -> None:
        """A lease found enough for pods of these shapes."""
        with self._lock:
            for shape in shapes:
                self._in_vain.pop((holder, shape), None)

    def want(self, wish: RoomWish) -> bool:
        """Asks Mesos if that may help; returns whether offers have come meanwhile. Pods that do not fill hosts one by
        one are to see all hosts, and so are those that would have to go where pods of their job failed."""
        holder, short = wish.holder, wish.short
        now_s = self._clock()
        with self._lock:
            self._asked_s = now_s
            if short:
                self._short_s = now_s
            not_yet = {shape for shape in short if self._in_vain.get((holder, shape), (now_s, 0.0))[0] > now_s}
        asking = [shape for shape in wish.shapes if shape not in not_yet]
        wants_all = any(wish.is_poor or shape.strategy is not Strategy.PACK_HOST for shape in asking)
        if not (short or wants_all):
            return False
        may_fit = wants_all or wish.may_fit(asking)
        with self._telling:  # others may have asked meanwhile
            now_s = self._clock()
            has_asked = self._may_help(may_fit, not not_yet.issuperset(short), now_s) and self._revive(now_s)
            if has_asked:
                self._wait_longer(holder, short - not_yet, now_s)
            left_s = self._revived_s + OFFERS_WAIT_S - now_s
        is_open = has_asked or not self._came.is_set()  # by another lease, a moment ago
        return is_open and left_s > 0 and self._came.wait(left_s)

    def _may_help(self, may_fit: bool, is_short: bool, now_s: float) -> bool:
        with self._lock:
            # Once a minute whatever we believe: a SUPPRESS may have overtaken a subscription.
            in_doubt = self._are_some_declined or (is_short and now_s - self._revived_s >= WAITING_AGE_S)
            return self._is_suppressed or (in_doubt and may_fit)

    def _wait_longer(self, holder: Holder, shapes: Iterable[PodShape], now_s: float) -> None:
        """Until a lease finds enough of them."""
        with self._lock:
            for shape in shapes:
                _, wait_s = self._in_vain.pop((holder, shape), (0.0, ASK_AGAIN_S))
                self._in_vain[holder, shape] = now_s + wait_s, min(2 * wait_s, ASK_AGAIN_MAX_S)
            while len(self._in_vain) > IN_VAIN_MAX:
                self._in_vain.popitem(last=False)

    def _revive(self, now_s: float) -> bool:
        self._came.clear()
        try:
            refusals = self._send_all([{"type": "REVIVE"}])
        except OSError as error:
            self._came.set()
            log.info("Mesos not asked for offers: %s", error)  # who waits asks again, or is told after a subscription
            return False
        if any(refusals):
            self._came.set()
            log.warning("Mesos refuses to make offers: %s", refusals[0])
            return False
        with self._lock:
            self._is_suppressed = self._are_some_declined = False
            self._revived_s = now_s
        return True

    def tend(self) -> None:
        """Give back what launches left over, and what is idle. Raises what sending does: then Mesos may or may not
        know, and is asked when in doubt."""
        self.returns.send(self._send_all)
        with self._telling:
            now_s = self._clock()
            suppresses = self._suppresses(now_s)
            calls: list[Json] = [{"type": "SUPPRESS"}] if suppresses else []
            idle = self._take_idle(now_s - self._hold_s, self._kept(now_s), DECLINED_MAX)
            batches = (idle[start : start + DECLINE_BATCH] for start in range(0, len(idle), DECLINE_BATCH))
            calls += [decline_call(batch, REFUSED_S) for batch in batches]
            self._believe(suppresses, bool(idle))
            try:
                if refused := [refusal for refusal in (self._send_all(calls) if calls else ()) if refusal]:
                    raise OSError(f"Mesos refuses to take offers back: {refused[0]}")
            except BaseException:
                self.returns.add(idle)
                raise
            finally:
                self._believe(suppresses, bool(idle))  # it may be a subscription of meanwhile that has heard it

    def _suppresses(self, now_s: float) -> bool:
        with self._lock:
            is_idle = now_s - self._asked_s >= self._hold_s and now_s - self._short_s >= WAITING_AGE_S
            if not is_idle or self._is_suppressed:
                return False
        log.info("no pod waits for hosts: Mesos makes no offers until one does")
        return True

    def _believe(self, is_suppressed: bool, are_some_declined: bool) -> None:
        with self._lock:
            self._is_suppressed |= is_suppressed
            self._are_some_declined |= are_some_declined

    def _kept(self, now_s: float) -> int:
        self._used.append((now_s, self._used_count))
        while self._used[0][0] < now_s - 2 * self._hold_s:
            self._used.popleft()
        return KEPT_PER_USED * (self._used_count - self._used[0][1])
