"""The part of storage that the host manager uses."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.model.ids import JobId, PodId, new_job_id
from peloton.model.pod import ContainerState, ContainerStatus, PodState, PodStatus
from services.storage.pods import host_pods
from services.storage.pods.host_pods import LaunchRow
from services.storage.pods.status_writes import StatusOutcome
from services.storage.storage import Storage
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import (
    KILLING,
    LAUNCHED,
    NOW,
    READY,
    SECOND,
    STARTING,
    Clock,
    F,
    K,
    L,
    P,
    R,
    S,
    everywhere,
)


def status(job_id: JobId, instance: int, state: PodState, run: int = 1, **more: Any) -> PodStatus:
    return PodStatus(PodId(job_id, instance, run), state, NOW, **more)


@everywhere
def test_a_launch_takes_each_run_once(storage: Storage) -> None:
    """READY pods become LAUNCHED with host, agent and ports. A second launch of the run takes nothing."""
    job_id = world.a_job(storage, 2)
    world.admit(storage, job_id)
    rows = [(i, 1, "host1", "agent1", {"http": 31000 + i, "admin": 5}) for i in (0, 1)]

    assert {0, 1} == storage.host_pods.mark_launched(job_id, rows, NOW + SECOND)
    assert set() == storage.host_pods.mark_launched(job_id, rows, NOW + SECOND)

    launched = world.pod(storage, job_id, 1)
    assert (LAUNCHED, "host1", "agent1", {"http": 31001, "admin": 5}) == (
        launched.state,
        launched.host,
        launched.agent_id,
        launched.ports,
    )
    assert ("Add hostname and ports", "REASON_UPDATE_OFFER", NOW + SECOND) == (
        launched.message,
        launched.reason,
        launched.updated_ns,
    )


@everywhere
def test_a_launch_refuses_what_is_not_wanted(storage: Storage) -> None:
    """Another run, a pod with goal KILLED, and a pod that is not admitted are not launched."""
    job_id = world.a_job(storage, 5)
    world.queue(storage, job_id)
    storage.admission.mark_ready([(job_id, 0, 3)])
    storage.pods.set_goals(job_id, [(1, 1)], K, NOW, "stop")

    rows: list[LaunchRow] = [(i, run, "host", "agent", {}) for i, run in ((0, 2), (1, 1), (2, 1), (3, 1), (9, 1))]

    assert {2} == storage.host_pods.mark_launched(job_id, rows, NOW)
    assert [READY, READY, LAUNCHED, P, P] == world.states(storage, job_id)
    assert set() == storage.host_pods.mark_launched(job_id, [], NOW)


def test_statuses_are_applied_in_their_order(storage: Storage) -> None:
    """Several reports of one pod in a batch all take effect, each with its event."""
    job_id = world.a_job(storage, 2)
    world.admit(storage, job_id)
    world.launch(storage, job_id)

    outcome = storage.host_pods.apply_status(
        [
            status(job_id, 0, STARTING),
            status(job_id, 1, R),
            status(job_id, 0, R),
            status(job_id, 0, S, message="done"),
            status(job_id, 0, R),
        ],
        "cluster",
    )

    assert StatusOutcome([job_id], [PodId(job_id, 0, 1)], [PodId(job_id, 0, 1)]) == outcome
    assert [S, R] == world.states(storage, job_id)
    events = [e.state for e in storage.pods.events(job_id, 0)]
    assert [S, R, STARTING, LAUNCHED] == events[:4]


def test_containers_of_the_current_run_are_known(storage: Storage) -> None:
    """The newest reported containers are kept, also when the pod's own state stays. They are deleted with the job."""
    job_id = world.a_running_job(storage, 2)
    waits, runs = (ContainerStatus("log", state) for state in (ContainerState.PENDING, ContainerState.RUNNING))
    setup = ContainerStatus("setup", ContainerState.FAILED, True, "Error", "no", 5, 1, 2)

    for containers in ((setup, waits), (setup, runs), ()):
        storage.host_pods.apply_status([status(job_id, 1, R, containers=containers)])
    storage.host_pods.apply_status([status(job_id, 0, R, run=7, containers=(runs,))])

    assert {(1, 1): (setup, runs)} == storage.pods.containers(job_id, 0, 2)
    assert {} == storage.pods.containers(job_id, 0, 1)
    world.report(storage, job_id, [0, 1], S)
    world.settle_all(storage, job_id)
    storage.jobs.delete(job_id)
    assert {} == storage.pods.containers(job_id, 0, 2)


