"""Maintenance of one host, and its move to another host pool.

    cordon -> drain within SLA -> down -> (until an operator completes it) -> up

    UP --its turn--> DRAINING --no pods--> DRAINED --> DOWN --completed--> UP
                        +----------------------------+--cancelled--> UP

    cordon -> drain within SLA -> relabel -> accept pods of the new host pool

    UP --its turn--> DRAINING --no pods--> DRAINED --in its new host pool--> UP

One row of storage has the requests of operators and the state of the host. Each turn reads it and runs the steps that
are due. A step that is not the next one has no effect, so a turn may be interrupted anywhere and repeated. A signal
says only that the row, or pods that a drain waits for, have changed.

History: 14 events for each turn with a step, 10 for one without. While a drain is in progress, a turn starts at each
signal and after 1 to 15 s without one. The workflow continues as new at the same bound as jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.maintenance import MaintenanceActivities
    from peloton.errors import Aborted, NotFound
    from peloton.lifecycle.maintenance import Step, details, next_step, refusal_of
    from peloton.model.host import HostState
    from peloton.model.ids import Hostname
    from peloton.model.maintenance import HostMaintenance, MaintenanceAct
    from peloton.model.request import RequestAnswer
    from workflows.calls import run_local, stoppable
    from workflows.policies import HOSTMGR_CALL, SUMMARY_MAX, Policies
    from workflows.requests import carry_out, refuse
    from workflows.shell import SignalledWorkflow


@dataclass(frozen=True)
class MaintenanceCarryOver:
    """State that continue-as-new carries."""

    shown_state: str = ""
    was_down: bool = False


@dataclass(frozen=True)
class MaintenanceInput:
    cluster: str
    hostname: str
    policies: Policies = field(default_factory=Policies)
    life: MaintenanceCarryOver = field(default_factory=MaintenanceCarryOver)


@dataclass(frozen=True)
class MaintenanceResult:
    """Result of the workflow: the host is UP again. ``was_down``: it was DOWN before."""

    was_down: bool


@workflow.defn(name="HostMaintenance")
class HostMaintenanceWorkflow(SignalledWorkflow):
    life: MaintenanceCarryOver

    @workflow.init
    def __init__(self, input: MaintenanceInput) -> None:
        self.key = [input.cluster, input.hostname]
        super().__init__(input)
        self.host = HostMaintenance(input.cluster, Hostname(input.hostname), HostState.UP, HostState.DOWN)
        self.has_read = False  # the row was read in this run of the workflow
        self.refusal = ""  # why a cancellation was refused
        self.retry_s = 0.0  # delay of the next round of the drain; 0 = no drain is in progress

    @workflow.run
    async def run(self, input: MaintenanceInput) -> MaintenanceResult:
        return await stoppable(self.run_loop(), self.stop)

    async def run_loop(self) -> MaintenanceResult:
        while not (await self.read()).is_over or not await self.is_last():
            await self.cordon()
            await self.drain()
            await self.take_down()
            await self.relabel()
            await self.bring_up()
            await self.wait_for_change()
            await self.continue_as_new_when_due()
        return MaintenanceResult(self.life.was_down)

    @workflow.update(description="Complete the maintenance of a host that is DOWN: it comes back up.")
    async def complete(self) -> RequestAnswer:
        return await self.steer(MaintenanceAct.COMPLETE)

    @workflow.update(description="Cancel the maintenance of a host that is not DOWN yet: it stays in service.")
    async def cancel(self) -> RequestAnswer:
        return await self.steer(MaintenanceAct.CANCEL)

    @workflow.update(description="Force the drain after its deadline: pods leave even if their SLA forbids it.")
    async def force(self) -> RequestAnswer:
        return await self.steer(MaintenanceAct.FORCE)

    async def steer(self, act: MaintenanceAct) -> RequestAnswer:
        summary = f"{act.lower()} the maintenance"
        host = await carry_out(MaintenanceActivities.steer, *self.key, act, summary=summary)
        self.wakeup_pending = True
        return RequestAnswer(host.state.value, host.goal.value)

    @complete.validator
    def check_complete(self) -> None:
        self.check(MaintenanceAct.COMPLETE)

    @cancel.validator
    def check_cancel(self) -> None:
        self.check(MaintenanceAct.CANCEL)

    @force.validator
    def check_force(self) -> None:
        self.check(MaintenanceAct.FORCE)

    def check(self, act: MaintenanceAct) -> None:
        """Refuse a request that is impossible in the state that was last read, unless that state may be out of date."""
        if not self.has_read or self.wakeup_pending or self.host.state is HostState.DRAINED:
            return
        if refusal := refusal_of(act, self.host, workflow.time_ns()):
            refuse(NotFound(refusal) if act is MaintenanceAct.COMPLETE else Aborted(refusal))

    # Steps, in the order in which they run.

    async def read(self) -> HostMaintenance:
        self.wakeup_pending = False
        self.note(await run_local(MaintenanceActivities.read, *self.key, summary="read the host"))
        return self.host

    async def cordon(self) -> None:
        """Cordon the host if it is next: from then on no pod is launched on it."""
        if next_step(self.host) is Step.CORDON:
            await self.take(MaintenanceActivities.cordon, "cordon, if the host is next")

    async def drain(self) -> None:
        """Evict the remaining pods, one round per turn, as the SLA of their jobs allows."""
        if next_step(self.host) is not Step.DRAIN:
            self.retry_s = 0.0
            return
        before = self.host.progress
        await self.take(MaintenanceActivities.drain, f"drain: {before.pod_count} pods")
        self.retry_s = self.policies.next_delay_s(0.0 if self.host.progress != before else self.retry_s)

    async def take_down(self) -> None:
        if next_step(self.host) is Step.TAKE_DOWN:
            await self.take(MaintenanceActivities.take_down, "take down")

    async def relabel(self) -> None:
        if next_step(self.host) is Step.RELABEL:
            await self.take(MaintenanceActivities.relabel, f"put into host pool {self.host.to_pool}")

    async def bring_up(self) -> None:
        if next_step(self.host) is Step.BRING_UP:
            await self.take(MaintenanceActivities.bring_up, "bring up")

    async def take(self, step: Callable[..., HostMaintenance], summary: str) -> None:
        call = workflow.execute_activity_method(step, args=self.key, summary=summary[:SUMMARY_MAX], **HOSTMGR_CALL)
        self.note(await call)

    async def wait_for_change(self) -> None:
        if not self.host.is_over:
            timeout_s = self.retry_s if next_step(self.host) is Step.DRAIN else self.policies.look_again_s
            await self.sleep(timeout_s, self.host.progress.waiting_for)

    async def stop(self) -> None:
        """Cancel the maintenance, so that the host stays in service. The maintenance of a host that is DOWN must be
        completed."""
        self.refusal = await workflow.execute_activity_method(
            MaintenanceActivities.cancel,
            args=self.key,
            summary="cancel the maintenance: the workflow was cancelled",
            **HOSTMGR_CALL,
        )
        self.wakeup_pending = True

    # Temporal plumbing.

    def note(self, host: HostMaintenance) -> None:
        """Store the state of the host, and show it in the search attributes and details of the workflow."""
        self.host, self.has_read = host, True
        self.life = replace(self.life, was_down=self.life.was_down or host.state is HostState.DOWN)
        workflow.set_current_details(details(host, self.refusal))
        self.show_state(host.state.value)
