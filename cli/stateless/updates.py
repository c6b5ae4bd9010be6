"""Updates of a service: pause, resume, abort, watch, list, and the events of one instance."""

from __future__ import annotations

import click

from cli.command import Command, Group, verb_commands
from cli.names import instance_argument, job_argument
from cli.output import Table, as_yaml, print_for_programs, print_list, print_outcome
from cli.params import COUNT, together
from cli.settings import Settings, pass_settings
from cli.stateless.options import done_word, opaque_option, version_argument
from cli.stateless.rollout_watch import exit_after_update
from cli.stateless.service import Service, opaque_data
from cli.terminal import echo
from cli.wire import v1
from peloton.model.aurora_update import aurora_update
from peloton.model.ids import PodName
from peloton.model.update import UPDATE_TERMINAL

EVENT_TABLE: Table[v1.job.WorkflowEvent] = Table(
    ("Workflow State", lambda event: v1.job.WorkflowState.Name(event.state).removeprefix("WORKFLOW_STATE_")),
    ("Workflow Type", lambda event: v1.job.WorkflowType.Name(event.type).removeprefix("WORKFLOW_TYPE_")),
    ("Timestamp", lambda event: event.timestamp),
    nothing="No events found",
)
HELP = {
    "pause": "Pause the update of a service: instances in flight finish, no others begin.",
    "resume": "Resume the paused update of a service.",
    "abort": "Abort the update of a service: its instances stay at the versions that they have.",
}


@click.group(cls=Group)
def workflow() -> None:
    """Pause, resume and abort the update of a service, by the original's names."""


def steer(settings: Settings, verb: str, job_id: str, version: str, opaque: str | None) -> None:
    service = Service(settings, job_id)
    name = f"{verb.capitalize()}JobWorkflow"
    request = getattr(v1.job_svc, f"{name}Request")(job_id=service.id, opaque_data=opaque_data(opaque))
    response = service.write(version, getattr(settings.client.services, name), request)
    text = f"Workflow {done_word(verb)}. New EntityVersion: {response.version.value}"
    if not version and (end := end_of_update(service)):
        text = f"The update had ended before: {end}. New EntityVersion: {response.version.value}"
    print_outcome(settings, response, text)


steering_options = together(job_argument, version_argument, opaque_option)
steering = verb_commands(HELP, "job stateless {verb} JOB")(steering_options(pass_settings(steer)))
verb_commands(HELP, "job stateless workflow {verb} JOB", workflow)(steering_options(pass_settings(steer)))


def end_of_update(service: Service) -> str:
    """Return the state in which the service's update had ended when it was read; empty: it had not."""
    status = service.job.job_info.status.workflow_status
    state = v1.job.WorkflowState.Name(status.state).removeprefix("WORKFLOW_STATE_")
    return state if state in UPDATE_TERMINAL else ""


@click.command(cls=Command)
@job_argument
@pass_settings
def watch(settings: Settings, job_id: str) -> None:
    """Show the latest update of a service until it ends.

    On a terminal a bar of the instances that are done, failed and in flight; elsewhere a line whenever something
    changed, with --json an object. The exit code is 0 if the update succeeded, 1 otherwise; Ctrl-C stops the
    watching, not the update.

    \b
    Example:
      peloton job stateless watch JOB
    """
    exit_after_update(settings, job_id)


@click.command("list-updates", cls=Command)
@job_argument
@click.option("--limit", type=COUNT, default=10, show_default=True, help="Updates to print; 0: all.")
@pass_settings
def list_updates(settings: Settings, job_id: str, limit: int) -> None:
    """Print the updates of a service, newest first."""
    request = v1.job_svc.ListJobWorkflowsRequest(job_id=Service(settings, job_id).id, updates_limit=limit)
    response = settings.client.services.ListJobWorkflows(request)
    if print_for_programs(settings, response):
        return
    if not response.workflow_infos:
        echo("No update for job")
    else:
        for index, info in enumerate(response.workflow_infos):
            aurora = aurora_update(info.opaque_data.data)
            echo(f"Index {index}:{f' # {aurora}' if aurora else ''}\n{as_yaml(info)}")


@workflow.command()
@instance_argument()
@pass_settings
def events(settings: Settings, pod: PodName) -> None:
    """Show what the current update did with one instance, newest first.

    \b
    Example:
      peloton job stateless workflow events JOB 0
    """
    request = v1.job_svc.GetWorkflowEventsRequest(job_id=Service(settings, pod.job_id).id, instance_id=pod.instance_id)
    response = settings.client.services.GetWorkflowEvents(request)
    print_list(settings, response, EVENT_TABLE, response.events)
