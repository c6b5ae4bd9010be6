"""Conversion of configurations to the model, and of records to the wire."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.api import convert, pod_parts
from peloton.api.convert_time import rfc3339, rfc3339_seconds
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.errors import InvalidArgument
from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JobRecord, JobState, JobType, SlaSpec
from peloton.model.pod import (
    AllOf,
    AnyOf,
    HealthState,
    HostLabel,
    PodEvent,
    PodLabel,
    PodRecord,
    PodShape,
    PodState,
    Strategy,
    Termination,
    TerminationReason,
)
from peloton.model.resources import Resources

JOB = JobId("11111111-2222-3333-4444-555555555555")
SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
Policy = task_pb2.PreemptionPolicy


def test_the_image_of_a_pod() -> None:
    """The image is read from either containerizer, and is empty if there is none."""
    docker, mesos, appc, none = (task_pb2.TaskConfig() for _ in range(4))
    docker.container.docker.image = "web:1"
    mesos.container.mesos.image.docker.name = "web:2"
    appc.container.mesos.image.appc.name = "web:3"

    assert ["web:1", "web:2", "web:3", ""] == [convert.image_of(each) for each in (docker, mesos, appc, none)]
    assert not none.HasField("container")


def test_states_keep_the_numbers_of_the_wire() -> None:
    """Every state of the model has a number of the wire, and every number has its state."""
    assert {n: s.value for n, s in convert.POD_STATES.items()} == {n: k for k, n in task_pb2.TaskState.items()}
    assert {n: s.value for n, s in convert.JOB_STATES.items()} == {n: k for k, n in job_pb2.JobState.items()}
    assert {n: t.value for n, t in convert.JOB_TYPES.items()} == {n: k for k, n in job_pb2.JobType.items()}
    assert {n: h.value for n, h in convert.HEALTH_STATES.items()} == {n: k for k, n in task_pb2.HealthState.items()}
    assert set(task_pb2.TerminationStatus.Reason.values()) == set(convert.TERMINATION_REASONS)


def test_amounts_are_rounded_up() -> None:
    """Amounts are rounded up, so that a pod has at least its request."""
    limits = task_pb2.ResourceConfig(cpuLimit=0.1234, memLimitMb=1.2, diskLimitMb=0.1 * 3, gpuLimit=0.5)

    assert Resources(124, 2, 1, 500) == pod_parts.resources(limits)


def test_the_shape_of_a_plain_task() -> None:
    """The default shape of a pod is packed, and neither revocable nor preemptible."""
    assert PodShape(Resources()) == convert.pod_shape(task_pb2.TaskConfig(), job_pb2.SlaConfig())


def test_ports_without_a_number_are_counted() -> None:
    """A pod requests only dynamic ports from its host."""
    task = task_pb2.TaskConfig()
    for value in (0, 80, 0):
        task.ports.add(name="p", value=value)

    assert 2 == convert.pod_shape(task, job_pb2.SlaConfig()).port_count


@pytest.mark.parametrize(
    ("policy", "job_preemptible", "expected"),
    [
        (Policy.TYPE_INVALID, False, False),
        (Policy.TYPE_INVALID, True, True),
        (Policy.TYPE_PREEMPTIBLE, False, True),
        (Policy.TYPE_NON_PREEMPTIBLE, True, False),
    ],
)
def test_the_policy_of_the_task_overrides_the_job(
    policy: task_pb2.PreemptionPolicy.Type.ValueType, job_preemptible: bool, expected: bool
) -> None:
    """The task's own preemptible setting precedes the job's."""
    task = task_pb2.TaskConfig(preemptionPolicy=Policy(type=policy))

    assert expected == convert.pod_shape(task, job_pb2.SlaConfig(preemptible=job_preemptible)).preemptible


@pytest.mark.parametrize(("task", "job"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_pod_is_revocable_when_task_or_job_is(task: bool, job: bool) -> None:
    """A pod is revocable if the task or the job is."""
    shape = convert.pod_shape(task_pb2.TaskConfig(revocable=task), job_pb2.SlaConfig(revocable=job))

    assert (task or job) == shape.revocable


@pytest.mark.parametrize(
    ("wire", "expected"),
    [
        (job_pb2.PLACEMENT_STRATEGY_INVALID, Strategy.PACK_HOST),
        (job_pb2.PLACEMENT_STRATEGY_PACK_HOST, Strategy.PACK_HOST),
        (job_pb2.PLACEMENT_STRATEGY_SPREAD_JOB, Strategy.SPREAD_JOB),
    ],
)
def test_pods_are_packed_unless_they_are_to_be_spread(
    wire: job_pb2.PlacementStrategy.ValueType, expected: Strategy
) -> None:
    """The default strategy is packing."""
    assert expected == convert.pod_shape(task_pb2.TaskConfig(), job_pb2.SlaConfig(), wire).strategy


def label(
    key: str,
    kind: task_pb2.LabelConstraint.Kind.ValueType = task_pb2.LabelConstraint.HOST,
    condition: task_pb2.LabelConstraint.Condition.ValueType = task_pb2.LabelConstraint.CONDITION_EQUAL,
) -> task_pb2.Constraint:
    wire = task_pb2.Constraint(type=task_pb2.Constraint.LABEL_CONSTRAINT)
    wire.labelConstraint.kind = kind
    wire.labelConstraint.condition = condition
    wire.labelConstraint.label.key = key
    wire.labelConstraint.label.value = "v"
    wire.labelConstraint.requirement = 1
    return wire


def test_constraints_become_a_tree() -> None:
    """Leaves of hosts and pods are joined by AND and OR; a part without a type matches everything."""
    pod_label = label("job", task_pb2.LabelConstraint.TASK, task_pb2.LabelConstraint.CONDITION_LESS_THAN)
    either = task_pb2.Constraint(type=task_pb2.Constraint.OR_CONSTRAINT)
    either.orConstraint.constraints.extend([label("rack"), label("zone"), task_pb2.Constraint()])
    both = task_pb2.Constraint(type=task_pb2.Constraint.AND_CONSTRAINT)
    both.andConstraint.constraints.extend([either, pod_label])
    task = task_pb2.TaskConfig(constraint=both)

    racks = AnyOf((HostLabel("rack", "v", "=", 1), HostLabel("zone", "v", "=", 1)))
    assert AllOf((racks, PodLabel("job", "v", "<", 1))) == convert.pod_shape(task, job_pb2.SlaConfig()).constraint
    assert convert.constraint(task_pb2.Constraint()) is None


def test_incomplete_label_constraints_are_refused() -> None:
    """The error of a leaf without kind or condition names its key."""
    with pytest.raises(InvalidArgument, match="label constraint on 'rack' has no kind"):
        convert.constraint(label("rack", task_pb2.LabelConstraint.UNKNOWN))
    with pytest.raises(InvalidArgument, match="label constraint on 'rack' has no condition"):
        convert.constraint(label("rack", condition=task_pb2.LabelConstraint.CONDITION_UNKNOWN))


def a_job_config(**fields: Any) -> job_pb2.JobConfig:
    config = job_pb2.JobConfig(name="train", owningTeam="maps", instanceCount=3, **fields)
    config.respoolID.value = "pool"
    config.labels.add(key="k", value="v")
    return config


def test_a_new_job_steers_for_the_goal_of_its_type() -> None:
    """The goal of batch jobs is SUCCEEDED, the goal of services RUNNING."""
    batch = convert.new_job_record(JOB, a_job_config(), START)
    service = convert.new_job_record(JOB, a_job_config(type=job_pb2.SERVICE), START)

    assert (JobType.BATCH, JobState.INITIALIZED, JobState.SUCCEEDED) == (batch.type, batch.state, batch.goal)
    assert (JobType.SERVICE, JobState.RUNNING) == (service.type, service.goal)
    assert ({PodState.INITIALIZED: 3}, START, (("k", "v"),)) == (batch.pod_counts, batch.created_ns, batch.labels)


def test_the_controller_flag_of_instance_zero_makes_a_controller_job() -> None:
    """The override's flag takes precedence, even if it is false; services have no controller."""
    config = a_job_config()
    assert not convert.new_job_record(JOB, config, START).has_controller

    config.instanceConfig[0].controller = True
    assert convert.new_job_record(JOB, config, START).has_controller
    config.type = job_pb2.SERVICE
    assert not convert.new_job_record(JOB, config, START).has_controller

    config = a_job_config()
    config.defaultConfig.controller = True
    assert convert.new_job_record(JOB, config, START).has_controller
    config.instanceConfig[0].name = "not a controller"
    assert not convert.new_job_record(JOB, config, START).has_controller


