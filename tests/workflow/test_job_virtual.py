"""Whole lives of batch jobs in virtual time: the real workflow and activities on a fake cluster."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from peloton.lifecycle.settle import SETTLE_PODS_MAX
from peloton.model.ids import JobId, PodId
from peloton.model.job import JobEnd, JobState, SlaSpec
from peloton.model.pod import NextRun, PodState
from tests.workflow.fakes import no_slot
from tests.workflow.stories import JOB, Story
from tests.workflow.virtual import TASK_HEARTBEAT_S, Stuck
from workflows.job import JobInput
from workflows.policies import Policies

HOUR_S = 3600.0


def fail_all(_: PodId) -> PodState:
    return PodState.FAILED


def fail_first_runs(count: int, runs: int) -> object:
    """Instances below ``count`` fail in their first ``runs`` runs."""

    def ending(pod: PodId) -> PodState:
        return PodState.FAILED if pod.instance_id < count and pod.run_id <= runs else PodState.SUCCEEDED

    return ending


def promise_events(story: Story) -> int:
    """Return the number of events that the docstring of the workflow promises for a job of one run."""
    calls, wakes = Counter(story.workflow.calls), story.workflow.wakes
    large = 14 + 6 * calls["enqueue"] + 7 * calls["place_and_launch"]
    small = 7 + calls["enqueue"] + calls["place_and_launch"]
    is_small = story.cluster.jobs[JOB].record.instance_count <= Policies().at_once_pods_max
    timers = story.workflow.commands["start_timer"] + story.workflow.commands["cancel_timer"]
    return 5 * wakes + len(story.workflow.shown_states) + timers + (small if is_small else large)


@pytest.mark.parametrize(("pods", "events_max"), [(1, 40), (10, 40), (5_000, 108)])
def test_job_succeeds(pods: int, events_max: int) -> None:
    """A job that fits on the cluster succeeds with few events, and each pod is launched once."""
    story = Story(hosts=500).submit(pods)

    assert ("SUCCEEDED", {"SUCCEEDED": pods}) == story.run()
    assert {PodId(JOB, i, 1) for i in range(pods)} == set(story.cluster.launched)
    assert ["PENDING", "RUNNING", "SUCCEEDED"] == story.workflow.shown_states[-3:]
    assert story.workflow.events <= min(events_max, promise_events(story))


def test_admitted_at_once() -> None:
    """Few pods that fit are queued, placed and launched by the step that creates them, whose summary says so."""
    story = Story(admission_s=0).submit(10).run_until_pods("LAUNCHED", 10)

    assert ["settle"] == story.workflow.calls
    assert ["settle the job; queue, place and launch few pods"] == story.workflow.summaries
    assert 0 == story.workflow.wakes
    assert ("SUCCEEDED", {"SUCCEEDED": 10}) == story.run()
    assert story.workflow.events <= 22  # two signals: the pods run, and the pods have ended


@pytest.mark.parametrize(("away", "step"), [("enqueue", "enqueue"), ("launch", "place_and_launch")])
@pytest.mark.parametrize("is_done", [False, True])
def test_what_fails_at_once_is_made_by_its_own_step(away: str, step: str, is_done: bool) -> None:
    """A step that fails after the settle, before or after it acted, is made once more by a call of its own."""
    story = Story(admission_s=0).submit(10)
    (story.cluster.lost_replies if is_done else story.cluster.outages)[away] = 1

    assert ("SUCCEEDED", {"SUCCEEDED": 10}) == story.run()
    assert ["settle", step] == story.workflow.calls[:2]
    assert {PodId(JOB, i, 1) for i in range(10)} == set(story.cluster.launched)


def test_more_than_few_pods_take_a_step_each() -> None:
    """More pods than a step makes at once are queued, placed and launched by calls of their own."""
    story = Story(admission_s=0, hosts=50).submit(101).run_until_pods("LAUNCHED", 101)

    assert ["settle", "create_pods", "enqueue", "place_and_launch"] == story.workflow.calls


def test_admitted_in_part() -> None:
    """Pods that the answer does not report as admitted are launched when the job is notified of them."""
    story = Story(admission_s=0, admitted_max=6).submit(10).run_until_pods("LAUNCHED", 6)

    assert 0 == story.workflow.wakes
    assert ("SUCCEEDED", {"SUCCEEDED": 10}) == story.run()


def test_retries_until_success() -> None:
    """Failed pods run again until they succeed, the others do not."""
    story = Story(ending=fail_first_runs(3, 2)).submit(10, max_failures=3)

    assert ("SUCCEEDED", {"SUCCEEDED": 10}) == story.run()
    assert [3] * 3 + [1] * 7 == [pod.run_id for pod in story.cluster.jobs[JOB].pods]


def test_retries_end_at_max_failures() -> None:
    """A pod that always fails rests after its max failures, and the job fails."""
    story = Story(ending=fail_all).submit(2, max_failures=3)

    assert ("FAILED", {"FAILED": 2}) == story.run()
    assert {PodId(JOB, i, run) for i in range(2) for run in (1, 2, 3)} == set(story.cluster.launched)


def test_more_retries_than_one_settle_takes() -> None:
    """Ended pods beyond the bound of one settle are settled by the next, at once, without another signal."""
    pods = 2 * SETTLE_PODS_MAX + 1
    story = Story(hosts=300, ending=fail_first_runs(pods, 1))
    story.submit(pods, max_failures=2, policies=Policies()).run_until_pods("RUNNING", 1)
    story.workflow.signals_lost = True
    story.run_until_pods("FAILED", pods)
    story.workflow.signal_now()
    story.run_for(1)

    assert all(pod.next_run is NextRun.NONE for pod in story.cluster.jobs[JOB].pods)
    assert ("SUCCEEDED", {"SUCCEEDED": pods}) == story.run()


def test_admission_in_waves() -> None:
    """A pool with a limit of 10 pods runs a job of 35 in four waves."""
    story = Story(admitted_max=10).submit(35)

    assert ("SUCCEEDED", {"SUCCEEDED": 35}) == story.run()
    assert 4 * 60 < story.workflow.ended_at_s < 4 * 65


def test_queueing_in_bounded_calls() -> None:
    """More pods than one call queues are queued by several, without waiting."""
    story = Story(hosts=10, admission_s=30).submit(95, policies=Policies(admit_pods_max=10)).run_for(5)

    assert 10 == story.cluster.calls["enqueue"]
    assert ("SUCCEEDED", {"SUCCEEDED": 95}) == story.run()


@pytest.mark.parametrize("told", [True, False])
def test_hosts_come_after_an_hour(told: bool) -> None:
    """A job waits for hosts with growing pauses; when they come it continues, notified or not."""
    story = Story(hosts=0).submit(10, policies=Policies(pod_placement_s=2 * HOUR_S)).run_for(HOUR_S)
    status = story.status
    looks = story.workflow.calls.count("place_and_launch")
    story.cluster.add_hosts(1, notify=told)

    assert {"state": "PENDING", "waiting_for": "10 pods without a host (no host offered)"} == status
    assert (10, no_slot(10)) == story.cluster.unplaced[JOB]
    assert looks <= HOUR_S / 30 + 6
    assert ("SUCCEEDED", {"SUCCEEDED": 10}) == story.run()
    assert story.workflow.ended_at_s < HOUR_S + 62 + (0 if told else 30)


def test_kill_while_waiting_for_hosts() -> None:
    """A job without hosts that is killed ends at once, without a launch."""
    story = Story(hosts=0).submit(10).run_for(60)
    story.cluster.kill(JOB)

    assert ("KILLED", {"KILLED": 10}) == story.run()
    assert {} == story.cluster.launched
    assert story.workflow.ended_at_s < 62


def test_kill_while_queued() -> None:
    """Pods that no pool admits end when the job is killed."""
    story = Story(admitted_max=0).submit(10).run_for(60)
    story.cluster.kill(JOB)

    assert ("KILLED", {"KILLED": 10}) == story.run()


def test_kill_while_running() -> None:
    """Running pods are ended on their hosts, waiting ones in the queue."""
    story = Story(admitted_max=10).submit(35).run_until_pods("RUNNING", 10)
    story.cluster.kill(JOB)

    assert ("KILLED", {"KILLED": 35}) == story.run()
    assert 10 == len(story.cluster.launched)
    assert "KILLING" in story.workflow.shown_states


def test_kill_after_some_succeeded() -> None:
    """Pods that had succeeded remain SUCCEEDED when the job is killed."""
    story = Story(admitted_max=10).submit(35).run_until_pods("SUCCEEDED", 10)
    story.cluster.kill(JOB)

    assert ("KILLED", {"SUCCEEDED": 10, "KILLED": 25}) == story.run()


def test_kill_during_creation() -> None:
    """A job killed while its pods are created ends KILLED, without a pod in a queue."""
    story = Story()
    story.cluster.on_chunk = lambda count: story.cluster.kill(JOB) if count == 1_000 else None
    story.submit(2_500)

    assert ("KILLED", {"KILLED": 2_500}) == story.run()
    assert "enqueue" not in story.workflow.calls


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_growth(state: str) -> None:
    """A job that is given more instances while it waits or runs creates and runs them too, and no other twice."""
    story = Story(admitted_max=10).submit(10).run_until_pods(state, 10)
    story.cluster.grow(JOB, 25)

    assert ("SUCCEEDED", {"SUCCEEDED": 25}) == story.run()
    assert {PodId(JOB, i, 1) for i in range(25)} == set(story.cluster.launched)


def test_host_manager_that_kills_nothing() -> None:
    """A kill without effect is repeated with pauses, not in a tight loop."""
    story = Story(run_s=HOUR_S).submit(10).run_until_pods("RUNNING", 10)
    story.cluster.kill(JOB)
    story.cluster.ignored_kills = 20
    story.run_for(50)

    assert story.cluster.calls["kill_running"] <= 6
    assert "KILLED" == story.run()[0]


@pytest.mark.parametrize("copies", [2, 5])
def test_duplicate_signals(copies: int) -> None:
    """A signal that is sent several times costs little and changes no result."""
    story = Story(admitted_max=10)
    story.workflow.signal_copies = copies
    story.submit(35)

    assert ("SUCCEEDED", {"SUCCEEDED": 35}) == story.run()


def test_all_signals_lost() -> None:
    """A job ends without any signal; each step costs at most the polling interval."""
    story = Story()
    story.workflow.signals_lost = True
    story.submit(10, policies=Policies(look_again_s=300))

    assert ("SUCCEEDED", {"SUCCEEDED": 10}) == story.run()
    assert story.workflow.ended_at_s < 3 * 300


def test_signal_during_a_slow_read() -> None:
    """A change that is signalled while storage is being read is read afterwards, not forgotten."""
    story = Story(local_s=TASK_HEARTBEAT_S + 1, run_s=2.0).submit(10, policies=Policies(look_again_s=10_000))

    assert ("SUCCEEDED", {"SUCCEEDED": 10}) == story.run()
    assert story.workflow.ended_at_s < 100


@pytest.mark.parametrize(("losses", "launches_max", "extra_s"), [(1, 2, 3), (100, 12, 240)])
def test_lost_leases(losses: int, launches_max: int, extra_s: float) -> None:
    """Pods whose lease was lost between placement and launch are placed again, with pauses when leases are lost
    repeatedly.
    """
    story = Story()
    story.cluster.lost_leases = losses
    story.submit(10).run_for(extra_s)
    story.cluster.lost_leases = 0

    assert story.workflow.calls.count("place_and_launch") <= launches_max
    assert ("SUCCEEDED", {"SUCCEEDED": 10}) == story.run()
    assert story.workflow.ended_at_s < extra_s + 95


def test_gang_waits_for_capacity_for_all() -> None:
    """A gang larger than a placement's limit is placed whole, once it fits whole."""
    story = Story(hosts=1, slots=10)
    story.submit(15, sla=SlaSpec(minimum_running_instances=15), policies=Policies(place_pods_max=5)).run_for(60)
    launched_before = len(story.cluster.launched)
    story.cluster.add_hosts(1)

    assert 0 == launched_before
    assert ("SUCCEEDED", {"SUCCEEDED": 15}) == story.run()
    assert 1 == story.cluster.calls["launch"]
    assert story.workflow.ended_at_s < 60 + 62  # no step waited for the end of a lease that placed no pods


