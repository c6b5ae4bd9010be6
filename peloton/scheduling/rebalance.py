"""Which pods of services to move to other hosts, for three goals in this order:

* ``FREE``: a pod waits that fits nowhere. The fewest pods that have to leave a host for it do so; if a host is reserved
  for it, that one.
* ``SPREAD``: pods of jobs that spread over a label go from its fullest domains to others, as far as ``max_skew`` asks
  for it. Then hosts that are far emptier than the mean, as new ones are, take pods from those above the mean.
* ``EMPTY``: hosts with few pods, all of which fit on other hosts in use, are emptied. It excludes SPREAD.

What waits and fits keeps its room. No pod moves that its SLA, its volume or an update under way keeps; a constraint
that held holds after every move, in whatever order they are made, and no job that spreads gets more skew. Equal
arguments give equal plans, and plans that are carried out come to rest: a pod that is let in waits no more; SPREAD
makes jobs more even, and beyond that moves only from above the mean to below it; EMPTY only from a host to fuller ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, combinations, islice
from typing import Any

import numpy as np

from peloton.lifecycle.constraints import pod_labels_named
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.pod import PodShape, Strategy
from peloton.model.rebalance import Goal, Move, MoveReason, PodCensus, PodNow, RebalancePlan, Stays, WaitingPods
from peloton.model.resources import needed
from peloton.scheduling.evening import more_even
from peloton.scheduling.relocation import HostNow, Relocation, TargetOrder, total_need
from peloton.scheduling.tree import Flags, Ints

WAITING_MAX = 100
"""Waiting pods that fit nowhere for which a plan looks for room."""
HOSTS_TRIED_MAX = 50
"""Hosts that are looked at for one waiting pod, one target of SPREAD, or in all to be emptied."""
SETS_TRIED_MAX = 200
"""Sets of pods that are looked at on one host."""
SEARCHES_MAX = 100
"""Of new hosts for a set of pods, for one waiting pod."""
MOVES_PER_HOST_MAX = 10
"""Pods that leave one host for a pod that waits."""
SPREAD_MARGIN = 200
"""A host takes pods by SPREAD as long as its load is this much below the mean, in thousandths."""
EMPTY_LOAD_MAX = 500
"""Hosts above this load are not emptied."""
CROWDED_LOAD = 900
"""EMPTY fills no host beyond this load."""
NO_JOB = JobId("")
SHARE = 10**6
"""The whole of what is lacking."""


def plan(hosts: Sequence[HostNow], census: PodCensus, goals: Collection[Goal], moves_max: int) -> RebalancePlan:
    """At most ``moves_max`` moves."""
    return _Planner(hosts, census, moves_max).plan(goals)


class _Planner:
    def __init__(self, hosts: Sequence[HostNow], census: PodCensus, moves_max: int) -> None:
        self._hosts = Relocation(hosts, census.pods, census.spread)
        self._grants = Counter(census.grants)
        self._homes: dict[JobId, set[Hostname]] = {job_id: set() for job_id in census.spread}
        for pod in census.pods:
            if pod.pod_id.job_id in self._homes and pod.hostname in self._hosts.at:
                self._homes[pod.pod_id.job_id].add(pod.hostname)
        self._left = moves_max
        self._moves: list[Move] = []
        self._waiting = sorted(filter(self._waits, census.waiting), key=lambda one: (-one.waited_s, one.job_id))
        self._staying = Counter(stays for pod in census.pods if (stays := self._stays(pod)))
        for kept in census.others.values():
            self._staying.update(kept)

    def plan(self, goals: Collection[Goal]) -> RebalancePlan:
        stuck = self._free(list(self._seat()), is_wanted=Goal.FREE in goals)
        if Goal.SPREAD in goals:
            self._even()
            self._spread()
        elif Goal.EMPTY in goals:
            self._empty()
        return RebalancePlan(tuple(self._moves), tuple(stuck), tuple(sorted((+self._staying).items())))

    def _stays(self, pod: PodNow) -> Stays | None:
        return pod.stays or (None if self._grants[pod.pod_id.job_id] > 0 else Stays.SLA)

    def _movable(self, at: int) -> list[PodNow]:
        """By name, without those that only wait for the host."""
        pods = [pod for pod in self._hosts.pods[at] if pod.hostname and not self._stays(pod)]
        return sorted(pods, key=lambda pod: pod.pod_id)

    def _carry_out(
        self, pods: Sequence[PodNow], homes: Sequence[int], goal: Goal, job_id: JobId = NO_JOB, **details: Any
    ) -> None:
        """The moves of one goal on one host, as far as SLAs let the pods go now. It takes no pods meanwhile."""
        source = self._hosts.at[pods[0].hostname]
        before = self._hosts.load(source)
        self._hosts.close(source)
        for pod, home in zip(pods, homes, strict=True):
            if self._stays(pod):
                continue
            self._grants[pod.pod_id.job_id] -= 1
            self._left -= 1
            self._hosts.move(pod, home)
            why = MoveReason(goal, before, self._hosts.load(home), len(pods), job_id, **details)
            self._moves.append(Move(pod.pod_id, pod.hostname, self._hosts.hosts[home].hostname, why))

    # What waits.

    def _seat(self) -> Iterator[tuple[PodNow, int]]:
        """Give what waits the room that there is; what is left over fits nowhere: a pod of each kind, and how many."""
        for waiting in self._waiting:
            if waiting.shape.revocable:  # it waits for slack, which no move makes
                continue
            pod = PodNow(PodId(waiting.job_id, 0, 0), Hostname(""), waiting.shape, waiting.labels)
            left = waiting.count
            for at in islice(self._rooms(pod), left):
                self._put(at, pod)
                left -= 1
            if left:
                yield pod, left

    def _waits(self, one: WaitingPods) -> bool:
        """For any host: not for the room that is held on its own, to which it is on its way."""
        home = self._hosts.at.get(one.home)
        return home is None or not self._hosts.hosts[home].has_holds

    def _rooms(self, pod: PodNow) -> Iterator[int]:
        """Hosts with room for one more such pod, one after the other as pods are put there."""
        if (own := self._own(pod)) is not None and self._hosts.takes(own, pod):
            yield own
        is_full, is_over = np.zeros(len(self._hosts.hosts), np.bool_), False
        while not is_over:
            is_over = True
            may = self._hosts.open_to(pod.shape) & self._hosts.spread.may_come(pod) & ~is_full
            for at in np.flatnonzero(may).tolist():
                while is_over and self._hosts.takes(at, pod):
                    yield at
                    is_over = pod.pod_id.job_id not in self._hosts.spread.jobs  # else others may be lower now
                if not is_over:
                    break
                is_full[at] = True

    def _own(self, pod: PodNow) -> int | None:
        """The host that is reserved for one such pod."""
        return self._hosts.reserved.get((pod.pod_id.job_id, pod.shape))

    def _put(self, at: int, pod: PodNow) -> None:
        self._hosts.put(at, pod)
        if at == self._own(pod):
            del self._hosts.reserved[pod.pod_id.job_id, pod.shape]

    def _free(self, waiting: Iterable[tuple[PodNow, int]], is_wanted: bool) -> list[JobId]:
        """Returns the jobs whose pods are left over."""
        stuck: list[JobId] = []
        looked_for = 0
        for pod, count in waiting:
            while is_wanted and count and self._left and looked_for < WAITING_MAX and self._make_room(pod):
                count -= 1
                looked_for += 1
            if count:
                stuck.append(pod.pod_id.job_id)
        return list(dict.fromkeys(stuck))

    def _make_room(self, waiting: PodNow) -> bool:
        """On the host that is reserved for the pod, or else on any."""
        own = self._own(waiting)
        return (own is not None and self._make_room_on([own], waiting)) or self._make_room_on(
            self._hosts_to_free(waiting), waiting
        )

    def _make_room_on(self, hosts: Sequence[int], waiting: PodNow) -> bool:
        """On the host where the fewest pods have to leave; among equals where the least leaves."""
        best: tuple[tuple[int, int, Hostname], Sequence[PodNow], list[int]] | None = None
        searches = 0
        has_home = cache(lambda shape: bool(self._hosts.open_to(shape).any()))
        for at in hosts:
            most = min(self._left, MOVES_PER_HOST_MAX, len(best[1]) if best else MOVES_PER_HOST_MAX)
            for pods in self._sets_to_leave(at, waiting, most, has_home):
                rank = len(pods), int(total_need(pods).sum()), self._hosts.hosts[at].hostname
                if best and rank >= best[0]:
                    continue
                if not self._lets_in(at, pods, waiting):
                    continue
                searches += 1
                if searches > SEARCHES_MAX:
                    break
                if homes := self._hosts.homes(pods, self._tightest):
                    best = rank, pods, homes
        if best is None:
            return False
        _, leaving, new_homes = best
        source = self._hosts.at[leaving[0].hostname]
        is_reserved = source == self._own(waiting)
        self._carry_out(leaving, new_homes, Goal.FREE, waiting.pod_id.job_id, is_reserved=is_reserved)
        self._put(source, waiting)  # also while an SLA still keeps some of the pods
        return True

    def _hosts_to_free(self, waiting: PodNow) -> list[int]:
        """Those that lack least for the pod first, in units of what they have."""
        hosts = self._hosts
        may = hosts.sources & hosts.openings & hosts.allowed(waiting.shape) & hosts.spread.may_come(waiting)
        lack = np.maximum(total_need([waiting]) - hosts.free, 0)
        share = (lack * 10**6 // np.maximum(hosts.capacity, 1)).sum(axis=1)
        may &= (lack <= hosts.capacity).all(axis=1)
        found = [at for at in np.lexsort((np.arange(len(share)), share)).tolist() if may[at]]
        return found[:HOSTS_TRIED_MAX]

    def _sets_to_leave(
        self, at: int, waiting: PodNow, most: int, has_home: Callable[[PodShape], bool]
    ) -> Iterator[tuple[PodNow, ...]]:
        """Sets of at most so many pods whose leaving gives enough room by the amounts, small ones first. After too many
        sets the pods that help most."""
        lack = np.maximum(total_need([waiting]) - self._hosts.free[at], 0)
        lacking = np.flatnonzero(lack).tolist()
        lacks = lack[lacking].tolist()
        counted = pod_labels_named(waiting.shape.constraint)
        gains: list[tuple[tuple[int, ...], PodNow]] = []  # of what is lacking
        for pod in self._movable(at):
            amounts = tuple(needed(pod.shape.resources))
            gain = tuple(min(amounts[kind], want) for kind, want in zip(lacking, lacks, strict=True))
            if (not lacks or any(gain) or not counted.isdisjoint(pod.labels)) and has_home(pod.shape):
                gains.append((gain, pod))
        gains.sort(key=lambda one: (-sum(one[0]), one[1].pod_id))
        tried = 0
        for size in range(_fewest(lacks, [gain for gain, _ in gains]), min(most, len(gains)) + 1):
            for chosen in combinations(gains, size):
                tried += 1
                if tried > SETS_TRIED_MAX:
                    yield from _greedy(lacks, gains, most)
                    return
                if _is_enough(lacks, chosen):
                    yield tuple(pod for _, pod in chosen)

    def _lets_in(self, at: int, leaving: Sequence[PodNow], waiting: PodNow) -> bool:
        """By every rule, and the pods that stay do not mind."""
        if not self._hosts.may_leave(at, leaving):
            return False
        for pod in leaving:
            self._hosts.remove(at, pod)
        fits = self._hosts.takes(at, waiting)
        for pod in leaving:
            self._hosts.put(at, pod)
        return fits

    def _tightest(self, pod: PodNow, open_to: Flags) -> list[int]:
        """The fullest hosts first."""
        return _ordered(open_to, -self._hosts.loads())

    # To domains with fewer pods of a job that spreads.

    def _even(self) -> None:
        for job_id in self._hosts.spread.jobs:
            while self._left and (found := more_even(self._hosts, job_id, self._sources_of(job_id), HOSTS_TRIED_MAX)):
                pod, target, evening = found
                self._carry_out([pod], [target], Goal.SPREAD, evening=evening)

    def _sources_of(self, job_id: JobId) -> dict[int, list[PodNow]]:
        """Hosts that its pods may leave, with these pods."""
        hosts = {self._hosts.at[name] for name in self._homes[job_id]}
        own = {at: [pod for pod in self._movable(at) if pod.pod_id.job_id == job_id] for at in sorted(hosts)}
        return {at: pods for at, pods in own.items() if pods and self._hosts.sources[at]}

    # Onto hosts that are far emptier than the others.

    def _spread(self) -> None:
        loads = self._hosts.loads()
        takes = self._hosts.openings
        if not takes.any():
            return
        mean = int(loads[takes].mean())
        for target in _ordered(takes & (loads + SPREAD_MARGIN <= mean), loads):
            while self._left and self._hosts.targets[target] and self._hosts.load(target) + SPREAD_MARGIN <= mean:
                if not self._take_from_a_full_one(target, mean):
                    break

    def _take_from_a_full_one(self, target: int, mean: int) -> bool:
        """From the fullest host that has a pod for it, the one by which its load falls most."""
        loads = self._hosts.loads()
        for source in _ordered(self._hosts.sources & (loads > mean), -loads)[:HOSTS_TRIED_MAX]:
            falls = [(self._hosts.load(source, less=[pod]), pod.pod_id, pod) for pod in self._movable(source)]
            for after, _, pod in sorted(falls, key=lambda fall: fall[:2]):
                if after >= loads[source] or pod.shape.strategy is Strategy.PACK_HOST:
                    continue
                is_below = self._hosts.load(target, more=[pod]) <= mean
                if is_below and self._hosts.may_leave(source, [pod]) and self._hosts.homes([pod], _only(target)):
                    self._carry_out([pod], [target], Goal.SPREAD, mean_load=mean)
                    return True
        return False

    # Away from hosts that are nearly empty.

    def _empty(self) -> None:
        loads = self._hosts.loads()
        may = self._hosts.targets & self._hosts.sources & (loads > 0) & (loads <= EMPTY_LOAD_MAX)
        for source in _ordered(may, loads)[:HOSTS_TRIED_MAX]:
            pods = self._movable(source)
            if not pods or len(pods) > self._left or not self._hosts.sources[source]:
                continue
            if self._hosts.hosts[source].others or len(pods) < len(self._hosts.pods[source]):
                continue
            if not self._hosts.may_leave(source, pods):
                continue
            pods.sort(key=lambda pod: (-int(total_need([pod]).sum()), pod.pod_id))
            if homes := self._hosts.homes(pods, self._fuller_than(source)):
                self._carry_out(pods, homes, Goal.EMPTY)

    def _fuller_than(self, source: int) -> TargetOrder:
        """Hosts in use that are fuller than this one, and not crowded by the pod; the fullest first."""
        own = self._hosts.load(source)

        def order(pod: PodNow, open_to: Flags) -> list[int]:
            loads = self._hosts.loads()
            is_fuller = (loads > own) | ((loads == own) & (np.arange(len(loads)) > source))
            has_room = self._hosts.loads(more=[pod]) <= CROWDED_LOAD
            return _ordered(open_to & is_fuller & has_room & (loads > 0), -loads)

        return order


def _ordered(chosen: Flags, rank: Ints) -> list[int]:
    """The chosen hosts, the lowest rank first, and by name."""
    found = np.flatnonzero(chosen)
    return [int(at) for at in found[np.lexsort((found, rank[found]))]]


def _fewest(lacks: Sequence[int], gains: Sequence[Sequence[int]]) -> int:
    """Fewer pods cannot give what is lacking: not even those that give most of one kind."""
    fewest = 1
    for kind, lack in enumerate(lacks):
        sums = accumulate(sorted((gain[kind] for gain in gains), reverse=True))
        fewest = max(fewest, next((count for count, total in enumerate(sums, 1) if total >= lack), len(gains) + 1))
    return fewest


def _is_enough(lacks: Sequence[int], chosen: Sequence[tuple[Sequence[int], PodNow]]) -> bool:
    return all(sum(gain[kind] for gain, _ in chosen) >= lack for kind, lack in enumerate(lacks))


def _greedy(
    lacks: Sequence[int], gains: Sequence[tuple[Sequence[int], PodNow]], most: int
) -> Iterator[tuple[PodNow, ...]]:
    """One after the other that which gives the largest shares of what is still lacking, if that comes to an end."""
    left, rest, chosen = list(lacks), list(gains), list[PodNow]()
    while any(left) and rest and len(chosen) < most:
        shares = [
            sum(min(gives, more) * SHARE // lack for gives, more, lack in zip(gain, left, lacks, strict=True))
            for gain, _ in rest
        ]
        gain, pod = rest.pop(shares.index(max(shares)))
        left = [max(more - gives, 0) for more, gives in zip(left, gain, strict=True)]
        chosen.append(pod)
    if not any(left):
        yield tuple(chosen)


def _only(target: int) -> TargetOrder:
    return lambda _, open_to: [target] if open_to[target] else []
