"""A daemon on a ``Cluster``, and the port by which it follows the cluster's hosts. ``peloton.lifecycle`` decides which
pods start and end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from peloton.lifecycle.daemon import FollowPlan, follow_hosts
from peloton.lifecycle.pod_machine import Event
from peloton.lifecycle.pod_terms import GOAL_ALIVE, INITIALIZED, ON_REQUEST, READY
from peloton.model.daemon import DaemonStep, Seat
from peloton.model.ids import Hostname, JobId, PodId, RespoolId
from peloton.model.job import JobRecord, JobState, JobType, SlaSpec
from peloton.model.misfit import HostRule, LackingAmount
from peloton.model.pod import ENDING_GOALS, HealthState, PodState
from peloton.model.reason import ClusterReason, NoHost, RefusingHosts
from services.storage.codec import InstanceFacts
from services.storage.pods.host_pods import LaunchRow
from tests.doubles.storage.jobs import MemoryJob
from tests.workflow.cluster import SHAPE, Cluster
from tests.workflow.fakes import FakeHostManager
from tests.workflow.port import call

HOME = "local"


class FollowedHosts(FakeHostManager):
    """Implements ``ports.DaemonController``. Hosts in ``full`` have no free slots, the others one for each daemon."""

    def __init__(self, cluster: Cluster, per_step: int = 1_000) -> None:
        super().__init__(cluster)
        self.per_step = per_step
        self.matching: set[Hostname] = set(cluster.hosts)
        self.full: set[Hostname] = set()
        self.seats: dict[int, Seat] = {}
        self.notify: Callable[[JobId], None] = cluster.notify  # the workflow of the daemon

    def submit(self, job_id: JobId) -> JobRecord:
        record = JobRecord(
            job_id,
            "logs",
            JobType.DAEMON,
            "team",
            RespoolId("pool"),
            0,
            SlaSpec(),
            JobState.PENDING,
            JobState.RUNNING,
            created_ns=self.cluster.clock.now_ns(),
        )
        self.cluster.storage.jobs.add(record, InstanceFacts("", SHAPE, 0, HealthState.DISABLED, grace_s=30), {})
        return record

    def match(self, job_id: JobId, names: Iterable[Hostname]) -> None:
        """Set the matching hosts: pods of the others are lost, and the daemon is notified."""
        self.matching = set(names)
        gone = [pod for pod, host in self.cluster.launched.items() if host not in self.matching]
        records = self.cluster.jobs[job_id].pods.records
        alive = [p for p in gone if records[p.instance_id].run_id == p.run_id and records[p.instance_id].host]
        self.cluster.report(alive, lambda _: PodState.LOST)
        self.notify(job_id)

    @call
    def step_daemon(self, job_id: JobId, after: int) -> DaemonStep:
        job = self.cluster.jobs[job_id]
        followed = self._follow(job)
        if followed.more:
            return DaemonStep(followed.count, more=True, after=after)
        pods = [
            p for p in job.pods.those((INITIALIZED | READY) & GOAL_ALIVE, job.pods.records) if p.instance_id > after
        ]
        pods = [pod for pod in pods if not self.seats[pod.instance_id].gone_ns][: self.per_step]
        hosts = {p.instance_id: self.seats[p.instance_id].hostname for p in pods}
        chosen = [pod for pod in pods if hosts[pod.instance_id] not in self.full]
        now_ns = self.cluster.clock.now_ns()
        job.pods.fire([pod.instance_id for pod in chosen], Event.SKIP_QUEUE, now_ns, message="")
        rows: list[LaunchRow] = [
            (p.instance_id, p.desired_run_id, str(hosts[p.instance_id]), "agent", {}) for p in chosen
        ]
        taken = self.cluster.storage.host_pods.mark_launched(job_id, rows, now_ns)
        launched = [PodId(job_id, instance, run) for instance, run, *_ in rows if instance in taken]
        for pod_id in launched:
            self._launch_one(pod_id, hosts[pod_id.instance_id])
        self.cluster.start(launched)
        full = RefusingHosts.of(len(pods) - len(chosen), LackingAmount(HostRule.FREE_RESOURCES, "cpu", 1_000, 0))
        return DaemonStep(
            followed.count,
            len(launched),
            len(pods) - len(launched),
            more=len(pods) == self.per_step,
            after=pods[-1].instance_id if pods else after,
            why=(ClusterReason(pods=(NoHost(full.host_count, hosts=(full,)),)),) if full.host_count else (),
        )

    def _follow(self, job: MemoryJob) -> FollowPlan:
        pods, now_ns = job.pods, self.cluster.clock.now_ns()
        for instance, seat in self.seats.items():
            is_wanted = pods.records[instance].goal not in ENDING_GOALS
            self.seats[instance] = Seat(instance, seat.hostname, HOME, seat.gone_ns, is_wanted)
        plan = follow_hosts(HOME, self.matching, list(self.seats.values()), now_ns, self.per_step, self.per_step)
        pods.fire(plan.gone, Event.STOP, now_ns, message="", reason="", why=ON_REQUEST, by="")
        pods.fire(plan.back, Event.START, now_ns, message="", goal=PodState.RUNNING)
        for instance in plan.gone:
            self.seats[instance] = Seat(instance, self.seats[instance].hostname, HOME, now_ns)
        for instance in plan.back:
            self.seats[instance] = Seat(instance, self.seats[instance].hostname, HOME)
        first = job.record.instance_count
        for instance, hostname in enumerate(plan.fresh, first):
            self.seats[instance] = Seat(instance, hostname, HOME)
        job.create_pods(first, len(plan.fresh), now_ns)
        if plan.count:
            job.write(instance_count=first + len(plan.fresh))
        return plan
