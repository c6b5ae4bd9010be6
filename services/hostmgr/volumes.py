"""Reconciles the volumes of one cluster with its hosts: finds new and lost volumes, and destroys deleted ones.

Rows of storage are the desired volumes, hosts list the existing ones, and each pass compares both. A new leader lacks
only the times since which volumes and hosts have been missing, so that it waits for the full timeouts again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence

from peloton.lifecycle.volumes import (
    LISTING_LAG_S,
    HostSight,
    is_destroyed,
    is_unmade,
    last_run,
    observe,
    while_it_restarts,
)
from peloton.model.ids import JobId
from peloton.model.volume import VolumeRecord, VolumeState
from peloton.ports import PodLifecycles
from services.hostmgr.driver import ClusterDriver
from services.hostmgr.hosts.host_cache import HostCache
from services.storage.volumes.volumes import VOLUMES_PER_PAGE, Volumes

log = logging.getLogger(__name__)

POLL_PERIOD_S = 5.0


class VolumeController:
    def __init__(
        self, volumes: Volumes, cluster: str, cache: HostCache, driver: ClusterDriver, lifecycles: PodLifecycles
    ) -> None:
        self._volumes = volumes
        self._cluster = cluster
        self._cache, self._driver, self._lifecycles = cache, driver, lifecycles
        self._polled_s = float("-inf")
        self._uncreated: dict[
            str, tuple[int, float]
        ] = {}  # volume -> last run of its pod, time of the first pass without it
        self._unavailable_since_s: dict[str, float] = {}  # hosts of volumes that the cluster does not list
        self._leaving: set[str] = set()  # deleted volumes that their hosts listed in the last pass

    def run_periodic(self) -> None:
        """Compare rows with hosts, at most every POLL_PERIOD_S. Raises errors of storage."""
        if not self._driver.capabilities.keeps_volumes or not self._cache.are_hosts_known:
            return
        if time.monotonic() - self._polled_s < POLL_PERIOD_S:
            return
        self._polled_s = time.monotonic()
        leaving: set[str] = set()
        uncreated: set[str] = set()
        hosts: set[str] = set()
        for page in self._pages():
            self._poll(page, time.time_ns())
            hosts |= {volume.host for volume in page}
            leaving |= {volume.volume_id for volume in page if not volume.is_wanted} & self._leaving
            uncreated |= {volume.volume_id for volume in page} & self._uncreated.keys()
        self._leaving = leaving
        self._unavailable_since_s = {
            host: since_s for host, since_s in self._unavailable_since_s.items() if host in hosts
        }
        self._uncreated = {volume_id: self._uncreated[volume_id] for volume_id in uncreated}

    def _pages(self) -> Iterator[list[VolumeRecord]]:
        page = self._volumes.page(cluster=self._cluster)
        while page:
            yield page
            page = (
                self._volumes.page(page[-1].volume_id, cluster=self._cluster) if len(page) == VOLUMES_PER_PAGE else []
            )

    def _poll(self, volumes: Sequence[VolumeRecord], now_ns: int) -> None:
        sights = self._read_sights({volume.host for volume in volumes})
        states: dict[str, tuple[VolumeState, str]] = {}
        gone: list[str] = []
        changed: set[JobId] = set()
        for volume in volumes:
            host = sights[volume.host]
            state, note = observe(volume, host, now_ns)
            if not volume.is_wanted:
                if self._is_destroyed_on(volume, host, now_ns):
                    gone.append(volume.volume_id)
                    continue
                note = self._destroy_listed(volume, host) or note
            if (state, note) == (volume.state, volume.note):
                continue
            states[volume.volume_id] = state, note
            level = logging.WARNING if state is VolumeState.LOST else logging.INFO
            name = f"{volume.volume_id} of {volume.pod_name} on {volume.host}"
            log.log(level, "volume %s is %s %s", name, state, note)
            if state is not volume.state:
                changed.add(volume.job_id)
        self._volumes.note(states, now_ns)
        self._volumes.delete_destroyed(gone)
        changed |= self._release_uncreated(volumes, sights, now_ns)
        self._lifecycles.jobs_changed(sorted(changed), "volumes were found or lost")

    def _read_sights(self, hostnames: Collection[str]) -> dict[str, HostSight]:
        """Return what each host lists. A host that may be restarting counts as one that has not listed its volumes
        yet."""
        found = self._cache.sights(hostnames)
        now_s, restart_s = time.monotonic(), self._driver.capabilities.restart_s
        for hostname, sight in found.items():
            if sight.is_registered or sight.is_in_maintenance:  # a host also restarts after a maintenance
                self._unavailable_since_s.pop(hostname, None)
            else:
                missing_s = now_s - self._unavailable_since_s.setdefault(hostname, now_s)
                found[hostname] = while_it_restarts(sight, missing_s, restart_s)
        return found

    def _release_uncreated(
        self, volumes: Sequence[VolumeRecord], sights: Mapping[str, HostSight], now_ns: int
    ) -> set[JobId]:
        """Release instances from the host on which their volume was never created, so that any host may take them.
        Return their jobs."""
        claimed = [volume for volume in volumes if is_unmade(volume, sights[volume.host], None)]
        pods = self._volumes.pods_of(claimed)
        changed: set[JobId] = set()
        for volume in claimed:
            volume_id, pod = volume.volume_id, pods.get(volume.volume_id)
            if not is_unmade(volume, sights[volume.host], pod):
                self._uncreated.pop(volume_id, None)
                continue
            run = last_run(pod)
            if self._uncreated.get(volume_id, (None, 0.0))[0] != run:
                self._uncreated[volume_id] = run, time.monotonic()
            if time.monotonic() - self._uncreated[volume_id][1] < LISTING_LAG_S:
                continue
            del self._uncreated[volume_id]
            is_begun = volume_id in sights[volume.host].begun
            if self._volumes.let_go(volume, run, is_begun, now_ns):
                log.warning(
                    "volume %s was never created on %s: %s may be placed on any host",
                    volume_id,
                    volume.host,
                    volume.pod_name,
                )
                changed.add(volume.job_id)
        return changed

    def _is_destroyed_on(self, volume: VolumeRecord, host: HostSight, now_ns: int) -> bool:
        """Return whether the host has destroyed the volume."""
        if _is_listed(volume, host):
            self._leaving.add(volume.volume_id)
            return False
        return is_destroyed(volume, host, now_ns, volume.volume_id in self._leaving)

    def _destroy_listed(self, volume: VolumeRecord, host: HostSight) -> str:
        """Destroy the volume if its host still lists it. Return the error, or ""."""
        if not _is_listed(volume, host):
            return ""
        try:
            self._driver.destroy_volume(volume)
            log.info("volume %s of %s on %s is being destroyed", volume.volume_id, volume.pod_name, volume.host)
        except OSError as error:
            return f"could not be destroyed yet: {error}"
        return ""


def _is_listed(volume: VolumeRecord, host: HostSight) -> bool:
    """Return whether the host lists the volume, complete or in creation."""
    return volume.volume_id in (host.volumes or ()) or volume.volume_id in host.begun
