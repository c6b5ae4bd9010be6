"""Rebalancing of a cluster: pods of services move to better hosts, round after round, until a user stops it.

    RUNNING <--> PAUSED
       |           |
       +--stopped--+--> STOPPING --no pod moves--> STOPPED

The requests of users, the budget of moves and each move are rows of storage. The state after a step determines the next
turn:

    begin -> [ watch the moves under way | plan the next round and begin its moves | rest while paused ]* -> finish

The host manager takes each step: it reads the state of the moving pods. When all of them run again and the hour's
budget is not used up, it plans the next moves and evicts their pods, as far as their SLAs allow. One transaction evicts
a pod and binds it to its new host; the workflow of its job ends, queues, places and starts it like any other. Turns may
therefore be repeated and interrupted anywhere, and an end leaves no move incomplete. A signal reports only that a user
changed something.

History: 10 events for each turn, whatever it moves; a turn by itself after 2 to 15 s while pods move, and after a
minute while no move would help. It continues as new by the same bound as jobs do.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.rebalance import RebalanceActivities
    from peloton.lifecycle.rebalance import REST_S, TO_TAKE_CAPACITY, details
    from peloton.model.rebalance import RebalanceProgress, RebalanceState
    from workflows.calls import stoppable
    from workflows.policies import (
        HOSTMGR_CALL,
        REBALANCE_POLL_S,
        REBALANCE_RETRY_MAX_S,
        RECORDS_CALL,
        Policies,
    )
    from workflows.shell import SignalledWorkflow


@dataclass(frozen=True)
class RebalanceCarryOver:
    """State that continue-as-new carries."""

    shown_state: str = ""


@dataclass(frozen=True)
class RebalanceInput:
    cluster: str
    policies: Policies = field(default_factory=Policies)
    life: RebalanceCarryOver = field(default_factory=RebalanceCarryOver)


@dataclass(frozen=True)
class RebalanceResult:
    move_count: int


@workflow.defn(name="Rebalance")
class RebalanceWorkflow(SignalledWorkflow):
    life: RebalanceCarryOver

    @workflow.init
    def __init__(self, input: RebalanceInput) -> None:
        self.cluster = input.cluster
        super().__init__(input)
        self.progress = RebalanceProgress()
        self.retry_s = 0.0  # until the next step

    @workflow.run
    async def run(self, input: RebalanceInput) -> RebalanceResult:
        return await stoppable(self.run_loop(), self.stop)

    async def run_loop(self) -> RebalanceResult:
        await self.begin()
        while not self.progress.is_over or self.wakeup_pending:
            if self.progress.moving_count:
                await self.watch_moves()
            elif self.progress.state is RebalanceState.PAUSED:
                await self.rest()
            else:
                await self.plan_round()
        return await self.finish()

    # Steps, in the order in which they run.

    async def begin(self) -> None:
        await self.take_step("continue" if self.life.shown_state else "begin: plan a round, and begin its moves")

    async def watch_moves(self) -> None:
        await self.wait_for_change(self.retry_s)
        await self.take_step(f"watch {self.progress.moving_count} of {self.progress.move_count} moves")

    async def plan_round(self) -> None:
        await self.wait_for_change(REST_S if self.progress.waiting_for == TO_TAKE_CAPACITY else REBALANCE_POLL_S)
        await self.take_step(f"plan the next round: {self.progress.hour_count} moves begun within the last hour")

    async def rest(self) -> None:
        await self.wait_for_change(self.policies.look_again_s)
        await self.take_step("check whether it may continue")

    async def finish(self) -> RebalanceResult:
        await workflow.wait_condition(workflow.all_handlers_finished)
        return RebalanceResult(self.progress.move_count)

    # Execution of the steps.

    async def take_step(self, summary: str) -> None:
        self.wakeup_pending = False
        before = self.progress
        self.progress = await workflow.execute_activity_method(
            RebalanceActivities.advance, self.cluster, summary=summary, **HOSTMGR_CALL
        )
        has_news = self.progress != before
        self.retry_s = self.policies.next_delay_s(0.0 if has_news else self.retry_s, REBALANCE_RETRY_MAX_S)
        self.show()

    async def wait_for_change(self, timeout_s: float) -> None:
        """Return when a step is due, on the current version of the workers."""
        await self.sleep(timeout_s, self.progress.waiting_for)
        await self.continue_as_new_when_due()

    async def stop(self) -> None:
        """Stop the rebalancing after a cancellation of the workflow."""
        await workflow.execute_activity_method(
            RebalanceActivities.stop,
            self.cluster,
            summary="stop rebalancing: the workflow was cancelled",
            **RECORDS_CALL,
        )
        self.wakeup_pending = True

    # Temporal plumbing.

    def show(self) -> None:
        workflow.set_current_details(details(self.cluster, self.progress))
        self.show_state(self.progress.state.value)
