"""Rebalancing of one cluster, and its public service."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import Any, Protocol

import grpc

from peloton.api.convert_rebalance import GOAL_NUMBERS, goals_of
from peloton.api.service_names import REBALANCE_SERVICE
from peloton.api.v0.rebalance import rebalance_pb2 as pb
from peloton.errors import InvalidArgument, Unavailable
from peloton.hosts.domain_counts import Counts, open_domains
from peloton.hosts.resource_holds import ComingBackOf
from peloton.hosts.state import HOSTS_UNKNOWN
from peloton.lifecycle.rebalance import MOVES_MAX, goals_refusal, move_text
from peloton.model.ids import Hostname, JobId
from peloton.model.layout import Domains
from peloton.model.pod import PodShape
from peloton.model.rebalance import (
    Goal,
    JobSpread,
    Move,
    PodCensus,
    RebalancePlan,
    Stays,
)
from peloton.ports import Lifecycles
from peloton.scheduling.rebalance import plan
from peloton.scheduling.relocation import HostNow
from services.hostmgr.hosts.host_cache import HostCache
from services.storage.moves.rebalances import Rebalances

log = logging.getLogger(__name__)

MOVES_DEFAULT = 100


class CountDomains(Protocol):
    def __call__(self, job_id: JobId, shapes: Sequence[PodShape], *, drained: Collection[Hostname] = ()) -> Counts:
        """Count the pods of a job in this cluster by domain, and the open domains of these shapes, without the hosts
        that are ``drained``."""


class Rebalancer:
    def __init__(
        self,
        cache: HostCache,
        records: Rebalances,
        cluster: str,
        coming_back: ComingBackOf,
        lifecycles: Lifecycles,
        count_domains: CountDomains,
        kill_evicted: Callable[[Collection[JobId]], None],
    ) -> None:
        self._cache, self._records = cache, records
        self._count_domains = count_domains
        self._coming_back, self._lifecycles, self._kill_evicted = coming_back, lifecycles, kill_evicted
        self.cluster = cluster

    def plan(self, goals: Collection[Goal], moves_max: int) -> RebalancePlan:
        """Return the moves that rebalancing would make now. Raises Unavailable."""
        return plan(*self.snapshot(), goals, moves_max)

    def snapshot(self, drained: Collection[Hostname] = ()) -> tuple[list[HostNow], PodCensus]:
        """Return the hosts and pods of the cluster for a plan. With ``drained`` the spread covers only jobs with pods
        on these hosts, as it would be without the hosts. Raises Unavailable."""
        if not self._cache.are_hosts_known:
            raise Unavailable(HOSTS_UNKNOWN)
        pods = self._records.census(self.cluster)
        pods = replace(pods, spread=self._spread(pods, drained))
        return self._cache.census({name: _in_the_way(kept) for name, kept in pods.others.items()}), pods

    def _spread(self, pods: PodCensus, drained: Collection[Hostname]) -> dict[JobId, JobSpread]:
        """Return the spread of jobs with a shape that has spread constraints."""
        if drained:
            there = {pod.pod_id.job_id for pod in pods.pods if pod.hostname in drained}
            pods = PodCensus([pod for pod in pods.pods if pod.pod_id.job_id in there])
        shapes: dict[JobId, dict[PodShape, None]] = {}
        for job_id, shape in chain(
            ((pod.pod_id.job_id, pod.shape) for pod in pods.pods), ((one.job_id, one.shape) for one in pods.waiting)
        ):
            if shape.layout and shape.layout.spread:
                shapes.setdefault(job_id, {})[shape] = None
        elsewhere = self._records.are_elsewhere(shapes, self.cluster) if shapes else ()
        return {
            job_id: JobSpread(self._domains(job_id, [*own], drained), job_id not in elsewhere)
            for job_id, own in shapes.items()
        }

    def _domains(
        self, job_id: JobId, shapes: Sequence[PodShape], drained: Collection[Hostname]
    ) -> Mapping[PodShape, Sequence[Domains]]:
        """Count domains. A job under a hard bound whose pods are being placed has no open domain: its pods stay until
        the next plan."""
        try:
            return open_domains(self._count_domains(job_id, shapes, drained=drained))
        except Unavailable:
            return dict.fromkeys(shapes, ())

    def advance(self) -> None:
        """Run one step: settle the moves under way, and start further moves when due. A step may be interrupted
        anywhere and repeated. Raises Unavailable."""
        rebalance = self._records.get(self.cluster)
        if rebalance is None or not rebalance.is_active:
            return
        moves_max, under_way = self._records.settle(self.cluster)
        found = None
        if moves_max:
            found = self.plan(rebalance.spec.goals, moves_max)
            self._begin(found.moves)
        self._wake(move.pod_id.job_id for move in under_way)  # a predecessor may not have woken them
        self._records.note(self.cluster, found)

    def _begin(self, moves: Sequence[Move]) -> None:
        """Start the moves job by job. Resources on the new hosts are held before the pods are asked to end."""
        for job_id, own in groupby(sorted(moves, key=_job_of), key=_job_of):
            begun = self._records.begin(self.cluster, job_id, list(own))
            if begun:
                back = self._coming_back(job_id, [move.pod_id.instance_id for move in begun])
                self._cache.hold(back, time.monotonic())
                self._wake([job_id])
                self._kill_evicted([job_id])
                log.info("moving %d pods of job %s to other hosts", len(begun), job_id)

    def _wake(self, job_ids: Iterable[JobId]) -> None:
        self._lifecycles.jobs_changed(set(job_ids), "rebalancing asked pods to move")


def _in_the_way(kept: Mapping[Stays, int]) -> int:
    """Return the number of pods that keep a host from being empty. Daemons do not count: a daemon runs on each
    host."""
    return sum(count for why, count in kept.items() if why is not Stays.DAEMON)


def _job_of(move: Move) -> JobId:
    return move.pod_id.job_id


class RebalanceServicer:
    """The part of RebalanceService that a host manager answers; the api serves the whole service."""

    def __init__(self, rebalancer: Rebalancer) -> None:
        self._rebalancer = rebalancer

    def handler(self) -> grpc.GenericRpcHandler:
        plan: Any = grpc.unary_unary_rpc_method_handler(
            self.PlanRebalance, pb.PlanRebalanceRequest.FromString, pb.PlanRebalanceResponse.SerializeToString
        )
        return grpc.method_handlers_generic_handler(REBALANCE_SERVICE[0], {"PlanRebalance": plan})

    def PlanRebalance(
        self, request: pb.PlanRebalanceRequest, context: grpc.ServicerContext
    ) -> pb.PlanRebalanceResponse:
        goals = goals_of(request.goals)
        if refusal := goals_refusal(goals):
            raise InvalidArgument(refusal)
        if request.moves_max > MOVES_MAX:
            raise InvalidArgument(f"{request.moves_max} moves are requested, at most {MOVES_MAX} may be planned")
        found = self._rebalancer.plan(goals, request.moves_max or MOVES_DEFAULT)
        return _answer(found, self._rebalancer.cluster)


def _answer(found: RebalancePlan, cluster: str) -> pb.PlanRebalanceResponse:
    return pb.PlanRebalanceResponse(
        moves=[
            pb.Move(
                job_id=move.pod_id.job_id,
                instance_id=move.pod_id.instance_id,
                source=move.source,
                target=move.target,
                goal=GOAL_NUMBERS[move.why.goal],
                source_load=move.why.source_load,
                target_load=move.why.target_load,
                cluster=cluster,
                reason=move_text(move),
            )
            for move in found.moves
        ],
        stuck_job_ids=found.stuck,
        staying=[pb.Staying(reason=why, pod_count=count, cluster=cluster) for why, count in found.staying],
    )
