"""The reads of storage that a cycle of the resource manager makes before it plans."""

from __future__ import annotations

from collections.abc import Sequence

from peloton.model.volume import RetainedVolume
from services.resmgr.state import LogRow
from services.storage.admission.admission import Admission
from services.storage.storage import Storage


def read_log(admission: Admission, cursor: int, rows_max: int) -> list[LogRow]:
    """Return all rows of the status log after ``cursor``, read ``rows_max`` rows at a time."""
    rows: list[LogRow] = []
    while True:
        more = admission.status_log(rows[-1][0] if rows else cursor, rows_max)
        rows += more
        if len(more) < rows_max:
            return rows


def read_changes(records: Storage, cursor: int, rows_max: int) -> tuple[list[LogRow], Sequence[RetainedVolume]]:
    """Read the log, then the volumes: a volume had better count twice for a moment, with and without its run, than
    never."""
    return read_log(records.admission, cursor, rows_max), records.volumes.list_retained()