def test_max_running_instances() -> None:
    """A job never has more active pods than its maximum of running instances."""
    story = Story().submit(35, sla=SlaSpec(maximum_running_instances=10))

    assert ("SUCCEEDED", {"SUCCEEDED": 35}) == story.run()
    assert 10 == story.cluster.peak_scheduled


def test_deadline() -> None:
    """Pods that run longer than the job allows are killed then, without any signal to the workflow."""
    story = Story(run_s=10 * HOUR_S).submit(10, sla=SlaSpec(max_running_time_s=120))

    assert ("KILLED", {"KILLED": 10}) == story.run()
    assert 120 < story.workflow.ended_at_s < 125


def test_continue_as_new() -> None:
    """A job with a long history continues in new runs, none of them much longer than the bound."""
    bound = 40
    story = Story(admitted_max=10, ending=fail_first_runs(5, 1))
    story.submit(95, max_failures=2, policies=Policies(history_events_max=bound))

    assert ("SUCCEEDED", {"SUCCEEDED": 95}) == story.run()
    assert len(story.workflow.runs) > 3
    assert 1 == story.cluster.calls["create"]
    assert max(run.events for run in story.workflow.runs) < bound + 40


def test_continue_as_new_between_launches() -> None:
    """Many pods admitted at once do not make one run longer than the bound: the next run places the rest."""
    bound = 100
    story = Story(hosts=100).submit(1_000, policies=Policies(place_pods_max=20, history_events_max=bound))

    assert ("SUCCEEDED", {"SUCCEEDED": 1_000}) == story.run()
    assert story.workflow.ended_at_s < 64
    assert max(run.events for run in story.workflow.runs) < bound + 40


