"""The rollout of a service's update.

    [ take step -> prefetch images -> wait for change ]* -> SUCCEEDED | FAILED | ABORTED | ROLLED_BACK

A step (``lifecycle.rollout``) sorts the instances in flight into done and failed, fills the batch up, and changes the
pods that it chose. Few that hosts run are told to end right here; the job's workflow ends the others, and starts them
all like any others. Pause, resume, abort and a newer update are
rows that people change: each step looks at the job's update as it is now, so that lost, repeated and reordered signals
do no harm.

While a batch is being updated in place, the hosts of the next one are asked to fetch their new images. Nothing waits
for that, and nothing fails with it.

The job's workflow starts it, and tells it when its next step would change something. It ends when the job has no update
that is under way; the next one has the same id, so that there is one rollout of a job at a time.

History: 8 events to start and end, 5 for each wake-up, 1 for each batch that is ended here, 5 each time the job is
told: at the start and the end, of another batch, of a pause; 6 for each batch whose images are fetched ahead; 1 or 2
for a timer. Beyond the bound it continues as new.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.images import ImageActivities
    from activities.launch import LaunchActivities
    from activities.records import RecordsActivities
    from peloton.lifecycle.progress import lived, update_details
    from peloton.model.host import Prefetched
    from peloton.model.ids import job_workflow_id
    from peloton.model.update import UpdateProgress
    from workflows.attributes import STATE, UPDATE
    from workflows.calls import WakeTimer, look, stoppable
    from workflows.policies import AT_ONCE_CALL, PREFETCH_CALL, RECORDS_CALL, Policies
    from workflows.renewal import Renewal, continue_as_new, fresh_policies


@dataclass(frozen=True)
class UpdateLife:
    """Exactly what continue-as-new carries."""

    shown: str = ""  # update and state
    states: tuple[str, ...] = ()  # of its updates, and since when: the newest
    told: str = ""  # the milestone that the job was told of
    fetched_for: str = ""  # the batch during which images were last fetched ahead
    can_prefetch: bool = True  # until it turns out that nobody can fetch images ahead


@dataclass(frozen=True)
class UpdateInput:
    job_id: str
    policies: Policies = field(default_factory=Policies)
    life: UpdateLife = field(default_factory=UpdateLife)


@dataclass(frozen=True)
class UpdateResult:
    update_id: str
    state: str
    done_count: int = 0
    failed_count: int = 0


@workflow.defn(name="Update")
class UpdateWorkflow:
    @workflow.init
    def __init__(self, input: UpdateInput) -> None:
        self.job_id = input.job_id
        self.policies = input.policies
        self.life = input.life
        self.renewal = Renewal()
        self.wakeup_pending = False
        self.wake_timer = WakeTimer()  # the time to look again
        self.progress = UpdateProgress()
        self.is_fetching = False
        self.pause_s = 0.0  # until the next look, when nobody tells that what it waits for has changed

    @workflow.run
    async def run(self, input: UpdateInput) -> UpdateResult:
        return await stoppable(self.live(input), self.stop)

    async def live(self, input: UpdateInput) -> UpdateResult:
        while not (await self.take_step()).is_finished or self.wakeup_pending:
            self.prefetch_images()
            await self.wait_for_change()
            await self.continue_as_new_when_due(input)
        await workflow.wait_condition(workflow.all_handlers_finished)
        done, failed = self.progress.done_count, self.progress.failed_count
        return UpdateResult(self.progress.update_id, self.progress.state.value, done, failed)

    @workflow.signal
    def changed(self) -> None:
        """Something about the job changed: its update, its pods, their health."""
        self.wakeup_pending = True

    @workflow.query
    def status(self) -> dict[str, str]:
        return {"state": self.progress.state.value, "waiting_for": self.progress.waiting_for}

    # Steps, in the order of the story.

    async def take_step(self) -> UpdateProgress:
        self.wakeup_pending = False
        self.progress = await look(RecordsActivities.advance_update, self.job_id, summary="take the next step")
        self.show()
        if self.progress.milestone != self.life.told:
            self.pause_s = 0.0
            if not await self.end_pods():
                await self.tell_the_job()
            self.life = replace(self.life, told=self.progress.milestone)
        return self.progress

    async def end_pods(self) -> bool:
        """A few pods that hosts run are told to end here; the host manager tells the job when they have. Returns
        whether that was all there is to do: the job ends, queues and starts all others, and what fails here."""
        count = self.progress.kill_count
        if not 0 < count <= self.policies.at_once_pods_max or self.progress.rest_count:
            return False
        try:
            told = await workflow.execute_local_activity_method(
                LaunchActivities.kill_running, self.job_id, summary=f"end {count} pods of the batch", **AT_ONCE_CALL
            )
        except FailureError as error:
            if is_cancelled_exception(error):
                raise
            return False
        return told >= count

    async def tell_the_job(self) -> None:
        """It ends and starts the pods that the step chose, and shows what became of the update."""
        job = workflow.get_external_workflow_handle(job_workflow_id(self.job_id))
        with suppress(ApplicationError):  # it has ended: nobody is left to be told
            await job.signal("changed")

    def prefetch_images(self) -> None:
        """Once for each batch, one call at a time; what becomes of it is noted whenever it is known."""
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
        """One that failed is not repeated: the next batch, which may have begun meanwhile, has its own."""
        self.is_fetching = False
        if not call.cancelled() and call.exception() is None and not call.result().is_possible:
            self.life = replace(self.life, can_prefetch=False)
        self.prefetch_images()

    async def wait_for_change(self) -> None:
        if self.wakeup_pending:
            return
        patience_s = self.policies.look_again_s
        if self.progress.look_again:
            self.pause_s = min(self.pause_s * 2 or self.policies.retry_s, self.policies.retry_max_s)
            patience_s = self.pause_s
        if self.progress.stalls_in_s:
            patience_s = min(patience_s, self.progress.stalls_in_s)
        waits = self.progress.waiting_for
        self.wake_timer.set(patience_s, f"look again: waits for {waits}" if waits else "look again")
        await workflow.wait_condition(lambda: self.wakeup_pending or self.wake_timer.fired)

    async def stop(self) -> None:
        await workflow.execute_activity_method(
            RecordsActivities.abort_update,
            self.job_id,
            summary="abort the update: the workflow was cancelled",
            **RECORDS_CALL,
        )
        self.wakeup_pending = True

    # Platform chores.

    def show(self) -> None:
        update, state = self.progress.update_id, self.progress.state.value
        if f"{update} {state}" != self.life.shown:
            states = lived(self.life.states, workflow.now(), f"{state}, update {update}")
            self.life = replace(self.life, shown=f"{update} {state}", states=states)
            workflow.upsert_search_attributes([STATE.value_set(state), UPDATE.value_set(update)])
        workflow.set_current_details(update_details(self.progress, self.life.states))

    async def continue_as_new_when_due(self, input: UpdateInput) -> None:
        if self.renewal.is_due(self.policies):
            policies = await fresh_policies(self.policies)
            continue_as_new(replace(input, policies=policies, life=self.life))
