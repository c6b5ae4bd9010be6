"""What a cycle of the resource manager reads of storage before it plans."""

from __future__ import annotations

from collections.abc import Sequence

from peloton.model.volume import StandingVolume
from services.resmgr.records import AdmissionRecords, LoopRecords
from services.resmgr.state import LogRow


def read_log(admission: AdmissionRecords, cursor: int, rows_max: int) -> list[LogRow]:
    """Everything that is in the status log behind ``cursor`` now, read ``rows_max`` rows at a time."""
    rows: list[LogRow] = []
    while True:
        more = admission.status_log(rows[-1][0] if rows else cursor, rows_max)
        rows += more
        if len(more) < rows_max:
            return rows


def look(records: LoopRecords, cursor: int, rows_max: int) -> tuple[list[LogRow], Sequence[StandingVolume]]:
    """The volumes after the log: a volume rather counts twice for a moment, with its run and by itself, than not at
    all."""
    return read_log(records.admission, cursor, rows_max), records.volumes.standing()
