"""Rebalancing: moves of service pods to other hosts, for three goals in this order:

* ``FREE``: a waiting pod fits on no host. The fewest pods that have to leave a host for it do so; if a host is reserved
  for it, that one.
* ``SPREAD``: pods of jobs that spread over a label go from its fullest domains to others, as far as ``max_skew``
  requires. Then hosts that are far emptier than the mean, as new ones are, take pods from hosts above the mean.
* ``EMPTY``: hosts with few pods, all of which fit on other hosts in use, are emptied. It excludes SPREAD.

Waiting pods that fit keep their resources. A pod does not move if its SLA, its volume or an update under way keeps it;
a constraint that held holds after every move, in whatever order they are made, and no job that spreads gets more skew.
Only for a waiting pod, or a hard bound on skew, does a pod go to a host with a lower score by its preferences.
Equal arguments give equal plans, and plans that are carried out come to rest: a pod that was let in no longer waits;
SPREAD makes jobs more even, and beyond that moves only from above the mean to below it; EMPTY only from a host to
fuller ones.
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
from peloton.model.resources import compute_needed
from peloton.scheduling.relocation import HostNow, Relocation, TargetOrder, total_need
from peloton.scheduling.spread_balancing import balance_spread
from peloton.scheduling.tree import Flags, Ints

WAITING_MAX = 100
"""Limit of the waiting pods that fit on no host for which a plan frees resources."""
HOSTS_TRIED_MAX = 50
"""Limit of the hosts examined for one waiting pod, for one target of SPREAD, or in all for EMPTY."""
SETS_TRIED_MAX = 200
"""Limit of the sets of pods examined on one host."""
SEARCHES_MAX = 100
"""Limit of the searches of new hosts for a set of pods, for one waiting pod."""
MOVES_PER_HOST_MAX = 10
"""Limit of the pods that leave one host for a waiting pod."""
SPREAD_MARGIN = 200
"""A host takes pods by SPREAD as long as its load is this much below the mean, in thousandths."""
EMPTY_LOAD_MAX = 500
"""Hosts above this load, in thousandths, are not emptied."""
CROWDED_LOAD = 900
"""EMPTY fills no host beyond this load, in thousandths."""
NO_JOB = JobId("")
SHARE = 10**6
"""Unit of shares: the whole shortage."""


def plan(hosts: Sequence[HostNow], census: PodCensus, goals: Collection[Goal], moves_max: int) -> RebalancePlan:
    """Return a plan of at most ``moves_max`` moves."""
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
        stuck = self._free_for_waiting(list(self._seat_waiting()), is_wanted=Goal.FREE in goals)
        if Goal.SPREAD in goals:
            self._level_jobs()
            self._fill_emptiest()
        elif Goal.EMPTY in goals:
            self._empty_hosts()
        return RebalancePlan(tuple(self._moves), tuple(stuck), tuple(sorted((+self._staying).items())))

    def _stays(self, pod: PodNow) -> Stays | None:
        return pod.stays or (None if self._grants[pod.pod_id.job_id] > 0 else Stays.SLA)

    def _list_movable(self, at: int) -> list[PodNow]:
        """Return the pods that may move, by name, without pods that are only planned onto the host."""
        pods = [pod for pod in self._hosts.pods[at] if pod.hostname and not self._stays(pod)]
        return sorted(pods, key=lambda pod: pod.pod_id)

    def _carry_out(
        self, pods: Sequence[PodNow], target_rows: Sequence[int], goal: Goal, job_id: JobId = NO_JOB, **details: Any
    ) -> None:
        """Make the moves of one goal on one host, as far as SLAs allow now; the host takes no pods meanwhile."""
        source = self._hosts.at[pods[0].hostname]
        before = self._hosts.load(source)
        self._hosts.close(source)
        for pod, target_row in zip(pods, target_rows, strict=True):
            if self._stays(pod):
                continue
            self._grants[pod.pod_id.job_id] -= 1
            self._left -= 1
            self._hosts.move(pod, target_row)
            why = MoveReason(goal, before, self._hosts.load(target_row), len(pods), job_id, **details)
            self._moves.append(Move(pod.pod_id, pod.hostname, self._hosts.hosts[target_row].hostname, why))

    # Waiting pods.

    def _seat_waiting(self) -> Iterator[tuple[PodNow, int]]:
        """Assign free resources to waiting pods, and yield one pod of each kind that fits on no host, with their
        count."""
        for waiting in self._waiting:
            if waiting.shape.revocable:  # it waits for slack, which no move frees
                continue
            pod = PodNow(PodId(waiting.job_id, 0, 0), Hostname(""), waiting.shape, waiting.labels)
            left = waiting.count
            for at in islice(self._find_hosts_for(pod), left):
                self._put(at, pod)
                left -= 1
            if left:
                yield pod, left

    def _waits(self, one: WaitingPods) -> bool:
        """Return whether the pods wait for any host; pods with resources held on their own host are about to return
        there."""
        target_row = self._hosts.at.get(one.home)
        return target_row is None or not self._hosts.hosts[target_row].has_holds

    def _find_hosts_for(self, pod: PodNow) -> Iterator[int]:
        """Yield hosts that can take one more such pod, one after the other as pods are placed there."""
        if (own := self._find_reserved_host(pod)) is not None and self._hosts.takes(own, pod):
            yield own
        is_full, is_over = np.zeros(len(self._hosts.hosts), np.bool_), False
        while not is_over:
            is_over = True
            may = self._hosts.open_to(pod.shape) & self._hosts.spread.may_come(pod) & ~is_full
            for at in np.flatnonzero(may).tolist():
                while is_over and self._hosts.takes(at, pod):
                    yield at
                    is_over = pod.pod_id.job_id not in self._hosts.spread.jobs  # domains may be lower now
                if not is_over:
                    break
                is_full[at] = True

    def _find_reserved_host(self, pod: PodNow) -> int | None:
        """Return the host that is reserved for one such pod."""
        return self._hosts.reserved.get((pod.pod_id.job_id, pod.shape))

    def _put(self, at: int, pod: PodNow) -> None:
        self._hosts.put(at, pod)
        if at == self._find_reserved_host(pod):
            del self._hosts.reserved[pod.pod_id.job_id, pod.shape]

    def _free_for_waiting(self, waiting: Iterable[tuple[PodNow, int]], is_wanted: bool) -> list[JobId]:
        """Plan moves for waiting pods if ``is_wanted``; return the jobs whose pods still fit on no host."""
        stuck: list[JobId] = []
        searched_for = 0
        for pod, count in waiting:
            while is_wanted and count and self._left and searched_for < WAITING_MAX and self._free_capacity(pod):
                count -= 1
                searched_for += 1
            if count:
                stuck.append(pod.pod_id.job_id)
        return list(dict.fromkeys(stuck))

    def _free_capacity(self, waiting: PodNow) -> bool:
        """Free resources on the host that is reserved for the pod, or else on any."""
        own = self._find_reserved_host(waiting)
        return (own is not None and self._free_capacity_on([own], waiting)) or self._free_capacity_on(
            self._hosts_to_free(waiting), waiting
        )

    def _free_capacity_on(self, hosts: Sequence[int], waiting: PodNow) -> bool:
        """Free resources on the host that the fewest pods have to leave, among equals where the least leaves."""
        best: tuple[tuple[int, int, Hostname], Sequence[PodNow], list[int]] | None = None
        searches = 0
        has_target = cache(lambda shape: bool(self._hosts.open_to(shape).any()))
        for at in hosts:
            most = min(self._left, MOVES_PER_HOST_MAX, len(best[1]) if best else MOVES_PER_HOST_MAX)
            for pods in self._sets_to_leave(at, waiting, most, has_target):
                rank = len(pods), int(total_need(pods).sum()), self._hosts.hosts[at].hostname
                if best and rank >= best[0]:
                    continue
                if not self._would_take(at, pods, waiting):
                    continue
                searches += 1
                if searches > SEARCHES_MAX:
                    break
                if target_rows := self._hosts.find_targets(pods, self._order_fullest_first):
                    best = rank, pods, target_rows
        if best is None:
            return False
        _, leaving, new_rows = best
        source = self._hosts.at[leaving[0].hostname]
        is_reserved = source == self._find_reserved_host(waiting)
        self._carry_out(leaving, new_rows, Goal.FREE, waiting.pod_id.job_id, is_reserved=is_reserved)
        self._put(source, waiting)  # even while an SLA still keeps some of the pods
        return True

    def _hosts_to_free(self, waiting: PodNow) -> list[int]:
        """Return the hosts to examine, the least lack first, in shares of their capacity."""
        hosts = self._hosts
        may = hosts.sources & hosts.openings & hosts.find_allowed(waiting.shape) & hosts.spread.may_come(waiting)
        lack = np.maximum(total_need([waiting]) - hosts.free, 0)
        share = (lack * 10**6 // np.maximum(hosts.capacity, 1)).sum(axis=1)
        may &= (lack <= hosts.capacity).all(axis=1)
        found = [at for at in np.lexsort((np.arange(len(share)), share)).tolist() if may[at]]
        return found[:HOSTS_TRIED_MAX]

    def _sets_to_leave(
        self, at: int, waiting: PodNow, most: int, has_target: Callable[[PodShape], bool]
    ) -> Iterator[tuple[PodNow, ...]]:
        """Yield sets of at most ``most`` pods whose amounts suffice, small ones first.

        After SETS_TRIED_MAX sets it yields the pods that help most.
        """
        lack = np.maximum(total_need([waiting]) - self._hosts.free[at], 0)
        lacking = np.flatnonzero(lack).tolist()
        lacks = lack[lacking].tolist()
        counted = pod_labels_named(waiting.shape.constraint)
        gains: list[tuple[tuple[int, ...], PodNow]] = []  # the part of the lack that each pod covers
        for pod in self._list_movable(at):
            amounts = tuple(compute_needed(pod.shape.resources))
            gain = tuple(min(amounts[kind], want) for kind, want in zip(lacking, lacks, strict=True))
            if (not lacks or any(gain) or not counted.isdisjoint(pod.labels)) and has_target(pod.shape):
                gains.append((gain, pod))
        gains.sort(key=lambda one: (-sum(one[0]), one[1].pod_id))
        tried = 0
        for size in range(_fewest(lacks, [gain for gain, _ in gains]), min(most, len(gains)) + 1):
            for chosen in combinations(gains, size):
                tried += 1
                if tried > SETS_TRIED_MAX:
                    yield from _choose_greedily(lacks, gains, most)
                    return
                if _is_enough(lacks, chosen):
                    yield tuple(pod for _, pod in chosen)

    def _would_take(self, at: int, leaving: Sequence[PodNow], waiting: PodNow) -> bool:
        """Return whether the waiting pod fits by every rule once these pods left, and the remaining pods allow it."""
        if not self._hosts.may_leave(at, leaving):
            return False
        for pod in leaving:
            self._hosts.remove(at, pod)
        fits = self._hosts.takes(at, waiting)
        for pod in leaving:
            self._hosts.put(at, pod)
        return fits

    def _order_fullest_first(self, pod: PodNow, open_to: Flags) -> list[int]:
        """Order hosts by load, the fullest first."""
        return _sort_rows(open_to, -self._hosts.loads())

    # Moves to domains with fewer pods of a job that spreads.

    def _level_jobs(self) -> None:
        for job_id in self._hosts.spread.jobs:
            while self._left and (
                found := balance_spread(self._hosts, job_id, self._sources_of(job_id), HOSTS_TRIED_MAX)
            ):
                pod, target, spread_excess = found
                self._carry_out([pod], [target], Goal.SPREAD, spread_excess=spread_excess)

    def _sources_of(self, job_id: JobId) -> dict[int, list[PodNow]]:
        """Return the hosts that pods of the job may leave, with these pods."""
        hosts = {self._hosts.at[name] for name in self._homes[job_id]}
        own = {at: [pod for pod in self._list_movable(at) if pod.pod_id.job_id == job_id] for at in sorted(hosts)}
        return {at: pods for at, pods in own.items() if pods and self._hosts.sources[at]}

    # Moves onto hosts that are far emptier than the others.

    def _fill_emptiest(self) -> None:
        loads = self._hosts.loads()
        takes = self._hosts.openings
        if not takes.any():
            return
        mean = int(loads[takes].mean())
        for target in _sort_rows(takes & (loads + SPREAD_MARGIN <= mean), loads):
            while self._left and self._hosts.targets[target] and self._hosts.load(target) + SPREAD_MARGIN <= mean:
                if not self._take_from_a_full_one(target, mean):
                    break

    def _take_from_a_full_one(self, target: int, mean: int) -> bool:
        """Move one pod from the fullest host that has a suitable one: the pod by which that host's load falls most."""
        loads = self._hosts.loads()
        for source in _sort_rows(self._hosts.sources & (loads > mean), -loads)[:HOSTS_TRIED_MAX]:
            falls = [(self._hosts.load(source, less=[pod]), pod.pod_id, pod) for pod in self._list_movable(source)]
            for after, _, pod in sorted(falls, key=lambda fall: fall[:2]):
                if after >= loads[source] or pod.shape.strategy is Strategy.PACK_HOST:
                    continue
                if not self._hosts.find_preferred(pod)[target]:
                    continue
                is_below = self._hosts.load(target, more=[pod]) <= mean
                if is_below and self._hosts.may_leave(source, [pod]) and self._hosts.find_targets([pod], _only(target)):
                    self._carry_out([pod], [target], Goal.SPREAD, mean_load=mean)
                    return True
        return False

    # Moves away from hosts that are nearly empty.

    def _empty_hosts(self) -> None:
        loads = self._hosts.loads()
        may = self._hosts.targets & self._hosts.sources & (loads > 0) & (loads <= EMPTY_LOAD_MAX)
        for source in _sort_rows(may, loads)[:HOSTS_TRIED_MAX]:
            pods = self._list_movable(source)
            if not pods or len(pods) > self._left or not self._hosts.sources[source]:
                continue
            if self._hosts.hosts[source].others or len(pods) < len(self._hosts.pods[source]):
                continue
            if not self._hosts.may_leave(source, pods):
                continue
            pods.sort(key=lambda pod: (-int(total_need([pod]).sum()), pod.pod_id))
            if target_rows := self._hosts.find_targets(pods, self._order_fuller_than(source)):
                self._carry_out(pods, target_rows, Goal.EMPTY)

    def _order_fuller_than(self, source: int) -> TargetOrder:
        """Return an order of hosts in use that are fuller than this one, and not crowded by the pod; the fullest
        first."""
        own = self._hosts.load(source)

        def order(pod: PodNow, open_to: Flags) -> list[int]:
            loads = self._hosts.loads()
            is_fuller = (loads > own) | ((loads == own) & (np.arange(len(loads)) > source))
            has_capacity = self._hosts.loads(more=[pod]) <= CROWDED_LOAD
            may = open_to & is_fuller & has_capacity & (loads > 0) & self._hosts.find_preferred(pod)
            return _sort_rows(may, -loads)

        return order


def _sort_rows(chosen: Flags, rank: Ints) -> list[int]:
    """Return the chosen hosts, the lowest rank first, then by name."""
    found = np.flatnonzero(chosen)
    return [int(at) for at in found[np.lexsort((found, rank[found]))]]


def _fewest(lacks: Sequence[int], gains: Sequence[Sequence[int]]) -> int:
    """Return a lower bound of the pods needed, by the pods that cover most of each kind."""
    fewest = 1
    for kind, lack in enumerate(lacks):
        sums = accumulate(sorted((gain[kind] for gain in gains), reverse=True))
        fewest = max(fewest, next((count for count, total in enumerate(sums, 1) if total >= lack), len(gains) + 1))
    return fewest


def _is_enough(lacks: Sequence[int], chosen: Sequence[tuple[Sequence[int], PodNow]]) -> bool:
    return all(sum(gain[kind] for gain, _ in chosen) >= lack for kind, lack in enumerate(lacks))


def _choose_greedily(
    lacks: Sequence[int], gains: Sequence[tuple[Sequence[int], PodNow]], most: int
) -> Iterator[tuple[PodNow, ...]]:
    """Choose pods one by one, each with the largest shares of the remaining lack; yield them if they suffice."""
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
