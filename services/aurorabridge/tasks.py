"""Pods as tasks of Aurora, made while they are encoded: a job of 10,000 pods has tens of thousands of events."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from math import ceil
from typing import Any

from peloton.api.private import bulk_reads_pb2 as reads
from peloton.model.ids import JobId, PodId
from services.aurorabridge.lookup import PodBatch
from services.aurorabridge.mapping.task_config import ports_of, task_config_of
from services.aurorabridge.states import schedule_status
from services.aurorabridge.thrift import api

SCHEDULER = "peloton"
RUNS_MAX = 100
"""Number of runs of an instance that role api returns at most."""
RUNS_WANTED = 2
"""Number of runs that are returned of every instance, however many there are, if as many are configured."""


def count_runs(pod_count: int, depth: int, tasks_max: int) -> int:
    """Return how many runs of each instance are read: ``depth`` of few pods, fewer of more than ``tasks_max`` tasks."""
    if not pod_count:
        return 1
    fitting = ceil(min(pod_count * depth, tasks_max) / pod_count)
    return min(max(fitting, min(depth, RUNS_WANTED), 1), RUNS_MAX)


class Tasks(Sequence[Any]):
    """Runs of pods as ScheduledTasks, which share their configurations and events.

    ``statuses`` are those of the tasks to be shown; empty: all of them.
    """

    def __init__(self, statuses: Collection[int]) -> None:
        self._statuses = frozenset(statuses)
        self._batches: list[tuple[PodBatch, list[int]]] = []
        self._configs: dict[tuple[str, int], tuple[Any, Mapping[str, int]]] = {}
        self._count = 0

    def add(self, batch: PodBatch) -> None:
        """Add the runs of a batch. Raises Refusal for a state or a spec that Aurora has no words for."""
        wire, shown = batch.wire, []
        known = {state: schedule_status(state) for state in {*wire.state, *(event.state for event in wire.events)}}
        for at, (state, job, number) in enumerate(zip(wire.state, wire.job, wire.spec, strict=True)):
            if not self._statuses or known[state] in self._statuses:
                shown.append(at)
                self._note_config(batch, batch.jobs[job], number)
        self._batches.append((batch, shown))
        self._count += len(shown)

    def _note_config(self, batch: PodBatch, job: reads.Job, number: int) -> None:
        if (job.job_id, number) not in self._configs:
            spec = batch.spec(number)
            task = task_config_of(spec, job.spec)
            task.executorConfig = None  # the method returns tasks without it, as its name says
            self._configs[job.job_id, number] = task, ports_of(spec)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        for batch, shown in self._batches:
            yield from self._tasks(batch, shown)

    def __getitem__(self, at: Any) -> Any:
        return list(self)[at]

    def _tasks(self, batch: PodBatch, shown: Iterable[int]) -> Iterator[Any]:
        wire, texts = batch.wire, list(batch.wire.texts)
        events = [
            api.TaskEvent(event.time_s * 1_000, schedule_status(event.state), event.message, SCHEDULER)
            for event in wire.events
        ]
        mine, ends = [events[number] for number in wire.event], list(accumulate(wire.event_count))
        names = ("job", "instance", "run", "previous_run", "state", "host", "agent_id", "spec", "event_count")
        columns = [list(getattr(wire, name)) for name in names]
        for at in shown:
            job, instance, run, previous, state, host, agent, number, count = (column[at] for column in columns)
            job_id = JobId(batch.jobs[job].job_id)
            task, ports = self._configs[job_id, number]
            yield api.ScheduledTask(
                assignedTask=api.AssignedTask(
                    taskId=str(PodId(job_id, instance, run)),
                    slaveId=texts[agent] or None,
                    slaveHost=texts[host],
                    task=task,
                    assignedPorts=ports,
                    instanceId=instance,
                ),
                status=schedule_status(state),
                taskEvents=mine[ends[at] - count : ends[at]],
                ancestorId=str(PodId(job_id, instance, previous)) if previous else None,
            )
