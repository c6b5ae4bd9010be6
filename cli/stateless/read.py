"""``peloton job stateless get``, ``cache``, ``refresh`` and ``list-pods``: one service."""

from __future__ import annotations

import click

from cli.command import Command
from cli.names import job_argument
from cli.output import print_message, print_outcome, rows_wanted, say_more
from cli.params import INSTANCE_MAX, InstanceRange, limit_option, range_option
from cli.pod.table import print_pods, range_message
from cli.settings import Settings, pass_settings
from cli.stateless.service import Service
from cli.wire import v1


@click.command(cls=Command)
@job_argument
@click.option("--jobversion", default="", metavar="ENTITY-VERSION", help="Only the spec, as it was at this version.")
@click.option("--summaryonly", is_flag=True, help="Without spec and update.")
@pass_settings
def get(settings: Settings, job_id: str, jobversion: str, summaryonly: bool) -> None:
    """Print a service's spec, state and latest update.

    \b
    Examples:
      peloton job stateless get JOB
      peloton job stateless get JOB --jobversion 1-1-1
      peloton --json job stateless get JOB | jq .workflowInfo.status
    """
    request = v1.job_svc.GetJobRequest(job_id=Service(settings, job_id).id, summary_only=summaryonly)
    if jobversion:
        request.version.value = jobversion
    print_message(settings, settings.client.services.GetJob(request), [job_id])


@click.command(cls=Command)
@job_argument
@pass_settings
def cache(settings: Settings, job_id: str) -> None:
    """Print the short form of a service: its state and the parts of its spec that scheduling needs."""
    request = v1.job_svc.GetJobCacheRequest(job_id=Service(settings, job_id).id)
    print_message(settings, settings.client.services.GetJobCache(request))


@click.command(cls=Command)
@job_argument
@pass_settings
def refresh(settings: Settings, job_id: str) -> None:
    """Read a service again from storage."""
    response = settings.client.services.RefreshJob(v1.job_svc.RefreshJobRequest(job_id=Service(settings, job_id).id))
    print_outcome(settings, response, f"Job {job_id} refreshed")


@click.command("list-pods", cls=Command)
@job_argument
@range_option
@limit_option
@pass_settings
def list_pods(settings: Settings, job_id: str, instances: InstanceRange, limit: int | None) -> None:
    """List the pods of a service by instance; also `pod list`.

    \b
    Examples:
      peloton job stateless list-pods JOB
      peloton job stateless list-pods JOB -r 0:20
    """
    request = v1.job_svc.ListPodsRequest(job_id=Service(settings, job_id).id)
    if instances != (0, INSTANCE_MAX):
        request.range.CopyFrom(range_message(instances))
    pods = [pod for response in settings.client.services.ListPods(request) for pod in response.pods]
    pods.sort(key=lambda pod: (len(pod.pod_name.value), pod.pod_name.value))  # by number
    shown = pods[: rows_wanted(settings, limit)]
    print_pods(settings, v1.job_svc.ListPodsResponse(pods=shown), [(pod.pod_name.value, pod.status) for pod in shown])
    if len(shown) < len(pods):
        say_more(len(shown), len(pods))
