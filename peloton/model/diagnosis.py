"""Results of the checks of a control plane."""

from __future__ import annotations

from collections.abc import Mapping
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


@dataclass(frozen=True)
class ProcessRecord:
    """Process with a database. ``settings`` are values, none of them secret, that all processes must agree on."""

    process_id: str
    role: str
    version: str
    settings: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.role} {self.process_id}"
