"""Problems that the caller may read: a text about a job tells its name and its state."""

from __future__ import annotations

from collections.abc import Sequence

from peloton.access.caller import CLUSTER
from peloton.api.v0.overview import overview_pb2 as pb
from peloton.model.ids import HOSTMGR_ROLE, JobId, parse_job_id
from peloton.model.respool import pool_paths
from services.access.visible import is_in
from services.storage.storage import Storage

_OF_THE_CLUSTER = (pb.SUBJECT_KIND_ROLE, pb.SUBJECT_KIND_CLUSTER, pb.SUBJECT_KIND_COMPONENT)


def list_visible(problems: Sequence[pb.Problem], readable: tuple[str, ...], storage: Storage) -> list[pb.Problem]:
    """Return the problems of the cluster, and those of the jobs and pools that lie in readable ones.

    A problem of a host is left out, since it names the jobs that keep the host up, and so is one of the workflow of a
    schedule or a migration, which has the name and the error of that.
    """
    paths = pool_paths(storage.pools.specs())
    pools = storage.jobs.pools_of([job for one in problems if (job := _job_of(one))])

    def is_visible(problem: pb.Problem) -> bool:
        if job_id := _job_of(problem):
            return job_id in pools and is_in(paths.get(pools[job_id], CLUSTER), readable)
        if problem.subject_kind == pb.SUBJECT_KIND_POOL:
            return is_in(problem.subject_id, readable)
        is_of_workflow = "/" in problem.subject_id and not problem.subject_id.startswith(HOSTMGR_ROLE)
        return problem.subject_kind in _OF_THE_CLUSTER and not is_of_workflow

    return [problem for problem in problems if is_visible(problem)]


def _job_of(problem: pb.Problem) -> JobId | None:
    if problem.subject_kind != pb.SUBJECT_KIND_JOB:
        return None
    try:
        return parse_job_id(problem.subject_id)
    except ValueError:  # a sum of several jobs
        return None
