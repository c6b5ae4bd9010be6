"""Problems of workflows: Temporal or the workers are away, a workflow fails, or its tasks or activities do so again and
again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from peloton.lifecycle.problems import NAMED_MAX, truncate
from peloton.lifecycle.reason_text import NO_NAMES, Names, job_text
from peloton.model.problem import Problem, Severity, SubjectKind
from peloton.model.text import shorten
from peloton.model.workflow_trouble import FailedWorkflow, FailingActivity, FailingTask, JobTrouble, TemporalSnapshot

ATTEMPTS = 10
"""Attempts of an activity from which on it is a problem. Temporal begins the tenth half a minute after the first, when
each fails at once."""
TASK_ATTEMPTS, WHY_ATTEMPTS = 3, 3
"""Attempts of a workflow task, and of an activity, from which on ``job why`` names them."""
ERROR_MAX = 300
"""Characters of an error in a problem."""
STILL = "no job starts, changes or ends meanwhile; pods on hosts run on"
STATUS = "peloton local status"


def temporal_problems(snapshot: TemporalSnapshot, address: str, names: Names = NO_NAMES) -> list[Problem]:
    if snapshot.fault:
        text = f"Temporal at {address} does not answer ({error_text(snapshot.fault)}): {STILL}"
        return [Problem(Severity.CRITICAL, text, SubjectKind.ROLE, "temporal", command=STATUS)]
    found = []
    if snapshot.unserved:
        text = _describe_unserved(snapshot)
        found.append(Problem(Severity.CRITICAL, text, SubjectKind.ROLE, "worker", command=STATUS))
    if snapshot.gone_version:
        text, command = (
            f"{_describe_gone(snapshot)}: {STILL}",
            f"peloton admin worker promote {snapshot.waiting_versions[-1]}",
        )
        found.append(Problem(Severity.CRITICAL, text, SubjectKind.ROLE, "worker", command=command))
    failed = [_of_workflow(one.workflow_id, describe_failed(one, names)) for one in snapshot.failed]
    tasks = [_of_workflow(one.workflow_id, task_text(one, names)) for one in snapshot.tasks]
    found += truncate(failed, "more workflows have failed", snapshot.failed_count)
    found += truncate(tasks, "more workflows have workflow tasks that fail again and again", snapshot.task_count)
    return found


def activity_problems(activities: Sequence[FailingActivity], total: int, names: Names = NO_NAMES) -> list[Problem]:
    """``activities``: the first of ``total``."""
    found = [_of_workflow(one.workflow_id, activity_text(one, names), one.since_ns) for one in activities]
    return truncate(found, f"more activities are on attempt {ATTEMPTS} or later", total)


def job_ids_of(snapshot: TemporalSnapshot, activities: Iterable[FailingActivity]) -> set[str]:
    """Return the jobs that problems of these name."""
    named = (one.workflow_id for group in (snapshot.failed, snapshot.tasks, activities) for one in group)
    return {parts[1] for parts in (name.split("/") for name in named) if parts[0] in _OF_JOBS and len(parts) > 1}


def merge_activities(reports: Iterable[Iterable[FailingActivity]]) -> list[FailingActivity]:
    """Merge what several workers report: of each activity the latest attempt, the longest failing first."""
    latest: dict[tuple[str, str], FailingActivity] = {}
    for report in reports:
        for one in report:
            key = one.workflow_id, one.activity
            if key not in latest or latest[key].attempt < one.attempt:
                latest[key] = one
    return sorted(latest.values(), key=lambda one: (one.since_ns, one.workflow_id, one.activity))


# -- sentences ----------------------------------------------------------------------------------------------------


def _describe_unserved(snapshot: TemporalSnapshot) -> str:
    if snapshot.is_unserved:
        return f"No worker takes work from Temporal: all {snapshot.queue_count} task queues are without one; {STILL}"
    queues = ", ".join(snapshot.unserved)
    return f"No worker takes work from the task queues {queues} of Temporal: tasks in them wait"


def _describe_gone(snapshot: TemporalSnapshot) -> str:
    others = ", ".join(snapshot.waiting_versions)
    return (
        f"No worker of version {snapshot.gone_version}, which is current, is up; workers of other versions ({others}) "
        "wait until theirs becomes current"
    )


def describe_failed(failed: FailedWorkflow, names: Names = NO_NAMES) -> str:
    error = f": {error_text(failed.error)}" if failed.error else ""
    return f"The workflow of {matter_text(failed.workflow_id, names)} failed{error}; {failed.reason}"


def task_text(task: FailingTask, names: Names = NO_NAMES) -> str:
    text = f"The workflow of {matter_text(task.workflow_id, names)} is stuck: "
    cause = f" ({task.cause})" if task.cause else ""
    return f"{text}its workflow tasks fail again and again{cause}; the logs of the workers say why"


def activity_text(activity: FailingActivity, names: Names = NO_NAMES) -> str:
    text = f"The workflow of {matter_text(activity.workflow_id, names)} waits: its activity {activity.activity} "
    text += f"is on attempt {activity.attempt}"
    return f"{text}: {error_text(activity.error)}" if activity.error else text


def error_text(error: str) -> str:
    """Return the error as one line of bounded length."""
    return shorten(" ".join(error.split()), ERROR_MAX)


_OF_JOBS = {
    "job": "{}",
    "gang": "the launch of the gang of {}",
    "update": "the updates of {}",
    "daemon": "the hosts of {}",
}
"""Kind of a workflow of a job -> what it looks after."""


def matter_text(workflow_id: str, names: Names = NO_NAMES) -> str:
    """Return what a workflow looks after."""
    match workflow_id.split("/"):
        case [kind, job_id, *_] if kind in _OF_JOBS:
            return _OF_JOBS[kind].format(job_text(job_id, names))
        case ["maintenance", cluster, hostname]:
            return f"the maintenance of host {hostname} of cluster {cluster}"
        case ["migration", migration_id]:
            return f"migration {migration_id}"
        case ["rebalance", cluster]:
            return f"the rebalancing of cluster {cluster}"
    return workflow_id


def _of_workflow(workflow_id: str, text: str, since_ns: int = 0) -> Problem:
    warning = Severity.WARNING
    match workflow_id.split("/"):
        case [kind, job_id, *_] if kind in _OF_JOBS:
            return Problem(
                warning,
                text,
                SubjectKind.JOB,
                job_id,
                cluster="",
                since_ns=since_ns,
                command=f"peloton job why {job_id}",
            )
        case ["maintenance", cluster, hostname]:
            command = f"peloton host maintenance status {hostname}"
            return Problem(
                warning, text, SubjectKind.HOST, hostname, cluster=cluster, since_ns=since_ns, command=command
            )
        case ["rebalance", cluster]:
            command = "peloton host rebalance status"
            return Problem(
                warning, text, SubjectKind.CLUSTER, cluster, cluster=cluster, since_ns=since_ns, command=command
            )
    return Problem(warning, text, SubjectKind.ROLE, workflow_id, cluster="", since_ns=since_ns, command=STATUS)


# -- job why ------------------------------------------------------------------------------------------------------


def job_lines(
    snapshot: TemporalSnapshot, address: str, queues: Sequence[str], trouble: JobTrouble, names: Names = NO_NAMES
) -> Iterator[str]:
    """Yield what keeps the workflows of one job from going on. ``queues``: the task queues that they use."""
    if snapshot.fault:
        yield f"Temporal at {address} does not answer ({error_text(snapshot.fault)}): the job makes no progress"
        return
    if unserved := [queue for queue in queues if queue in snapshot.unserved]:
        yield f"no worker takes its work: no process polls the task queues {', '.join(unserved)} of Temporal"
    texts = [_describe_gone(snapshot)] if snapshot.gone_version else []
    texts += [describe_failed(one, names) for one in trouble.failed]
    texts += [task_text(one, names) for one in trouble.tasks]
    texts += [activity_text(one, names) for one in trouble.activities[:NAMED_MAX]]
    yield from (text[0].lower() + text[1:] for text in texts)
