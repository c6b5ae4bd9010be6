"""Conversion between v0 messages and the model: messages to configurations, and records to messages.

States are converted by name, except in storage, which has the numbers of the messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from peloton.api.cluster_kinds import kind_constraints
from peloton.api.convert_time import rfc3339, rfc3339_seconds
from peloton.api.pod_parts import Part, limits, pod_resources, ports
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.errors import InvalidArgument
from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JobRecord, JobState, JobType, SlaSpec
from peloton.model.layout import Layout
from peloton.model.negation import negate
from peloton.model.pod import (
    AllOf,
    AnyOf,
    Constraint,
    ContainerStatus,
    HealthState,
    HostLabel,
    HostPreference,
    Label,
    PodEvent,
    PodLabel,
    PodRecord,
    PodShape,
    PodState,
    Strategy,
    TerminationReason,
    port_label,
)
from peloton.model.text import quote
from peloton.model.volume import VolumeSpec

_TERMINATION_PREFIX = "TERMINATION_STATUS_REASON_"

POD_STATE_NUMBERS: dict[PodState, int] = {s: task_pb2.TaskState.Value(s.value) for s in PodState}
POD_STATES: dict[int, PodState] = {n: s for s, n in POD_STATE_NUMBERS.items()}
JOB_STATE_NUMBERS: dict[JobState, int] = {s: job_pb2.JobState.Value(s.value) for s in JobState}
JOB_STATES: dict[int, JobState] = {n: s for s, n in JOB_STATE_NUMBERS.items()}
JOB_TYPE_NUMBERS: dict[JobType, job_pb2.JobType.ValueType] = {t: job_pb2.JobType.Value(t.value) for t in JobType}
JOB_TYPES: dict[int, JobType] = {n: t for t, n in JOB_TYPE_NUMBERS.items()}
HEALTH_NUMBERS: dict[HealthState, int] = {h: task_pb2.HealthState.Value(h.value) for h in HealthState}
HEALTH_STATES: dict[int, HealthState] = {n: h for h, n in HEALTH_NUMBERS.items()}
TERMINATION_NUMBERS: dict[TerminationReason, int] = {
    r: task_pb2.TerminationStatus.Reason.Value(_TERMINATION_PREFIX + r.value) for r in TerminationReason
}
TERMINATION_REASONS: dict[int, TerminationReason] = {n: r for r, n in TERMINATION_NUMBERS.items()}

_CONDITIONS = {
    task_pb2.LabelConstraint.CONDITION_LESS_THAN: "<",
    task_pb2.LabelConstraint.CONDITION_EQUAL: "=",
    task_pb2.LabelConstraint.CONDITION_GREATER_THAN: ">",
}


_STRATEGIES = {
    job_pb2.PlacementStrategy.Value(f"PLACEMENT_STRATEGY_{strategy.value}"): strategy for strategy in Strategy
}


# -- from messages: configurations ---------------------------------------------------------------------------------


def job_type(config: job_pb2.JobConfig) -> JobType:
    return JOB_TYPES[config.type]


def sla_spec(config: job_pb2.JobConfig) -> SlaSpec:
    sla = config.sla
    return SlaSpec(
        priority=sla.priority,
        preemptible=sla.preemptible,
        revocable=sla.revocable,
        maximum_running_instances=sla.maximumRunningInstances,
        minimum_running_instances=sla.minimumRunningInstances,
        max_running_time_s=sla.maxRunningTime,
        maximum_unavailable_instances=sla.maximumUnavailableInstances,
        strict_updates=sla.strictUpdates,
    )


def new_job_record(job_id: JobId, config: job_pb2.JobConfig, now_ns: int, creator: str = "") -> JobRecord:
    """Return the record of a new job: INITIALIZED, with the default goal of its type."""
    kind = job_type(config)
    instance_count = 0 if kind is JobType.DAEMON else config.instanceCount  # number of matching hosts, known later
    return JobRecord(
        job_id=job_id,
        name=config.name,
        type=kind,
        owning_team=config.owningTeam,
        respool_id=RespoolId(config.respoolID.value),
        instance_count=instance_count,
        sla=sla_spec(config),
        state=JobState.INITIALIZED,
        goal=JobState.SUCCEEDED if kind is JobType.BATCH else JobState.RUNNING,
        has_controller=_has_controller(config),
        pod_counts={PodState.INITIALIZED: instance_count},
        labels=tuple((label.key, label.value) for label in config.labels),
        created_ns=now_ns,
        updated_ns=now_ns,
        creator=creator,
    )


def count_wanted(job: JobRecord, config: job_pb2.JobConfig | None) -> int:
    """Return the instance count of the configuration, if there is one; a daemon keeps its own, which its hosts
    determine."""
    return job.instance_count if config is None or job.type is JobType.DAEMON else config.instanceCount


def _has_controller(config: job_pb2.JobConfig) -> bool:
    """Return whether instance 0 is a controller. Only batch jobs have controllers, and an override of instance 0 takes
    precedence."""
    if config.type != job_pb2.BATCH or config.instanceCount == 0:
        return False
    first = config.instanceConfig.get(0, config.defaultConfig)
    return first.controller


def pod_shape(
    task: task_pb2.TaskConfig,
    sla: job_pb2.SlaConfig,
    strategy: job_pb2.PlacementStrategy.ValueType = job_pb2.PLACEMENT_STRATEGY_INVALID,
    layout: Layout | None = None,
) -> PodShape:
    """Return the part of an instance's effective configuration that admission and placement use."""
    policy = task.preemptionPolicy.type
    preemptible = sla.preemptible
    if policy != task_pb2.PreemptionPolicy.TYPE_INVALID:
        preemptible = policy == task_pb2.PreemptionPolicy.TYPE_PREEMPTIBLE
    volume = volume_spec(task)
    return PodShape(
        resources=pod_resources(task),
        port_count=sum(port.value == 0 for port in ports(task)),
        revocable=task.revocable or sla.revocable,
        preemptible=preemptible and volume is None,
        controller=task.controller,
        strategy=_STRATEGIES.get(strategy, Strategy.PACK_HOST),
        constraint=_build_constraint(task),
        volume_mib=volume.size_mib if volume else 0,
        layout=layout,
        preferences=host_preferences(task),
    )


