"""Reports measured loads of hosts to the load book."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from peloton.hosts.host_load_cache import HostLoadCache
from peloton.model.ids import Hostname
from peloton.scheduling.qos import beyond_held
from services.hostmgr.host_samples import HOSTS_PER_ROUND_MAX, HostSample

ROUNDS_MIN = 12
"""Limits of rounds, and in ``TURNS_MAX`` of turns over all hosts, after which a host without a sample counts as not
measured."""
TURNS_MAX = 3


class HostLoads:
    """Implements ``SampleReader`` for all hosts: loads of some hosts alone would mislead."""

    def __init__(self, cache: HostLoadCache) -> None:
        self._cache = cache
        self._round = 0
        self._measured: dict[Hostname, int] = {}  # -> the round of the last sample

    def take_samples(self, samples: Sequence[HostSample], known: Collection[Hostname], now_s: float) -> None:
        self._round += 1
        turn = math.ceil(len(known) / (HOSTS_PER_ROUND_MAX // 2))  # either sort of hosts has half of a round or more
        oldest = self._round - max(ROUNDS_MIN, TURNS_MAX * turn)
        news = {each.host.hostname: each for each in samples if each.use.is_news or not each.use.counters}
        self._measured |= dict.fromkeys(news, self._round)
        late = [name for name, measured in self._measured.items() if measured <= oldest or name not in known]
        for name in late:
            del self._measured[name]
        beyond = {name: beyond_held(each.load, each.host.capacity, each.host.free) for name, each in news.items()}
        self._cache.set_measured(beyond, late)
