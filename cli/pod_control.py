"""``peloton pod start``, ``stop``, ``restart`` and ``refresh``: one pod by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.command import Command
from cli.errors import Failed
from cli.output import print_json_or
from cli.settings import Settings, pass_settings
from peloton.model.ids import PodName

if TYPE_CHECKING:
    from peloton.api.v1alpha import peloton_pb2

name_argument = click.argument("name", metavar="NAME")


def name_message(name: str) -> peloton_pb2.PodName:
    from peloton.api.v1alpha import peloton_pb2

    return peloton_pb2.PodName(value=name)


def parsed_name(name: str) -> PodName:
    try:
        return PodName.parse(name)
    except ValueError as error:
        raise Failed(str(error)) from error


@click.command(cls=Command)
@name_argument
@pass_settings
def start(settings: Settings, name: str) -> None:
    """Start a pod that was stopped.

    \b
    Example:
      peloton pod start JOB-0
    """
    from peloton.api.v1alpha.pod.svc import pod_svc_pb2 as svc

    response = settings.client.pods.StartPod(svc.StartPodRequest(pod_name=name_message(name)))
    print_json_or(settings, response, f"Pod {name} started")


@click.command(cls=Command)
@name_argument
@pass_settings
def stop(settings: Settings, name: str) -> None:
    """Stop a pod; it stays stopped until it is started.

    \b
    Example:
      peloton pod stop JOB-0
    """
    from peloton.api.v1alpha.pod.svc import pod_svc_pb2 as svc

    response = settings.client.pods.StopPod(svc.StopPodRequest(pod_name=name_message(name)))
    print_json_or(settings, response, f"Pod {name} stopped")


@click.command(cls=Command)
@name_argument
@click.option("--check-sla", is_flag=True, help="Not if the job would have too many instances down.")
@pass_settings
def restart(settings: Settings, name: str, check_sla: bool) -> None:
    """Restart a pod: it gets a new run.

    \b
    Example:
      peloton pod restart JOB-0 --check-sla
    """
    from peloton.api.v1alpha.pod.svc import pod_svc_pb2 as svc

    request = svc.RestartPodRequest(pod_name=name_message(name), check_sla=check_sla)
    print_json_or(settings, settings.client.pods.RestartPod(request), f"Pod {name} restarted")


@click.command(cls=Command)
@name_argument
@pass_settings
def refresh(settings: Settings, name: str) -> None:
    """Have the API look at a pod again, from what is stored."""
    from peloton.api.v1alpha.pod.svc import pod_svc_pb2 as svc

    response = settings.client.pods.RefreshPod(svc.RefreshPodRequest(pod_name=name_message(name)))
    print_json_or(settings, response, f"Pod {name} refreshed")
