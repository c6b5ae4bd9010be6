"""Peloton's OverviewService: merged views of host managers, the resource manager and storage.

A component that does not answer in time is left out, and named in the answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import grpc.aio

from peloton.api import convert
from peloton.api.convert_overview import host_amounts, host_event_kinds, host_event_to_wire, problem_to_wire
from peloton.api.convert_time import rfc3339, rfc3339_seconds
from peloton.api.private import hostmgr_pb2, hostmgr_pb2_grpc, resmgr_pb2, resmgr_pb2_grpc
from peloton.api.v0.explain import explain_pb2, explain_pb2_grpc
from peloton.api.v0.overview import overview_pb2 as pb
from peloton.api.v0.respool import respool_pb2
from peloton.errors import InvalidArgument, NotFound, Reason, Unavailable
from peloton.lifecycle import problems
from peloton.lifecycle.workflow_problems import activity_problems, job_ids_of, merge_activities, temporal_problems
from peloton.model.ids import HOSTMGR_ROLE
from peloton.model.problem import Problem
from peloton.model.respool import pool_paths
from peloton.model.text import shorten
from peloton.model.times import NS_PER_S
from peloton.model.workflow_trouble import FailingActivity, TemporalSnapshot
from services.access.caller import CALLER
from services.access.visible import readable_paths
from services.api.backlog import Bounds
from services.api.calls import Calls
from services.api.channels import AsyncLeaderChannels
from services.api.diagnosis import Diagnosis
from services.api.forward import RESMGR
from services.api.lacking_pools import LackingPools
from services.api.visible_problems import list_visible
from services.rested import REST_PER_QUESTION, Rested
from services.storage.overview import Counts, HostPodRow, LeaseRow
from services.storage.storage import Storage

log = logging.getLogger(__name__)
T = TypeVar("T")


class WatchesTemporal(Protocol):
    @property
    def address(self) -> str: ...

    async def read_snapshot(self) -> TemporalSnapshot:
        """Return the problems that stop workflows; never raises."""
        ...


ASK_S, MAP_S = 1.0, 10.0
"""Timeouts in seconds of a host manager that summarizes its hosts, and of one that lists them all."""
PROBLEMS_TIMEOUT_S, PROBLEMS_AGE_S = 2.0, 10.0
"""Timeout of the resource manager, and minimum age at which its answer is refreshed, in seconds."""
COUNT_S, COUNTS_AGE_S, FINDINGS_AGE_S = 2.0, 5.0, 5.0
"""Wait for counts that are missing, and minimum ages at which counts and findings are refreshed, in seconds."""
REPORTS_AGE_S, REPORT_KEPT_S = 2.0, 15.0
"""Minimum age at which reports of workers are refreshed, and age at which a report is dropped, in seconds."""
HOST_PODS_MAX, HOST_PODS_AGE_S, HOSTS_KEPT = 1_000, 2.0, 100
"""Maximum number of pods in an answer, its minimum age for a refresh in seconds, and number of hosts cached."""
EVENTS_DEFAULT, EVENTS_MAX = 100, 500
"""Default and maximum number of host events in an answer."""


class Counted(NamedTuple):
    counts: Counts
    time_ns: int


class OverviewService:
    def __init__(
        self,
        storage: Storage,
        channels: AsyncLeaderChannels,
        calls: Calls,
        temporal: Mapping[str, object],
        watch: WatchesTemporal | None = None,
        bounds: Bounds | None = None,
        expires_at: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._storage, self._channels, self._calls, self._temporal = storage, channels, calls, temporal
        self._watch = watch
        self._reports = Rested(self._read_reports, REPORTS_AGE_S)
        self._counts = Rested(self._count, COUNTS_AGE_S)
        self._findings = Rested(self._find, FINDINGS_AGE_S)
        self._counting: asyncio.Task[Counted] | None = None
        self._resmgr_problems: tuple[float, list[pb.Problem]] = (float("-inf"), [])  # expiry, problems
        self._lacking = LackingPools()
        read_problems = self._read_workflow_problems
        self._diagnosis = Diagnosis(storage, channels, calls, bounds or Bounds(), read_problems, expires_at)
        self._host_pods: OrderedDict[str, Rested[list[HostPodRow]]] = OrderedDict()

    async def GetDiagnosis(self, request: pb.GetDiagnosisRequest, context: Any) -> pb.GetDiagnosisResponse:
        checks = [
            pb.DiagnosticCheck(name=one.name, result=one.result.value, text=one.text, advice=one.advice)  # type: ignore[arg-type]
            for one in await self._diagnosis.run()
        ]
        return pb.GetDiagnosisResponse(checks=checks, time=time.time_ns() / NS_PER_S)

    # Overview.

    async def GetOverview(self, request: pb.GetOverviewRequest, context: Any) -> pb.GetOverviewResponse:
        clusters = await self._channels.clusters()
        (leases, findings, counted, reported, stuck), described = await asyncio.gather(
            asyncio.gather(
                self._calls.run(self._storage.overview.leases),
                self._calls.run(self._findings.get),
                self._wait_for_counts(),
                self._read_resmgr_problems(),
                self._read_workflow_problems(),
            ),
            asyncio.gather(*(self._describe(cluster) for cluster in clusters if clusters[cluster])),
        )
        now_s = time.time_ns() / NS_PER_S
        answered = {one.overview.cluster: one for one in described if one is not None}
        roles = [RESMGR, *(HOSTMGR_ROLE + cluster for cluster in clusters)]
        silent = [name for name in clusters if clusters[name] and name not in answered]
        found = [problem_to_wire(one) for one in [*_find_leaderless_roles(roles, leases, now_s), *stuck, *findings]]
        found += [problem_to_wire(problems.silent_problem(name, ASK_S)) for name in silent]
        found += reported
        found += [problem for one in answered.values() for problem in one.problems]
        if (readable := readable_paths(CALLER.get())) is not None:
            found = await self._calls.run(list_visible, found, readable, self._storage)
        found.sort(key=lambda one: -one.severity)
        left_out = sum(one.problems_left_out for one in answered.values())
        return pb.GetOverviewResponse(
            clusters=[
                answered[name].overview if name in answered else pb.ClusterOverview(cluster=name, is_silent=True)
                for name in clusters
            ],
            jobs={state.value: count for state, count in counted.counts.jobs.items()},
            pods={state.value: count for state, count in counted.counts.pods.items()},
            counted_time=rfc3339_seconds(counted.time_ns),
            roles=_roles(roles, leases, now_s),
            temporal_address=str(self._temporal.get("target_host", "")),
            temporal_namespace=str(self._temporal.get("namespace", "")),
            problems=found[: problems.PROBLEMS_MAX],
            problems_left_out=max(len(found) - problems.PROBLEMS_MAX, 0) + left_out,
        )

    async def _describe(self, cluster: str) -> hostmgr_pb2.DescribeClusterResponse | None:
        """Describe a cluster; None if its host manager does not answer."""

        async def ask() -> hostmgr_pb2.DescribeClusterResponse:
            stub: Any = hostmgr_pb2_grpc.ViewsStub(await self._channels.to_cluster(cluster))
            answer: hostmgr_pb2.DescribeClusterResponse = await stub.DescribeCluster(
                hostmgr_pb2.DescribeClusterRequest(), timeout=ASK_S
            )
            return answer

        return await _answer_or_none(ask(), f"the host manager of cluster {cluster}")

    async def _wait_for_counts(self) -> Counted:
        """Return the latest counts, without waiting long for the first count of a large installation."""
        counting = self._counting
        if counting is None or counting.done():
            counting = self._counting = asyncio.create_task(self._calls.run(self._counts.get))
            counting.add_done_callback(lambda task: task.cancelled() or task.exception())  # retrieved
        done, _ = await asyncio.wait({counting}, timeout=COUNT_S)
        return counting.result() if done else Counted(Counts(), 0)

    def _count(self) -> Counted:
        now_ns = time.time_ns()
        return Counted(self._storage.overview.counts(), now_ns)

    def _find(self) -> list[Problem]:
        volumes, total = self._storage.overview.list_lost_volumes()
        return [
            *problems.report_lockdowns(self._storage.lockdowns.read_locked()),
            *problems.report_lost_volumes(
                volumes, total, self._storage.overview.job_names(one.job_id for one in volumes)
            ),
            *problems.stuck_updates(*self._storage.overview.stuck_updates()),
        ]

    async def _read_workflow_problems(self) -> list[Problem]:
        snapshot = await self._watch.read_snapshot() if self._watch is not None else TemporalSnapshot()
        activities, total = await self._calls.run(self._reports.get)
        named = job_ids_of(snapshot, activities)
        names = await self._calls.run(self._storage.overview.job_names, named) if named else {}
        address = self._watch.address if self._watch is not None else ""
        return [*temporal_problems(snapshot, address, names), *activity_problems(activities, total, names)]

    def _read_reports(self) -> tuple[list[FailingActivity], int]:
        """Return the failing activities reported by workers, and their number; of duplicates the later attempt
        counts."""
        reports, total = self._storage.activity_reports.since(time.time_ns() - int(REPORT_KEPT_S * NS_PER_S))
        merged = merge_activities(reports)
        return merged[: problems.NAMED_MAX], max(total - sum(map(len, reports)), 0) + len(merged)

    async def _read_resmgr_problems(self) -> list[pb.Problem]:
        """Return the resource manager's problems, cached for a while; empty without a leader."""
        began_s = time.monotonic()
        good_until_s, known = self._resmgr_problems
        if began_s < good_until_s:
            return known
        self._resmgr_problems = began_s + PROBLEMS_TIMEOUT_S, known  # others use the last answer meanwhile
        try:
            channel = await self._channels.to(RESMGR)
        except Unavailable:
            return []
        pools: Any = explain_pb2_grpc.ExplainServiceStub(channel)
        own: Any = resmgr_pb2_grpc.ProblemsStub(channel)
        request = explain_pb2.PoolWhyRequest(path=respool_pb2.ResourcePoolPath(value="/"))
        answer, reported = await asyncio.gather(
            _answer_or_none(pools.PoolWhy(request, timeout=PROBLEMS_TIMEOUT_S), "the resource manager"),
            _answer_or_none(
                own.FindProblems(resmgr_pb2.FindProblemsRequest(), timeout=PROBLEMS_TIMEOUT_S), "the resource manager"
            ),
        )
        ended_s = time.monotonic()
        if answer is None:
            found = [problem_to_wire(problems.resmgr_problem(PROBLEMS_TIMEOUT_S))]
        else:
            found_heads = problems.hopeless_gangs(_list_hopeless(answer), answer.jobNames)
            heads = [*found_heads, *self._lacking.find(answer, ended_s, time.time_ns())]
            found = [problem_to_wire(one) for one in heads]
        found += reported.problems if reported is not None else []
        self._resmgr_problems = ended_s + max(PROBLEMS_AGE_S, REST_PER_QUESTION * (ended_s - began_s)), found
        return found

    # Hosts.

    async def GetHostMap(self, request: pb.GetHostMapRequest, context: Any) -> pb.GetHostMapResponse:
        clusters = await self._channels.clusters()

        async def ask(cluster: str) -> pb.HostMap:
            stub: Any = hostmgr_pb2_grpc.ViewsStub(await self._channels.to_cluster(cluster))
            known = hostmgr_pb2.MapHostsRequest(known_version=request.known_versions.get(cluster, ""))
            timeout_s = min(context.time_remaining() or MAP_S, MAP_S)
            answer: pb.HostMap = await stub.MapHosts(known, timeout=timeout_s)
            return answer

        asked = [_answer_or_none(ask(cluster), f"the host manager of cluster {cluster}") for cluster in clusters]
        found = dict(zip(clusters, await asyncio.gather(*asked), strict=True))
        silent = [cluster for cluster, answer in found.items() if answer is None]
        return pb.GetHostMapResponse(maps=filter(None, found.values()), silent_clusters=silent)

    async def GetHostPods(self, request: pb.GetHostPodsRequest, context: Any) -> pb.GetHostPodsResponse:
        hostname = request.hostname
        if not hostname:
            raise InvalidArgument("no host is named")
        read = partial(self._storage.overview.pods_on, hostname, HOST_PODS_MAX + 1)
        rested = self._host_pods.setdefault(hostname, Rested(read, HOST_PODS_AGE_S))
        self._host_pods.move_to_end(hostname)
        while len(self._host_pods) > HOSTS_KEPT:
            self._host_pods.popitem(last=False)
        found = await self._calls.run(rested.get)
        if not found and not await self._calls.run(self._storage.hosts.clusters_of, [hostname]):
            raise NotFound(f"host {shorten(hostname)} not found").because(Reason.HOST_NOT_FOUND, host=hostname)
        paths = pool_paths(await self._calls.run(self._storage.pools.specs)) if found else {}
        pods = sorted(found[:HOST_PODS_MAX], key=lambda pod: (paths.get(pod.respool_id, ""), -pod.priority, pod.pod_id))
        return pb.GetHostPodsResponse(
            pods=[_host_pod(pod, paths.get(pod.respool_id, "")) for pod in pods], has_more=len(found) > HOST_PODS_MAX
        )

    async def ListHostEvents(self, request: pb.ListHostEventsRequest, context: Any) -> pb.ListHostEventsResponse:
        kinds = host_event_kinds(request.kinds)
        if request.limit > EVENTS_MAX:
            raise InvalidArgument(f"{request.limit} events in one answer, the limit is {EVENTS_MAX}")
        if request.before < 0 or request.after < 0:
            raise InvalidArgument(f"before {request.before} and after {request.after}: numbers of events rise from 1")
        limit = request.limit or EVENTS_DEFAULT
        asked = request.hostname, kinds, request.before, request.after, limit + 1
        found = await self._calls.run(self._storage.host_events.page, *asked)
        events = [host_event_to_wire(event) for event in found[:limit]]
        return pb.ListHostEventsResponse(events=events, has_more=len(found) > limit)