def test_absurdly_small_history_bound() -> None:
    """Every run moves the job on, however small the bound."""
    story = Story().submit(30, policies=Policies(place_pods_max=10, history_events_max=1))

    assert ("SUCCEEDED", {"SUCCEEDED": 30}) == story.run()


def test_unknown_job_fails() -> None:
    """A job that is not stored fails its workflow with the reason instead of endless attempts."""
    story = Story()
    story.workflow.start(JobInput(JOB))
    story.workflow.run()

    assert story.workflow.failure is not None
    assert "NOT_FOUND" == story.workflow.failure.cause.application_failure_info.type
    assert f"job {JOB} not found" == story.workflow.failure.cause.message
    assert 1 == story.workflow.attempts["settle"]


def test_dependency_away_for_an_hour() -> None:
    """A failing dependency is called every few seconds at most, and the job continues when it responds again."""
    story = Story()
    story.cluster.outages["acquire_hosts"] = 700
    story.submit(10)

    assert ("SUCCEEDED", {"SUCCEEDED": 10}) == story.run()
    assert HOUR_S * 0.9 < story.workflow.ended_at_s < HOUR_S * 1.1
    assert story.workflow.events <= promise_events(story) + 6  # it was an activity from its second attempt on


def test_placement_does_not_wait_for_the_resource_manager() -> None:
    """A failure to record the reason of unplaced pods does not stop the placement of others."""
    story = Story(hosts=1)
    story.cluster.outages["note_unplaced"] = 1_000
    story.submit(15)

    assert ("SUCCEEDED", {"SUCCEEDED": 15}) == story.run()
    assert story.workflow.ended_at_s < 2 * 62


