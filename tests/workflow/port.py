"""The shared part of the ports on a ``Cluster``: each call is counted, one at a time, and fails as the test planned."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from peloton.errors import InvalidArgument, Unavailable
from peloton.model.pod import TERMINAL, PodState
from tests.workflow.cluster import Cluster


class Port:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster


M = TypeVar("M", bound=Callable[..., Any])


def call(method: M) -> M:
    """A port's call: counted, one at a time, and failing as the test planned."""

    @wraps(method)
    def wrapper(self: Port, *args: Any, **kwargs: Any) -> Any:
        cluster, name = self.cluster, method.__name__
        with cluster.lock:
            cluster.calls[name] += 1
            if cluster.outages[name] > 0:
                cluster.outages[name] -= 1
                raise Unavailable(f"{name}: connection refused")
            if cluster.refusals[name] > 0:
                cluster.refusals[name] -= 1
                raise InvalidArgument(f"{name}: not like this")
            result = method(self, *args, **kwargs)
            cluster.peak_scheduled = max(cluster.peak_scheduled, _count_scheduled(cluster))
            if cluster.lost_replies[name] > 0:
                cluster.lost_replies[name] -= 1
                raise Unavailable(f"{name}: connection lost")
            return result

    return cast(M, wrapper)


def _count_scheduled(cluster: Cluster) -> int:
    return sum(
        p.state not in TERMINAL and p.state is not PodState.INITIALIZED
        for j in cluster.jobs.values()
        if j.record.sla.maximum_running_instances
        for p in j.pods
    )
