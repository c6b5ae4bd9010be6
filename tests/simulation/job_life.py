"""Jobs through a random life in virtual time, from one seed: what the lives of all kinds of jobs share.

Real: storage, the host manager, maintenance, placement. Simulated: the cluster, time, the resource manager (which
admits every pod), and the workflows, whose turns are taken one at a time, and not always to their end.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Self

from temporalio.exceptions import ApplicationError

from activities.placement import PlacementActivities
from peloton.api import convert
from peloton.api.v0.job import job_pb2
from peloton.errors import PelotonError
from peloton.model.host import HostState, LaunchResult, Placement
from peloton.model.ids import JobId, PodId
from peloton.model.job import JobType
from peloton.model.maintenance import MaintenanceAct
from peloton.model.pod import PodState
from peloton.model.update import UpdateSpec
from peloton.scheduling.placement import FirstFitPlacer
from services.hostmgr import host_pool_controller, launcher, maintenance, manager, placing, rebalancer, volumes
from services.storage.storage import Storage
from tests.doubles.hostmgr.cluster import MemoryCluster, MemoryHost
from tests.simulation.clock import Clock
from tests.simulation.hostmgr import SETTINGS, QueueOfAll, SimulatedHostManager, SimulatedMaintenance, Through

Act = Callable[..., object]
PODS_PER_TURN = 1_000
PLACEMENT_S = 60.0
LINES_SHOWN = 60
LIVES_MAX = 10


class JobLife:
    """Random life of jobs: ``with JobLife(...) as life: life.live(steps); life.end()``. Subclasses define the acts, the
    invariants after each act, and the end.
    """

    settings = SETTINGS
    validates = True  # False: only the life's own invariants are checked
    lost_max = 2  # hosts that are down at a time
    dies = 0.0  # the share of launches in whose middle the host manager dies

    def __init__(self, seed: int, template: Path, folder: Path, hosts: Iterable[MemoryHost]) -> None:
        """``template``: an empty database, of which each life has a copy in its ``folder``."""
        self.path = folder / "storage.db"
        self.path.write_bytes(template.read_bytes())
        self.seed, self.random, self.clock = seed, Random(seed), Clock()
        self.storage = Storage(f"sqlite:///{self.path}", self.clock)
        self.cluster = MemoryCluster(hosts, self.clock, delivers=False)
        self.story: list[str] = []
        self.done: dict[str, int] = {}  # how often each act did something
        self.queue_seq = 0

    def acts(self) -> list[tuple[Act, float]]:
        """Return the acts with the weights by which they are drawn."""
        raise NotImplementedError

    def begin(self) -> None:
        """Create the jobs."""
        raise NotImplementedError

    def check(self, act: Act | None = None) -> None:
        """Check the invariants after each act. Raises AssertionError."""
        raise NotImplementedError

    def settle(self) -> None:
        """Run without users and failures. Raises AssertionError when the life does not come to rest."""
        raise NotImplementedError

    def job_ids(self) -> Collection[JobId]:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._modules: list[Any] = [
            host_pool_controller,
            launcher,
            maintenance,
            manager,
            placing,
            rebalancer,
            volumes,
        ]
        self._times = [module.time for module in self._modules]
        for module in self._modules:
            module.time = self.clock
        self._lead()
        self.begin()
        return self

    def __exit__(self, *exc: object) -> None:
        for module, time in zip(self._modules, self._times, strict=True):
            module.time = time
        self.storage.close()

    # The story.

    def live(self, steps: int) -> None:
        acts, weights = zip(*self.acts(), strict=True)
        with self._explain_failure():
            for act in self.random.choices(acts, weights, k=steps):
                self._act(act)
                self.clock.pass_s(self.random.choice([0, 0.01, 0.1, 1]))

    def end(self) -> None:
        with self._explain_failure():
            self.settle()

    @contextmanager
    def _explain_failure(self) -> Iterator[None]:
        """Add the seed that repeats a broken invariant, and the preceding acts, to its message."""
        try:
            yield
        except AssertionError as error:
            tail = "\n".join(self.story[-LINES_SHOWN:])
            raise AssertionError(f"{error}\nseed {self.seed}, step {len(self.story)}:\n{tail}") from error

    def _act(self, act: Act, *arguments: object) -> None:
        try:
            what = act(*arguments)
        except PelotonError as error:
            what = f"refused: {error}"
        else:
            self.done[act.__name__] = self.done.get(act.__name__, 0) + bool(what)
        self.story.append(f"{act.__name__} {what or ''}")
        if self.validates:
            self.core.cache.validate()
        self.check(act)

    def _take_turns(self) -> None:
        """Run one complete turn of every workflow."""
        for host in self._list_maintained():
            self.maintenance.step(host)
        for job_id in self.job_ids():
            for part in self._parts(job_id):
                part()

    def _catch_up(self, seconds: int) -> None:
        """Run the host manager's steps, and advance the time."""
        self.core.run_background_tasks()
        self.core.take_hosts()
        self.core.take_news(self.random, 1_000)
        self.clock.pass_s(seconds)
        self.check()

    def _new_id(self) -> JobId:
        return JobId(str(uuid.UUID(int=self.random.getrandbits(128), version=4)))

    def create(self, config: job_pb2.JobConfig) -> JobId:
        """Create a job, as the api does."""
        job_id, now_ns = self._new_id(), self.clock.ns
        job = convert.new_job_record(job_id, config, now_ns)
        if job.type is JobType.SERVICE:
            self.storage.updates.create_service(job, config, b"", UpdateSpec(), "", now_ns)
        else:
            self.storage.jobs.create(job, config, now_ns)
            self.storage.pods.create(job_id, lambda _: None)
        return job_id

    # What workflows and the host manager do.

    def _lead(self) -> None:
        """Start a new host manager, which reads its state from storage and the cluster."""
        self.core = SimulatedHostManager(self.storage, self.cluster, self.settings)
        self.maintenance = SimulatedMaintenance(self.core, self.storage, self.clock)
        hosts: Any = Through(self.core, self.launch)
        queue: Any = QueueOfAll(self.storage)
        self.placing = PlacementActivities(self.storage.pods, hosts, queue, FirstFitPlacer())

    def lead(self) -> str:
        self._lead()
        return "another host manager"

    def launch(self, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult:
        """Pass a launch from placement to the host manager: in some cases it is lost, and the lease expires; or the
        host manager dies after its commit.
        """
        if self.random.random() <= 0.05:
            return LaunchResult(0)
        self.before_launch(job_id, placements)
        if not self.dies or self.random.random() > self.dies:
            return self.core.launch(job_id, lease_id, placements)
        return self._launch_and_die(job_id, lease_id, placements)

    def _launch_and_die(self, job_id: JobId, lease_id: str, placements: Sequence[Placement]) -> LaunchResult:
        try:
            return self.core.launch_and_die(job_id, lease_id, placements)
        finally:
            self._lead()

    def before_launch(self, job_id: JobId, placements: Sequence[Placement]) -> None:
        """Change the world before the launch arrives."""

    def _parts(self, job_id: JobId) -> list[Callable[[], object]]:
        """Return the steps of a turn of the job's workflow."""
        now_ns = self.clock.ns
        return [
            lambda: self._roll_out(job_id),
            lambda: self.storage.jobs.settle(job_id, now_ns),
            lambda: self._kill(job_id),
            lambda: self.storage.admission.kill_queued(job_id, now_ns),
            lambda: self._queue(job_id),
            lambda: self.storage.admission.mark_ready([(job_id, 0, PODS_PER_TURN)]),
            lambda: self._place(job_id),
        ]

    def _roll_out(self, job_id: JobId) -> None:
        if self.storage.updates.advance(job_id, self.clock.ns).rolls_back_to:
            self.storage.updates.roll_back_failed(job_id, self.clock.ns)

    def _kill(self, job_id: JobId) -> None:
        self.core.kill_running(job_id)

    def _queue(self, job_id: JobId) -> None:
        self.queue_seq += 1
        queueable = self.storage.admission.queueable(job_id, PODS_PER_TURN)
        self.storage.admission.mark_pending(job_id, queueable, self.queue_seq)

    def _place(self, job_id: JobId) -> None:
        try:
            self.placing.place_and_launch(job_id, PODS_PER_TURN, PLACEMENT_S)
        except ApplicationError as error:  # as Temporal sees it: the activity is repeated
            self.story.append(f"placement failed: {error}")

    def one_job(self) -> JobId:
        return self.random.choice(list(self.job_ids()))

    def job_name(self, job_id: JobId) -> str:
        return job_id[:4]

    def turn(self) -> str:
        """Run a turn of a job, to its end or until its worker dies."""
        job_id = self.one_job()
        parts = self._parts(job_id)
        parts = parts[: self.random.randrange(1, len(parts))] if self.random.random() < 0.2 else parts
        for part in parts:
            part()
        return self.job_name(job_id)

    def news(self) -> str:
        self.core.take_news(self.random, self.random.choice([1, 3, 10]))
        return ""

    def refresh_hosts(self) -> str:
        self.core.take_hosts()
        return ""

    def run_tasks(self) -> str:
        self.core.run_background_tasks()
        return ""

    def drain(self) -> str:
        hosts = self._list_maintained()
        if not hosts:
            return ""
        host = self.random.choice(hosts)
        self.maintenance.step(host)
        return host

    def wait(self) -> str:
        seconds = self.random.choice([2, 10, 40, 200])
        self.clock.pass_s(seconds)
        return f"{seconds} s"

    def _list_maintained(self, is_down: bool | None = None) -> list[str]:
        hosts = self.storage.maintenance.all("local")
        return [host.hostname for host in hosts if is_down in (None, host.state is HostState.DOWN)]

    # Acts of users.

    def complete(self) -> str:
        down = self._list_maintained(is_down=True)[:1]
        if down:
            self.maintenance.steer(down, MaintenanceAct.COMPLETE)
        return " ".join(down)

    def cancel(self) -> str:
        others = self._list_maintained(is_down=False)[:1]
        if others:
            self.maintenance.steer(others, MaintenanceAct.CANCEL)
        return " ".join(others)

    # What hosts do.

    def fail(self) -> str:
        running = sorted(filter(self.may_fail, self.cluster.running()))
        if not running:
            return ""
        pod_id = self.random.choice(running)
        self._break([pod_id])
        self.cluster.end(pod_id, PodState.FAILED)
        return str(pod_id)

    def may_fail(self, pod_id: PodId) -> bool:
        return True

    def _break(self, pods: Iterable[PodId]) -> None:
        """End these pods by a failure of the story."""

    def lose_host(self) -> str:
        up = [name for name, host in self.cluster.hosts.items() if host.is_up]
        if len(self.cluster.hosts) - len(up) >= self.lost_max:
            return ""
        host = self.random.choice(up)
        self._break(self.cluster.lose(host))
        return host

    def return_host(self) -> str:
        down = self._list_maintained(is_down=True)
        lost = [name for name, host in self.cluster.hosts.items() if not host.is_up and name not in down]
        if not lost:
            return ""
        self.cluster.bring_back(lost[0])
        return lost[0]

    def _bring_all_back(self) -> None:
        """Restore all hosts that are not down for maintenance."""
        down = self._list_maintained(is_down=True)
        for host in self.cluster.hosts:
            if host not in down:
                self.cluster.bring_back(host)


def first_fault(kind: Callable[[int, Path, Path], JobLife], template: Path, folder: Path, steps: int) -> str:
    """Return the message of the first of a few lives that finds a fault. Raises AssertionError when none does."""
    for seed in range(1, LIVES_MAX + 1):
        with kind(seed, template, folder) as life:
            try:
                life.live(steps)
            except AssertionError as error:
                what, where = str(error).splitlines()[:2]
                assert where.startswith(f"seed {seed}, step ")
                return what
    raise AssertionError(f"no life of {LIVES_MAX} noticed anything")
