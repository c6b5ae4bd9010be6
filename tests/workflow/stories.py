"""Stories of jobs on a fake cluster: ``story(hosts=4).submit(10).run()`` in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peloton.model.ids import JobId, job_workflow_id
from peloton.model.job import SlaSpec
from services.worker.worker import WorkerPorts, activities_on
from tests.workflow.clock import VirtualClock
from tests.workflow.cluster import Cluster
from tests.workflow.fakes import FakeHostManager, FakePlacer, FakePrefetcher, FakeRecords, FakeResourceManager
from tests.workflow.followed import FollowedHosts
from tests.workflow.maintained import MaintainedHost
from tests.workflow.migrated import MigratedPool
from tests.workflow.rebalanced import RebalancedCluster
from tests.workflow.scheduled import FakeScheduledJobs
from tests.workflow.updates_port import FakeLockdowns, FakeUpdates
from tests.workflow.virtual import LOCAL_S, Virtual
from workflows.gang import GangResult, GangWorkflow
from workflows.job import JobInput, JobWorkflow
from workflows.policies import NEVER_S, Policies
from workflows.update import UpdateWorkflow

JOB = JobId("6d1d5f5e-7d2a-4c6c-9f4e-0a7d3c1b2e01")


SWEPT = Policies(look_again_s=NEVER_S)
"""Policies of installations, where a sweep finds lost wake-ups."""


def ports_on(
    cluster: Cluster,
    host: MaintainedHost | None = None,
    policies: Mapping[str, float] | None = None,
    daemons: FollowedHosts | None = None,
) -> WorkerPorts:
    host = host or MaintainedHost(cluster.clock)
    records, rebalanced = FakeRecords(cluster), RebalancedCluster(cluster.clock)
    return WorkerPorts(
        jobs=records,
        pods=records,
        updates=FakeUpdates(cluster),
        resmgr=FakeResourceManager(cluster),
        hosts=FakeHostManager(cluster),
        placer=FakePlacer(cluster),
        controllers=host,
        maintenance=host,
        images=FakePrefetcher(cluster),
        migrations=MigratedPool(cluster.clock),
        daemons=daemons or FollowedHosts(cluster),
        rebalancers=rebalanced,
        rebalances=rebalanced,
        lockdowns=FakeLockdowns(cluster),
        scheduled=FakeScheduledJobs(cluster),
        policies=policies or {},
    )


class Story:
    """One job, one cluster, one workflow, one clock."""

    def __init__(
        self, *, local_s: float = LOCAL_S, policies: Mapping[str, float] | None = None, **cluster: Any
    ) -> None:
        self.clock = VirtualClock()
        self.cluster = Cluster(self.clock, **cluster)
        activities = activities_on(ports_on(self.cluster, policies=policies), self.clock.now_ns)
        self.workflow = Virtual(
            self.clock,
            JobWorkflow,
            activities,
            signal="changed",
            local_s=local_s,
            children=[GangWorkflow, UpdateWorkflow],
            workflow_id=job_workflow_id(JOB),
        )
        self.cluster.lifecycles = self.workflow

    def submit(
        self, pods: int, *, sla: SlaSpec | None = None, max_failures: int = 0, policies: Policies | None = None
    ) -> Story:
        job = self.cluster.submit(JOB, pods, sla=sla, max_failures=max_failures)
        self.workflow.start(JobInput(job.job_id, policies or SWEPT))
        return self

    def run(self) -> tuple[str, dict[str, int]]:
        """Run the job to its end; returns its state and the counts of its pods, and validates the cluster."""
        result = self.workflow.run()
        assert self.workflow.failure is None, self.workflow.failure
        while any(not gang.ended for gang in self.gangs):  # they may outlive the job by one step
            assert self.clock.step()
        assert [None] * len(self.gangs) == [gang.failure for gang in self.gangs]
        self.cluster.validate()
        assert result.counts == self.counts
        return result.state, result.counts

    def run_until_pods(self, state: str, count: int) -> Story:
        self.workflow.run(until=lambda: self.counts.get(state, 0) >= count)
        return self

    def run_for(self, seconds: float) -> Story:
        end_s = self.clock.elapsed_s + seconds
        self.clock.after(seconds, lambda: None)
        self.workflow.run(until=lambda: self.clock.elapsed_s >= end_s)
        return self

    @property
    def gangs(self) -> list[Virtual]:
        """The workflows of the gang's launches, in their order."""
        return self.workflow.past_children

    @property
    def outcomes(self) -> list[str]:
        """Outcomes of the launches of the gang."""
        results: list[GangResult] = [gang.result for gang in self.gangs]
        return [result.outcome for result in results]

    @property
    def counts(self) -> dict[str, int]:
        return self.cluster.counts(JOB)

    @property
    def status(self) -> dict[str, str]:
        return self.workflow.shown
