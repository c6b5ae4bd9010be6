"""Life cycle of a job.

    [ settle -> roll out -> follow hosts -> create pods -> kill -> admit -> launch gang -> place and launch
      -> wait for change ]* -> finished -> forget, if it is to be deleted

``settle`` gives ended pods their next run and rolls up the job's state; the other steps create missing pods (all of
them in the first turn) and advance pods: INITIALIZED pods into the pool's queue, READY pods onto hosts, superseded pods
to their end. A signal reports only that something changed; each turn reads the changes from storage, so lost, repeated
and reordered signals do no harm.

A few missing pods, or all of a new service, are created by ``settle``, which then also queues, places and launches few
pods, each as far as it succeeds at once; the steps with these names make the rest. Pods that the queueing call reports
as admitted are launched in the same turn.

History: 14 events to start and end a job, 7 with at most 100 pods, 5 per wake-up and 1 more when the job's state
changed, 6 per 10,000 pods queued, 7 per 1,000 pods launched, but 1 per step on at most 100 pods; 1 or 2 for each wait
whose end no signal reports, and none while the job is idle; 15 per launch of the gang, update or follower of hosts, and
5 for each signal to one of them. The senders coalesce wake-ups (see ``services/temporal/task_queues.py``).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from activities.admission import AdmissionActivities
    from activities.launch import LaunchActivities
    from activities.placement import PlacementActivities
    from activities.records import RecordsActivities
    from activities.requests import RequestActivities
    from activities.settling import SettlingActivities
    from peloton.errors import InvalidArgument
    from peloton.lifecycle.gang import Step
    from peloton.lifecycle.job_machine import TO_BE_DELETED
    from peloton.lifecycle.progress import add_state, details
    from peloton.lifecycle.reason_text import placement_text
    from peloton.model.ids import daemon_workflow_id, gang_workflow_id, update_workflow_id
    from peloton.model.job import JobEnd, JobProgress, JobState
    from peloton.model.request import RequestAnswer
    from workflows import child_workflows
    from workflows.attributes import JOB_NAME
    from workflows.calls import call, run_local, stoppable
    from workflows.daemon import DaemonInput, DaemonResult, DaemonWorkflow
    from workflows.gang import GangInput, GangResult, GangWorkflow
    from workflows.policies import (
        CREATE_PODS_CALL,
        DELETE_CALL,
        KILL_CALL,
        LAUNCH_CALL,
        RESMGR_CALL,
        Policies,
        long_queue,
    )
    from workflows.renewal import continue_as_new, fresh_policies
    from workflows.requests import carry_out, refuse
    from workflows.shell import SignalledWorkflow
    from workflows.update import UpdateInput, UpdateResult, UpdateWorkflow

SETTLE = "settle the job; queue, place and launch few pods"
LATE_WAKE_UPS = "202611-late-wake-ups"
"""Remove this patch when no job can be under way that began before."""


@dataclass(frozen=True)
class JobCarryOver:
    """State that continue-as-new carries."""

    shown_state: str = ""
    states: tuple[str, ...] = ()  # that it was in, and since when: the newest
    update_told: str = ""  # update and its changes by users, as last signalled to its workflow; "" = none is under way
    gang_run: int = 0  # of the gang whose launch was last signalled; 0 = none is under way
    retry_s: float = 0.0  # the last wait of a job whose steps have no effect; the next one is twice as long
    rollouts: child_workflows.Restarts = field(
        default_factory=child_workflows.Restarts
    )  # of its updates, its follower and its gang
    followers: child_workflows.Restarts = field(default_factory=child_workflows.Restarts)
    launches: child_workflows.Restarts = field(default_factory=child_workflows.Restarts)
    update_failed: str = ""  # of the last failed rollout: another update, or a user's change, does not wait


@dataclass(frozen=True)
class JobInput:
    job_id: str
    policies: Policies = field(default_factory=Policies)
    life: JobCarryOver = field(default_factory=JobCarryOver)


@dataclass(frozen=True)
class JobResult:
    state: str
    counts: dict[str, int] = field(default_factory=dict)


@workflow.defn(name="Job")
class JobWorkflow(SignalledWorkflow):
    life: JobCarryOver

    @workflow.init
    def __init__(self, input: JobInput) -> None:
        self.job_id = input.job_id
        super().__init__(input)
        self.progress = JobProgress(JobState.INITIALIZED)
        self.waiting_for = "creation of its pods"
        self.retry_s = input.life.retry_s  # until the next turn, when no step had an effect; else 0
        self.last_retry_s = 0.0
        self.end: JobEnd | None = None  # of the job, from a signal
        self.is_followed = False  # this run has signalled the daemon's workflow to follow hosts

    @workflow.run
    async def run(self, input: JobInput) -> JobResult:
        return await stoppable(self.run_loop(), self.stop)

    async def run_loop(self) -> JobResult:
        while True:
            while not (await self.settle()).is_finished:
                await self.roll_out()
                await self.follow_hosts()
                await self.create_pods()
                await self.kill()
                await self.admit()
                await self.launch_gang()
                await self.place_and_launch()
                await self.wait_for_change()
                await self.continue_as_new_when_due()
            if await self.is_last():
                await self.forget()
                return JobResult(self.progress.state.value, self.progress.counts)

    @workflow.update(name="stop", description="Stop the job. Its workflow ends when its pods have ended.")
    async def request_stop(self) -> RequestAnswer:
        answer = await carry_out(RequestActivities.stop, self.job_id, summary="stop the job")
        self.wakeup_pending = True
        return answer

    @request_stop.validator
    def check_stop(self) -> None:
        if self.progress.is_unwanted:
            refuse(InvalidArgument(TO_BE_DELETED))

    # Steps, in the order in which they run.

    async def settle(self) -> JobProgress:
        """Settle the job, unless a signal has brought its end: then the host manager has settled it.

        An end from before the last settle is old: a pod has been started since.
        """
        end = None if self.wakeup_pending else self.end
        self.wakeup_pending, self.end = False, None
        if end is not None and end.revision >= self.progress.revision:
            self.progress = JobProgress(end.state, end.counts)
            self.show()
            return self.progress
        self.last_retry_s, self.retry_s = self.retry_s, 0.0
        few, place_max = self.policies.at_once_pods_max, self.policies.place_pods_max
        at_once = min(few, self.policies.admit_pods_max, place_max)
        self.progress = await run_local(SettlingActivities.settle, self.job_id, few, at_once, place_max, summary=SETTLE)
        if self.progress.waiting_count:
            self.retry_s = self.policies.count_s  # no signal reports waiting pods
        self.show()
        return self.progress

    async def roll_out(self) -> None:
        """Start the child workflow that rolls out an update of a service. Signal it when its next step would change
        something, and once for each change that a user made to the update.
        """
        progress, notified = self.progress, self.life.update_told
        wish = f"{progress.update_id} {progress.update_version}" if progress.update_id else ""
        if wish != self.life.update_failed:
            self.life = replace(self.life, rollouts=child_workflows.Restarts())
        if (wish == notified and not progress.update_moves) or self.life.rollouts.wait_s:
            return
        self.life = replace(self.life, update_told=wish)
        rollout = update_workflow_id(self.job_id)
        if not await child_workflows.notify(UpdateWorkflow.run, rollout, UpdateWorkflow.changed) and wish:
            given = UpdateInput(self.job_id, self.policies.of_children())
            update = await child_workflows.start(UpdateWorkflow.run, given, rollout, f"updates of job {self.name}")
            if update is not None:
                update.add_done_callback(self.note_end_of_rollout)

    def note_end_of_rollout(self, update: asyncio.Future[UpdateResult]) -> None:
        """Wake this run after a failure, to start the rollout again."""
        self.life = replace(self.life, rollouts=self.life.rollouts.after(update))
        if self.life.rollouts.wait_s:
            self.life = replace(self.life, update_told="", update_failed=self.life.update_told)
            self.wakeup_pending = True

    async def follow_hosts(self) -> None:
        """Start the child workflow that runs a daemon's instances on its hosts. Signal it when pods are ready to
        launch, once in each run of this workflow, and when the daemon ends. Host managers signal it about hosts.
        """
        follows = self.progress.follows_hosts
        if (follows == self.is_followed and not self.progress.hosts_wait) or self.life.followers.wait_s:
            return
        self.is_followed = follows
        daemon = daemon_workflow_id(self.job_id)
        if not await child_workflows.notify(DaemonWorkflow.run, daemon, DaemonWorkflow.changed) and follows:
            given = DaemonInput(self.job_id, self.policies.of_children())
            follower = await child_workflows.start(DaemonWorkflow.run, given, daemon, f"hosts of daemon {self.name}")
            if follower is not None:
                follower.add_done_callback(self.note_end_of_following)

    def note_end_of_following(self, follower: asyncio.Future[DaemonResult]) -> None:
        """Wake this run: a terminated follower is started again at once, and a failed one after a delay."""
        self.life = replace(self.life, followers=self.life.followers.after(follower))
        self.is_followed, self.wakeup_pending = False, True

    async def create_pods(self) -> None:
        """Create missing pods, at the start and after the spec has grown."""
        if not self.progress.missing_count:
            return
        self.progress = await workflow.execute_activity_method(
            RecordsActivities.create_pods,
            self.job_id,
            summary=f"create {self.progress.missing_count} pods",
            task_queue=long_queue(workflow.info().task_queue),
            **CREATE_PODS_CALL,
        )
        self.show()

    async def kill(self) -> None:
        if not self.progress.kill_count:
            return
        queued = self.progress.queued_kill_count
        notified = await self.kill_running(self.progress.kill_count - queued)
        ended = await self.kill_queued(queued)
        is_rest = notified + ended < self.progress.kill_count
        if is_rest and not notified and not ended:
            self.poll_soon()
        elif is_rest or ended:
            self.wakeup_pending = True  # pods killed in a queue have ended already

    async def kill_running(self, count: int) -> int:
        if not count:
            return 0
        step, summary = LaunchActivities.kill_running, f"kill {count} pods"
        return await call(step, self.job_id, is_small=self.is_small(count), summary=summary, options=KILL_CALL)

    async def kill_queued(self, count: int) -> int:
        if not count:
            return 0
        step, summary = AdmissionActivities.kill_queued, f"kill {count} queued pods"
        return await call(step, self.job_id, is_small=self.is_small(count), summary=summary, options=RESMGR_CALL)

    async def admit(self) -> None:
        if not self.progress.admit_count:
            return
        limit = min(self.progress.admit_count, self.policies.admit_pods_max)
        step, summary, is_small = AdmissionActivities.enqueue, f"queue {limit} pods", self.is_small(limit)
        queued = await call(step, self.job_id, limit, is_small=is_small, summary=summary, options=RESMGR_CALL)
        self.progress = replace(self.progress, ready_count=self.progress.ready_count + queued.admitted_count)
        if not queued.count:
            self.poll_soon()
        elif limit < self.progress.admit_count:
            self.wakeup_pending = True
        elif queued.admitted_count < queued.count:
            self.retry_s = self.policies.count_s  # no signal reports waiting pods

    async def launch_gang(self) -> None:
        """Start the child workflow that places and launches the gang. Signal it at every change until it has seen that
        the gang runs, or that its launch was superseded.
        """
        run, notified_run = self.progress.gang_run, self.life.gang_run
        if (not run and not notified_run) or self.life.launches.wait_s:
            return
        self.life = replace(self.life, gang_run=run)
        if run:
            self.waiting_for = "the launch of its gang"
        notified = gang_workflow_id(self.job_id, notified_run)
        is_notified = bool(notified_run) and await child_workflows.notify(
            GangWorkflow.run, notified, GangWorkflow.changed
        )
        if run and not (is_notified and run == notified_run):
            given, summary = (
                GangInput(self.job_id, self.policies.of_children()),
                f"launch of the gang of job {self.name}",
            )
            gang = await child_workflows.start(GangWorkflow.run, given, gang_workflow_id(self.job_id, run), summary)
            if gang is not None:
                gang.add_done_callback(self.note_end_of_launch)

    def note_end_of_launch(self, gang: asyncio.Future[GangResult]) -> None:
        """Wake this run if the launch did something, or failed, after which a delay begins. A terminated launch is
        started again in the next turn.
        """
        self.life = replace(self.life, launches=self.life.launches.after(gang))
        self.wakeup_pending |= self.life.launches.wait_s > 0
        if not gang.cancelled() and gang.exception() is None:
            self.wakeup_pending |= gang.result().outcome != Step.SUPERSEDED

    async def place_and_launch(self) -> None:
        """Place pods that are not in a gang: one batch per turn, so that pods that end meanwhile are settled before the
        next.
        """
        if not self.progress.ready_count:
            return
        limit = min(self.progress.ready_count, self.policies.place_pods_max)
        step, summary, is_small = PlacementActivities.place_and_launch, f"place {limit} pods", self.is_small(limit)
        placement_s = self.policies.pod_placement_s
        launch = await call(
            step, self.job_id, limit, placement_s, is_small=is_small, summary=summary, options=LAUNCH_CALL
        )
        moved = launch.launched_count + launch.failed_count + launch.requeued_count
        if not moved:
            self.waiting_for = placement_text(launch.why)
            self.poll_soon()
        elif moved < self.progress.ready_count:
            self.wakeup_pending = True

    async def wait_for_change(self) -> None:
        self.show_details()
        if self.has_news or self.progress.settle_again or self.progress.is_finished:
            return
        restarts = (one.wait_s for one in (self.life.rollouts, self.life.followers, self.life.launches))
        waits = (self.policies.look_again_s, self.retry_s, self.progress.deadline_s, *restarts)
        delay_s = min(seconds for seconds in waits if seconds > 0)
        await self.doze(delay_s, self.waiting_for)

    async def is_last(self) -> bool:
        """Wait for the answers to users. Signals since the last read require another turn: a service was started again,
        or an ended job was given instances or is to be deleted.
        """
        return await super().is_last() or not workflow.patched(LATE_WAKE_UPS)

    async def forget(self) -> None:
        """Delete the records of the job, if it is to be deleted. A job that was created under its id since then uses
        this running workflow.
        """
        if not self.progress.is_unwanted:
            return
        await workflow.execute_activity_method(
            RecordsActivities.delete_job,
            self.job_id,
            summary="delete its records",
            task_queue=long_queue(workflow.info().task_queue),
            **DELETE_CALL,
        )
        if await run_local(RecordsActivities.is_stored, self.job_id, summary="is there a new job with its id?"):
            await continue_as_new(JobInput(self.job_id, (await fresh_policies(self.policies)).of_jobs()))

    async def stop(self) -> None:
        """Stop the job. An update under way might start pods, and is aborted first."""
        why = "the workflow was cancelled"
        await workflow.execute_activity_method(
            RecordsActivities.abort_update, self.job_id, summary=f"abort its update, if any: {why}", **KILL_CALL
        )
        await workflow.execute_activity_method(
            RecordsActivities.stop_job, self.job_id, summary=f"stop the job: {why}", **KILL_CALL
        )
        self.wakeup_pending = True

    # Temporal plumbing.

    def take_end(self, end: JobEnd) -> bool:
        """Note the end of the job that a signal has brought. Return whether this run takes it: a run whose last settle
        was made by an earlier version reads the rows, as that version did when it wrote the history.
        """
        if not self.progress.takes_ends:
            return False
        self.end = end
        return True

    @property
    def has_news(self) -> bool:
        return super().has_news or self.end is not None

    @property
    def name(self) -> str:
        return workflow.info().typed_search_attributes.get(JOB_NAME) or self.job_id

    def is_small(self, count: int) -> bool:
        return count <= self.policies.at_once_pods_max

    def poll_soon(self) -> None:
        """Set the delay before a retry, longer each time: no signal arrives when a step without effect would have
        one.
        """
        self.retry_s = self.policies.next_delay_s(self.last_retry_s)

    def show(self) -> None:
        self.waiting_for = ""
        state = self.progress.state.value
        if not self.life.states or state != self.life.shown_state:
            self.life = replace(self.life, states=add_state(self.life.states, workflow.now(), state))
        self.show_details()
        self.show_state(state)

    def show_details(self) -> None:
        workflow.set_current_details(details(self.progress, self.waiting_for, self.life.states))

    async def continue_as_new(self) -> None:
        policies = (await fresh_policies(self.policies)).of_jobs()
        await continue_as_new(replace(self.input, policies=policies, life=replace(self.life, retry_s=self.retry_s)))
