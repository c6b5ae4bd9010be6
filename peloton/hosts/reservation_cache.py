"""The part of the state about hosts reserved for pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from peloton.hosts.effects import HostReserved, JobsToWake, ReservationEnded, event
from peloton.hosts.host_chooser import HostChooser
from peloton.hosts.host_table import HostTable
from peloton.hosts.waiting_jobs import WaitingJobs
from peloton.lifecycle.avoidance import HostAvoidance
from peloton.lifecycle.constraints import pod_labels_named
from peloton.lifecycle.reason_text import reservation_text
from peloton.lifecycle.reservation import Candidate, limit_reserved
from peloton.model.ids import Hostname, JobId
from peloton.model.pod import PodShape
from peloton.model.reservation import HostReservation, SoonestHost, WaitingPod
from peloton.model.times import NS_PER_S
from peloton.scheduling.fit import by_key, label_misfit, pods_misfit

COMPARED_MAX = 200
"""Limit of compared hosts: the hosts with the least missing resources, of the ones that could take the pod when
empty."""
FAILED_REST_S = 30.0
"""Seconds after a failed search for a host to reserve, until the next search for the same job."""


class ReservationCache:
    """Reservations of hosts. Times are of the monotonic clock."""

    def __init__(self, table: HostTable, chooser: HostChooser, waiting: WaitingJobs) -> None:
        self._table, self._chooser, self._waiting = table, chooser, waiting

    def may_reserve(self, job_id: JobId, now_s: float) -> bool:
        kept = self._table.reservations
        return len(kept) < limit_reserved(len(self._table.registered.by_name)) and kept.may_add(job_id, now_s)

    def candidates(self, shape: PodShape, avoidance: HostAvoidance) -> list[Candidate]:
        """Return hosts that would take the pod if enough resources were released, without their pods; the ones that
        lack least."""
        return list(self._candidates(shape, avoidance))

    def _candidates(self, shape: PodShape, avoidance: HostAvoidance) -> Iterator[Candidate]:
        table, fleet, named = self._table, self._table.free_resources.fleet, pod_labels_named(shape.constraint)
        apart = {*table.find_kept_hosts(), *table.maintained, *avoidance.avoided, *avoidance.deprioritized}
        for row in fleet.nearest(shape, COMPARED_MAX + len(apart)).tolist():
            hostname = fleet.names[row]
            if hostname in apart or self._chooser.explain_closed(hostname, shape):
                continue
            host = table.free_resources.hosts[hostname]
            pods = by_key(table.pod_labels.on_host(hostname, named))
            if shape.constraint is None or pods_misfit(shape.constraint, host.labels, pods) is None:
                is_last = table.capacity_of(hostname).gpu_milli > 0 and not shape.resources.gpu_milli
                yield Candidate(hostname, host.free, (), is_last)

    @event()
    def record_none_found(self, job_id: JobId, now_s: float) -> None:
        """Record that no host can be reserved for the job, which gets none for a while."""
        self._table.reservations.rest(job_id, now_s + FAILED_REST_S)

    @event(HostReserved)
    def reserve(
        self, job_id: JobId, pod: WaitingPod, host: SoonestHost, keep_s: float, now_s: float
    ) -> HostReservation | None:
        """Reserve the host; return None when another pod was faster."""
        if host.hostname in self._table.find_kept_hosts() or not self.may_reserve(job_id, now_s):
            return None
        since_ns = self._table.now_ns
        until_ns = since_ns + round(keep_s * NS_PER_S)
        made = HostReservation(job_id, pod.instance_id, pod.shape, host, since_ns, until_ns)
        self._table.reservations.add(made, now_s + keep_s, now_s)
        self._table.effects.append(HostReserved(made))
        return made

    def record_request(self, job_id: JobId, waiting: Sequence[WaitingPod], now_s: float) -> HostReservation | None:
        """Record that the job requests hosts for these pods. Its reservation ends when its pod is not among them."""
        before = self._table.reservations.of_job(job_id)
        kept = self._table.reservations.record_request(job_id, waiting, now_s)
        if before is not None and kept is None:
            self._table.effects.append(ReservationEnded(before))
        return kept

    def record_launched(self, job_id: JobId, hosts: Mapping[int, str]) -> None:
        """End the job's reservation if its pod was launched, on any host. ``hosts`` are by instance."""
        kept = self._table.reservations.of_job(job_id)
        if kept is None or kept.instance_id not in hosts:
            return
        self._table.reservations.drop([job_id])
        self._table.effects.append(ReservationEnded(kept, launched_on=hosts[kept.instance_id]))

    @event(ReservationEnded)
    def review(self, rest_s: float, now_s: float) -> JobsToWake:
        """End reservations that have expired, whose pods no longer wait, or whose hosts no longer take them; return
        the jobs that may find hosts. A job whose pod did not fit in time gets no other reservation for ``rest_s``."""
        kept = self._table.reservations
        late, ended = kept.late(now_s), [*kept.forgotten(now_s), *filter(self._is_lost, kept.all())]
        for one in late:
            kept.rest(one.job_id, now_s + rest_s)
        kept.drop(one.job_id for one in (*late, *ended))
        jobs = self._waiting.pop_all() if late or ended else set()
        self._table.effects += [ReservationEnded(one, is_late=True) for one in late]
        self._table.effects += map(ReservationEnded, dict.fromkeys(ended))
        return jobs

    def _is_lost(self, kept: HostReservation) -> bool:
        """Return whether the host is gone or takes no such pods."""
        host, shape = self._table.registered.by_name.get(kept.hostname), kept.shape
        if host is None or self._chooser.explain_closed(kept.hostname, shape):
            return True
        with_free = self._table.free_resources.hosts.get(kept.hostname)
        labels = with_free.labels if with_free else host.labels
        return label_misfit(shape.constraint, labels, shape.workload) is not None

    def texts(self) -> dict[Hostname, str]:
        """Return the texts of the reservations for users."""
        return {one.hostname: reservation_text(one) for one in self._table.reservations.all()}

    def count(self) -> int:
        return len(self._table.reservations)
