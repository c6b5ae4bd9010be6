"""Every timeout, retry policy and bound of our workflows, named after the dependency it protects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import TypedDict

from temporalio import workflow
from temporalio.common import RetryPolicy

LOOK_AGAIN_S = 300.0
NEVER_S = 10 * 365 * 86_400.0
"""The time to look again of jobs, whose lost signals a sweep of rows finds. A timer that never fires costs nothing, and
the release before, which replays runs of this one after a rollback, sets one, too."""


@dataclass(frozen=True)
class Policies:
    """Numbers that differ between installations. A workflow keeps those that its run was started with."""

    place_pods_max: int = 1_000  # pods per placement and per launch
    admit_pods_max: int = 10_000  # pods per enqueue call
    at_once_pods_max: int = 100  # a step on no more pods is done within the workflow task
    history_events_max: int = 200  # continue as new with the first step that ends beyond
    retry_s: float = 2.0  # first wait after a step that moved nothing, as when no host fits; doubles
    retry_max_s: float = 30.0
    count_s: float = 2.0  # until pods that are left waiting in their queue are counted as such
    look_again_s: float = LOOK_AGAIN_S  # a lost signal costs at most this, where no sweep finds it
    pod_placement_s: float = 600.0  # until a host is found for an admitted pod that stands alone
    gang_placement_s: float = 600.0  # until hosts are found for all of an admitted gang
    gang_two_calls_max: int = 1_000  # members up to which a gang is placed by one call and launched by another
    gang_launch_s: float = 300.0  # from the launch of a gang until all of it runs

    def is_long(self, info: workflow.Info) -> bool:
        """Time to continue as new."""
        is_over = info.get_current_history_length() >= self.history_events_max
        return is_over or info.is_continue_as_new_suggested()

    def of_jobs(self) -> Policies:
        """The same for the workflows of jobs. A time to look again that is not the usual one stays."""
        return replace(self, look_again_s=NEVER_S) if self.look_again_s == LOOK_AGAIN_S else self

    def of_others(self) -> Policies:
        """The same, from the policies of a job, for the workflows that it starts."""
        return replace(self, look_again_s=LOOK_AGAIN_S) if self.look_again_s == NEVER_S else self

    def updated(self, numbers: Mapping[str, float]) -> Policies:
        """With those that this version has; whole numbers stay whole."""
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


_PATIENT = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    backoff_coefficient=2.0,
    maximum_interval=timedelta(seconds=5),
)
"""No bound on attempts: a dependency that is down comes back, and the job must go on then."""

LONG_QUEUE_SUFFIX = "-long"


def long_queue(task_queue: str) -> str:
    """Return the task queue of the activities that take minutes, which leave the slots of short ones to these."""
    return task_queue + LONG_QUEUE_SUFFIX


CREATE_PODS_CALL = CallOptions(
    start_to_close_timeout=timedelta(minutes=30), heartbeat_timeout=timedelta(seconds=10), retry_policy=_PATIENT
)
SUMMARY_MAX = 200
"""Characters; Temporal takes 400 bytes."""
LOOK_CALL = LocalCallOptions(
    start_to_close_timeout=timedelta(seconds=10),
    schedule_to_close_timeout=timedelta(seconds=20),
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_attempts=4),
)
"""Attempts within the workflow task, over 1.4 s when each fails at once; then ``RECORDS_CALL``."""
AT_ONCE_CALL = LocalCallOptions(
    start_to_close_timeout=timedelta(seconds=10), retry_policy=RetryPolicy(maximum_attempts=1)
)
RECORDS_CALL = CallOptions(start_to_close_timeout=timedelta(seconds=30), retry_policy=_PATIENT)
RESMGR_CALL = CallOptions(start_to_close_timeout=timedelta(seconds=30), retry_policy=_PATIENT)
PLACEMENT_CALL = CallOptions(start_to_close_timeout=timedelta(seconds=30), retry_policy=_PATIENT)
LAUNCH_CALL = CallOptions(start_to_close_timeout=timedelta(seconds=60), retry_policy=_PATIENT)
CREATE_JOB_CALL = CallOptions(
    start_to_close_timeout=timedelta(seconds=30), schedule_to_close_timeout=timedelta(minutes=10), retry_policy=_PATIENT
)
"""A run of a schedule whose job cannot be created for so long has failed: the next time must not wait for it."""
SCHEDULED_JOB_LOOK_MAX_S = 60.0
"""Between two looks at a job whose workflow is not the child of the run, as after it was terminated."""
DELETE_CALL = CallOptions(
    start_to_close_timeout=timedelta(minutes=10), heartbeat_timeout=timedelta(seconds=30), retry_policy=_PATIENT
)
REQUEST_CALL = CallOptions(
    start_to_close_timeout=timedelta(seconds=60),
    schedule_to_close_timeout=timedelta(seconds=120),
    retry_policy=_PATIENT,
)
"""A person waits for the answer."""
KILL_CALL = CallOptions(
    start_to_close_timeout=timedelta(seconds=60), retry_policy=replace(_PATIENT, maximum_interval=timedelta(seconds=2))
)
"""Retried sooner than other calls: a person who stops a job waits until its host manager is back."""
PREFETCH_CALL = CallOptions(
    start_to_close_timeout=timedelta(seconds=10),
    schedule_to_close_timeout=timedelta(seconds=20),
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_attempts=3),
)
"""Short, and then it is given up: a pod that does not find its image waits for it."""
MIGRATION_RETRY_MAX_S = 15.0
"""Between two steps of a migration whose services are not ready for the next: nobody tells it when they are."""
REBALANCE_RETRY_MAX_S = 15.0
"""Between two steps of rebalancing while pods are on their way: nobody tells it when they run."""
REBALANCE_LOOK_S = 60.0
"""Between two plans of rebalancing that found nothing to gain."""
REBALANCE_PRIORITY = 5
"""Of Temporal's five the last: everything else that waits for a worker goes first."""
HOSTMGR_CALL = CallOptions(start_to_close_timeout=timedelta(seconds=60), retry_policy=_PATIENT)
