"""Peloton's BulkService: creation of a job whose configuration is streamed in pieces (ADR 29).

One piece at a time is read, validated, compressed and stored, so memory depends on the size of a piece, not of the job.
The job exists only after the commit. A stream that ends without a commit is discarded at once, and a stream whose api
has died is discarded by the sweep of any api.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from peloton.api import convert
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.bulk import bulk_pb2
from peloton.api.v0.job import job_pb2
from peloton.errors import Aborted, AlreadyExists, InvalidArgument
from peloton.model.ids import JobId, new_job_id, parse_job_id
from services.access.caller import name_creator
from services.api.calls import check_wanted, make_overloaded
from services.api.faults import Faults
from services.api.servicer import Backend, Servicer
from services.api.v1.specs import Specs
from services.api.validation import JobValidator, clamp_max_failures, clamp_pod, secret_fault, secret_pod_fault
from services.storage.jobs.job_streams import JobStream, stream_rows

log = logging.getLogger(__name__)

STREAMS_MAX = 4
"""Maximum number of open streams in one process; each holds one piece and its rows."""
PIECE_BYTES_MAX = 8 * 2**20
IDLE_S_MAX = 60.0
"""Longest pause between two pieces in seconds; a stream that pauses for longer is aborted."""
ABANDONED_S = 3 * IDLE_S_MAX
"""Age after which a stream that has not grown is considered abandoned."""
SWEEP_S = 15.0


class BulkService(Servicer):
    def __init__(self, backend: Backend, specs: Specs) -> None:
        super().__init__(backend)
        self._specs = specs
        self._open = 0
        self._discards: set[asyncio.Task[None]] = set()
        self._sweeper = asyncio.create_task(self._sweep(), name="sweep of abandoned streams")

    async def close(self) -> None:
        self._sweeper.cancel()
        await asyncio.gather(self._sweeper, *self._discards, return_exceptions=True)

    async def CreateJob(self, pieces: AsyncIterator[bulk_pb2.CreateJobRequest], context: Any) -> job_pb2.CreateResponse:
        if self._open >= STREAMS_MAX:
            raise make_overloaded("streams", f"{STREAMS_MAX} jobs are being created by streams, the limit")
        self._open += 1
        try:
            return await self._create(pieces, context)
        finally:
            self._open -= 1

    async def _create(self, pieces: AsyncIterator[bulk_pb2.CreateJobRequest], context: Any) -> job_pb2.CreateResponse:
        piece = await _next(pieces)
        if piece is None or piece.WhichOneof("piece") != "start":
            raise InvalidArgument("the first message of a stream has to be its start")
        start = piece.start
        try:
            job_id = parse_job_id(start.id.value) if start.id.value else new_job_id()
        except ValueError:
            refusal = job_pb2.CreateResponse()
            refusal.error.invalidJobId.id.CopyFrom(start.id)
            refusal.error.invalidJobId.message = "JobID must be valid UUID"
            return refusal
        validator = await self._create_validator(start.config)
        if isinstance(validator, str):
            return _refuse(job_id, validator)
        try:
            stream = await self._calls.run(self._records.job_streams.begin, job_id)
        except AlreadyExists as exists:
            return await self._exists(job_id, exists)
        try:
            return await self._fill(StreamedJob(stream, start.config, validator), pieces, context)
        except AlreadyExists as exists:
            return await self._exists(job_id, exists)
        finally:
            # A commit leaves nothing to discard; before it, every error discards the stream.
            task = asyncio.create_task(self._discard(stream))
            self._discards.add(task)
            task.add_done_callback(self._discards.discard)
            await asyncio.shield(task)

    async def _discard(self, stream: JobStream) -> None:
        try:
            await self._calls.run(self._records.job_streams.discard, stream)
        except Exception as error:  # it must not hide the error of the call
            log.warning("stream of job %s not discarded, the sweep retries: %s", stream.job_id, error)

    async def _create_validator(self, config: job_pb2.JobConfig) -> JobValidator | str:
        """Return a validator, or the reason why the job is rejected whatever its instances are."""
        if config.instanceConfig:
            raise InvalidArgument(
                f"the start of a stream carries {len(config.instanceConfig)} instance configs; they follow it"
            )
        bounds = await self._specs.pool_bounds(config.respoolID.value)
        if isinstance(bounds, str):
            return bounds
        validator = JobValidator(config, bounds)
        if validator.is_blocked:
            return validator.finish().message()
        if fault := secret_fault(config, is_new=True):
            raise InvalidArgument(fault)
        clamp_max_failures(config)
        return validator

    async def _fill(
        self, job: StreamedJob, pieces: AsyncIterator[bulk_pb2.CreateJobRequest], context: Any
    ) -> job_pb2.CreateResponse:
        stream = job.stream
        while (piece := await _next(pieces)) is not None:
            match piece.WhichOneof("piece"):
                case "instances":
                    # Not counted as a write in flight: STREAMS_MAX pieces bound these bytes.
                    rows = await self._calls.run(job.take, piece.instances)
                    if job.faults:
                        return _refuse(stream.job_id, job.faults.message())
                    await self._calls.run(self._records.job_streams.add, stream, rows)
                case "commit":
                    job.check_complete(piece.commit)
                    if faults := job.validator.finish():
                        return _refuse(stream.job_id, faults.message())
                    check_wanted(context)
                    return await self._calls.finish(partial(self._commit, job))
                case kind:
                    raise InvalidArgument(f"a message of a stream holds {kind or 'nothing'}, want instances or commit")
        raise Aborted(f"the stream of job {stream.job_id} ended without its commit; nothing is kept")

    async def _commit(self, job: StreamedJob) -> job_pb2.CreateResponse:
        job_id, config, now_ns = job.stream.job_id, job.config, time.time_ns()
        config.changeLog.CopyFrom(peloton_pb2.ChangeLog(version=1, createdAt=now_ns, updatedAt=now_ns))
        record = convert.new_job_record(job_id, config, now_ns, name_creator())
        if job.first_is_controller is not None:
            record = replace(record, has_controller=job.first_is_controller)
        async with self._quota.creating(record):
            await self._calls.run(self._records.job_streams.commit, job.stream, record, config, now_ns)
        await self._wake.start(job_id)
        return job_pb2.CreateResponse(jobId=peloton_pb2.JobID(value=job_id))

    async def _exists(self, job_id: JobId, exists: AlreadyExists) -> job_pb2.CreateResponse:
        await self._ensure_workflow(job_id)
        response = job_pb2.CreateResponse()
        response.error.alreadyExists.id.value = job_id
        response.error.alreadyExists.message = exists.message
        return response

    async def _sweep(self) -> None:
        while True:
            try:
                before_ns = time.time_ns() - int(ABANDONED_S * 1e9)
                discarded_count = await self._calls.run(self._records.job_streams.discard_older, before_ns)
                if discarded_count:
                    log.info("discarded %d abandoned streams of job creations", discarded_count)
            except Exception as error:  # storage is unavailable: the next sweep retries
                log.warning("abandoned streams of job creations not discarded, retrying: %s", error)
            await asyncio.sleep(SWEEP_S)


class StreamedJob:
    """Job that is created by a stream: the pieces received so far. For one call at a time."""

    def __init__(self, stream: JobStream, config: job_pb2.JobConfig, validator: JobValidator) -> None:
        self.stream = stream
        self.config = config
        self.validator = validator
        self.first_is_controller: bool | None = None  # None: instance 0 has no config of its own
        self._rows = stream_rows(stream.job_id, config)
        self._next_instance = 0
        self._count = 0

    @property
    def faults(self) -> Faults:
        """Return the faults of the pieces received so far."""
        return self.validator.faults_of_instances

    def take(self, piece: bulk_pb2.InstanceConfigs) -> Sequence[dict[str, Any]]:
        """Return the rows to store, unless there are faults. Raises InvalidArgument."""
        size_bytes = piece.ByteSize()
        if size_bytes > PIECE_BYTES_MAX:
            raise InvalidArgument(f"a message of a stream has {size_bytes} bytes, the limit is {PIECE_BYTES_MAX}")
        if piece.first < self._next_instance:
            raise InvalidArgument(
                f"configs from instance {piece.first} on follow that of instance {self._next_instance - 1}: "
                f"they have to rise"
            )
        rows = []
        for instance, config in enumerate(piece.configs, piece.first):
            if fault := secret_pod_fault(config):
                raise InvalidArgument(f"instance {instance}: {fault}")
            clamp_pod(config)
            self.validator.add(instance, config)
            if not self.faults:
                rows.append(self._rows.row(instance, config))
            if instance == 0:
                self.first_is_controller = config.controller and self.config.type == job_pb2.BATCH
        self._next_instance = piece.first + len(piece.configs)
        self._count += len(piece.configs)
        return rows

    def check_complete(self, commit: bulk_pb2.Commit) -> None:
        if commit.config_count != self._count:
            raise InvalidArgument(
                f"the commit is of {commit.config_count} instance configs, {self._count} have come; nothing is kept"
            )


async def _next(pieces: AsyncIterator[bulk_pb2.CreateJobRequest]) -> bulk_pb2.CreateJobRequest | None:
    """Return the next piece, None at the end. Raises Aborted after IDLE_S_MAX without a piece."""
    try:
        async with asyncio.timeout(IDLE_S_MAX):
            return await anext(pieces, None)
    except TimeoutError as error:
        raise Aborted(f"nothing came for {IDLE_S_MAX:g} s; nothing is kept") from error


def _refuse(job_id: JobId, text: str) -> job_pb2.CreateResponse:
    response = job_pb2.CreateResponse()
    response.error.invalidConfig.id.value = job_id
    response.error.invalidConfig.message = text
    return response
