"""The QoS controller: monitors hosts with revocable pods, and evicts pods that overload a host or exceed its slack.
``peloton.scheduling.qos`` decides, and the resource manager evicts."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from peloton.lifecycle.reason_text import eviction_text
from peloton.model.ids import Hostname
from peloton.model.reason import QosRule
from peloton.model.resources import compute_needed
from peloton.ports import Evictor, Lifecycles
from peloton.scheduling.qos import (
    Correction,
    HostWatch,
    QosPolicy,
    RevocablePod,
    Use,
    after,
    corrections,
    is_due,
    observe,
)
from services.hostmgr.host_samples import HostSample
from services.hostmgr.host_use import HostUse
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.manager import HostManagerCore
from services.storage.pods.host_pods import HostPods
from services.telemetry.metrics import counter, register_gauge

log = logging.getLogger(__name__)

EVICTED_PODS_MAX = 200
"""Limit per round."""


@dataclass(frozen=True)
class QosSettings:
    enabled: bool = True
    period_s: float = 5.0
    policy: QosPolicy = field(default_factory=QosPolicy)


class QosController:
    """The controller; ``HostSamples`` measures hosts for it."""

    def __init__(
        self,
        settings: QosSettings,
        core: HostManagerCore,
        pods: HostPods,
        evictor: Evictor,
        lifecycles: Lifecycles,
    ) -> None:
        self._settings = settings
        self._core = core
        self._cache = core.cache
        self._pods = pods
        self._evictor = evictor
        self._lifecycles = lifecycles
        self._uses: dict[Hostname, HostUse] = {}
        self._watches: dict[Hostname, HostWatch] = {}
        self._stays: dict[Hostname, int] = {}  # corrected host -> cpu_milli of the remaining pods
        self._meter = QosMeter(self._cache)

    def take_samples(self, samples: Sequence[HostSample], known: Collection[Hostname], now_s: float) -> None:
        if self._settings.enabled:
            self.run_round(samples, now_s)

    def run_round(self, measured: Sequence[HostSample], now_s: float) -> list[Correction]:
        """Evaluate newly measured hosts, and evict where due. Raises Unavailable, OSError, and what storage
        raises."""
        policy = self._settings.policy
        samples = [each for each in measured if each.has_revocable]
        holders = {host.hostname for host in self._cache.revocable_holders()}
        uses = self._uses | {each.host.hostname: each.use for each in samples}
        self._uses = {name: use for name, use in uses.items() if name in holders}
        for each in samples:
            if each.use.is_news:
                watch = self._watches.get(each.host.hostname, HostWatch())
                self._watches[each.host.hostname] = observe(watch, each.load, policy)
        self._meter.note(self._uses, self._watches, policy)
        made: list[Correction] = []
        for each in samples:
            if len(made) < EVICTED_PODS_MAX:
                made += self._correct(each, now_s)
        self._watches = {name: watch for name, watch in self._watches.items() if not watch.is_idle(now_s)}
        self._stays = {name: held for name, held in self._stays.items() if name in self._watches}
        self._close_hosts(now_s)
        return made

    def _close_hosts(self, now_s: float) -> None:
        closed = {name: held for name, held in self._stays.items() if self._watches[name].is_closed(now_s)}
        self._lifecycles.jobs_changed(self._cache.close_to_revocable(closed), "a host takes revocable pods again")

    def _correct(self, found: HostSample, now_s: float) -> tuple[Correction, ...]:
        policy, hostname = self._settings.policy, found.host.hostname
        watch = self._watches.get(hostname, HostWatch())
        if not is_due(watch, policy):
            return ()
        uses = found.use.pods()
        rows = self._pods.revocable(list(uses))
        pods = [
            RevocablePod(
                r.pod_id, r.priority, r.started_ns, compute_needed(r.asked).cpu_milli, uses[r.pod_id], r.is_leaving
            )
            for r in rows
        ]
        made = corrections(watch, found.load, pods, policy)
        if not made:
            return ()
        leaving = {each.pod_id for each in made} | {pod.pod_id for pod in pods if pod.is_leaving}
        self._watches[hostname] = after(watch, made, now_s, policy)
        self._stays[hostname] = sum(pod.held for pod in pods if pod.pod_id not in leaving)
        self._close_hosts(now_s)  # before the eviction, or the resource manager would admit the pods there again
        try:
            evicted = self._evictor.evict([(each.pod_id, each.why) for each in made])
        except BaseException:
            self._watches[hostname] = watch
            raise
        self._meter.record_evicted(made)
        log.info("evicted %d of %d pods: %s", evicted, len(made), eviction_text(made[0].why))
        self._core.kill_evicted(each.pod_id.job_id for each in made)
        return made


class QosMeter:
    """The metrics of slack and of evictions from hot hosts."""

    def __init__(self, cache: HostCache, meter: Meter | None = None) -> None:
        self._cache = cache
        self._used = Use()
        self._hot_count = 0
        register_gauge("peloton.hosts.used", self._read_used, meter)
        register_gauge("peloton.hosts.slack", self._read_slack, meter)
        register_gauge("peloton.hosts.slack_held", self._read_held, meter)
        register_gauge("peloton.qos.hot_hosts", lambda _: [Observation(self._hot_count)], meter)
        self._evicted = counter("peloton.qos.evicted", meter)

    def note(self, uses: dict[Hostname, HostUse], watches: dict[Hostname, HostWatch], policy: QosPolicy) -> None:
        totals = [use.total() for use in uses.values()]
        self._used = Use(sum(use.cpu_milli for use in totals), sum(use.memory_mib for use in totals))
        self._hot_count = sum(watch.hot_count >= policy.sample_count for watch in watches.values())

    def record_evicted(self, made: Sequence[Correction]) -> None:
        counts: Counter[QosRule] = Counter(each.why.rule for each in made)
        for cause, count in counts.items():
            self._evicted.add(count, {"cause": cause.value})

    def _read_used(self, _: CallbackOptions) -> list[Observation]:
        cpu, memory = self._used.cpu_milli / 1000, self._used.memory_mib
        return [Observation(cpu, {"kind": "cpu"}), Observation(memory, {"kind": "memory"})]

    def _read_slack(self, _: CallbackOptions) -> list[Observation]:
        return [Observation(self._cache.sums.slack()[0] / 1000)]

    def _read_held(self, _: CallbackOptions) -> list[Observation]:
        return [Observation(self._cache.sums.slack()[1] / 1000)]
