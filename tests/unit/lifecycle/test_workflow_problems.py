"""Problems of workflows, and their lines in ``job why``."""

from __future__ import annotations

from peloton.lifecycle.workflow_problems import (
    activity_problems,
    job_ids_of,
    job_lines,
    matter_text,
    merge_activities,
    temporal_problems,
)
from peloton.model.problem import Problem, Severity, SubjectKind
from peloton.model.workflow_trouble import FailedWorkflow, FailingActivity, FailingTask, JobTrouble, TemporalSnapshot

ADDRESS = "temporal:7233"
JOB = "91b1b8e5-2ba8-41e7-bc23-0242ac11000d"
NAMES = {JOB: "web"}
QUEUES = ("batch", "batch-long")


def activity(number: int = 1, attempt: int = 12) -> FailingActivity:
    return FailingActivity(f"job/{JOB}", f"enqueue{number}", attempt, "resmgr:\nconnection refused", number)


def subject(problem: Problem) -> tuple[Severity, SubjectKind, str]:
    return problem.severity, problem.subject_kind, problem.subject_id


def test_temporal_that_is_away_is_the_only_problem() -> None:
    """Temporal that does not respond is the only problem, whatever an earlier read found."""
    look = TemporalSnapshot("no answer within 3 s", 2, ["batch"])
    (found,) = temporal_problems(look, ADDRESS)

    said = (
        "Temporal at temporal:7233 does not answer (no answer within 3 s): no job starts, changes or ends meanwhile; "
    )
    assert f"{said}pods on hosts run on" == found.text
    assert (Severity.CRITICAL, SubjectKind.ROLE, "temporal") == subject(found)


def test_no_worker_takes_any_work() -> None:
    """No worker polls: one problem for all task queues."""
    (found,) = temporal_problems(TemporalSnapshot("", 2, QUEUES), ADDRESS)

    assert found.text.startswith("No worker takes work from Temporal: all 2 task queues are without one; no job starts")
    assert (Severity.CRITICAL, SubjectKind.ROLE, "worker") == subject(found)


def test_task_queues_without_a_worker_are_named() -> None:
    """Task queues without a worker, which an upgrade of some workers may leave, are named."""
    (found,) = temporal_problems(TemporalSnapshot("", 2, ["batch-long"]), ADDRESS)

    said = "No worker takes work from the task queues batch-long of Temporal: tasks in them wait"
    assert said == found.text


def test_a_version_that_waits_while_the_current_one_has_no_worker() -> None:
    """Manual promotion leaves a waiting version to users, who read the command."""
    look = TemporalSnapshot("", 2, gone_version="old", waiting_versions=["odd", "new"])
    (found,) = temporal_problems(look, ADDRESS)

    assert found.text.startswith(
        "No worker of version old, which is current, is up; workers of other versions (odd, new) wait until theirs "
        "becomes current: no job starts"
    )
    assert (Severity.CRITICAL, "peloton admin worker promote new") == (found.severity, found.command)
    assert ["no worker of version old"] == [line[:24] for line in job_lines(look, ADDRESS, QUEUES, JobTrouble())]


def test_a_read_that_finds_nothing_says_nothing() -> None:
    """Task queues with workers are no problem."""
    assert [] == temporal_problems(TemporalSnapshot("", 2), ADDRESS)


def test_workflows_that_failed_and_whose_tasks_fail() -> None:
    """Each workflow has its cause, the consequence, and the command for details. Workflows beyond the named ones are
    counted.
    """
    failed = FailedWorkflow(
        f"gang/{JOB}/1", "job not found", "it failed once within 60 min, and is started again in 9 s"
    )
    task = FailingTask(f"job/{JOB}", "NonDeterministicError")
    first, second, more = temporal_problems(TemporalSnapshot("", 2, (), [task], 7, [failed], 1), ADDRESS, NAMES)

    said = (
        "The workflow of the launch of the gang of job web failed: job not found; it failed once within 60 min, and is "
    )
    assert f"{said}started again in 9 s" == first.text
    said = "The workflow of job web is stuck: its workflow tasks fail again and again (NonDeterministicError); the "
    assert f"{said}logs of the workers say why" == second.text
    assert (Severity.WARNING, SubjectKind.JOB, JOB) == subject(second)
    assert f"peloton job why {JOB}" == second.command
    assert "6 more workflows have workflow tasks that fail again and again" == more.text


def test_activities_that_fail_again_and_again() -> None:
    """Errors are one line, and times are of the first attempts."""
    first, more = activity_problems([activity()], 4, NAMES)

    said = "The workflow of job web waits: its activity enqueue1 is on attempt 12: resmgr: connection refused"
    assert (said, 1) == (first.text, first.since_ns)
    assert "3 more activities are on attempt 10 or later" == more.text


def test_of_an_activity_the_latest_attempt_counts() -> None:
    """The latest attempt of an activity counts, of two workers that have tried it."""
    assert [activity(1, 13), activity(2)] == merge_activities([[activity(2), activity(1, 12)], [activity(1, 13)]])


def test_the_jobs_that_problems_name() -> None:
    """Ids of workflows name jobs; some workflows have no job."""
    look = TemporalSnapshot(failed=[FailedWorkflow("update/u", "", ""), FailedWorkflow("rebalance/west", "", "")])

    assert {"u", JOB} == job_ids_of(look, [activity()])


def test_what_workflows_own() -> None:
    """Ids of workflows are shown as words for users."""
    ids = [f"job/{JOB}", f"update/{JOB}", f"daemon/{JOB}", "maintenance/west/h1", "migration/m", "rebalance/west", "x"]

    assert [
        "job web",
        "the updates of job web",
        "the hosts of job web",
        "the maintenance of host h1 of cluster west",
        "migration m",
        "the rebalancing of cluster west",
        "x",
    ] == [matter_text(one, NAMES) for one in ids]


def test_the_reason_of_a_stuck_job_is_named() -> None:
    """Lines of a job are its task queues without workers, and its activity with attempt and error. There are no others
    while Temporal does not respond.
    """
    trouble = JobTrouble(activities=[activity()])
    look = TemporalSnapshot("", 4, ["batch-long", "other"])

    assert [
        "no worker takes its work: no process polls the task queues batch-long of Temporal",
        "the workflow of job web waits: its activity enqueue1 is on attempt 12: resmgr: connection refused",
    ] == list(job_lines(look, ADDRESS, QUEUES, trouble, NAMES))
    (away,) = job_lines(TemporalSnapshot("connection refused"), ADDRESS, QUEUES, trouble, NAMES)
    assert "Temporal at temporal:7233 does not answer (connection refused): the job makes no progress" == away
    assert [] == list(job_lines(TemporalSnapshot("", 4), ADDRESS, QUEUES, JobTrouble()))
