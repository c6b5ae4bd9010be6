"""Conversion of records to v1alpha."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.api import convert_v1
from peloton.api.convert_time import rfc3339
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.model.ids import EntityVersion, JobId, RespoolId
from peloton.model.job import JobRecord, JobState, JobType, SlaSpec
from peloton.model.pod import (
    HealthState,
    PodEvent,
    PodRecord,
    PodState,
    Termination,
    TerminationReason,
)
from peloton.model.update import UpdateEvent, UpdateRecord, UpdateSpec, UpdateState, UpdateType

JOB = JobId("11111111-2222-3333-4444-555555555555")
SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
POD = PodRecord(
    job_id=JOB,
    instance_id=3,
    run_id=2,
    state=PodState.RUNNING,
    goal=PodState.RUNNING,
    config_version=4,
    desired_config_version=5,
    desired_run_id=3,
    prev_run_id=1,
    host="h1",
    desired_host="h2",
    agent_id="a1",
    ports={"http": 31000},
    message="m",
    reason="r",
    health=HealthState.HEALTHY,
    failure_count=6,
    started_ns=START,
    updated_ns=START,
    termination=Termination(TerminationReason.KILLED_FOR_UPDATE, 1, "TERM"),
    revision=9,
)
RECORD = JobRecord(
    job_id=JOB,
    name="web",
    type=JobType.SERVICE,
    owning_team="maps",
    respool_id=RespoolId("pool"),
    instance_count=4,
    sla=SlaSpec(priority=1, preemptible=True, maximum_unavailable_instances=2, strict_updates=True),
    state=JobState.RUNNING,
    goal=JobState.RUNNING,
    config_version=5,
    desired_state_version=2,
    workflow_version=7,
    pod_counts={PodState.RUNNING: 3, PodState.PENDING: 1},
    labels=(("k", "v"),),
    created_ns=START,
    revision=11,
    update_id="u",
)
UPDATE = UpdateRecord(
    update_id="u",
    job_id=JOB,
    type=UpdateType.UPDATE,
    spec=UpdateSpec(3, True, 1, 2, True, True, True),
    state=UpdateState.ROLLING_FORWARD,
    config_version=5,
    prev_config_version=4,
    added=frozenset({4, 5, 6, 9}),
    updated=frozenset({0, 1}),
    removed=frozenset({11}),
    current=frozenset({1, 4}),
    done=frozenset({0}),
    failed=frozenset({9}),
    opaque_data="mine",
    created_ns=START,
)


def test_states_have_their_numbers() -> None:
    """Every state of the model has its name on the wire, and every name its state."""
    assert {n: convert_v1.POD_STATE_NAMES[s] for n, s in convert_v1.POD_STATES.items()} == {
        number: name for name, number in pod_pb2.PodState.items()
    }
    assert set(convert_v1.HEALTH_NAMES.values()) == set(pod_pb2.HealthState.keys())
    assert {f"JOB_STATE_{s}".replace("UNKNOWN", "INVALID"): n for n, s in convert_v1.JOB_STATES.items()} == dict(
        stateless_pb2.JobState.items()
    )
    reported = {stateless_pb2.WorkflowState.Name(n) for n in convert_v1.WORKFLOW_STATE_NUMBERS.values()}
    assert reported == set(stateless_pb2.WorkflowState.keys()) - {"WORKFLOW_STATE_INVALID"}


def test_the_status_of_a_pod() -> None:
    """The status has ids, versions and hosts; one container without a name has the other fields."""
    status = convert_v1.pod_status(POD)

    assert (status.state, status.desired_state) == (pod_pb2.POD_STATE_RUNNING, pod_pb2.POD_STATE_RUNNING)
    assert status.pod_id.value == f"{JOB}-3-2"
    assert (status.prev_pod_id.value, status.desired_pod_id.value) == (f"{JOB}-3-1", f"{JOB}-3-3")
    assert (status.version.value, status.desired_version.value) == ("4-0-0", "5-0-0")
    assert (status.host, status.desiredHost, status.agent_id.value) == ("h1", "h2", "a1")
    assert (status.failure_count, status.revision.version) == (6, 9)
    (container,) = status.containers_status
    assert (container.name, container.state) == ("", pod_pb2.CONTAINER_STATE_RUNNING)
    assert (dict(container.ports), container.healthy.state) == ({"http": 31000}, pod_pb2.HEALTH_STATE_HEALTHY)
    assert (container.start_time, container.completion_time) == ("2023-11-14T22:13:20Z", "")
    ended = container.terminationStatus
    assert ended.reason == pod_pb2.TerminationStatus.TERMINATION_STATUS_REASON_KILLED_FOR_UPDATE
    assert (ended.exit_code, ended.signal) == (1, "TERM")


def test_a_first_run_has_none_before_it() -> None:
    """The previous pod id is unset; so is the termination of a run without one."""
    status = convert_v1.pod_status(replace(POD, prev_run_id=0, termination=None))

    assert not status.HasField("prev_pod_id")
    assert not status.containers_status[0].HasField("terminationStatus")


@pytest.mark.parametrize("state", PodState)
def test_every_state_of_a_pod_is_one_of_its_container(state: PodState) -> None:
    """The container is pending until the pod is on a host."""
    container = convert_v1.pod_status(replace(POD, state=state)).containers_status[0]
    name = pod_pb2.ContainerState.Name(container.state).removeprefix("CONTAINER_STATE_")

    odd = {"PREEMPTING": "KILLING", "LOST": "FAILED", "DELETED": "KILLED"}
    has_twin = f"CONTAINER_STATE_{state}" in pod_pb2.ContainerState.keys()  # noqa: SIM118  # an enum, not a mapping
    assert name == odd.get(state, state.value if has_twin else "PENDING")


def test_events_use_the_names_of_v1alpha() -> None:
    """Events have states and health with v1alpha's prefixes, and times to the second; the run before the first is 0."""
    event = PodEvent(
        JOB,
        3,
        1,
        2,
        0,
        PodState.LOST,
        PodState.RUNNING,
        4,
        5,
        "h",
        "a",
        "m",
        "r",
        HealthState.HEALTH_UNKNOWN,
        START + 1,
    )
    wire = convert_v1.pod_event(event)

    assert (wire.actual_state, wire.desired_state) == ("POD_STATE_LOST", "POD_STATE_RUNNING")
    assert (wire.healthy, wire.timestamp) == ("HEALTH_STATE_UNKNOWN", "2023-11-14T22:13:20Z")
    assert (wire.pod_id.value, wire.prev_pod_id.value) == (f"{JOB}-3-1", f"{JOB}-3-0")
    assert (wire.desired_pod_id.value, wire.desired_version.value) == (f"{JOB}-3-2", "5-0-0")


