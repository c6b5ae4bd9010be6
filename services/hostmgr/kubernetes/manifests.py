"""A configuration of pods as the JSON of a Kubernetes pod. What is the same for all its pods is rendered once.

The kubelet replaces ``$(NAME)`` in commands and in values of variables; Mesos does not, so each is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import orjson

from peloton.api import convert
from peloton.api.cluster_kinds import mesos_only
from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.v0.task import task_pb2
from peloton.errors import InvalidArgument
from peloton.model.resources import needed
from services.hostmgr.driver import PodLaunch, PodTemplate
from services.hostmgr.kubernetes.settings import KubernetesSettings
from services.hostmgr.kubernetes.statuses import GPU, REVOCABLE_CPU, Json
from services.hostmgr.kubernetes.volumes import volumes_of

MAIN = "main"
"""Name of a pod's container that has none."""
SHELL = ("/bin/sh", "-c")
LABEL = "peloton.io/"
"""Begins the keys of our own labels and annotations."""
ANNOTATIONS_BYTES_MAX = 200_000
"""Of user labels that become annotations; Kubernetes takes 256 KiB."""

_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?", re.ASCII)
_VALUE = re.compile(r"([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_REFERENCE = re.compile(r"\$(?=[$(])")
_BAD_NAME = re.compile(r"[^a-z0-9]+")
PORT_NAME_MAX = 15
_LOST_NODE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class PodManifest:
    """Raises InvalidArgument for a configuration that Kubernetes cannot run."""

    def __init__(self, template: PodTemplate, settings: KubernetesSettings) -> None:
        self._job_id = template.job.job_id
        self._dynamic_ports = template.dynamic_ports
        config = template.config
        if asked := mesos_only(config):
            raise InvalidArgument(f"the pod asks for what Kubernetes does not have: {', '.join(asked)}")
        labels, annotations = _labels_of(template, settings.cluster)
        self._labels = labels
        self._annotations = orjson.Fragment(orjson.dumps(annotations))
        volumes = volumes_of(config.container)
        self._containers = [_Container(MAIN, config, template, settings.default_image)]
        spec = _pod_spec(config, settings)
        if volumes.volumes:
            spec["volumes"] = volumes.volumes
        self._spec = {key: orjson.Fragment(orjson.dumps(value)) for key, value in spec.items()}

    def body(self, pod: PodLaunch, node: str) -> bytes:
        """Of the request that creates the pod, bound to the node."""
        instance, run = str(pod.pod_id.instance_id), str(pod.pod_id.run_id)
        numbers = dict(zip((name for name, _ in self._dynamic_ports), pod.ports, strict=True))
        own_variables = [
            {"name": "PELOTON_JOB_ID", "value": self._job_id},
            {"name": "PELOTON_INSTANCE_ID", "value": instance},
            {"name": "PELOTON_TASK_ID", "value": f"{self._job_id}-{instance}"},
        ]
        labels = {**self._labels, f"{LABEL}instance": instance, f"{LABEL}run": run}
        return orjson.dumps(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": str(pod.pod_id), "labels": labels, "annotations": self._annotations},
                "spec": {
                    **self._spec,
                    "nodeName": node,
                    "containers": [each.body(own_variables, numbers) for each in self._containers],
                },
            }
        )


class _Container:
    def __init__(self, name: str, config: task_pb2.TaskConfig, template: PodTemplate, default_image: str) -> None:
        command = config.command
        self._ports = [(port.name, port.envName, port.value) for port in config.ports]
        self._variables = list(_variables(command))
        rest: Json = {
            "name": name,
            "image": convert.image_of(config) or default_image,
            **_command(config),
            "resources": _requests(config.resource, template.revocable),
            **_security(config),
        }
        if _is_pulled_anew(config.container):
            rest["imagePullPolicy"] = "Always"
        if mounts := volumes_of(config.container).mounts:
            rest["volumeMounts"] = mounts
        if config.HasField("healthCheck"):
            probe = _probe(config.healthCheck)
            rest |= {"livenessProbe": probe, "readinessProbe": probe}
        if config.container.HasField("tty_info"):
            rest["tty"] = True
        self._rest = {key: orjson.Fragment(orjson.dumps(value)) for key, value in rest.items()}
        self._fixed_variables = [orjson.Fragment(orjson.dumps(variable)) for variable in self._variables]

    def body(self, own_variables: list[Json], numbers: dict[str, int]) -> Json:
        """``numbers``: of the dynamic ports."""
        ports = [(name, env_name, value or numbers[name]) for name, env_name, value in self._ports]
        env = [*self._fixed_variables, *own_variables]
        env += [{"name": env_name, "value": str(number)} for _, env_name, number in ports if env_name]
        body = {**self._rest, "env": env}
        if ports:
            body["ports"] = [
                {"containerPort": number, "hostPort": number, **_port_name(name)} for name, _, number in ports
            ]
        return body


# -- the pod -------------------------------------------------------------------------------------------------------


def _pod_spec(config: task_pb2.TaskConfig, settings: KubernetesSettings) -> Json:
    tolerations: list[Json] = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": round(settings.lost_node_s)}
        for key in _LOST_NODE_TAINTS
    ]
    if settings.taint:
        tolerations.append({"key": settings.taint, "operator": "Exists"})
    spec: Json = {
        "schedulerName": "peloton",
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": convert.kill_grace_s(config),
        "tolerations": tolerations,
    }
    if settings.priority_class:
        spec["priorityClassName"] = settings.priority_class
    docker = config.container.docker
    if docker.HasField("network") and docker.network == mesos_pb2.ContainerInfo.DockerInfo.HOST:
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if config.container.hostname:
        spec["hostname"] = config.container.hostname
    credentials = config.container.mesos.image.docker.config
    if credentials.reference.name:
        spec["imagePullSecrets"] = [{"name": credentials.reference.name}]
    return spec


