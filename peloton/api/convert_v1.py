"""Conversion of the model's records to v1alpha messages. Pod states are converted by name: their numbers differ from
v0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from peloton.api.convert import JOB_STATE_NUMBERS, TERMINATION_NUMBERS, pod_reason, public_counts
from peloton.api.convert_time import rfc3339, rfc3339_seconds
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.model.ids import EntityVersion, PodId, PodName
from peloton.model.job import JobRecord, JobState, SlaSpec
from peloton.model.pod import ContainerStatus, HealthState, PodEvent, PodRecord, PodState
from peloton.model.update import Disruption, Instances, UpdateEvent, UpdateRecord, UpdateSpec, UpdateState, UpdateType
from peloton.model.update_text import update_wait_text

POD_STATE_NAMES: dict[PodState, str] = {
    state: "POD_STATE_INVALID" if state is PodState.UNKNOWN else f"POD_STATE_{state}" for state in PodState
}
POD_STATE_NUMBERS: dict[PodState, int] = {s: pod_pb2.PodState.Value(name) for s, name in POD_STATE_NAMES.items()}
POD_STATES: dict[int, PodState] = {number: state for state, number in POD_STATE_NUMBERS.items()}
HEALTH_NAMES: dict[HealthState, str] = {
    health: "HEALTH_STATE_UNKNOWN" if health is HealthState.HEALTH_UNKNOWN else f"HEALTH_STATE_{health}"
    for health in HealthState
}
JOB_STATES: dict[int, JobState] = {number: state for state, number in JOB_STATE_NUMBERS.items()}
"""Job states by their numbers, which are the same as in v0."""
WORKFLOW_TYPE_NUMBERS: dict[UpdateType, int] = {
    UpdateType.UPDATE: stateless_pb2.WORKFLOW_TYPE_UPDATE,
    UpdateType.RESTART: stateless_pb2.WORKFLOW_TYPE_RESTART,
    UpdateType.START: stateless_pb2.WORKFLOW_TYPE_INVALID,  # v0 only: rolling starts and stops
    UpdateType.STOP: stateless_pb2.WORKFLOW_TYPE_INVALID,
}
WORKFLOW_STATE_NUMBERS: dict[UpdateState, stateless_pb2.WorkflowState.ValueType] = {
    state: stateless_pb2.WorkflowState.Value(f"WORKFLOW_STATE_{state}") for state in UpdateState
}
_CONTAINER_STATES: dict[PodState, int] = {
    PodState.LAUNCHED: pod_pb2.CONTAINER_STATE_LAUNCHED,
    PodState.STARTING: pod_pb2.CONTAINER_STATE_STARTING,
    PodState.RUNNING: pod_pb2.CONTAINER_STATE_RUNNING,
    PodState.PREEMPTING: pod_pb2.CONTAINER_STATE_KILLING,
    PodState.KILLING: pod_pb2.CONTAINER_STATE_KILLING,
    PodState.SUCCEEDED: pod_pb2.CONTAINER_STATE_SUCCEEDED,
    PodState.FAILED: pod_pb2.CONTAINER_STATE_FAILED,
    PodState.LOST: pod_pb2.CONTAINER_STATE_FAILED,
    PodState.KILLED: pod_pb2.CONTAINER_STATE_KILLED,
    PodState.DELETED: pod_pb2.CONTAINER_STATE_KILLED,
}


def entity_version(version: EntityVersion) -> peloton_pb2.EntityVersion:
    return peloton_pb2.EntityVersion(value=str(version))


def config_only(config_version: int) -> EntityVersion:
    """Return the version of pods, and of counts by configuration."""
    return EntityVersion(config_version, 0, 0)


def ranges(instances: Instances) -> list[pod_pb2.InstanceIDRange]:
    """Return the ranges of instances; ``to`` is inclusive, as in all answers of this API."""
    pairs: list[list[int]] = []
    for instance in sorted(instances):
        if pairs and pairs[-1][1] + 1 == instance:
            pairs[-1][1] = instance
        else:
            pairs.append([instance, instance])
    return [pod_pb2.InstanceIDRange(**{"from": first, "to": last}) for first, last in pairs]


# -- pods ----------------------------------------------------------------------------------------------------------


def pod_status(pod: PodRecord, containers: Sequence[ContainerStatus] = ()) -> pod_pb2.PodStatus:
    """Convert a pod's status, with one unnamed container unless several are known."""
    status = pod_pb2.PodStatus(
        state=POD_STATE_NUMBERS[pod.state.public],  # type: ignore[arg-type]
        desired_state=POD_STATE_NUMBERS[pod.goal],  # type: ignore[arg-type]
        start_time=rfc3339(pod.started_ns),
        completion_time=rfc3339(pod.completed_ns),
        host=pod.host,
        message=pod.message,
        reason=pod_reason(pod),
        failure_count=pod.failure_count,
        version=entity_version(config_only(pod.config_version)),
        desired_version=entity_version(config_only(pod.desired_config_version)),
        desiredHost=pod.desired_host,
        host_id=pod.host,
        cluster=pod.cluster if pod.host else "",
    )
    status.pod_id.value = str(pod.pod_id)
    status.desired_pod_id.value = str(PodId(pod.job_id, pod.instance_id, pod.desired_run_id))
    if pod.prev_run_id:
        status.prev_pod_id.value = str(PodId(pod.job_id, pod.instance_id, pod.prev_run_id))
    if pod.agent_id:
        status.agent_id.value = pod.agent_id
    status.revision.version = pod.revision
    status.revision.updated_at = pod.updated_ns
    for container in containers:
        _add_container(status, container, pod)
    if not containers:
        _add_only_container(status, pod)
    return status


