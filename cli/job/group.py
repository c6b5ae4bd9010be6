"""``peloton job``: create, look at, update and delete one job. Queries, stop and rolling commands have their files."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import click

from cli import plan, why
from cli.command import Group
from cli.config_file import load_config
from cli.errors import Failed
from cli.job import logs, query, rolling, stop
from cli.job.pieces import create_from_file, create_heavy, is_heavy_file, refuse_secrets
from cli.job.watch import get_job, progress_console, watch_job
from cli.names import job_argument
from cli.new_job import job_id_option, telling_of, warn_of_hosts
from cli.output import print_message, print_outcome
from cli.params import CONFIG_FILE, POOL_PATH
from cli.pools import pool_id_at
from cli.refusals import raise_if_refused
from cli.settings import Settings, pass_settings
from cli.stateless.group import stateless
from cli.wire import v0
from peloton.model.job import JobState


@click.group(cls=Group)
def job() -> None:
    """Create, watch, query, update and stop jobs.

    A job is a number of instances of one command, described by a YAML file and run in a resource pool.
    """


def secrets_of(path: str, text: str) -> list[v0.peloton.Secret]:
    """At most one secret: mounted at ``path``; the wire wants its bytes as base64."""
    if bool(path) != bool(text):
        raise click.UsageError("--secret-path and --secret-data belong together")
    value = v0.peloton.Secret.Value(data=base64.b64encode(text.encode()))
    return [v0.peloton.Secret(path=path, value=value)] if path else []


def create_light(settings: Settings, request: v0.job.CreateRequest) -> v0.job.CreateResponse:
    with telling_of(request.id.value, "peloton job"):
        return settings.client.jobs.Create(request)


@job.command()
@click.argument("respool", type=POOL_PATH)
@click.argument("config", type=CONFIG_FILE)
@job_id_option
@click.option("--secret-path", default="", metavar="PATH", help="Where a secret is mounted in the container.")
@click.option("--secret-data", default="", metavar="TEXT", help="The secret itself, as it shall be in the file.")
@click.option("--watch", is_flag=True, help="Show progress until the job ends; exit code 0 only if it succeeded.")
@pass_settings
def create(
    settings: Settings, respool: str, config: Path, job_id: str, secret_path: str, secret_data: str, watch: bool
) -> None:
    """Create a job in the pool RESPOOL from the YAML file CONFIG.

    \b
    Examples:
      peloton job create /tutorial examples/tutorial/hello.yaml
      peloton job create /tutorial examples/tutorial/hello.yaml --watch
      peloton job create /tutorial examples/tutorial/hello.yaml -i 91b1b8e5-2ba8-11e7-bc23-0242ac11000d

    A job that is larger than a message may be (256 MiB) is sent in pieces, for which --timeout does not count. It is
    there with all of them or not at all.
    """
    secrets = secrets_of(secret_path, secret_data)
    if is_heavy_file(config):
        refuse_secrets(bool(secrets))
        response = create_from_file(settings, config, pool_id_at(settings.client, respool), job_id)
    else:
        job_config = load_config(config, v0.job.JobConfig)
        job_config.respoolID.value = pool_id_at(settings.client, respool)
        request = v0.job.CreateRequest(id=v0.peloton.JobID(value=job_id), config=job_config, secrets=secrets)
        response = create_heavy(settings, request) or create_light(settings, request)
    texts = {
        "alreadyExists": "Job {id} already exists: {message}",
        "invalidConfig": "Invalid job config: {message}",
        "invalidJobId": "Invalid job ID: {id}, message: {message}",
    }
    raise_if_refused(settings, response, texts, id=job_id)
    print_outcome(settings, response, f"Job {response.jobId.value} created", [response.jobId.value], lines=watch)
    warn_of_hosts(settings, response.jobId.value)
    if watch:
        exit_after_watching(settings, response.jobId.value)


@job.command()
@job_argument
@pass_settings
def watch(settings: Settings, job_id: str) -> None:
    """Show a job's progress until it ends.

    On a terminal a bar with the number of tasks in each state; elsewhere a line whenever something changed. An API
    that is away for a moment is waited for. The exit code is 0 if the job succeeded, 1 otherwise; Ctrl-C stops the
    watching, not the job.

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
        click.echo(f"Stopped watching; job {job_id} goes on.", err=True)
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
    """Print a job's state, its goal and the number of tasks in each state."""
    response = get_job(settings.client, job_id)
    refuse_unknown_job(settings, response, "Unable to get job status", job_id)
    print_message(settings, response.jobInfo.runtime, [job_id])


def refuse_unknown_job(settings: Settings, response: object, text: str, job_id: str) -> None:
    assert isinstance(response, v0.job.GetResponse)
    worded = f"{text} {{id}}: {{message}}"
    raise_if_refused(settings, response, {"notFound": worded, "getRuntimeFail": worded}, id=job_id)
    if not response.HasField("jobInfo"):
        raise Failed(f"{text} {job_id}")


@job.command()
@job_argument
@click.argument("config", type=CONFIG_FILE)
@click.option("--secret-path", default="", metavar="PATH", help="Where a secret is mounted in the container.")
@click.option("--secret-data", default="", metavar="TEXT", help="The secret itself, as it shall be in the file.")
@pass_settings
def update(settings: Settings, job_id: str, config: Path, secret_path: str, secret_data: str) -> None:
    """Add instances to a batch job: CONFIG is the whole job with a larger instanceCount.

    \b
    Example:
      peloton job update JOB examples/tutorial/hello-more.yaml
    """
    request = v0.job.UpdateRequest(
        id=v0.peloton.JobID(value=job_id),
        secrets=secrets_of(secret_path, secret_data),
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
    """Have the API look at a job again, from what is stored."""
    response = settings.client.jobs.Refresh(v0.job.RefreshRequest(id=v0.peloton.JobID(value=job_id)))
    print_outcome(settings, response, f"Job {job_id} refreshed")


@job.command()
@job_argument
@pass_settings
def cache(settings: Settings, job_id: str) -> None:
    """Print the short form of a job: its state and the parts of its configuration that scheduling needs."""
    print_message(settings, settings.client.jobs.GetCache(v0.job.GetCacheRequest(id=v0.peloton.JobID(value=job_id))))


for command in (
    logs.logs,
    query.query,
    query.list_jobs,
    query.active_list,
    stop.stop,
    rolling.rolling_restart,
    rolling.rolling_start,
    rolling.rolling_stop,
    why.why_job,
    plan.plan_job,
    stateless,
):
    job.add_command(command)
