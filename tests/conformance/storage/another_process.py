"""The work of a second process in tests of races. It imports little, since each such process loads this module."""

from __future__ import annotations

from collections.abc import Iterable

from peloton.model.ids import JobId, PodId
from peloton.model.pod import PodState, PodStatus
from services.storage.storage import Storage


def report_success(url: str, job_id: JobId, instances: Iterable[int], now_ns: int) -> None:
    """Report the first run of each instance as succeeded, one after the other."""
    storage = Storage(url)
    for instance in instances:
        storage.host_pods.apply_status([PodStatus(PodId(job_id, instance, 1), PodState.SUCCEEDED, now_ns)], "cluster")
    storage.close()
