"""Resource use of single pods, measured on demand for display. No decision depends on it."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from peloton.errors import InvalidArgument
from peloton.model.ids import Hostname, PodId
from peloton.scheduling.qos import Use
from services.hostmgr.driver import UseSample
from services.hostmgr.host_use import Counter, HostUse, next_use

log = logging.getLogger(__name__)

HOSTS_PER_CALL_MAX = 100
MEASURED_AT_ONCE = 8
TIMEOUT_S = 2.0
"""Seconds to wait for the hosts of one call; the next call has the answers that were late."""
SAMPLE_AGE_S = 3.0
"""Seconds for which a sample is reused: cpu rates over shorter times are meaningless."""
KEPT_S, HOSTS_KEPT = 120.0, 500
"""Seconds for which a sample can start a rate, and the number of hosts whose samples are kept."""


@dataclass(slots=True)
class _Watched:
    """A host whose pods are displayed."""

    use: HostUse = field(default_factory=HostUse)
    at_s: float = float("-inf")
    pods: dict[PodId, Use] = field(default_factory=dict)  # pods with at least two samples
    asked: Future[None] | None = None


class PodUses:
    """Reads and caches the use of pods. Any thread may call."""

    def __init__(
        self, samples_of: Callable[[Hostname], list[UseSample]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``samples_of`` is a driver's."""
        self._samples_of, self._clock = samples_of, clock
        self._watched: OrderedDict[Hostname, _Watched] = OrderedDict()
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(MEASURED_AT_ONCE, thread_name_prefix="use of pods")

    def on(self, hostnames: Collection[Hostname]) -> dict[PodId, Use]:
        """Return the use of Peloton's pods on these hosts, as measured within the last seconds. Raises
        InvalidArgument."""
        if len(hostnames) > HOSTS_PER_CALL_MAX:
            raise InvalidArgument(f"{len(hostnames)} hosts in one call, at most {HOSTS_PER_CALL_MAX} are allowed")
        names = list(dict.fromkeys(hostnames))
        wait([asked for asked in map(self._ask, names) if asked is not None], timeout=TIMEOUT_S)
        oldest_s = self._clock() - KEPT_S
        watched = [self._watched.get(name) for name in names]
        return {pod: use for one in watched if one is not None and one.at_s > oldest_s for pod, use in one.pods.items()}

    def _ask(self, hostname: Hostname) -> Future[None] | None:
        """Start a measurement; None while the last sample is recent enough."""
        with self._lock:
            watched = self._watched.setdefault(hostname, _Watched())
            self._watched.move_to_end(hostname)
            while len(self._watched) > HOSTS_KEPT:
                self._watched.popitem(last=False)
            if watched.asked is not None and not watched.asked.done():
                return watched.asked
            if self._clock() - watched.at_s < SAMPLE_AGE_S:
                return None
            watched.asked = self._threads.submit(self._measure, hostname, watched)
            return watched.asked

    def _measure(self, hostname: Hostname, watched: _Watched) -> None:
        try:
            samples: Sequence[UseSample] = self._samples_of(hostname)
        except (OSError, ValueError) as error:
            log.debug("no statistics of host %s: %r", hostname, error)
            return
        now_s = self._clock()
        before = watched.use if now_s - watched.at_s < KEPT_S else HostUse()
        watched.use = next_use(before, samples)
        known = watched.pods.keys() | {counter.pod_id for counter in _find_advanced(before, watched.use)}
        watched.pods = {pod: use for pod, use in watched.use.pods().items() if pod in known}
        watched.at_s = now_s


def _find_advanced(before: HostUse, after: HostUse) -> list[Counter]:
    """Return the counters that have advanced and thus yield a rate."""
    return [one for key, one in after.counters.items() if before.counters.get(key, one) is not one]
