"""Volumes that a node keeps for Peloton: an annotation of the node for each, with its size and stage.

A pod's volume is a folder of the node. Kubernetes does not manage the folder, so the node's annotation records it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from peloton.model.resources import Resources
from peloton.model.volume import VolumeRecord, VolumeState

ANNOTATION = "peloton.io/volume-"
"""Prefix of the key; the id of the volume follows. The value is ``SIZEMi STAGE``."""
NOTHING = Resources()
_VALUE = re.compile(r"(\d{1,10})Mi (new|kept|gone|going)", re.ASCII)


class Stage(StrEnum):
    NEW = "new"  # no pod has been seen running with it: its folder may be missing
    KEPT = "kept"  # its folder exists; otherwise its data is lost
    GONE = "gone"  # its folder is missing and the volume lost, unless an operator restores it and marks it as kept
    GOING = "going"  # it is being destroyed


class NodeVolume(NamedTuple):
    size_mib: int
    stage: Stage

    def __str__(self) -> str:
        return f"{self.size_mib}Mi {self.stage}"


_REFUSALS = {
    Stage.NEW: "",
    Stage.KEPT: "",
    Stage.GONE: "{what} is gone from node {host}",
    Stage.GOING: "{what} is being destroyed",
}


def annotate(volume_id: str, volume: NodeVolume | None) -> dict[str, str | None]:
    """Return the volume's entry in a patch of the annotations; None removes it."""
    return {ANNOTATION + volume_id: None if volume is None else str(volume)}


def volumes_of(annotations: Mapping[str, str]) -> dict[str, NodeVolume]:
    """Return the volumes by id. Raises ValueError for a malformed one."""
    found: dict[str, NodeVolume] = {}
    for key, text in annotations.items():
        if key.startswith(ANNOTATION):
            if (match := _VALUE.fullmatch(text)) is None:
                raise ValueError(f"annotation {key}={text!r}: want SIZEMi new, kept, gone or going")
            found[key.removeprefix(ANNOTATION)] = NodeVolume(int(match[1]), Stage(match[2]))
    return found


def find_usable(volumes: Mapping[str, NodeVolume]) -> frozenset[str]:
    """Return the ids of the volumes that a pod can use."""
    return frozenset(volume_id for volume_id, volume in volumes.items() if volume.stage in (Stage.NEW, Stage.KEPT))


def disk(volumes: Mapping[str, NodeVolume], being_made: Mapping[str, int]) -> Resources:
    """Return the disk of all volumes. ``being_made`` has the sizes of volumes that the node does not show yet."""
    if not volumes and not being_made:
        return NOTHING
    sizes = {**being_made, **{volume_id: volume.size_mib for volume_id, volume in volumes.items()}}
    return Resources(disk_mib=sum(sizes.values()))


def refusal(volume: VolumeRecord, known: NodeVolume | None, is_being_made: bool, user: str, left_mib: int) -> str:
    """Return why a pod cannot use the volume on this node, or "". ``user`` is the pod that uses it. ``left_mib`` is
    the free disk after the pod's own."""
    what = f"volume {volume.volume_id} of {volume.size_mib} MB"
    if user:
        return f"{what} is in use: pod {user} has it"
    if known is not None:
        return _REFUSALS[known.stage].format(what=what, host=volume.host)
    if volume.state is not VolumeState.INITIALIZED:
        return f"{what} is not on node {volume.host}"
    if not is_being_made and left_mib < volume.size_mib:
        return f"node {volume.host} has {left_mib} MiB of disk left for the pod's {what}"
    return ""
