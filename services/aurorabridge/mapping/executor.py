"""The executor of a task: Thermos with the task's configuration as its data, or Mesos's own with one command line.

Data for Thermos is the configuration in Thrift's binary form with all sets in one order: equal configurations have
equal data, and cause no restart. Without Thermos a pod runs the command line of the task's first process, and a
variable of the pod keeps the configuration of the executor for clients that read it. (Labels of pods are counted on
each host, and are small.)
"""

from __future__ import annotations

import json
import re
from copy import copy
from dataclasses import dataclass
from typing import Any

from thriftpy2.protocol.cybin import TCyBinaryProtocol
from thriftpy2.thrift import TException
from thriftpy2.transport.memory import TCyMemoryBuffer

from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.pod.apachemesos.apachemesos_pb2 import PodSpec as MesosSpec
from peloton.model.text import quote
from services.aurorabridge.bounds import Malformed, scan
from services.aurorabridge.mapping.resources import port_names
from services.aurorabridge.method import Refusal
from services.aurorabridge.splice import encode
from services.aurorabridge.thrift import api

VARIABLE = "AURORA_EXECUTOR_CONFIG"
"""Variable of pods without Thermos: the configuration of the executor that Aurora would use, as JSON."""
VARIABLE_BYTES_MAX = 100_000
"""Maximum size of that variable: Linux starts no process with one above 128 KiB."""
PLACEHOLDER = "PLACEHOLDER"
"""Id of the executor until the launch, which names it after its pod."""

_RESOURCE_ORDER = ("numCpus", "ramMb", "diskMb", "namedPort", "numGpus")
_PORT = re.compile(r"\{\{thermos\.ports\[([^\]]*)\]\}\}")
_NOT_IN_NAMES = re.compile(r"[^A-Z0-9]")


@dataclass(frozen=True)
class Thermos:
    """The executor of Aurora, which agents fetch with further files; the resources are its own."""

    path: str
    flags: str = ""
    files: tuple[str, ...] = ()
    cpu: float = 0.0
    memory_mib: int = 0


# -- inward --------------------------------------------------------------------------------------------------------


def set_executor(pod: pod_pb2.PodSpec, task: Any, thermos: Thermos | None) -> None:
    """Set the command of the pod's only container, its ports, and the executor if that is Thermos.

    Raises Refusal.
    """
    task = normalize(task)
    if thermos is not None:
        _set_thermos(pod, task, thermos)
    else:
        _set_command(pod, task)
    for uri in task.mesosFetcherUris or ():
        pod.mesos_spec.uris.add(value=uri.value or "", extract=bool(uri.extract), cache=bool(uri.cache))


def normalize(task: Any) -> Any:
    """Return a copy of a task in which every set has one order, and the executor's JSON one form. Raises Refusal."""
    made = copy(task)
    made.metadata = _sort(task.metadata, lambda one: (one.key or "", one.value or ""))
    made.resources = _sort(task.resources, _resource_key)
    made.constraints = _sort(map(_sort_values, task.constraints or ()), lambda one: one.name or "")
    made.mesosFetcherUris = _sort(task.mesosFetcherUris, lambda one: one.value or "")
    made.requestedPorts = _sort(task.requestedPorts, str)
    made.taskLinks = dict(sorted((task.taskLinks or {}).items())) or None
    config = task.executorConfig
    if config is not None and config.data:
        made.executorConfig = api.ExecutorConfig(name=config.name, data=_one_form(config.data))
    return made


def _sort(members: Any, key: Any) -> Any:
    return sorted(members or (), key=key) or None


def _resource_key(resource: Any) -> tuple[int, str]:
    kind = next((i for i, name in enumerate(_RESOURCE_ORDER) if getattr(resource, name) is not None), -1)
    return kind, resource.namedPort or ""


def _sort_values(constraint: Any) -> Any:
    value = constraint.constraint.value if constraint.constraint is not None else None
    if value is None:
        return constraint
    values = api.ValueConstraint(negated=value.negated, values=_sort(value.values, str))
    return api.Constraint(name=constraint.name, constraint=api.TaskConstraint(value=values))


def _one_form(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError) as error:
        raise Refusal(f"the data of the executor is not JSON: {error}") from error


