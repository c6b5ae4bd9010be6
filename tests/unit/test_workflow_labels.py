"""Attributes and memo of the workflows of a job and a host."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peloton.model.host import HostState
from peloton.model.ids import ROOT_POOL_ID, Hostname, JobId, RespoolId
from peloton.model.job import JobRecord, JobState, JobType, SlaSpec
from peloton.model.maintenance import HostMaintenance
from services.lab.local import temporal_server
from services.temporal.workflow_labels import PoolPaths, first_state, job_labels, maintenance_labels
from tests.unit.model.test_pool_paths import pool as pool_spec
from workflows.attributes import SEARCH_ATTRIBUTES

JOB = JobRecord(
    JobId("6d1d5f5e-7d2a-4c6c-9f4e-0a7d3c1b2e01"),
    "train",
    JobType.BATCH,
    "vision",
    RespoolId("p1"),
    8,
    SlaSpec(priority=3, minimum_running_instances=4),
    JobState.PENDING,
    JobState.SUCCEEDED,
)
HOST = HostMaintenance("east", Hostname("host1"), HostState.UP, HostState.DOWN)


def test_a_job_is_found_by_what_people_know_of_it() -> None:
    """Attributes are name, owner, path of the pool, type and state; missing ones are left out."""
    found = {pair.key.name: pair.value for pair in job_labels(JOB, "/eng/ml").attributes}
    nameless = {pair.key.name for pair in job_labels(replace(JOB, owning_team=""), "/eng/ml").attributes}

    assert {
        "PelotonJob": JOB.job_id,
        "PelotonJobName": "train",
        "PelotonPool": "/eng/ml",
        "PelotonOwner": "vision",
        "PelotonType": "BATCH",
        "PelotonState": "PENDING",
    } == found
    assert found.keys() - nameless == {"PelotonOwner"}


@pytest.mark.parametrize(
    ("kind", "instance_count", "state"),
    [
        (JobType.BATCH, 100, JobState.PENDING),
        (JobType.BATCH, 101, JobState.INITIALIZED),
        (JobType.SERVICE, 1, JobState.INITIALIZED),
    ],
)
def test_a_small_batch_job_waits_from_its_start(kind: JobType, instance_count: int, state: JobState) -> None:
    """The first step of a small batch job creates its pods, so it is shown as PENDING before."""
    job = replace(JOB, type=kind, instance_count=instance_count, state=JobState.INITIALIZED)

    assert state is first_state(job)
    assert JobState.KILLED is first_state(replace(job, state=JobState.KILLED))


def test_a_job_is_reported_in_a_sentence() -> None:
    """A job's summary has its owner, pool and size; its memo has the fields that do not change."""
    labels = job_labels(JOB, "/eng/ml")

    assert "batch job train in pool /eng/ml of vision, 8 instances" == labels.summary
    assert f"`peloton job why {JOB.job_id}`" in labels.details
    assert {
        "pool id": "p1",
        "instances": 8,
        "priority": 3,
        "is preemptible": False,
        "members of its gang": 4,
    } == labels.memo


def test_a_host_is_found_by_its_name_and_cluster() -> None:
    """A host's maintenance has no attribute of a job."""
    labels = maintenance_labels(HOST)
    found = {pair.key.name: pair.value for pair in labels.attributes}

    assert {"PelotonType": "MAINTENANCE", "PelotonHost": "host1", "PelotonCluster": "east"} == found
    assert "maintenance of host host1 in cluster east" == labels.summary


def test_a_move_says_where_the_host_goes() -> None:
    """A move has a type of its own."""
    labels = maintenance_labels(replace(HOST, to_pool="batch"))
    found = {pair.key.name: pair.value for pair in labels.attributes}

    assert {"PelotonType": "HOST_MOVE", "PelotonHost": "host1", "PelotonCluster": "east"} == found
    assert "move of host host1 in cluster east to host pool batch" == labels.summary
    assert labels.details.startswith("This workflow drains host **host1** and puts it into host pool **batch**.")


def test_paths_are_read_once_a_minute() -> None:
    """A pool that is new is read at once; one that does not exist has its id for a path."""
    now_s, pools = [100.0], [pool_spec("p1", ROOT_POOL_ID, "eng")]
    paths = PoolPaths(lambda: pools, lambda: now_s[0])
    before = [paths(RespoolId("p1")), paths(RespoolId("p2"))]
    pools.append(pool_spec("p2", "p1", "ml"))
    soon = paths(RespoolId("p2"))
    pools[:] = [pool_spec("p1", ROOT_POOL_ID, "science"), pools[1]]
    kept = paths(RespoolId("p2"))
    now_s[0] += 61

    assert (["/eng", "p2"], "/eng/ml", "/eng/ml") == (before, soon, kept)
    assert "/science/ml" == paths(RespoolId("p2"))


def test_the_local_server_knows_all_search_attributes() -> None:
    """A workflow with an unknown attribute could not be started."""
    assert [attribute.name for attribute in SEARCH_ATTRIBUTES] == list(temporal_server.SEARCH_ATTRIBUTES)