def _add_container(status: pod_pb2.PodStatus, container: ContainerStatus, pod: PodRecord) -> None:
    """Add a container. Ports and health belong to the pod and are shown with the first container that is no init
    container."""
    statuses = status.init_containers_status if container.is_init else status.containers_status
    is_first = not container.is_init and not statuses
    wire = statuses.add(
        name=container.name,
        state=pod_pb2.ContainerState.Value(f"CONTAINER_STATE_{container.state}"),
        ports=pod.ports if is_first else {},
        message=container.message,
        reason=container.reason,
        start_time=rfc3339(container.started_ns),
        completion_time=rfc3339(container.completed_ns),
    )
    if is_first:
        wire.failure_count = pod.failure_count
        wire.healthy.state = pod_pb2.HealthState.Value(HEALTH_NAMES[pod.health])
    if container.exit_code:
        wire.terminationStatus.reason = pod_pb2.TerminationStatus.TERMINATION_STATUS_REASON_FAILED
        wire.terminationStatus.exit_code = container.exit_code


def _add_only_container(status: pod_pb2.PodStatus, pod: PodRecord) -> None:
    container = status.containers_status.add(
        state=_CONTAINER_STATES.get(pod.state, pod_pb2.CONTAINER_STATE_PENDING),
        ports=pod.ports,
        message=pod.message,
        reason=pod_reason(pod),
        failure_count=pod.failure_count,
        start_time=rfc3339(pod.started_ns),
        completion_time=rfc3339(pod.completed_ns),
    )
    container.healthy.state = pod_pb2.HealthState.Value(HEALTH_NAMES[pod.health])
    if pod.termination is not None:
        ended = container.terminationStatus
        ended.reason = TERMINATION_NUMBERS[pod.termination.reason]  # type: ignore[assignment]  # as in v0
        ended.exit_code, ended.signal = pod.termination.exit_code, pod.termination.signal


def pod_summary(pod: PodRecord) -> pod_pb2.PodSummary:
    name = str(PodName(pod.job_id, pod.instance_id))
    return pod_pb2.PodSummary(pod_name=peloton_pb2.PodName(value=name), status=pod_status(pod))


