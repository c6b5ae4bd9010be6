"""The QoS controller: measures hosts on which revocable pods run, and evicts those that make a host hot, or hold more
than its slack. ``peloton.scheduling.qos`` decides, and the resource manager evicts."""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Meter, Observation

from peloton.errors import InvalidArgument, Unavailable
from peloton.lifecycle.reason_text import eviction_text
from peloton.model.ids import Hostname
from peloton.model.reason import QosRule
from peloton.model.resources import needed
from peloton.ports import Evictor, Lifecycles
from peloton.scheduling.qos import (
    Correction,
    HostLoad,
    HostWatch,
    QosPolicy,
    RevocablePod,
    Use,
    after,
    corrections,
    is_due,
    observe,
)
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.host_use import HostUse, next_use
from services.hostmgr.hosts.pool import HostPool
from services.hostmgr.manager import HostManagerCore
from services.storage.pods.host_pods import HostPods

log = logging.getLogger(__name__)

MEASURED_AT_ONCE = 8
HOSTS_PER_ROUND_MAX = 400
"""The others follow in the next rounds."""
EVICTED_PODS_MAX = 200
"""In one round."""


@dataclass(frozen=True)
class QosSettings:
    enabled: bool = True
    period_s: float = 5.0
    policy: QosPolicy = field(default_factory=QosPolicy)

    def __post_init__(self) -> None:
        policy = self.policy
        if not 0 < policy.target_percent < policy.hot_percent:
            raise InvalidArgument(
                f"a hot host cannot be brought below {policy.target_percent} % when it is hot from "
                f"{policy.hot_percent} % on: want 0 < PELOTON_QOS_TARGET_PERCENT < PELOTON_QOS_HOT_PERCENT"
            )
        if self.period_s <= 0 or policy.sample_count < 1:
            raise InvalidArgument("PELOTON_QOS_PERIOD_S must be above 0 and PELOTON_QOS_SAMPLES at least 1")


@dataclass(frozen=True, slots=True)
class _Look:
    host: RegisteredHost
    use: HostUse

    @property
    def load(self) -> HostLoad:
        return load_of(self.host, self.use)


def load_of(host: RegisteredHost, use: HostUse) -> HostLoad:
    """Pods of others count on both sides: with what they use, and with what they hold."""
    machine = host.capacity + host.beside
    total, held = Use(machine.cpu_milli, machine.memory_mib), host.revocable_held.cpu_milli
    return HostLoad(host.hostname, total, use.total(), host.revocable.cpu_milli, held)


