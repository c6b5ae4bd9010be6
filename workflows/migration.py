"""Migration of a job, or of all jobs of a pool, to another cluster.

    MIGRATING <--> PAUSED
        |             |
        |             +--rolled back--+
        +-------------+               v
        |                       ROLLING_BACK --> ROLLED_BACK
        v
    SUCCEEDED

The requests of users and the progress of the migration are rows of storage. A new migration binds the object to the
target there, so that its new pods are placed only on the target. The state after a step determines the next turn:

    begin -> [ move the next instances | bring the next ones back | rest ]* -> finish

A step (``lifecycle.migration``) ends the next instances of the services under way, as far as batch and SLA allow. Their
jobs are signalled, whose workflows end, queue, place and start them like any others. A step reads from storage which
work remains, so turns may be repeated and interrupted anywhere. A signal reports only that a user changed something.

History: 10 events for each turn, and 3 for each signal to a job; a turn by itself after 2 to 15 s, sooner while
something moves. It continues as new by the same bound as jobs do.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.migration import MigrationActivities
    from peloton.lifecycle.migration import describe_moved, details
    from peloton.model.migration import MigrationProgress, MigrationState
    from workflows.calls import stoppable
    from workflows.child_workflows import signal_job
    from workflows.policies import MIGRATION_RETRY_MAX_S, RECORDS_CALL, SUMMARY_MAX, Policies
    from workflows.shell import SignalledWorkflow


@dataclass(frozen=True)
class MigrationCarryOver:
    """State that continue-as-new carries."""

    shown_state: str = ""


@dataclass(frozen=True)
class MigrationInput:
    migration_id: str
    name: str
    target: str
    policies: Policies = field(default_factory=Policies)
    life: MigrationCarryOver = field(default_factory=MigrationCarryOver)


@dataclass(frozen=True)
class MigrationResult:
    state: str
    service_count: int
    moved_count: int


@workflow.defn(name="Migration")
class MigrationWorkflow(SignalledWorkflow):
    life: MigrationCarryOver

    @workflow.init
    def __init__(self, input: MigrationInput) -> None:
        self.migration_id, self.name, self.target = input.migration_id, input.name, input.target
        super().__init__(input)
        self.progress = MigrationProgress()
        self.refusal = ""  # why a cancellation was
        self.retry_s = 0.0  # until the next step

    @workflow.run
    async def run(self, input: MigrationInput) -> MigrationResult:
        return await stoppable(self.run_loop(), self.roll_back)

    async def run_loop(self) -> MigrationResult:
        await self.begin()
        while not self.progress.is_over or self.wakeup_pending:
            match self.progress.state:
                case MigrationState.MIGRATING:
                    await self.move_next()
                case MigrationState.ROLLING_BACK:
                    await self.bring_next_back()
                case _:
                    await self.rest()
        return await self.finish()

    # Steps, in the order in which they run.

    async def begin(self) -> None:
        is_continued = bool(self.life.shown_state)
        await self.take_step("continue" if is_continued else f"begin: take instances down that go to {self.target}")

    async def move_next(self) -> None:
        await self.signal_jobs()
        await self.wait_for_change(self.retry_s)
        await self.take_step(f"take the next instances down that go to {self.target}: {describe_moved(self.progress)}")

    async def bring_next_back(self) -> None:
        await self.signal_jobs()
        await self.wait_for_change(self.retry_s)
        await self.take_step(f"take the next instances down that come back: {describe_moved(self.progress)}")

    async def rest(self) -> None:
        """Wait until a user resumes the migration or rolls it back."""
        await self.signal_jobs()
        await self.wait_for_change(self.policies.look_again_s)
        await self.take_step(f"check whether it may continue: {describe_moved(self.progress)}")

    async def finish(self) -> MigrationResult:
        await workflow.wait_condition(workflow.all_handlers_finished)
        return MigrationResult(self.progress.state.value, self.progress.service_count, self.progress.moved_count)

    # Execution of the steps.

    async def take_step(self, summary: str) -> None:
        self.wakeup_pending = False
        before = self.progress
        self.progress = await workflow.execute_activity_method(
            MigrationActivities.advance, self.migration_id, summary=summary[:SUMMARY_MAX], **RECORDS_CALL
        )
        moved = replace(self.progress, to_wake=()) != replace(before, to_wake=())
        self.retry_s = self.policies.next_delay_s(0.0 if moved else self.retry_s, MIGRATION_RETRY_MAX_S)
        self.show()

    async def signal_jobs(self) -> None:
        """Signal the jobs, whose workflows end the pods that the step chose. A lost signal is sent again with the next
        step.
        """
        for job_id in self.progress.to_wake:
            await signal_job(job_id)

    async def wait_for_change(self, timeout_s: float) -> None:
        """Return when a step is due, on the current version of the workers."""
        await self.sleep(timeout_s, self.progress.waiting_for)
        await self.continue_as_new_when_due()

    async def roll_back(self) -> None:
        """Roll the migration back after a cancellation of the workflow."""
        self.refusal = await workflow.execute_activity_method(
            MigrationActivities.roll_back,
            self.migration_id,
            summary="roll the migration back: the workflow was cancelled",
            **RECORDS_CALL,
        )
        self.wakeup_pending = True

    # Temporal plumbing.

    def show(self) -> None:
        workflow.set_current_details(details(self.name, self.target, self.progress, self.refusal))
        self.show_state(self.progress.state.value)