def test_a_past_run_has_no_times_and_no_containers() -> None:
    """The status of an earlier run is its last event, without times and containers."""
    event = PodEvent(
        JOB, 3, 1, 1, 0, PodState.FAILED, PodState.RUNNING, 4, 4, "h", "a", "m", "r", HealthState.INVALID, START
    )
    status = convert_v1.past_status(event)

    assert (status.state, status.message, status.host) == (pod_pb2.POD_STATE_FAILED, "m", "h")
    assert (status.start_time, list(status.containers_status)) == ("", [])


def test_the_status_of_a_job() -> None:
    """The counts have the names of states, zeros included; the version has all three parts."""
    counts = {4: {PodState.RUNNING: 2}, 5: {PodState.RUNNING: 1, PodState.PENDING: 1}}
    status = convert_v1.job_status(RECORD, UPDATE, counts)

    assert status.version.value == "5-2-7"
    assert len(status.pod_stats) == len(PodState)
    assert (status.pod_stats["POD_STATE_RUNNING"], status.pod_stats["POD_STATE_FAILED"]) == (3, 0)
    assert dict(status.pod_configuration_version_stats) == {"4-0-0": 2, "5-0-0": 2}
    by_state = status.pod_stats_by_configuration_version["5-0-0"].state_stats
    assert dict(by_state) == {"POD_STATE_RUNNING": 1, "POD_STATE_PENDING": 1}
    assert status.workflow_status.state == stateless_pb2.WORKFLOW_STATE_ROLLING_FORWARD
    assert not convert_v1.job_status(RECORD, None).HasField("workflow_status")


