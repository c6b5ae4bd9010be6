"""Conversion of v1alpha queries by way of v0, which has the same conditions under other names."""

from __future__ import annotations

from peloton.api import convert, convert_v1
from peloton.api.respell import respell
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.errors import InvalidArgument
from services.api.job_query import job_query, pod_query
from services.storage.jobs.search import JobQuery, PodQuery


def jobs_wanted(spec: stateless_pb2.QuerySpec, respool_id: str, now_ns: int) -> JobQuery:
    """Convert a job query; numbers of job states are the same in both versions. Raises InvalidArgument."""
    request = job_pb2.QueryRequest()
    request.respoolID.value = respool_id
    respell(spec, request.spec)
    return job_query(request, now_ns)


def pods_wanted(spec: pod_pb2.QuerySpec) -> PodQuery:
    """Convert a pod query; names are names of task configurations, as in v0. Raises InvalidArgument."""
    wanted = task_pb2.QuerySpec(names=[name.value for name in spec.names])
    respell(spec, wanted, ("pagination", "hosts"))
    for number in spec.pod_states:
        state = convert_v1.POD_STATES.get(number)
        if state is None:
            raise InvalidArgument(f"pod state {number} is not known")
        wanted.taskStates.append(convert.POD_STATE_NUMBERS[state])  # type: ignore[arg-type]
    return pod_query(wanted)
