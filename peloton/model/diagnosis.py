"""Results of the checks of a control plane."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class CheckResult(IntEnum):
    """The numbers are those of the wire."""

    OK = 1
    WARN = 2
    FAIL = 3


@dataclass(frozen=True)
class Check:
    """One check. ``advice`` says what to do, and is empty where nothing has to be done."""

    name: str
    result: CheckResult
    text: str
    advice: str = ""