def test_the_summary_of_a_job() -> None:
    """The owner is the owning team, which existing clients expect."""
    summary = convert_v1.job_summary(RECORD, None)

    assert (summary.owner, summary.owning_team, summary.instance_count) == ("maps", "maps", 4)
    assert [(label.key, label.value) for label in summary.labels] == [("k", "v")]
    assert summary.sla == stateless_pb2.SlaSpec(
        priority=1, preemptible=True, maximum_unavailable_instances=2, strict_updates=True
    )


def test_the_status_of_an_update() -> None:
    """The remaining count excludes done and failed instances; versions have the job's current two other parts."""
    status = convert_v1.workflow_status(RECORD, UPDATE)

    assert (status.version.value, status.prev_version.value) == ("5-2-7", "4-2-7")
    counts = (status.num_instances_completed, status.num_instances_remaining, status.num_instances_failed)
    assert counts == (1, 5, 1)
    assert list(status.instances_current) == [1, 4]


def test_the_status_of_an_update_that_has_stalled() -> None:
    """A stalled update has the time, the cause and the number of failed runs; an update with progress has none of
    them."""
    stalled = replace(UPDATE, stalled_ns=START, stall_cause="instance 1 fails", failed_run_count=8)
    reported = [convert_v1.workflow_status(RECORD, update) for update in (UPDATE, stalled)]
    spec = replace(UPDATE.spec, progress_deadline_s=45)

    assert [("", "", 0), (rfc3339(START), "instance 1 fails", 8)] == [
        (status.stalled_time, status.stall_cause, status.num_runs_failed) for status in reported
    ]
    assert 45 == convert_v1.update_spec(spec).progress_deadline_seconds


def test_an_update_in_full() -> None:
    """Ranges include their end, start_pods is omitted, and opaque data is always set."""
    info = convert_v1.workflow_info(RECORD, UPDATE, [UpdateEvent(START, UpdateType.UPDATE, UpdateState.PAUSED)])

    assert [(getattr(r, "from"), r.to) for r in info.instances_added] == [(4, 6), (9, 9)]
    assert [(getattr(r, "from"), r.to) for r in info.instances_removed] == [(11, 11)]
    assert info.update_spec == stateless_pb2.UpdateSpec(
        batch_size=3,
        rollback_on_failure=True,
        max_instance_retries=1,
        max_tolerable_instance_failures=2,
        start_paused=True,
        in_place=True,
    )
    assert not info.HasField("restart_spec")
    assert info.opaque_data.data == "mine"
    assert [event.state for event in info.events] == [stateless_pb2.WORKFLOW_STATE_PAUSED]
    assert convert_v1.workflow_info(RECORD, replace(UPDATE, opaque_data=""), []).HasField("opaque_data")


@pytest.mark.parametrize("kind", [UpdateType.RESTART, UpdateType.START, UpdateType.STOP])
def test_other_updates(kind: UpdateType) -> None:
    """A restart has its own spec; rolling starts and stops have no type in v1alpha."""
    info = convert_v1.workflow_info(RECORD, replace(UPDATE, type=kind), [])

    assert not info.HasField("update_spec")
    assert info.HasField("restart_spec") == (kind is UpdateType.RESTART)
    if kind is UpdateType.RESTART:
        assert info.restart_spec.batch_size == 3
        assert [(getattr(r, "from"), r.to) for r in info.restart_spec.ranges] == [(0, 1)]
    else:
        assert info.status.type == stateless_pb2.WORKFLOW_TYPE_INVALID


@given(st.frozensets(st.integers(0, 30)))
def test_ranges_are_the_instances(instances: frozenset[int]) -> None:
    """Each instance occurs once, in the minimal number of ranges."""
    reported = [(getattr(r, "from"), r.to) for r in convert_v1.ranges(instances)]

    assert [i for first, last in reported for i in range(first, last + 1)] == sorted(instances)
    assert all(last + 1 < first for (_, last), (first, _) in itertools.pairwise(reported))


@given(st.integers(0), st.integers(0), st.integers(0))
def test_entity_versions_cross(config: int, state: int, workflow: int) -> None:
    """Entity versions are converted to text and back."""
    version = EntityVersion(config, state, workflow)

    assert EntityVersion.parse(convert_v1.entity_version(version).value) == version
