"""What the drains of some hosts would do to the pods there.

Pods that wait for another host are placed by the rules of placement, all of them at once: until a pod is put somewhere
it counts in no domain by which its job spreads, and in one that has only hosts to be drained no other needs to be even.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from peloton.model.departure import Departure, HostDeparture, JobDeparture
from peloton.model.ids import Hostname, JobId
from peloton.model.job import JobType
from peloton.model.maintenance import Resident
from peloton.model.rebalance import PodCensus, PodNow, Stays
from peloton.model.resources import RESOURCE_KINDS
from peloton.scheduling.relocation import TRIES_MAX, HostNow, Relocation
from peloton.scheduling.tree import Flags

GPU = RESOURCE_KINDS.index("gpu")
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
    """Pods of services that no other host takes, the large ones tried first; and those of which that is not known: they
    are too many, revocable, or their job is bound to be even with pods in other clusters."""
    relocation = Relocation(hosts, census.pods, census.spread)
    pods = [pod for pod in census.pods if pod.hostname in drained and pod.stays not in (Stays.VOLUME, Stays.LEAVING)]
    pods.sort(key=lambda pod: (tuple(-amount for amount in pod.shape.resources), pod.pod_id))
    homeless: Counter[tuple[Hostname, JobId]] = Counter()
    unchecked = Counter(pod.hostname for pod in pods[HOMES_SOUGHT_MAX:])
    for name in drained:
        if name in relocation.at:
            relocation.close(relocation.at[name])
    for pod in pods:
        if (source := relocation.at.get(pod.hostname)) is not None:
            relocation.spread.leave(pod, source)
    for pod in pods[:HOMES_SOUGHT_MAX]:
        if pod.shape.revocable:
            unchecked[pod.hostname] += 1
        elif _finds_home(relocation, pod):
            continue
        elif relocation.spread.is_whole(pod):
            homeless[pod.hostname, pod.pod_id.job_id] += 1
        else:
            unchecked[pod.hostname] += 1
    return homeless, unchecked


def _finds_home(relocation: Relocation, pod: PodNow) -> bool:
    """Puts the pod on another host, if one takes it."""
    waiting = replace(pod, hostname=Hostname(""))
    open_to = relocation.open_to(pod.shape) & relocation.spread.may_come(pod, relocation.at.get(pod.hostname))
    for at in islice(_in_order(relocation, pod, open_to), TRIES_MAX):
        if relocation.takes(at, waiting):
            relocation.put(at, waiting)
            return True
    return False


def _in_order(relocation: Relocation, pod: PodNow, open_to: Flags) -> Iterator[int]:
    """The lowest domains first, there hosts whose gpus it needs, and of these the emptiest."""
    found = np.flatnonzero(open_to)
    wastes_gpus = (relocation.capacity[:, GPU] > 0) & (pod.shape.resources.gpu_milli == 0)
    keys = [relocation.loads(), wastes_gpus, *reversed(relocation.spread.levels(pod))]
    yield from found[np.lexsort([key[found] for key in keys])].tolist()
