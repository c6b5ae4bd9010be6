"""Random lives of large pods among small ones: freed resources are taken at once, so hosts are reserved for the large
ones.

Small pods end, owners stop and start services, hosts are lost, host managers are replaced, launches are lost.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from peloton.hosts.reservations import ASKED_AGAIN_S
from peloton.lifecycle.reservation import limit_reserved
from peloton.model.host import Placement
from peloton.model.ids import Hostname, JobId
from peloton.model.job import JobState, JobType
from peloton.model.pod import PodState
from peloton.model.resources import Resources
from peloton.model.update import UpdateSpec, UpdateType
from services.hostmgr.driver import NOTHING
from services.hostmgr.manager import HostManagerSettings
from tests.conformance.storage.builders import a_config
from tests.doubles.hostmgr.cluster import MemoryHost
from tests.simulation.job_life import Act, JobLife

HOSTS = tuple(f"h{n:02}" for n in range(20))
CAPACITY = Resources.of(3, 8_192, 20_000)
RESERVATION_S = 60.0
FOR_POD = re.compile(r"for pod (.{36})-(\d+) since")
ROUNDS_TO_END_MAX = 150
Key = tuple[JobId, int]


class ReservedLife(JobLife):
    settings = HostManagerSettings(reserve_after_s=10.0, reservation_s=RESERVATION_S)
    dies = 0.05

    def __init__(self, seed: int, template: Path, folder: Path) -> None:
        super().__init__(seed, template, folder, [MemoryHost(Hostname(name), CAPACITY) for name in HOSTS])
        self.counts: dict[JobId, int] = {}
        self.cpu: dict[JobId, float] = {}
        self.kept: dict[Hostname, tuple[Key, float]] = {}  # host -> for which pod, and since when as it was seen
        self.stopped: dict[JobId, float] = {}  # -> since when

    def begin(self) -> None:
        self.core.run_background_tasks()
        self.small = self._create(400, 1, JobType.BATCH)
        for part in self._parts(self.small):
            part()
        self.stays = self._create(4, 1, JobType.SERVICE)
        self.large = [self._create(count, 2, JobType.SERVICE) for count in (2, 1, 1)]
        self.wide = self._create(60, 2, JobType.BATCH)

    def _create(self, count: int, cpu: float, kind: JobType) -> JobId:
        config = a_config(count, type_=kind)
        config.defaultConfig.resource.cpuLimit, config.defaultConfig.command.value = cpu, "sleep 1000"
        job_id = self.create(config)
        self.counts[job_id], self.cpu[job_id] = count, cpu
        return job_id

    def job_ids(self) -> Collection[JobId]:
        return self.counts.keys()

    def acts(self) -> list[tuple[Act, float]]:
        return [
            (self.turn, 35), (self.news, 10), (self.refresh_hosts, 14), (self.run_tasks, 8), (self.finish, 16),
            (self.wait, 5), (self.lead, 0.5), (self.lose_host, 0.7), (self.return_host, 1), (self.restart, 1),
            (self.stop, 2), (self.start, 4),
        ]  # fmt: skip

    def settle(self) -> None:
        """All small pods are stopped: all large ones run, and no host is reserved."""
        self._bring_all_back()
        for job_id in (self.small, self.wide):
            self.storage.jobs.set_goal(job_id, JobState.KILLED, self.clock.ns)
            self.counts[job_id] = 0
        for job_id in self.large:
            self.storage.jobs.set_service_goal(job_id, None, JobState.RUNNING, False, self.clock.ns)
        self.stopped.clear()
        for _ in range(ROUNDS_TO_END_MAX):
            self._take_turns()
            self._catch_up(10)
            running = [pod.job_id for pod in self.cluster.running()]
            done = all(running.count(job_id) == count for job_id, count in self.counts.items())
            if done and not self.cluster.reports and not self.kept:
                return
        raise AssertionError(f"it does not come to rest: {self.kept}, {sorted(self.cluster.running())}")

    # Invariants after each step: reservations as they are shown to users, and pods as the cluster has them.

    def check(self, act: Act | None = None) -> None:
        for host in self.cluster.hosts.values():
            assert NOTHING.fits_in(host.free), f"{host.hostname} is full beyond what it has: {host.free}"
        before, self.kept = self.kept, self._list_reserved()
        jobs = [key[0] for key, _ in self.kept.values()]
        assert len(jobs) == len(set(jobs)), f"a job has several hosts: {self.kept}"
        assert len(jobs) <= limit_reserved(len(HOSTS)), f"{len(jobs)} hosts are reserved"
        running = {(pod.job_id, pod.instance_id): host.hostname for pod, host in self.cluster.running().items()}
        for hostname, (key, _) in self.kept.items():
            assert key not in running, f"{hostname} is reserved for {key}, which runs on {running.get(key)}"
        if act == self.run_tasks:
            self._check_spans()
        self._count(before, running, act)

    def _list_reserved(self) -> dict[Hostname, tuple[Key, float]]:
        found: dict[Hostname, tuple[Key, float]] = {}
        for host in self.core.cache.hosts():
            if named := FOR_POD.match(host.reserved):
                key, now_s = (JobId(named[1]), int(named[2])), self.clock.monotonic()
                known = self.kept.get(host.hostname)
                found[host.hostname] = known if known and known[0] == key else (key, now_s)
        return found

    def _check_spans(self) -> None:
        """Check the end of reservations, which the host manager has just evaluated."""
        now_s = self.clock.monotonic()
        for hostname, (key, since_s) in self.kept.items():
            assert now_s - since_s < RESERVATION_S, f"{hostname} is reserved for {key} for {now_s - since_s} s"
            stopped_s = now_s - self.stopped.get(key[0], now_s)
            assert stopped_s < ASKED_AGAIN_S, f"{hostname} is reserved for {key}, which was stopped {stopped_s} s ago"

    def _count(self, before: dict[Hostname, tuple[Key, float]], running: dict[Key, Hostname], act: Act | None) -> None:
        """Count how reservations began and ended. Reservations of a replaced host manager end with it."""
        for hostname, (key, since_s) in self.kept.items():
            self._note("reserved", before.get(hostname) != (key, since_s))
        for host, (key, since_s) in before.items():
            if self.kept.get(host) != (key, since_s):
                self._note("found", running.get(key) == host)
                is_late = act == self.run_tasks and self.clock.monotonic() - since_s >= RESERVATION_S
                self._note("given_back", is_late and key not in running)

    def _note(self, what: str, count: int) -> None:
        self.done[what] = self.done.get(what, 0) + count

    def before_launch(self, job_id: JobId, placements: Sequence[Placement]) -> None:
        """Check that other pods on a reserved host fit next to the reserved resources; returning pods use their own
        reservation.
        """
        kept = self._list_reserved()
        for placement in placements:
            key, _ = kept.get(placement.hostname, (None, 0.0))
            pods = [self.storage.pods.get(job_id, placed.instance_id) for placed in placement.pods]
            others = sum(pod is not None and pod.desired_host != placement.hostname for pod in pods)
            if key is None or not others or key in {(job_id, placed.instance_id) for placed in placement.pods}:
                continue
            self._note("beside", others)
            left = self.cluster.hosts[placement.hostname].free.cpu_milli - others * self.cpu[job_id] * 1_000
            reported = (
                f"{placement.hostname} is reserved for {key} and has {left} left beside {others} pods of {job_id}"
            )
            assert left >= self.cpu[key[0]] * 1_000, reported

    # Acts of pods and users.

    def news(self) -> str:
        """Report the end of many pods."""
        self.core.take_news(self.random, self.random.choice([3, 10, 100]))
        return ""

    def finish(self) -> str:
        """End pods of batch jobs, more often on a reserved host than elsewhere."""
        hosts = self.kept.keys() if self.random.random() < 0.3 else self.cluster.hosts.keys()
        here = [pod for host in sorted(hosts) for pod in sorted(self.cluster.hosts[host].pods)]
        ending = [pod for pod in here if pod.job_id in (self.small, self.wide)]
        chosen = self.random.sample(ending, min(len(ending), self.random.randrange(1, 6)))
        for pod_id in chosen:
            self.cluster.end(pod_id, PodState.SUCCEEDED)
        return " ".join(f"{pod_id.job_id[:4]}-{pod_id.instance_id}" for pod_id in chosen)

    def restart(self) -> str:
        """Restart instances of a small service, in place."""
        instances = self.random.sample(range(4), 2)
        spec = UpdateSpec(batch_size=1, in_place=True)
        self.storage.updates.create(self.stays, None, UpdateType.RESTART, spec, None, b"", instances, "", self.clock.ns)
        return f"{instances}"

    def stop(self) -> str:
        return self._steer(JobState.KILLED)

    def start(self) -> str:
        return self._steer(JobState.RUNNING)

    def _steer(self, goal: JobState) -> str:
        job_id = self.random.choice(self.large)
        self.storage.jobs.set_service_goal(job_id, None, goal, False, self.clock.ns)
        if goal is JobState.KILLED:
            self.stopped.setdefault(job_id, self.clock.monotonic())
        else:
            self.stopped.pop(job_id, None)
        return job_id[:4]
