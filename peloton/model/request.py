"""Requests of clients to workflows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    """The object after the request was executed; texts as on the wire."""

    state: str
    goal: str = ""  # goal of a job, or of a host in maintenance
    update_id: str = ""
    version: str = ""  # version of the job in v1alpha
