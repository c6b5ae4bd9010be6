"""Between v1alpha specs and the v0 configurations that everything behind the API uses."""

from __future__ import annotations

from peloton.api.convert_v1_mesos import add_both_forms, add_mesos_messages, complete
from peloton.api.respell import respell
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.errors import Unimplemented

MANY_CONTAINERS = "configuration of more than one container per pod is not supported"
INIT_CONTAINERS = "init containers are not supported"


# -- inward --------------------------------------------------------------------------------------------------------


def job_config(spec: stateless_pb2.JobSpec) -> job_pb2.JobConfig:
    """What is stored and scheduled. Raises Unimplemented for pods of several containers."""
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
    """Raises Unimplemented. Readiness checks, host ports and empty directories have no counterpart."""
    if len(pod.containers) > 1:
        raise Unimplemented(MANY_CONTAINERS)
    if pod.init_containers:
        raise Unimplemented(INIT_CONTAINERS)
    task = task_pb2.TaskConfig(name=pod.pod_name.value)
    respell(pod, task)
    if pod.HasField("preemption_policy"):
        policy = task.preemptionPolicy
        policy.type = policy.TYPE_PREEMPTIBLE if policy.killOnPreempt else policy.TYPE_NON_PREEMPTIBLE
    for container in pod.containers:
        respell(container, task, ("resource", "ports"))
        if container.HasField("liveness_check"):
            task.healthCheck.SetInParent()
            respell(container.liveness_check, task.healthCheck)
        add_mesos_messages(task, pod, container)
    return task


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
    spec = stateless_pb2.JobSpec()
    respell(config, spec)
    if config.HasField("defaultConfig"):
        spec.default_spec.CopyFrom(pod_spec(config.defaultConfig))
    for instance_id, task in config.instanceConfig.items():
        spec.instance_spec[instance_id].CopyFrom(pod_spec(task))
    return spec


def _complete(pod: pod_pb2.PodSpec) -> None:
    if pod.containers:
        complete(pod, pod.containers[0], task_config(pod))


def pod_spec(task: task_pb2.TaskConfig) -> pod_pb2.PodSpec:
    pod = pod_pb2.PodSpec()
    respell(task, pod)
    if task.name:
        pod.pod_name.value = task.name
    container = pod.containers.add()
    respell(task, container, ("resource", "ports"))
    if task.HasField("healthCheck"):
        container.liveness_check.SetInParent()
        respell(task.healthCheck, container.liveness_check)
    add_both_forms(pod, container, task)
    return pod
