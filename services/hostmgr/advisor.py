"""The host advisor: marks hosts by their resource use, and services by the latencies that their pods report.
``peloton.scheduling.advice`` decides. A new leader starts without marks, and has them again after a few samples."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import grpc

from peloton.api.convert_time import rfc3339
from peloton.api.v0.advice import advice_pb2 as pb
from peloton.api.v0.advice import advice_pb2_grpc
from peloton.errors import InvalidArgument
from peloton.lifecycle.latency import latency_bounds
from peloton.model.advice import HostMark, Mark, ServiceMark
from peloton.model.ids import Hostname, JobId
from peloton.model.job import JobRecord, JobType
from peloton.scheduling.advice import (
    AdvicePolicy,
    MarkWatch,
    Measure,
    host_measures,
    mark_text,
    observe,
    service_measures,
)
from services.hostmgr.host_samples import HostSample
from services.hostmgr.latency_reports import LatencyReports

log = logging.getLogger(__name__)
T = TypeVar("T", Hostname, JobId)

JOB_AGE_MAX_S = 60.0
"""Maximum age in seconds of the cached labels of a job."""
OnMarked = Callable[[Hostname, Mark, Mark, str], None]
"""A host, its mark, the previous mark, and the reason."""
_MARKS = {pb.Mark.Value(f"MARK_{mark}"): mark for mark in Mark}
_NUMBERS = {mark: number for number, mark in _MARKS.items()}


class Jobs(Protocol):
    def get_many(self, job_ids: Iterable[JobId]) -> list[JobRecord]: ...


@dataclass(frozen=True)
class AdvisorSettings:
    policy: AdvicePolicy = field(default_factory=AdvicePolicy)


@dataclass(frozen=True, slots=True)
class _Marked:
    watch: MarkWatch = MarkWatch()  # noqa: RUF009
    mark: Mark = Mark.GREEN
    since_ns: int = 0


class HostAdvisor:
    """The advisor; ``HostSamples`` measures hosts for it. Any thread may read the marks."""

    def __init__(
        self,
        settings: AdvisorSettings,
        jobs: Jobs,
        reports: LatencyReports,
        wall_ns: Callable[[], int] = time.time_ns,
        on_marked: OnMarked = lambda *_: None,
    ) -> None:
        """``on_marked`` is called for each host whose mark has changed."""
        self._on_marked = on_marked
        self._policy, self._jobs, self._reports, self._wall_ns = settings.policy, jobs, reports, wall_ns
        self._lock = threading.Lock()
        self._hosts: dict[Hostname, _Marked] = {}
        self._services: dict[JobId, _Marked] = {}
        self._known_jobs: dict[JobId, tuple[float, JobRecord | None]] = {}  # time of the read, and the record

    def take_samples(self, samples: Sequence[HostSample], known: Collection[Hostname], now_s: float) -> None:
        """Take samples and latency reports. Raises what storage raises."""
        with self._lock:
            self._hosts = {name: marked for name, marked in self._hosts.items() if name in known}
            for each in samples:
                if each.use.is_news or not each.use.counters:
                    self._note_host(each.host.hostname, host_measures(each.load, self._policy), now_s)
        self._take_reports(now_s)

    def _take_reports(self, now_s: float) -> None:
        news, there = self._reports.pop_news(), self._reports.jobs()
        self._known_jobs = {job_id: one for job_id, one in self._known_jobs.items() if job_id in there}
        self._read_jobs(news.keys(), now_s)
        strange = []
        with self._lock:
            self._services = {job_id: marked for job_id, marked in self._services.items() if job_id in there}
            for job_id, by_instance in news.items():
                _, job = self._known_jobs.get(job_id, (now_s, None))
                if job is None or job.type is not JobType.SERVICE:
                    strange.append(job_id)
                    continue
                latencies = [one for instance_id, one in by_instance.items() if instance_id < job.instance_count]
                bounds = latency_bounds(dict(job.labels), self._policy.bounds)
                self._note(self._services, job_id, service_measures(latencies, bounds), now_s)
        for job_id in strange:
            self._reports.forget(job_id)
        if strange:
            log.info("dropped latencies of %d jobs that are not services, the first is %s", len(strange), strange[0])

    def _read_jobs(self, job_ids: Collection[JobId], now_s: float) -> None:
        nothing = float("-inf"), None
        old = [one for one in job_ids if now_s - self._known_jobs.get(one, nothing)[0] >= JOB_AGE_MAX_S]
        if old:
            found = {job.job_id: job for job in self._jobs.get_many(old)}
            self._known_jobs |= {job_id: (now_s, found.get(job_id)) for job_id in old}

    def _note_host(self, hostname: Hostname, measures: Sequence[Measure], now_s: float) -> None:
        before = self._hosts.get(hostname, _Marked())
        self._note(self._hosts, hostname, measures, now_s)
        now = self._hosts[hostname]
        if now.mark is not before.mark:
            self._on_marked(hostname, now.mark, before.mark, mark_text(now.watch, self._policy))

    def _note(self, marked: dict[T, _Marked], name: T, measures: Sequence[Measure], now_s: float) -> None:
        before = marked.get(name)
        watch = observe(before.watch if before else MarkWatch(), measures, now_s, self._policy)
        is_same = before is not None and before.mark is watch.mark
        marked[name] = _Marked(watch, watch.mark, before.since_ns if before and is_same else self._wall_ns())

    def host_marks(self, marks: Collection[Mark] = tuple(Mark)) -> list[HostMark]:
        """Return the measured hosts with one of these marks, by name."""
        return [HostMark(name, *self._words(one)) for name, one in self._chosen(self._hosts, marks)]

    def service_marks(self, marks: Collection[Mark] = tuple(Mark)) -> list[ServiceMark]:
        """Return the reporting services with one of these marks, by id."""
        return [ServiceMark(job_id, *self._words(one)) for job_id, one in self._chosen(self._services, marks)]

    def _chosen(self, marked: Mapping[T, _Marked], marks: Collection[Mark]) -> list[tuple[T, _Marked]]:
        with self._lock:
            chosen = [(name, one) for name, one in marked.items() if one.mark in marks]
        return sorted(chosen, key=lambda one: one[0])

    def _words(self, one: _Marked) -> tuple[Mark, int, str]:
        return one.mark, one.since_ns, mark_text(one.watch, self._policy)


class AdviceServicer(advice_pb2_grpc.AdviceServiceServicer):
    def __init__(self, advisor: HostAdvisor, cluster: str) -> None:
        self._advisor, self._cluster = advisor, cluster

    def Advice(self, request: pb.AdviceRequest, context: grpc.ServicerContext) -> pb.AdviceResponse:
        if unknown := [number for number in request.marks if number not in _MARKS]:
            raise InvalidArgument(f"mark {unknown[0]} is not known")
        wanted = {_MARKS[number] for number in request.marks} or set(Mark)
        return pb.AdviceResponse(
            hosts=[
                pb.HostMark(
                    hostname=one.hostname,
                    mark=_NUMBERS[one.mark],
                    since=rfc3339(one.since_ns),
                    reason=one.reason,
                    cluster=self._cluster,
                )
                for one in self._advisor.host_marks(wanted)
            ],
            services=[
                pb.ServiceMark(
                    job_id=one.job_id,
                    mark=_NUMBERS[one.mark],
                    since=rfc3339(one.since_ns),
                    reason=one.reason,
                    cluster=self._cluster,
                )
                for one in self._advisor.service_marks(wanted)
            ],
        )
