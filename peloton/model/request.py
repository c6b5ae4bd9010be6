"""Requests that people make of workflows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    """The object after the request was carried out; texts as on the wire."""

    state: str
    goal: str = ""  # of a job, or of a host in maintenance
    update_id: str = ""
    version: str = ""  # of the job, as v1alpha has it
