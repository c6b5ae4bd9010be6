"""Runs the pods of a daemon on its hosts.

[ step -> signal the job -> wait for change ]* until the daemon ends

In a step the host managers compare the daemon's instances with the matching hosts. They create instances for new hosts,
end those of removed hosts, and start those of returned hosts again; missing pods are launched on their hosts with the
resources that are reserved for them. The work of a step is bounded; steps follow each other until all instances were
compared.

The job's workflow starts this one, and signals it when pods are ready to launch and when the daemon has to end. Host
managers signal it when hosts join or leave, or have free resources for a waiting pod. It signals the job when instances
started or ended: the job ends superseded runs, and shows the state of the daemon.

History: 7 events for each step, which creates up to 5,000 pods or launches up to 1,000, 3 for each signal to the job, 5
for each wake-up and 1 or 2 for a timer, however many hosts there are; 132 in an hour without changes. It continues as
new when the history reaches its bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.daemon import DaemonActivities
    from activities.records import RecordsActivities
    from peloton.lifecycle.progress import daemon_details
    from peloton.lifecycle.reason_text import placement_text
    from peloton.model.daemon import DaemonStep
    from workflows.calls import stoppable
    from workflows.child_workflows import signal_job
    from workflows.policies import HOSTMGR_CALL, KILL_CALL, Policies
    from workflows.shell import SignalledWorkflow


@dataclass(frozen=True)
class DaemonInput:
    job_id: str
    policies: Policies = field(default_factory=Policies)


@dataclass(frozen=True)
class DaemonResult:
    """Result of this run of the workflow."""

    launched_count: int = 0


@workflow.defn(name="Daemon")
class DaemonWorkflow(SignalledWorkflow):
    @workflow.init
    def __init__(self, input: DaemonInput) -> None:
        self.job_id = input.job_id
        super().__init__(input)
        self.step = DaemonStep()  # result of the last step
        self.launched_count = self.waiting_count = 0  # of all instances, at the last comparison
        self.waiting_for = ""
        self.pause_s = 0.0  # delay of the next step while pods wait for their hosts

    @workflow.run
    async def run(self, input: DaemonInput) -> DaemonResult:
        return await stoppable(self.run_loop(), self.stop)

    async def run_loop(self) -> DaemonResult:
        while not (await self.compare_all()).is_over or self.wakeup_pending:
            await self.wait_for_change()
            await self.continue_as_new_when_due()
        await workflow.wait_condition(workflow.all_handlers_finished)
        return DaemonResult(self.launched_count)

    # Steps, in the order in which they run.

    async def compare_all(self) -> DaemonStep:
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
            summary=f"compare the instances from {after + 1} on",
            **HOSTMGR_CALL,
        )
        self.launched_count += self.step.launched_count
        if self.step.changed_count:
            await signal_job(self.job_id)
        if self.step.changed_count or self.step.launched_count:
            self.pause_s = 0.0

    async def wait_for_change(self) -> None:
        if self.wakeup_pending or self.step.is_over:
            return
        timeout_s = self.policies.look_again_s
        if self.waiting_count:
            self.pause_s = self.policies.next_delay_s(self.pause_s)
            timeout_s = self.pause_s
        await self.doze(timeout_s, self.waiting_for)

    async def stop(self) -> None:
        await workflow.execute_activity_method(
            RecordsActivities.stop_job, self.job_id, summary="stop the daemon: the workflow was cancelled", **KILL_CALL
        )
        await signal_job(self.job_id)
        self.wakeup_pending = True
