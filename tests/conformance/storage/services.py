"""Services in the states in which tests begin, and a small cluster that carries out their updates."""

from __future__ import annotations

from typing import Any

from peloton.api import convert
from peloton.api.v0.job import job_pb2
from peloton.model.ids import JobId, new_job_id
from peloton.model.job import JobRecord, JobType
from peloton.model.update import UpdateProgress, UpdateSpec, UpdateType
from services.storage.storage import Storage
from tests.conformance.storage.builders import NOW, F, K, R, a_config, admit, launch, report, runs_of, settle_all

ALL_AT_ONCE = UpdateSpec()


def service_config(count: int = 4, command: str = "v1", **sla: Any) -> job_pb2.JobConfig:
    config = a_config(count, type_=JobType.SERVICE, **sla)
    config.defaultConfig.command.value = command
    return config


def a_service(storage: Storage, count: int = 4, **sla: Any) -> JobId:
    """Create a service whose instances all run and whose first update is done."""
    job_id = new_job_id()
    config = service_config(count, **sla)
    storage.updates.create_service(convert.new_job_record(job_id, config, NOW), config, b"spec", ALL_AT_ONCE, "", NOW)
    roll(storage, job_id)
    return job_id


def update(
    storage: Storage, job_id: JobId, config: job_pb2.JobConfig | None, spec: UpdateSpec = ALL_AT_ONCE, **more: Any
) -> JobRecord:
    type_ = more.pop("type", UpdateType.UPDATE)
    wanted: dict[str, Any] = {"job_spec": b"", "instances": (), "opaque": "", "version": None, **more}
    return storage.updates.create(job_id, type=type_, spec=spec, config=config, now_ns=NOW, **wanted)


def advance(storage: Storage, job_id: JobId) -> UpdateProgress:
    """Advance the update, and roll it back when too many instances have failed, as its workflow does."""
    progress = storage.updates.advance(job_id, NOW)
    if not progress.rolls_back_to:
        return progress
    storage.updates.roll_back_failed(job_id, NOW)
    return storage.updates.advance(job_id, NOW)


def turn(storage: Storage, job_id: JobId, broken_version: int = 0, starts: bool = True) -> UpdateProgress:
    """Take one step of the update and lets the cluster follow: pods end, are queued and start, and pods of a broken
    version fail. Checks that settling predicts the step."""
    said = storage.jobs.settle(job_id, NOW)
    before = storage.updates.get(said.update_id)
    progress = advance(storage, job_id)
    assert said.update_moves == (storage.updates.get(said.update_id) != before)
    settle_all(storage, job_id)
    storage.admission.kill_queued(job_id, NOW)
    killed = [pod.instance_id for pod, *_ in storage.host_pods.mark_killing(job_id, 1_000_000)]
    report(storage, job_id, killed, K)
    settle_all(storage, job_id)
    settle_all(storage, job_id)
    if starts:
        admit(storage, job_id)
        started = sorted(launch(storage, job_id))
        broken = [i for i, version in versions(storage, job_id).items() if i in started and version == broken_version]
        report(storage, job_id, [i for i in started if i not in broken], R)
        report(storage, job_id, broken, F)
        settle_all(storage, job_id)
    return progress


def roll(storage: Storage, job_id: JobId, broken_version: int = 0) -> UpdateProgress:
    """Take turns until the update has ended."""
    for _ in range(1_000):
        progress = turn(storage, job_id, broken_version)
        if progress.is_finished:
            return progress
    raise AssertionError(f"the update does not end: {progress}")


def versions(storage: Storage, job_id: JobId) -> dict[int, int]:
    return {pod.instance_id: pod.config_version for pod in storage.pods.page(job_id, limit=1_000_000)}


__all__ = ["ALL_AT_ONCE", "a_service", "advance", "roll", "runs_of", "service_config", "turn", "update", "versions"]
