"""Table of the causes that end a run: whose fault each is, whether the pod runs again, and what it counts.

The platform pays for exactly the ends for which the original does: a container that could not be started, a launch that
found its room gone, and a broken pipe of a container.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from peloton.model.pod import Cause, TerminationReason


class Fault(StrEnum):
    POD = "pod"  # its program, or how much of something it used
    HOST = "host"
    CLUSTER = "cluster"  # its operators, its master, those whom it prefers
    REQUEST = "request"  # what was asked for cannot be run


class Again(StrEnum):
    """Whether a batch pod has another run."""

    BY_POLICY = "as often as the job allows failures"
    BY_PLATFORM = "the same, and at least four times"
    ALWAYS = "always: it was sent away"


@dataclass(frozen=True, slots=True)
class Rule:
    """``counts``: a run that is FAILED or KILLED for this uses up an attempt; a LOST one never does, as it may not have
    failed. ``blames_host``: soon after the start of a run it speaks against the host. ``termination``: what the pod
    shows when it was sent away."""

    fault: Fault
    again: Again
    counts: bool
    blames_host: bool
    termination: TerminationReason | None = None


_POD, _HOST, _CLUSTER, _REQUEST = Fault.POD, Fault.HOST, Fault.CLUSTER, Fault.REQUEST
_POLICY, _PLATFORM, _ALWAYS = Again.BY_POLICY, Again.BY_PLATFORM, Again.ALWAYS
_MAINTENANCE, _PREEMPTION = TerminationReason.KILLED_HOST_MAINTENANCE, TerminationReason.PREEMPTED_RESOURCES

RULES: dict[Cause, Rule] = {
    #                         whose fault  runs again  counts  blames the host
    Cause.PROGRAM: Rule(_POD, _POLICY, True, True),  # that it exits at once may be for want of a mount
    Cause.MEMORY: Rule(_POD, _POLICY, True, False),
    Cause.DISK: Rule(_POD, _POLICY, True, False),
    Cause.LIMIT: Rule(_POD, _POLICY, True, False),
    Cause.TIME: Rule(_POD, _POLICY, True, False),
    Cause.CONTAINER: Rule(_HOST, _PLATFORM, True, True),  # counts: of a wrong image or URI it is the pod's fault
    Cause.PIPE: Rule(_HOST, _PLATFORM, True, True),
    Cause.EXECUTOR: Rule(_POD, _POLICY, True, True),  # an executor that was killed, as by the memory of its program
    Cause.AGENT: Rule(_HOST, _POLICY, True, True),
    Cause.HOST_LOST: Rule(_HOST, _POLICY, False, False),  # it may run on unseen: only jobs that allow retries
    Cause.HOST_GONE: Rule(_CLUSTER, _ALWAYS, False, False, _MAINTENANCE),
    Cause.HOST_DRAINED: Rule(_CLUSTER, _ALWAYS, False, False, _MAINTENANCE),
    Cause.PREEMPTED: Rule(_CLUSTER, _ALWAYS, False, False, _PREEMPTION),
    Cause.FRAMEWORK: Rule(_CLUSTER, _ALWAYS, False, False),
    Cause.REMOVED: Rule(_CLUSTER, _POLICY, False, False),  # somebody may not want it: only jobs that allow retries
    Cause.NOT_STARTED: Rule(_CLUSTER, _ALWAYS, False, False),
    Cause.ROOM_GONE: Rule(_CLUSTER, _PLATFORM, True, False),
    Cause.INVALID: Rule(_REQUEST, _POLICY, True, False),
    Cause.NO_ENDING: Rule(_POD, _POLICY, True, False),
}


def sent_away(cause: Cause) -> bool:
    """The cluster ended the run for its own reasons: it would have gone on, or begun."""
    return RULES[cause].again is Again.ALWAYS
