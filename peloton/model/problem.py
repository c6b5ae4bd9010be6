"""Current problems of the installation, in words for its operators."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """Severity of a problem. Values are the numbers of the wire."""

    WARNING = 1  # an operator should look at it today
    CRITICAL = 2  # work is blocked, or data is in danger


class SubjectKind(IntEnum):
    """Kind of the object with the problem. Values are the numbers of the wire."""

    ROLE = 1
    CLUSTER = 2
    HOST = 3
    POOL = 4
    JOB = 5
    COMPONENT = 6


@dataclass(frozen=True, slots=True)
class Problem:
    severity: Severity
    text: str
    subject_kind: SubjectKind
    subject_id: str
    cluster: str = ""
    since_ns: int = 0  # unix nanoseconds; 0 = unknown
    command: str = ""  # command that shows more
