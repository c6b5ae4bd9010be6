"""Volumes of stateful services: placement of their pods, observed state, and deletion."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from peloton.lifecycle.constraints import HOSTNAME_LABEL
from peloton.model.host import CLUSTER_LABEL
from peloton.model.pod import (
    ENDING_GOALS,
    ON_HOST,
    TERMINAL,
    AllOf,
    Constraint,
    HostLabel,
    PodRecord,
    PodShape,
    ShapeRange,
)
from peloton.model.resources import Resources
from peloton.model.times import NS_PER_S
from peloton.model.volume import HERE, VOLUME_LABEL, VolumeRecord, VolumeState

LISTING_LAG_S = 30.0
"""Maximum age in seconds of a cluster's list of a host: a volume counts as missing only if it is older."""


def volume_label(volume_id: str) -> str:
    """Return the key of the label of a host that has the volume."""
    return VOLUME_LABEL + volume_id


def at_its_volume(shape: PodShape, volume: VolumeRecord | None) -> PodShape:
    """Return the shape for placement. A pod whose volume is created with its launch needs the disk for it; a pod with a
    volume runs only on the volume's host, while the volume is wanted."""
    if not shape.volume_mib:
        return shape
    needs_disk = volume is None or volume.state is VolumeState.INITIALIZED
    made_mib = shape.volume_mib if needs_disk else 0
    placed = replace(shape, resources=shape.resources + Resources(disk_mib=made_mib), volume_mib=made_mib)
    if volume is None or not volume.is_bound:
        return placed
    place = [HostLabel(CLUSTER_LABEL, volume.cluster), HostLabel(HOSTNAME_LABEL, volume.host)]
    if not needs_disk:
        place.append(HostLabel(volume_label(volume.volume_id), HERE))
    own = shape.constraint
    rest: tuple[Constraint, ...] = () if own is None else own.constraints if isinstance(own, AllOf) else (own,)
    return replace(placed, constraint=AllOf((*place, *rest)))


def without_volumes(shapes: Sequence[ShapeRange], retained: Collection[int]) -> list[ShapeRange]:
    """Return the shapes for admission: volumes of ``retained`` instances count already and are not requested again."""
    found: list[ShapeRange] = []
    for each in shapes:
        if not each.shape.volume_mib:
            found.append(each)
            continue
        has_volume = [instance in retained for instance in range(each.start, each.start + each.count)]
        start = each.start
        for is_retained, group in groupby(has_volume):
            count = len(list(group))
            found.append(ShapeRange(start, count, replace(each.shape, volume_mib=0) if is_retained else each.shape))
            start += count
    return found


@dataclass(frozen=True, slots=True)
class HostSight:
    """State of a host in the list of its cluster. ``volumes``: Peloton-managed volumes on it, None if unknown."""

    volumes: Collection[str] | None
    begun: Collection[str] = ()  # volumes partly created or destroyed
    is_registered: bool = True
    is_in_maintenance: bool = False


def while_it_restarts(host: HostSight, away_s: float, restart_s: float) -> HostSight:
    """Return the host with unknown volumes if it has been gone for less than the time of a restart."""
    return host if host.is_registered or away_s >= restart_s else replace(host, is_registered=True)


def observe(volume: VolumeRecord, host: HostSight, now_ns: int) -> tuple[VolumeState, str]:
    """Return the state of the volume according to its cluster's list, with the note for a pod that waits for it."""
    if host.volumes is not None and volume.volume_id in host.volumes:
        return VolumeState.CREATED, ""
    is_settled = now_ns - volume.changed_ns >= LISTING_LAG_S * NS_PER_S or volume.state is VolumeState.LOST
    if not is_settled or (host.is_in_maintenance and volume.state is not VolumeState.LOST):
        return volume.state, volume.note
    if not host.is_registered:
        note = f"host {volume.host} is not in cluster {volume.cluster}"
        if volume.state is VolumeState.INITIALIZED and volume.is_wanted:
            return volume.state, f"{note}; no pod has run with it, and whether the host has made it is not known"
        return VolumeState.LOST, note
    if volume.state is VolumeState.INITIALIZED:
        return volume.state, ""  # its creation may be under way
    if host.volumes is None:
        return volume.state, volume.note
    return VolumeState.LOST, f"host {volume.host} is registered and no longer has it"


def is_claimed(volume: VolumeRecord) -> bool:
    """Return whether the volume has a chosen host, and may or may not exist there."""
    return volume.state is VolumeState.INITIALIZED and volume.is_wanted and volume.is_bound


def is_unmade(volume: VolumeRecord, host: HostSight, pod: PodRecord | None) -> bool:
    """Return whether nothing shows that the volume was created: no pod has run with it, its host does not list it, and
    the launch that would create it is over. ``pod``: current pod of its instance, or None. The result is certain if it
    is the same again after LISTING_LAG_S with the same ``last_run``, since the list is then newer than the end of that
    run."""
    if not is_claimed(volume) or host.volumes is None or volume.volume_id in host.volumes:
        return False
    return host.is_registered and (pod is None or pod.state not in ON_HOST)


def last_run(pod: PodRecord | None) -> int:
    """Return the last run that may have been on a host, for a pod that is on none."""
    if pod is None:
        return 0
    return pod.run_id if pod.state in TERMINAL else pod.prev_run_id


def is_destroyed(volume: VolumeRecord, host: HostSight, now_ns: int, was_listed: bool = False) -> bool:
    """Return whether a volume that is being deleted, and that its host does not list, is destroyed. ``was_listed``: by
    an earlier list, so that the current list is newer than the creation of the volume."""
    is_news = was_listed or now_ns - volume.changed_ns >= LISTING_LAG_S * NS_PER_S
    return host.is_registered and host.volumes is not None and is_news


def deletion_refusal(volume: VolumeRecord, pod: PodRecord | None, is_job_over: bool, gives_up: bool) -> str:
    """Return why the volume may not be deleted, or "". ``pod``: current pod of its instance, or None; ``gives_up``: a
    pod that waits for the volume may continue without its data."""
    if not volume.is_wanted or pod is None:
        return ""
    who = f"volume {volume.volume_id} of {volume.size_mib} MB on host {volume.host}"
    if pod.state in ON_HOST:
        return f"{who} is in use: pod {pod.pod_id} is {pod.state.value} on host {pod.host}; stop it first"
    if gives_up or is_job_over or pod.goal in ENDING_GOALS:
        return ""
    return (
        f"{who} is in use: pod {pod.pod_id} is {pod.state.value} and comes back to it; stop it first, or give the "
        "volume up, and the pod begins with an empty one"
    )


def waiting_text(volume: VolumeRecord, since: str) -> str:
    """Describe why a pod does not run whose volume is lost or was never confirmed."""
    what = f"volume {volume.volume_id} of {volume.size_mib} MB is {volume.state} since {since}"
    return f"{what}: {volume.note}; the pod waits until it is back or given up"
