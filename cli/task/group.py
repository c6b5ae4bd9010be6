"""``peloton task``: shows the tasks of a job. Start, stop, restart and logs are in files of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from cli.command import Group
from cli.names import instance_argument, job_argument
from cli.output import Table, print_list, print_message, print_outcome, print_table, rows_wanted, say_more
from cli.params import COUNT_FROM_1, InstanceRange, StatesType, limit_option, range_option, together
from cli.queries import pod_options, set_v0_page
from cli.refusals import NO_INSTANCE, raise_if_refused
from cli.settings import Settings, pass_settings
from cli.task import control, exec, logs
from cli.terminal import echo
from cli.times import run_text, seconds_text, start_text
from cli.wire import v0
from peloton.model.ids import PodName
from peloton.model.pod import PodState
from peloton.model.status_text import status_text

TASK_STATES = StatesType(PodState)
SORT_FIELDS = ("creation_time", "host", "instance_id", "message", "name", "reason", "state")
EVENT_RUNS_DEFAULT = 10
REASON_PREFIX = "TERMINATION_STATUS_REASON_"

TABLE: Table[v0.task.TaskInfo] = Table(
    ("Instance", lambda task: task.instanceId),
    ("Name", lambda task: task.config.name),
    ("State", lambda task: v0.task.TaskState.Name(task.runtime.state)),
    ("Healthy", lambda task: health_words(v0.task.HealthState.Name(task.runtime.healthy))),
    ("Start Time", lambda task: start_text(task.runtime.startTime)),
    ("Run Time", lambda task: run_text(task.runtime.startTime, task.runtime.completionTime)),
    ("Host", lambda task: task.runtime.host),
    ("Message", lambda task: status_text(task.runtime.message, task.runtime.reason)),
    ("Reason", lambda task: task.runtime.reason),
    ("Termination Status", lambda task: termination_text(task.runtime.terminationStatus)),
    whole=["Instance", "State", "Start Time", "Run Time", "Host"],
    spare=["Healthy", "Name", "Reason", "Start Time", "Run Time", "Termination Status", "Message"],
    nothing="No tasks found",
    name=lambda task: f"{task.jobId.value}-{task.instanceId}",
)
WIDE_EVENT_TABLE: Table[v0.task.PodEvent] = Table(
    ("Task Id", lambda event: event.taskId.value),
    ("Desired Task Id", lambda event: event.desriedTaskId.value),  # the spelling of the wire
    ("Actual State", lambda event: event.actualState),
    ("Goal State", lambda event: event.goalState),
    ("Config Version", lambda event: event.configVersion),
    ("Desired Config Version", lambda event: event.desiredConfigVersion),
    ("Healthy", lambda event: health_words(event.healthy)),
    ("Host", lambda event: event.hostname),
    ("Message", lambda event: status_text(event.message, event.reason)),
    ("Reason", lambda event: event.reason),
    ("Update Time", lambda event: event.timestamp),
    nothing="No events found",
)
EVENT_TABLE: Table[v0.task.PodEvent] = Table(
    ("Run", lambda event: event.taskId.value.rpartition("-")[2]),
    ("State", lambda event: event.actualState),
    ("Goal", lambda event: event.goalState),
    ("Version", lambda event: event.configVersion),
    ("Healthy", lambda event: health_words(event.healthy)),
    ("Host", lambda event: event.hostname),
    ("Message", lambda event: status_text(event.message, event.reason)),
    ("Reason", lambda event: event.reason),
    ("Update Time", lambda event: seconds_text(event.timestamp)),
    whole=["Run", "State", "Host", "Update Time"],
    spare=["Version", "Healthy", "Reason", "Goal", "Host", "Update Time"],
    nothing="No events found",
)
CONTAINER_TABLE: Table[v0.task.ContainerStatus] = Table(
    ("Container", lambda container: container.name),
    ("Kind", lambda container: "init" if container.init else ""),
    ("State", lambda container: container.state),
    ("Start Time", lambda container: container.startTime),
    ("Completion Time", lambda container: container.completionTime),
    ("Exit Code", lambda container: container.exitCode if container.completionTime else ""),
    ("Reason", lambda container: container.reason),
    ("Message", lambda container: container.message),
    whole=["Container", "Kind", "State", "Exit Code"],
    spare=["Start Time", "Completion Time", "Reason", "Message"],
    nothing="No containers found",
)
TEXTS = {
    "notFound": "Job {id} was not found: {message}",
    "outOfRange": NO_INSTANCE,
}


def events_options(metavar: str) -> Callable[[Any], Any]:
    return together(
        click.option("--run", "-r", default="", metavar=metavar, help="Only this run, as JOB-INSTANCE-RUN."),
        click.option("--limit", "-l", type=COUNT_FROM_1, default=EVENT_RUNS_DEFAULT, show_default=True,
                     help="Runs to go back."),
    )  # fmt: skip


@click.group(cls=Group)
def task() -> None:
    """Show, start and stop the tasks of a job; read their logs.

    A task is one instance of a job: INSTANCE is its number, from 0.
    """


@task.command()
@instance_argument()
@pass_settings
def get(settings: Settings, pod: PodName) -> None:
    """Show one task. With --json also its configuration and all its earlier runs."""
    request = v0.task.GetRequest(jobId=v0.peloton.JobID(value=pod.job_id), instanceId=pod.instance_id)
    response = settings.client.tasks.Get(request)
    raise_if_refused(settings, response, TEXTS, id=pod.job_id)
    print_list(settings, response, TABLE, [response.result] if response.HasField("result") else [])
    if (containers := response.result.runtime.containers) and not settings.is_for_programs:
        echo()
        print_table(CONTAINER_TABLE, containers)


@task.command("list")
@job_argument
@range_option
@limit_option
@pass_settings
def list_tasks(settings: Settings, job_id: str, instances: InstanceRange, limit: int | None) -> None:
    """List the tasks of a job by instance; also `task ls`.

    \b
    Examples:
      peloton task list JOB
      peloton task list JOB -r 0:20
    """
    start, stop = instances
    wanted = rows_wanted(settings, limit)
    if wanted is not None:
        stop = min(stop, start + wanted + 1)  # one more than is shown shows whether there are more
    asked = control.range_message((start, stop))
    request = v0.task.ListRequest(jobId=v0.peloton.JobID(value=job_id), range=asked)
    response = settings.client.tasks.List(request)
    raise_if_refused(settings, response, TEXTS, id=job_id)
    tasks = response.result.value
    shown = sorted(tasks)[:wanted]
    has_more = len(shown) < len(tasks)
    for instance in set(tasks) - set(shown):
        del tasks[instance]
    print_list(settings, response, TABLE, [tasks[instance] for instance in shown])
    if has_more:
        say_more(len(shown), None)


@task.command()
@job_argument
@pod_options("Tasks", TASK_STATES, click.option("--sort", "-p", default="", metavar="FIELD",
                                           help=f"One of {', '.join(SORT_FIELDS)}."))  # fmt: skip
@pass_settings
def query(
    settings: Settings, job_id: str, states: tuple[str, ...], names: tuple[str, ...], hosts: tuple[str, ...],
    limit: int, offset: int, sort: str, sortorder: str,
) -> None:  # fmt: skip
    """Find tasks of a job; all conditions must hold.

    \b
    Examples:
      peloton task query JOB -s FAILED,LOST
      peloton task query JOB --hosts host-1 -p creation_time -a DESC
    """
    request = v0.task.QueryRequest(jobId=v0.peloton.JobID(value=job_id))
    request.spec.taskStates.extend(v0.task.TaskState.Value(state) for state in states)
    request.spec.names.extend(names)
    request.spec.hosts.extend(hosts)
    field = sort.replace("instance_id", "instanceId")
    set_v0_page(request.spec.pagination, offset, limit, 0, [field] if field else [], sortorder)
    response = settings.client.tasks.Query(request)
    raise_if_refused(settings, response, TEXTS, id=job_id)
    print_list(settings, response, TABLE, response.records)
    if (end := offset + len(response.records)) < response.pagination.total:
        say_more(end, response.pagination.total, "see --offset and --limit")


@task.command()
@instance_argument()
@events_options("TASK-ID")
@pass_settings
def events(settings: Settings, pod: PodName, run: str, limit: int) -> None:
    """Show what happened to a task: every change of state over its runs, newest first. `-o wide` has the ids of runs,
    and what was desired of each.

    \b
    Examples:
      peloton task events JOB 0
      peloton task events JOB 0 -o wide
    """
    print_events(settings, pod, run, limit)


def print_events(settings: Settings, pod: PodName, run: str, limit: int) -> None:
    request = v0.task.GetPodEventsRequest(
        jobId=v0.peloton.JobID(value=pod.job_id), instanceId=pod.instance_id, runId=run, limit=limit
    )
    response = settings.client.tasks.GetPodEvents(request)
    raise_if_refused(settings, response, {})
    names = dict.fromkeys(event.taskId.value for event in response.result)
    table = WIDE_EVENT_TABLE if settings.output == "wide" else EVENT_TABLE
    print_list(settings, response, table, response.result, names)


@task.command()
@instance_argument()
@pass_settings
def cache(settings: Settings, pod: PodName) -> None:
    """Print the short form of a task: its state."""
    request = v0.task.GetCacheRequest(jobId=v0.peloton.JobID(value=pod.job_id), instanceId=pod.instance_id)
    print_message(settings, settings.client.tasks.GetCache(request))


@task.command()
@job_argument
@range_option
@pass_settings
def refresh(settings: Settings, job_id: str, instances: InstanceRange) -> None:
    """Read tasks again from storage."""
    request = v0.task.RefreshRequest(jobId=v0.peloton.JobID(value=job_id), range=control.range_message(instances))
    print_outcome(settings, settings.client.tasks.Refresh(request), f"Tasks of job {job_id} refreshed")


def health_words(name: str) -> str:
    """Return the health as text. ``name``: as on the wire, of either version."""
    plain = name.removeprefix("HEALTH_STATE_")
    return {"INVALID": "", "DISABLED": "unchecked"}.get(plain, plain)


def termination_text(status: v0.task.TerminationStatus) -> str:
    name = v0.task.TerminationStatus.Reason.Name(status.reason) if status.reason else ""
    return termination_words(name, status.exit_code, status.signal)


def termination_words(reason: str, exit_code: int, signal: str) -> str:
    """Return the termination as text. ``reason``: its name on the wire; empty: the run has not ended."""
    name = reason.removeprefix(REASON_PREFIX)
    if not name:
        return ""
    if signal:
        return f"{name} (signal {signal})"
    return f"{name} (exit code {exit_code})" if exit_code else name


for command in (logs.logs, exec.exec_task, control.start, control.stop, control.restart):
    task.add_command(command)
