"""The host manager's part of storage."""

from __future__ import annotations

from peloton.model.ids import JobId, PodId, new_job_id
from peloton.model.pod import PodState, PodStatus
from services.storage import pods as pods_module
from services.storage.gateway import Gateway, StatusOutcome
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
    a_config,
    a_job,
    a_running_job,
    admit,
    create,
    launch,
    pod,
    queue,
    report,
    runs_of,
    settle_all,
    states,
)


def status(job_id: JobId, instance: int, state: PodState, run: int = 1, **more: object) -> PodStatus:
    return PodStatus(PodId(job_id, instance, run), state, NOW, **more)  # type: ignore[arg-type]


def test_a_launch_takes_each_run_once(gateway: Gateway) -> None:
    """READY pods become LAUNCHED with host, agent and ports; a second launch of the run takes nothing."""
    job_id = a_job(gateway, 2)
    admit(gateway, job_id)
    rows = [(i, 1, "host1", "agent1", {"http": 31000 + i, "admin": 5}) for i in (0, 1)]

    assert {0, 1} == gateway.mark_launched(job_id, rows, NOW + SECOND)
    assert set() == gateway.mark_launched(job_id, rows, NOW + SECOND)

    launched = pod(gateway, job_id, 1)
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


def test_a_launch_refuses_what_is_not_wanted(gateway: Gateway) -> None:
    """Another run, a pod to be killed, and one that is not admitted are not launched."""
    job_id = a_job(gateway, 5)
    queue(gateway, job_id)
    gateway.mark_ready([(job_id, 0, 3)])
    gateway.set_pod_goals(job_id, [(1, 1)], K, NOW, "stop")

    rows = [(i, run, "host", "agent", {}) for i, run in ((0, 2), (1, 1), (2, 1), (3, 1), (9, 1))]

    assert {2} == gateway.mark_launched(job_id, rows, NOW)
    assert [READY, READY, LAUNCHED, P, P] == states(gateway, job_id)
    assert set() == gateway.mark_launched(job_id, [], NOW)


