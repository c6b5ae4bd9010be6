"""The rebalancing of a cluster in storage: its request, its moves, its budget, and the outcome of each move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from peloton.errors import Aborted, NotFound
from peloton.lifecycle.rebalance import HOUR_S, LATE_S, REST_S
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.rebalance import (
    Goal,
    Move,
    MoveReason,
    MoveState,
    RebalanceAct,
    RebalancePlan,
    RebalanceSpec,
    RebalanceState,
    Stays,
)
from services.storage.storage import Storage
from tests.conformance.storage import builders as world
from tests.conformance.storage import test_daemons, test_volumes
from tests.conformance.storage.builders import NOW, Clock, K, R
from tests.conformance.storage.services import a_service, service_config, update

HERE, NEW_HOST = "", Hostname("host9")
SPEC = RebalanceSpec((Goal.FREE,), 60)


def a_move(storage: Storage, job_id: JobId, instance: int = 0) -> Move:
    now = world.pod(storage, job_id, instance)
    why = MoveReason(Goal.FREE, 900, 500, waiting_job=JobId("big"))
    return Move(PodId(job_id, instance, now.run_id), Hostname(now.host), NEW_HOST, why)


def begin(storage: Storage, job_id: JobId, instances: Sequence[int]) -> list[int]:
    begun = storage.rebalances.begin(HERE, job_id, [a_move(storage, job_id, instance) for instance in instances])
    return [move.pod_id.instance_id for move in begun]


def end_and_queue(storage: Storage, job_id: JobId) -> None:
    """End the pods of the moves and make them READY again."""
    ended = [pod.instance_id for pod, *_ in storage.host_pods.mark_killing(job_id, 1_000)]
    world.report(storage, job_id, ended, K)
    world.settle_all(storage, job_id)
    world.settle_all(storage, job_id)
    world.admit(storage, job_id)


def run_on(storage: Storage, job_id: JobId, instance: int, host: str) -> None:
    run_id = world.pod(storage, job_id, instance).desired_run_id
    storage.host_pods.mark_launched(job_id, [(instance, run_id, host, "agent", {})], NOW, HERE)
    world.report(storage, job_id, [instance], R)


def pod_hosts(storage: Storage, job_id: JobId) -> Counter[str]:
    return Counter({str(host): count for host, count in storage.pods.preferred_hosts(job_id, HERE).items()})


def states(storage: Storage) -> list[MoveState]:
    return [move.state for move in storage.rebalances.moves(HERE, 100)]


def test_a_pod_that_moves_is_to_run_again_on_another_host(storage: Storage) -> None:
    """The pod has resources reserved on its new host, and the move is over once it runs there."""
    storage.rebalances.start([HERE], SPEC)
    job_id = a_service(storage, 4)
    before = world.pod(storage, job_id, 1)

    assert [1] == begin(storage, job_id, [1])

    moving = world.pod(storage, job_id, 1)
    assert (NEW_HOST, before.run_id + 1) == (moving.desired_host, moving.desired_run_id)
    assert "Moves to host9: frees resources on host1 for a pod of job big that fits on no host" == moving.message
    assert ({"host1": 0, NEW_HOST: 1}) == {host: pod_hosts(storage, job_id)[host] for host in ("host1", NEW_HOST)}
    assert [(1, NEW_HOST)] == [(one.instance_id, one.hostname) for one in storage.host_pods.coming_back(job_id, [1])]
    end_and_queue(storage, job_id)
    (ready,) = storage.pods.ready_gangs(job_id, 10)
    assert NEW_HOST == ready.desired_host
    assert (0, 1) == (storage.rebalances.settle(HERE)[0], len(storage.rebalances.settle(HERE)[1]))
    run_on(storage, job_id, 1, NEW_HOST)
    storage.rebalances.settle(HERE)
    assert ([MoveState.MOVED], "") == (states(storage), world.pod(storage, job_id, 1).desired_host)


def test_a_pod_that_comes_to_run_elsewhere_ends_its_move(storage: Storage, clock: Clock) -> None:
    """The move also ends when its pod is stopped, or has not run again for long, so that it does not delay others."""
    storage.rebalances.start([HERE], SPEC)
    first, second, third = a_service(storage, 2), a_service(storage, 2), a_service(storage, 2)
    for job_id in (first, second, third):
        assert [0] == begin(storage, job_id, [0])
    end_and_queue(storage, first)
    run_on(storage, first, 0, "host5")
    storage.pods.set_goals(second, [(0, 1)], K, NOW, "stop")
    storage.rebalances.settle(HERE)
    assert [MoveState.MOVING, MoveState.ENDED, MoveState.ELSEWHERE] == states(storage)

    clock.advance(LATE_S + 1)
    storage.rebalances.settle(HERE)
    assert [MoveState.LATE, MoveState.ENDED, MoveState.ELSEWHERE] == states(storage)


def test_an_sla_is_asked_in_the_transaction_that_moves(storage: Storage) -> None:
    """A move that the SLA refuses is not made. Without an SLA a tenth of the service may be down, at least one
    instance."""
    storage.rebalances.start([HERE], SPEC)
    strict, none = a_service(storage, 4, maximumUnavailableInstances=2), a_service(storage, 20)

    assert ([0, 1], [0, 1]) == (begin(storage, strict, [0, 1, 2]), begin(storage, none, [0, 1, 2]))
    assert ([], []) == (begin(storage, strict, [2, 3]), begin(storage, none, [2, 3]))


def test_a_plan_of_before_moves_nothing_that_has_changed(storage: Storage) -> None:
    """A pod with another run, another host or an update under way stays where it is."""
    storage.rebalances.start([HERE], SPEC)
    moved, updated = a_service(storage, 4), a_service(storage, 4)
    move = a_move(storage, moved)
    elsewhere = Move(move.pod_id, Hostname("host8"), NEW_HOST, move.why)
    newer = Move(PodId(moved, 0, 7), move.source, NEW_HOST, move.why)
    assert [] == storage.rebalances.begin(HERE, moved, [elsewhere, newer])

    update(storage, updated, service_config(4, "v2"))
    assert [] == begin(storage, updated, [0])
    assert [] == storage.rebalances.begin("west", moved, [move])
    assert [] == states(storage)


def test_what_does_not_move_is_not_moved_by_mistake(storage: Storage) -> None:
    """Pods of batch jobs, of gangs and of daemons, and pods with volumes stay, whatever a plan contains."""
    storage.rebalances.start([HERE], SPEC)
    batch, gang = world.a_running_job(storage, 4), world.a_running_job(storage, 4, minimumRunningInstances=2)
    assert [[], []] == [begin(storage, job_id, [0]) for job_id in (batch, gang)]

    stateful = test_volumes.a_database(storage)
    test_volumes.launch(storage, stateful, {0: "host0", 1: "host1"}, cluster=HERE)
    world.report(storage, stateful, [0, 1], R)
    daemon = test_daemons.a_daemon(storage)
    test_daemons.follow(storage, daemon, "host0", cluster=HERE)
    test_daemons.run(storage, daemon, HERE)
    assert [[], []] == [begin(storage, job_id, [0]) for job_id in (stateful, daemon)]


def test_no_more_pods_move_within_an_hour_than_the_budget(storage: Storage, clock: Clock) -> None:
    """The hourly budget covers the moves of all jobs. After an hour other pods may move."""
    storage.rebalances.start([HERE], RebalanceSpec((Goal.FREE,), 3))
    job_id, other = a_service(storage, 20, maximumUnavailableInstances=20), a_service(storage, 4)
    assert 3 == storage.rebalances.settle(HERE)[0]

    assert ([0, 1, 2], []) == (begin(storage, job_id, range(5)), begin(storage, other, [0]))

    clock.advance(LATE_S + 1)
    storage.rebalances.settle(HERE)
    storage.rebalances.note(HERE, None)
    row = storage.rebalances.get(HERE)
    assert row is not None
    assert "the hour to pass, in which 3 of 3 moves were made" == row.progress.waiting_for
    assert (3, 3, 0) == (row.move_count, row.progress.hour_count, storage.rebalances.settle(HERE)[0])
    clock.advance(HOUR_S)
    assert 3 == storage.rebalances.settle(HERE)[0]


def test_a_round_begins_when_the_last_one_has_ended(storage: Storage, clock: Clock) -> None:
    """The next round waits for the moves to end, and then until pending pods have had the time to take the freed
    resources."""
    storage.rebalances.start([HERE], SPEC)
    job_id = a_service(storage, 4)
    begin(storage, job_id, [0])
    storage.rebalances.note(HERE, RebalancePlan(staying=((Stays.VOLUME, 2),)))
    row = storage.rebalances.get(HERE)
    assert row is not None
    assert ("1 pod to run again", (("with a volume on the host", 2),)) == (
        row.progress.waiting_for,
        row.progress.staying,
    )
    end_and_queue(storage, job_id)
    run_on(storage, job_id, 0, NEW_HOST)

    assert 0 == storage.rebalances.settle(HERE)[0]
    clock.advance(REST_S)
    assert 59 == storage.rebalances.settle(HERE)[0]


def test_what_is_paused_or_stopped_moves_nothing(storage: Storage) -> None:
    """No move begins after the answer. Moves under way finish, and only then is the rebalancing stopped."""
    storage.rebalances.start([HERE], SPEC)
    job_id, other = a_service(storage, 4), a_service(storage, 4)
    begin(storage, job_id, [0])
    storage.rebalances.steer([HERE], RebalanceAct.PAUSE)
    assert [] == begin(storage, other, [0])
    storage.rebalances.steer([HERE], RebalanceAct.RESUME)
    storage.rebalances.steer([HERE], RebalanceAct.STOP)
    assert [] == begin(storage, other, [0])

    storage.rebalances.note(HERE, None)
    assert RebalanceState.STOPPING is storage.rebalances.all()[0].state
    end_and_queue(storage, job_id)
    run_on(storage, job_id, 0, NEW_HOST)
    storage.rebalances.note(HERE, None)
    assert RebalanceState.STOPPED is storage.rebalances.all()[0].state
    assert [MoveState.MOVED] == states(storage)


def test_what_cannot_be_steered_says_why(storage: Storage) -> None:
    """A call applies to all of the clusters or none. A repeated stop changes nothing, and a start begins again."""
    with pytest.raises(NotFound, match="cluster east has never been rebalanced"):
        storage.rebalances.steer(["east"], RebalanceAct.STOP)
    storage.rebalances.start(["east", "west"], SPEC)
    storage.rebalances.steer(["west"], RebalanceAct.STOP)
    storage.rebalances.note("west", None)

    with pytest.raises(Aborted, match="the rebalancing of cluster west is STOPPED: start it"):
        storage.rebalances.steer(["east", "west"], RebalanceAct.PAUSE)

    assert ["RUNNING", "STOPPED"] == [one.state for one in storage.rebalances.all()]
    assert ["STOPPED"] == [one.state for one in storage.rebalances.steer(["west"], RebalanceAct.STOP)]
    spec = RebalanceSpec((Goal.EMPTY, Goal.FREE), 5)
    assert [("west", spec, RebalanceState.RUNNING)] == [
        (one.cluster, one.spec, one.state) for one in storage.rebalances.start(["west"], spec)
    ]
