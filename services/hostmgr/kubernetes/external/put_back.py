"""Admitted pods that go back into the queue: their owners make new ones, which are gated.

A pod of a controller that replaces its pods is evicted. A Job counts each deleted pod as a failure, so the Job is
suspended, which counts none, and resumed when its pods are gone; a label marks it until then, so that a Job is resumed
whatever happens to Peloton. A pod that no controller would replace stays.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote

import orjson

from services.hostmgr.kubernetes.apiserver.lists import pages
from services.hostmgr.kubernetes.apiserver.wire import MERGE_PATCH, ApiServer, Json, Refused, Request, check_answers
from services.hostmgr.kubernetes.external.external_specs import GANG_SIZE, controller_of, label_or_annotation
from services.hostmgr.kubernetes.external.gate import ADMITTED_AT, is_by_gate, run_of
from services.hostmgr.kubernetes.external.pod_groups import group_of
from services.hostmgr.kubernetes.pods.statuses import is_over

log = logging.getLogger(__name__)

PUT_BACK = "peloton.io/put-back"
"""Label of a Job that Peloton has suspended to put its pods back, and resumes."""
MARKED_JOBS = f"/apis/batch/v1/jobs?labelSelector={quote(PUT_BACK)}"
JOBS_PER_PAGE = 500
PUT_BACK_MAX = 200
"""Limit of pods that are put back in one call; the others follow in the next calls."""
FINE = (HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
"""Answers after which nothing is left to do: the Job is gone, or does not take the change."""
RESUME_S, RESUME_IDLE_S = 1.0, 60.0
"""Seconds between looks for suspended Jobs to resume: while there are some, and otherwise."""
_REPLACED = frozenset(("ReplicaSet", "StatefulSet", "ReplicationController"))
"""Kinds of controllers that replace a deleted pod and count no failure."""


class Way(Enum):
    EVICT = "its owner makes a new one"
    SUSPEND = "its Job is suspended and resumed"
    STAY = "its owner would not replace it"


class JobKey(NamedTuple):
    namespace: str
    name: str
    uid: str


class Returns(NamedTuple):
    """Pods to put back, by the way."""

    evicted: list[Json]
    suspended: set[JobKey]
    staying: list[Json]


NO_RETURNS = Returns([], set(), [])


def way_back(pod: Json) -> Way:
    owner = controller_of(pod)
    if owner is None:
        return Way.STAY
    if owner.kind == "Job" and owner.api_version.startswith("batch/"):
        return Way.SUSPEND
    return Way.EVICT if owner.kind in _REPLACED else Way.STAY


def job_of(pod: Json) -> JobKey | None:
    """Return the Job of the pod; None if it has another owner."""
    owner = controller_of(pod)
    if owner is None or way_back(pod) is not Way.SUSPEND:
        return None
    return JobKey(owner.namespace, owner.name, owner.uid)


def is_unscheduled(pod: Json) -> bool:
    """Return whether the pod is admitted, and no scheduler has bound it."""
    is_waiting = not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp") and not is_over(pod)
    return is_waiting and is_by_gate(pod) and bool(run_of(pod))


def find_overdue(pods: Iterable[Json], now_s: float, timeouts_s: Mapping[str, float]) -> list[Json]:
    """Return the pods that have not been scheduled within the bound of their namespace. Members of gangs are left out:
    the whole gang ends when its launch is overdue."""
    found = []
    for pod in filter(is_unscheduled, pods):
        bound_s = timeouts_s.get(pod["metadata"]["namespace"])  # None for a pod that came after the bounds were read
        if bound_s is not None and _read_admission_s(pod) + bound_s <= now_s and not _in_gang(pod):
            found.append(pod)
    return found


def _in_gang(pod: Json) -> bool:
    return group_of(pod) is not None or (label_or_annotation(pod["metadata"], GANG_SIZE) or "1") != "1"


def _read_admission_s(pod: Json) -> float:
    """Return when the pod was admitted, since the epoch; for a malformed time now, so that it is never overdue."""
    try:
        return datetime.fromisoformat(pod["metadata"]["annotations"][ADMITTED_AT]).timestamp()
    except (KeyError, ValueError):
        return datetime.now(UTC).timestamp()


def sort_overdue(overdue: Sequence[Json], known: Iterable[Json]) -> Returns:
    """Sort overdue pods by the way back. A Job stays if it has pods with a node: they would end with it."""
    busy = {job_of(pod) for pod in known if pod["spec"].get("nodeName") and not is_over(pod)}
    found = Returns([], set(), [])
    for pod in overdue:
        job = job_of(pod)
        if job is not None and job not in busy:
            found.suspended.add(job)
        elif way_back(pod) is Way.EVICT:
            found.evicted.append(pod)
        else:
            found.staying.append(pod)
    return found


def jobs_to_suspend(ending: Sequence[Json], known: Iterable[Json]) -> set[JobKey]:
    """Return the Jobs whose pods all have to end, one of them before it was scheduled."""
    jobs = {job for pod in ending if is_unscheduled(pod) and (job := job_of(pod)) is not None}
    uids = {pod["metadata"]["uid"] for pod in ending}
    others = {job_of(pod) for pod in known if pod["metadata"]["uid"] not in uids and run_of(pod) and not is_over(pod)}
    return jobs - others


def suspend(api: ApiServer, jobs: Collection[JobKey]) -> None:
    """Suspend the Jobs. Raises OSError."""
    check_answers(api.ask_all([_mark_request(job, is_put_back=True) for job in sorted(jobs)]), *FINE)


def _mark_request(job: JobKey, is_put_back: bool) -> Request:
    """Return the patch that suspends a Job and marks it, or resumes it and takes the mark off."""
    mark = {PUT_BACK: "true" if is_put_back else None}
    body = {"metadata": {"uid": job.uid, "labels": mark}, "spec": {"suspend": is_put_back}}
    path = f"/apis/batch/v1/namespaces/{job.namespace}/jobs/{quote(job.name)}"
    return Request("PATCH", path, orjson.dumps(body), MERGE_PATCH)


def resume(api: ApiServer) -> int:
    """Resume the marked Jobs whose pods are gone; return the number of the others. Raises OSError."""
    marked = [job for _, jobs in pages(api, MARKED_JOBS, JOBS_PER_PAGE) for job in jobs]
    requests = []
    for job in marked:
        meta, status = job["metadata"], job.get("status") or {}
        if job["spec"].get("suspend") and (status.get("active") or not _is_suspended(status)):
            continue
        requests.append(_mark_request(JobKey(meta["namespace"], meta["name"], meta["uid"]), is_put_back=False))
    check_answers(api.ask_all(requests), *FINE)
    return len(marked) - len(requests)


class PutBackJobs:
    """Jobs that are suspended for a while, and resumed when their pods are gone. Used by one thread."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._resume_at_s = 0.0

    def suspend(self, jobs: Collection[JobKey]) -> None:
        """Suspend the Jobs. Raises OSError."""
        log.info("%d Jobs are suspended, and resumed when their pods are gone", len(jobs))
        self._resume_at_s = 0.0
        suspend(self._api, jobs)

    def resume_due(self) -> None:
        """Resume the suspended Jobs whose pods are gone; looks for Jobs of a predecessor as well. Raises OSError."""
        now_s = time.monotonic()
        if now_s >= self._resume_at_s:
            self._resume_at_s = now_s + RESUME_S
            try:
                left = resume(self._api)
            except Refused as error:  # without the right to it no Job was suspended, either
                log.debug("Jobs are not looked at: %s", error)
                left = 0
            self._resume_at_s = now_s + (RESUME_S if left else RESUME_IDLE_S)


def _is_suspended(status: Json) -> bool:
    conditions = status.get("conditions") or ()
    return any(one["type"] == "Suspended" and one["status"] == "True" for one in conditions)
