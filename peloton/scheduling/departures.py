"""Effects of draining hosts on their pods, computed before the drain.

Pods that need another host are placed by the rules of placement, all hosts being drained at once. Pods that are not
placed yet count in no spread domain of their job, and domains in which all hosts are drained do not count for the skew.
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
from peloton.model.maintenance import HostedPod
from peloton.model.rebalance import PodCensus, PodNow, Stays
from peloton.model.resources import RESOURCE_KINDS
from peloton.scheduling.relocation import TRIES_MAX, HostNow, Relocation
from peloton.scheduling.tree import Flags

GPU = RESOURCE_KINDS.index("gpu")
TARGETS_SOUGHT_MAX = 1_000
"""Limit of the pods for which another host is searched."""


def departures(
    hosted_pods: Mapping[Hostname, Sequence[HostedPod]], hosts: Sequence[HostNow], census: PodCensus
) -> list[HostDeparture]:
    """Return, per host, how its pods would leave if all hosts of ``hosted_pods`` were drained at once.

    ``hosted_pods`` maps these hosts to their pods; ``hosts`` and ``census`` describe their whole cluster.
    """
    unplaceable, unchecked = _count_unplaceable(hosted_pods.keys(), hosts, census)
    return [
        HostDeparture(
            host,
            tuple(
                JobDeparture(
                    job_id,
                    departure,
                    count,
                    census.grants.get(job_id, 0) if departure is Departure.SLA else 0,
                    unplaceable[host, job_id] if departure is Departure.SLA else 0,
                )
                for (job_id, departure), count in sorted(Counter(map(_departure_of, _list_staying(pods))).items())
            ),
            sum(pod.is_leaving for pod in pods),
            unchecked[host],
        )
        for host, pods in hosted_pods.items()
    ]


def _list_staying(pods: Sequence[HostedPod]) -> list[HostedPod]:
    return [pod for pod in pods if not pod.is_leaving]


def _departure_of(pod: HostedPod) -> tuple[JobId, Departure]:
    if pod.job_type is JobType.DAEMON:
        return pod.job_id, Departure.LAST
    if pod.has_volume:
        return pod.job_id, Departure.STOPPED
    return pod.job_id, Departure.REQUEUED if pod.job_type.runs_to_end else Departure.SLA


def _count_unplaceable(
    drained: Collection[Hostname], hosts: Sequence[HostNow], census: PodCensus
) -> tuple[Counter[tuple[Hostname, JobId]], Counter[Hostname]]:
    """Count the service pods that fit on no other host, trying the largest first, and the pods that were not checked.

    Pods beyond TARGETS_SOUGHT_MAX, revocable pods, and pods of jobs that also spread over other clusters are not
    checked.
    """
    relocation = Relocation(hosts, census.pods, census.spread)
    pods = [pod for pod in census.pods if pod.hostname in drained and pod.stays not in (Stays.VOLUME, Stays.LEAVING)]
    pods.sort(key=lambda pod: (tuple(-amount for amount in pod.shape.resources), pod.pod_id))
    unplaceable: Counter[tuple[Hostname, JobId]] = Counter()
    unchecked = Counter(pod.hostname for pod in pods[TARGETS_SOUGHT_MAX:])
    for name in drained:
        if name in relocation.at:
            relocation.close(relocation.at[name])
    for pod in pods:
        if (source := relocation.at.get(pod.hostname)) is not None:
            relocation.spread.leave(pod, source)
    for pod in pods[:TARGETS_SOUGHT_MAX]:
        if pod.shape.revocable:
            unchecked[pod.hostname] += 1
        elif _relocate(relocation, pod):
            continue
        elif relocation.spread.is_whole(pod):
            unplaceable[pod.hostname, pod.pod_id.job_id] += 1
        else:
            unchecked[pod.hostname] += 1
    return unplaceable, unchecked


def _relocate(relocation: Relocation, pod: PodNow) -> bool:
    """Place the pod on another host. Return whether one takes it."""
    waiting = replace(pod, hostname=Hostname(""))
    open_to = relocation.open_to(pod.shape) & relocation.spread.may_come(pod, relocation.at.get(pod.hostname))
    for at in islice(_sort_targets(relocation, pod, open_to), TRIES_MAX):
        if relocation.takes(at, waiting):
            relocation.put(at, waiting)
            return True
    return False


def _sort_targets(relocation: Relocation, pod: PodNow, open_to: Flags) -> Iterator[int]:
    """Yield rows of hosts: the emptiest domains first, within them hosts without unused gpus first, then the emptiest
    hosts."""
    found = np.flatnonzero(open_to)
    wastes_gpus = (relocation.capacity[:, GPU] > 0) & (pod.shape.resources.gpu_milli == 0)
    keys = [relocation.loads(), wastes_gpus, *reversed(relocation.spread.levels(pod))]
    yield from found[np.lexsort([key[found] for key in keys])].tolist()
