"""Adoption of external pods: pods that other users create in the cluster become instances of their owners' jobs, and
release the instances when they end.

Each round compares the cluster's pods with storage and keeps no other state: it may be killed at any moment, repeated
and restarted. Admission, placement and launch are the same as for all jobs.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.job import job_pb2
from peloton.errors import PelotonError
from peloton.lifecycle.external import AdoptionPlan, plan_adoption, pool_of
from peloton.model.external import Slot
from peloton.model.ids import JobId, RespoolId
from peloton.model.job import JobState
from peloton.model.pod import PodState
from peloton.model.respool import pool_paths
from peloton.ports import PodLifecycles
from services.hostmgr.ahead_admission import AheadAdmission
from services.hostmgr.external_port import ExternalCluster, FoundPod, PodCondition
from services.storage.jobs.jobs import Jobs
from services.storage.pods.external_pods import TAKEN_MAX, Arrival, ExternalPods
from services.storage.pools import Pools
from services.ticks import ticking

log = logging.getLogger(__name__)

ROUND_S = 2.0
"""Seconds between rounds without events."""
GATHER_S = 0.1
"""Seconds for which pods that arrive together are gathered."""
PAUSE_SHARE = 4.0
"""Ratio of the pause between rounds to the cpu time of a round: adoption uses at most a fifth of a core."""
IDLE_S = 10.0
"""Seconds without a pod after which an owner's job ends. The next pod starts it again."""
EXPLAIN_S = 10.0
"""Seconds between updates of the reasons why pods wait."""
MOMENT_S = 3.0
"""Seconds of waiting below which a pod needs no reason: it would cost more than the pod's binding."""
EXPLAINED_MAX = 200
"""Limit of pods per update; the other pods follow in the next updates."""
REFUSED, LEFT_OUT, QUEUED, NO_NODE = "PelotonRefused", "PelotonFull", "PelotonQueued", "Unschedulable"
GATHERING = "PelotonGang"
"""Reasons of the condition that a waiting pod shows. ``Unschedulable`` makes node autoscalers add a node, so only
admitted pods have it."""
GONE_MESSAGE = "Its pod does not wait any more"

_Terms = tuple[job_pb2.JobConfig, RespoolId]
Why = Callable[[JobId], explain_pb2.JobWhyResponse]


class ExternalAdoption:
    def __init__(
        self,
        name: str,
        cluster: ExternalCluster,
        is_connected: Callable[[], bool],
        pods: ExternalPods,
        jobs: Jobs,
        pools: Pools,
        lifecycles: PodLifecycles,
        why: Why,
        default_pool: str = "",
        ahead: AheadAdmission | None = None,
    ) -> None:
        """``name`` is the cluster's. ``why`` asks the resource manager; raises PelotonError."""
        self._ahead = ahead
        self._name, self._cluster, self._is_connected = name, cluster, is_connected
        self._pods, self._jobs, self._pools = pods, jobs, pools
        self._lifecycles, self._why = lifecycles, why
        self._default_pool = default_pool
        self._idle_since: dict[JobId, float] = {}
        self._explained_at_s = 0.0
        self._explained_last = ""
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="intake of external pods", daemon=True)

    def start(self) -> None:
        self._cluster.watch(self._woken.set)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._woken.set()
        self._thread.join()

    def _run(self) -> None:
        with ticking("intake of external pods", ROUND_S) as loop:
            while not self._stopping.is_set():
                loop.tick()
                self._woken.clear()
                began_s = time.thread_time()
                try:
                    if self._is_connected():
                        self.round(time.monotonic())
                except Exception as error:  # storage, cluster or resource manager unavailable: the next round repeats
                    log.warning("sync of external pods failed, retrying: %s", error)
                    self._stopping.wait(ROUND_S)
                self._woken.wait(ROUND_S)
                self._stopping.wait(max(PAUSE_SHARE * (time.thread_time() - began_s), GATHER_S))

    def round(self, now_s: float) -> None:
        """Run one comparison and applies the resulting plan."""
        found = self._cluster.list_pods()
        if found is None:
            return
        slots = self._pods.slots(self._name)
        pools = _Pools(self._pools, self._default_pool)
        terms, refused = _evaluate_pods(found, pools)
        plan = plan_adoption([one.observed for one in found if one.observed.uid not in refused], slots)
        by_uid = {one.observed.uid: one for one in found}
        self._give_back(plan)
        self._adopt(plan, by_uid, terms)
        self._pods.note(self._name, _find_changed_notes(self._cluster.blocked_evictions(), slots))
        self._end_idle_jobs(now_s)
        conditions = [PodCondition(uid, REFUSED, why) for uid, why in refused.items()]
        conditions += [
            PodCondition(uid, LEFT_OUT, "too many pods wait in this cluster already") for uid in plan.left_out
        ]
        if now_s - self._explained_at_s >= EXPLAIN_S:
            self._explained_at_s = now_s
            old = {uid for uid, one in by_uid.items() if now_s - one.since_s >= MOMENT_S}
            conditions += self._explain_waiting([slot for slot in slots if slot.uid in old])
        if self._ahead is not None:
            self._ahead.round(now_s, slots, by_uid)
        self._cluster.set_conditions(conditions)

    def _give_back(self, plan: AdoptionPlan) -> None:
        for job_id, instances in plan.stop.items():
            self._pods.stop(job_id, instances, GONE_MESSAGE, time.time_ns())
        self._pods.forget(self._name, plan.forget)
        self._lifecycles.jobs_changed(plan.stop, "external pods do not wait any more")

    def _adopt(self, plan: AdoptionPlan, found: Mapping[str, FoundPod], terms: Mapping[str, _Terms]) -> None:
        whole: dict[JobId, set[str]] = {}
        for uid, one in found.items():
            if one.is_stand_in and one.observed.job_id in plan.take:
                whole.setdefault(one.observed.job_id, set()).add(uid)
        for job_id, uids in plan.take.items():
            for config, alike in _group_by_config(uids, {uid: _complete_config(*terms[uid]) for uid in uids}):
                for start in range(0, len(alike), TAKEN_MAX):
                    names = {uid: found[uid].name for uid in alike[start : start + TAKEN_MAX]}
                    arrival = Arrival(job_id, config, names, whole.get(job_id, ()))
                    self._pods.adopt(self._name, arrival, time.time_ns())
            self._lifecycles.jobs_changed([job_id], "external pods came")

    def _end_idle_jobs(self, now_s: float) -> None:
        idle = self._pods.idle_jobs(self._name)
        self._idle_since = {job_id: self._idle_since.get(job_id, now_s) for job_id in idle}
        for job_id, since_s in self._idle_since.items():
            if now_s - since_s >= IDLE_S:
                self._jobs.set_goal(job_id, JobState.KILLED, time.time_ns())
                self._lifecycles.jobs_changed([job_id], "the owner has no pods any more")

    def _explain_waiting(self, slots: Sequence[Slot]) -> list[PodCondition]:
        """Return the resource manager's reasons for waiting pods; a bounded number at a time, in turn."""
        waiting = {slot.uid: slot for slot in slots if not slot.is_on_host and not slot.is_at_rest}
        later = [uid for uid in sorted(waiting) if uid > self._explained_last]
        chosen = [waiting[uid] for uid in (later or sorted(waiting))[:EXPLAINED_MAX]]
        self._explained_last = chosen[-1].uid if chosen else ""
        answers: dict[JobId, explain_pb2.JobWhyResponse] = {}
        conditions: list[PodCondition] = []
        for slot in chosen:
            try:
                if slot.job_id not in answers:
                    answers[slot.job_id] = self._why(slot.job_id)
            except PelotonError as error:
                log.info("reason why external pods of job %s wait is unknown: %s", slot.job_id, error)
                return conditions
            reason, message = describe(slot, answers[slot.job_id])
            conditions.append(PodCondition(slot.uid, reason, message, is_expected=reason in (QUEUED, GATHERING)))
        return conditions


