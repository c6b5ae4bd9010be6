"""Launches that a driver that is not ready rejects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from peloton.api import convert
from peloton.api.v0.job.job_pb2 import JobConfig
from peloton.errors import Unavailable
from peloton.model.host import LaunchResult
from peloton.model.ids import JobId
from peloton.model.job import JobRecord, JobType
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.in_flight import InFlight
from services.hostmgr.launcher import Launcher
from tests.doubles.hostmgr.cluster import MemoryCluster
from tests.doubles.hostmgr.driver import MemoryDriver

JOB = JobId("00000000-0000-4000-8000-000000000001")


class Unready(MemoryDriver):
    unready = "namespace peloton is being deleted"


class NoPods:
    """A double for the templates of a job, its pods, and their volumes."""

    def of_job(self, job: JobRecord, instance_ids: Any) -> dict[int, Any]:
        return {}

    def check(self, job: JobRecord, placements: Any) -> None:
        pass

    def variables(self, job: JobRecord, placements: Any, templates: Any, taken: Any) -> dict[int, Any]:
        return {}

    def of_instances(self, job_id: JobId, instance_ids: Any) -> dict[int, Any]:
        return {}


def launcher(type: JobType) -> Launcher:
    nothing: Any = NoPods()
    jobs: Any = {JOB: replace(convert.new_job_record(JOB, JobConfig(name="j"), 1), type=type)}
    parts = "east", HostCache(30.0), Unready(MemoryCluster([])), nothing, InFlight[Any]()
    return Launcher(jobs, nothing, nothing, nothing, nothing, *parts, lambda lease: None, lambda: None, lambda: None)


def test_no_pod_is_launched_while_its_namespace_is_deleted() -> None:
    """The pods stay as they are, and the caller has the reason."""
    with pytest.raises(Unavailable, match="namespace peloton is being deleted"):
        launcher(JobType.BATCH).launch(JOB, "lease", [])


def test_pods_that_others_made_are_bound_all_the_same() -> None:
    """External pods are bound all the same, since they are in their own namespaces."""
    assert LaunchResult(0) == launcher(JobType.EXTERNAL).launch(JOB, "lease", [])
