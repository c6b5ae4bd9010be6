"""Persistent volumes: disk on a host that outlives the pods of its instance."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from peloton.model.ids import JobId

VOLUME_LABEL = "peloton/volume/"
"""A host has the label ``peloton/volume/ID=here`` for each volume that it keeps for us."""
HERE = "here"


class VolumeState(StrEnum):
    """Values are the wire spelling of v0 VolumeState."""

    INITIALIZED = "INITIALIZED"  # no pod has run with it; its host, if one is chosen, may have made it
    CREATED = "CREATED"  # its host has it
    LOST = "LOST"  # its host has had it, and is gone or has it no more; it may come back
    DELETED = "DELETED"  # only as a goal: the row goes when the host has destroyed it


@dataclass(frozen=True, slots=True)
class VolumeSpec:
    """What a pod asks for."""

    container_path: str  # relative to the sandbox
    size_mib: int


@dataclass(frozen=True, slots=True)
class StandingVolume:
    """A volume that counts by itself: no run holds it as what it was admitted with."""

    job_id: JobId
    instance_id: int
    respool_id: str
    size_mib: int
    is_wanted: bool  # by its instance, whose next runs are admitted without it


@dataclass(frozen=True, slots=True)
class VolumeRecord:
    """A volume of an instance. ``run_id``: the run that was admitted with it. ``respool_id``: the pool that its disk
    counts against. Without a host its next launch chooses one."""

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
    note: str = ""  # why its pod waits for it, or why it is not destroyed yet, by the last look
    created_ns: int = 0
    changed_ns: int = 0  # when its state or goal last changed

    @property
    def is_wanted(self) -> bool:
        return self.goal is not VolumeState.DELETED

    @property
    def is_bound(self) -> bool:
        """A host is chosen, to which its pod goes."""
        return self.host != ""

    @property
    def pod_name(self) -> str:
        return f"{self.job_id}-{self.instance_id}"
