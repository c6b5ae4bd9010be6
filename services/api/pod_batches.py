"""Batches of pods for BulkReads: equal specs, texts and events are sent once, and runs refer to them by number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, TypeVar

from google.protobuf.message import Message

from peloton.api import convert, convert_v1
from peloton.api.convert_v1_spec import pod_spec
from peloton.api.merge import effective_task_config, merge_config
from peloton.api.private import bulk_reads_pb2 as reads
from peloton.api.v0.job import job_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.model.ids import JobId
from peloton.model.times import NS_PER_S
from services.storage.bulk_reads import Columns, EventRow, PodRow, Runs
from services.storage.jobs.configs import Configs

K = TypeVar("K")

EVENTS_PER_RUN_MAX = 100
"""Number of events of a run that are sent, the newest ones."""

_TIME, _STATE, _MESSAGE = map(EventRow._fields.index, ("time_ns", "state", "message"))
_STATES: dict[int, Any] = {
    number: convert_v1.POD_STATE_NUMBERS[state.public] for number, state in convert.POD_STATES.items()
}
"""Number of a stored state -> number of the state that clients see."""


class PodBatches:
    """Maker of the batches of one stream; ``jobs`` has the index of each job in the request."""

    def __init__(self, configs: Configs, jobs: Mapping[JobId, int]) -> None:
        self._jobs, self._specs = jobs, SpecNumbers(configs)

    def of_pods(self, pods: Sequence[PodRow]) -> reads.ListPodsResponse:
        """Return current runs, without events."""
        return self._batch([(pod, pod, ()) for pod in pods])

    def of_runs(self, pods: Sequence[PodRow], runs: Runs) -> reads.ListPodsResponse:
        """Return the runs that have events, each in the state of its newest event."""
        found = ((pod, events) for pod in pods for events in reversed(runs.get((pod.job_id, pod.instance_id), ())))
        return self._batch([(pod, EventRow(*events[-1]), events[-EVENTS_PER_RUN_MAX:]) for pod, events in found])

    def _batch(self, runs: Sequence[tuple[PodRow, PodRow | EventRow, Sequence[Columns]]]) -> reads.ListPodsResponse:
        versions = [pod.config_version if pod.run_id == last.run_id else last.config_version for pod, last, _ in runs]
        self._specs.load({(pod.job_id, version) for (pod, _, _), version in zip(runs, versions, strict=True)})
        texts, events = _Numbers[str](), _Numbers[tuple[int, int, str]]()
        batch = reads.ListPodsResponse(
            job=[self._jobs[pod.job_id] for pod, _, _ in runs],
            instance=[pod.instance_id for pod, _, _ in runs],
            run=[last.run_id for _, last, _ in runs],
            previous_run=[last.prev_run_id for _, last, _ in runs],
            state=[_STATES[last.state] for _, last, _ in runs],
            host=[texts[last.host] for _, last, _ in runs],
            agent_id=[texts[last.agent_id] for _, last, _ in runs],
            config_version=versions,
            spec=[
                self._specs.number(pod.job_id, version, pod.instance_id)
                for (pod, _, _), version in zip(runs, versions, strict=True)
            ],
            desired_state=[_STATES[pod.goal] for pod, _, _ in runs],
            event_count=[len(mine) for _, _, mine in runs],
            event=[events[one[_TIME] // NS_PER_S, one[_STATE], one[_MESSAGE]] for _, _, mine in runs for one in mine],
            specs=self._specs.take_new(),
        )
        batch.texts.extend(texts)
        for time_s, state, message in events:
            batch.events.add(time_s=time_s, state=_STATES[state], message=message)
        return batch


class _Numbers(dict[K, int]):
    """Numbers of distinct values, from 0 in the order in which they are first asked for."""

    def __missing__(self, key: K) -> int:
        number = self[key] = len(self)
        return number


class _Version:
    """One configuration version: ``overrides`` has what is set for single instances, ``build`` returns a pod's spec."""

    def __init__(self, overrides: Mapping[int, Message], build: Callable[[int], pod_pb2.PodSpec]) -> None:
        self.overrides, self.build = overrides, build
        self.numbers: dict[bytes, int] = {}  # by serialized override


class SpecNumbers:
    """Numbers of the distinct specs of pods, from 1; 0 for versions that are not stored."""

    def __init__(self, configs: Configs) -> None:
        self._configs = configs
        self._versions: dict[tuple[JobId, int], _Version] = {}
        self._numbers: dict[tuple[JobId, bytes], int] = {}
        self._count = 0
        self._new: list[pod_pb2.PodSpec] = []

    def load(self, versions: Set[tuple[JobId, int]]) -> None:
        """Read the configurations of these jobs and versions, and forget those of other jobs."""
        jobs = {job_id for job_id, _ in versions}
        self._versions = {key: one for key, one in self._versions.items() if key[0] in jobs}
        self._numbers = {key: number for key, number in self._numbers.items() if key[0] in jobs}
        missing = sorted(versions - self._versions.keys())
        specs = self._configs.job_specs(missing)
        for key in missing:
            if sent := specs.get(key):
                self._versions[key] = _of_spec(stateless_pb2.JobSpec.FromString(sent))
            elif key in specs and (config := self._configs.job_config(*key, overrides=True)) is not None:
                self._versions[key] = _of_config(config)

    def number(self, job_id: JobId, version: int, instance_id: int) -> int:
        """Return the number of a pod's spec at a version that has been loaded."""
        found = self._versions.get((job_id, version))
        if found is None:
            return 0
        has_own = instance_id in found.overrides  # reading a missing key of a map of messages creates it
        own = found.overrides[instance_id].SerializeToString(deterministic=True) if has_own else _DEFAULT
        if own not in found.numbers:
            found.numbers[own] = self._number(job_id, found.build(instance_id))
        return found.numbers[own]

    def _number(self, job_id: JobId, spec: pod_pb2.PodSpec) -> int:
        key = (job_id, spec.SerializeToString(deterministic=True))
        if key not in self._numbers:
            self._count += 1
            self._numbers[key] = self._count
            self._new.append(spec)
        return self._numbers[key]

    def take_new(self) -> list[pod_pb2.PodSpec]:
        """Return the specs that have been numbered since the last call."""
        new, self._new = self._new, []
        return new


_DEFAULT = b"\xff"
"""Key of instances without an override: no serialized message."""


def _of_spec(spec: stateless_pb2.JobSpec) -> _Version:
    own = spec.instance_spec
    return _Version(own, lambda i: merge_config(spec.default_spec, own[i]) if i in own else spec.default_spec)


def _of_config(config: job_pb2.JobConfig) -> _Version:
    """Return a version whose client used v0."""
    return _Version(config.instanceConfig, lambda i: pod_spec(effective_task_config(config, i)))
