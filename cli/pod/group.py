"""``peloton pod``: the instances of services, by their names."""

from __future__ import annotations

import click

from cli.command import Group
from cli.names import instance_argument, job_argument
from cli.output import Table, print_list, print_message, print_outcome, say_more
from cli.params import COUNT, StatesType
from cli.pod import control
from cli.pod.table import print_pods
from cli.queries import pod_options, set_v1_page
from cli.settings import Settings, pass_settings
from cli.stateless.read import list_pods
from cli.task.exec import CONTEXT, run_session, session_options
from cli.task.group import SORT_FIELDS, events_options, health_words, print_events
from cli.task.logs import LogsCommand, container_file, logs_options, print_logs
from cli.times import seconds_text
from cli.wire import v1
from peloton.model.ids import PodName
from peloton.model.pod import PodState

STATE_PREFIX = "POD_STATE_"
STATES = StatesType([state for state in PodState if state is not PodState.UNKNOWN], prefix=STATE_PREFIX)
EVENT_TABLE: Table[v1.pod.PodEvent] = Table(
    ("Pod Id", lambda event: event.pod_id.value),
    ("Desired Pod Id", lambda event: event.desired_pod_id.value),
    ("Actual State", lambda event: event.actual_state.removeprefix(STATE_PREFIX)),
    ("Desired State", lambda event: event.desired_state.removeprefix(STATE_PREFIX)),
    ("Job Version", lambda event: event.version.value),
    ("Desired Job Version", lambda event: event.desired_version.value),
    ("Healthy", lambda event: health_words(event.healthy)),
    ("Host", lambda event: event.hostname),
    ("Message", lambda event: event.message),
    ("Reason", lambda event: event.reason),
    ("Update Time", lambda event: seconds_text(event.timestamp)),
    whole=["Pod Id", "Desired Pod Id", "Actual State", "Host", "Update Time"],
    spare=["Desired Pod Id", "Desired Job Version", "Job Version", "Healthy", "Reason", "Desired State", "Host",
           "Update Time"],
    nothing="No events found",
)  # fmt: skip
name_argument = control.name_argument


@click.group(cls=Group)
def pod() -> None:
    """Show, start, stop and restart the pods of services; read their logs.

    A pod is an instance of a job: JOB INSTANCE, or in one word JOB-INSTANCE, which is its name. A run of it has an id,
    JOB-INSTANCE-RUN.
    """


@pod.command()
@name_argument
@click.option("--statusonly", is_flag=True, help="Without the spec.")
@click.option("--limit", type=COUNT, default="0", show_default=True, help="Runs to print; 0: all.")
@pass_settings
def get(settings: Settings, pod: PodName, statusonly: bool, limit: int) -> None:
    """Print a pod's spec and state, and its earlier runs.

    \b
    Example:
      peloton pod get JOB 0 --limit 1
    """
    request = v1.pod_svc.GetPodRequest(pod_name=control.name_message(pod), status_only=statusonly, limit=limit)
    print_message(settings, settings.client.pods.GetPod(request), [str(pod)])


@pod.command()
@name_argument
@events_options("POD-ID")
@pass_settings
def events(settings: Settings, pod: PodName, run: str, limit: int) -> None:
    """Show what happened to a pod: every change of state over its runs, newest first.

    \b
    Example:
      peloton pod events JOB 0
    """
    print_events(settings, pod, run, limit)


@pod.command("events-v1alpha")
@name_argument
@click.option("--podID", "-p", "pod_id", default="", metavar="POD-ID", help="This run; the latest if absent.")
@pass_settings
def events_v1alpha(settings: Settings, pod: PodName, pod_id: str) -> None:
    """Show what happened to one run of a pod, newest first, by API v1alpha.

    \b
    Example:
      peloton pod events-v1alpha JOB 0 -p JOB-0-1
    """
    request = v1.pod_svc.GetPodEventsRequest(pod_name=control.name_message(pod))
    if pod_id:
        request.pod_id.value = pod_id
    response = settings.client.pods.GetPodEvents(request)
    names = dict.fromkeys(event.pod_id.value for event in response.events)
    print_list(settings, response, EVENT_TABLE, response.events, names)


