"""Names and ids: formats, parsing, and the ids of Temporal workflows.

A pod is one run of one instance of a job. Its ids nest: ``<job>``, ``<job>-<instance>`` (pod name), and
``<job>-<instance>-<run>`` (pod id, which is also the Mesos task id and the idempotency key of a launch).
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import NewType

from peloton.model.text import quote

JobId = NewType("JobId", str)
"""RFC 4122 UUID in its 36 character form."""
RespoolId = NewType("RespoolId", str)
"""UUID of a resource pool, or ``root``."""
Hostname = NewType("Hostname", str)

ROOT_POOL_ID = RespoolId("root")
_UUID_LENGTH = 36
_UINT32_MAX = 2**32 - 1


def parse_job_id(text: str) -> JobId:
    """Return the canonical job id; raises ValueError when ``text`` is not a UUID."""
    return JobId(str(uuid.UUID(text)))


def new_job_id() -> JobId:
    return JobId(str(uuid.uuid4()))


@dataclass(frozen=True, slots=True, order=True)
class PodName:
    """``<job>-<instance>``: an instance of a job, regardless of its run."""

    job_id: JobId
    instance_id: int

    def __str__(self) -> str:
        return f"{self.job_id}-{self.instance_id}"

    @classmethod
    def parse(cls, text: str) -> PodName:
        job, _, instance = text.rpartition("-")
        if len(job) != _UUID_LENGTH:
            raise ValueError(f"invalid pod name {quote(text)}: want <job>-<instance>")
        return cls(JobId(job), _number(instance, text))


@dataclass(frozen=True, slots=True, order=True)
class PodId:
    """``<job>-<instance>-<run>``: one run; run ids start at 1, and 0 stands for "no run yet"."""

    job_id: JobId
    instance_id: int
    run_id: int

    def __str__(self) -> str:
        return f"{self.job_id}-{self.instance_id}-{self.run_id}"

    @classmethod
    def parse(cls, text: str) -> PodId:
        if text.count("-") != 6:
            raise ValueError(f"invalid pod id {quote(text)}: want <job>-<instance>-<run>")
        job, instance, run = text.rsplit("-", 2)
        return cls(JobId(job), _number(instance, text), int(run))


def _number(text: str, whole: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > _UINT32_MAX:
        raise ValueError(f"unable to parse instance id of {quote(whole)}")
    return int(text)


@dataclass(frozen=True, slots=True)
class EntityVersion:
    """The version of a job that a v1alpha client read; its write fails if the job has changed since."""

    config: int
    desired_state: int
    workflow: int

    def __str__(self) -> str:
        return f"{self.config}-{self.desired_state}-{self.workflow}"

    @classmethod
    def parse(cls, text: str) -> EntityVersion:
        """Parse ``<config>-<state>-<workflow>``; raises ValueError."""
        pieces = text.split("-")
        if len(pieces) != 3 or not all(piece.isascii() and piece.isdigit() for piece in pieces):
            raise ValueError(f"entityVersion has wrong format: {quote(text)}, want <config>-<state>-<workflow>")
        return cls(*map(int, pieces))


def job_workflow_id(job_id: str) -> str:
    """Return the id of the Temporal workflow that controls a job; the id is its mutex."""
    return f"job/{job_id}"


HOSTMGR_ROLE = "hostmgr/"
"""Prefix of the role that the host manager of a cluster leads, see ``hostmgr_role``."""
_CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def hostmgr_role(cluster: str) -> str:
    """Return the role of a cluster's host manager; raises ValueError for an invalid cluster name."""
    if not _CLUSTER_NAME.fullmatch(cluster):
        raise ValueError(
            f"cluster {cluster!r}: want at most 63 letters, digits, dots, dashes and underscores, the first no mark"
        )
    return HOSTMGR_ROLE + cluster


def maintenance_workflow_id(cluster: str, hostname: str) -> str:
    """Return the id of the Temporal workflow that takes a host down and brings it up again."""
    return f"maintenance/{cluster}/{hostname}"


def migration_workflow_id(migration_id: str) -> str:
    """Return the id of the Temporal workflow that moves a job or a pool to another cluster."""
    return f"migration/{migration_id}"


def rebalance_workflow_id(cluster: str) -> str:
    """Return the id of the Temporal workflow that rebalances the hosts of a cluster."""
    return f"rebalance/{cluster}"


def schedule_id(name: str) -> str:
    """Return the id of the Temporal schedule that creates jobs."""
    return f"job-schedule/{name}"


def schedule_workflow_id(name: str) -> str:
    """Return the id of the Temporal workflows of a schedule's runs, to which Temporal appends the time of each."""
    return f"scheduled-job/{name}"


def update_workflow_id(job_id: str) -> str:
    """Return the id of the Temporal workflow that rolls out a service's updates, one at a time."""
    return f"update/{job_id}"


def daemon_workflow_id(job_id: str) -> str:
    """Return the id of the Temporal workflow that keeps one pod of a daemon on each matching host."""
    return f"daemon/{job_id}"


def gang_workflow_id(job_id: str, first_run: int) -> str:
    """Return the id of the Temporal workflow of one launch of a job's gang, named by the run of its first member."""
    return f"gang/{job_id}/{first_run}"
