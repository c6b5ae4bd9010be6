"""v1alpha JobService."""

from __future__ import annotations

from services.api.calls import Calls
from services.api.pending_reasons import PendingReasons
from services.api.v1.job_reads import JobReads
from services.api.v1.job_writes import JobWrites
from services.api.v1.specs import Specs
from services.api.wake import Wake
from services.storage.storage import Storage


class JobService(JobWrites, JobReads):
    def __init__(self, records: Storage, calls: Calls, specs: Specs, wake: Wake, reasons: PendingReasons) -> None:
        JobWrites.__init__(self, records, calls, specs, wake)
        JobReads.__init__(self, records, calls, specs, reasons)
