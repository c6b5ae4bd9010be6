"""``peloton job why`` and ``peloton respool why``: what waits, for what, and which pods hold it."""

from __future__ import annotations

import click

from cli.command import Command
from cli.names import job_argument
from cli.output import print_outcome
from cli.params import POOL_PATH
from cli.settings import Settings, pass_settings
from cli.wire import v0


@click.command("why", cls=Command)
@job_argument
@pass_settings
def why_job(settings: Settings, job_id: str) -> None:
    """Say why instances of a job do not run: their place in the queue, the rule that keeps them waiting, with its
    numbers, and which jobs hold what they wait for. For a job that has ended: how it ended.

    \b
    Examples:
      peloton job why JOB
      peloton --json job why JOB | jq '.waiting[].reason.rule'
    """
    request = v0.explain.JobWhyRequest(jobId=v0.peloton.JobID(value=job_id))
    response = settings.client.explain.JobWhy(request)
    print_outcome(settings, response, response.text)


@click.command("why", cls=Command)
@click.argument("path", metavar="POOL", type=POOL_PATH)
@pass_settings
def why_pool(settings: Settings, path: str) -> None:
    """Say what the first gang of each queue of POOL waits for, and which pools borrow from it or lend to it.

    \b
    Example:
      peloton respool why /tutorial
    """
    request = v0.explain.PoolWhyRequest(path=v0.respool.ResourcePoolPath(value=path))
    response = settings.client.explain.PoolWhy(request)
    print_outcome(settings, response, response.text)
