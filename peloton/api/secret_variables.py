"""Environment variables whose values are secrets: configurations refer to them by the names of the variables.

A request has the value in a variable of type SECRET. It is taken out before anything is stored, and becomes a secret of
the job, under a path that is no path of a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.pod_parts import all_parts
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.errors import InvalidArgument
from peloton.model.secret import PREFIX, Secret
from peloton.model.text import quote, shorten

OF_JOB = "peloton/job"
"""Name of references to secrets of the job; no Secret of Kubernetes can have it."""
_Variable = mesos_pb2.Environment.Variable
_Secret = mesos_pb2.Secret


def commands_of(pod: task_pb2.TaskConfig | pod_pb2.PodSpec) -> Iterator[mesos_pb2.CommandInfo]:
    """Yield the commands of all containers of a pod, and of their executors."""
    parts: Iterable[Any] = (
        all_parts(pod) if isinstance(pod, task_pb2.TaskConfig) else (*pod.containers, *pod.init_containers)
    )
    for part in parts:
        if part.HasField("command"):
            yield part.command
        if hasattr(part, "executor") and part.executor.HasField("command"):
            yield part.executor.command


def take_values(pod: task_pb2.TaskConfig | pod_pb2.PodSpec) -> list[tuple[str, bytes]]:
    """Replace the values of secret variables by references; return names and values.

    Raises InvalidArgument for a variable with two values.
    """
    found: dict[str, bytes] = {}
    for command in commands_of(pod):
        for variable in command.environment.variables:
            if not has_value(variable):
                continue
            data = variable.secret.value.data
            if found.setdefault(variable.name, data) != data:
                raise InvalidArgument(f"environment variable {quote(variable.name)} has two secret values in the pod")
            if not data:
                raise InvalidArgument(f"environment variable {quote(variable.name)} has an empty secret value")
            reference = _Secret.Reference(name=OF_JOB, key=variable.name)
            variable.CopyFrom(
                _Variable(
                    name=variable.name,
                    type=_Variable.SECRET,
                    secret=_Secret(type=_Secret.REFERENCE, reference=reference),
                )
            )
    return list(found.items())


def clear_values(pod: task_pb2.TaskConfig | pod_pb2.PodSpec) -> None:
    """Remove the values of secret variables."""
    for command in commands_of(pod):
        for variable in command.environment.variables:
            if has_value(variable):
                variable.ClearField("secret")


def has_value(variable: mesos_pb2.Environment.Variable) -> bool:
    """Report whether a variable has a secret value in it, which no configuration may have."""
    return variable.HasField("secret") and (
        variable.secret.HasField("value") or not variable.secret.HasField("reference")
    )


def refers_to_job(variable: mesos_pb2.Environment.Variable) -> bool:
    return variable.HasField("secret") and variable.secret.reference.name == OF_JOB


def check_variables(pod: task_pb2.TaskConfig, secrets: Iterable[Secret]) -> None:
    """Raise InvalidArgument for a variable that refers to a secret which the job does not have."""
    paths = {one.path for one in secrets}
    for command in commands_of(pod):
        for variable in command.environment.variables:
            if refers_to_job(variable) and PREFIX + variable.secret.reference.key not in paths:
                raise InvalidArgument(
                    f"environment variable {shorten(variable.name)} refers to a secret that the job does not have: "
                    f"send its value"
                )


def variables_in(secrets: Iterable[Secret]) -> Mapping[str, Secret]:
    """Return the secrets that are values of variables, by the names to which configurations refer."""
    return {one.path.removeprefix(PREFIX): one for one in secrets if not one.is_file}
