"""``peloton pod start``, ``stop``, ``restart`` and ``refresh``: one pod by its name."""

from __future__ import annotations

from typing import Any

import click

from cli.command import Command, verb_commands
from cli.names import instance_argument
from cli.output import print_outcome
from cli.settings import Settings, pass_settings
from cli.wire import v1
from peloton.model.ids import PodName

name_argument = instance_argument()


def name_message(name: PodName | str) -> v1.peloton.PodName:
    return v1.peloton.PodName(value=str(name))


TEXTS = {
    "start": "Start a pod that was stopped.",
    "stop": "Stop a pod; it stays stopped until it is started.",
    "refresh": "Read a pod again from storage.",
}
DONE = {"start": "started", "stop": "stopped", "refresh": "refreshed"}


@verb_commands(TEXTS, "pod {verb} JOB 0")
@name_argument
@pass_settings
def commands(settings: Settings, verb: str, pod: PodName) -> None:
    name = f"{verb.capitalize()}Pod"
    send(settings, pod, getattr(settings.client.pods, name), getattr(v1.pod_svc, f"{name}Request"), DONE[verb])


@click.command(cls=Command)
@name_argument
@click.option("--check-sla", is_flag=True, help="Refuse it if the job would have too many instances down.")
@pass_settings
def restart(settings: Settings, pod: PodName, check_sla: bool) -> None:
    """Restart a pod: it gets a new run.

    \b
    Example:
      peloton pod restart JOB 0 --check-sla
    """
    request = v1.pod_svc.RestartPodRequest
    send(settings, pod, settings.client.pods.RestartPod, request, "restarted", check_sla=check_sla)


def send(settings: Settings, pod: PodName, call: Any, request: Any, done: str, **fields: Any) -> None:
    print_outcome(settings, call(request(pod_name=name_message(pod), **fields)), f"Pod {pod} {done}")
