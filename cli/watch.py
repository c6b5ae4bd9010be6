"""``peloton watch``: changes of services and their pods, as they happen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import click

from cli.command import INTERRUPTED, Group
from cli.names import JOB, pod_name
from cli.output import as_json_line, print_outcome
from cli.params import LABEL, Label
from cli.settings import Settings, pass_settings
from cli.stateless.rollout import count_states, job_state_name, of_update
from cli.terminal import echo
from cli.watching import WatchPace
from cli.wire import v1

CANCEL_TIMEOUT_S = 2.0
labels_option = click.option("--labels", "labels", type=LABEL, multiple=True,
                             help="All of these labels, as KEY:VALUE. Repeatable.")  # fmt: skip


@click.group(cls=Group)
def watch() -> None:
    """Print changes of services and their pods as they happen.

    A line for each change, or with --json an object; what has not changed is not printed. A watch that was cut off,
    because it was too slow or the API was unavailable, resumes where it was. Ctrl-C ends it.
    """


@watch.command()
@click.argument("job_ids", metavar="[JOB]...", nargs=-1, type=JOB)
@labels_option
@pass_settings
def job(settings: Settings, job_ids: Sequence[str], labels: Sequence[Label]) -> None:
    """Print changes of services: of the named ones, or of all.

    \b
    Examples:
      peloton watch job
      peloton watch job JOB --labels stage:test
    """
    request = v1.watch_svc.WatchRequest()
    wanted = request.stateless_job_filter
    wanted.SetInParent()
    wanted.job_ids.extend(v1.peloton.JobID(value=job_id) for job_id in job_ids)
    wanted.labels.extend(v1.peloton.Label(key=key, value=value) for key, value in labels)
    print_changes(settings, request)


@watch.command()
@click.argument("job_id", metavar="[JOB]", default="", type=JOB)
@click.argument("names", metavar="[INSTANCE]...", nargs=-1)
@labels_option
@pass_settings
def pod(settings: Settings, job_id: str, names: Sequence[str], labels: Sequence[Label]) -> None:
    """Print changes of pods: of a service, of some of its instances, or of all services.

    \b
    Examples:
      peloton watch pod JOB
      peloton watch pod JOB 0 1
    """
    request = v1.watch_svc.WatchRequest()
    wanted = request.pod_filter
    wanted.SetInParent()
    if job_id:
        wanted.job_id.value = job_id
    wanted.pod_names.extend(v1.peloton.PodName(value=pod_name(settings, name, job_id)) for name in names)
    wanted.labels.extend(v1.peloton.Label(key=key, value=value) for key, value in labels)
    print_changes(settings, request)


@watch.command()
@click.argument("watch_id", metavar="ID")
@pass_settings
def cancel(settings: Settings, watch_id: str) -> None:
    """End another watch by its ID, which it printed when it began."""
    response = settings.client.watches.Cancel(v1.watch_svc.CancelRequest(watch_id=watch_id), timeout=settings.timeout)
    print_outcome(settings, response, f"Watch {watch_id} cancelled")


def print_changes(settings: Settings, request: v1.watch_svc.WatchRequest) -> None:
    stream = Changes(settings, request, WatchPace())
    try:
        for message in stream.messages():
            for line in [as_json_line(message)] if settings.json else change_lines(message):
                echo(line)
    except KeyboardInterrupt:
        stream.cancel()
        echo(err=True)
        sys.exit(INTERRUPTED)


@dataclass
class Changes:
    """A watch that resumes where it was cut off."""

    settings: Settings
    request: v1.watch_svc.WatchRequest
    pace: WatchPace
    say: Callable[[str], None] = lambda text: echo(text, err=True)
    watch_id: str = ""

    def messages(self) -> Iterator[v1.watch_svc.WatchResponse]:
        """Yield messages until an error: any error of the first attempt, later one that waiting cannot help."""
        for message in self.settings.client.watch(self.request, self.pace.policy(self.say)):
            if message.watch_id:
                self.watch_id = message.watch_id
                self.say(f"watch {message.watch_id}")
            yield message

    def cancel(self) -> None:
        """Cancel the watch at once; without this the API would detect the closed connection later."""
        import grpc

        if not self.watch_id:
            return
        try:
            request = v1.watch_svc.CancelRequest(watch_id=self.watch_id)
            self.settings.client.watches.Cancel(request, timeout=CANCEL_TIMEOUT_S)
        except grpc.RpcError:
            return  # closing the connection ends it too


def change_lines(message: v1.watch_svc.WatchResponse) -> Iterator[str]:
    revision = message.revision
    for job in message.stateless_jobs:
        yield f"{revision} job {job_text(job)}"
    for pod in message.pods:
        yield f"{revision} pod {pod_text(pod)}"
    for job_id in message.stateless_jobs_not_found:
        yield f"{revision} job {job_id.value} is gone"
    for name in message.pods_not_found:
        yield f"{revision} pod {name.value} is gone"


def job_text(job: v1.job.JobSummary) -> str:
    status = job.status
    parts = [f"{job.job_id.value} {job.name} {job_state_name(status.state)} {status.version.value}"]
    if status.workflow_status.state:
        update = of_update(v1.job.JobInfo(job_id=job.job_id, status=status))
        parts.append(f"{update.act} {update.state} {update.counts_text}")
    parts.append(", ".join(f"{count} {state}" for state, count in count_states(status.pod_stats).items()))
    return "; ".join(filter(None, parts))


def pod_text(pod: v1.pod.PodSummary) -> str:
    status = pod.status
    health = {container.healthy.state for container in status.containers_status}
    words = [
        pod.pod_name.value,
        v1.pod.PodState.Name(status.state).removeprefix("POD_STATE_"),
        *(v1.pod.HealthState.Name(state).removeprefix("HEALTH_STATE_") for state in sorted(health) if state > 1),
        f"run {status.pod_id.value.rpartition('-')[2]}" if status.pod_id.value else "",
        f"version {status.version.value}" if status.version.value else "",
        f"on {status.host}" if status.host else "",
    ]
    text = " ".join(filter(None, words))
    return f"{text}: {' '.join(status.message.split())}" if status.message else text