def volume_spec(task: task_pb2.TaskConfig) -> VolumeSpec | None:
    return VolumeSpec(task.volume.containerPath, task.volume.sizeMB) if task.HasField("volume") else None


def _build_constraint(task: task_pb2.TaskConfig) -> Constraint | None:
    """Return the constraint of the configuration, preceded by constraints on its cluster and its static ports."""
    own = constraint(task.constraint) if task.HasField("constraint") else None
    free_ports = [PodLabel(*label) for label in static_port_labels(task)]
    parts = tuple(part for part in (*kind_constraints(task), *free_ports, own) if part is not None)
    return AllOf(parts) if len(parts) > 1 else parts[0] if parts else None


def host_preferences(task: task_pb2.TaskConfig) -> tuple[HostPreference, ...]:
    wanted = [(wire.weight, constraint(wire.constraint)) for wire in task.hostPreferences]
    return tuple(HostPreference(weight, rule) for weight, rule in wanted if rule is not None)


def static_port_labels(task: task_pb2.TaskConfig) -> list[Label]:
    return [port_label(number) for number in sorted({port.value for port in ports(task)} - {0})]


def collect_labels(task: task_pb2.TaskConfig) -> tuple[Label, ...]:
    """Return the labels by which constraints count the pod on its host."""
    return (*((label.key, label.value) for label in task.labels), *static_port_labels(task))


KILL_GRACE_DEFAULT_S = 30


def kill_grace_s(config: task_pb2.TaskConfig) -> int:
    """Return the seconds between the signal to stop a pod and the end of its process by force."""
    return config.killGracePeriodSeconds or KILL_GRACE_DEFAULT_S


def image_of(config: Part) -> str:
    """Return the image that a host fetches before the container starts; empty without one."""
    mesos = config.container.mesos.image
    return config.container.docker.image or mesos.docker.name or mesos.appc.name


def constraint(wire: task_pb2.Constraint) -> Constraint | None:
    """Convert a constraint. One without a type restricts nothing: return None."""
    match wire.type:
        case task_pb2.Constraint.LABEL_CONSTRAINT:
            return _label_constraint(wire.labelConstraint)
        case task_pb2.Constraint.AND_CONSTRAINT:
            return AllOf(_parts(wire.andConstraint.constraints))
        case task_pb2.Constraint.OR_CONSTRAINT:
            return AnyOf(_parts(wire.orConstraint.constraints))
        case task_pb2.Constraint.NOT_CONSTRAINT:
            negated = constraint(wire.notConstraint.constraint)
            if negated is None:
                raise InvalidArgument("a NOT constraint has no constraint: set notConstraint.constraint")
            return negate(negated)
        case _:
            return None