def test_details() -> None:
    """Details in the Temporal UI show the state and the number of pods in each state."""
    story = Story(admitted_max=10, ending=fail_first_runs(1, 9)).submit(35).run_until_pods("SUCCEEDED", 19)
    story.run_for(5)

    assert {"state": "RUNNING", "waiting_for": ""} == story.status
    told, _, states = story.workflow.current_details.partition("\n\nIts life (UTC):\n\n")
    assert "5 waiting in the queue of the pool\n- 10 running\n- 19 succeeded\n- 1 failed" == told.partition("\n- ")[2]
    assert ["PENDING", "RUNNING"] == [line.rpartition(" ")[2] for line in states.splitlines()][:2]


@pytest.mark.parametrize(("pods", "hosts"), [(1_000, 100), (3_000, 30)])
def test_history_budget(pods: int, hosts: int) -> None:
    """A history stays within the events that the workflow's docstring promises, also when pods wait for hosts."""
    story = Story(hosts=hosts).submit(pods)
    story.run()

    assert story.workflow.events <= promise_events(story)
    assert story.cluster.calls["launch"] <= pods / 1_000 + pods / (hosts * 10)


def test_payloads_are_bounded() -> None:
    """A launch of the largest usual batch is far below the 2 MB that Temporal accepts: it names no pods."""
    story = Story(hosts=100).submit(1_000)
    story.run()

    largest = max(len(command) for run in story.workflow.runs for _, told in run.told for command in told)
    assert largest < 2_000


