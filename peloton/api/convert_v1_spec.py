"""Conversion between v1alpha specs and the v0 configurations that are stored and scheduled."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

from peloton.api.convert_v1_mesos import (
    add_both_forms,
    add_executor,
    add_folders,
    add_mesos_messages,
    complete,
    complete_executor,
    describe_folders,
)
from peloton.api.pod_parts import Part
from peloton.api.respell import respell
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.pod import pod_pb2

MesosForm: TypeAlias = Literal["container", "command", "executor"]
MESOS_FORMS: tuple[MesosForm, ...] = ("container", "command", "executor")

# -- inward --------------------------------------------------------------------------------------------------------


def job_config(spec: stateless_pb2.JobSpec) -> job_pb2.JobConfig:
    """Return the configuration of a spec, which is stored and scheduled. Raises InvalidArgument."""
    config = job_pb2.JobConfig(type=job_pb2.SERVICE)
    respell(spec, config)
    if spec.HasField("default_spec"):
        config.defaultConfig.CopyFrom(task_config(spec.default_spec))
    for instance_id, pod in spec.instance_spec.items():
        config.instanceConfig[instance_id].CopyFrom(task_config(pod))
    if spec.HasField("sla") and spec.HasField("default_spec"):
        for task in (config.defaultConfig, *config.instanceConfig.values()):
            task.revocable = spec.sla.revocable
    return config


def task_config(pod: pod_pb2.PodSpec) -> task_pb2.TaskConfig:
    """Convert a pod's spec; host ports have no counterpart. Raises InvalidArgument."""
    task = task_pb2.TaskConfig(name=pod.pod_name.value)
    respell(pod, task)
    task.ClearField("initContainers")
    if pod.HasField("preemption_policy"):
        policy = task.preemptionPolicy
        policy.type = policy.TYPE_PREEMPTIBLE if policy.killOnPreempt else policy.TYPE_NON_PREEMPTIBLE
    if pod.containers:
        first = pod.containers[0]
        task.containerName = first.name
        _fill(task, pod, first)
        add_executor(task, pod, first)
    for container in pod.containers[1:]:
        _fill(task.otherContainers.add(name=container.name), pod, container)
    for container in pod.init_containers:
        _fill(task.initContainers.add(name=container.name), pod, container)
    return task


def _fill(part: Part, pod: pod_pb2.PodSpec, container: pod_pb2.ContainerSpec) -> None:
    respell(container, part, ("resource", "ports"))
    if container.HasField("liveness_check"):
        _fill_check(part.healthCheck, container.liveness_check)
    if container.HasField("readiness_check"):
        _fill_check(part.readinessCheck, container.readiness_check)
    add_mesos_messages(part, pod, container)
    add_folders(part, pod, container)


def _fill_check(check: task_pb2.HealthCheckConfig, spec: pod_pb2.HealthCheckSpec) -> None:
    """Convert a check, which has two forms in v1alpha; the older form takes precedence."""
    check.SetInParent()
    respell(spec, check)
    if spec.HasField("http_get") and not spec.HasField("http_check"):
        respell(spec.http_get, check.httpCheck)
        if asked := spec.http_get.port_spec.name:
            check.httpCheck.portName = asked
    if spec.HasField("command") and not spec.HasField("command_check"):
        check.commandCheck.command = shlex.join([spec.command.value, *spec.command.arguments])


# -- outward -------------------------------------------------------------------------------------------------------


def job_spec(config: job_pb2.JobConfig, sent: bytes = b"") -> stateless_pb2.JobSpec:
    """Return the spec of a configuration. ``sent``: the spec sent by its client, with the fields that v0 lacks; empty
    for a job of v0.

    Containers have both forms of their commands and images.
    """
    if sent:
        spec = stateless_pb2.JobSpec.FromString(sent)
        if spec.HasField("default_spec"):
            _complete(spec.default_spec)
        for pod in spec.instance_spec.values():
            _complete(pod)
        return spec
    spec = stateless_pb2.JobSpec()
    respell(config, spec)
    if config.HasField("defaultConfig"):
        spec.default_spec.CopyFrom(pod_spec(config.defaultConfig))
    for instance_id, task in config.instanceConfig.items():
        spec.instance_spec[instance_id].CopyFrom(pod_spec(task))
    return spec


def in_one_form(spec: stateless_pb2.JobSpec) -> stateless_pb2.JobSpec:
    """Return a copy for users to edit, without Mesos messages equal to the fields of v1alpha, which would otherwise
    override edits. Raises InvalidArgument."""
    copy = stateless_pb2.JobSpec()
    copy.CopyFrom(spec)
    for pod in (copy.default_spec, *copy.instance_spec.values()):
        _drop_equal_forms(pod)
    return copy


def _drop_equal_forms(pod: pod_pb2.PodSpec) -> None:
    wanted = task_config(pod)
    for container in (*pod.containers, *pod.init_containers):
        for name in MESOS_FORMS:
            kept = pod_pb2.ContainerSpec()
            kept.CopyFrom(container)
            container.ClearField(name)
            if task_config(pod) != wanted:
                container.CopyFrom(kept)


def _complete(pod: pod_pb2.PodSpec) -> None:
    task = task_config(pod)
    if pod.containers:
        complete(pod, pod.containers[0], task)
        complete_executor(pod, pod.containers[0], task)
    others = zip(pod.containers[1:], task.otherContainers, strict=True)
    for container, part in (*others, *zip(pod.init_containers, task.initContainers, strict=True)):
        with _own_volumes(pod, container) as scratch:
            complete(scratch, container, part)


def pod_spec(task: task_pb2.TaskConfig) -> pod_pb2.PodSpec:
    pod = pod_pb2.PodSpec()
    respell(task, pod)
    pod.ClearField("init_containers")
    if task.name:
        pod.pod_name.value = task.name
    first = pod.containers.add(name=task.containerName)
    add_both_forms(pod, first, task)
    if task.HasField("executor"):
        first.executor.CopyFrom(task.executor)
        complete_executor(pod, first, task)
    _describe(pod, first, task)
    for parts, containers in ((task.otherContainers, pod.containers), (task.initContainers, pod.init_containers)):
        for part in parts:
            container = containers.add(name=part.name)
            with _own_volumes(pod, container) as scratch:
                add_both_forms(scratch, container, part)
            _describe(pod, container, part)
    return pod


def _describe(pod: pod_pb2.PodSpec, container: pod_pb2.ContainerSpec, part: Part) -> None:
    respell(part, container, ("resource", "ports"))
    if part.HasField("healthCheck"):
        container.liveness_check.SetInParent()
        respell(part.healthCheck, container.liveness_check)
    if part.HasField("readinessCheck"):
        container.readiness_check.SetInParent()
        respell(part.readinessCheck, container.readiness_check)
    describe_folders(pod, container, part)


@contextmanager
def _own_volumes(pod: pod_pb2.PodSpec, container: pod_pb2.ContainerSpec) -> Iterator[pod_pb2.PodSpec]:
    """Yield a spec for the settings of the pod that only its first container may make; its volumes are added to the pod
    under unique names."""
    scratch = pod_pb2.PodSpec()
    yield scratch
    names = {volume.name: f"{container.name}-{volume.name}" for volume in scratch.volumes}
    for volume in scratch.volumes:
        volume.name = names[volume.name]
        pod.volumes.append(volume)
    for mount in container.volume_mounts:
        mount.name = names.get(mount.name, mount.name)