def _parts(wires: Iterable[task_pb2.Constraint]) -> tuple[Constraint, ...]:
    parts = (constraint(wire) for wire in wires)
    return tuple(part for part in parts if part is not None)


def _label_constraint(wire: task_pb2.LabelConstraint) -> Constraint:
    condition = _CONDITIONS.get(wire.condition)
    label = wire.label
    if condition is None:
        raise InvalidArgument(f"label constraint on {quote(label.key)} has no condition")
    match wire.kind:
        case task_pb2.LabelConstraint.HOST:
            return HostLabel(label.key, label.value, condition, wire.requirement)
        case task_pb2.LabelConstraint.TASK:
            return PodLabel(label.key, label.value, condition, wire.requirement)
        case _:
            raise InvalidArgument(f"label constraint on {quote(label.key)} has no kind")


# -- to messages: records ------------------------------------------------------------------------------------------

ADMITTED_REASON = "admitted, waits for a host"


def pod_reason(pod: PodRecord | PodEvent) -> str:
    """Return the pod's reason; without one, an admitted pod, shown as PENDING, has a default."""
    return pod.reason or (ADMITTED_REASON if pod.state is PodState.READY else "")


def public_counts(counts: Mapping[PodState, int]) -> Counter[PodState]:
    """Return the counts by the states that clients see."""
    shown: Counter[PodState] = Counter()
    for state, count in counts.items():
        shown[state.public] += count
    return shown


def matching_pod_states(number: int) -> list[PodState]:
    """Return the stored states that match a filter by state: PENDING also matches admitted pods, which are READY.
    Raises InvalidArgument."""
    public_state = POD_STATES.get(number)
    if public_state is None:
        raise InvalidArgument(f"task state {number} is not known")
    return [state for state in PodState if public_state in (state, state.public)]


def pod_runtime(pod: PodRecord, limits: task_pb2.ResourceConfig | None = None) -> task_pb2.RuntimeInfo:
    """Convert a pod's runtime. The ``limits`` of the instance turn its running time into resource usage; without them
    usage stays unset."""
    runtime = task_pb2.RuntimeInfo(
        state=POD_STATE_NUMBERS[pod.state.public],  # type: ignore[arg-type]
        goalState=POD_STATE_NUMBERS[pod.goal],  # type: ignore[arg-type]
        startTime=rfc3339(pod.started_ns),
        completionTime=rfc3339(pod.completed_ns),
        host=pod.host,
        ports=pod.ports,
        message=pod.message,
        reason=pod_reason(pod),
        failureCount=pod.failure_count,
        configVersion=pod.config_version,
        desiredConfigVersion=pod.desired_config_version,
        healthy=HEALTH_NUMBERS[pod.health],  # type: ignore[arg-type]
        desiredHost=pod.desired_host,
        cluster=pod.cluster if pod.host else "",
        resourceUsage=resource_usage(limits, pod.run_seconds) if limits is not None else None,
    )
    runtime.mesosTaskId.value = str(pod.pod_id)
    runtime.desiredMesosTaskId.value = _run(pod, pod.desired_run_id)
    if pod.prev_run_id:
        runtime.prevMesosTaskId.value = _run(pod, pod.prev_run_id)
    if pod.agent_id:
        runtime.agentID.value = pod.agent_id
    runtime.revision.version = pod.revision
    runtime.revision.updatedAt = pod.updated_ns
    if pod.termination is not None:
        runtime.terminationStatus.reason = TERMINATION_NUMBERS[pod.termination.reason]  # type: ignore[assignment]
        runtime.terminationStatus.exit_code = pod.termination.exit_code
        runtime.terminationStatus.signal = pod.termination.signal
    return runtime


def add_containers(runtime: task_pb2.RuntimeInfo, containers: Iterable[ContainerStatus]) -> None:
    """Add the containers of a pod that has several."""
    for container in containers:
        runtime.containers.add(
            name=container.name,
            state=container.state.value,
            init=container.is_init,
            reason=container.reason,
            message=container.message,
            exitCode=container.exit_code,
            startTime=rfc3339(container.started_ns),
            completionTime=rfc3339(container.completed_ns),
        )


def _run(pod: PodRecord | PodEvent, run_id: int) -> str:
    return f"{pod.job_id}-{pod.instance_id}-{run_id}"


