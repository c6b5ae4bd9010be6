"""Timeouts, retry policies and bounds of Peloton's workflows, named after the dependencies that they protect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import TypedDict

from temporalio import workflow
from temporalio.common import RetryPolicy

POLL_PERIOD_S = 300.0
NEVER_S = 10 * 365 * 86_400.0
"""Polling interval of jobs, whose lost signals a sweep of rows finds. A timer that never fires costs nothing, and the
previous release, which replays runs of this one after a rollback, sets one as well.
"""


@dataclass(frozen=True)
class Policies:
    """Numbers that differ between installations. A workflow run keeps its initial ones."""

    place_pods_max: int = 1_000  # pods per placement and per launch
    admit_pods_max: int = 10_000  # pods per enqueue call
    at_once_pods_max: int = 100  # a step on no more pods is done within the workflow task
    history_events_max: int = 200  # continue as new with the first step that ends beyond
    retry_s: float = 2.0  # first wait after a step without effect, as when no host fits; doubles
    retry_max_s: float = 30.0
    count_s: float = 2.0  # until pods that are left waiting in their queue are counted as such
    look_again_s: float = POLL_PERIOD_S  # a lost signal costs at most this, where no sweep finds it
    pod_placement_s: float = 600.0  # until a host is found for an admitted pod that is not in a gang
    gang_placement_s: float = 600.0  # until hosts are found for all of an admitted gang
    gang_two_calls_max: int = 1_000  # members up to which a gang is placed by one call and launched by another
    gang_launch_s: float = 300.0  # from the launch of a gang until all of it runs

    def should_continue_as_new(self, info: workflow.Info) -> bool:
        """Return whether the history requires continue-as-new."""
        is_over = info.get_current_history_length() >= self.history_events_max
        return is_over or info.is_continue_as_new_suggested()

    def next_delay_s(self, delay_s: float, max_s: float | None = None) -> float:
        """Return the delay after a step without effect: twice the delay before, from ``retry_s`` to the maximum, which
        is ``retry_max_s`` by default.
        """
        return min(delay_s * 2 or self.retry_s, self.retry_max_s if max_s is None else max_s)

    def of_jobs(self) -> Policies:
        """Return the policies for the workflows of jobs. A polling interval other than the default is kept."""
        return replace(self, look_again_s=NEVER_S) if self.look_again_s == POLL_PERIOD_S else self

    def of_children(self) -> Policies:
        """Return the policies for the workflows that a job starts, from its own."""
        return replace(self, look_again_s=POLL_PERIOD_S) if self.look_again_s == NEVER_S else self

    def update(self, numbers: Mapping[str, float]) -> Policies:
        """Return the policies with the numbers that this version defines; integers remain integers."""
        known = asdict(self)
        return replace(self, **{name: type(known[name])(value) for name, value in numbers.items() if name in known})


class CallOptions(TypedDict, total=False):
    """Keyword arguments of ``workflow.execute_activity``."""

    start_to_close_timeout: timedelta
    schedule_to_close_timeout: timedelta
    heartbeat_timeout: timedelta
    retry_policy: RetryPolicy


class LocalCallOptions(TypedDict, total=False):
    """Keyword arguments of ``workflow.execute_local_activity``."""

    start_to_close_timeout: timedelta
    schedule_to_close_timeout: timedelta
    retry_policy: RetryPolicy


_RETRY_FOREVER = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=5),
)
"""Retries without a limit: a job must continue when an unavailable dependency answers again."""

LONG_QUEUE_SUFFIX = "-long"


def long_queue(task_queue: str) -> str:
    """Return the task queue of activities that take minutes, which do not use the slots of short ones."""
    return task_queue + LONG_QUEUE_SUFFIX


CREATE_PODS_CALL = CallOptions(
    start_to_close_timeout=timedelta(minutes=30), heartbeat_timeout=timedelta(seconds=10), retry_policy=_RETRY_FOREVER
)
SUMMARY_MAX = 200
"""Length in characters; Temporal's limit is 400 bytes."""
READ_CALL = LocalCallOptions(
    start_to_close_timeout=timedelta(seconds=10),
    schedule_to_close_timeout=timedelta(seconds=20),
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_attempts=4),
)
"""Options of reads within the workflow task: attempts over 1.4 s when each fails at once, followed by
``RECORDS_CALL``.
"""
LOCAL_CALL = LocalCallOptions(
    start_to_close_timeout=timedelta(seconds=10), retry_policy=RetryPolicy(maximum_attempts=1)
)
RECORDS_CALL = CallOptions(start_to_close_timeout=timedelta(seconds=30), retry_policy=_RETRY_FOREVER)
RESMGR_CALL = CallOptions(start_to_close_timeout=timedelta(seconds=30), retry_policy=_RETRY_FOREVER)
PLACEMENT_CALL = CallOptions(start_to_close_timeout=timedelta(seconds=30), retry_policy=_RETRY_FOREVER)
LAUNCH_CALL = CallOptions(start_to_close_timeout=timedelta(seconds=60), retry_policy=_RETRY_FOREVER)
CREATE_JOB_CALL = CallOptions(
    start_to_close_timeout=timedelta(seconds=30),
    schedule_to_close_timeout=timedelta(minutes=10),
    retry_policy=_RETRY_FOREVER,
)
"""Options of job creation by a schedule. A run fails when its job cannot be created within this time: the next run must
not wait for it.
"""
SCHEDULED_JOB_POLL_MAX_S = 60.0
"""Seconds between two reads of a job whose workflow is not a child of the run, as after it was terminated."""
DELETE_CALL = CallOptions(
    start_to_close_timeout=timedelta(minutes=10), heartbeat_timeout=timedelta(seconds=30), retry_policy=_RETRY_FOREVER
)
REQUEST_CALL = CallOptions(
    start_to_close_timeout=timedelta(seconds=60),
    schedule_to_close_timeout=timedelta(seconds=120),
    retry_policy=_RETRY_FOREVER,
)
"""Options of an activity whose result a user waits for."""
KILL_CALL = CallOptions(
    start_to_close_timeout=timedelta(seconds=60),
    retry_policy=replace(_RETRY_FOREVER, maximum_interval=timedelta(seconds=2)),
)
"""Options of kills, which are retried sooner than other calls: a user who stops a job waits until its host manager
answers.
"""
PREFETCH_CALL = CallOptions(
    start_to_close_timeout=timedelta(seconds=10),
    schedule_to_close_timeout=timedelta(seconds=20),
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_attempts=3),
)
"""Options of a prefetch, with few attempts: a pod without its image waits for it at its launch."""
MIGRATION_RETRY_MAX_S = 15.0
"""Seconds between two steps of a migration whose services are not ready for the next: no signal reports that they
are.
"""
REBALANCE_RETRY_MAX_S = 15.0
"""Seconds between two steps of rebalancing while pods move: no signal reports that they run."""
REBALANCE_POLL_S = 60.0
"""Seconds between two plans of rebalancing without an improvement."""
REBALANCE_PRIORITY = 5
"""Lowest of Temporal's five priorities: all other tasks that wait for a worker come first."""
HOSTMGR_CALL = CallOptions(start_to_close_timeout=timedelta(seconds=60), retry_policy=_RETRY_FOREVER)
