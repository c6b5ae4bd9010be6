"""Strategies for specs and task configurations of services."""

from __future__ import annotations

from hypothesis import strategies as st

from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.pod import pod_pb2

TEXTS = st.sampled_from(["", "a", "b/c", "ümlaut"])
NAMES = st.sampled_from(["a", "b", "c"])
NUMBERS = st.integers(0, 3)
AMOUNTS = st.sampled_from([0.0, 0.5, 1.0, 128.0])
FLAGS = st.booleans()
Policy = task_pb2.PreemptionPolicy


@st.composite
def constraints(draw: st.DrawFn, depth: int = 2) -> task_pb2.Constraint:
    kind = draw(st.sampled_from([0, 1, 2, 3, task_pb2.Constraint.NOT_CONSTRAINT] if depth else [0, 1]))
    wire = task_pb2.Constraint(type=kind)  # type: ignore[arg-type]
    if kind == task_pb2.Constraint.LABEL_CONSTRAINT:
        leaf = wire.labelConstraint
        leaf.kind, leaf.condition = draw(NUMBERS) % 3, draw(NUMBERS)  # type: ignore[assignment]
        leaf.label.key, leaf.label.value, leaf.requirement = draw(NAMES), draw(TEXTS), draw(NUMBERS)
    elif kind == task_pb2.Constraint.AND_CONSTRAINT:
        wire.andConstraint.constraints.extend(draw(st.lists(constraints(depth=depth - 1), max_size=2)))
        wire.andConstraint.SetInParent()
    elif kind == task_pb2.Constraint.OR_CONSTRAINT:
        wire.orConstraint.constraints.extend(draw(st.lists(constraints(depth=depth - 1), max_size=2)))
        wire.orConstraint.SetInParent()
    elif kind == task_pb2.Constraint.NOT_CONSTRAINT:
        wire.notConstraint.constraint.CopyFrom(draw(constraints(depth=depth - 1)))
    return wire


@st.composite
def containers(draw: st.DrawFn) -> mesos_pb2.ContainerInfo:
    info = mesos_pb2.ContainerInfo(type=draw(st.sampled_from([mesos_pb2.ContainerInfo.DOCKER, 2])))  # type: ignore[arg-type]
    if info.type == mesos_pb2.ContainerInfo.DOCKER:
        info.docker.image = draw(TEXTS)
        if draw(FLAGS):
            info.docker.network = draw(st.sampled_from([1, 2, 3, 4]))  # type: ignore[assignment]
        for name in draw(st.lists(NAMES, max_size=2)):
            info.docker.parameters.add(key=name, value=draw(TEXTS))
    for path in draw(st.lists(NAMES, max_size=2, unique=True)):
        info.volumes.add(mode=draw(st.sampled_from([1, 2])), container_path=path, host_path=f"/host/{path}")
    return info


@st.composite
def commands(draw: st.DrawFn) -> mesos_pb2.CommandInfo:
    command = mesos_pb2.CommandInfo(arguments=draw(st.lists(TEXTS, max_size=2)))
    if draw(FLAGS):
        command.value = draw(TEXTS)
    if draw(FLAGS):
        command.shell = draw(FLAGS)
    for name in draw(st.lists(NAMES, max_size=2)):
        command.environment.variables.add(name=name, value=draw(TEXTS))
    for value in draw(st.lists(NAMES, max_size=2)):
        command.uris.add(value=value, executable=draw(FLAGS), extract=draw(FLAGS))
    return command


@st.composite
def health_checks(draw: st.DrawFn) -> task_pb2.HealthCheckConfig:
    check = task_pb2.HealthCheckConfig(
        enabled=draw(FLAGS),
        initialIntervalSecs=draw(NUMBERS),
        intervalSecs=draw(NUMBERS),
        maxConsecutiveFailures=draw(NUMBERS),
        timeoutSecs=draw(NUMBERS),
        type=draw(st.integers(0, 2)),  # type: ignore[arg-type]
    )
    if draw(FLAGS):
        check.commandCheck.command, check.commandCheck.unshareEnvironments = draw(TEXTS), draw(FLAGS)
    if draw(FLAGS):
        check.httpCheck.scheme, check.httpCheck.port, check.httpCheck.path = draw(TEXTS), draw(NUMBERS), draw(TEXTS)
    return check


@st.composite
def task_configs(draw: st.DrawFn) -> task_pb2.TaskConfig:
    """Draw task configurations from the fields that both v0 and v1alpha have."""
    task = task_pb2.TaskConfig(
        name=draw(TEXTS),
        controller=draw(FLAGS),
        killGracePeriodSeconds=draw(NUMBERS),
        revocable=draw(FLAGS),
        constraint=draw(st.none() | constraints()),
        healthCheck=draw(st.none() | health_checks()),
        container=draw(st.none() | containers()),
        command=draw(st.none() | commands()),
    )
    for key in draw(st.lists(NAMES, max_size=2)):
        task.labels.add(key=key, value=draw(TEXTS))
    for name in draw(st.lists(NAMES, max_size=2)):
        task.ports.add(name=name, value=draw(NUMBERS), envName=draw(TEXTS))
    if draw(FLAGS):
        task.resource.cpuLimit, task.resource.memLimitMb = draw(AMOUNTS), draw(AMOUNTS)
        task.resource.diskLimitMb, task.resource.gpuLimit = draw(AMOUNTS), draw(AMOUNTS)
        task.resource.fdLimit = draw(NUMBERS)
    if draw(FLAGS):
        task.restartPolicy.maxFailures = draw(NUMBERS)
    if draw(FLAGS):
        task.volume.containerPath, task.volume.sizeMB = draw(TEXTS), draw(NUMBERS)
    if draw(FLAGS):
        kills = draw(FLAGS)
        task.preemptionPolicy.killOnPreempt = kills
        task.preemptionPolicy.type = Policy.TYPE_PREEMPTIBLE if kills else Policy.TYPE_NON_PREEMPTIBLE
    if draw(FLAGS):
        task.executor.type = draw(st.integers(0, 2))  # type: ignore[assignment]
        task.executor.executor_id.value, task.executor.data = draw(NAMES), draw(st.binary(max_size=3))
    return task


@st.composite
def pod_specs(draw: st.DrawFn) -> pod_pb2.PodSpec:
    """Draw pods in v1alpha's own fields, including fields that v0 does not have."""
    pod = pod_pb2.PodSpec(kill_grace_period_seconds=draw(NUMBERS))
    if draw(FLAGS):
        spec = pod.mesos_spec
        spec.shell, spec.type = draw(FLAGS), draw(NUMBERS) % 3  # type: ignore[assignment]
        for value in draw(st.lists(NAMES, max_size=2)):
            spec.uris.add(value=value, extract=draw(FLAGS))
    container = pod.containers.add(name=draw(TEXTS), image=draw(TEXTS))
    if draw(FLAGS):
        container.entrypoint.value = draw(TEXTS)
        container.entrypoint.arguments.extend(draw(st.lists(TEXTS, max_size=2)))
    for name in draw(st.lists(NAMES, max_size=2)):
        container.environment.add(name=name, value=draw(TEXTS))
    for name in draw(st.lists(NAMES, max_size=2, unique=True)):
        volume = pod.volumes.add(name=name, type=draw(st.sampled_from([1, 2])))
        volume.host_path.path = f"/host/{name}"
        container.volume_mounts.add(name=name, mount_path=f"/in/{name}", read_only=draw(FLAGS))
    if draw(FLAGS):
        container.readiness_check.enabled = True
        pod.host_ports.add(name="p", value=80)
    return pod
