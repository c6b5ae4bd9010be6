"""External pods, created by other controllers and scheduled by Peloton: their observed state and their instances.

An external pod has an instance of its owner's job while it exists; the next pod of the same owner reuses the instance
as its next run.
"""

from __future__ import annotations

from dataclasses import dataclass

from peloton.model.ids import JobId
from peloton.model.pod import ON_HOST, TERMINAL, PodState


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """An external pod as observed in its cluster."""

    uid: str
    job_id: JobId  # job of its owner
    waits: bool  # has no host and needs one; otherwise it has a host, has ended or is leaving


@dataclass(frozen=True, slots=True)
class Slot:
    """The instance of an external pod."""

    uid: str
    job_id: JobId
    instance_id: int
    state: PodState | None  # None: the job was deleted
    runs_again: bool = False  # the pod has ended and will have another run
    note: str = ""  # why the pod makes no progress, if only its cluster can say

    @property
    def is_at_rest(self) -> bool:
        return self.state is None or (self.state in TERMINAL and not self.runs_again)

    @property
    def is_on_host(self) -> bool:
        return self.state in ON_HOST
