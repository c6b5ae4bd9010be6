"""What is wrong now, in words for people who run the installation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """Values are the numbers of the wire."""

    WARNING = 1  # somebody should look at it today
    CRITICAL = 2  # work stands still, or data is in danger


class SubjectKind(IntEnum):
    """Values are the numbers of the wire."""

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
    since_ns: int = 0  # unix nanoseconds; 0 = it is not known
    command: str = ""  # which says more
