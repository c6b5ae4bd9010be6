"""Runs the real workflow code in virtual time, without a server: one workflow, and the children that it starts.

Activations and commands are the protos that the core of the SDK exchanges with Python (``sdk.py``). This file keeps the
core's rules that matter here: one workflow task at a time, signals wait while a task is open, retries of activities
leave no event, local activities run inside the task. When a run ends, all its activations are sent to a second
instance, which must answer with the same commands.

``Virtual.events`` counts the events that a server would have written.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial
from typing import Any

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import ActivityFailureInfo, Failure
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import WorkflowInstance

from peloton.model.ids import JobId
from peloton.model.job import END_HEADER, JobEnd
from services.temporal.payloads import CONVERTER
from tests.waiting import Condition
from tests.workflow.children import Children
from tests.workflow.clock import VirtualClock
from tests.workflow.sdk import (
    WorkflowActivation,
    WorkflowActivationJob,
    WorkflowCommand,
    activity_definition,
    new_instance,
    workflow_definition,
)

TASK_S, ACTIVITY_S, LOCAL_S = 0.005, 0.01, 0.002
TASK_HEARTBEAT_S = 4.0
"""Time after which a task that waits for a local activity reports, and receives new activations."""


class Fault(Enum):
    REFUSED = "the call fails before it acts"
    REPLY_LOST = "the call acts, and its answer is lost"


class Stuck(AssertionError):
    """The workflow has not ended, and no event is left that could continue it."""


@dataclass
class Run:
    """One run of the workflow: continue-as-new starts the next."""

    run_id: str
    started: datetime
    instance: WorkflowInstance
    events: int = 1  # its start
    told: list[tuple[bytes, list[bytes]]] = field(default_factory=list)  # activation, commands
    inbox: list[WorkflowActivationJob] = field(default_factory=list)
    timers: set[int] = field(default_factory=set)
    patches: set[str] = field(default_factory=set)
    version: str = ""  # of the workers that it is pinned to
    local_open: int = 0
    task_due: bool = False
    ended: bool = False


class Virtual(Children):
    """One workflow on a virtual clock. Implements ``ports.Lifecycles`` for the job that it owns."""

    def __init__(
        self,
        clock: VirtualClock,
        kind: type,
        activities: Sequence[Callable[..., Any]],
        *,
        signal: str,
        signal_delay_s: float = 0.25,
        local_s: float = LOCAL_S,
        children: Sequence[type] = (),
        workflow_id: str = "job/virtual",
    ) -> None:
        self.workflow_id, self._on_end = workflow_id, list[Callable[[], None]]()
        self._child_kinds = {str(workflow_definition(child).name): child for child in children}
        self.children: dict[str, Any] = {}  # by workflow id: the last one
        self.past_children: list[Virtual] = []
        self.clock, self._defn = clock, workflow_definition(kind)
        self._activities = {activity_definition(a).name: a for a in activities}
        self._signal, self._signal_delay_s, self._local_s = signal, signal_delay_s, local_s
        self.version = "v1"  # of the workers, the current one
        self.signals_lost = False
        self.signal_copies = 1
        self._signal_due = False
        self.faults: dict[int, Fault] = {}  # index of an activity call, in the order of the workflow's asking
        self.on_call: dict[str, Callable[[], None]] = {}  # done once, when the workflow asks for that activity
        self.calls: list[str] = []
        self.summaries: list[str] = []  # of these calls
        self.attempts: Counter[str] = Counter()
        self.asked = 0  # workflow updates
        self.answers: dict[str, Any] = {}  # by their ids: results, and errors of those that were refused
        self.commands: Counter[str] = Counter()
        self.wakes = 0
        self.shown_states: list[str] = []
        self.runs: list[Run] = []
        self.result: Any = None
        self.ended_at_s = 0.0

    @property
    def ended(self) -> bool:
        return bool(self.runs) and self.runs[-1].ended

    @property
    def events(self) -> int:
        return sum(run.events for run in self.runs)

    # Actions of a test.

    def start(self, input: Any) -> None:
        self._start_run(CONVERTER.payload_converter.to_payloads([input]))

    def run(self, until: Condition = lambda: False, limit_s: float = 100 * 3600.0) -> Any:
        """Let time pass until the workflow ends, or ``until`` holds; returns the result of a workflow that ended."""
        while not self.ended and not until():
            if not self.clock.step():
                raise Stuck(f"after {self.clock.elapsed_s} s: {self.current_details}")
            assert self.clock.elapsed_s < limit_s, f"not done after {limit_s} s: {self.current_details}"
        return self.result

    def jobs_changed(self, job_ids: Iterable[JobId], cause: str = "") -> None:
        """Count several calls as one signal, like the real one."""
        if not self._signal_due and not self.signals_lost:
            self._signal_due = True
            self.clock.after(self._signal_delay_s, self._deliver_signal)

    def jobs_ended(self, ends: Mapping[JobId, JobEnd]) -> None:
        """Signal the end of the job."""
        for end in () if self.signals_lost else ends.values():
            self.clock.after(self._signal_delay_s, partial(self.signal_now, end))

    def signal_now(self, end: JobEnd | None = None) -> None:
        if self.ended:
            return
        job = WorkflowActivationJob()
        if end is not None:
            job.signal_workflow.headers[END_HEADER].CopyFrom(CONVERTER.payload_converter.to_payload(end))
        job.signal_workflow.signal_name = self._signal
        job.signal_workflow.originating_event_id = self.runs[-1].events + 1
        self._add_job(self.runs[-1], job, events=1)
        self.wakes += 1

    def cancel(self) -> None:
        """Cancels the workflow as a user does in the Web UI."""
        job = WorkflowActivationJob()
        job.cancel_workflow.reason = "by a person"
        self._add_job(self.runs[-1], job, events=1)

    def ask(self, name: str, *args: object) -> Any:
        """Send a workflow update and let time pass until it is answered; raises the error of one that is refused."""
        return self.answer(self.send(name, *args))

    def send(self, name: str, *args: object) -> str:
        """Send a workflow update; returns its id."""
        self.asked += 1
        job = WorkflowActivationJob()
        job.do_update.id = job.do_update.protocol_instance_id = request = f"request{self.asked}"
        job.do_update.name, job.do_update.run_validator = name, True
        job.do_update.input.extend(CONVERTER.payload_converter.to_payloads(args))
        self._add_job(self.runs[-1], job)
        return request

    def answer(self, request: str) -> Any:
        self.run(until=lambda: request in self.answers)
        answer = self.answers[request]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def upgrade(self, version: str = "v2", *, moved: bool = False) -> None:
        """Give the workers another version; ``moved``: the workers of the run's own version have stopped."""
        self.version = version
        if moved:
            self.runs[-1].version = self.version

    def query(self, name: str, kind: type = dict) -> Any:
        run = self.runs[-1]
        job = WorkflowActivationJob()
        job.query_workflow.query_id, job.query_workflow.query_type = "q", name
        answer = run.instance.activate(self._activation(run, [job])).successful.commands[0].respond_to_query
        assert answer.HasField("succeeded"), answer
        return CONVERTER.payload_converter.from_payloads([answer.succeeded.response], [kind])[0]

    @property
    def metadata(self) -> WorkflowMetadata:
        found: WorkflowMetadata = self.query("__temporal_workflow_metadata", WorkflowMetadata)
        return found

    @property
    def current_details(self) -> str:
        return str(self.metadata.current_details)

    @property
    def shown(self) -> dict[str, str]:
        """The state and the reason of the wait, parsed from the workflow's details."""
        details = self.current_details
        state = re.search(r"[^*]\*\*([A-Z_]+)\*\*", details)
        waits = re.search(r"^It waits for (.+)\.$", details, re.MULTILINE)
        return {"state": state[1] if state else "", "waiting_for": waits[1] if waits else ""}

    # Runs and their tasks.

    def _deliver_signal(self) -> None:
        self._signal_due = False
        for _ in range(self.signal_copies):
            self.signal_now()

    def _start_run(self, arguments: Iterable[Payload]) -> None:
        run_id = f"run{len(self.runs) + 1}"
        started = datetime.fromtimestamp(self.clock.now_ns() / 1e9, UTC)
        run = Run(run_id, started, self._new_instance(run_id, started), version=self.version)
        self.runs.append(run)
        job = WorkflowActivationJob()
        job.initialize_workflow.workflow_type = self._defn.name or ""
        job.initialize_workflow.workflow_id = self.workflow_id
        job.initialize_workflow.arguments.extend(arguments)
        job.initialize_workflow.randomness_seed = 1
        self._add_job(run, job)

    def _new_instance(self, run_id: str, started: datetime) -> WorkflowInstance:
        return new_instance(self._defn, self.workflow_id, run_id, started, CONVERTER, self._assert_known)

    def _assert_known(self, name: str) -> None:
        assert name in self._activities, f"no such activity: {name}"

    def _add_job(self, run: Run, job: WorkflowActivationJob, *, events: int = 0) -> None:
        """Add a job to the next workflow task."""
        if run.ended:
            return
        run.inbox.append(job)
        run.events += events
        if not run.task_due and (not run.local_open or self._local_s > TASK_HEARTBEAT_S):
            run.task_due = True
            self.clock.after(TASK_S, lambda: self._task(run))

    def _task(self, run: Run) -> None:
        run.task_due = False
        if run.ended or not run.inbox:
            return
        jobs, run.inbox = run.inbox, []
        run.events += 2  # scheduled, started
        self._activate(run, jobs)
        run.events += 1  # completed

    def _activate(self, run: Run, jobs: list[WorkflowActivationJob]) -> None:
        told = self._activation(run, jobs)
        completion = run.instance.activate(told)
        assert completion.HasField("successful"), completion.failed.failure
        commands = list(completion.successful.commands)
        run.told.append((told.SerializeToString(), [c.SerializeToString(deterministic=True) for c in commands]))
        for command in commands:
            name = command.WhichOneof("variant")
            assert name is not None
            self.commands[name] += 1
            getattr(self, f"_do_{name}")(run, command)

    def _activation(self, run: Run, jobs: list[WorkflowActivationJob]) -> WorkflowActivation:
        told = WorkflowActivation(run_id=run.run_id, history_length=run.events, jobs=jobs)
        told.timestamp.FromNanoseconds(self.clock.now_ns())
        told.deployment_version_for_current_task.deployment_name = "peloton" if run.version else ""
        told.deployment_version_for_current_task.build_id = run.version
        told.target_worker_deployment_version_changed = run.version != self.version
        return told

    # Commands.

    def _do_start_timer(self, run: Run, command: WorkflowCommand) -> None:
        assert command.user_metadata.HasField("summary"), "a timer has no summary"
        seq, delay = command.start_timer.seq, command.start_timer.start_to_fire_timeout
        run.timers.add(seq)
        run.events += 1
        self.clock.after(delay.ToTimedelta().total_seconds(), lambda: self._fire(run, seq))

    def _fire(self, run: Run, seq: int) -> None:
        if seq in run.timers and not run.ended:
            run.timers.remove(seq)
            self.wakes += 1
            job = WorkflowActivationJob()
            job.fire_timer.seq = seq
            self._add_job(run, job, events=1)

    def _do_cancel_timer(self, run: Run, command: WorkflowCommand) -> None:
        run.timers.discard(command.cancel_timer.seq)
        run.events += 1

    def _do_upsert_workflow_search_attributes(self, run: Run, command: WorkflowCommand) -> None:
        fields = command.upsert_workflow_search_attributes.search_attributes.indexed_fields
        self.shown_states.append(CONVERTER.payload_converter.from_payloads([fields["PelotonState"]])[0])
        run.events += 1

    def _do_modify_workflow_properties(self, run: Run, command: WorkflowCommand) -> None:
        """Merge the memo."""
        run.events += 1

    def _do_set_patch_marker(self, run: Run, command: WorkflowCommand) -> None:
        run.patches.add(command.set_patch_marker.patch_id)
        run.events += 2  # its marker, and the search attribute that names it

    def _do_schedule_activity(self, run: Run, command: WorkflowCommand) -> None:
        asked = command.schedule_activity
        index = self._note_call(asked.activity_type, command)
        assert asked.HasField("start_to_close_timeout")
        run.events += 1
        limit_s = asked.schedule_to_close_timeout.ToTimedelta().total_seconds()
        closes_s = self.clock.elapsed_s + limit_s if limit_s else math.inf
        self.clock.after(ACTIVITY_S, lambda: self._attempt(run, asked, index, 1, closes_s))
        self.on_call.pop(asked.activity_type, lambda: None)()

    def _do_schedule_local_activity(self, run: Run, command: WorkflowCommand) -> None:
        asked = command.schedule_local_activity
        assert asked.retry_policy.maximum_attempts, f"{asked.activity_type} would hold a workflow task for ever"
        index = self._note_call(asked.activity_type, command)
        run.local_open += 1
        self._attempt(run, asked, index, 1)

    def _do_update_response(self, run: Run, command: WorkflowCommand) -> None:
        told = command.update_response
        if told.HasField("rejected"):
            error = CONVERTER.failure_converter.from_failure(told.rejected, CONVERTER.payload_converter)
            self.answers[told.protocol_instance_id] = error
        elif told.HasField("completed"):
            (answer,) = CONVERTER.payload_converter.from_payloads([told.completed])
            self.answers[told.protocol_instance_id] = answer
        run.events += 1  # accepted, or completed

    def _do_complete_workflow_execution(self, run: Run, command: WorkflowCommand) -> None:
        payload = command.complete_workflow_execution.result
        (self.result,) = CONVERTER.payload_converter.from_payloads([payload], [self._defn.ret_type or object])
        self._end(run)

    def _do_fail_workflow_execution(self, run: Run, command: WorkflowCommand) -> None:
        self.failure = command.fail_workflow_execution.failure
        self._end(run)

    def _do_continue_as_new_workflow_execution(self, run: Run, command: WorkflowCommand) -> None:
        asked = command.continue_as_new_workflow_execution
        assert asked.initial_versioning_behavior == int(workflow.ContinueAsNewVersioningBehavior.AUTO_UPGRADE)
        left, run.inbox = run.inbox, []
        notify, self._on_end = self._on_end, []
        self._end(run)
        self._on_end = notify
        self._start_run(asked.arguments)
        for job in left:
            if job.HasField("signal_workflow") or job.HasField("do_update"):
                self._add_job(self.runs[-1], job, events=1)

    def _end(self, run: Run) -> None:
        run.ended = True
        run.events += 1
        self.ended_at_s = self.clock.elapsed_s
        for notify in self._on_end if run is self.runs[-1] else ():
            self.clock.after(0, notify)
        if all(job.HasField("signal_workflow") for job in run.inbox):
            self._signal_again(run)

    def _signal_again(self, run: Run) -> None:
        """Replay the run: the same activations must give the same commands."""
        instance = self._new_instance(run.run_id, run.started)
        patched = [WorkflowActivationJob() for _ in run.patches]
        for job, patch in zip(patched, sorted(run.patches), strict=True):
            job.notify_has_patch.patch_id = patch
        for told, expected in run.told:
            activation = WorkflowActivation.FromString(told)
            activation.is_replaying = True
            activation.jobs.extend(patched)
            commands = instance.activate(activation).successful.commands
            assert expected == [c.SerializeToString(deterministic=True) for c in commands]

    # Activities.

    def _note_call(self, name: str, command: WorkflowCommand) -> int:
        assert command.user_metadata.HasField("summary"), f"{name} has no summary"
        self.calls.append(name)
        self.summaries += CONVERTER.payload_converter.from_payloads([command.user_metadata.summary])
        return len(self.calls) - 1

    def _attempt(self, run: Run, asked: Any, index: int, attempt: int, closes_s: float = math.inf) -> None:
        """Run one attempt; ``asked`` is the command of an activity or of a local one. No attempt begins after
        ``closes_s``.
        """
        is_local = not hasattr(asked, "task_queue")
        self.attempts[asked.activity_type] += 1
        fault = self.faults.pop(index, None) if attempt == 1 else None
        error: ApplicationError | None = None
        try:
            if fault is Fault.REFUSED:
                raise ApplicationError(fault.value, type="UNAVAILABLE")
            result = self._perform(asked)
            if fault is Fault.REPLY_LOST:
                raise ApplicationError(fault.value, type="UNAVAILABLE")
        except ApplicationError as raised:
            error = raised
        delay_s = self._local_s if is_local else 0.0
        retry = RetryPolicy.from_proto(asked.retry_policy)
        pause_s = retry.initial_interval.total_seconds() * retry.backoff_coefficient ** min(attempt - 1, 50)
        pause_s = min(pause_s, (retry.maximum_interval or timedelta(hours=1)).total_seconds())
        is_last = attempt == retry.maximum_attempts or self.clock.elapsed_s + pause_s > closes_s  # 0: no bound
        if error is not None and not error.non_retryable and not is_last:
            self.clock.after(delay_s + pause_s, lambda: self._attempt(run, asked, index, attempt + 1, closes_s))
            return
        job = WorkflowActivationJob()
        job.resolve_activity.seq, job.resolve_activity.is_local = asked.seq, is_local
        if error is None:
            job.resolve_activity.result.completed.result.CopyFrom(result)
        else:
            job.resolve_activity.result.failed.failure.CopyFrom(self._activity_failure(asked, error))
        if is_local:
            self.clock.after(delay_s, lambda: self._resolve_local(run, job))
        else:
            self._add_job(run, job, events=2)  # started, completed

    def _resolve_local(self, run: Run, job: WorkflowActivationJob) -> None:
        run.local_open -= 1
        run.events += 1  # its marker
        if run.ended:
            return
        self._activate(run, [job])
        if run.inbox and not run.task_due and not run.ended:
            run.task_due = True
            self.clock.after(TASK_S, lambda: self._task(run))

    def _perform(self, asked: Any) -> Payload:
        """Run the real activity; arguments and result go through the real converter."""
        act = self._activities[asked.activity_type]
        defn = activity_definition(act)
        arguments = CONVERTER.payload_converter.from_payloads(asked.arguments, defn.arg_types)
        result = ActivityEnvironment().run(act, *arguments)
        return CONVERTER.payload_converter.to_payloads([result])[0]

    def _activity_failure(self, asked: Any, error: ApplicationError) -> Failure:
        cause = Failure()
        CONVERTER.failure_converter.to_failure(error, CONVERTER.payload_converter, cause)
        info = ActivityFailureInfo(activity_id=asked.activity_id)
        info.activity_type.name = asked.activity_type
        return Failure(message="Activity task failed", cause=cause, activity_failure_info=info)
