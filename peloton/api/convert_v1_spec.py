"""Between v1alpha specs and the v0 configurations that everything behind the API uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.message import Message

from peloton.api.convert_v1_mesos import add_mesos_messages, add_own_words, complete
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.errors import Unimplemented

MANY_CONTAINERS = "configuration of more than one container per pod is not supported"
INIT_CONTAINERS = "init containers are not supported"

# (name in v1alpha, name in v0) of fields that only changed their spelling.
_RESOURCE = (
    ("cpu_limit", "cpuLimit"),
    ("mem_limit_mb", "memLimitMb"),
    ("disk_limit_mb", "diskLimitMb"),
    ("fd_limit", "fdLimit"),
    ("gpu_limit", "gpuLimit"),
)
_HEALTH = (
    ("enabled", "enabled"),
    ("initial_interval_secs", "initialIntervalSecs"),
    ("interval_secs", "intervalSecs"),
    ("max_consecutive_failures", "maxConsecutiveFailures"),
    ("timeout_secs", "timeoutSecs"),
    ("type", "type"),  # the numbers are the same, too
)
_SLA = (
    ("priority", "priority"),
    ("preemptible", "preemptible"),
    ("revocable", "revocable"),
    ("maximum_unavailable_instances", "maximumUnavailableInstances"),
    ("strict_updates", "strictUpdates"),
)
_JOB = (
    ("name", "name"),
    ("owner", "owner"),
    ("owning_team", "owningTeam"),
    ("description", "description"),
    ("instance_count", "instanceCount"),
)


# -- inward --------------------------------------------------------------------------------------------------------


def job_config(spec: stateless_pb2.JobSpec) -> job_pb2.JobConfig:
    """What is stored and scheduled. Raises Unimplemented for pods of several containers."""
    config = job_pb2.JobConfig(type=job_pb2.SERVICE, ldapGroups=spec.ldap_groups)
    _respell(spec, config, _JOB)
    _add_labels(config.labels, spec.labels)
    if spec.HasField("sla"):
        config.sla.SetInParent()
        _respell(spec.sla, config.sla, _SLA)
    if spec.HasField("respool_id"):
        config.respoolID.value = spec.respool_id.value
    if spec.HasField("default_spec"):
        config.defaultConfig.CopyFrom(task_config(spec.default_spec))
    for instance_id, pod in spec.instance_spec.items():
        config.instanceConfig[instance_id].CopyFrom(task_config(pod))
    if spec.HasField("sla") and spec.HasField("default_spec"):
        for task in (config.defaultConfig, *config.instanceConfig.values()):
            task.revocable = spec.sla.revocable
    return config


def task_config(pod: pod_pb2.PodSpec) -> task_pb2.TaskConfig:
    """Raises Unimplemented. Readiness checks, host ports and empty directories have no counterpart."""
    if len(pod.containers) > 1:
        raise Unimplemented(MANY_CONTAINERS)
    if pod.init_containers:
        raise Unimplemented(INIT_CONTAINERS)
    task = task_pb2.TaskConfig(
        name=pod.pod_name.value,
        controller=pod.controller,
        killGracePeriodSeconds=pod.kill_grace_period_seconds,
        revocable=pod.revocable,
    )
    _add_labels(task.labels, pod.labels)
    if pod.HasField("constraint"):
        _constraint_inward(pod.constraint, task.constraint)
    if pod.HasField("restart_policy"):
        task.restartPolicy.maxFailures = pod.restart_policy.max_failures
    if pod.HasField("volume"):
        task.volume.containerPath, task.volume.sizeMB = pod.volume.container_path, pod.volume.size_mb
    if pod.HasField("preemption_policy"):
        policy = task.preemptionPolicy
        policy.killOnPreempt = pod.preemption_policy.kill_on_preempt
        policy.type = policy.TYPE_PREEMPTIBLE if policy.killOnPreempt else policy.TYPE_NON_PREEMPTIBLE
    for container in pod.containers:
        _add_container(task, pod, container)
    return task


def _add_container(task: task_pb2.TaskConfig, pod: pod_pb2.PodSpec, container: pod_pb2.ContainerSpec) -> None:
    if container.HasField("resource"):
        task.resource.SetInParent()
        _respell(container.resource, task.resource, _RESOURCE)
    if container.HasField("liveness_check"):
        check = container.liveness_check
        task.healthCheck.SetInParent()
        _respell(check, task.healthCheck, _HEALTH)
        if check.HasField("command_check"):
            task.healthCheck.commandCheck.command = check.command_check.command
            task.healthCheck.commandCheck.unshareEnvironments = check.command_check.unshare_environments
        if check.HasField("http_check"):
            http = check.http_check
            task.healthCheck.httpCheck.scheme = http.scheme
            task.healthCheck.httpCheck.port = http.port
            task.healthCheck.httpCheck.path = http.path
    for port in container.ports:
        task.ports.add(name=port.name, value=port.value, envName=port.env_name)
    add_mesos_messages(task, pod, container)


def _constraint_inward(wire: pod_pb2.Constraint, task: task_pb2.Constraint) -> None:
    """The numbers of types, kinds and conditions are the same in both versions."""
    task.type = wire.type  # type: ignore[assignment]
    if wire.HasField("label_constraint"):
        leaf, told = wire.label_constraint, task.labelConstraint
        told.kind, told.condition = leaf.kind, leaf.condition  # type: ignore[assignment]
        told.requirement = leaf.requirement
        if leaf.HasField("label"):
            told.label.key, told.label.value = leaf.label.key, leaf.label.value
    if wire.HasField("and_constraint"):
        task.andConstraint.SetInParent()
        for part in wire.and_constraint.constraints:
            _constraint_inward(part, task.andConstraint.constraints.add())
    if wire.HasField("or_constraint"):
        task.orConstraint.SetInParent()
        for part in wire.or_constraint.constraints:
            _constraint_inward(part, task.orConstraint.constraints.add())


# -- outward -------------------------------------------------------------------------------------------------------


def job_spec(config: job_pb2.JobConfig, sent: bytes = b"") -> stateless_pb2.JobSpec:
    """``sent``: the spec as its client gave it, which keeps what v0 has no field for; empty for a job of v0.

    Containers carry both forms of what they run.
    """
    if sent:
        spec = stateless_pb2.JobSpec.FromString(sent)
        if spec.HasField("default_spec"):
            _complete(spec.default_spec)
        for pod in spec.instance_spec.values():
            _complete(pod)
        return spec
    spec = stateless_pb2.JobSpec(ldap_groups=config.ldapGroups)
    _respell_back(config, spec, _JOB)
    _add_labels(spec.labels, config.labels)
    if config.HasField("sla"):
        spec.sla.SetInParent()
        _respell_back(config.sla, spec.sla, _SLA)
    if config.HasField("respoolID"):
        spec.respool_id.value = config.respoolID.value
    if config.HasField("defaultConfig"):
        spec.default_spec.CopyFrom(pod_spec(config.defaultConfig))
    for instance_id, task in config.instanceConfig.items():
        spec.instance_spec[instance_id].CopyFrom(pod_spec(task))
    return spec


def _complete(pod: pod_pb2.PodSpec) -> None:
    if pod.containers:
        complete(pod, pod.containers[0], task_config(pod))


def pod_spec(task: task_pb2.TaskConfig) -> pod_pb2.PodSpec:
    pod = pod_pb2.PodSpec(
        controller=task.controller,
        kill_grace_period_seconds=task.killGracePeriodSeconds,
        revocable=task.revocable,
    )
    if task.name:
        pod.pod_name.value = task.name
    _add_labels(pod.labels, task.labels)
    if task.HasField("constraint"):
        _constraint_outward(task.constraint, pod.constraint)
    if task.HasField("restartPolicy"):
        pod.restart_policy.max_failures = task.restartPolicy.maxFailures
    if task.HasField("volume"):
        pod.volume.container_path, pod.volume.size_mb = task.volume.containerPath, task.volume.sizeMB
    if task.HasField("preemptionPolicy"):
        pod.preemption_policy.kill_on_preempt = task.preemptionPolicy.killOnPreempt
    container = pod.containers.add()
    if task.HasField("resource"):
        container.resource.SetInParent()
        _respell_back(task.resource, container.resource, _RESOURCE)
    if task.HasField("healthCheck"):
        _tell_health_check(container.liveness_check, task.healthCheck)
    for port in task.ports:
        container.ports.add(name=port.name, value=port.value, env_name=port.envName)
    add_own_words(pod, container, task)
    return pod


def _tell_health_check(told: pod_pb2.HealthCheckSpec, check: task_pb2.HealthCheckConfig) -> None:
    told.SetInParent()
    _respell_back(check, told, _HEALTH)
    if check.HasField("commandCheck"):
        told.command_check.command = check.commandCheck.command
        told.command_check.unshare_environments = check.commandCheck.unshareEnvironments
    if check.HasField("httpCheck"):
        told.http_check.scheme = check.httpCheck.scheme
        told.http_check.port = check.httpCheck.port
        told.http_check.path = check.httpCheck.path


def _constraint_outward(task: task_pb2.Constraint, wire: pod_pb2.Constraint) -> None:
    wire.type = task.type  # type: ignore[assignment]
    if task.HasField("labelConstraint"):
        leaf, told = task.labelConstraint, wire.label_constraint
        told.kind, told.condition = leaf.kind, leaf.condition  # type: ignore[assignment]
        told.requirement = leaf.requirement
        if leaf.HasField("label"):
            told.label.key, told.label.value = leaf.label.key, leaf.label.value
    if task.HasField("andConstraint"):
        wire.and_constraint.SetInParent()
        for part in task.andConstraint.constraints:
            _constraint_outward(part, wire.and_constraint.constraints.add())
    if task.HasField("orConstraint"):
        wire.or_constraint.SetInParent()
        for part in task.orConstraint.constraints:
            _constraint_outward(part, wire.or_constraint.constraints.add())


# -- fields --------------------------------------------------------------------------------------------------------


def _respell(source: Message, target: Message, fields: Iterable[tuple[str, str]]) -> None:
    for new, old in fields:
        setattr(target, old, getattr(source, new))


def _respell_back(source: Message, target: Message, fields: Iterable[tuple[str, str]]) -> None:
    for new, old in fields:
        setattr(target, new, getattr(source, old))


def _add_labels(target: Any, labels: Iterable[Any]) -> None:
    for label in labels:
        target.add(key=label.key, value=label.value)