def test_the_sla_goes_both_ways() -> None:
    """Every field of the wire's SLA is converted to the model and back."""
    wire = job_pb2.SlaConfig(
        priority=1,
        preemptible=True,
        revocable=True,
        maximumRunningInstances=2,
        minimumRunningInstances=3,
        maxRunningTime=4,
        maximumUnavailableInstances=5,
    )

    assert SlaSpec(1, True, True, 2, 3, 4, 5) == convert.sla_spec(a_job_config(sla=wire))
    assert wire == convert.sla_config(SlaSpec(1, True, True, 2, 3, 4, 5))


A_POD = PodRecord(
    job_id=JOB,
    instance_id=3,
    run_id=2,
    state=PodState.FAILED,
    goal=PodState.SUCCEEDED,
    config_version=1,
    desired_config_version=2,
    desired_run_id=4,
    prev_run_id=1,
    host="host1",
    agent_id="agent1",
    ports={"http": 31000},
    message="m",
    reason="r",
    health=HealthState.UNHEALTHY,
    failure_count=5,
    started_ns=START,
    completed_ns=START + SECOND // 2,
    updated_ns=START + SECOND,
    run_seconds=10.0,
    termination=Termination(TerminationReason.FAILED, 9, "Killed"),
    revision=7,
)


def test_the_runtime_of_a_pod() -> None:
    """Every field of the record is converted to the wire, run ids as Mesos task ids."""
    limits = task_pb2.ResourceConfig(cpuLimit=2, memLimitMb=3, gpuLimit=4)
    runtime = convert.pod_runtime(A_POD, limits)

    assert (task_pb2.FAILED, task_pb2.SUCCEEDED, task_pb2.UNHEALTHY) == (
        runtime.state,
        runtime.goalState,
        runtime.healthy,
    )
    assert (f"{JOB}-3-2", f"{JOB}-3-1", f"{JOB}-3-4") == (
        runtime.mesosTaskId.value,
        runtime.prevMesosTaskId.value,
        runtime.desiredMesosTaskId.value,
    )
    assert ("2023-11-14T22:13:20Z", "2023-11-14T22:13:20.5Z") == (runtime.startTime, runtime.completionTime)
    assert ("host1", "agent1", {"http": 31000}) == (runtime.host, runtime.agentID.value, dict(runtime.ports))
    assert ("m", "r", 5, 1, 2, 7) == (
        runtime.message,
        runtime.reason,
        runtime.failureCount,
        runtime.configVersion,
        runtime.desiredConfigVersion,
        runtime.revision.version,
    )
    assert {"cpu": 20.0, "memory": 30.0, "gpu": 40.0} == dict(runtime.resourceUsage)
    status = runtime.terminationStatus
    assert (task_pb2.TerminationStatus.TERMINATION_STATUS_REASON_FAILED, 9, "Killed") == (
        status.reason,
        status.exit_code,
        status.signal,
    )


