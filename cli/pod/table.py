"""Pods of v1alpha as a table, a row for each container."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cli.output import Row, Table, print_list
from cli.params import InstanceRange
from cli.settings import Settings
from cli.task.group import health_words, termination_words
from cli.times import run_text, start_text
from cli.wire import v1

if TYPE_CHECKING:
    from google.protobuf.message import Message

TABLE: Table[Row] = Table(
    "Pod ID", "Name", "State", "Container Name", "Container State", "Healthy", "Start Time", "Run Time", "Host",
    "Message", "Reason", "Termination Status",
    whole=["Pod ID", "Name", "State", "Start Time", "Run Time", "Host"],
    spare=["Pod ID", "Container State", "Container Name", "Start Time", "Reason", "Termination Status", "Healthy",
           "Run Time", "Host", "Message"],
    nothing="No pods found",
)  # fmt: skip
Named = tuple[str, "v1.pod.PodStatus"]


def range_message(instances: InstanceRange) -> v1.pod.InstanceIDRange:
    """Return the range of a request, without its end."""
    return v1.pod.InstanceIDRange(**{"from": instances[0]}, to=instances[1])


def print_pods(settings: Settings, response: Message, pods: Sequence[Named]) -> None:
    rows = (row for name, status in pods for row in pod_rows(name, status))
    names = (status.pod_id.value.rpartition("-")[0] or name for name, status in pods)
    print_list(settings, response, TABLE, rows, names)


def pod_rows(name: str, status: v1.pod.PodStatus) -> Iterator[tuple[object, ...]]:
    state = v1.pod.PodState.Name(status.state).removeprefix("POD_STATE_")
    containers = [*status.init_containers_status, *status.containers_status] or [v1.pod.ContainerStatus()]
    for container in containers:
        begin, end = container.start_time or status.start_time, container.completion_time or status.completion_time
        health = health_words(v1.pod.HealthState.Name(container.healthy.state))
        container_state = v1.pod.ContainerState.Name(container.state).removeprefix("CONTAINER_STATE_")
        yield (
            status.pod_id.value,
            name,
            state,
            container.name,
            "" if container_state == "INVALID" else container_state,
            health,
            start_text(begin),
            run_text(begin, end),
            status.host,
            container.message or status.message,
            container.reason or status.reason,
            termination_text(container.terminationStatus),
        )


def termination_text(status: v1.pod.TerminationStatus) -> str:
    name = v1.pod.TerminationStatus.Reason.Name(status.reason) if status.reason else ""
    return termination_words(name, status.exit_code, status.signal)
