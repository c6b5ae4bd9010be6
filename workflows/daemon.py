"""Runs the pods of a daemon on its hosts.

[ step -> signal the job -> wait for change ]* until the daemon ends

In a step the host managers compare the daemon's instances with the hosts that match: instances of new hosts are
created, instances of removed hosts end, and instances of returned hosts begin again; missing pods are launched on their
hosts, in the resources that are reserved for them. A step does a bounded part, and the next one follows at once until
all instances were compared.

The job's workflow starts it, and signals it when pods are ready to launch, as after they ended, and when the daemon is
to end. Host managers signal it when hosts join or leave, or have free resources for a waiting pod. It signals the job
when instances began or ended: the job ends superseded runs, and shows the state of the daemon.

History: 7 events for each step, which creates up to 5,000 pods or launches up to 1,000, 3 for each signal to the job, 5
for each wake-up and 1 or 2 for a timer, however many hosts there are; 132 in an hour without changes. Beyond the bound
it continues as new.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from activities.daemon import DaemonActivities
    from activities.records import RecordsActivities
    from peloton.lifecycle.progress import daemon_details
    from peloton.lifecycle.reason_text import placement_text
    from peloton.model.daemon import DaemonStep
    from peloton.model.ids import job_workflow_id
    from workflows.calls import WakeTimer, stoppable
    from workflows.policies import HOSTMGR_CALL, KILL_CALL, Policies
    from workflows.renewal import Renewal, continue_as_new, fresh_policies


@dataclass(frozen=True)
class DaemonInput:
    job_id: str
    policies: Policies = field(default_factory=Policies)


@dataclass(frozen=True)
class DaemonResult:
    """Result of this run of the workflow."""

    launched_count: int = 0


@workflow.defn(name="Daemon")
class DaemonWorkflow:
    @workflow.init
    def __init__(self, input: DaemonInput) -> None:
        self.job_id = input.job_id
        self.policies = input.policies
        self.renewal = Renewal()
        self.wakeup_pending = False
        self.wake_timer = WakeTimer()  # the time to look again
        self.step = DaemonStep()  # the last one
        self.launched_count = self.waiting_count = 0  # of all instances, as they were last read
        self.waiting_for = ""
        self.pause_s = 0.0  # until the next step, while pods wait for their hosts

    @workflow.run
    async def run(self, input: DaemonInput) -> DaemonResult:
        return await stoppable(self.live(input), self.stop)

    async def live(self, input: DaemonInput) -> DaemonResult:
        while not (await self.look_at_all()).is_over or self.wakeup_pending:
            await self.wait_for_change()
            await self.continue_as_new_when_due(input)
        await workflow.wait_condition(workflow.all_handlers_finished)
        return DaemonResult(self.launched_count)

    @workflow.signal
    def changed(self) -> None:
        """Note a change of the daemon: its goal, its configuration, its hosts, its pods."""
        self.wakeup_pending = True

    # Steps, in the order of the story.

    async def look_at_all(self) -> DaemonStep:
        """Run steps until all instances were compared."""
        self.wakeup_pending = False
        self.step, self.waiting_count, self.waiting_for = DaemonStep(more=True), 0, ""
        while self.step.more:
            await self.take_step(self.step.after)
            self.waiting_count += self.step.waiting_count
            self.waiting_for = self.waiting_for or placement_text(self.step.why)
        workflow.set_current_details(daemon_details(self.launched_count, self.waiting_count, self.waiting_for))
        return self.step

    async def take_step(self, after: int) -> None:
        self.step = await workflow.execute_activity_method(
            DaemonActivities.step,
            args=[self.job_id, after],
            summary=f"look at the instances from {after + 1} on",
            **HOSTMGR_CALL,
        )
        self.launched_count += self.step.launched_count
        if self.step.changed_count:
            await self.tell_the_job()
        if self.step.changed_count or self.step.launched_count:
            self.pause_s = 0.0

    async def tell_the_job(self) -> None:
        job = workflow.get_external_workflow_handle(job_workflow_id(self.job_id))
        with suppress(ApplicationError):  # it has ended
            await job.signal("changed")

    async def wait_for_change(self) -> None:
        if self.wakeup_pending or self.step.is_over:
            return
        patience_s = self.policies.look_again_s
        if self.waiting_count:
            self.pause_s = min(self.pause_s * 2 or self.policies.retry_s, self.policies.retry_max_s)
            patience_s = self.pause_s
        waits = self.waiting_for
        self.wake_timer.set(patience_s, f"look again: waits for {waits}" if waits else "look again")
        await workflow.wait_condition(lambda: self.wakeup_pending or self.wake_timer.fired)

    async def stop(self) -> None:
        await workflow.execute_activity_method(
            RecordsActivities.stop_job, self.job_id, summary="stop the daemon: the workflow was cancelled", **KILL_CALL
        )
        await self.tell_the_job()
        self.wakeup_pending = True

    # Platform chores.

    async def continue_as_new_when_due(self, input: DaemonInput) -> None:
        if self.renewal.is_due(self.policies):
            await continue_as_new(replace(input, policies=await fresh_policies(self.policies)))
