"""The volumes of one cluster: which are there, which are lost, and which its hosts have yet to destroy.

Rows say what is wanted, hosts list what there is; a look compares the two. Nothing is remembered that the next leader
would miss, but for runs whose volume is being made: a look finds those as well, a little later."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from peloton.lifecycle.volumes import HostSight, is_destroyed, observed
from peloton.model.ids import JobId, PodId
from peloton.model.pod import TERMINAL, PodState, PodStatus
from peloton.model.volume import VolumeRecord, VolumeState
from peloton.ports import PodLifecycles
from services.hostmgr.driver import ClusterDriver
from services.hostmgr.hosts.host_book import HostBook
from services.storage.volumes.volumes import VOLUMES_PER_PAGE, Volumes

log = logging.getLogger(__name__)

LOOK_PERIOD_S = 5.0
BEING_MADE_MAX = 10_000
"""Beyond it the oldest are left to a look."""


class VolumeKeeper:
    def __init__(
        self, volumes: Volumes, cluster: str, book: HostBook, driver: ClusterDriver, lifecycles: PodLifecycles
    ) -> None:
        self._volumes = volumes
        self._cluster = cluster
        self._book, self._driver, self._lifecycles = book, driver, lifecycles
        self._looked_s = float("-inf")
        self._being_made: OrderedDict[PodId, str] = OrderedDict()
        self._leaving: set[str] = set()  # volumes to be deleted that their hosts had at the last look

    def of_launch(self, job_id: JobId, runs: Sequence[tuple[int, int]]) -> dict[int, VolumeRecord]:
        """By instance, the volumes that these runs, ``(instance, run)``, are launched with."""
        found = self._volumes.of_instances(job_id, [instance for instance, _ in runs])
        for instance, run in runs:
            if instance in found and found[instance].state is VolumeState.INITIALIZED:
                self._being_made[PodId(job_id, instance, run)] = found[instance].volume_id
                while len(self._being_made) > BEING_MADE_MAX:
                    self._being_made.popitem(last=False)
        return found

    def committed(self, statuses: Sequence[PodStatus]) -> None:
        """A run that runs has its volume."""
        made: dict[str, tuple[VolumeState, str]] = {}
        for status in statuses:
            if status.pod_id not in self._being_made:
                continue
            if status.state is PodState.RUNNING:
                made[self._being_made.pop(status.pod_id)] = (VolumeState.CREATED, "")
            elif status.state in TERMINAL:
                del self._being_made[status.pod_id]
        self._volumes.note(made, time.time_ns())

    def tend(self) -> None:
        """Compares rows with hosts, every few seconds. Raises what storage does."""
        if not self._driver.capabilities.keeps_volumes or not self._book.are_hosts_known:
            return
        if time.monotonic() - self._looked_s < LOOK_PERIOD_S:
            return
        self._looked_s = time.monotonic()
        leaving: set[str] = set()
        for page in self._pages():
            self._look(page, time.time_ns())
            leaving |= {volume.volume_id for volume in page if not volume.is_wanted} & self._leaving
        self._leaving = leaving

    def _pages(self) -> Iterator[list[VolumeRecord]]:
        page = self._volumes.page(cluster=self._cluster)
        while page:
            yield page
            page = (
                self._volumes.page(page[-1].volume_id, cluster=self._cluster) if len(page) == VOLUMES_PER_PAGE else []
            )

    def _look(self, volumes: Sequence[VolumeRecord], now_ns: int) -> None:
        sights = self._book.sights({volume.host for volume in volumes})
        states: dict[str, tuple[VolumeState, str]] = {}
        gone: list[str] = []
        changed: set[JobId] = set()
        for volume in volumes:
            host = sights[volume.host]
            state, note = observed(volume, host, now_ns)
            if not volume.is_wanted:
                if self._is_gone(volume, host, now_ns):
                    gone.append(volume.volume_id)
                    continue
                note = self._undestroyed(volume, host) or note
            if (state, note) == (volume.state, volume.note):
                continue
            states[volume.volume_id] = state, note
            log.warning("volume %s of %s on %s is %s %s", volume.volume_id, volume.pod_name, volume.host, state, note)
            if state is not volume.state:
                changed.add(volume.job_id)
        self._volumes.note(states, now_ns)
        self._volumes.destroyed(gone)
        self._lifecycles.jobs_changed(sorted(changed), "volumes were found or lost")

    def _is_gone(self, volume: VolumeRecord, host: HostSight, now_ns: int) -> bool:
        """Whether the host has destroyed it."""
        if _is_listed(volume, host):
            self._leaving.add(volume.volume_id)
            return False
        return is_destroyed(volume, host, now_ns, volume.volume_id in self._leaving)

    def _undestroyed(self, volume: VolumeRecord, host: HostSight) -> str:
        """Has the host destroy it while it lists it. Returns why it does not."""
        if not _is_listed(volume, host):
            return ""
        try:
            self._driver.destroy_volume(volume)
            log.info("volume %s of %s on %s is being destroyed", volume.volume_id, volume.pod_name, volume.host)
        except OSError as error:
            return f"not destroyed yet: {error}"
        return ""


def _is_listed(volume: VolumeRecord, host: HostSight) -> bool:
    """Whole, or a part of it."""
    return volume.volume_id in (host.volumes or ()) or volume.volume_id in host.begun
