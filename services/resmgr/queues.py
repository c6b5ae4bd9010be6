"""The waiting gangs of all pools: four sorted queues of runs per pool."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from peloton.model.ids import JobId, RespoolId
from peloton.scheduling.gangs import GangRun, QueueKind
from peloton.scheduling.tree import Ints

PoolQueues = dict[QueueKind, list[GangRun]]


class WaitingRuns:
    """The queues of all pools. Pools and queues without waiting runs have no entry."""

    def __init__(self) -> None:
        self.pools: dict[RespoolId, PoolQueues] = {}

    def push(self, pool_id: RespoolId, run: GangRun) -> None:
        queue = self.pools.setdefault(pool_id, {}).setdefault(run.queue, [])
        if not queue or queue[-1].order < run.order:
            queue.append(run)
        else:
            insort(queue, run, key=_order)

    def take(self, pool_id: RespoolId, kind: QueueKind, taken: Iterable[tuple[GangRun, int]]) -> None:
        """Remove the first gangs of runs, given in the order of their queue."""
        queue = self.pools[pool_id][kind]
        kept: list[GangRun] = []
        at = 0
        for run, count in taken:
            while queue[at] is not run:
                kept.append(queue[at])
                at += 1
            at += 1
            if count < run.gang_count:
                kept.append(replace(run, start=run.start + count * run.gang_size, gang_count=run.gang_count - count))
        queue[:at] = kept
        self._tidy(pool_id)

    def withdraw(self, pool_id: RespoolId, job_id: JobId) -> dict[int, Ints]:
        """Remove all runs of a job; return its sorted instances by queue_seq."""
        spans: dict[int, list[Ints]] = {}
        for queue in self.pools.get(pool_id, {}).values():
            for run in queue:
                if run.job_id == job_id:
                    spans.setdefault(run.queue_seq, []).append(np.arange(run.start, run.start + run.pod_count))
            queue[:] = [run for run in queue if run.job_id != job_id]
        self._tidy(pool_id)
        return {seq: np.sort(np.concatenate(pieces)) for seq, pieces in sorted(spans.items())}

    def widen(self, by: int) -> WaitingRuns:
        """Return the same queues with ``by`` more kinds of resources."""
        wider = WaitingRuns()
        wider.pools = {
            pool_id: {kind: [run.widen(by) for run in queue] for kind, queue in queues.items()}
            for pool_id, queues in self.pools.items()
        }
        return wider

    def of_pool(self, pool_id: RespoolId) -> Iterator[tuple[QueueKind, Sequence[GangRun]]]:
        yield from sorted(self.pools.get(pool_id, {}).items())

    def _tidy(self, pool_id: RespoolId) -> None:
        queues = self.pools.get(pool_id, {})
        for kind in [kind for kind, queue in queues.items() if not queue]:
            del queues[kind]
        if not queues:
            self.pools.pop(pool_id, None)


def _order(run: GangRun) -> tuple[int, int, int]:
    return run.order
