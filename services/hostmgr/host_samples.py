"""Samples of the resource use of hosts: one thread measures a bounded number at a time, for all readers."""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_right
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from peloton.errors import Unavailable
from peloton.model.ids import Hostname
from peloton.scheduling.qos import HostLoad, Use
from services.hostmgr.driver import RegisteredHost
from services.hostmgr.host_use import HostUse, next_use
from services.hostmgr.manager import HostManagerCore
from services.ticks import ticking

log = logging.getLogger(__name__)

MEASURED_AT_ONCE = 8
HOSTS_PER_ROUND_MAX = 400
"""Limit of hosts per round; the others follow in the next rounds."""


@dataclass(frozen=True, slots=True)
class HostSample:
    host: RegisteredHost
    use: HostUse

    @property
    def load(self) -> HostLoad:
        return load_of(self.host, self.use)

    @property
    def has_revocable(self) -> bool:
        return self.host.revocable_held.cpu_milli > 0


def load_of(host: RegisteredHost, use: HostUse) -> HostLoad:
    """Return the load of a host. External pods count both in the machine's total and in its use."""
    machine = host.capacity + host.held_by_others
    total, held = Use(machine.cpu_milli, machine.memory_mib), host.revocable_held.cpu_milli
    return HostLoad(host.hostname, total, use.total(), host.revocable.cpu_milli, held)


class SampleReader(Protocol):
    def take_samples(self, measured_now: Sequence[HostSample], known: Collection[Hostname], now_s: float) -> None:
        """Take the hosts measured in this round, and the names of all measured hosts that still exist. Raises
        Unavailable, OSError, and what storage raises."""
        ...


class HostSamples:
    """Samples hosts on one thread alongside a running host manager: hosts with revocable pods, and with ``has_all`` all
    others as well."""

    def __init__(
        self, core: HostManagerCore, readers: Sequence[SampleReader], period_s: float, has_all: bool = False
    ) -> None:
        self._core, self._readers, self._period_s, self._has_all = core, readers, period_s, has_all
        self._is_possible = core.driver.capabilities.measures_use
        self._uses: dict[Hostname, HostUse] = {}
        self._last = {True: Hostname(""), False: Hostname("")}  # with revocable pods, and without
        self._threads = ThreadPoolExecutor(MEASURED_AT_ONCE, thread_name_prefix="host statistics")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="host samples", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._threads.shutdown(cancel_futures=True)

    def uses(self) -> dict[Hostname, Use]:
        """Return the use of the hosts that are measured at present."""
        return {hostname: use.total() for hostname, use in self._uses.items()}

    def _run(self) -> None:
        with ticking("host samples", self._period_s) as loop:
            while not self._stopping.wait(self._period_s):
                loop.tick()
                self.run_round()

    def run_round(self) -> None:
        measured_now = self.measure()
        for reader in self._readers:
            try:
                reader.take_samples(measured_now, self._uses.keys(), time.monotonic())
            except Unavailable as error:
                log.info("hosts not sampled, retrying: %s", error)
            except Exception:
                if not self._stopping.is_set():
                    log.exception("evaluation of hosts failed, retrying")

    def measure(self) -> list[HostSample]:
        """Measure the next hosts. Hosts that do not answer are omitted."""
        if not self._is_possible:
            return []

        def ask(host: RegisteredHost) -> HostSample | None:
            try:
                samples = self._core.driver.samples_of(host.hostname)
                return HostSample(host, next_use(self._uses.get(host.hostname, HostUse()), samples))
            except (OSError, ValueError) as error:
                log.info("no statistics of host %s: %r", host.hostname, error)
                return None

        measured_now = [found for found in self._threads.map(ask, self._next_hosts()) if found is not None]
        self._uses = self._uses | {
            found.host.hostname: found.use for found in measured_now
        }  # other threads read it meanwhile
        return measured_now

    def _next_hosts(self) -> list[RegisteredHost]:
        """Return a bounded number of hosts, round robin; half of them with revocable pods and half without, if there
        are many."""
        found = self._core.cache.revocable_holders(with_others=self._has_all)
        names = {host.hostname for host in found}
        self._uses = {name: use for name, use in self._uses.items() if name in names}
        holders = [host for host in found if host.revocable_held.cpu_milli]
        others = [host for host in found if not host.revocable_held.cpu_milli]
        spared = min(len(others), HOSTS_PER_ROUND_MAX // 2)
        chosen = self._in_turn(holders, True, HOSTS_PER_ROUND_MAX - spared)
        return chosen + self._in_turn(others, False, HOSTS_PER_ROUND_MAX - len(chosen))

    def _in_turn(self, hosts: Sequence[RegisteredHost], holds: bool, limit: int) -> list[RegisteredHost]:
        chosen = in_turn(hosts, self._last[holds], limit)
        if chosen:
            self._last[holds] = chosen[-1].hostname
        return chosen


def in_turn(hosts: Sequence[RegisteredHost], last: Hostname, limit: int) -> list[RegisteredHost]:
    """Return the next hosts by name after ``last``, round robin."""
    begin = bisect_right(hosts, last, key=lambda host: host.hostname)
    return [*hosts[begin:], *hosts[:begin]][:limit]