def _labels_of(template: PodTemplate, cluster: str) -> tuple[Json, Json]:
    """Labels, and as annotations what cannot be a label of Kubernetes."""
    job = template.job
    own = {
        f"{LABEL}job-name": job.name,
        f"{LABEL}owner": job.owning_team,
        f"{LABEL}job-type": job.type.value,
        f"{LABEL}pool": template.pool_path,
    }
    theirs = {key: value for key, value in template.labels if not key.startswith(("peloton.", LABEL))}
    labels: Json = {f"{LABEL}cluster": cluster, f"{LABEL}job": job.job_id}
    annotations: Json = {}
    if template.revocable:
        annotations[REVOCABLE_CPU] = f"{template.resources.cpu_milli}m"
    for key, value in (own | theirs).items():
        if _KEY.fullmatch(key) and _VALUE.fullmatch(value):
            labels[key] = value
        else:
            # Keys of annotations obey the rule of labels, values none.
            name = key if _KEY.fullmatch(key) else f"{LABEL}label.{_slug(key)}"
            annotations[name] = value if name == key else f"{key}={value}"
    size = len(orjson.dumps(annotations))
    if size > ANNOTATIONS_BYTES_MAX:
        raise InvalidArgument(
            f"labels that Kubernetes takes as annotations only have {size} bytes, at most {ANNOTATIONS_BYTES_MAX} fit"
        )
    return labels, annotations


def _slug(text: str) -> str:
    return _BAD_NAME.sub("-", text.casefold()).strip("-")[:50] or "x"


# -- containers ----------------------------------------------------------------------------------------------------


def _is_pulled_anew(container: mesos_pb2.ContainerInfo) -> bool:
    return container.docker.force_pull_image or not container.mesos.image.cached


def _literal(text: str) -> str:
    """So that the kubelet replaces nothing in it."""
    return _REFERENCE.sub("$$", text)


def _command(config: task_pb2.TaskConfig) -> Json:
    """As Mesos runs it. ``shell``: the value is a line for /bin/sh, and arguments do not count. Otherwise the value is
    a program. For Mesos's own containers its arguments begin with its name; for Docker's they do not, and all goes to
    the entrypoint of the image if it has one. Without a value the image's own command runs."""
    command = config.command
    if command.shell and command.value:
        return {"command": [*SHELL, _literal(command.value)]}
    arguments = [_literal(argument) for argument in command.arguments]
    value = [_literal(command.value)] if command.value else []
    if config.container.type == mesos_pb2.ContainerInfo.DOCKER and config.HasField("container"):
        return {"args": value + arguments} if value or arguments else {}
    if value:
        return {"command": value, "args": arguments[1:]} if arguments[1:] else {"command": value}
    return {"args": arguments} if arguments else {}


def _variables(command: mesos_pb2.CommandInfo) -> Iterator[Json]:
    for variable in command.environment.variables:
        if variable.secret.HasField("reference"):
            reference = variable.secret.reference
            key = {"name": reference.name, "key": reference.key or variable.name}
            yield {"name": variable.name, "valueFrom": {"secretKeyRef": key}}
        elif variable.secret.HasField("value"):
            yield {"name": variable.name, "value": _literal(variable.secret.value.data.decode(errors="replace"))}
        else:
            yield {"name": variable.name, "value": _literal(variable.value)}


def _requests(resource: task_pb2.ResourceConfig, revocable: bool) -> Json:
    """Requests equal limits, so that a pod which names cpu and memory is Guaranteed. A revocable one requests no cpu:
    it gets what others leave. What is not asked for is not limited."""
    asked = convert.resources(resource)
    if not any(asked):
        return {} if revocable else {"requests": {"cpu": f"{needed(asked).cpu_milli}m"}}
    amounts: Json = {}
    if asked.cpu_milli and not revocable:
        amounts["cpu"] = f"{asked.cpu_milli}m"
    if asked.memory_mib:
        amounts["memory"] = f"{asked.memory_mib}Mi"
    if asked.disk_mib:
        amounts["ephemeral-storage"] = f"{asked.disk_mib}Mi"
    if asked.gpu_milli:
        amounts[GPU] = str(asked.gpu_milli // 1000)
    return {"requests": amounts, "limits": amounts} if amounts else {}


def _security(config: task_pb2.TaskConfig) -> Json:
    context: Json = {}
    if config.container.docker.privileged:
        context["privileged"] = True
    user = config.command.user
    if user == "root":
        context["runAsUser"] = 0
    elif user:
        context["runAsUser"] = int(user)
    return {"securityContext": context} if context else {}


def _probe(check: task_pb2.HealthCheckConfig) -> Json:
    """With the numbers that Mesos takes for those that are not given."""
    probe: Json = {
        "initialDelaySeconds": check.initialIntervalSecs or 15,
        "periodSeconds": check.intervalSecs or 10,
        "timeoutSeconds": check.timeoutSecs or 20,
        "failureThreshold": check.maxConsecutiveFailures or 3,
    }
    if check.type == task_pb2.HealthCheckConfig.HTTP:
        http = check.httpCheck
        probe["httpGet"] = {"port": http.port, "path": http.path or "/", "scheme": (http.scheme or "http").upper()}
    else:
        probe["exec"] = {"command": [*SHELL, check.commandCheck.command]}
    return probe


def _port_name(name: str) -> Json:
    """At most 15 of a-z, 0-9 and -, with a letter; others stay without a name."""
    text = _slug(name)
    is_name = len(text) <= PORT_NAME_MAX and any(letter.isalpha() for letter in text)
    return {"name": text} if is_name else {}