class QosController:
    """One thread, beside a running host manager."""

    def __init__(
        self,
        settings: QosSettings,
        core: HostManagerCore,
        pods: HostPods,
        evictor: Evictor,
        lifecycles: Lifecycles,
    ) -> None:
        self._settings = settings
        self._is_enabled = settings.enabled and core.driver.capabilities.measures_use
        self._core = core
        self._pool = core.pool
        self._pods = pods
        self._evictor = evictor
        self._lifecycles = lifecycles
        self._uses: dict[Hostname, HostUse] = {}
        self._watches: dict[Hostname, HostWatch] = {}
        self._stays: dict[Hostname, int] = {}  # corrected host -> cpu_milli of the pods that stay
        self._last: Hostname = Hostname("")
        self._meter = QosMeter(self._pool)
        self._threads = ThreadPoolExecutor(MEASURED_AT_ONCE, thread_name_prefix="host statistics")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="qos controller", daemon=True)

    def start(self) -> None:
        if self._is_enabled:
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._is_enabled:
            self._thread.join()
        self._threads.shutdown(cancel_futures=True)

    def uses(self) -> dict[Hostname, Use]:
        """The use of the hosts that are measured at present."""
        return {hostname: use.total() for hostname, use in self._uses.items()}

    def _run(self) -> None:
        while not self._stopping.wait(self._settings.period_s):
            try:
                self.run_round(time.monotonic())
            except Unavailable as error:
                log.info("%s; hosts are measured again soon", error)
            except Exception:
                if not self._stopping.is_set():
                    log.exception("measuring the hosts failed; it is repeated")

    def run_round(self, now_s: float) -> list[Correction]:
        """Measure the next hosts once, and evict where it is due. Raises Unavailable, OSError, and what storage
        raises."""
        policy = self._settings.policy
        looks = self._look(self._next_hosts())
        for each in looks:
            if each.use.is_news:
                watch = self._watches.get(each.host.hostname, HostWatch())
                self._watches[each.host.hostname] = observe(watch, each.load, policy)
        self._meter.note(self._uses, self._watches, policy)
        made: list[Correction] = []
        for each in looks:
            if len(made) < EVICTED_PODS_MAX:
                made += self._correct(each, now_s)
        self._watches = {name: watch for name, watch in self._watches.items() if not watch.is_idle(now_s)}
        self._stays = {name: held for name, held in self._stays.items() if name in self._watches}
        self._close_hosts(now_s)
        return made

    def _close_hosts(self, now_s: float) -> None:
        closed = {name: held for name, held in self._stays.items() if self._watches[name].is_closed(now_s)}
        self._lifecycles.jobs_changed(self._pool.close_to_revocable(closed), "a host takes revocable pods again")

    def _next_hosts(self) -> list[RegisteredHost]:
        """A bounded number of hosts with revocable pods, round robin."""
        hosts = self._pool.revocable_holders()
        names = {host.hostname for host in hosts}
        self._uses = {name: use for name, use in self._uses.items() if name in names}
        chosen = in_turn(hosts, self._last, HOSTS_PER_ROUND_MAX)
        if chosen:
            self._last = chosen[-1].hostname
        return chosen

    def _look(self, hosts: Sequence[RegisteredHost]) -> list[_Look]:
        """Hosts that do not answer are left out."""

        def ask(host: RegisteredHost) -> _Look | None:
            try:
                samples = self._core.driver.samples_of(host.hostname)
                return _Look(host, next_use(self._uses.get(host.hostname, HostUse()), samples))
            except (OSError, ValueError) as error:
                log.info("no statistics of host %s: %r", host.hostname, error)
                return None

        looks = [found for found in self._threads.map(ask, hosts) if found is not None]
        self._uses = self._uses | {found.host.hostname: found.use for found in looks}  # others read it meanwhile
        return looks

    def _correct(self, found: _Look, now_s: float) -> tuple[Correction, ...]:
        policy, hostname = self._settings.policy, found.host.hostname
        watch = self._watches.get(hostname, HostWatch())
        if not is_due(watch, policy):
            return ()
        uses = found.use.pods()
        rows = self._pods.revocable(list(uses))
        pods = [
            RevocablePod(r.pod_id, r.priority, r.started_ns, needed(r.asked).cpu_milli, uses[r.pod_id], r.is_leaving)
            for r in rows
        ]
        made = corrections(watch, found.load, pods, policy)
        if not made:
            return ()
        leaving = {each.pod_id for each in made} | {pod.pod_id for pod in pods if pod.is_leaving}
        self._watches[hostname] = after(watch, made, now_s, policy)
        self._stays[hostname] = sum(pod.held for pod in pods if pod.pod_id not in leaving)
        self._close_hosts(now_s)  # before evicting, or the resource manager would admit the pods there again
        try:
            evicted = self._evictor.evict([(each.pod_id, each.why) for each in made])
        except BaseException:
            self._watches[hostname] = watch
            raise
        self._meter.evicted(made)
        log.info("%d of %d pods evicted: %s", evicted, len(made), eviction_text(made[0].why))
        with suppress(Unavailable):  # else the job's workflow does it a little later
            for job_id in dict.fromkeys(each.pod_id.job_id for each in made):
                self._core.kill_running(job_id)
        return made


def in_turn(hosts: Sequence[RegisteredHost], last: Hostname, limit: int) -> list[RegisteredHost]:
    """The next hosts by name after ``last``, round robin."""
    begin = bisect_right(hosts, last, key=lambda host: host.hostname)
    return [*hosts[begin:], *hosts[:begin]][:limit]


class QosMeter:
    """``peloton.hosts.used`` by kind over hosts on which revocable pods run, ``peloton.hosts.slack`` and
    ``peloton.hosts.slack_held`` over all hosts, in cores and MiB; ``peloton.qos.hot_hosts``; ``peloton.qos.evicted``
    in pods by cause."""

    def __init__(self, pool: HostPool, meter: Meter | None = None) -> None:
        self._pool = pool
        self._used = Use()
        self._hot_count = 0
        meter = meter or metrics.get_meter("peloton.hostmgr")
        meter.create_observable_gauge("peloton.hosts.used", [self._read_used])
        meter.create_observable_gauge("peloton.hosts.slack", [self._read_slack])
        meter.create_observable_gauge("peloton.hosts.slack_held", [self._read_held])
        meter.create_observable_gauge("peloton.qos.hot_hosts", [lambda _: [Observation(self._hot_count)]])
        self._evicted = meter.create_counter("peloton.qos.evicted")

    def note(self, uses: dict[Hostname, HostUse], watches: dict[Hostname, HostWatch], policy: QosPolicy) -> None:
        totals = [use.total() for use in uses.values()]
        self._used = Use(sum(use.cpu_milli for use in totals), sum(use.memory_mib for use in totals))
        self._hot_count = sum(watch.hot_count >= policy.sample_count for watch in watches.values())

    def evicted(self, made: Sequence[Correction]) -> None:
        counts: Counter[QosRule] = Counter(each.why.rule for each in made)
        for cause, count in counts.items():
            self._evicted.add(count, {"cause": cause.value})

    def _read_used(self, _: CallbackOptions) -> list[Observation]:
        cpu, memory = self._used.cpu_milli / 1000, self._used.memory_mib
        return [Observation(cpu, {"kind": "cpu"}), Observation(memory, {"kind": "memory"})]

    def _read_slack(self, _: CallbackOptions) -> list[Observation]:
        return [Observation(self._pool.slack()[0] / 1000)]

    def _read_held(self, _: CallbackOptions) -> list[Observation]:
        return [Observation(self._pool.slack()[1] / 1000)]