def test_the_runtime_of_a_first_run_has_no_previous_one() -> None:
    """An absent field of the record is unset on the wire."""
    first = PodRecord(JOB, 0, 1, PodState.INITIALIZED, PodState.RUNNING, 1, 1, 1)

    runtime = convert.pod_runtime(first)

    assert not any(runtime.HasField(name) for name in ("prevMesosTaskId", "agentID", "terminationStatus"))
    assert ("", "", {}) == (runtime.startTime, runtime.completionTime, dict(runtime.resourceUsage))


def test_a_task_carries_its_configuration() -> None:
    """A task has its usage for batch jobs only."""
    config = task_pb2.TaskConfig(name="worker", resource=task_pb2.ResourceConfig(cpuLimit=1))

    info = convert.task_info(A_POD, config)
    assert (3, JOB, config) == (info.instanceId, info.jobId.value, info.config)
    assert 10.0 == info.runtime.resourceUsage["cpu"]
    assert {} == dict(convert.task_info(A_POD, config, with_usage=False).runtime.resourceUsage)
    assert not convert.task_info(A_POD, None).HasField("config")


def test_an_event_names_all_its_runs() -> None:
    """An event has the ids of its runs; the one before the first is run 0. Times are whole seconds."""
    event = PodEvent(
        JOB, 3, 1, 2, 0, PodState.RUNNING, PodState.KILLED, 4, 5, "h", "a", "m", "r", HealthState.HEALTHY, START + 7
    )

    wire = convert.pod_event(event)

    assert (f"{JOB}-3-1", f"{JOB}-3-2", f"{JOB}-3-0") == (
        wire.taskId.value,
        wire.desriedTaskId.value,
        wire.prevTaskId.value,
    )
    assert ("RUNNING", "KILLED", "HEALTHY", "2023-11-14T22:13:20Z") == (
        wire.actualState,
        wire.goalState,
        wire.healthy,
        wire.timestamp,
    )
    assert (4, 5, "h", "a", "m", "r") == (
        wire.configVersion,
        wire.desiredConfigVersion,
        wire.hostname,
        wire.agentID,
        wire.message,
        wire.reason,
    )


