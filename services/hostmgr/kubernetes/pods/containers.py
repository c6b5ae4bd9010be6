"""One container of a pod, as Kubernetes's JSON.

The kubelet expands ``$(NAME)`` in commands and in values of variables; Mesos does not, so each is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import orjson

from peloton.api import convert
from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.pod_parts import Part, check_times, http_port, resources
from peloton.api.secret_values import refers_to_job
from peloton.api.v0.task import task_pb2
from peloton.lifecycle.host_pools import scale_request
from peloton.model.host_pool import AT_PAR, Factors
from peloton.model.resources import Resources, compute_needed, without_licenses
from services.hostmgr.driver import Variables
from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.pods.statuses import GPU
from services.hostmgr.kubernetes.pods.volumes import PodVolumes

SHELL = ("/bin/sh", "-c")
PORT_NAME_MAX = 15
SLUG_MAX = 50

_REFERENCE = re.compile(r"\$(?=[$(])")
_BAD_LETTERS = re.compile(r"[^a-z0-9]+")


class Asked(NamedTuple):
    """The form in which the containers of a pod request resources."""

    is_revocable: bool = False
    takes_least: bool = False  # the container belongs to a pod that requests nothing
    factors: Factors = AT_PAR  # overcommit factors applied to the offered resources of the node


class ContainerManifest:
    def __init__(self, name: str, part: Part, volumes: PodVolumes, default_image: str, asked: Asked) -> None:
        """``volumes`` are the pod's; the container's are added to them."""
        self._ports = [(port.name, port.envName, port.value) for port in part.ports]
        own = list(_variables(part.command, volumes))
        self._variables = [orjson.Fragment(orjson.dumps(variable)) for variable in own]
        self._own_names = {variable["name"] for variable in own}
        rest: Json = {
            "name": name,
            "image": convert.image_of(part) or default_image,
            **_command(part),
            "resources": _resources(part, asked),
            **_security(part),
        }
        if _always_pulls(part.container):
            rest["imagePullPolicy"] = "Always"
        if mounts := volumes.mounts_of(part):
            rest["volumeMounts"] = mounts
        if part.container.HasField("tty_info"):
            rest["tty"] = True
        checks = _checks(part)
        for probe, check in checks.items():
            rest[probe] = _probe(check, {})
        self._named_checks = {probe: check for probe, check in checks.items() if check.httpCheck.portName}
        """Checks of a named port, whose number differs between pods."""
        self._rest = {key: orjson.Fragment(orjson.dumps(value)) for key, value in rest.items()}

    def body(self, variables: dict[str, str], allocated: Iterator[int], defaults: Variables) -> Json:
        """Return the container. ``variables`` and ``defaults`` are common to all containers of the pod; the container's
        own variables have precedence over ``defaults``. ``allocated`` yields the pod's dynamic ports, of which the
        container takes its own."""
        ports = [(name, env_name, value or next(allocated)) for name, env_name, value in self._ports]
        own = {env_name: str(number) for _, env_name, number in ports if env_name}
        others = {name: value for name, value in defaults if name not in self._own_names} | variables | own
        env = [*self._variables, *({"name": name, "value": value} for name, value in others.items())]
        body: Json = {**self._rest, "env": env}
        numbers = {name: number for name, _, number in ports}
        body |= {name: _probe(check, numbers) for name, check in self._named_checks.items()}
        if ports:
            body["ports"] = [
                {"containerPort": number, "hostPort": number, **_port_name(name)} for name, _, number in ports
            ]
        return body


def slug(text: str) -> str:
    return _BAD_LETTERS.sub("-", text.casefold())[:SLUG_MAX].strip("-") or "x"


def _always_pulls(container: mesos_pb2.ContainerInfo) -> bool:
    return container.docker.force_pull_image or not container.mesos.image.cached


def _literal(text: str) -> str:
    """Escapes the text, so that the kubelet expands nothing in it."""
    return _REFERENCE.sub("$$", text)


def _command(part: Part) -> Json:
    """Return the command as Mesos runs it. With ``shell`` the value is a line for /bin/sh, and arguments are ignored.
    Otherwise the value is a program. For Mesos's own containers its arguments start with its name; for Docker's they do
    not, and all of them are passed to the entrypoint of the image if it has one. Without a value the image's own
    command runs."""
    command = part.command
    if command.shell and command.value:
        return {"command": [*SHELL, _literal(command.value)]}
    arguments = [_literal(argument) for argument in command.arguments]
    value = [_literal(command.value)] if command.value else []
    if part.container.type == mesos_pb2.ContainerInfo.DOCKER and part.HasField("container"):
        return {"args": value + arguments} if value or arguments else {}
    if value:
        return {"command": value, "args": arguments[1:]} if arguments[1:] else {"command": value}
    return {"args": arguments} if arguments else {}


def _variables(command: mesos_pb2.CommandInfo, volumes: PodVolumes) -> Iterator[Json]:
    for variable in command.environment.variables:
        if refers_to_job(variable.secret) and (own := volumes.find_variable(variable.secret.reference.key)) is not None:
            yield {"name": variable.name, "valueFrom": {"secretKeyRef": own}}
            continue
        if variable.secret.HasField("reference"):
            reference = variable.secret.reference
            key = {"name": reference.name, "key": reference.key or variable.name}
            yield {"name": variable.name, "valueFrom": {"secretKeyRef": key}}
        elif variable.secret.HasField("value"):
            yield {"name": variable.name, "value": _literal(variable.secret.value.data.decode(errors="replace"))}
        else:
            yield {"name": variable.name, "value": _literal(variable.value)}


def _resources(part: Part, asked: Asked) -> Json:
    """Return requests equal to limits, so that a pod which sets cpu and memory is Guaranteed, unless the node's
    resources are offered with a factor: requests are then divided by it. A revocable pod requests no cpu: it gets the
    cpu that others leave. Resources without a request are not limited."""
    wanted = without_licenses(resources(part.resource))
    if asked.takes_least:
        limits = {"limits": _amounts(wanted)} if wanted.extended else {}
        return {"requests": _amounts(scale_request(compute_needed(wanted), asked.factors))} | limits
    own = wanted - Resources(wanted.cpu_milli) if asked.is_revocable else wanted
    if not any(own) and not own.extended:
        return {}
    return {"requests": _amounts(scale_request(own, asked.factors)), "limits": _amounts(own)}


def _amounts(asked: Resources) -> Json:
    amounts = {
        "cpu": f"{asked.cpu_milli}m",
        "memory": f"{asked.memory_mib}Mi",
        "ephemeral-storage": f"{asked.disk_mib}Mi",
        GPU: str(asked.gpu_milli // 1000),  # whole ones only, see ``mesos_only``
    }
    found = {kind: text for (kind, text), amount in zip(amounts.items(), asked, strict=True) if amount}
    return found | {name: str(amount) for name, amount in asked.extended}


def _security(part: Part) -> Json:
    context: Json = {}
    if part.container.docker.privileged:
        context["privileged"] = True
    user = part.command.user
    if user == "root":
        context["runAsUser"] = 0
    elif user:
        context["runAsUser"] = int(user)
    return {"securityContext": context} if context else {}


def _checks(part: Part) -> dict[str, task_pb2.HealthCheckConfig]:
    """Return the checks by the names of their probes. The health check also decides readiness, unless a readiness
    check does."""
    checks = {}
    if part.HasField("healthCheck"):
        checks = {"livenessProbe": part.healthCheck, "readinessProbe": part.healthCheck}
    if part.HasField("readinessCheck"):
        checks["readinessProbe"] = part.readinessCheck
    return checks


def _probe(check: task_pb2.HealthCheckConfig, ports: Mapping[str, int]) -> Json:
    times = check_times(check)
    probe: Json = {
        "initialDelaySeconds": times.delay_s,
        "periodSeconds": times.interval_s,
        "timeoutSeconds": times.timeout_s,
        "failureThreshold": times.failures_max,
    }
    if check.type == task_pb2.HealthCheckConfig.HTTP:
        http = check.httpCheck
        scheme = (http.scheme or "http").upper()
        probe["httpGet"] = {"port": http_port(check, ports), "path": http.path or "/", "scheme": scheme}
    else:
        probe["exec"] = {"command": [*SHELL, _literal(check.commandCheck.command)]}
    return probe


def _port_name(name: str) -> Json:
    """Return a valid port name: at most 15 of a-z, 0-9 and -, with a letter; other names are dropped."""
    text = slug(name)
    is_name = len(text) <= PORT_NAME_MAX and any(letter.isalpha() for letter in text)
    return {"name": text} if is_name else {}
