"""Entity versions, which a write must name: read first when the command does not give one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from cli.errors import Failed
from cli.settings import Settings
from cli.wire import v1
from peloton.api.error_details import reason_of
from peloton.errors import Reason

CONFLICTS = (Reason.VERSION_CONFLICT, "")
"""Reasons of ABORTED that tell to read the version again; servers up to 0.1 give none."""
ATTEMPTS_MAX = 5
Answer = TypeVar("Answer")


@dataclass
class Service:
    """A job of v1alpha. ``job`` is read once, at its first use."""

    settings: Settings
    job_id: str

    @property
    def id(self) -> v1.peloton.JobID:
        return v1.peloton.JobID(value=self.job_id)

    @cached_property
    def job(self) -> v1.job_svc.GetJobResponse:
        return self.read()

    def read(self, version: str = "") -> v1.job_svc.GetJobResponse:
        """Return the present job, or, with its spec alone, the one at ``version``."""
        request = v1.job_svc.GetJobRequest(job_id=self.id)
        if version:
            request.version.value = version
        return self.settings.client.services.GetJob(request)

    @property
    def version(self) -> str:
        """Return the version of ``job``."""
        version = self.job.job_info.status.version.value
        if not version:
            raise Failed(f"job {self.job_id} has no entity version")
        return version

    def write(self, version: str, call: Callable[[Any], Answer], request: Any) -> Answer:
        """Call with ``version``, otherwise with the current one, which is read again when another change came
        between."""
        import grpc

        for attempt in range(1, ATTEMPTS_MAX + 1):
            request.version.value = version or self.version
            try:
                return call(request)
            except grpc.RpcError as error:
                is_stale = error.code() is grpc.StatusCode.ABORTED and reason_of(error) in CONFLICTS
                if is_stale and version:
                    raise Failed(f"{error.details()} (ABORTED): the service is at {self.version}") from error
                if not is_stale or attempt == ATTEMPTS_MAX:
                    raise
                self.__dict__.pop("job", None)
        raise AssertionError("the last attempt returns or raises")


def opaque_data(text: str | None) -> v1.peloton.OpaqueData | None:
    """Return the message; None keeps the present data, an empty text clears it."""
    return None if text is None else v1.peloton.OpaqueData(data=text)


def config_version(version: str) -> int:
    """Return the first part of an entity version; 0 if it is not one."""
    first = version.partition("-")[0]
    return int(first) if first.isascii() and first.isdigit() else 0
