"""Reservation of a host for a pod that has waited for long and fits on no host now."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from peloton.lifecycle.reservation import is_due, soonest
from peloton.model.daemon import Neighbour
from peloton.model.host import HostLease
from peloton.model.ids import Hostname, JobId
from peloton.model.reservation import WaitingPod
from peloton.model.resources import compute_needed
from services.hostmgr.hosts.host_cache import HostCache

POLL_PERIOD_S = 1.0
"""Seconds between reads of the resources held by pods on hosts: each read covers the pods of many hosts."""


class PodsOnHosts(Protocol):
    def neighbours(self, cluster: str, hostnames: Collection[Hostname]) -> Mapping[Hostname, Sequence[Neighbour]]: ...


class Reserver:
    """Reservations in one cluster. Any thread may call; times are of the monotonic clock."""

    def __init__(self, cluster: str, pods: PodsOnHosts, cache: HostCache, after_s: float, keep_s: float) -> None:
        """A host is reserved for a pod that has waited for ``after_s``, for at most ``keep_s``; 0 disables
        reservations."""
        self._cluster, self._pods, self._cache = cluster, pods, cache
        self._after_s, self._keep_s = after_s, keep_s
        self._polled_s = float("-inf")

    def reserve(self, job_id: JobId, lease: HostLease, waiting: Sequence[WaitingPod], now_s: float) -> HostLease:
        """Return the lease, with a host reserved for the first of these pods that is due, if one can be reserved."""
        pod = self._first_due(lease, waiting)
        if (
            pod is None
            or now_s - self._polled_s < POLL_PERIOD_S
            or not self._cache.reservations.may_reserve(job_id, now_s)
        ):
            return lease
        self._polled_s = now_s
        candidates = self._cache.reservations.candidates(pod.shape, self._cache.avoidances.of_job(job_id, now_s))
        pods = self._pods.neighbours(self._cluster, [one.hostname for one in candidates]) if candidates else {}
        compared = [replace(one, pods=pods.get(one.hostname, ())) for one in candidates]
        host = soonest(compute_needed(pod.shape.resources), compared)
        if host is None:
            self._cache.reservations.record_none_found(job_id, now_s)
            return lease
        made = self._cache.reservations.reserve(job_id, pod, host, self._keep_s, now_s)
        return replace(lease, reserved=((made.instance_id, made.hostname),)) if made else lease

    def _first_due(self, lease: HostLease, waiting: Sequence[WaitingPod]) -> WaitingPod | None:
        if not self._keep_s or lease.reserved:
            return None
        without_host = lease.without_host - lease.infeasible.keys()
        return next((pod for pod in waiting if pod.shape in without_host and is_due(pod, self._after_s)), None)

    def review(self, now_s: float) -> set[JobId]:
        """Release reservations that have ended; return the jobs that may find hosts."""
        return self._cache.reservations.review(self._keep_s, now_s)
