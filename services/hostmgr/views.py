"""Views of a host manager's whole cluster: sums and problems, and a map of its hosts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from itertools import repeat

import grpc

from peloton.api.convert_overview import problem_to_wire
from peloton.api.private import hostmgr_pb2 as private
from peloton.api.private import hostmgr_pb2_grpc
from peloton.api.v0.host import host_pb2
from peloton.api.v0.overview import overview_pb2 as pb
from peloton.errors import Unavailable
from peloton.lifecycle import problems
from peloton.lifecycle.reason_text import NO_NAMES, Names
from peloton.model.advice import Mark
from peloton.model.host import HostState
from peloton.model.host_pool import DEFAULT_HOST_POOL
from peloton.model.ids import Hostname
from peloton.model.maintenance import HostMaintenance
from peloton.model.problem import Problem
from peloton.model.resources import RESOURCE_KINDS
from peloton.scheduling.columns import HostColumns, Measured
from peloton.scheduling.qos import Use
from services.hostmgr.advisor import HostAdvisor
from services.hostmgr.hosts.host_views import HostView
from services.hostmgr.manager import HostManagerCore
from services.hostmgr.pod_uses import PodUses
from services.rested import Rested
from services.storage.overview import Overview

Uses = Callable[[], Mapping[Hostname, Use]]

MAP_AGE_S = 1.0
PODS_AGE_S = 5.0
"""Seconds for which maps and counts of pods are cached."""
MAINTAINED, AVOIDED = 1, 2
"""Flags of a host on the map."""
_SCALES = {"cpu": 1_000, "memory": 1, "disk": 1, "gpu": 1_000}
_STATE_NUMBERS = {state: host_pb2.HostState.Value(f"HOST_STATE_{state}") for state in HostState}
_MARK_NUMBERS = {mark: number for number, mark in enumerate(Mark, 1)}
"""Numbers as in ``advice.Mark``."""


class ClusterViews:
    """Cached views of the cluster. Any thread may call."""

    def __init__(
        self, cluster: str, core: HostManagerCore, advisor: HostAdvisor, uses: Uses, records: Overview
    ) -> None:
        self._cluster, self._cache, self._driver = cluster, core.cache, core.driver
        self._advisor, self._uses = advisor, uses
        self.pod_uses = PodUses(core.driver.samples_of)
        self._records = records
        self._pod_counts = Rested(partial(records.pods_by_host, cluster), PODS_AGE_S)
        self._map = Rested(self._draw, MAP_AGE_S)
        self._overview = Rested(self._describe, MAP_AGE_S)

    def overview(self) -> private.DescribeClusterResponse:
        """Return the overview, cached for MAP_AGE_S."""
        return self._overview.get()

    def map(self) -> pb.HostMap:
        """Return the map of hosts, cached for MAP_AGE_S. Raises what storage raises."""
        return self._map.get()

    def _describe(self) -> private.DescribeClusterResponse:
        view = self._cache.views.view()
        columns, kind = view.columns, self._driver.capabilities.kind
        measured = Measured.of(columns.hostnames, self._uses())
        states = columns.state_counts()
        marks = [one.mark for one in self._advisor.host_marks()]
        avoided = self._cache.avoidances.list_avoided(time.monotonic())
        found, left_out = problems.worst_first(self._problems(view, kind, states.get(HostState.UP, 0)))
        return private.DescribeClusterResponse(
            overview=pb.ClusterOverview(
                cluster=self._cluster,
                cluster_kind=kind,
                amounts=[_amounts(columns, each, measured) for each in RESOURCE_KINDS],
                hosts=pb.HostCounts(
                    total=len(columns.hostnames),
                    states={state.value: count for state, count in states.items()},
                    marks={mark.value: marks.count(mark) for mark in Mark if mark in marks},
                    in_maintenance=len(view.maintained),
                    avoided=len(avoided),
                ),
            ),
            problems=[problem_to_wire(one) for one in found],
            problems_left_out=left_out,
        )

    def _problems(self, view: HostView, kind: str, up_count: int) -> list[Problem]:
        cluster, now_ns, now_s, driver = self._cluster, time.time_ns(), time.monotonic(), self._driver
        avoidances, red = self._cache.avoidances, {Mark.RED}
        drains, slow = self._drains(view.maintained), self._advisor.service_marks(red)
        blockers = [one.job_id for host in drains for one in host.progress.blockers]
        names = self.job_names([*blockers, *(one.job_id for one in slow)])
        gone = avoidances.list_gone(problems.GONE_WITHIN_S, now_s)
        return [
            *problems.cluster_problems(
                cluster, kind, driver.is_connected, driver.unready, view.are_hosts_known, up_count
            ),
            *problems.report_gone_hosts(cluster, gone, view.maintained, now_ns),
            *problems.late_drains(drains, now_ns),
            *problems.report_blocked_drains(drains, now_ns, names),
            *problems.report_red_marks(cluster, self._advisor.host_marks(red), slow, names),
            *problems.report_avoided_hosts(cluster, avoidances.list_avoided(now_s)),
        ]

    def job_names(self, job_ids: Iterable[str]) -> Names:
        """Return the names of jobs by id; none while storage does not answer."""
        wanted = set(job_ids)
        try:
            return self._records.job_names(wanted) if wanted else NO_NAMES
        except Unavailable:
            return NO_NAMES

    def _drains(self, maintained: Mapping[Hostname, HostMaintenance]) -> Sequence[HostMaintenance]:
        """Return draining hosts with their progress, which only storage has; without it while storage does not
        answer."""
        known = [host for host in maintained.values() if host.state is HostState.DRAINING]
        try:
            return self._records.drains(self._cluster) if known else ()
        except Unavailable:
            return known

    def _draw(self) -> pb.HostMap:
        columns, maintained, host_pools, _ = self._cache.views.view()
        names, pods = columns.hostnames, self._pod_counts.get()
        measured = Measured.of(names, self._uses())
        marks = {one.hostname: _MARK_NUMBERS[one.mark] for one in self._advisor.host_marks()}
        flags = dict.fromkeys(maintained, MAINTAINED)
        for name in self._cache.avoidances.list_avoided(time.monotonic()):
            flags[name] = flags.get(name, 0) | AVOIDED
        found = pb.HostMap(
            cluster=self._cluster,
            hostnames=names,
            states=columns.state_bytes(_STATE_NUMBERS),
            marks=_sparse(names, marks),
            flags=_sparse(names, flags),
            pod_counts=map(pods.get, names, repeat(0)),
            kinds=[
                pb.KindPercents(
                    kind=kind,
                    allocation=columns.compute_held_percents(kind),
                    used=columns.compute_used_percents(kind, measured),
                )
                for kind in RESOURCE_KINDS
            ],
        )
        if host_pools is not None:
            found.host_pool_names.extend(sorted(host_pools.pools))
            place = {name: at for at, name in enumerate(found.host_pool_names)}
            placed, default = host_pools.hosts, place[DEFAULT_HOST_POOL]
            found.host_pools.extend(place[placed[name].current] if name in placed else default for name in names)
        found.version = blake2b(found.SerializeToString(deterministic=True), digest_size=8).hexdigest()
        return found


def _amounts(columns: HostColumns, kind: str, measured: Measured) -> pb.KindAmounts:
    sums, scale = columns.sums(kind, measured), _SCALES[kind]
    found = pb.KindAmounts(
        kind=kind,
        capacity=sums.capacity / scale,
        away=sums.away / scale,
        allocation=sums.held / scale,
        used=sums.used / scale,
        measured_capacity=sums.measured_capacity / scale,
    )
    if kind == "cpu":
        found.slack, found.slack_held = (amount / scale for amount in columns.slack())
    return found


def _sparse(names: Sequence[Hostname], values: Mapping[Hostname, int]) -> bytes:
    """Return one byte for each host, 0 for hosts without a value."""
    return bytes(map(values.get, names, repeat(0))) if values else bytes(len(names))


class ViewsServicer(hostmgr_pb2_grpc.ViewsServicer):
    def __init__(self, views: ClusterViews) -> None:
        self._views = views

    def DescribeCluster(
        self, request: private.DescribeClusterRequest, context: grpc.ServicerContext
    ) -> private.DescribeClusterResponse:
        return self._views.overview()

    def MapHosts(self, request: private.MapHostsRequest, context: grpc.ServicerContext) -> pb.HostMap:
        found = self._views.map()
        if found.version == request.known_version:
            return pb.HostMap(cluster=found.cluster, version=found.version, is_unchanged=True)
        return found

    def MeasurePods(
        self, request: private.MeasurePodsRequest, context: grpc.ServicerContext
    ) -> private.MeasurePodsResponse:
        found = self._views.pod_uses.on([Hostname(name) for name in request.hostnames])
        return private.MeasurePodsResponse(
            pods=[
                private.PodUse(pod_id=str(pod), cpu_milli=use.cpu_milli, memory_mib=use.memory_mib)
                for pod, use in found.items()
            ]
        )