def resource_usage(limits: task_pb2.ResourceConfig, seconds: float) -> dict[str, float]:
    return {
        "cpu": limits.cpuLimit * seconds,
        "gpu": limits.gpuLimit * seconds,
        "memory": limits.memLimitMb * seconds,
    }


def task_info(pod: PodRecord, config: task_pb2.TaskConfig | None, *, with_usage: bool = True) -> task_pb2.TaskInfo:
    """Convert a pod. ``with_usage`` adds resource usage, which only batch jobs report."""
    task_limits = limits(config) if config is not None and with_usage else None
    info = task_pb2.TaskInfo(instanceId=pod.instance_id, config=config, runtime=pod_runtime(pod, task_limits))
    info.jobId.value = pod.job_id
    return info


def pod_event(event: PodEvent) -> task_pb2.PodEvent:
    wire = task_pb2.PodEvent(
        actualState=event.state.public.value,
        goalState=event.goal.value,
        timestamp=rfc3339_seconds(event.time_ns),
        configVersion=event.config_version,
        desiredConfigVersion=event.desired_config_version,
        agentID=event.agent_id,
        hostname=event.host,
        message=event.message,
        reason=pod_reason(event),
        healthy=event.health.value,
    )
    wire.taskId.value = _run(event, event.run_id)
    wire.prevTaskId.value = _run(event, event.prev_run_id)
    wire.desriedTaskId.value = _run(event, event.desired_run_id)
    return wire


def job_runtime(
    job: JobRecord,
    limits: task_pb2.ResourceConfig | None = None,
    by_version: Mapping[int, Mapping[PodState, int]] | None = None,
) -> job_pb2.RuntimeInfo:
    """Convert a job's runtime; the counts have a key for every pod state. ``limits``: limits of the default
    configuration. ``by_version``: pods of a service by configuration and state."""
    all_counts = public_counts(job.pod_counts)
    runtime = job_pb2.RuntimeInfo(
        state=JOB_STATE_NUMBERS[job.state],  # type: ignore[arg-type]
        goalState=JOB_STATE_NUMBERS[job.goal],  # type: ignore[arg-type]
        creationTime=rfc3339(job.created_ns),
        startTime=rfc3339(job.started_ns),
        completionTime=rfc3339(job.completed_ns),
        taskStats={state.value: all_counts[state] for state in PodState},
        configVersion=job.config_version,
        configurationVersion=job.config_version,
        workflowVersion=job.workflow_version,
        stateVersion=job.state_version,
        desiredStateVersion=job.desired_state_version,
        resourceUsage=resource_usage(limits, job.run_seconds) if limits is not None else None,
    )
    if job.update_id:
        runtime.updateID.value = job.update_id
    runtime.revision.version = job.revision
    runtime.revision.createdAt = job.created_ns
    runtime.revision.updatedAt = job.updated_ns
    for version, counts in (by_version or {}).items():
        runtime.taskConfigVersionStats[version] = sum(counts.values())
        for state, count in public_counts(counts).items():
            runtime.taskStatsByConfigurationVersion[version].stateStats[state.value] = count
    return runtime


def job_info(job: JobRecord, config: job_pb2.JobConfig) -> job_pb2.JobInfo:
    task_limits = limits(config.defaultConfig) if job.type.runs_to_end else None
    info = job_pb2.JobInfo(config=config, runtime=job_runtime(job, task_limits), creator=job.creator)
    info.id.value = job.job_id
    return info


def job_summary(job: JobRecord) -> job_pb2.JobSummary:
    summary = job_pb2.JobSummary(
        name=job.name,
        type=JOB_TYPE_NUMBERS[job.type],
        owner=job.owning_team,
        owningTeam=job.owning_team,
        instanceCount=job.instance_count,
        runtime=job_runtime(job),
        sla=sla_config(job.sla),
        creator=job.creator,
    )
    summary.id.value = job.job_id
    summary.respoolID.value = job.respool_id
    for key, value in job.labels:
        summary.labels.add(key=key, value=value)
    return summary


def sla_config(sla: SlaSpec) -> job_pb2.SlaConfig:
    return job_pb2.SlaConfig(
        priority=sla.priority,
        preemptible=sla.preemptible,
        revocable=sla.revocable,
        maximumRunningInstances=sla.maximum_running_instances,
        minimumRunningInstances=sla.minimum_running_instances,
        maxRunningTime=sla.max_running_time_s,
        maximumUnavailableInstances=sla.maximum_unavailable_instances,
        strictUpdates=sla.strict_updates,
    )