@pod.command()
@name_argument
@pass_settings
def cache(settings: Settings, pod: PodName) -> None:
    """Print the short form of a pod: its state."""
    request = v1.pod_svc.GetPodCacheRequest(pod_name=control.name_message(pod))
    print_message(settings, settings.client.pods.GetPodCache(request))


@pod.command(cls=LogsCommand)
@name_argument
@logs_options
@click.option("--podID", "-p", "pod_id", default="", metavar="POD-ID", help="An earlier run; the current if absent.")
@pass_settings
def logs(settings: Settings, pod: PodName, follow: bool, filename: str, pod_id: str, container: str, raw: bool) -> None:
    """Print the output of a pod, or another file of its sandbox.

    `-f` alone follows; `-f FILE` names the file, as in the original.

    \b
    Examples:
      peloton pod logs JOB 0
      peloton pod logs JOB 0 -F --filename stderr
      peloton pod logs JOB 0 --container proxy
    """
    print_logs(settings, pod, pod_id, container_file(settings, pod, container, filename), follow, raw)


@pod.command("exec", context_settings=CONTEXT)
@session_options
@pass_settings
def exec_pod(settings: Settings, pod: tuple[PodName, tuple[str, ...]], container: str, stdin: bool, tty: bool) -> None:
    """Run a command in the sandbox of a running pod, as `task exec` does. Options stand before JOB.

    \b
    Examples:
      peloton pod exec JOB-0 ls -l
      peloton pod exec JOB-0 -- sh -c 'echo $PWD'
      peloton pod exec -it JOB-0
    """
    run_session(settings, *pod, container, stdin, tty)


@pod.command()
@job_argument
@pod_options("Pods", STATES, click.option("--sort", "-p", type=click.Choice(SORT_FIELDS),
                                          help="What to sort by; the instance if absent."))  # fmt: skip
@pass_settings
def query(
    settings: Settings, job_id: str, states: tuple[str, ...], names: tuple[str, ...], hosts: tuple[str, ...],
    limit: int, offset: int, sort: str | None, sortorder: str,
) -> None:  # fmt: skip
    """Find pods of a service; all conditions must hold.

    \b
    Examples:
      peloton pod query JOB -s POD_STATE_FAILED,LOST
      peloton pod query JOB --hosts host-1 -p creation_time -a DESC
    """
    request = v1.job_svc.QueryPodsRequest(job_id=v1.peloton.JobID(value=job_id))
    spec = request.spec
    spec.pod_states.extend(v1.pod.PodState.Value(f"{STATE_PREFIX}{state}") for state in states)
    spec.names.extend(map(control.name_message, names))
    spec.hosts.extend(hosts)
    fields = [sort.replace("instance_id", "instanceId")] if sort else []
    set_v1_page(spec.pagination, offset, limit, 0, fields, sortorder)
    request.pagination.CopyFrom(spec.pagination)
    response = settings.client.services.QueryPods(request)
    print_pods(settings, response, [(name_of(info), info.status) for info in response.pods])
    if (end := offset + len(response.pods)) < response.pagination.total:
        say_more(end, response.pagination.total, "see --offset and --limit")


def name_of(info: v1.pod.PodInfo) -> str:
    """Return the name that the pod's spec gives it, otherwise its own."""
    return info.spec.pod_name.value or info.status.pod_id.value.rpartition("-")[0]


@pod.command("delete-events")
@instance_argument("POD-ID", required=True)
@pass_settings
def delete_events(settings: Settings, pod: tuple[PodName, str]) -> None:
    """Delete what is known of one run of a pod.

    \b
    Example:
      peloton pod delete-events JOB 0 JOB-0-1
    """
    name, pod_id = pod
    request = v1.pod_svc.DeletePodEventsRequest(
        pod_name=control.name_message(name), pod_id=v1.peloton.PodID(value=pod_id)
    )
    print_outcome(settings, settings.client.pods.DeletePodEvents(request), f"Events of pod {pod_id} deleted")


for command in (*control.commands.values(), control.restart):
    pod.add_command(command)
pod.add_command(list_pods, "list")
