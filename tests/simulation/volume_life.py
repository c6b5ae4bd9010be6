"""Random lives of databases: hosts are lost and return, some with empty disks; host managers are replaced, launches are
lost, users restart, stop, start and give volumes up.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from peloton.api import convert
from peloton.api.v0.job import job_pb2
from peloton.errors import PelotonError
from peloton.lifecycle.volumes import is_claimed
from peloton.model.host import LaunchResult
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JobState
from peloton.model.resources import Resources
from peloton.model.update import UpdateSpec, UpdateType
from peloton.model.volume import VolumeRecord, VolumeState
from tests.conformance.storage.services import service_config
from tests.doubles.hostmgr.cluster import MemoryHost
from tests.simulation.job_life import Act, JobLife

HOSTS = tuple(f"h{n}" for n in range(5))
CAPACITY = Resources.of(8, 8_192, 2_000)  # cpu for the pods of all volumes that fit on a host
SIZE_MB = 600
ROUNDS_TO_END_MAX = 150


class VolumeLife(JobLife):
    lost_max = 3
    dies = 0.3

    def __init__(self, seed: int, template: Path, folder: Path) -> None:
        super().__init__(seed, template, folder, [MemoryHost(Hostname(name), CAPACITY) for name in HOSTS])
        self.jobs = {self._new_id(): count for count in (3, 2)}
        self.given_up: set[str] = set()
        self.seen: dict[tuple[JobId, int], list[str]] = {}  # instance -> volumes that its pods had, in their order
        self.held: dict[str, list[PodId]] = {}  # volume -> runs that had it
        self.unmade: set[str] = set()  # volumes that kept a host for which they were never made

    def begin(self) -> None:
        for job_id, count in self.jobs.items():
            config = self._config(count)
            job = convert.new_job_record(job_id, config, self.clock.ns)
            self.storage.updates.create_service(job, config, b"", UpdateSpec(), "", self.clock.ns)

    def job_ids(self) -> Collection[JobId]:
        return self.jobs.keys()

    def _config(self, count: int) -> job_pb2.JobConfig:
        config = service_config(count)
        volume = config.defaultConfig.volume
        volume.containerPath, volume.sizeMB = "data", SIZE_MB
        return config

    def acts(self) -> list[tuple[Act, float]]:
        return [
            (self.turn, 30), (self.news, 15), (self.refresh_hosts, 8), (self.run_tasks, 8), (self.wait, 3),
            (self.lead, 1), (self.restart, 3), (self.stop, 0.5), (self.start, 1), (self.fail, 1), (self.lose_host, 1.5),
            (self.return_host, 1.5), (self.wipe_host, 1), (self.give_up, 3), (self.delete, 1),
            (self.crowd, 1), (self.uncrowd, 0.5),
        ]  # fmt: skip

    def settle(self) -> None:
        """All hosts are back, and permanently lost volumes are given up: every instance runs with its volume."""
        self._bring_all_back()
        for _ in range(ROUNDS_TO_END_MAX):
            for host in self.cluster.hosts.values():
                self._free(host)
            for job_id in self.jobs:
                self.storage.jobs.set_service_goal(job_id, None, JobState.RUNNING, False, self.clock.ns)
            self._take_turns()
            with suppress(PelotonError):  # its host is back, and its row does not show it yet
                self.give_up()
            self._catch_up(10)
            rows = self._rows()
            on_hosts = {volume_id for host in self.cluster.hosts.values() for volume_id in host.volumes}
            if (
                len(self.cluster.running()) == sum(self.jobs.values()) == len(rows)
                and not self.cluster.reports
                and on_hosts == {row.volume_id for row in rows if row.state is VolumeState.CREATED}
            ):
                return
        raise AssertionError(f"it does not come to rest: {self._rows()}")

    # What must hold after each step, by the cluster and not by the code under test.

    def run_tasks(self) -> str:
        """Run the periodic steps, and in some cases release instances."""
        before = {row.volume_id for row in self._rows() if row.is_bound and row.is_wanted}
        said = super().run_tasks()
        self.unmade |= before - {row.volume_id for row in self._rows()}
        return said

    def check(self, act: Act | None = None) -> None:
        for volume_id in self.unmade & self.held.keys():
            raise AssertionError(f"volume {volume_id} was let go, and {self.held[volume_id]} had it")
        for host in self.cluster.hosts.values():
            used = [pod.volume.volume_id for pod in host.pods.values() if pod.volume is not None]
            if len(used) != len(set(used)) or len(used) != len(host.pods) or not host.volumes.keys() >= set(used):
                raise AssertionError(f"{host.hostname} has {sorted(host.volumes)} and its pods have {used}")
            if host.free.disk_mib < 0:
                raise AssertionError(f"{host.hostname} is filled beyond its disk")
        places: dict[str, str] = {}
        for host in self.cluster.hosts.values():
            for volume_id, volume in host.volumes.items():
                if volume_id in places:
                    raise AssertionError(f"volume {volume_id} is on {places[volume_id]} and on {host.hostname}")
                places[volume_id] = host.hostname
                before = self.held.get(volume_id, [])
                if volume.runs[: len(before)] != before:
                    raise AssertionError(f"volume {volume_id} has lost what {before} wrote: {volume.runs}")
                self.held[volume_id] = list(volume.runs)
        for pod_id, host in self.cluster.running().items():
            launch = host.pods[pod_id]
            assert launch.volume is not None
            self._check_successor((pod_id.job_id, pod_id.instance_id), launch.volume.volume_id)

    def _check_successor(self, instance: tuple[JobId, int], volume_id: str) -> None:
        """Check that an instance has another volume only after the previous one was given up or deleted by a user."""
        known = self.seen.setdefault(instance, [])
        if volume_id in known[:-1]:
            raise AssertionError(f"{instance} has volume {volume_id} again, after {known[-1]}")
        if known and known[-1] != volume_id and known[-1] not in self.given_up:
            raise AssertionError(f"{instance} has volume {volume_id}, and nobody gave {known[-1]} up")
        if not known or known[-1] != volume_id:
            known.append(volume_id)

    # Acts of users.

    def restart(self) -> str:
        job_id, start = self.random.choice(list(self.jobs)), self.random.randrange(2)
        spec = UpdateSpec(batch_size=1, in_place=self.random.random() < 0.5)
        self.storage.updates.create(
            job_id, None, UpdateType.RESTART, spec, None, b"", range(start, start + 1), "", self.clock.ns
        )
        return f"{job_id[:4]}-{start}"

    def stop(self) -> str:
        return self._steer(JobState.KILLED)

    def start(self) -> str:
        return self._steer(JobState.RUNNING)

    def _steer(self, goal: JobState) -> str:
        job_id = self.random.choice(list(self.jobs))
        self.storage.jobs.set_service_goal(job_id, None, goal, False, self.clock.ns)
        return job_id[:4]

    def _rows(self) -> list[VolumeRecord]:
        """Return the volumes by instance: their ids differ from life to life."""
        return sorted(self.storage.volumes.page(), key=lambda row: (row.job_id, row.instance_id, row.created_ns))

    def give_up(self) -> str:
        """Give up a volume that is lost or was perhaps never created, as a user who stops waiting does."""
        lost = [row for row in self._rows() if (row.state is VolumeState.LOST or row.note) and row.is_wanted]
        return self._delete(self.random.choice(lost), True) if lost else ""

    def delete(self) -> str:
        """Try to delete a volume; mostly refused as it is in use."""
        rows = [row for row in self._rows() if row.is_wanted]
        return self._delete(self.random.choice(rows), False) if rows else ""

    def _delete(self, row: VolumeRecord, gives_up: bool) -> str:
        self.storage.volumes.delete(row.volume_id, gives_up, self.clock.ns)
        self.given_up.add(row.volume_id)
        return row.volume_id[:8]

    # What hosts do.

    def _launch_and_die(self, *launch: Any) -> LaunchResult:
        """Die after a launch; in some cases another pod takes the resources of the volume."""
        try:
            return super()._launch_and_die(*launch)
        finally:
            if self.random.random() < 0.7:
                self.crowd()

    def crowd(self) -> str:
        """Fill the rest of a host, preferably one that has just been chosen for a volume."""
        claimed = [row.host for row in self._rows() if is_claimed(row)]
        host = self.cluster.hosts[Hostname(self.random.choice(claimed or HOSTS))]
        host.capacity = replace(CAPACITY, cpu_milli=host.capacity.cpu_milli - host.free.cpu_milli)
        self.cluster.returned([host.resources_id])
        return host.hostname

    def uncrowd(self) -> str:
        crowded = [host for host in self.cluster.hosts.values() if host.capacity != CAPACITY]
        for host in crowded[:1]:
            self._free(host)
        return crowded[0].hostname if crowded else ""

    def _free(self, host: MemoryHost) -> None:
        host.capacity = CAPACITY
        self.cluster.returned([host.resources_id])

    def wipe_host(self) -> str:
        """Replace the disk of a lost host."""
        lost = [host for host in self.cluster.hosts.values() if not host.is_up and host.volumes]
        if not lost:
            return ""
        lost[0].volumes.clear()
        return lost[0].hostname
