"""Tells the book how loaded hosts are, by what was measured there."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from peloton.model.ids import Hostname
from peloton.scheduling.qos import beyond_held
from services.hostmgr.host_samples import HOSTS_PER_ROUND_MAX, Look
from services.hostmgr.hosts.load_book import LoadBook

ROUNDS_MIN = 12
"""A host that was not measured in so many rounds, nor in ``TURNS_MAX`` turns of all hosts, counts as not measured."""
TURNS_MAX = 3


class HostLoads:
    """``SampleReader``, of all hosts: loads of some alone would mislead."""

    def __init__(self, book: LoadBook) -> None:
        self._book = book
        self._round = 0
        self._measured: dict[Hostname, int] = {}  # -> in which round

    def take_samples(self, looks: Sequence[Look], known: Collection[Hostname], now_s: float) -> None:
        self._round += 1
        turn = math.ceil(len(known) / (HOSTS_PER_ROUND_MAX // 2))  # hosts of either sort have half of a round at least
        oldest = self._round - max(ROUNDS_MIN, TURNS_MAX * turn)
        news = {each.host.hostname: each for each in looks if each.use.is_news or not each.use.counters}
        self._measured |= dict.fromkeys(news, self._round)
        late = [name for name, measured in self._measured.items() if measured <= oldest or name not in known]
        for name in late:
            del self._measured[name]
        beyond = {name: beyond_held(each.load, each.host.capacity, each.host.free) for name, each in news.items()}
        self._book.measured(beyond, late)
