"""The port to external pods: the interface to a cluster in which other users create pods for Peloton to place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from peloton.api.v0.job import job_pb2
from peloton.model.external import ObservedPod
from peloton.model.ids import PodId


@dataclass(frozen=True, slots=True)
class FoundPod:
    """An external pod. ``config`` and ``pool`` are set if it waits, unless it is refused."""

    observed: ObservedPod
    name: str  # namespace and name
    config: job_pb2.JobConfig | None = None  # the configuration of its owner's job, without the pool
    pool: str = ""  # as named by the pod or its namespace
    refusal: str = ""  # why Peloton cannot place it
    since_s: float = 0.0  # when it was first observed, by the monotonic clock
    has_gate: bool = False  # another scheduler places it
    is_ahead: bool = False  # launched without a host, and not placed yet
    is_stand_in: bool = False  # no such pod exists: the pods of its owner come all at once, when it is launched


@dataclass(frozen=True, slots=True)
class PodCondition:
    """The status that the cluster shows at a waiting pod. ``reason`` is one word, for programs."""

    uid: str
    reason: str
    message: str
    is_expected: bool = False  # it waits as it should, and needs no one's attention


class ExternalCluster(Protocol):
    """A cluster with external pods. Any thread may call."""

    def watch(self, changed: Callable[[], None]) -> None:
        """Register ``changed``, which is called when pods appear or stop waiting, except for pods that Peloton has
        bound."""

    def list_pods(self) -> Sequence[FoundPod] | None:
        """Return all external pods, the oldest first; None while they are not known. Raises OSError."""
        ...

    def set_conditions(self, conditions: Sequence[PodCondition]) -> None:
        """Set statuses that users see at the pods. A repetition costs nothing. Raises OSError."""

    def launch_ahead(self, runs: Sequence[PodId]) -> dict[PodId, str]:
        """Launch gated pods without a host. Returns the runs that certainly were not launched, with the reason. Raises
        OSError when the result of some is unknown."""
        ...

    def blocked_evictions(self) -> dict[str, str]:
        """Return by uid why evictions of pods are blocked."""
        ...
