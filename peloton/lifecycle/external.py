"""Adoption of external pods, which other controllers create and Peloton schedules: pods that are assigned an instance
of their owner's job, instances that are released, and the choice of instances.

The pod's object belongs to its owner; Peloton decides on admission and placement. Peloton never restarts an ended
external pod, and a waiting pod that is deleted leaves the queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from peloton.model.external import ObservedPod, Slot
from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JobRecord, JobType
from peloton.model.pod import TERMINAL, PodState
from peloton.model.text import quote

WAITING_MAX = 20_000
"""Maximum external pods of one cluster that have an instance and no host; further pods are left out."""


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    """Changes of the instances of external pods. ``take``: pods to adopt by job, in their order. ``stop``: instances
    whose pods wait no longer. ``forget``: pods that have no instance any longer. ``left_out``: pods beyond WAITING_MAX.
    """

    take: Mapping[JobId, list[str]] = field(default_factory=dict)
    stop: Mapping[JobId, list[int]] = field(default_factory=dict)
    forget: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def plan_adoption(seen: Iterable[ObservedPod], slots: Iterable[Slot], waiting_max: int = WAITING_MAX) -> AdoptionPlan:
    """Plan the adoption of the observed pods, the oldest first. ``slots``: all instances of the cluster's external
    pods."""
    pods = {observed.uid: observed for observed in seen}
    held = {slot.uid: slot for slot in slots}
    take: dict[JobId, list[str]] = {}
    stop: dict[JobId, list[int]] = {}
    forget: list[str] = []
    waiting = 0
    for slot in held.values():
        pod = pods.get(slot.uid)
        if pod is not None and pod.waits:
            waiting += not slot.is_at_rest and not slot.is_on_host
        elif not slot.is_on_host:  # the cluster reports the end of a pod on a host
            forget.append(slot.uid)
            if not slot.is_at_rest:
                stop.setdefault(slot.job_id, []).append(slot.instance_id)
    wanted = [pod for pod in pods.values() if pod.waits and (pod.uid not in held or held[pod.uid].is_at_rest)]
    allowed = max(waiting_max - waiting, 0)
    for pod in wanted[:allowed]:
        take.setdefault(pod.job_id, []).append(pod.uid)
    return AdoptionPlan(take, stop, tuple(forget), tuple(pod.uid for pod in wanted[allowed:]))


def allocate(count: int, instances: Mapping[int, tuple[PodState, bool]], gang_size: int = 1) -> list[int]:
    """Return the instances for ``count`` more pods, lowest first. ``instances``: state of each existing instance, and
    whether it runs again; they are numbered without gaps.

    Members of the gang (instances below ``gang_size``, if that is more than 1) are assigned while no member has been
    queued. Pods that come later are not in the gang.
    """
    free = [i for i, (state, runs_again) in sorted(instances.items()) if state in TERMINAL and not runs_again]
    size = gang_size if gang_size > 1 else 0
    members = [instances[i][0] for i in range(size) if i in instances and i not in free]
    gang_incomplete = all(state is PodState.INITIALIZED for state in members)
    if gang_incomplete:
        first = [i for i in range(size) if i in free or i not in instances]
        allocated = first + [i for i in free if i >= size]
    else:
        allocated = [i for i in free if i >= size]
    fresh = max(len(instances), size if gang_incomplete else 0)
    return [*allocated, *range(fresh, fresh + max(count - len(allocated), 0))][:count]


def pool_of(text: str, leaves: Mapping[str, RespoolId]) -> tuple[RespoolId, str]:
    """Return the pool that a pod names, or why it has none. ``text``: a path, or its names joined by dots, as labels
    have them, or the last name alone; ``leaves``: path -> pool, for pools that take jobs."""
    if not text:
        return RespoolId(""), "it names no pool: set peloton.io/pool at the pod or its namespace"
    if text in leaves:
        return leaves[text], ""
    found = [path for path in sorted(leaves) if path.strip("/").replace("/", ".") == text.strip(".")]
    found = found or [path for path in sorted(leaves) if path.rpartition("/")[2] == text]
    if len(found) == 1:
        return leaves[found[0]], ""
    if found:
        return RespoolId(""), f"pool {quote(text)} may be {' or '.join(found)}: name one by an annotation with its path"
    return RespoolId(""), f"there is no pool {quote(text)} without pools below it"


def owner_refusal(job: JobRecord) -> str:
    """Return why clients cannot change this job here or read its pods' logs; empty if they can."""
    if job.type is not JobType.EXTERNAL:
        return ""
    return (
        f"job {job.job_id} is external: its pods belong to {job.name} in their Kubernetes cluster. "
        f"Change them and read their logs there, with kubectl"
    )
