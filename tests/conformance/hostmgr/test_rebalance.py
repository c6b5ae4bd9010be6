"""Plans of moves, and moves, by a host manager: hosts in memory, pods in a database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest

from peloton.api.v0.rebalance import rebalance_pb2 as pb
from peloton.api.v0.rebalance import rebalance_pb2_grpc
from peloton.model.host import Desired
from peloton.model.ids import Hostname, JobId
from peloton.model.job import JobType
from peloton.model.pod import PodState, TerminationReason
from peloton.model.rebalance import Goal, MoveState, Rebalance, RebalanceAct, RebalanceSpec
from peloton.scheduling.placement import FirstFitPlacer
from services.hostmgr.rebalancer import Rebalancer
from services.storage.storage import Storage
from tests.conformance.hostmgr import test_host_pools as host_pools
from tests.conformance.hostmgr.test_host_pools import Manager, hosts
from tests.conformance.hostmgr.world import Wakes, wait
from tests.conformance.storage import builders

url = host_pools.url
FREE, SPREAD, EMPTY = pb.GOAL_FREE, pb.GOAL_SPREAD, pb.GOAL_EMPTY
SERVICE = JobType.SERVICE


@dataclass
class World:
    manager: Manager
    stub: Any

    def plan(self, *goals: pb.Goal.ValueType, **request: int) -> Any:
        return self.stub.PlanRebalance(pb.PlanRebalanceRequest(goals=goals, **request))

    def ways(self, *goals: pb.Goal.ValueType) -> list[tuple[str, str, str]]:
        return [(move.job_id, move.source, move.target) for move in self.plan(*goals).moves]

    def runs(self, cpu: float, count: int = 1, type_: JobType = SERVICE, **sla: Any) -> str:
        """Start a job and wait until all of its pods run."""
        job_id = self.manager.job(count, cpu, type_, **sla)
        assert count == self.manager.start(job_id).total()
        wait(lambda: {"RUNNING": count} == self.states(job_id), "its pods to run")
        return job_id

    def rebalance(self, *goals: Goal, per_hour: int = 60) -> None:
        self.manager.storage.rebalances.start(["east"], RebalanceSpec(goals or (Goal.FREE,), per_hour))

    def row(self) -> Rebalance:
        found = self.manager.storage.rebalances.get("east")
        assert found is not None
        return found

    def moves(self) -> list[tuple[str, MoveState]]:
        return [(move.target, move.state) for move in self.manager.storage.rebalances.moves("east", 100)]

    def carry(self, job_id: JobId) -> None:
        """Acts as the workflow of the job: pods that have to run again end, are admitted, placed and launched."""
        storage = self.manager.storage
        self.manager.core.kill_running(job_id)
        wait(lambda: PodState.KILLING not in storage.pods.counts(job_id), "pods to end")
        builders.settle_all(storage, job_id)
        builders.settle_all(storage, job_id)
        builders.admit(storage, job_id)
        gangs = storage.pods.ready_gangs(job_id, 100)
        desired = [Desired(gang.pods[0][0], Hostname(gang.desired_host), gang.shape) for gang in gangs]
        lease = self.manager.core.acquire_hosts(job_id, [(gang.shape, 1) for gang in gangs], False, desired)
        batch = FirstFitPlacer().place(job_id, gangs, lease)
        self.manager.core.launch(job_id, batch.lease_id, batch.placements)
        wait(lambda: [*storage.pods.counts(job_id)] == [PodState.RUNNING], "pods to run")

    def states(self, job_id: Any) -> dict[str, int]:
        return {state.value: count for state, count in self.manager.storage.pods.counts(job_id).items()}


@pytest.fixture
def world(url: str) -> Iterator[World]:
    """A world of three hosts with 10 cpus: e0, e1, e2."""
    manager = Manager(url, "east", hosts("e"), is_on=False)
    yield World(manager, rebalance_pb2_grpc.RebalanceServiceStub(manager.channel))
    manager.close()


def test_a_pod_of_a_service_yields_to_one_that_fits_nowhere(world: World) -> None:
    """The move names the job that it serves, and the plan moves nothing."""
    web = [world.runs(4), world.runs(4), world.runs(4)]
    world.runs(5, type_=JobType.BATCH)
    big = world.manager.job(1, 8)
    assert 1 == world.manager.place(big).unplaced_count

    answer = wait(lambda: world.plan(FREE).moves and world.plan(FREE), "a plan")

    (move,) = answer.moves
    assert (True, True, pb.GOAL_FREE, "east") == (
        move.job_id in web,
        move.source != move.target,
        move.goal,
        move.cluster,
    )
    assert f"frees resources on {move.source} for a pod of job {big} that fits on no host" == move.reason
    assert [("of batch jobs", 1)] == [(one.reason, one.pod_count) for one in answer.staying]
    assert answer == world.plan(FREE)


def test_an_sla_that_lets_none_go_keeps_all(world: World) -> None:
    """One of two instances that must both be available is unavailable already, so neither moves."""
    job_id = world.manager.job(2, 4, SERVICE, maximumUnavailableInstances=1)
    storage = world.manager.storage
    world.manager.start(job_id)
    wait(lambda: {"RUNNING": 2} == world.states(job_id), "both to run")
    assert [] == list(world.plan(EMPTY).staying)
    storage.disruptions.disrupt(
        job_id,
        [0],
        reason=TerminationReason.KILLED_HOST_MAINTENANCE,
        message="",
        checks_sla=True,
        now_ns=builders.NOW,
    )

    staying = {one.reason: one.pod_count for one in world.plan(EMPTY).staying}
    assert {"leaving already": 1, "kept by the SLA": 1} == staying


def test_hosts_with_few_pods_are_emptied(world: World) -> None:
    """Hosts with few pods are emptied, except for one with a batch pod, which takes the others."""
    for _ in range(3):
        world.runs(2)
    batch = world.runs(2, type_=JobType.BATCH)
    (pod,) = builders.pods(world.manager.storage, JobId(batch))
    emptied = sorted({"e0", "e1", "e2"} - {pod.host})

    assert [(one, pod.host) for one in emptied] == [way[1:] for way in world.ways(EMPTY)]


def test_a_new_host_is_filled(world: World) -> None:
    """The new host takes pods from the others, which run nearly everything."""
    cluster = world.manager.hosts
    cluster.lose("e2")
    web = world.runs(4, 4)
    cluster.bring_back("e2")

    (move,) = wait(lambda: world.plan(SPREAD).moves, "the new host")

    assert (web, "e0", "e2") == (move.job_id, move.source, move.target)
    assert "e0 has 80 % in use, the mean is 53.3 %, and e2 40 % with the pod" == move.reason


def test_what_cannot_be_is_refused(world: World) -> None:
    """Conflicting goals, unknown goals and a number of moves above the maximum are refused."""
    refuse = world.manager.refusal
    for request, text in (
        (pb.PlanRebalanceRequest(goals=[SPREAD, EMPTY]), "SPREAD and EMPTY undo each other: ask for one of them"),
        (pb.PlanRebalanceRequest(goals=[cast("Any", 7)]), "goal 7 is not known"),
        (pb.PlanRebalanceRequest(moves_max=1_001), "1001 moves are requested, at most 1000 may be planned"),
    ):
        assert ("INVALID_ARGUMENT", text) == refuse(world.stub.PlanRebalance, request)


def test_a_move_lets_a_pod_in_that_fits_nowhere(world: World) -> None:
    """The resources on the new host are reserved until the moved pod runs there. The waiting pod takes the resources
    that it released."""
    for _ in range(3):
        world.runs(4)
    world.runs(5, type_=JobType.BATCH)
    big = world.manager.job(1, 8)
    wait(lambda: world.plan(FREE).moves, "a plan")
    world.rebalance()

    world.manager.rebalancer.advance()

    ((target, state),) = world.moves()
    (move,) = world.manager.storage.rebalances.moves("east", 1)
    assert MoveState.MOVING is state
    other = world.manager.place(world.manager.job(1, 6))  # neither can use the resources on the new host
    assert [move.source] == [placement.hostname for placement in other.placements]
    world.manager.core.release(other.lease_id)
    for _ in range(3):
        world.manager.rebalancer.advance()
    assert [(target, MoveState.MOVING)] == world.moves()
    assert ("1 pod to run again", 1, 1) == (
        world.row().progress.waiting_for,
        world.row().progress.moving_count,
        world.row().move_count,
    )

    world.carry(move.pod_id.job_id)
    world.manager.rebalancer.advance()

    assert [(target, MoveState.MOVED)] == world.moves()
    assert {move.source: 1} == world.manager.start(big)


def test_hosts_are_emptied_and_stay_so(world: World) -> None:
    """Rounds are repeated until no host can be emptied, and the hosts stay empty."""
    jobs = [world.runs(2) for _ in range(3)]
    world.rebalance(Goal.EMPTY)

    world.manager.rebalancer.advance()
    for job_id in jobs:
        if world.row().progress.moving_count:
            world.carry(JobId(job_id))
    world.manager.rebalancer.advance()

    pod_hosts = {pod.host for job_id in jobs for pod in builders.pods(world.manager.storage, JobId(job_id))}
    assert 1 == len(pod_hosts)
    assert {MoveState.MOVED} == {state for _, state in world.moves()}
    assert [] == world.ways(EMPTY)


def test_a_host_manager_that_dies_in_the_middle_of_a_step_moves_nothing_twice(world: World, url: str) -> None:
    """The successor finds the moves that were begun, and wakes their jobs."""
    jobs = [world.runs(2) for _ in range(3)]
    world.rebalance(Goal.EMPTY)
    storage = world.manager.storage
    plan = world.manager.rebalancer.plan({Goal.EMPTY}, 100)
    first = plan.moves[0]
    storage.rebalances.begin("east", first.pod_id.job_id, [first])  # and it dies there

    successor = Storage(url)
    woken: Any = Wakes()
    back = successor.host_pods.coming_back
    core = world.manager.core
    rebalancer = Rebalancer(
        core.cache, successor.rebalances, "east", back, woken, core.count_domains, core.kill_evicted
    )
    rebalancer.advance()
    successor.close()

    assert [first.pod_id.job_id] == woken.jobs
    assert [(first.target, MoveState.MOVING)] == world.moves()
    assert first.pod_id.job_id in jobs


def test_what_is_not_started_moves_nothing(world: World) -> None:
    """A rebalancing that is not started, is paused or has stopped moves nothing."""
    for _ in range(3):
        world.runs(2)
    world.manager.rebalancer.advance()
    world.rebalance(Goal.EMPTY)
    world.manager.storage.rebalances.steer(["east"], RebalanceAct.PAUSE)
    world.manager.rebalancer.advance()
    assert ("an operator to resume it", "PAUSED") == (world.row().progress.waiting_for, world.row().progress.state)

    world.manager.storage.rebalances.steer(["east"], RebalanceAct.STOP)
    world.manager.rebalancer.advance()
    world.manager.rebalancer.advance()

    assert ([], "STOPPED") == (world.moves(), world.row().state)
