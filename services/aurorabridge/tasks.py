"""Pods as tasks of Aurora, made while they are encoded: a job of 10,000 pods has tens of thousands of events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import accumulate
from math import ceil
from typing import Any, NamedTuple

from peloton.api.private import bulk_reads_pb2 as reads
from peloton.api.v1alpha.pod.pod_pb2 import PodSpec
from services.aurorabridge.lookup import PodBatch
from services.aurorabridge.mapping.task_config import ports_of, task_config_of
from services.aurorabridge.splice import (
    STOP,
    Spliced,
    begin_list,
    begin_struct,
    encode,
    encode_fields,
    encode_number,
    encode_text,
)
from services.aurorabridge.states import SCHEDULER, schedule_status
from services.aurorabridge.thrift import api

_ASSIGNED = begin_struct(1)
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


class Tasks(Spliced):
    """Runs of pods as ScheduledTasks, which share their configurations and events.

    ``statuses`` are those of the tasks to be shown; empty: all of them.
    """

    def __init__(self, statuses: Collection[int]) -> None:
        self._statuses = frozenset(statuses)
        self._batches: list[tuple[PodBatch, list[int]]] = []
        self._configs: dict[tuple[str, int], _Config] = {}
        self._count = 0

    def add(self, batch: PodBatch) -> None:
        """Add the runs of a batch. Raises Refusal for a state or a spec that Aurora has no words for."""
        wire, shown = batch.wire, []
        known = {state: schedule_status(state) for state in {*wire.state, *(event.state for event in wire.events)}}
        for at, (state, job, number) in enumerate(zip(wire.state, wire.job, wire.spec, strict=True)):
            if not self._statuses or known[state] in self._statuses:
                shown.append(at)
                key = batch.jobs[job].job_id, number
                if key not in self._configs:
                    self._configs[key] = _Config(batch.spec(number), batch.jobs[job])
        self._batches.append((batch, shown))
        self._count += len(shown)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        for run in self._runs(lambda event: event):
            yield api.ScheduledTask(
                assignedTask=api.AssignedTask(
                    taskId=run.task_id,
                    slaveId=run.agent_id or None,
                    slaveHost=run.host,
                    task=run.config.task,
                    assignedPorts=run.config.ports,
                    instanceId=run.instance,
                ),
                status=run.status,
                taskEvents=run.events,
                ancestorId=run.ancestor_id or None,
            )

    def members(self) -> Iterator[bytes]:
        for run in self._runs(encode):
            yield b"".join(
                [
                    _ASSIGNED,
                    encode_text(1, run.task_id),
                    encode_text(2, run.agent_id) if run.agent_id else b"",
                    encode_text(3, run.host),
                    run.config.fields,
                    encode_number(6, run.instance),
                    STOP,
                    encode_number(2, run.status),
                    begin_list(4, len(run.events)),
                    *run.events,
                    encode_text(5, run.ancestor_id) if run.ancestor_id else b"",
                    STOP,
                ]
            )

    def _runs(self, convert: Callable[[Any], Any]) -> Iterator[_Run]:
        """Yield the runs to be shown, with their events converted; equal events are converted once per batch."""
        for batch, shown in self._batches:
            wire, texts = batch.wire, list(batch.wire.texts)
            events = [
                convert(api.TaskEvent(event.time_s * 1_000, schedule_status(event.state), event.message, SCHEDULER))
                for event in wire.events
            ]
            mine, ends = [events[number] for number in wire.event], list(accumulate(wire.event_count))
            names = ("job", "instance", "run", "previous_run", "state", "host", "agent_id", "spec", "event_count")
            columns = [list(getattr(wire, name)) for name in names]
            statuses = {state: schedule_status(state) for state in set(wire.state)}
            for at in shown:
                job, instance, run, previous, state, host, agent, number, count = (column[at] for column in columns)
                pod = f"{batch.jobs[job].job_id}-{instance}-"
                yield _Run(
                    task_id=f"{pod}{run}",
                    ancestor_id=f"{pod}{previous}" if previous else "",
                    instance=instance,
                    status=statuses[state],
                    host=texts[host],
                    agent_id=texts[agent],
                    config=self._configs[batch.jobs[job].job_id, number],
                    events=mine[ends[at] - count : ends[at]],
                )


class _Config:
    """Configuration that tasks share, and the encoded fields of AssignedTask that follow from it."""

    def __init__(self, spec: PodSpec, job: reads.Job) -> None:
        self.task = task_config_of(spec, job.spec)
        self.task.executorConfig = None  # the method returns tasks without it, as its name says
        self.ports = ports_of(spec)
        self.fields = encode_fields(api.AssignedTask(task=self.task, assignedPorts=self.ports))


class _Run(NamedTuple):
    task_id: str
    ancestor_id: str  # "": none
    instance: int
    status: int
    host: str
    agent_id: str
    config: _Config
    events: Sequence[Any]
