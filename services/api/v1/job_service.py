"""v1alpha JobService: reads and writes of services."""

from __future__ import annotations

from services.api.servicer import Backend
from services.api.v1.job_reads import JobReads
from services.api.v1.job_writes import JobWrites
from services.api.v1.specs import Specs


class JobService(JobWrites, JobReads):
    def __init__(self, backend: Backend, specs: Specs) -> None:
        super().__init__(backend)
        self._specs = specs