def past_status(event: PodEvent) -> pod_pb2.PodStatus:
    """Return the status of an earlier run from its last event, without times and containers."""
    status = pod_pb2.PodStatus(
        state=POD_STATE_NUMBERS[event.state.public],  # type: ignore[arg-type]
        desired_state=POD_STATE_NUMBERS[event.goal],  # type: ignore[arg-type]
        host=event.host,
        message=event.message,
        reason=pod_reason(event),
        version=entity_version(config_only(event.config_version)),
        desired_version=entity_version(config_only(event.desired_config_version)),
    )
    status.pod_id.value = _run(event, event.run_id)
    status.prev_pod_id.value = _run(event, event.prev_run_id)
    status.desired_pod_id.value = _run(event, event.desired_run_id)
    if event.agent_id:
        status.agent_id.value = event.agent_id
    return status


def pod_event(event: PodEvent) -> pod_pb2.PodEvent:
    wire = pod_pb2.PodEvent(
        actual_state=POD_STATE_NAMES[event.state.public],
        desired_state=POD_STATE_NAMES[event.goal],
        timestamp=rfc3339_seconds(event.time_ns),
        version=entity_version(config_only(event.config_version)),
        desired_version=entity_version(config_only(event.desired_config_version)),
        agent_id=event.agent_id,
        hostname=event.host,
        message=event.message,
        reason=pod_reason(event),
        healthy=HEALTH_NAMES[event.health],
    )
    wire.pod_id.value = _run(event, event.run_id)
    wire.prev_pod_id.value = _run(event, event.prev_run_id)
    wire.desired_pod_id.value = _run(event, event.desired_run_id)
    return wire


def _run(event: PodEvent, run_id: int) -> str:
    return str(PodId(event.job_id, event.instance_id, run_id))


# -- jobs ----------------------------------------------------------------------------------------------------------


def sla_spec(sla: SlaSpec) -> stateless_pb2.SlaSpec:
    return stateless_pb2.SlaSpec(
        priority=sla.priority,
        preemptible=sla.preemptible,
        revocable=sla.revocable,
        maximum_unavailable_instances=sla.maximum_unavailable_instances,
        strict_updates=sla.strict_updates,
    )


def job_status(
    job: JobRecord,
    update: UpdateRecord | None,
    by_version: Mapping[int, Mapping[PodState, int]] | None = None,
) -> stateless_pb2.JobStatus:
    """Convert a job's status. ``by_version``: pods by configuration and state; omitted where too expensive."""
    all_counts = public_counts(job.pod_counts)
    status = stateless_pb2.JobStatus(
        state=JOB_STATE_NUMBERS[job.state],  # type: ignore[arg-type]
        desired_state=JOB_STATE_NUMBERS[job.goal],  # type: ignore[arg-type]
        creation_time=rfc3339(job.created_ns),
        pod_stats={name: all_counts[state] for state, name in POD_STATE_NAMES.items()},
        version=entity_version(job.entity_version),
    )
    status.revision.version = job.revision
    status.revision.created_at = job.created_ns
    status.revision.updated_at = job.updated_ns
    if update is not None:
        status.workflow_status.CopyFrom(workflow_status(job, update))
    for version, counts in (by_version or {}).items():
        key = str(config_only(version))
        status.pod_configuration_version_stats[key] = sum(counts.values())
        stats = status.pod_stats_by_configuration_version[key].state_stats
        for state, count in public_counts(counts).items():
            stats[POD_STATE_NAMES[state]] = count
    return status


def job_summary(job: JobRecord, update: UpdateRecord | None) -> stateless_pb2.JobSummary:
    summary = stateless_pb2.JobSummary(
        name=job.name,
        owner=job.owning_team,
        owning_team=job.owning_team,
        instance_count=job.instance_count,
        status=job_status(job, update),
        sla=sla_spec(job.sla),
        creator=job.creator,
    )
    summary.job_id.value = job.job_id
    summary.respool_id.value = job.respool_id
    for key, value in job.labels:
        summary.labels.add(key=key, value=value)
    return summary