def test_result_is_plain() -> None:
    """The result that the Temporal UI shows is readable."""
    story = Story().submit(3)
    story.run()

    assert {"state": "SUCCEEDED", "counts": {"SUCCEEDED": 3}} == json.loads(json.dumps(vars(story.workflow.result)))


def test_nothing_left_to_happen_is_noticed() -> None:
    """The virtual clock itself fails on a workflow that waits for an event that never comes, instead of an endless
    loop.
    """
    story = Story()
    story.workflow.start(JobInput(story.cluster.submit(JOB, 101).job_id))
    story.workflow.on_call["create_pods"] = story.clock.stop

    with pytest.raises(Stuck):
        story.workflow.run()


@pytest.mark.parametrize("is_again", [False, True])
def test_a_job_that_is_to_be_deleted_is_forgotten(is_again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is deleted at its end is removed. A job that is created under its id meanwhile is run by the same
    workflow.
    """
    story = Story(hosts=1, run_s=1.0).submit(1).run_until_pods("SUCCEEDED", 1)
    story.cluster.delete(JOB)
    forget = story.cluster.forget

    def forgotten(job_id: JobId) -> None:
        forget(job_id)
        if is_again:
            story.cluster.submit(job_id, 5)

    monkeypatch.setattr(story.cluster, "forget", forgotten)
    result = story.workflow.run()

    assert (None, {"SUCCEEDED": 5 if is_again else 1}) == (story.workflow.failure, result.counts)
    assert is_again is (JOB in story.cluster.jobs)


def test_a_signal_brings_the_end() -> None:
    """A small job whose end the host manager has settled ends by the signal that says so, without a step."""
    story = Story(admission_s=0, settles_ends=True).submit(10).run_until_pods("RUNNING", 10)
    story.run_for(5.0)
    before = len(story.workflow.calls)

    assert ("SUCCEEDED", {"SUCCEEDED": 10}) == story.run()
    assert before == len(story.workflow.calls)
    assert "SUCCEEDED" == story.workflow.shown_states[-1]


@pytest.mark.parametrize("is_first", [False, True])
def test_a_change_besides_the_end_is_read(is_first: bool) -> None:
    """The workflow reads the rows when a change was signalled as well, before the end or after it."""
    story = Story(admission_s=0).submit(10).run_until_pods("RUNNING", 10)
    story.run_for(5.0)
    story.workflow.signals_lost = True
    story.run_until_pods("SUCCEEDED", 10)
    before, end = len(story.workflow.calls), JobEnd(JobState.FAILED, {"FAILED": 10})
    for signalled in (None, end) if is_first else (end, None):
        story.workflow.signal_now(signalled)

    assert ("SUCCEEDED", {"SUCCEEDED": 10}) == story.run()
    assert ["settle"] == story.workflow.calls[before:]


def test_an_end_from_before_the_last_settle_is_old() -> None:
    """The job of an external owner starts again with the next pod: a signal of its earlier end arrives later."""
    story = Story(admission_s=0).submit(10).run_until_pods("RUNNING", 10)
    story.run_for(5.0)
    story.workflow.signal_now(JobEnd(JobState.FAILED, {"FAILED": 10}, revision=-1))

    assert ("SUCCEEDED", {"SUCCEEDED": 10}) == story.run()


def test_a_run_of_an_earlier_version_reads_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose settles were made by workers that do not take ends from signals settles at such a signal, too."""
    monkeypatch.setattr("activities.settling.replace", lambda progress, **_: progress)
    story = Story(admission_s=0, settles_ends=True).submit(10).run_until_pods("RUNNING", 10)
    story.run_for(5.0)
    before = len(story.workflow.calls)

    assert ("SUCCEEDED", {"SUCCEEDED": 10}) == story.run()
    assert ["settle"] == story.workflow.calls[before:]
