"""Databases through a random life in virtual time, from one seed: hosts are lost and come back, some with empty disks;
host managers are replaced, launches get lost on their way, people restart, stop, start and give volumes up.

Real: storage, updates, the host manager, placement. Simulated: the cluster with its volumes, time, admission.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from activities.placement import PlacementActivities
from peloton.api import convert
from peloton.api.v0.job import job_pb2
from peloton.errors import PelotonError
from peloton.model.host import LaunchResult, Placement
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.job import JobState
from peloton.model.pod import PodState
from peloton.model.resources import Resources
from peloton.model.update import UpdateSpec, UpdateType
from peloton.model.volume import VolumeRecord, VolumeState
from peloton.scheduling.placement import FirstFitPlacer
from services.hostmgr import launcher, manager, volumes
from services.hostmgr.memory.cluster import MemoryCluster, MemoryHost
from services.storage.storage import Storage
from tests.conformance.storage.services import service_config
from tests.simulation.clock import Clock
from tests.simulation.hostmgr import QueueOfAll, SimulatedHostManager, Through

HOSTS = tuple(f"h{n}" for n in range(5))
CAPACITY = Resources.of(8, 8_192, 2_000)  # cpu for the pods of all volumes that fit on a host
SIZE_MB = 600
LOST_MAX = 3
ROUNDS_TO_END_MAX = 150


class VolumeLife:
    """``with VolumeLife(...) as life: life.live(steps); life.end()``."""

    def __init__(self, seed: int, template: Path, folder: Path) -> None:
        path = folder / "storage.db"
        path.write_bytes(template.read_bytes())
        self.seed, self.random, self.clock = seed, Random(seed), Clock()
        self.storage = Storage(f"sqlite:///{path}", self.clock)
        self.cluster = MemoryCluster([MemoryHost(Hostname(name), CAPACITY) for name in HOSTS], self.clock, False)
        self.jobs = {JobId(str(uuid.UUID(int=self.random.getrandbits(128), version=4))): count for count in (3, 2)}
        self.story: list[str] = []
        self.queue_seq = 0
        self.given_up: set[str] = set()
        self.seen: dict[tuple[JobId, int], list[str]] = {}  # instance -> volumes that its pods had, in their order
        self.held: dict[str, list[PodId]] = {}  # volume -> runs that had it
        self.counts: dict[str, int] = {}  # how often each act did something

    def __enter__(self) -> VolumeLife:
        self._times = launcher.time, manager.time, volumes.time
        launcher.time = manager.time = volumes.time = self.clock  # type: ignore[assignment]
        self._lead()
        for job_id, count in self.jobs.items():
            config = self._config(count)
            job = convert.new_job_record(job_id, config, self.clock.ns)
            self.storage.updates.create_service(job, config, b"", UpdateSpec(), "", self.clock.ns)
        return self

    def __exit__(self, *exc: object) -> None:
        launcher.time, manager.time, volumes.time = self._times  # type: ignore[assignment]
        self.storage.close()

    def _config(self, count: int) -> job_pb2.JobConfig:
        config = service_config(count)
        volume = config.defaultConfig.volume
        volume.containerPath, volume.sizeMB = "data", SIZE_MB
        return config

    def live(self, steps: int) -> None:
        acts: list[tuple[Callable[[], object], float]] = [
            (self.turn, 30), (self.news, 15), (self.room, 8), (self.chores, 8), (self.wait, 3), (self.lead, 1),
            (self.restart, 3), (self.stop, 0.5), (self.start, 1), (self.fail, 1), (self.lose_host, 1.5),
            (self.return_host, 1.5), (self.wipe_host, 1), (self.give_up, 3), (self.delete, 1),
        ]  # fmt: skip
        for act in self.random.choices([act for act, _ in acts], [weight for _, weight in acts], k=steps):
            try:
                what = act()
            except PelotonError as error:
                what = f"refused: {error}"
            self.story.append(f"{act.__name__} {what}")
            if what:
                self.counts[act.__name__] = self.counts.get(act.__name__, 0) + 1
            self.check()
            self.clock.pass_s(self.random.choice([0, 0.01, 0.1, 1]))

    def end(self) -> None:
        """All hosts are back, and what is lost for good is given up: every instance runs with its volume."""
        for host in HOSTS:
            self.cluster.bring_back(host)
        for _ in range(ROUNDS_TO_END_MAX):
            for job_id in self.jobs:
                self.storage.jobs.set_service_goal(job_id, None, JobState.RUNNING, False, self.clock.ns)
                for part in self._parts(job_id):
                    part()
            with suppress(PelotonError):  # its host is back, and its row does not know yet
                self.give_up()
            self.chores()
            self.room()
            self.core.take_news(self.random, 1_000)
            self.clock.pass_s(10)
            self.check()
            rows = self._rows()
            on_hosts = {volume_id for host in self.cluster.hosts.values() for volume_id in host.volumes}
            if (
                len(self.cluster.running()) == sum(self.jobs.values()) == len(rows)
                and not self.cluster.reports
                and on_hosts == {row.volume_id for row in rows if row.state is VolumeState.CREATED}
            ):
                return
        self._fail(f"it does not come to rest: {self._rows()}")

    # What must hold after each step, by the cluster and not by the code under test.

    def check(self) -> None:
        for host in self.cluster.hosts.values():
            used = [pod.volume.volume_id for pod in host.pods.values() if pod.volume is not None]
            if len(used) != len(set(used)) or len(used) != len(host.pods) or not host.volumes.keys() >= set(used):
                self._fail(f"{host.hostname} has {sorted(host.volumes)} and its pods have {used}")
            if host.free.disk_mib < 0:
                self._fail(f"{host.hostname} is filled beyond its disk")
        places: dict[str, str] = {}
        for host in self.cluster.hosts.values():
            for volume_id, volume in host.volumes.items():
                if volume_id in places:
                    self._fail(f"volume {volume_id} is on {places[volume_id]} and on {host.hostname}")
                places[volume_id] = host.hostname
                before = self.held.get(volume_id, [])
                if volume.runs[: len(before)] != before:
                    self._fail(f"volume {volume_id} has lost what {before} wrote: {volume.runs}")
                self.held[volume_id] = list(volume.runs)
        for pod_id, host in self.cluster.running().items():
            launch = host.pods[pod_id]
            assert launch.volume is not None
            self._check_successor((pod_id.job_id, pod_id.instance_id), launch.volume.volume_id)

    def _check_successor(self, instance: tuple[JobId, int], volume_id: str) -> None:
        """An instance has another volume only when the one before was given up or deleted by somebody."""
        known = self.seen.setdefault(instance, [])
        if volume_id in known[:-1]:
            self._fail(f"{instance} has volume {volume_id} again, after {known[-1]}")
        if known and known[-1] != volume_id and known[-1] not in self.given_up:
            self._fail(f"{instance} has volume {volume_id}, and nobody gave {known[-1]} up")
        if not known or known[-1] != volume_id:
            known.append(volume_id)

    def _fail(self, what: str) -> None:
        tail = "\n".join(self.story[-60:])
        raise AssertionError(f"{what}\nseed {self.seed}, step {len(self.story)}:\n{tail}")

    # What workflows and the host manager do.

    def _lead(self) -> None:
        self.core = SimulatedHostManager(self.storage, self.cluster)
        hosts: Any = Through(self.core, self.launch)
        queue: Any = QueueOfAll(self.storage)
        self.placing = PlacementActivities(self.storage.pods, hosts, queue, FirstFitPlacer())

    def lead(self) -> str:
        self._lead()
        return "another host manager"

    def launch(self, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult:
        """Now and then its answer gets lost, or the host manager dies after its commit."""
        if self.random.random() < 0.05:
            return LaunchResult(0)
        if self.random.random() > 0.1:
            return self.core.launch(job_id, lease_id, placements)
        driver: Any = self.core.driver
        driver.launch = self._cut_off
        try:
            return self.core.launch(job_id, lease_id, placements)
        finally:
            self._lead()

    def _cut_off(self, launches: Any) -> Any:
        raise OSError("the host manager died")

    def _parts(self, job_id: JobId) -> list[Callable[[], object]]:
        now_ns = self.clock.ns
        return [
            lambda: self.storage.updates.advance(job_id, now_ns),
            lambda: self.storage.jobs.settle(job_id, now_ns),
            lambda: self.core.kill_running(job_id),
            lambda: self.storage.admission.kill_queued(job_id, now_ns),
            lambda: self._queue(job_id),
            lambda: self.storage.admission.mark_ready([(job_id, 0, 100)]),
            lambda: self._place(job_id),
        ]

    def _queue(self, job_id: JobId) -> None:
        self.queue_seq += 1
        self.storage.admission.mark_pending(job_id, self.storage.admission.queueable(job_id, 100), self.queue_seq)

    def _place(self, job_id: JobId) -> None:
        try:
            self.placing.place_and_launch(job_id, 100, 60.0)
        except Exception as error:  # as Temporal sees it: the activity is repeated
            self.story.append(f"placement failed: {error}")

    def turn(self) -> str:
        job_id = self.random.choice(list(self.jobs))
        parts = self._parts(job_id)
        parts = parts[: self.random.randrange(1, len(parts))] if self.random.random() < 0.2 else parts
        for part in parts:
            part()
        return job_id[:4]

    def news(self) -> None:
        self.core.take_news(self.random, self.random.choice([1, 3, 10]))

    def room(self) -> None:
        self.core.take_room()

    def chores(self) -> None:
        self.core.do_chores()

    def wait(self) -> str:
        seconds = self.random.choice([2, 10, 40, 200])
        self.clock.pass_s(seconds)
        return f"{seconds} s"

    # What people do.

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
        return self.storage.volumes.page()

    def give_up(self) -> str:
        """Somebody does not want to wait for a lost volume any more."""
        lost = [row for row in self._rows() if row.state is VolumeState.LOST and row.is_wanted]
        return self._delete(self.random.choice(lost), True) if lost else ""

    def delete(self) -> str:
        """Mostly refused: it is in use."""
        rows = [row for row in self._rows() if row.is_wanted]
        return self._delete(self.random.choice(rows), False) if rows else ""

    def _delete(self, row: VolumeRecord, gives_up: bool) -> str:
        self.storage.volumes.delete(row.volume_id, gives_up, self.clock.ns)
        self.given_up.add(row.volume_id)
        return row.volume_id[:8]

    # What hosts do.

    def fail(self) -> str:
        running = sorted(self.cluster.running())
        if not running:
            return ""
        pod_id = self.random.choice(running)
        self.cluster.end(pod_id, PodState.FAILED)
        return str(pod_id)

    def lose_host(self) -> str:
        up = [name for name, host in self.cluster.hosts.items() if host.is_up]
        if len(HOSTS) - len(up) >= LOST_MAX:
            return ""
        host = self.random.choice(up)
        self.cluster.lose(host)
        return host

    def return_host(self) -> str:
        lost = [name for name, host in self.cluster.hosts.items() if not host.is_up]
        if not lost:
            return ""
        self.cluster.bring_back(lost[0])
        return lost[0]

    def wipe_host(self) -> str:
        """The disk of a lost host is replaced."""
        lost = [host for host in self.cluster.hosts.values() if not host.is_up and host.volumes]
        if not lost:
            return ""
        lost[0].volumes.clear()
        return lost[0].hostname