def test_repeated_statuses_change_nothing(storage: Storage) -> None:
    """Mesos repeats unacknowledged statuses. The second time nothing is written, logged or returned."""
    job_id = world.a_running_job(storage, 2)
    batch = [status(job_id, 0, F, message="Command exited with status 3"), status(job_id, 1, R)]
    storage.host_pods.apply_status(batch, "cluster")
    before = [
        storage.pods.get(job_id, 0),
        storage.pods.get(job_id, 1),
        len(storage.pods.events(job_id, 0)),
        storage.admission.status_log(0, 9),
    ]

    assert StatusOutcome() == storage.host_pods.apply_status(batch, "cluster")

    after = [
        storage.pods.get(job_id, 0),
        storage.pods.get(job_id, 1),
        len(storage.pods.events(job_id, 0)),
        storage.admission.status_log(0, 9),
    ]
    assert before == after
    assert StatusOutcome() == storage.host_pods.apply_status([], "cluster")


@everywhere
def test_one_batch_may_hold_many_jobs(storage: Storage) -> None:
    """The answer contains each changed job of the batch once."""
    one, two, three = (world.a_running_job(storage, 2) for _ in range(3))

    outcome = storage.host_pods.apply_status(
        [status(two, 1, S), status(one, 0, F), status(two, 0, S), status(three, 0, R)], "cluster"
    )

    assert sorted([one, two]) == outcome.changed_jobs
    assert [PodId(two, 1, 1), PodId(one, 0, 1), PodId(two, 0, 1)] == outcome.ended


@everywhere
def test_strangers_are_orphans(storage: Storage) -> None:
    """Unknown jobs and instances, old runs, and runs that were not launched have to be killed, unless they ended."""
    job_id = world.a_running_job(storage, 2, retries=5)
    world.report(storage, job_id, [0], F)
    storage.jobs.settle(job_id, NOW)
    nobody = new_job_id()

    outcome = storage.host_pods.apply_status(
        [
            status(job_id, 0, R, run=1),
            status(job_id, 0, R, run=2),
            status(job_id, 7, R),
            status(nobody, 0, R),
            status(nobody, 1, K),
            status(job_id, 0, L, run=1),
        ],
        "cluster",
    )

    orphans = [PodId(job_id, 0, 1), PodId(job_id, 0, 2), PodId(job_id, 7, 1), PodId(nobody, 0, 1)]
    assert StatusOutcome([], orphans, []) == outcome


def test_texts_may_hold_anything(storage: Storage) -> None:
    """Messages keep quotes, other alphabets and line ends. NUL, which PostgreSQL cannot store, is dropped."""
    job_id = world.a_running_job(storage, 1)

    world.report(storage, job_id, [0], F, message="a\x00b 'quoted' \"twice\" %s :x Ω\n", reason="r\x00")

    assert ("ab 'quoted' \"twice\" %s :x Ω\n", "r") == (
        world.pod(storage, job_id).message,
        world.pod(storage, job_id).reason,
    )