async def _answer_or_none(question: Awaitable[T], whom: str) -> T | None:
    """Return the answer, or None on a timeout or an error."""
    try:
        return await question
    except (Unavailable, grpc.aio.AioRpcError) as error:
        log.debug("%s does not answer: %s", whom, error)
        return None


def _find_leaderless_roles(roles: Sequence[str], leases: Sequence[LeaseRow], now_s: float) -> list[Problem]:
    expiry = {lease.role: lease.expires_s for lease in leases}
    return [
        problems.role_problem(role, now_s - expiry[role] if role in expiry else None)
        for role in roles
        if expiry.get(role, 0.0) <= now_s
    ]


def _roles(roles: Sequence[str], leases: Sequence[LeaseRow], now_s: float) -> list[pb.RoleLease]:
    """List the leases of all roles, including roles that never had a leader."""
    known = {lease.role: lease for lease in leases}
    found = []
    for role in sorted({*roles, *known}):
        lease = known.get(role, LeaseRow(role, "", now_s))
        left_s = lease.expires_s - now_s
        found.append(
            pb.RoleLease(role=role, address=lease.address if left_s > 0 else "", seconds_left=round(left_s, 3))
        )
    return found


def _list_hopeless(answer: explain_pb2.PoolWhyResponse) -> list[tuple[str, str, int, str]]:
    return [
        (queue.poolPath, queue.head.jobId.value, queue.head.gangCount, queue.head.reason.text)
        for queue in answer.queues
        if queue.head.reason.isFinal
    ]


def _host_pod(pod: HostPodRow, path: str) -> pb.HostPod:
    return pb.HostPod(
        pod_id=str(pod.pod_id),
        job_id=pod.pod_id.job_id,
        job_name=pod.job_name,
        job_type=convert.JOB_TYPE_NUMBERS[pod.job_type],
        pool_path=path,
        instance_id=pod.pod_id.instance_id,
        priority=pod.priority,
        state=convert.POD_STATE_NUMBERS[pod.state],  # type: ignore[arg-type]
        since=rfc3339(pod.started_ns),
        asked=host_amounts(pod.asked),
        is_revocable=pod.is_revocable,
        is_preemptible=pod.is_preemptible,
        workload=pod.workload.value,
        has_volume=pod.has_volume,
        is_leaving=pod.is_leaving,
    )
