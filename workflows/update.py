"""Rollout of a service's update.

    begin -> [ wait | replace the batch -> watch it | roll back ]* -> finish

    begin     find the differences from the previous version
    wait      it is paused, or no instance is in flight and none may begin: no pulse came, or the SLA refuses
    replace   a few running pods are ended directly; the job's workflow ends the others, and starts them all
    watch     until instances in flight are healthy or have failed
    roll back too many have failed: the same loop to the previous version, in a run of its own
    finish    SUCCEEDED, FAILED, ABORTED or ROLLED_BACK

The phase follows from the result of the last read (``lifecycle.rollout_phase``). A read is one transaction: it records
which instances in flight are done or have failed, and puts those in flight that may begin, as ``lifecycle.rollout``
decides. Pause, resume, abort and a newer update are rows that users change, and each read returns the job's current
update, so lost, repeated and reordered signals do no harm.

While a batch is being updated in place, the hosts of the next one prefetch their new images. The rollout neither waits
for that nor fails with it.

The job's workflow starts it, and signals it when its next read would change something. It ends when the job has no
update under way; the next one has the same workflow id, so that a job has one rollout at a time.

History: 8 events to start and end, 5 for each wake-up, 1 for each batch that is ended here, 5 each time the job is
signalled: at the start and the end, for another batch, for a pause; 6 for each batch whose images are prefetched; 1 or
2 for a timer; 12 for a rollback. Beyond the bound it continues as new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from temporalio import workflow
from temporalio.exceptions import FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.images import ImageActivities
    from activities.launch import LaunchActivities
    from activities.records import RecordsActivities
    from activities.requests import RequestActivities
    from peloton.errors import Aborted, InvalidArgument, NotFound
    from peloton.lifecycle.progress import add_state, update_details
    from peloton.lifecycle.rollout import no_pulse_text, not_latest_text, nothing_before_text
    from peloton.lifecycle.rollout_phase import (
        BEGIN,
        CONTINUE,
        NEXT,
        Phase,
        phase_of,
        replace_text,
        roll_back_text,
        wait_text,
        watch_text,
    )
    from peloton.model.host import Prefetched
    from peloton.model.request import RequestAnswer
    from peloton.model.update import UpdateAct, UpdateProgress
    from workflows.attributes import STATE, UPDATE
    from workflows.calls import run_local, stoppable
    from workflows.child_workflows import signal_job
    from workflows.policies import LOCAL_CALL, PREFETCH_CALL, RECORDS_CALL, SUMMARY_MAX, Policies
    from workflows.requests import carry_out, refuse
    from workflows.shell import SignalledWorkflow


@dataclass(frozen=True)
class UpdateCarryOver:
    """State that continue-as-new carries."""

    shown: str = ""  # update and state
    states: tuple[str, ...] = ()  # of its updates, and since when: the newest
    told: str = ""  # the milestone that was last signalled to the job
    fetched_for: str = ""  # the batch during which images were last fetched ahead
    can_prefetch: bool = True  # until a call shows that no driver can prefetch images


@dataclass(frozen=True)
class UpdateInput:
    job_id: str
    policies: Policies = field(default_factory=Policies)
    life: UpdateCarryOver = field(default_factory=UpdateCarryOver)


@dataclass(frozen=True)
class UpdateResult:
    update_id: str
    state: str
    done_count: int = 0
    failed_count: int = 0


@workflow.defn(name="Update")
class UpdateWorkflow(SignalledWorkflow):
    life: UpdateCarryOver

    @workflow.init
    def __init__(self, input: UpdateInput) -> None:
        self.job_id = input.job_id
        super().__init__(input)
        self.progress = UpdateProgress()
        self.is_fetching = False
        self.pause_s = 0.0  # until the next read, when no signal reports the change that it waits for

    @workflow.run
    async def run(self, input: UpdateInput) -> UpdateResult:
        return await stoppable(self.run_loop(), self.stop)

    async def run_loop(self) -> UpdateResult:
        await self.begin()
        while True:
            match phase_of(self.progress):
                case Phase.WAIT:
                    await self.wait()
                case Phase.REPLACE:
                    await self.replace_batch()
                    await self.watch_batch()
                case Phase.WATCH:
                    await self.watch_batch()
                case Phase.ROLL_BACK:
                    await self.roll_back_failed()
                case Phase.FINISH:
                    if await self.is_last():
                        return self.finish()
                    await self.begin_next()

    # Requests of users to the rollout. ``update_id`` names the update that they mean; by default it is the one shown.

    @workflow.update(description="Pause the rollout: it changes no further instance until it is resumed.")
    async def pause(self, update_id: str = "") -> RequestAnswer:
        return await self.steer(UpdateAct.PAUSE, update_id)

    @workflow.update(description="Resume the rollout after a pause.")
    async def resume(self, update_id: str = "") -> RequestAnswer:
        return await self.steer(UpdateAct.RESUME, update_id)

    @workflow.update(description="Abort the rollout: instances stay as they are.")
    async def abort(self, update_id: str = "") -> RequestAnswer:
        return await self.steer(UpdateAct.ABORT, update_id)

    @workflow.update(name="roll_back", description="Roll back to the version before the update, by another update.")
    async def request_roll_back(self, update_id: str = "") -> RequestAnswer:
        await workflow.wait_condition(lambda: bool(self.life.shown))  # a repeated call names the same update
        named = update_id or self.shown_update_id
        return await self.request(RequestActivities.roll_back, named, summary="roll the update back")

    @workflow.update(description="Send a pulse to an update that requires pulses. Its update key may be given.")
    async def pulse(self, key: str = "") -> RequestAnswer:
        return await self.request(RequestActivities.pulse, self.job_id, key, summary="pulse the update")

    async def steer(self, act: UpdateAct, update_id: str) -> RequestAnswer:
        args = self.job_id, update_id or self.shown_update_id, act
        return await self.request(RequestActivities.steer, *args, summary=f"{act} the update")

    async def request(self, step: Callable[..., RequestAnswer], *args: str, summary: str) -> RequestAnswer:
        answer = await carry_out(step, *args, summary=summary)
        self.wakeup_pending = True
        return answer

    @pause.validator
    @resume.validator
    @abort.validator
    def check_update(self, update_id: str = "") -> None:
        """Refuse a request about an update that was replaced. An id that was never shown may be newer: the activity
        decides by the rows.
        """
        latest, shown = self.shown_update_id, " ".join(self.life.states)
        if update_id and update_id != latest and update_id in shown:
            refuse(Aborted(not_latest_text(update_id, self.job_id, latest)))

    @request_roll_back.validator
    def check_roll_back(self, update_id: str = "") -> None:
        self.check_update(update_id)
        if self.progress.is_first and not self.wakeup_pending:
            refuse(NotFound(nothing_before_text(self.shown_update_id, self.job_id)))

    @pulse.validator
    def check_pulse(self, key: str = "") -> None:
        if self.progress.needs_no_pulse and not self.wakeup_pending:
            refuse(InvalidArgument(no_pulse_text(self.job_id)))

    # Steps, in the order in which they run.

    async def begin(self) -> None:
        await self.read(CONTINUE if self.life.shown else BEGIN)

    async def wait(self) -> None:
        await self.signal_job()
        await self.wait_for_change()
        await self.read(wait_text(self.progress))

    async def replace_batch(self) -> None:
        """End a few pods directly; the job's workflow ends, queues and starts all others."""
        if await self.end_pods():
            self.life = replace(self.life, told=self.progress.milestone)
        await self.signal_job()

    async def watch_batch(self) -> None:
        await self.signal_job()
        await self.wait_for_change()
        await self.read(watch_text(self.progress))

    async def roll_back_failed(self) -> None:
        """Reverse the update. The rollback is another run: a worker of release 0.1, which has no such step, may have to
        replay the current run.
        """
        await run_local(RecordsActivities.roll_back_failed_update, self.job_id, summary=roll_back_text(self.progress))
        await self.continue_as_new()

    async def is_last(self) -> bool:
        """Wait for the answers to users: a rollback that they request is another update, which is rolled out here."""
        await self.signal_job()
        await workflow.wait_condition(workflow.all_handlers_finished)
        return not self.wakeup_pending

    async def begin_next(self) -> None:
        await self.continue_as_new_when_due()
        await self.read(NEXT)

    def finish(self) -> UpdateResult:
        done, failed = self.progress.done_count, self.progress.failed_count
        return UpdateResult(self.progress.update_id, self.progress.state.value, done, failed)

    # Execution of the steps.

    async def read(self, summary: str) -> None:
        """Read the progress of the update; the same transaction puts the next instances in flight, if they may
        begin.
        """
        self.wakeup_pending = False
        self.progress = await run_local(RecordsActivities.advance_update, self.job_id, summary=summary[:SUMMARY_MAX])
        if self.progress.milestone != self.life.told:
            self.pause_s = 0.0
        self.show()

    async def end_pods(self) -> bool:
        """End a few running pods; the host manager signals the job when they have ended. Return whether no work remains
        for the job.
        """
        count = self.progress.kill_count
        if not 0 < count <= self.policies.at_once_pods_max or self.progress.rest_count:
            return False
        summary = replace_text(self.progress)[:SUMMARY_MAX]
        try:
            ended_count = await workflow.execute_local_activity_method(
                LaunchActivities.kill_running, self.job_id, summary=summary, **LOCAL_CALL
            )
        except FailureError as error:
            if is_cancelled_exception(error):
                raise
            return False
        return ended_count >= count

    async def signal_job(self) -> None:
        """Signal the job, once for each milestone: it moves the pods of the batch, and shows the update."""
        if self.progress.milestone == self.life.told:
            return
        await signal_job(self.job_id)
        self.life = replace(self.life, told=self.progress.milestone)

    def prefetch_images(self) -> None:
        """Start a prefetch once for each batch, one call at a time; its result is recorded when it arrives."""
        progress = self.progress
        is_wanted = progress.coming_image_count and progress.batch != self.life.fetched_for
        if not is_wanted or self.is_fetching or not self.life.can_prefetch:
            return
        self.life, self.is_fetching = replace(self.life, fetched_for=progress.batch), True
        workflow.start_activity_method(
            ImageActivities.prefetch,
            self.job_id,
            summary=f"prefetch up to {progress.coming_image_count} images on hosts",
            **PREFETCH_CALL,
        ).add_done_callback(self.note_prefetch)

    def note_prefetch(self, call: asyncio.Future[Prefetched]) -> None:
        """Record the result of a prefetch. A failed one is not repeated: the next batch, which may have begun
        meanwhile, has its own.
        """
        self.is_fetching = False
        if not call.cancelled() and call.exception() is None and not call.result().is_possible:
            self.life = replace(self.life, can_prefetch=False)
        self.prefetch_images()

    async def wait_for_change(self) -> None:
        """Return when a step would change something, on the current version of the workers."""
        self.prefetch_images()
        if not self.wakeup_pending:
            await self.wait_for_signal()
        await self.continue_as_new_when_due()

    async def wait_for_signal(self) -> None:
        timeout_s = self.policies.look_again_s
        if self.progress.look_again:
            self.pause_s = self.policies.next_delay_s(self.pause_s)
            timeout_s = self.pause_s
        if self.progress.stalls_in_s:
            timeout_s = min(timeout_s, self.progress.stalls_in_s)
        await self.doze(timeout_s, self.progress.waiting_for)

    async def stop(self) -> None:
        await workflow.execute_activity_method(
            RecordsActivities.abort_update,
            self.job_id,
            summary="abort the update: the workflow was cancelled",
            **RECORDS_CALL,
        )
        self.wakeup_pending = True

    # Temporal plumbing.

    @property
    def shown_update_id(self) -> str:
        """Return the id of the update that this run or an earlier one has last read."""
        return self.life.shown.partition(" ")[0]

    def show(self) -> None:
        update, state = self.progress.update_id, self.progress.state.value
        if f"{update} {state}" != self.life.shown:
            states = add_state(self.life.states, workflow.now(), f"{state}, update {update}")
            self.life = replace(self.life, shown=f"{update} {state}", states=states)
            workflow.upsert_search_attributes([STATE.value_set(state), UPDATE.value_set(update)])
        workflow.set_current_details(update_details(self.progress, self.life.states))