def test_output_is_added_to_the_message_of_the_run_that_failed(storage: Storage) -> None:
    """The output is added once to the event of the run, and to the pod as long as it has no newer run. Other runs and
    states keep their messages."""
    job_id = world.a_running_job(storage, 2, retries=2)
    storage.host_pods.apply_status([status(job_id, 0, F, message="exit 1"), status(job_id, 1, S, message="fine")])
    texts = [(PodId(job_id, instance, 1), "50% of\x00 it's gone") for instance in (0, 1, 7)]

    storage.host_pods.add_output(texts)
    storage.host_pods.add_output(texts)

    reported = "exit 1; stderr: 50% of it's gone"
    assert [reported, "fine"] == [world.pod(storage, job_id, instance).message for instance in (0, 1)]
    assert reported == storage.pods.events(job_id, 0)[0].message
    world.settle_all(storage, job_id, NOW + 3600 * SECOND)
    storage.host_pods.add_output([(PodId(job_id, 0, 1), "again")])
    assert 2 == world.pod(storage, job_id, 0).run_id
    assert "stderr" not in world.pod(storage, job_id, 0).message
    assert reported == storage.pods.events(job_id, 0, run_id=1)[0].message


@everywhere
def test_kills_are_answered_with_grace(storage: Storage) -> None:
    """Pods on hosts that must end are returned with host, agent and seconds of grace, and become KILLING."""
    config = world.a_config(4)
    config.defaultConfig.killGracePeriodSeconds = 7
    config.instanceConfig[1].killGracePeriodSeconds = 90
    job_id = world.create(storage, config)
    storage.pods.create(job_id, lambda _: None)
    world.admit(storage, job_id)
    world.launch(storage, job_id)
    storage.pods.set_goals(job_id, [(0, 2)], K, NOW, "stop")
    storage.pods.want_new_runs(job_id, [(3, 1)])

    assert [(PodId(job_id, 0, 1), "host0", "agent", 7)] == storage.host_pods.mark_killing(job_id, 1)
    rest = [(PodId(job_id, 1, 1), "host1", "agent", 90), (PodId(job_id, 3, 1), "host0", "agent", 7)]
    assert rest == storage.host_pods.mark_killing(job_id, 10)
    assert [] == storage.host_pods.mark_killing(job_id, 10)

    assert [KILLING, KILLING, LAUNCHED, KILLING] == world.states(storage, job_id)
    assert "Killing the task" == world.pod(storage, job_id).message
    revision = world.pod(storage, job_id).revision
    assert 3 == len(storage.host_pods.mark_killing(job_id, 10, again=True))
    assert revision == world.pod(storage, job_id).revision