def _set_thermos(pod: pod_pb2.PodSpec, task: Any, thermos: Thermos) -> None:
    only, spec = pod.containers[0], pod.mesos_spec
    only.ports.extend(pod_pb2.PortSpec(name=name) for name in port_names(task))
    program = "${MESOS_SANDBOX=.}/" + thermos.path.rpartition("/")[2]
    only.entrypoint.value = f"{program} {thermos.flags}".rstrip()
    spec.shell = True
    for value in (thermos.path, *thermos.files):
        spec.uris.add(value=value, executable=True, extract=True)
    executor = spec.executor_spec
    executor.type, executor.executor_id = MesosSpec.ExecutorSpec.EXECUTOR_TYPE_CUSTOM, PLACEHOLDER
    executor.data = encode(task)
    if thermos.cpu > 0:
        executor.resources.cpu = thermos.cpu
    if thermos.memory_mib > 0:
        executor.resources.mem_mb = thermos.memory_mib


def _set_command(pod: pod_pb2.PodSpec, task: Any) -> None:
    """Set the command line of the first process; without an executor the image determines the command."""
    only, config = pod.containers[0], task.executorConfig
    only.ports.extend(
        pod_pb2.PortSpec(name=name, env_name=_port_variable(name), type=pod_pb2.PortSpec.PORT_TYPE_DYNAMIC_ENV_VAR)
        for name in port_names(task)
    )
    if config is None:
        if not only.image:
            raise Refusal("the task has neither an executorConfig nor an image: nothing says what it runs")
        only.entrypoint.SetInParent()
        return
    only.entrypoint.value = command_line(config.data or "")
    if pod.HasField("mesos_spec") or task.mesosFetcherUris:
        pod.mesos_spec.shell = True
    kept = {"data": config.data, "name": config.name or ""}
    text = json.dumps(kept, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    if (size_bytes := len(text.encode())) > VARIABLE_BYTES_MAX:
        raise Refusal(
            f"the executorConfig has {size_bytes} bytes: "
            f"without a Thermos executor at most {VARIABLE_BYTES_MAX} are allowed"
        )
    only.environment.add(name=VARIABLE, value=text)


def command_line(data: str) -> str:
    """Return the command line of the first process of a task of Thermos, for a shell.

    Ports, the instance and the task's id are variables of the pod there; other names in braces stay as they are.
    Raises Refusal.
    """
    try:
        command = json.loads(data)["task"]["processes"][0]["cmdline"]
    except (ValueError, LookupError, TypeError, RecursionError):
        command = None
    if not isinstance(command, str) or not command:
        raise Refusal(
            "the executorConfig has no command line at task.processes[0].cmdline: without a Thermos executor, pods run "
            "the first process of a task of Thermos"
        )
    command = _PORT.sub(lambda port: f"${{{_port_variable(port[1])}}}", command)
    command = command.replace("{{mesos.instance}}", "${PELOTON_INSTANCE_ID}")
    return command.replace("{{thermos.task_id}}", "${PELOTON_TASK_ID}")


def _port_variable(name: str) -> str:
    return f"PORT_{_NOT_IN_NAMES.sub('_', name.upper())}"


# -- outward -------------------------------------------------------------------------------------------------------


def executor_config(pod: pod_pb2.PodSpec) -> Any:
    """Return the configuration of the executor that the client gave; None without one. Raises Refusal."""
    data = pod.mesos_spec.executor_spec.data
    if data:
        return decode_task(data).executorConfig
    variables = (variable for container in pod.containers[:1] for variable in container.environment)
    text = next((variable.value for variable in variables if variable.name == VARIABLE), "")
    if not text:
        return None
    try:
        kept = json.loads(text)
        return api.ExecutorConfig(name=kept["name"], data=kept["data"])
    except (ValueError, LookupError, TypeError) as error:
        raise Refusal(f"variable {VARIABLE} of the pod is {quote(text)}, not as the bridge writes it") from error


def decode_task(data: bytes) -> Any:
    """Return the task in the data of an executor. Raises Refusal."""
    task = api.TaskConfig()
    try:
        scan(data, 0, api.TaskConfig)
        TCyBinaryProtocol(TCyMemoryBuffer(data)).read_struct(task)
    except (Malformed, TException, ValueError) as error:
        raise Refusal(f"the data of the pod's executor is no task of Aurora: {error}") from error
    return task


def fetcher_uris(pod: pod_pb2.PodSpec) -> list[Any]:
    """Return the files that the task asked for, without those of its executor, which are executable."""
    return [
        api.MesosFetcherURI(value=uri.value, extract=uri.extract, cache=uri.cache)
        for uri in pod.mesos_spec.uris
        if not uri.executable
    ]
