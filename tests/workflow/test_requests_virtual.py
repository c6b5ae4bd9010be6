"""Requests of users, which come as workflow updates: they act as the API does, and are refused with its messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from tests.workflow.stories import JOB, Story
from tests.workflow.test_maintenance_virtual import Story as Maintenance
from tests.workflow.update_story import Story as UpdateStory
from tests.workflow.virtual import Virtual
from workflows.policies import Policies
from workflows.update import UpdateResult

LOCKED = "All write APIs are locked down"
LIMIT_S = 120


def rolling(**spec: Any) -> UpdateStory:
    """Six instances, one at a time; the first one runs the new version."""
    story = UpdateStory(6).roll_out(1, **spec)
    return story.until(lambda: story.service.versions.count(2) >= 1)


def refusal(workflow: Virtual, name: str, *args: object) -> tuple[str, str | None]:
    """Return the message that a user reads, and the code of the error."""
    return refusal_of(workflow, workflow.send(name, *args))


def refusal_of(workflow: Virtual, request: str) -> tuple[str, str | None]:
    """Return the same of a request that was sent."""
    with pytest.raises(ApplicationError) as refusal:
        workflow.answer(request)
    return refusal.value.message, refusal.value.type


# Jobs.


def test_a_job_is_stopped() -> None:
    """The answer comes with the new goal, and the workflow ends with its pods."""
    story = Story(admitted_max=10).submit(40).run_until_pods("RUNNING", 10)

    assert {"state": "KILLING", "goal": "KILLED", "update_id": "", "version": "1-2-1"} == story.workflow.ask("stop")
    assert ("KILLED", {"KILLED": 40}) == story.run()
    assert 1 == story.cluster.calls["stop"]


def test_rows_refuse_a_stop() -> None:
    """Refusals of storage answer the request at the first attempt, and the job continues."""
    story = Story().submit(3).run_until_pods("RUNNING", 3)
    story.cluster.stop_refusal = "job has active update with start_pods set, cannot stop the job now"

    assert (story.cluster.stop_refusal, "ABORTED") == refusal(story.workflow, "stop")
    assert 1 == story.workflow.attempts["request_stop"]
    assert ("SUCCEEDED", {"SUCCEEDED": 3}) == story.run()


def test_the_workflow_refuses_to_stop_a_job_that_is_being_deleted() -> None:
    """The workflow has seen that itself, and calls no activity."""
    story = Story().submit(3).run_until_pods("RUNNING", 3)
    story.cluster.delete(JOB)
    story.cluster.outages["delete"] = 5
    story.workflow.run(until=lambda: story.cluster.calls["delete"] == 1)

    assert ("job is going to be deleted", "INVALID_ARGUMENT") == refusal(story.workflow, "stop")
    assert 0 == story.workflow.attempts["request_stop"]


def test_locked_writes_refuse() -> None:
    """A lock-down holds for workflow updates as for calls of the API."""
    story, update = Story().submit(3).run_until_pods("RUNNING", 3), rolling()
    story.cluster.locked = update.cluster.locked = LOCKED

    assert (LOCKED, "UNAVAILABLE") == refusal(story.workflow, "stop")
    assert [(LOCKED, "UNAVAILABLE")] * 2 == [refusal(update.workflow, name) for name in ("pause", "roll_back")]


def stop_that_waits() -> tuple[Story, str]:
    """Return a job that has ended while a request to stop it has yet to be answered, and the request."""
    story = Story(run_s=5.0).submit(3).run_until_pods("RUNNING", 3)
    story.cluster.outages["stop"] = 8
    story.cluster.stop_refusal = "the job has ended"
    request = story.workflow.send("stop")
    story.workflow.run(until=lambda: story.status["state"] == "SUCCEEDED")
    return story.run_for(1), request


def test_a_job_that_grows_while_the_last_request_is_answered_continues() -> None:
    """A signal that comes while its workflow has nothing else left to do has the job looked at again."""
    story, request = stop_that_waits()
    story.cluster.grow(JOB, 5)

    assert request not in story.run_until_pods("RUNNING", 2).workflow.answers
    assert ("the job has ended", "ABORTED") == refusal_of(story.workflow, request)
    assert ("SUCCEEDED", {"SUCCEEDED": 5}) == story.run()


def test_a_job_that_is_deleted_while_the_last_request_is_answered_is_forgotten() -> None:
    """A job that is deleted while its last request is answered is removed when its workflow ends."""
    story, request = stop_that_waits()
    story.cluster.delete(JOB)
    story.cluster.notify(JOB)

    assert ("the job has ended", "ABORTED") == refusal_of(story.workflow, request)
    story.workflow.run()
    assert (None, 1) == (story.workflow.failure, story.cluster.calls["delete"])
    assert JOB not in story.cluster.jobs


# Updates.


def test_an_update_is_paused_resumed_and_aborted() -> None:
    """Each answer has the state that follows from it."""
    story = rolling()

    assert "PAUSED" == story.workflow.ask("pause")["state"]
    story.until(lambda: story.status["state"] == "PAUSED")
    assert "ROLLING_FORWARD" == story.workflow.ask("resume")["state"]
    story.until(lambda: story.service.versions.count(2) >= 3)
    assert "ABORTED" == story.workflow.ask("abort", "update1")["state"]
    assert "ABORTED" == story.end().state
    assert 0 < story.service.versions.count(1)


def test_an_update_is_rolled_back() -> None:
    """The same workflow rolls out the update that undoes it."""
    story = rolling()

    assert "update2" == story.workflow.ask("roll_back")["update_id"]
    assert UpdateResult("update2", "SUCCEEDED", 6, 0) == story.end()


def test_a_rollback_whose_answer_is_lost_is_made_once() -> None:
    """The second attempt names the same update, and answers with the rollback that is under way."""
    story = rolling()
    story.cluster.lost_replies["roll_back"] = 2

    assert "update2" == story.workflow.ask("roll_back")["update_id"]
    assert (2, 3) == (story.service.update_count, story.cluster.calls["roll_back"])


def test_a_rollback_that_comes_while_the_update_ends() -> None:
    """The workflow waits for it, and rolls the new update out."""
    story = rolling()
    story.cluster.outages["roll_back"] = 8
    request = story.workflow.send("roll_back", "update1")
    story.until(lambda: story.status["state"] == "SUCCEEDED")

    assert "update2" == story.workflow.answer(request)["update_id"]
    assert UpdateResult("update2", "SUCCEEDED", 6, 0) == story.end()


def test_a_pulse_lets_an_update_continue() -> None:
    """The update that waits for it begins its first batch."""
    story = UpdateStory(2).roll_out(1, pulse_s=5)
    story.until(lambda: bool(story.service.reads_ns))
    story.until(lambda: story.status["waiting_for"] == "its first pulse")

    assert "ROLLING_FORWARD" == story.workflow.ask("pulse")["state"]
    story.until(lambda: story.service.versions.count(2) >= 1)


def test_the_workflow_refuses_what_it_knows_to_be_impossible() -> None:
    """Refuse an update that another one has replaced, pulses that are not needed, a rollback of the first update."""
    story = rolling()
    story.service.roll_out(1)
    story.until(lambda: story.service.versions.count(3) >= 1)
    other = f"update update1 is not the latest of job {JOB}, which is update2"

    assert (other, "ABORTED") == refusal(story.workflow, "pause", "update1")
    assert (other, "ABORTED") == refusal(story.workflow, "roll_back", "update1")
    no_pulse = f"the update of job {JOB} needs no pulses: its pulse_seconds are 0"
    assert (no_pulse, "INVALID_ARGUMENT") == refusal(story.workflow, "pulse")
    story.service.steer(lambda update: replace(update, prev_config_version=0))
    story.until(lambda: story.service.versions.count(3) >= 3)
    nothing = f"job {JOB} has no configuration before that of update update2"
    assert (nothing, "NOT_FOUND") == refusal(story.workflow, "roll_back")
    assert not {"steer_update", "pulse_update", "roll_back_update"} & set(story.workflow.calls)


def test_rows_decide_on_an_update_that_the_workflow_has_yet_to_see() -> None:
    """A newer update, whose wake-up has not arrived, is aborted; an unknown one is refused."""
    story = rolling()
    story.workflow.signals_lost = True
    story.service.roll_out(1)

    unknown = f"update update7 is not the latest of job {JOB}, which is update2"
    assert (unknown, "ABORTED") == refusal(story.workflow, "abort", "update7")
    assert "ABORTED" == story.workflow.ask("abort", "update2")["state"]


def test_rows_refuse_when_another_update_has_come() -> None:
    """Aborts of the update that the workflow has seen do not hit a newer one that it has not seen."""
    story = rolling()
    story.workflow.on_call["steer_update"] = lambda: story.service.roll_out(1)

    assert f"update update1 is not the latest of job {JOB}, which is update2" == refusal(story.workflow, "abort")[0]
    assert UpdateResult("update2", "SUCCEEDED", 6, 0) == story.end()


def test_a_request_is_given_up_after_a_while() -> None:
    """Errors of the last attempt answer the request, and the rollout continues."""
    story = rolling()
    story.cluster.outages["steer"] = 1_000
    began_s = story.clock.elapsed_s

    assert ("steer: connection refused", "UNAVAILABLE") == refusal(story.workflow, "pause")
    assert LIMIT_S - 10 < story.clock.elapsed_s - began_s <= LIMIT_S + 1
    assert "SUCCEEDED" == story.end().state


def test_continue_as_new_waits_for_requests() -> None:
    """A run that is long answers its requests before the next one begins, and takes its steps meanwhile."""
    story = UpdateStory(30).roll_out(1, Policies(history_events_max=10))
    story.until(lambda: story.service.versions.count(2) >= 1)
    story.cluster.outages["steer"] = 8
    run_count = len(story.workflow.runs)
    request = story.workflow.send("pause")
    story.until(lambda: story.cluster.calls["steer"] > 1)
    story.workflow.run(until=lambda: story.service.versions.count(2) >= 4, limit_s=LIMIT_S)

    assert request not in story.workflow.answers
    assert run_count == len(story.workflow.runs)
    assert "PAUSED" == story.workflow.answer(request)["state"]
    assert "ROLLING_FORWARD" == story.workflow.ask("resume")["state"]
    assert "SUCCEEDED" == story.end().state
    assert len(story.workflow.runs) > run_count


# Maintenance.


def test_a_maintenance_is_completed() -> None:
    """A host is completed once it is DOWN, not before."""
    story = Maintenance().until_state("DRAINING")
    story.until(lambda: story.status["state"] == "DRAINING")
    assert ("Host is not DOWN", "NOT_FOUND") == refusal(story.workflow, "complete")
    story.until(lambda: story.status["state"] == "DOWN")

    assert {"state": "DOWN", "goal": "UP"}.items() <= story.workflow.ask("complete").items()
    assert "DOWN" in story.end()


def test_a_maintenance_is_cancelled() -> None:
    """A host that drains stays up; one that is DOWN refuses."""
    story = Maintenance().until_state("DRAINING")
    assert "UP" == story.workflow.ask("cancel")["goal"]
    assert "DOWN" not in story.end()

    other = Maintenance()
    other.until(lambda: other.status["state"] == "DOWN")
    told = "host host1 is DOWN: complete its maintenance instead"
    assert (told, "ABORTED") == refusal(other.workflow, "cancel")


def test_a_host_that_is_wanted_down_again_while_the_last_request_is_answered() -> None:
    """A signal that comes while the workflow has nothing else left to do begins another maintenance."""
    story = Maintenance()
    story.until(lambda: story.status["state"] == "DOWN")
    story.host.outages["steer"] = 8
    request = story.workflow.send("complete")
    story.complete().until(lambda: story.host.row is None)
    looks = story.host.calls["read"]
    story.until(lambda: story.host.calls["read"] > looks)
    story.host.request()

    story.until(lambda: 2 == story.host.steps.count("DRAINING"))
    assert request not in story.workflow.answers
    assert "UP" == story.workflow.answer(request)["goal"]
    assert 2 == story.end().count("DOWN")


def test_a_drain_is_forced() -> None:
    """All pods leave at once after the deadline of the drain, and none before."""
    story = Maintenance(pods=9)
    story.until(lambda: story.status["state"] == "DRAINING")
    assert story.host.row is not None
    story.host.row = replace(story.host.row, deadline_s=3)
    story.until(lambda: story.host.row is not None and "SLA" in story.status["waiting_for"])
    told, code = refusal(story.workflow, "force")
    assert (told.partition(":")[0], code) == ("host host1 may be forced 3 s after its drain began", "ABORTED")
    story.until(lambda: story.clock.elapsed_s > 4)

    story.workflow.ask("force")
    assert story.host.row.is_forced
    assert "DOWN" in story.complete().end()


def test_the_row_decides_while_a_step_may_have_taken_the_host_down() -> None:
    """The row decides when the workflow knows the host as DRAINED, and it is DOWN already."""
    story = Maintenance()
    story.until(lambda: story.host.row is not None and story.host.row.state == "DOWN")
    assert "DRAINED" == story.status["state"]

    assert "UP" == story.workflow.ask("complete")["goal"]
    assert "DOWN" in story.end()


# All of them.


def job() -> Virtual:
    return Story(run_s=600).submit(3).run_until_pods("RUNNING", 3).workflow


def maintenance() -> Virtual:
    return Maintenance().workflow


@pytest.mark.parametrize(
    ("started", "names"),
    [
        (job, ["stop"]),
        (lambda: rolling().workflow, ["abort", "pause", "pulse", "resume", "roll_back"]),
        (maintenance, ["cancel", "complete", "force"]),
    ],
    ids=["job", "update", "maintenance"],
)
def test_requests_are_shown(started: Callable[[], Virtual], names: list[str]) -> None:
    """The Web UI has names and descriptions; arguments that do not fit are refused, and fail no workflow task."""
    workflow = started()
    shown = {one.name: one.description for one in workflow.metadata.definition.update_definitions}

    assert names == sorted(shown)
    assert all(shown.values())
    for name in names:
        with pytest.raises(ApplicationError, match="positional argument"):
            workflow.ask(name, "one", "two", "three")
