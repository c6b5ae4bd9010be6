"""The port to external pods: what the intake needs of a cluster in which others make pods for us to place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from peloton.api.v0.job import job_pb2
from peloton.model.external import Sighting


@dataclass(frozen=True, slots=True)
class FoundPod:
    """An external pod; ``config`` and ``pool`` are those of one that waits, unless it is refused."""

    sighting: Sighting
    name: str  # namespace and name
    config: job_pb2.JobConfig | None = None  # of its owner's job, without the pool
    pool: str = ""  # as it, or its namespace, names it
    refusal: str = ""  # why we cannot place it
    since_s: float = 0.0  # when we saw it first, by the monotonic clock


@dataclass(frozen=True, slots=True)
class Remark:
    """What the cluster is told of a pod that waits. ``reason``: one word, for programs."""

    uid: str
    reason: str
    message: str


class ExternalCluster(Protocol):
    """Any thread may call."""

    def watch(self, changed: Callable[[], None]) -> None:
        """``changed`` is called when pods have come, or wait no more. Of those that we have bound it is not."""

    def found(self) -> Sequence[FoundPod] | None:
        """All external pods, the oldest first; None while they are not known. Raises OSError."""
        ...

    def remark(self, remarks: Sequence[Remark]) -> None:
        """People see them at the pods. A repetition costs nothing. Raises OSError."""

    def hindrances(self) -> dict[str, str]:
        """By uid, why pods that are to leave do not yet."""
        ...
