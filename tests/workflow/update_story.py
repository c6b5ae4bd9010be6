"""One service and the workflow of its update, on one virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from activities.images import ImageActivities
from activities.launch import LaunchActivities
from activities.policies import PolicyActivities
from activities.records import RecordsActivities
from activities.requests import RequestActivities
from peloton.model.ids import job_workflow_id, update_workflow_id
from tests.workflow.children import FakeChild
from tests.workflow.clock import VirtualClock
from tests.workflow.cluster import Cluster
from tests.workflow.fakes import FakeHostManager, FakePrefetcher, FakeRecords
from tests.workflow.rolled import RolledService
from tests.workflow.stories import JOB
from tests.workflow.updates_port import FakeLockdowns, FakeUpdates
from tests.workflow.virtual import Virtual
from workflows.policies import Policies
from workflows.update import UpdateInput, UpdateResult, UpdateWorkflow


class Story:
    """One service, the workflow of its update, one clock; signals to the job are counted."""

    def __init__(self, instances: int = 6, *, sla_maximum: int = 0, away_s: float = 2.0) -> None:
        self.clock = VirtualClock()
        self.cluster = cluster = Cluster(self.clock)
        self.service = RolledService(self.clock, JOB, instances, sla_maximum=sla_maximum, away_s=away_s)
        cluster.rolled[JOB] = self.service
        records, updates = FakeRecords(cluster), FakeUpdates(cluster)
        activities = RecordsActivities(records, records, updates, self.clock.now_ns)
        requests = RequestActivities(records, updates, FakeLockdowns(cluster), self.clock.now_ns)
        steps: list[Callable[..., Any]] = [
            activities.advance_update,
            activities.roll_back_failed_update,
            activities.abort_update,
            LaunchActivities(FakeHostManager(cluster)).kill_running,
            requests.steer,
            requests.roll_back,
            requests.pulse,
            ImageActivities(updates, FakePrefetcher(cluster)).prefetch,
            PolicyActivities({}).policies,
        ]
        workflow_id = update_workflow_id(JOB)
        self.workflow = Virtual(self.clock, UpdateWorkflow, steps, signal="changed", workflow_id=workflow_id)
        self.told_s: list[float] = []

        def report() -> None:
            self.told_s.append(self.clock.elapsed_s)
            self.service.kill()

        job = FakeChild(report)
        self.workflow.children[job_workflow_id(JOB)] = job
        self.service.notify = lambda: self.workflow.jobs_changed([])

    def roll_out(self, batch_size: int = 0, policies: Policies | None = None, **spec: Any) -> Story:
        notify, self.service.notify = self.service.notify, lambda: None
        self.service.roll_out(batch_size, **spec)
        self.service.notify = notify
        self.workflow.start(UpdateInput(JOB, policies or Policies()))
        return self

    def until(self, fact: Callable[[], bool]) -> Story:
        self.workflow.run(until=fact)
        assert not self.workflow.ended
        return self

    def end(self) -> UpdateResult:
        result: UpdateResult = self.workflow.run()
        assert self.workflow.failure is None, self.workflow.failure
        return result

    @property
    def batches(self) -> int:
        """Number of batches whose pods this workflow ended."""
        return self.workflow.calls.count("kill_running")

    @property
    def status(self) -> dict[str, str]:
        return self.workflow.shown
