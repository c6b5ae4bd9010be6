"""Launch of a gang.

[ read -> place whole -> launch all -> wait for change ]* -> running | requeue | superseded

It begins when all members are READY, and ends as ``running`` when all of them run. It fails when no hosts are found for
all members in time, when no host could take a member even if it were empty, when a host refuses a member, or when not
all of them run in time: ``requeue`` makes the resource manager take the whole gang back and queue it again, in its old
place and after a delay. When a member fails, is stopped or preempted, the job's settle ends or restarts all of them,
and this workflow ends as ``superseded``.

Every step begins with a read of storage and is conditional on its result, so this workflow and others may read at any
time. The job's workflow starts it, and forwards its own signals to it.

History: 14 events to start and end, 5 for each wake-up, 7 for each failed placement and 2 more for its timer, 13 for
the launch (9 of more than 1,000 members), 6 for a requeue. Beyond the bound it continues as new.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.admission import AdmissionActivities
    from activities.launch import LaunchActivities
    from activities.placement import PlacementActivities
    from activities.records import RecordsActivities
    from peloton.lifecycle.failed_placements import placement_timeout_s
    from peloton.lifecycle.gang import Step, Verdict, evaluate
    from peloton.lifecycle.progress import gang_details
    from peloton.lifecycle.reason_text import placement_text, requeue_text
    from peloton.model.job import GangProgress
    from peloton.model.reason import PlacementReason, RequeueReason, RequeueRule
    from workflows.attributes import STATE
    from workflows.calls import run_local, stoppable
    from workflows.policies import LAUNCH_CALL, PLACEMENT_CALL, RESMGR_CALL, Policies
    from workflows.renewal import continue_as_new, fresh_policies
    from workflows.shell import SignalledWorkflow


ONE_CALL = "202611-gang-in-one-call"
"""Remove this patch, with ``place_then_launch``, when no workflow that release 0.1 began can run any more. The next
release makes one call for gangs of every size.
"""


@dataclass(frozen=True)
class GangCarryOver:
    """State that continue-as-new carries: the step of the launch, its start, and the last pause of its placement."""

    step: str = ""
    since_s: float = 0.0
    pause_s: float = 0.0


@dataclass(frozen=True)
class GangInput:
    job_id: str
    policies: Policies = field(default_factory=Policies)
    life: GangCarryOver = field(default_factory=GangCarryOver)


@dataclass(frozen=True)
class GangResult:
    outcome: str
    reason: str = ""


@workflow.defn(name="Gang")
class GangWorkflow(SignalledWorkflow):
    life: GangCarryOver

    @workflow.init
    def __init__(self, input: GangInput) -> None:
        self.job_id = input.job_id
        super().__init__(input)
        self.verdict = Verdict(Step.PLACE)
        self.member_count = 0
        self.placement: PlacementReason = ()
        self.pause_s = input.life.pause_s
        self.is_cancelled = False
        self.placement_s = input.policies.gang_placement_s

    @workflow.run
    async def run(self, input: GangInput) -> GangResult:
        return await stoppable(self.run_loop(), self.stop)

    async def run_loop(self) -> GangResult:
        while (await self.read()).is_waiting:
            if self.verdict.step is Step.PLACE:
                await self.place_and_launch()
            if self.verdict.step is Step.REQUEUE:
                break
            await self.wait_for_change()
            await self.continue_as_new_when_due()
        if self.verdict.step is Step.REQUEUE:
            await self.requeue()
        await workflow.wait_condition(workflow.all_handlers_finished)
        reason = self.verdict.reason
        return GangResult(self.verdict.step.value, requeue_text(reason) if reason else "")

    # Steps, in the order in which they run.

    async def read(self) -> Verdict:
        self.wakeup_pending = False
        seen = await run_local(RecordsActivities.read_gang, self.job_id, summary="read the gang")
        self.member_count = seen.size
        step = evaluate(seen).step
        if step.value != self.life.step:
            self.life = GangCarryOver(step.value, workflow.time())
            self.placement, self.pause_s = (), 0.0
            workflow.upsert_search_attributes([STATE.value_set(step.name)])
        self.placement_s = placement_timeout_s(self.policies.gang_placement_s, seen.vain_count)
        self.verdict = evaluate(seen, self.waited_s, self.policies.gang_placement_s, self.policies.gang_launch_s)
        if self.is_cancelled and self.verdict.is_waiting:
            self.verdict = Verdict(Step.REQUEUE, RequeueReason(RequeueRule.CANCELLED))
        elif self.verdict.reason and self.placement:
            reason = replace(self.verdict.reason, placement=self.placement)
            self.verdict = replace(self.verdict, reason=reason)
        self.show(seen)
        return self.verdict

    async def place_and_launch(self) -> None:
        # The release before cannot replay the marker of a patch: until the next one it is for large gangs alone.
        if self.member_count <= self.policies.gang_two_calls_max or not workflow.patched(ONE_CALL):
            return await self.place_then_launch()
        launch = await workflow.execute_activity_method(
            PlacementActivities.place_and_launch_gang,
            self.job_id,
            summary=f"place and launch all {self.member_count} pods",
            **LAUNCH_CALL,
        )
        # An earlier attempt of this call may have launched it, and its answer was lost: then no pod moved.
        self.wakeup_pending = launch.launched_count + launch.failed_count > 0
        if not self.wakeup_pending:
            self.placement = launch.why
        if launch.infeasible:
            reason = RequeueReason(RequeueRule.FITS_NO_HOST, infeasible=(launch.infeasible,))
            self.verdict = Verdict(Step.REQUEUE, reason)

    async def place_then_launch(self) -> None:
        """Place and launch in two calls, as release 0.1 does: the placement crosses the history, 60 bytes a member."""
        batch = await workflow.execute_activity_method(
            PlacementActivities.place_gang, self.job_id, summary="place the gang whole", **PLACEMENT_CALL
        )
        if not batch.placements:
            self.placement = batch.why
            if left := next((left for left in batch.unplaced if left.fits_no_host), None):
                reason = RequeueReason(RequeueRule.FITS_NO_HOST, infeasible=(left.infeasible,))
                self.verdict = Verdict(Step.REQUEUE, reason)
            return
        launch = await workflow.execute_activity_method(
            LaunchActivities.launch, batch, summary=f"launch all {batch.placed_count} pods", **LAUNCH_CALL
        )
        # No pod moved: the lease was lost, or an earlier attempt did it and its answer was lost.
        self.wakeup_pending = launch.launched_count + launch.failed_count > 0

    async def requeue(self) -> None:
        await workflow.execute_activity_method(
            AdmissionActivities.requeue_gang,
            args=[self.job_id, self.verdict.reason],
            summary="take everything back and queue the gang again",
            **RESMGR_CALL,
        )

    async def wait_for_change(self) -> None:
        """Wait for a signal, longer each time, but not beyond the timeout of the step."""
        if self.wakeup_pending:
            return
        self.pause_s = self.policies.next_delay_s(self.pause_s)
        is_placing = self.life.step == Step.PLACE
        left_s = (self.placement_s if is_placing else self.policies.gang_launch_s) - self.waited_s
        await self.sleep(max(min(self.pause_s, left_s), 0.001), placement_text(self.placement))

    async def stop(self) -> None:
        """Give up the launch; the gang is queued again."""
        self.is_cancelled = self.wakeup_pending = True

    # Temporal plumbing.

    @property
    def waited_s(self) -> float:
        return workflow.time() - self.life.since_s

    def show(self, seen: GangProgress) -> None:
        workflow.set_current_details(gang_details(seen, self.verdict, placement_text(self.placement)))

    async def continue_as_new_when_due(self) -> None:
        if self.renewal.should_continue_as_new(self.policies) and not self.is_cancelled:
            policies = await fresh_policies(self.policies)
            if not self.is_cancelled:
                life = replace(self.life, pause_s=self.pause_s)
                await continue_as_new(replace(self.input, policies=policies, life=life))
