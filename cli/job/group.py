"""``peloton job``: create, show, update and delete one job. Queries, stop and rolling commands have their files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from cli import explain
from cli.command import Group
from cli.config_file import load_config
from cli.job import logs, query, stop, table, use
from cli.job.daemon import daemon
from cli.job.pieces import create_from_heavy_file, create_heavy_request, is_heavy_file, refuse_secrets
from cli.job.read import get_job_or_summary, refuse_unknown_job
from cli.job.rolling import rolling_commands
from cli.job.schedule import schedule
from cli.job.templates import choose_config, template_options
from cli.job.watch import watch_job
from cli.names import job_argument
from cli.new_job import (
    FileSecret,
    job_id_option,
    print_created,
    report_unknown_outcome,
    secret_options,
    secrets_of,
)
from cli.output import print_for_programs, print_message, print_outcome
from cli.params import CONFIG_FILE, POOL_PATH
from cli.pools import pool_id_at
from cli.refusals import raise_if_refused
from cli.settings import Settings, pass_settings
from cli.stateless.group import stateless
from cli.terminal import echo
from cli.watching import progress_console
from cli.wire import v0
from peloton.api.convert_time import rfc3339
from peloton.model.job import JobState


@click.group(cls=Group)
def job() -> None:
    """Create, watch, query, update and stop jobs.

    A job is a number of instances of one command, described by a YAML file and run in a resource pool.
    """


def create_light(settings: Settings, request: v0.job.CreateRequest) -> v0.job.CreateResponse:
    with report_unknown_outcome(request.id.value, "peloton job"):
        return settings.client.jobs.Create(request)


@job.command()
@click.argument("respool", type=POOL_PATH, required=False, metavar="RESPOOL")
@click.argument("config", type=CONFIG_FILE, required=False, metavar="CONFIG")
@job_id_option
@secret_options
@click.option("--watch", is_flag=True, help="Show progress until the job ends; exit code 0 only if it succeeded.")
@template_options
@pass_settings
def create(
    settings: Settings,
    respool: str | None,
    config: Path | None,
    job_id: str,
    secrets: Sequence[FileSecret],
    watch: bool,
    template: str | None,
    prints: bool,
) -> None:
    """Create a job in the pool RESPOOL from the YAML file CONFIG, or from a template.

    \b
    Examples:
      peloton job create /tutorial examples/tutorial/hello.yaml
      peloton job create /tutorial examples/tutorial/hello.yaml --watch
      peloton job create /tutorial examples/tutorial/hello.yaml --secret-file /run/secrets/db=./password
      peloton job create /tutorial examples/tutorial/hello.yaml -i 91b1b8e5-2ba8-11e7-bc23-0242ac11000d
      peloton job create /tutorial --template jax --count 4 --program /shared/train.py
      peloton job create --template torchrun --min-count 2 --count 8 --print > train.yaml

    A job that is larger than a message (256 MiB) is sent in parts, to which --timeout does not apply. It is created
    whole or not at all.
    """
    chosen = choose_config(config, template, prints)
    if prints:
        echo(str(chosen), nl=False)
        return
    if respool is None:
        raise click.UsageError("Missing argument 'RESPOOL'.")
    if isinstance(chosen, Path) and is_heavy_file(chosen):
        refuse_secrets(bool(secrets))
        response = create_from_heavy_file(settings, chosen, pool_id_at(settings.client, respool), job_id)
    else:
        job_config = load_config(chosen, v0.job.JobConfig)
        job_config.respoolID.value = pool_id_at(settings.client, respool)
        sent = secrets_of(secrets, v0.peloton.Secret)
        request = v0.job.CreateRequest(id=v0.peloton.JobID(value=job_id), config=job_config, secrets=sent)
        response = create_heavy_request(settings, request) or create_light(settings, request)
    print_created(settings, response, job_id, lines=watch)
    if watch:
        exit_after_watching(settings, response.jobId.value)


@job.command()
@job_argument
@pass_settings
def watch(settings: Settings, job_id: str) -> None:
    """Show a job's progress until it ends.

    On a terminal a bar with the number of tasks in each state; elsewhere a line whenever something changed. Short
    outages of the API are waited for. The exit code is 0 if the job succeeded, 1 otherwise; Ctrl-C stops the watching,
    not the job.

    \b
    Example:
      peloton job watch 91b1b8e5-2ba8-11e7-bc23-0242ac11000d
    """
    exit_after_watching(settings, job_id)


def exit_after_watching(settings: Settings, job_id: str) -> None:
    try:
        console = progress_console(settings.is_for_programs)
        state = watch_job(settings.client, job_id, console, is_json=settings.json)
    except KeyboardInterrupt:
        echo(f"Stopped watching; job {job_id} continues.", err=True)
        sys.exit(130)
    sys.exit(0 if state is JobState.SUCCEEDED else 1)


@job.command()
@job_argument
@pass_settings
def get(settings: Settings, job_id: str) -> None:
    """Print a job's configuration and state.

    \b
    Examples:
      peloton job get JOB
      peloton --json job get JOB | jq .jobInfo.runtime.taskStats
    """
    response = settings.client.jobs.Get(v0.job.GetRequest(id=v0.peloton.JobID(value=job_id)))
    refuse_unknown_job(settings, response, "Unable to get job", job_id)
    print_message(settings, response, [job_id])


@job.command()
@job_argument
@pass_settings
def status(settings: Settings, job_id: str) -> None:
    """Print a job's state, its goal and the number of tasks in each state. `-o yaml` prints the whole answer of the
    API."""
    response = get_job_or_summary(settings.client, job_id)
    refuse_unknown_job(settings, response, "Unable to get job status", job_id)
    runtime = response.jobInfo.runtime
    if not print_for_programs(settings, runtime, [job_id]):
        echo(status_text(runtime))


def status_text(runtime: v0.job.RuntimeInfo) -> str:
    """Return the state as YAML in which the times of the revision are times, and not counts of nanoseconds."""
    from peloton.api.yaml_config import dump_plain, plain

    shown = plain(runtime)
    for name in ("createdAt", "updatedAt"):
        if time_ns := getattr(runtime.revision, name):
            shown["revision"][name] = rfc3339(time_ns)
    return dump_plain(shown).rstrip("\n")


@job.command()
@job_argument
@click.argument("config", type=CONFIG_FILE)
@secret_options
@pass_settings
def update(settings: Settings, job_id: str, config: Path, secrets: Sequence[FileSecret]) -> None:
    """Add instances to a batch job: CONFIG is the whole job with a larger instanceCount.

    \b
    Example:
      peloton job update JOB examples/tutorial/hello-more.yaml
    """
    request = v0.job.UpdateRequest(
        id=v0.peloton.JobID(value=job_id),
        secrets=secrets_of(secrets, v0.peloton.Secret),
        config=load_config(config, v0.job.JobConfig),
    )
    response = settings.client.jobs.Update(request)
    texts = {
        "jobNotFound": "Job {id} not found: {message}",
        "invalidConfig": "Invalid job config: {message}",
        "invalidJobId": "Invalid job ID: {id}, message: {message}",
    }
    raise_if_refused(settings, response, texts, id=job_id)
    message = f"\nMessage:{response.message}" if response.message else ""
    print_outcome(settings, response, f"Job {response.id.value or job_id} updated{message}")


@job.command()
@job_argument
@pass_settings
def delete(settings: Settings, job_id: str) -> None:
    """Delete a job that has ended, with its tasks and history."""
    response = settings.client.jobs.Delete(v0.job.DeleteRequest(id=v0.peloton.JobID(value=job_id)))
    raise_if_refused(settings, response, {"notFound": "Job {id} not found: {message}"}, id=job_id)
    print_outcome(settings, response, f"Job {job_id} deleted")


@job.command()
@job_argument
@pass_settings
def refresh(settings: Settings, job_id: str) -> None:
    """Read a job again from storage."""
    response = settings.client.jobs.Refresh(v0.job.RefreshRequest(id=v0.peloton.JobID(value=job_id)))
    print_outcome(settings, response, f"Job {job_id} refreshed")


@job.command()
@job_argument
@pass_settings
def cache(settings: Settings, job_id: str) -> None:
    """Print the short form of a job: its state and the parts of its configuration that scheduling needs."""
    print_message(settings, settings.client.jobs.GetCache(v0.job.GetCacheRequest(id=v0.peloton.JobID(value=job_id))))


rolling_commands(job, "job", "service job", ["rolling-restart", "rolling-start", "rolling-stop"])
for command in (
    logs.logs,
    query.query,
    query.list_jobs,
    query.active_list,
    table.table,
    use.use,
    stop.stop,
    explain.why_job,
    explain.plan_job,
    stateless,
    daemon,
    schedule,
):
    job.add_command(command)
for shared in (get, status, delete):
    daemon.add_command(shared)
