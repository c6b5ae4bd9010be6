"""Table of the causes that end a run, with the party at fault, the rule for retries, and whether the failure counts.

The platform retries the same failures as the original: a container that could not be started, a launch that found its
resources gone, and a broken pipe of a container.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from peloton.model.pod import Cause, TerminationReason


class Fault(StrEnum):
    POD = "pod"  # the program failed, or exceeded its resources
    HOST = "host"
    CLUSTER = "cluster"  # operators, the Mesos master, or preemption
    REQUEST = "request"  # the specification cannot be run


class RetryRule(StrEnum):
    """Rule that decides whether a batch pod runs again."""

    BY_POLICY = "as often as the restart policy of the job allows"
    BY_PLATFORM = "as often as the restart policy allows, and at least four times"
    ALWAYS = "always: the cluster evicted it"


@dataclass(frozen=True, slots=True)
class Rule:
    """Consequences of a cause. ``counts``: a FAILED or KILLED run uses up an attempt; a LOST run never does, because it
    may not have failed. ``blames_host``: a run that ends soon after its start counts against its host. ``termination``:
    the reason that an evicted pod shows."""

    fault: Fault
    retry: RetryRule
    counts: bool
    blames_host: bool
    termination: TerminationReason | None = None


_POD, _HOST, _CLUSTER, _REQUEST = Fault.POD, Fault.HOST, Fault.CLUSTER, Fault.REQUEST
_POLICY, _PLATFORM, _ALWAYS = RetryRule.BY_POLICY, RetryRule.BY_PLATFORM, RetryRule.ALWAYS
_MAINTENANCE, _PREEMPTION = TerminationReason.KILLED_HOST_MAINTENANCE, TerminationReason.PREEMPTED_RESOURCES

RULES: dict[Cause, Rule] = {
    #                         fault         retry       counts  blames the host
    Cause.PROGRAM: Rule(_POD, _POLICY, True, True),  # a quick exit may be caused by a missing mount
    Cause.MEMORY: Rule(_POD, _POLICY, True, False),
    Cause.DISK: Rule(_POD, _POLICY, True, False),
    Cause.LIMIT: Rule(_POD, _POLICY, True, False),
    Cause.TIME: Rule(_POD, _POLICY, True, False),
    Cause.CONTAINER: Rule(_HOST, _PLATFORM, True, True),  # counts: a wrong image or URI is the pod's fault
    Cause.PIPE: Rule(_HOST, _PLATFORM, True, True),
    Cause.EXECUTOR: Rule(_POD, _POLICY, True, True),  # a killed executor, for example for the memory of its program
    Cause.AGENT: Rule(_HOST, _POLICY, True, True),
    Cause.HOST_LOST: Rule(_HOST, _POLICY, False, False),  # the run may continue unseen: only jobs that allow retries
    Cause.HOST_GONE: Rule(_CLUSTER, _ALWAYS, False, False, _MAINTENANCE),
    Cause.HOST_DRAINED: Rule(_CLUSTER, _ALWAYS, False, False, _MAINTENANCE),
    Cause.PREEMPTED: Rule(_CLUSTER, _ALWAYS, False, False, _PREEMPTION),
    Cause.FRAMEWORK: Rule(_CLUSTER, _ALWAYS, False, False),
    Cause.REMOVED: Rule(_CLUSTER, _POLICY, False, False),  # possibly removed on purpose: only jobs that allow retries
    Cause.NOT_STARTED: Rule(_CLUSTER, _ALWAYS, False, False),
    Cause.RESOURCES_GONE: Rule(_CLUSTER, _PLATFORM, True, False),
    Cause.INVALID: Rule(_REQUEST, _POLICY, True, False),
    Cause.IMAGE: Rule(_REQUEST, _POLICY, True, False),  # every host would use the same registry
    Cause.NO_ENDING: Rule(_POD, _POLICY, True, False),
}


def is_cluster_eviction(cause: Cause) -> bool:
    """Return whether the cluster ended the run for its own reasons."""
    return RULES[cause].retry is RetryRule.ALWAYS