def test_pods_on_hosts_are_listed_in_pages(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list has every pod that may be on a host, of jobs that have not ended."""
    ended = world.a_running_job(storage, 1)
    world.report(storage, ended, [0], S)
    storage.jobs.settle(ended, NOW)
    jobs = sorted([world.a_running_job(storage, 5), world.a_running_job(storage, 2)])
    world.a_job(storage, 3)
    monkeypatch.setattr(host_pods, "PAGE_PODS", 2)

    pages = list(storage.host_pods.on_hosts())

    found = [row for page in pages for row in page]
    expected = [
        (PodId(job, i, 1), f"host{i % 3}", "agent", R) for job in jobs for i in sorted(world.runs_of(storage, job))
    ]
    assert expected == found
    assert max(len(page) for page in pages) < 4


def test_frameworks_are_remembered(storage: Storage) -> None:
    """The framework id of each cluster is kept."""
    assert storage.hosts.framework_id("one") is None
    storage.hosts.set_framework_id("one", "old")
    storage.hosts.set_framework_id("one", "f1")
    storage.hosts.set_framework_id("two", "f2")

    assert ("f1", "f2") == (storage.hosts.framework_id("one"), storage.hosts.framework_id("two"))


def test_a_lease_has_one_holder(storage: Storage, clock: Clock) -> None:
    """A role is held until it is released or expires. Its holder renews it."""
    now_s = clock() / SECOND

    assert storage.leases.leader("resmgr", now_s) is None
    assert storage.leases.acquire("resmgr", "a", "host-a:1", 10, now_s)
    assert not storage.leases.acquire("resmgr", "b", "host-b:1", 10, now_s + 9)
    assert storage.leases.acquire("resmgr", "a", "host-a:2", 10, now_s + 9)
    assert "host-a:2" == storage.leases.leader("resmgr", now_s + 18)
    assert storage.leases.leader("resmgr", now_s + 19) is None
    assert storage.leases.acquire("resmgr", "b", "host-b:1", 10, now_s + 19)
    assert not storage.leases.release("resmgr", "a")
    assert storage.leases.release("resmgr", "b")
    assert storage.leases.acquire("hostmgr/one", "a", "host-a:3", 10, now_s)
    assert storage.leases.leader("resmgr", now_s) is None


def test_an_expired_lease_is_held_until_another_process_takes_it(storage: Storage, clock: Clock) -> None:
    """A leader that was suspended for longer continues if no other has led since, and does not if another has, even one
    that has stopped."""
    now_s = clock() / SECOND
    assert not storage.leases.renew("resmgr", "a", "host-a:1", 10, now_s)
    assert storage.leases.acquire("resmgr", "a", "host-a:1", 10, now_s)

    assert storage.leases.renew("resmgr", "a", "host-a:2", 10, now_s + 100)
    assert "host-a:2" == storage.leases.leader("resmgr", now_s + 109)
    assert storage.leases.holds("resmgr", "a")

    assert storage.leases.acquire("resmgr", "b", "host-b:1", 10, now_s + 110)
    assert not storage.leases.renew("resmgr", "a", "host-a:2", 10, now_s + 111)
    assert (False, True) == (storage.leases.holds("resmgr", "a"), storage.leases.holds("resmgr", "b"))
    assert not storage.leases.renew("resmgr", "a", "host-a:2", 10, now_s + 200)
    assert storage.leases.release("resmgr", "b")
    assert not storage.leases.renew("resmgr", "a", "host-a:2", 10, now_s + 201)
    assert not storage.leases.holds("resmgr", "a")


def test_a_renewal_that_comes_late_does_not_shorten_the_lease(storage: Storage, clock: Clock) -> None:
    """The late renewal began before the current one, on which the leader relies."""
    now_s = clock.now_ns / SECOND
    assert storage.leases.acquire("hostmgr", "one", "", 10, now_s)
    assert storage.leases.renew("hostmgr", "one", "one:80", 10, now_s + 9)

    assert storage.leases.renew("hostmgr", "one", "one:80", 10, now_s + 3)

    assert not storage.leases.acquire("hostmgr", "two", "", 10, now_s + 18)
    assert storage.leases.acquire("hostmgr", "two", "", 10, now_s + 19)


def test_why_pods_wait_on_their_hosts_is_stored_and_listed(storage: Storage) -> None:
    """Each reason is written once, with one event. The first wakes the workflow, and the report of a start clears
    it."""
    job_id = world.a_job(storage, 4)
    world.admit(storage, job_id)
    world.launch(storage, job_id)
    words: dict[str, Any] = {"reason": "ErrImagePull", "message": "x:1: not found", "waits": True}
    waits = [status(job_id, i, LAUNCHED, **words) for i in (1, 2, 3)]

    outcomes = [storage.host_pods.apply_status(waits, "cluster") for _ in range(2)]
    found, count = storage.pods.waiting_on_hosts(job_id, 2)

    other = [status(job_id, i, LAUNCHED, reason="ErrImagePull", message="timeout", waits=True) for i in (2, 3)]
    assert [StatusOutcome([job_id]), StatusOutcome()] == outcomes
    assert StatusOutcome() == storage.host_pods.apply_status(other, "cluster")
    assert ([1, 2], 3) == ([one.instance_id for one in found], count)
    assert ("ErrImagePull", "x:1: not found", LAUNCHED) == (found[0].reason, found[0].message, found[0].state)
    assert ["x:1: not found", "Add hostname and ports"] == [
        event.message for event in storage.pods.events(job_id, 1) if event.state is LAUNCHED
    ]
    world.report(storage, job_id, [1, 2], R)
    assert [3] == [one.instance_id for one in storage.pods.waiting_on_hosts(job_id, 2)[0]]
    assert [job_id] == storage.host_pods.apply_status([status(job_id, 3, STARTING, **words)], "cluster").changed_jobs
    assert 1 == storage.pods.waiting_on_hosts(job_id, 2)[1]
