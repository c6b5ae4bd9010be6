"""Persistent volumes: disk on a host that outlives the pods of its instance."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from peloton.model.ids import JobId

VOLUME_LABEL = "peloton/volume/"
"""Label ``peloton/volume/ID=here``, which a host has for each Peloton-managed volume on it."""
HERE = "here"


class VolumeState(StrEnum):
    """State of a volume. Values are the wire spelling of v0 VolumeState."""

    INITIALIZED = "INITIALIZED"  # no pod has used it yet; its host, if chosen, may have created it
    CREATED = "CREATED"  # it exists on its host
    LOST = "LOST"  # its host no longer has it, or is gone; it may be found again
    DELETED = "DELETED"  # goal only: the row is deleted when the host has destroyed it


@dataclass(frozen=True, slots=True)
class VolumeSpec:
    """A volume requested by a pod."""

    container_path: str  # relative to the sandbox
    size_mib: int


@dataclass(frozen=True, slots=True)
class RetainedVolume:
    """A volume that counts against its pool without a run: no admitted run accounts for it."""

    job_id: JobId
    instance_id: int
    respool_id: str
    size_mib: int
    is_wanted: bool  # used by its instance, whose next runs are admitted without it


@dataclass(frozen=True, slots=True)
class VolumeRecord:
    """A volume of an instance. ``run_id``: the run that was admitted with it. ``respool_id``: the pool that its disk
    counts against. Without a host the next launch chooses one."""

    volume_id: str
    job_id: JobId
    instance_id: int
    run_id: int
    respool_id: str
    cluster: str
    host: str
    container_path: str
    size_mib: int
    state: VolumeState
    goal: VolumeState = VolumeState.CREATED
    note: str = ""  # why its pod waits or why it is not destroyed yet, from the last check
    created_ns: int = 0
    changed_ns: int = 0  # time of the last change of state or goal

    @property
    def is_wanted(self) -> bool:
        return self.goal is not VolumeState.DELETED

    @property
    def is_bound(self) -> bool:
        """True if a host is chosen, which the pod must use."""
        return self.host != ""

    @property
    def pod_name(self) -> str:
        return f"{self.job_id}-{self.instance_id}"
