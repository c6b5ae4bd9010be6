"""``peloton job daemon``: jobs with one instance on each host that matches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cli import explain
from cli.command import Group
from cli.config_file import load_config
from cli.errors import Failed
from cli.job import logs
from cli.job.query import PAGE_SIZE, TABLE, pages, query_request
from cli.job.rolling import rolling_commands
from cli.job.stop import stop_one, stoppable_job, wait_until_stopped
from cli.names import job_argument
from cli.new_job import (
    FileSecret,
    job_id_option,
    print_created,
    report_unknown_outcome,
    secret_options,
    secrets_of,
)
from cli.output import print_list, rows_wanted, say_more
from cli.params import CONFIG_FILE, POOL_PATH, limit_option
from cli.pools import pool_id_at
from cli.settings import Settings, pass_settings
from cli.stateless.options import batch_size_argument
from cli.terminal import echo
from cli.update import create_update, failure_options
from cli.wire import v0


@click.group(cls=Group)
def daemon() -> None:
    """Create, update, show and stop daemons.

    A daemon is a job of the type DAEMON: it has one instance on each host that meets its constraint and is large
    enough, also on hosts that join later. It has no instanceCount.
    """


def daemon_config(file: Path) -> v0.job.JobConfig:
    """Load the file; the type may be left out. Raises Failed for another one."""
    config = load_config(file, v0.job.JobConfig)
    if config.type not in (v0.job.BATCH, v0.job.DAEMON):  # BATCH is the default: it equals none
        raise Failed(f"{file}: the type is {v0.job.JobType.Name(config.type)}, want DAEMON or none")
    config.type = v0.job.DAEMON
    return config


@daemon.command()
@click.argument("respool", type=POOL_PATH)
@click.argument("config", type=CONFIG_FILE)
@job_id_option
@secret_options
@pass_settings
def create(settings: Settings, respool: str, config: Path, job_id: str, secrets: Sequence[FileSecret]) -> None:
    """Create a daemon in the pool RESPOOL from the YAML file CONFIG. Warns when no host matches now.

    \b
    Example:
      peloton job daemon create /tutorial examples/daemon.yaml
    """
    job_config = daemon_config(config)
    job_config.respoolID.value = pool_id_at(settings.client, respool)
    sent = secrets_of(secrets, v0.peloton.Secret)
    request = v0.job.CreateRequest(id=v0.peloton.JobID(value=job_id), config=job_config, secrets=sent)
    with report_unknown_outcome(job_id, "peloton job daemon"):
        response = settings.client.jobs.Create(request)
    print_created(settings, response, job_id, "Daemon")


@daemon.command()
@click.argument("respool", type=POOL_PATH)
@click.argument("config", type=CONFIG_FILE)
@pass_settings
def plan(settings: Settings, respool: str, config: Path) -> None:
    """Show how the daemon of the YAML file CONFIG would be placed: how many hosts match and why the others do not,
    how many of them have enough free resources now, on how many preemptible instances would be evicted for it, and how
    much of the capacity would be its overhead. Nothing is created.

    \b
    Example:
      peloton job daemon plan /tutorial examples/daemon.yaml
    """
    explain.print_plan(settings, daemon_config(config), respool)


@daemon.command("list")
@click.option("--respool", "-r", type=POOL_PATH, help="Daemons of this pool.")
@limit_option
@pass_settings
def list_daemons(settings: Settings, respool: str | None, limit: int | None) -> None:
    """List daemons, including ended ones, newest first. `Total` includes hosts that have left.

    \b
    Example:
      peloton job daemon list -r /tutorial
    """
    request = query_request(settings, respool)
    answer = v0.job.QueryResponse()
    for page in pages(settings, request, PAGE_SIZE):
        answer.results.extend(job for job in page.results if job.type == v0.job.DAEMON)
    total, wanted = len(answer.results), rows_wanted(settings, limit)
    answer.pagination.total = total
    if wanted is not None:
        del answer.results[wanted:]
    print_list(settings, answer, TABLE, answer.results)
    if len(answer.results) < total:
        say_more(len(answer.results), total)


@daemon.command()
@job_argument
@click.argument("config", type=CONFIG_FILE)
@batch_size_argument
@failure_options
@click.option("--override", is_flag=True, help="Replace an update that is under way.")
@pass_settings
def update(
    settings: Settings, /, job_id: str, config: Path, batch_size: int, override: bool, **update_config: Any
) -> None:
    """Give a daemon the configuration of the YAML file CONFIG: at most BATCH-SIZE hosts (0: all) are without their
    instance at a time. `peloton update` shows and steers the update.

    \b
    Example:
      peloton job daemon update JOB examples/daemon.yaml 10 --rollbackOnFailure
    """
    create_update(settings, job_id, daemon_config(config), batch_size, override=override, **update_config)


@daemon.command()
@job_argument
@click.option("--progress", is_flag=True, help="Wait until the instances have ended, 10 minutes at most.")
@pass_settings
def stop(settings: Settings, job_id: str, progress: bool) -> None:
    """Stop a daemon on all hosts, and release the resources that are reserved for it.

    \b
    Example:
      peloton job daemon stop JOB --progress
    """
    job_id = stoppable_job(settings, job_id, "", ())
    if problem := stop_one(settings, job_id):
        raise Failed(f"Error stopping daemon {job_id}: {problem}")
    if not settings.is_for_programs:
        echo(f"Stopping daemon {job_id}")
    if settings.json:
        echo(json.dumps({"jobIds": [job_id]}))
    if progress:
        wait_until_stopped(settings, job_id)


rolling_commands(daemon, "job daemon", "daemon", ["restart", "start"])
for command in (
    logs.logs,
    explain.why_job,
):
    daemon.add_command(command)