# -- updates, which v1alpha calls workflows ------------------------------------------------------------------------


def workflow_status(job: JobRecord, update: UpdateRecord) -> stateless_pb2.WorkflowStatus:
    def version(config_version: int) -> peloton_pb2.EntityVersion:
        return entity_version(EntityVersion(config_version, job.desired_state_version, job.workflow_version))

    return stateless_pb2.WorkflowStatus(
        type=WORKFLOW_TYPE_NUMBERS[update.type],  # type: ignore[arg-type]
        state=WORKFLOW_STATE_NUMBERS[update.state],
        prev_state=WORKFLOW_STATE_NUMBERS[update.prev_state],
        num_instances_completed=len(update.done),
        num_instances_remaining=update.remaining_count,
        num_instances_failed=len(update.failed),
        instances_current=sorted(update.current),
        version=version(update.config_version),
        prev_version=version(update.prev_config_version),
        creation_time=rfc3339(update.created_ns),
        update_time=rfc3339(update.updated_ns),
        completion_time=rfc3339(update.completed_ns),
        last_pulse_time=rfc3339(update.pulsed_ns),
        awaiting_pulse=update.awaits_pulse,
        waiting_for=update_wait_text(update),
        num_runs_failed=update.failed_run_count,
        stalled_time=rfc3339(update.stalled_ns),
        stall_cause=update.stall_cause,
    )


def workflow_info(job: JobRecord, update: UpdateRecord, events: Iterable[UpdateEvent]) -> stateless_pb2.WorkflowInfo:
    """Convert an update with its events, newest first; events of single instances are excluded."""
    info = stateless_pb2.WorkflowInfo(
        status=workflow_status(job, update),
        opaque_data=peloton_pb2.OpaqueData(data=update.opaque_data),
        update_key=update.key.text,
        events=workflow_events(events),
        instances_added=ranges(update.added),
        instances_removed=ranges(update.removed),
        instances_updated=ranges(update.updated),
    )
    if update.type is UpdateType.UPDATE:
        info.update_spec.CopyFrom(update_spec(update.spec))
    elif update.type is UpdateType.RESTART:
        info.restart_spec.batch_size = update.spec.batch_size
        info.restart_spec.in_place = update.spec.in_place
        info.restart_spec.ranges.extend(ranges(update.updated))
    return info


def update_spec(spec: UpdateSpec) -> stateless_pb2.UpdateSpec:
    """Convert a specification without ``start_pods``, for which v1alpha has no field in answers."""
    return stateless_pb2.UpdateSpec(
        batch_size=spec.batch_size,
        rollback_on_failure=spec.rollback_on_failure,
        max_instance_retries=spec.max_instance_attempts,
        max_tolerable_instance_failures=spec.max_failure_instances,
        start_paused=spec.start_paused,
        in_place=spec.in_place,
        pulse_seconds=spec.pulse_s,
        progress_deadline_seconds=spec.progress_deadline_s,
    )


def workflow_events(events: Iterable[UpdateEvent]) -> list[stateless_pb2.WorkflowEvent]:
    return [
        stateless_pb2.WorkflowEvent(
            type=WORKFLOW_TYPE_NUMBERS[event.type],  # type: ignore[arg-type]
            state=WORKFLOW_STATE_NUMBERS[event.state],
            timestamp=rfc3339(event.time_ns),
            person=event.person,
        )
        for event in events
    ]


def disruption(event: Disruption) -> stateless_pb2.Disruption:
    return stateless_pb2.Disruption(
        timestamp=rfc3339(event.time_ns),
        instance_id=event.instance_id,
        reason=TERMINATION_NUMBERS[event.reason],  # type: ignore[arg-type]
        granted=event.granted,
        message=event.message,
    )
