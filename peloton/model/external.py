"""Pods that others make for us to place: what is seen of them in their cluster, and the instances that they have.

An external pod has an instance of its owner's job for as long as it lives; the next pod of that owner gets the instance
again, as its next run.
"""

from __future__ import annotations

from dataclasses import dataclass

from peloton.model.ids import JobId
from peloton.model.pod import ON_HOST, TERMINAL, PodState


@dataclass(frozen=True, slots=True)
class Sighting:
    """An external pod as its cluster has it now."""

    uid: str
    job_id: JobId  # of its owner
    waits: bool  # it has no host, and is to have one; else it has one, has ended or is leaving


@dataclass(frozen=True, slots=True)
class Slot:
    """The instance that an external pod has."""

    uid: str
    job_id: JobId
    instance_id: int
    state: PodState | None  # None: the job is gone
    runs_again: bool = False  # it has ended, and gets another run
    note: str = ""  # why the pod does not get on, as far as only its cluster knows

    @property
    def is_at_rest(self) -> bool:
        return self.state is None or (self.state in TERMINAL and not self.runs_again)

    @property
    def is_on_host(self) -> bool:
        return self.state in ON_HOST