class _Pools:
    """A snapshot of the resource pools."""

    def __init__(self, pools: Pools, default: str) -> None:
        specs = pools.specs()
        parents = {spec.parent_id for spec in specs}
        paths = pool_paths(specs)
        self._leaves = {paths[spec.respool_id]: spec.respool_id for spec in specs if spec.respool_id not in parents}
        self._default = default
        self._named: dict[str, tuple[RespoolId, str]] = {}

    def find(self, text: str) -> tuple[RespoolId, str]:
        """Return the pool, or why there is none."""
        if text not in self._named:
            self._named[text] = pool_of(text or self._default, self._leaves)
        return self._named[text]


def _evaluate_pods(found: Iterable[FoundPod], pools: _Pools) -> tuple[dict[str, _Terms], dict[str, str]]:
    """Return by uid the configurations and pools of waiting pods, and the reasons why others cannot be placed."""
    terms: dict[str, _Terms] = {}
    refused: dict[str, str] = {}
    for one in found:
        uid = one.observed.uid
        if one.refusal:
            refused[uid] = one.refusal
        elif one.observed.waits and one.config is not None:
            pool, why = pools.find(one.pool)
            if why:
                refused[uid] = why
                continue
            terms[uid] = one.config, pool
    return terms, refused


def _complete_config(config: job_pb2.JobConfig, pool: RespoolId) -> job_pb2.JobConfig:
    whole = job_pb2.JobConfig()
    whole.CopyFrom(config)
    whole.respoolID.value = pool
    return whole


def _group_by_config(
    uids: Iterable[str], configs: Mapping[str, job_pb2.JobConfig]
) -> Iterator[tuple[job_pb2.JobConfig, list[str]]]:
    """Yield groups of pods with equal configurations, each in the order of the pods."""
    groups: dict[bytes, list[str]] = {}
    for uid in uids:
        groups.setdefault(configs[uid].SerializeToString(deterministic=True), []).append(uid)
    for alike in groups.values():
        yield configs[alike[0]], alike


def _find_changed_notes(blocked_evictions: Mapping[str, str], slots: Iterable[Slot]) -> dict[str, str]:
    """Return changed notes, including empty ones for pods whose eviction is no longer blocked."""
    return {
        slot.uid: blocked_evictions.get(slot.uid, "")
        for slot in slots
        if slot.note != blocked_evictions.get(slot.uid, "")
    }


def describe(slot: Slot, answer: explain_pb2.JobWhyResponse) -> tuple[str, str]:
    """Return the reason and message to show at the pod of this instance."""
    if slot.state is PodState.PENDING:
        for one in answer.waiting:
            if one.firstInstance <= slot.instance_id < one.firstInstance + one.gangCount * one.gangSize:
                return QUEUED, f"pool {answer.poolPath}: {one.reason.text}"
        return QUEUED, f"it is in the queue of pool {answer.poolPath}"
    texts = "; ".join(reason.text for reason in islice(answer.reasons, 3))
    if slot.state is PodState.READY:
        entitled = f"pool {answer.poolPath} has resources for it"
        return NO_NODE, f"{entitled}: {texts}" if texts else f"{entitled}, and it gets a node next"
    if any(reason.rule == explain_pb2.RULE_GANG_GATHERS for reason in answer.reasons):
        return GATHERING, f"pool {answer.poolPath}: {texts}"
    return QUEUED, texts or f"it is about to be queued in pool {answer.poolPath}"
