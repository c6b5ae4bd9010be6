"""Faults between storage and Mesos, and the recovery from each."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict

from peloton.api.v0.task.task_pb2 import TaskConfig
from peloton.errors import Unavailable
from peloton.model.host import LaunchResult
from peloton.model.ids import JobId, PodId, new_job_id
from peloton.model.job import JobState
from peloton.model.pod import PodState
from services.hostmgr.driver import HostLaunch, PodLaunch, PodTemplate
from tests.conformance.hostmgr.conftest import Make
from tests.conformance.hostmgr.emulated import LONG
from tests.conformance.hostmgr.world import Outage, World, wait

KILLED, LAUNCHED, LOST, RUNNING = PodState.KILLED, PodState.LAUNCHED, PodState.LOST, PodState.RUNNING
MASTER = {"hostname": "a new", "port": 5050}


def wait_for_relaunch(world: World, job: JobId) -> None:
    """Settle the job, which gives the lost run its successor, and wait until the successor runs."""
    world.admit(job)
    world.launch(world.place(job))
    world.wait_states(job, {"RUNNING": 1})


# The host manager dies.


def test_pods_outlive_their_host_manager(any_world: World) -> None:
    """The next leader takes over the same framework. Running pods continue, and can be killed."""
    world = any_world
    job = world.running(2)
    before, framework_id = world.tasks(), world.mesos.subscription.framework_id
    world.core.stop()

    world.lead()

    world.wait_calls("SUBSCRIBE", after=1)
    wait(lambda: world.mesos.is_connected, "the subscription")
    assert (framework_id, before) == (world.mesos.subscription.framework_id, world.tasks())
    assert {"RUNNING": 2} == world.states(job)
    world.kill(job)
    world.wait_states(job, {"KILLED": 2})


def test_a_launch_that_mesos_never_got_is_lost_and_repeated(world: World) -> None:
    """The host manager dies between its commit and the ACCEPT: the next one reconciles, and settle gives a new run."""
    job = world.job()
    batch = world.place(job)
    agent = world.host("h0")
    world.core.stop()
    world.storage.host_pods.mark_launched(job, [(0, 1, "h0", agent.host_id, {})], 1, "local")

    world.lead()

    world.wait_states(job, {"LOST": 1})
    wait_for_relaunch(world, job)
    assert [(1, LAUNCHED), (1, LOST), (2, LAUNCHED), (2, RUNNING)] == world.history(job)
    assert batch.job_id in world.wakes.jobs


def test_a_kill_that_mesos_never_got_is_sent_again(world: World) -> None:
    """The host manager dies after it has marked a pod KILLING and before the KILL call. The next one sends it."""
    job = world.running()
    world.core.stop()
    world.storage.jobs.set_goal(job, JobState.KILLED, 1)
    world.storage.host_pods.mark_killing(job, 10, cluster="local")

    world.lead()

    world.wait_states(job, {"KILLED": 1})


def test_what_ended_meanwhile_is_learnt_by_the_next_leader(make: Make, tmp_path: Path) -> None:
    """The end of a pod while no host manager is subscribed is stored by the next one."""
    world, may_end, ends = make(simulate=False), tmp_path / "may-end", tmp_path / "ends"
    job = world.running(command=f"until [ -e {may_end} ]; do sleep 0.05; done; touch {ends}")
    world.core.stop()
    may_end.touch()
    wait(ends.exists, "the end of the pod")

    world.lead()

    world.wait_states(job, {"SUCCEEDED": 1})


def test_a_leader_that_was_replaced_stays_away(world: World) -> None:
    """The older of two host managers does not take the subscription back from the newer one."""
    older = world.core
    newer = world.lead()

    wait(lambda: newer.driver.is_connected and not older.driver.is_connected, "the newer one alone")
    job = world.running()

    assert 2 == world.link.calls.count("SUBSCRIBE")
    assert {"RUNNING": 1} == world.states(job)


def test_a_leader_that_was_replaced_launches_nothing(world: World) -> None:
    """Mesos rejects the ACCEPT of a replaced leader. The pod of its commit is LOST, and its successor repeats the
    launch."""
    older = world.core
    batch = world.place(world.job())
    newer = threading.Event()

    def replace_master(_: JobId) -> None:
        world.lead()
        wait(lambda: world.mesos.is_connected and not older.driver.is_connected, "the newer one")
        newer.set()

    world.storage.host_pods.on_launched = replace_master

    assert LaunchResult(0, 0, 1) == older.launch(batch.job_id, batch.lease_id, batch.placements)
    assert newer.is_set()
    wait_for_relaunch(world, batch.job_id)


# The connection breaks.


def test_a_cut_connection_is_made_again(any_world: World) -> None:
    """The driver subscribes again. An old lease claims nothing, and pods continue to run."""
    world = any_world
    job = world.running()
    batch, reported = world.place(world.job()), len(world.link.calls)

    world.link.cut()

    world.wait_calls("SUBSCRIBE", after=reported)
    wait(lambda: world.mesos.is_connected, "the subscription")
    assert LaunchResult(0, 1) == world.launch(batch)
    assert LaunchResult(1) == world.launch(world.place(batch.job_id))
    assert {"RUNNING": 1} == world.states(job)


def test_a_launch_while_mesos_is_away_is_lost_and_repeated(world: World) -> None:
    """A launch that was committed but not sent is LOST with the reason that always allows a new run."""
    batch = world.place(world.job())

    def away(_: JobId) -> None:
        world.link.down()
        wait(lambda: not world.mesos.is_connected, "the end of the subscription")

    world.storage.host_pods.on_launched = away

    assert LaunchResult(0, 0, 1) == world.launch(batch)
    assert (LOST, "REASON_HOST_REJECT_OFFER") == (world.pod(batch.job_id).state, world.pod(batch.job_id).reason)
    world.link.up()
    wait_for_relaunch(world, batch.job_id)


def test_a_launch_whose_answer_is_lost_runs_once(any_world: World) -> None:
    """Mesos took the ACCEPT but its answer was lost. The pod is not called lost, it runs, and nothing is repeated."""
    world = any_world
    batch = world.place(world.job())
    world.link.lose_answer = "ACCEPT"

    with pytest.raises(Unavailable, match="not known whether"):
        world.launch(batch)

    world.wait_states(batch.job_id, {"RUNNING": 1})
    assert LaunchResult(0, 1) == world.launch(batch)
    assert [1] == sorted({run for run, _ in world.history(batch.job_id)})
    assert [str(PodId(batch.job_id, 0, 1))] == world.tasks()


def test_a_launch_that_is_lost_on_its_way_is_repeated(any_world: World) -> None:
    """Mesos never received the ACCEPT and says so in the reconciliation. The pod runs again on offers that returned."""
    world = any_world
    job = world.job()
    batch = world.place(job)
    world.link.lose_call = "ACCEPT"

    with pytest.raises(Unavailable, match="not known whether"):
        world.launch(batch)

    world.wait_states(job, {"LOST": 1})
    wait_for_relaunch(world, job)
    free = 3 * 4_000 - 1_000
    wait(lambda: world._cluster is None or sum(h.free.cpu_milli for h in world.core.cache.hosts()) == free, "offers")


def test_a_kill_that_is_lost_on_its_way_is_sent_again(any_world: World) -> None:
    """The caller receives an error. Reconciliation repeats the kill while the subscription lasts."""
    world = any_world
    job = world.running()
    subscriptions = world.link.calls.count("SUBSCRIBE")
    world.link.lose_call = "KILL"

    with pytest.raises(Unavailable, match="not killed yet"):
        world.kill(job)

    world.wait_states(job, {"KILLED": 1})
    assert subscriptions == world.link.calls.count("SUBSCRIBE")


def test_an_acknowledgement_that_is_lost_is_sent_again(world: World) -> None:
    """The agent repeats the update, which changes nothing in storage and is acknowledged."""
    world.link.lose_call = "ACKNOWLEDGE"

    job = world.start(command="true")

    world.wait_states(job, {"SUCCEEDED": 1})
    frameworks = world.cluster.cluster.master.registry.frameworks
    wait(lambda: not frameworks[world.mesos.subscription.framework_id].tasks, "acknowledgements")
    assert 1 == [state for _, state in world.history(job)].count(RUNNING)


def test_a_master_without_memory_and_agents_loses_pods_but_takes_new_ones(make: Make) -> None:
    """A new master at the old address knows neither framework nor pods, and the old agents never register. The pods are
    LOST after the registration timeout, and the next launch works."""
    world = make(agent_reregister_timeout_s=0.5)
    job = world.running()

    world.restart_master()

    world.wait_states(job, {"LOST": 1})
    assert world.running()


def test_a_removed_framework_comes_back_as_a_new_one(world: World) -> None:
    """The pods of a removed framework are lost with it. The new id is stored, and launches continue."""
    job = world.running()
    before = world.mesos.subscription.framework_id

    world.cluster.remove_frameworks()

    wait(lambda: world.mesos.subscription.framework_id not in (None, before), "another framework")
    world.wait_states(job, {"LOST": 1})
    wait(
        lambda: world.storage.hosts.framework_id("local") == world.mesos.subscription.framework_id, "its id in storage"
    )
    assert world.running()


# Storage breaks.


def test_nothing_is_launched_before_the_framework_id_is_stored(world: World) -> None:
    """A launch is refused until storage has the framework id, since a successor could not find its pods."""
    world.storage.hosts.framework_ids_to_fail = 3
    world.cluster.remove_frameworks()
    wait(lambda: world.storage.hosts.framework_ids_to_fail < 3, "a new framework")
    batch = world.place(world.job())

    with pytest.raises(Unavailable, match="framework id is not stored"):
        world.launch(batch)

    wait(
        lambda: world.storage.hosts.framework_id("local") == world.mesos.subscription.framework_id, "its id in storage"
    )
    assert LaunchResult(1) == world.launch(world.place(batch.job_id))


@pytest.mark.parametrize("when", ["launches_to_fail", "answers_to_fail"])
def test_a_failed_commit_of_a_launch_costs_no_offer(when: str, world: World) -> None:
    """The hosts of a failed commit are offered again, whether or not the pods were committed. Pods that were committed
    become LOST."""
    batch = world.place(world.job(12))
    setattr(world.storage.host_pods, when, 1)

    with pytest.raises(Outage):
        world.launch(batch)

    if when == "answers_to_fail":
        world.wait_states(batch.job_id, {"LOST": 12})
        world.admit(batch.job_id)
    assert LaunchResult(12) == world.launch(world.place(batch.job_id))
    world.wait_states(batch.job_id, {"RUNNING": 12})


@pytest.mark.parametrize("when", ["kills_to_fail", "comings_back_to_fail"])
def test_a_kill_that_storage_broke_off_is_reported(when: str, world: World) -> None:
    """The pod is marked KILLING and Mesos has not received the kill. The kill is sent without a further request,
    because no later call marks the pod."""
    job = world.running()
    setattr(world.storage.host_pods, when, 1)

    with pytest.raises(Outage):
        world.kill(job)

    world.wait_states(job, {"KILLED": 1})


def test_news_that_mesos_reports_only_once_is_not_lost_with_its_commit(world: World) -> None:
    """The master's own updates carry no uuid and are not repeated, so the host manager asks for them after a failed
    commit."""
    job = world.running()
    host = world.pod(job).host
    world.storage.host_pods.commits_to_fail = 1

    world.cluster.agent(host, "freeze")

    wait(lambda: not world.storage.host_pods.commits_to_fail, "the failed commit")
    world.wait_states(job, {"LOST": 1})


# Hosts break.


def test_pods_of_a_host_that_stays_away_are_lost(world: World) -> None:
    """Mesos gives the agent up. The pod of a batch job without retries stays LOST."""
    job = world.running()

    world.cluster.agent(world.pod(job).host, "stop")

    world.wait_states(job, {"LOST": 1})
    wait(lambda: len(world.core.cache.hosts()) == 2, "two hosts")


def test_a_pod_that_comes_back_with_its_host_is_killed(world: World) -> None:
    """A pod that was LOST while its agent was unavailable is killed as an orphan when it returns."""
    job = world.running()
    host = world.pod(job).host
    world.cluster.agent(host, "freeze")
    world.wait_states(job, {"LOST": 1})

    world.cluster.agent(host, "start")

    world.wait_calls("KILL")
    wait(lambda: not world.tasks(), "the end of the orphan")
    assert {"LOST": 1} == world.states(job)


def test_an_unwanted_run_is_killed(any_world: World) -> None:
    """A pod whose job is unknown to storage is killed at its first report."""
    world = any_world
    stranger = PodId(new_job_id(), 0, 1)
    batch = world.place(world.job())
    (claim,) = world.core.cache.claim(batch.lease_id, [batch.placements[0].hostname]).values()
    config = ParseDict({"command": {"value": LONG}, "resource": {"cpuLimit": 0.1, "memLimitMb": 32}}, TaskConfig())
    job = world.storage.jobs.get(batch.job_id)
    assert job is not None

    world.core.driver.launch([HostLaunch(claim, [PodLaunch(stranger, PodTemplate(job, "", config), ())])])

    world.wait_calls("KILL")
    wait(lambda: not world.tasks(), "the end of the orphan")


# Calls that overlap.


def test_mesos_is_not_asked_about_a_launch_on_its_way(world: World) -> None:
    """Reconciliation leaves out a pod between its commit and its ACCEPT, which Mesos would call lost."""
    batch = world.place(world.job())

    def check_reconciled(_: JobId) -> None:
        asked = len(world.link.calls)
        world.mesos.reregistered(world.mesos.subscription, MASTER)
        world.wait_calls("RECONCILE", after=asked)

    world.storage.host_pods.on_launched = check_reconciled

    world.launch(batch)

    world.wait_states(batch.job_id, {"RUNNING": 1})
    assert [(1, LAUNCHED), (1, RUNNING)] == world.history(batch.job_id)


def test_a_kill_that_overtakes_its_launch_wins(world: World) -> None:
    """Mesos does not know the pod when the KILL arrives. The run that the ACCEPT starts afterwards is killed as an
    orphan."""
    job = world.job()
    batch = world.place(job)

    def kill_launched(_: JobId) -> None:
        world.kill(job)
        world.wait_states(job, {"KILLED": 1})

    world.storage.host_pods.on_launched = kill_launched

    world.launch(batch)

    wait(lambda: world.link.calls.count("KILL") >= 2 and not world.tasks(), "the end of what was started")
    assert {"KILLED": 1} == world.states(job)
    assert KILLED is world.history(job)[-1][1]


def test_more_pods_than_one_call_kills_are_killed_by_the_next(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call returns the number of pods that it killed, until none are left."""
    monkeypatch.setattr("services.hostmgr.manager.KILL_BATCH", 5)
    job = world.running(12)

    assert [5, 5, 2, 0] == [world.kill(job), *(world.core.kill_running(job) for _ in range(3))]
    world.wait_states(job, {"KILLED": 12})


def test_an_unknown_lease_launches_nothing(world: World) -> None:
    """A launch with an unknown lease is refused, and returning such a lease changes nothing."""
    world.core.release("unknown")

    assert LaunchResult(0, 0) == world.core.launch(world.job(), "unknown", ())
