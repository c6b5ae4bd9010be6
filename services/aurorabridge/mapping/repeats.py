"""Repeated calls: which start of an update is the same call as the one that began the current update."""

from __future__ import annotations

import hashlib
from typing import Any

from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc.stateless_svc_pb2 import GetJobResponse
from peloton.model.pod import TERMINAL
from services.aurorabridge.mapping import opaque

CLIENT_UPDATE_ID = "org.apache.aurora.client.update_id"
"""Key of the metadata by which Aurora's client recognises its own update when it repeats a call."""
WINDOW_S = 60
"""Time since the begin of an update in which a client repeats a call whose answer it lost."""

_ENDED_OTHERWISE = (
    stateless_pb2.WORKFLOW_STATE_ABORTED,
    stateless_pb2.WORKFLOW_STATE_FAILED,
    stateless_pb2.WORKFLOW_STATE_ROLLED_BACK,
)
_TERMINAL_STATES = tuple(f"POD_STATE_{state}" for state in TERMINAL)


def digest_of(spec: stateless_pb2.JobSpec, request: Any, message: str) -> str:
    """Return a digest that equal calls have, in whatever order their sets are."""
    settings = request.settings
    ranges = settings.updateOnlyTheseInstances if settings is not None else None
    numbers = [
        getattr(settings, name, None)
        for name in (
            "updateGroupSize",
            "maxPerInstanceFailures",
            "maxFailedInstances",
            "rollbackOnFailure",
            "blockIfNoPulsesAfterMs",
        )
    ]
    named = sorted((one.first or 0, one.last or 0) for one in ranges or ())
    words = repr((numbers, named, opaque.metadata_pairs(request.metadata), message))
    return hashlib.sha256(spec.SerializeToString(deterministic=True) + words.encode()).hexdigest()[:32]


def is_repeat(job: GetJobResponse, digest: str, metadata: Any, was_answered: bool, age_s: float) -> bool:
    """Return whether a start with this digest is the call that began the job's current update.

    ``was_answered``: whether this bridge has answered that call. ``age_s``: time since the update began.
    """
    workflow, status = job.workflow_info, job.job_info.status
    began = opaque.decode(workflow.opaque_data.data)
    if began.request != digest or began.is_rollback:
        return False
    if any(one.key == CLIENT_UPDATE_ID for one in metadata or ()):
        return True
    if was_answered or age_s > WINDOW_S or workflow.status.state in _ENDED_OTHERWISE:
        return False
    if workflow.status.state != stateless_pb2.WORKFLOW_STATE_SUCCEEDED:
        return True
    # A client that has stopped pods since then wants them back.
    return status.desired_state == stateless_pb2.JOB_STATE_RUNNING and not any(
        status.pod_stats[state] for state in _TERMINAL_STATES if state in status.pod_stats
    )
