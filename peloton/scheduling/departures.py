"""What the drains of some hosts would do to the pods there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from peloton.model.departure import Departure, HostDeparture, JobDeparture
from peloton.model.ids import Hostname, JobId
from peloton.model.job import JobType
from peloton.model.maintenance import Resident
from peloton.model.rebalance import PodCensus, PodNow, Stays
from peloton.scheduling.relocation import HostNow, Relocation
from peloton.scheduling.tree import Flags

HOMES_SOUGHT_MAX = 1_000
"""Pods for which another host is looked for."""


def departures(
    residents: Mapping[Hostname, Sequence[Resident]], hosts: Sequence[HostNow], census: PodCensus
) -> list[HostDeparture]:
    """``residents``: pods of the hosts that would be drained, all of these at once. ``hosts``, ``census``: of their
    cluster."""
    homeless, unchecked = _homeless(residents.keys(), hosts, census)
    return [
        HostDeparture(
            host,
            tuple(
                JobDeparture(
                    job_id,
                    departure,
                    count,
                    census.grants.get(job_id, 0) if departure is Departure.SLA else 0,
                    homeless[host, job_id] if departure is Departure.SLA else 0,
                )
                for (job_id, departure), count in sorted(Counter(map(_how, _staying(pods))).items())
            ),
            sum(pod.is_leaving for pod in pods),
            unchecked[host],
        )
        for host, pods in residents.items()
    ]


def _staying(pods: Sequence[Resident]) -> list[Resident]:
    return [pod for pod in pods if not pod.is_leaving]


def _how(pod: Resident) -> tuple[JobId, Departure]:
    if pod.job_type is JobType.DAEMON:
        return pod.job_id, Departure.LAST
    if pod.has_volume:
        return pod.job_id, Departure.STOPPED
    return pod.job_id, Departure.REQUEUED if pod.job_type.runs_to_end else Departure.SLA


def _homeless(
    drained: Collection[Hostname], hosts: Sequence[HostNow], census: PodCensus
) -> tuple[Counter[tuple[Hostname, JobId]], Counter[Hostname]]:
    """Pods of services that no other host takes, the large ones tried first; and those that were not tried."""
    relocation = Relocation(hosts, census.pods)
    for name in drained:
        if name in relocation.at:
            relocation.close(relocation.at[name])
    pods = [pod for pod in census.pods if pod.hostname in drained and pod.stays not in (Stays.VOLUME, Stays.LEAVING)]
    pods.sort(key=lambda pod: (tuple(-amount for amount in pod.shape.resources), pod.pod_id))
    homeless: Counter[tuple[Hostname, JobId]] = Counter()

    def emptiest(_: PodNow, open_to: Flags) -> list[int]:
        found = np.flatnonzero(open_to)
        return [int(at) for at in found[np.argsort(relocation.loads()[found], kind="stable")]]

    for pod in pods[:HOMES_SOUGHT_MAX]:
        if homes := relocation.homes([pod], emptiest):
            relocation.move(pod, homes[0])
        else:
            homeless[pod.hostname, pod.pod_id.job_id] += 1
    return homeless, Counter(pod.hostname for pod in pods[HOMES_SOUGHT_MAX:])