def test_statuses_are_applied_in_their_order(gateway: Gateway) -> None:
    """Several reports of one pod in a batch all take effect, each with its event."""
    job_id = a_job(gateway, 2)
    admit(gateway, job_id)
    launch(gateway, job_id)

    outcome = gateway.apply_status(
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
    assert [S, R] == states(gateway, job_id)
    events = [e.state for e in gateway.pod_events(job_id, 0)]
    assert [S, R, STARTING, LAUNCHED] == events[:4]


def test_repeated_statuses_change_nothing(gateway: Gateway) -> None:
    """Mesos repeats what was not acknowledged: the second time nothing is written, logged or answered."""
    job_id = a_running_job(gateway, 2)
    batch = [status(job_id, 0, F, message="Command exited with status 3"), status(job_id, 1, R)]
    gateway.apply_status(batch, "cluster")
    before = [
        gateway.pod(job_id, 0),
        gateway.pod(job_id, 1),
        len(gateway.pod_events(job_id, 0)),
        gateway.status_log(0, 9),
    ]

    assert StatusOutcome() == gateway.apply_status(batch, "cluster")

    after = [
        gateway.pod(job_id, 0),
        gateway.pod(job_id, 1),
        len(gateway.pod_events(job_id, 0)),
        gateway.status_log(0, 9),
    ]
    assert before == after
    assert StatusOutcome() == gateway.apply_status([], "cluster")


def test_one_batch_may_hold_many_jobs(gateway: Gateway) -> None:
    """Every job of the batch that changed is answered, once."""
    one, two, three = (a_running_job(gateway, 2) for _ in range(3))

    outcome = gateway.apply_status(
        [status(two, 1, S), status(one, 0, F), status(two, 0, S), status(three, 0, R)], "cluster"
    )

    assert sorted([one, two]) == outcome.changed_jobs
    assert [PodId(two, 1, 1), PodId(one, 0, 1), PodId(two, 0, 1)] == outcome.ended


def test_strangers_are_orphans(gateway: Gateway) -> None:
    """Unknown jobs and instances, old runs, and runs that were not launched are to be killed, unless they ended."""
    job_id = a_running_job(gateway, 2, retries=5)
    report(gateway, job_id, [0], F)
    gateway.settle(job_id, NOW)
    nobody = new_job_id()

    outcome = gateway.apply_status(
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


def test_texts_may_hold_anything(gateway: Gateway) -> None:
    """Messages keep quotes, other alphabets and line ends; NUL, which PostgreSQL cannot keep, is dropped."""
    job_id = a_running_job(gateway, 1)

    report(gateway, job_id, [0], F, message="a\x00b 'quoted' \"twice\" %s :x Ω\n", reason="r\x00")

    assert ("ab 'quoted' \"twice\" %s :x Ω\n", "r") == (pod(gateway, job_id).message, pod(gateway, job_id).reason)


def test_output_is_added_to_the_message_of_the_run_that_failed(gateway: Gateway) -> None:
    """Once, to its event and to the pod as long as it has no newer run; other runs and states keep theirs."""
    job_id = a_running_job(gateway, 2, retries=2)
    gateway.apply_status([status(job_id, 0, F, message="exit 1"), status(job_id, 1, S, message="fine")])
    texts = [(PodId(job_id, instance, 1), "50% of\x00 it's gone") for instance in (0, 1, 7)]

    gateway.add_output(texts)
    gateway.add_output(texts)

    told = "exit 1; stderr: 50% of it's gone"
    assert [told, "fine"] == [pod(gateway, job_id, instance).message for instance in (0, 1)]
    assert told == gateway.pod_events(job_id, 0)[0].message
    settle_all(gateway, job_id, NOW + 3600 * SECOND)
    gateway.add_output([(PodId(job_id, 0, 1), "again")])
    assert 2 == pod(gateway, job_id, 0).run_id
    assert "stderr" not in pod(gateway, job_id, 0).message
    assert told == gateway.pod_events(job_id, 0, run_id=1)[0].message


def test_kills_are_answered_with_grace(gateway: Gateway) -> None:
    """Pods on hosts that must end are answered with host, agent and seconds of grace, and become KILLING."""
    config = a_config(4)
    config.defaultConfig.killGracePeriodSeconds = 7
    config.instanceConfig[1].killGracePeriodSeconds = 90
    job_id = create(gateway, config)
    gateway.create_pods(job_id, lambda _: None)
    admit(gateway, job_id)
    launch(gateway, job_id)
    gateway.set_pod_goals(job_id, [(0, 2)], K, NOW, "stop")
    gateway.want_new_runs(job_id, [(3, 1)])

    assert [(PodId(job_id, 0, 1), "host0", "agent", 7)] == gateway.mark_killing(job_id, 1)
    rest = [(PodId(job_id, 1, 1), "host1", "agent", 90), (PodId(job_id, 3, 1), "host0", "agent", 7)]
    assert rest == gateway.mark_killing(job_id, 10)
    assert [] == gateway.mark_killing(job_id, 10)

    assert [KILLING, KILLING, LAUNCHED, KILLING] == states(gateway, job_id)
    assert "Killing the task" == pod(gateway, job_id).message
    revision = pod(gateway, job_id).revision
    assert 3 == len(gateway.mark_killing(job_id, 10, again=True))
    assert revision == pod(gateway, job_id).revision


def test_pods_on_hosts_are_listed_in_pages(gateway: Gateway, monkeypatch: object) -> None:
    """Every pod that a host may know is listed, of jobs that have not ended."""
    ended = a_running_job(gateway, 1)
    report(gateway, ended, [0], S)
    gateway.settle(ended, NOW)
    jobs = sorted([a_running_job(gateway, 5), a_running_job(gateway, 2)])
    a_job(gateway, 3)
    monkeypatch.setattr(pods_module, "PAGE_PODS", 2)  # type: ignore[attr-defined]

    pages = list(gateway.pods_on_hosts())

    found = [row for page in pages for row in page]
    expected = [(PodId(job, i, 1), f"host{i % 3}", "agent", R) for job in jobs for i in sorted(runs_of(gateway, job))]
    assert expected == found
    assert max(len(page) for page in pages) < 4


def test_frameworks_are_remembered(gateway: Gateway) -> None:
    """The id under which a cluster knows us survives, one for each cluster."""
    assert gateway.framework_id("one") is None
    gateway.set_framework_id("one", "old")
    gateway.set_framework_id("one", "f1")
    gateway.set_framework_id("two", "f2")

    assert ("f1", "f2") == (gateway.framework_id("one"), gateway.framework_id("two"))


def test_a_lease_has_one_holder(gateway: Gateway, clock: Clock) -> None:
    """A role is held until it is released or runs out; its holder renews it."""
    now_s = clock() / SECOND

    assert gateway.leader("resmgr", now_s) is None
    assert gateway.acquire_lease("resmgr", "a", "host-a:1", 10, now_s)
    assert not gateway.acquire_lease("resmgr", "b", "host-b:1", 10, now_s + 9)
    assert gateway.acquire_lease("resmgr", "a", "host-a:2", 10, now_s + 9)
    assert "host-a:2" == gateway.leader("resmgr", now_s + 18)
    assert gateway.leader("resmgr", now_s + 19) is None
    assert gateway.acquire_lease("resmgr", "b", "host-b:1", 10, now_s + 19)
    assert not gateway.release_lease("resmgr", "a")
    assert gateway.release_lease("resmgr", "b")
    assert gateway.acquire_lease("hostmgr/one", "a", "host-a:3", 10, now_s)
    assert gateway.leader("resmgr", now_s) is None


def test_a_lease_that_ran_out_is_held_on_until_somebody_takes_it(gateway: Gateway, clock: Clock) -> None:
    """Who was stopped for longer leads on if nobody has led since, and does not if somebody has who is gone again."""
    now_s = clock() / SECOND
    assert not gateway.renew_lease("resmgr", "a", "host-a:1", 10, now_s)
    assert gateway.acquire_lease("resmgr", "a", "host-a:1", 10, now_s)

    assert gateway.renew_lease("resmgr", "a", "host-a:2", 10, now_s + 100)
    assert "host-a:2" == gateway.leader("resmgr", now_s + 109)
    assert gateway.holds_lease("resmgr", "a")

    assert gateway.acquire_lease("resmgr", "b", "host-b:1", 10, now_s + 110)
    assert not gateway.renew_lease("resmgr", "a", "host-a:2", 10, now_s + 111)
    assert (False, True) == (gateway.holds_lease("resmgr", "a"), gateway.holds_lease("resmgr", "b"))
    assert not gateway.renew_lease("resmgr", "a", "host-a:2", 10, now_s + 200)
    assert gateway.release_lease("resmgr", "b")
    assert not gateway.renew_lease("resmgr", "a", "host-a:2", 10, now_s + 201)
    assert not gateway.holds_lease("resmgr", "a")


def test_a_renewal_that_comes_late_does_not_shorten_the_lease(gateway: Gateway, clock: Clock) -> None:
    """It began before the one that counts, whose leader thinks itself safe."""
    now_s = clock.now_ns / SECOND
    assert gateway.acquire_lease("hostmgr", "one", "", 10, now_s)
    assert gateway.renew_lease("hostmgr", "one", "one:80", 10, now_s + 9)

    assert gateway.renew_lease("hostmgr", "one", "one:80", 10, now_s + 3)

    assert not gateway.acquire_lease("hostmgr", "two", "", 10, now_s + 18)
    assert gateway.acquire_lease("hostmgr", "two", "", 10, now_s + 19)