A_JOB = JobRecord(
    job_id=JOB,
    name="train",
    type=JobType.BATCH,
    owning_team="maps",
    respool_id=RespoolId("pool"),
    instance_count=3,
    sla=SlaSpec(priority=2),
    state=JobState.RUNNING,
    goal=JobState.SUCCEEDED,
    config_version=4,
    state_version=5,
    desired_state_version=6,
    workflow_version=7,
    pod_counts={PodState.RUNNING: 3},
    labels=(("k", "v"),),
    created_ns=START,
    started_ns=START + 1,
    run_seconds=2.0,
    revision=8,
)


def test_the_runtime_of_a_job_counts_every_state() -> None:
    """The counts have a key for each state, zeros included."""
    runtime = convert.job_runtime(A_JOB)

    assert {s.value: 3 if s is PodState.RUNNING else 0 for s in PodState} == dict(runtime.taskStats)
    assert ("2023-11-14T22:13:20Z", "2023-11-14T22:13:20.000000001Z", "") == (
        runtime.creationTime,
        runtime.startTime,
        runtime.completionTime,
    )
    assert (4, 5, 6, 7, 8) == (
        runtime.configurationVersion,
        runtime.stateVersion,
        runtime.desiredStateVersion,
        runtime.workflowVersion,
        runtime.revision.version,
    )


def test_jobs_with_and_without_their_configuration() -> None:
    """The summary has the owning team as owner; usage is in limits times seconds."""
    summary = convert.job_summary(A_JOB)
    assert (JOB, "train", "maps", "maps", 3, "pool", 2) == (
        summary.id.value,
        summary.name,
        summary.owner,
        summary.owningTeam,
        summary.instanceCount,
        summary.respoolID.value,
        summary.sla.priority,
    )
    assert [("k", "v")] == [(item.key, item.value) for item in summary.labels]

    config = a_job_config()
    config.defaultConfig.resource.cpuLimit = 3
    info = convert.job_info(A_JOB, config)
    assert (JOB, config, 6.0) == (info.id.value, info.config, info.runtime.resourceUsage["cpu"])


@pytest.mark.parametrize(
    ("time_ns", "exact", "seconds"),
    [
        (0, "", ""),
        (START, "2023-11-14T22:13:20Z", "2023-11-14T22:13:20Z"),
        (START + 120_000_000, "2023-11-14T22:13:20.12Z", "2023-11-14T22:13:20Z"),
        (START + 999_999_999, "2023-11-14T22:13:20.999999999Z", "2023-11-14T22:13:20Z"),
    ],
)
def test_times_are_rfc3339(time_ns: int, exact: str, seconds: str) -> None:
    """Times have the necessary digits, or whole seconds; an unset time is empty."""
    assert exact == rfc3339(time_ns)
    assert seconds == rfc3339_seconds(time_ns)
