"""External pods: watched, launched, evicted, reported.

A launch is the binding of a pod that Peloton places, or the removal of the gate of a gated pod. Either carries the id
of the run as an annotation, which becomes the pod's: from then on the pod itself identifies its run, whatever happens
to Peloton. Peloton never creates such a pod again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import quote

from peloton.api.v0.job import job_pb2
from peloton.model.external import ObservedPod
from peloton.model.ids import JobId, PodId
from services.hostmgr.driver import PodReport
from services.hostmgr.external_port import FoundPod, PodCondition
from services.hostmgr.kubernetes.apiserver.wire import (
    GONE_OR_CHANGED,
    Answer,
    ApiServer,
    Json,
    Request,
    check_answers,
    fault_of,
)
from services.hostmgr.kubernetes.external.external_requests import (
    MESSAGE_MAX,
    RUN,
    condition_request,
    describe_launch,
    event_request,
    eviction_request,
    get_request,
    is_launched_as,
    launch_request,
    read_answer,
    read_condition,
    show_admission_request,
)
from services.hostmgr.kubernetes.external.external_specs import (
    Owner,
    Refused,
    age_key,
    config_of,
    controller_of,
    owner_of_bare_pod,
    pool_of_pod,
    queue_named,
)
from services.hostmgr.kubernetes.external.gate import is_by_gate, is_stand_in, node_of_fit, run_of, wants_launch
from services.hostmgr.kubernetes.external.namespaces import NO_TERMS, Namespaces
from services.hostmgr.kubernetes.external.owner_events import Ending, describe_evictions
from services.hostmgr.kubernetes.external.owners_port import Owners
from services.hostmgr.kubernetes.external.pod_groups import GroupKey, group_of, size_of
from services.hostmgr.kubernetes.external.put_back import (
    NO_RETURNS,
    PUT_BACK_MAX,
    PutBackJobs,
    find_overdue,
    is_unscheduled,
    job_of,
    jobs_to_suspend,
    sort_overdue,
)
from services.hostmgr.kubernetes.nodes.nodes import Taints
from services.hostmgr.kubernetes.pods.pod_cache import PodCache
from services.hostmgr.kubernetes.pods.statuses import is_over

log = logging.getLogger(__name__)

EVICT_AGAIN_S = 5.0
"""Seconds after an eviction that a PodDisruptionBudget forbids, until the next attempt."""
NOT_SCHEDULED = "PelotonNotScheduled"
"""Reason shown at an admitted pod that no scheduler has bound, and that stays."""
GROUP_AGE_S, GROUP_RETRY_S = 30.0, 3.0
"""Maximum age in seconds of a cached pod group, and seconds until one that could not be read is read again."""
OWNERS_MAX = 10_000
"""Limit of ReplicaSets whose controllers are cached, and of pod groups."""
CONDITIONS_MAX = 500
"""Limit of conditions written in one call; the others follow in the next calls."""
EVENTS_MAX, EVENTS_AT_ONCE = 100, 10
"""Limits of binding events written in one call, while other periodic tasks wait, and in one batch: bindings require
nearly all connections."""
EVENTS_WAITING_MAX = 20_000
"""Limit of unwritten events; the oldest are dropped."""


Instance = tuple[JobId, int]
UidsOf = Callable[[Collection[Instance]], dict[Instance, str]]
"""Returns the uids of the external pods with these instances. Raises what storage raises."""
CausesOf = Callable[[Collection[PodId]], dict[PodId, str]]
"""Returns why these runs are evicted, without those that end otherwise. Raises what storage raises."""


@dataclass(slots=True)
class _Seen:
    pod: Json
    source: _Source
    since_s: float = field(default_factory=time.monotonic)
    owner: Owner | None = None
    refusal: str = ""
    config: tuple[Any, job_pb2.JobConfig] | None = None  # after the taints of nodes and the group for which it is valid
    found: tuple[Json, Any, FoundPod] | None = None  # the cached result, after the values for which it is valid
    said: PodCondition | None = None  # shown at the pod
    is_overdue_shown: bool = False
    is_eviction_shown: bool = False  # at its owner
    may_join: bool | None = None  # a held owner, by its controller; None: not looked at yet


class _Group(NamedTuple):
    """The pod group of a gated pod."""

    owner: Owner | None = None
    size: int = 1
    refusal: str = ""


NO_GROUP = _Group()


@dataclass(slots=True, eq=False)
class _Source:
    """Implements ``Watched`` for one of the watches that show external pods; no pod is in two of them."""

    pods: ExternalPods
    is_listed: bool = False

    def on_replace(self, objects: Sequence[Json]) -> None:
        self.pods.replace(self, objects)

    def on_change(self, kind: str, object: Json) -> None:
        self.pods.change(self, kind, object)

    def on_lost(self, why: str) -> None:
        log.info("watch of external pods lost: %s", why)
        self.is_listed = False


class ExternalPods:
    """Implements ``external_port.ExternalCluster``."""

    def __init__(
        self,
        api: ApiServer,
        cluster: str,
        host_id_of: Callable[[str], str],
        publish: Callable[[Sequence[PodReport]], None],
        uids_of: UidsOf,
        gone: Callable[[Json], None],
        fits: Callable[[Json, str], None] = lambda pod, node: None,
        taints: Callable[[], frozenset[Taints]] = frozenset,
        owners: Owners | None = None,
        causes_of: CausesOf = lambda runs: {},
    ) -> None:
        """``publish`` takes reports of launched pods, ``gone`` each pod that was deleted or has ended, ``fits`` each
        admitted pod without a node and the node of its fit test; ``taints`` returns the different ones of nodes."""
        self._api, self._cluster = api, cluster
        self._host_id_of, self._publish, self._uids_of, self._gone = host_id_of, publish, uids_of, gone
        self._fits, self._taints, self._owners, self._causes_of = fits, taints, owners, causes_of
        self._changed: Callable[[], None] = lambda: None
        self._lock = threading.RLock()
        self._pods: dict[str, _Seen] = {}
        self.sources: list[_Source] = []
        self._cache = PodCache()
        self._runs: dict[str, str] = {}  # run -> uid of the pod launched as it
        self._launched: set[str] = set()  # uids of pods that Peloton has launched, possibly not seen as launched yet
        self._controllers: dict[str, Owner] = {}  # uid of a ReplicaSet -> its controller
        self._namespaces = Namespaces(api)
        self._groups: dict[GroupKey, tuple[float, _Group]] = {}  # time of the read
        self._hindered: dict[str, tuple[str, float]] = {}  # run -> why it was not evicted, time of the next attempt
        self.put_back_jobs = PutBackJobs(api)
        self._unwritten: deque[Request] = deque(maxlen=EVENTS_WAITING_MAX)  # events of launches

    # Events of the watch.

    def watch(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    def add_source(self) -> _Source:
        """Return the receiver of one more watch; pods are known when all watches have listed them."""
        self.sources.append(_Source(self))
        return self.sources[-1]

    @property
    def _is_listed(self) -> bool:
        return all(source.is_listed for source in self.sources)

    def replace(self, source: _Source, objects: Sequence[Json]) -> None:
        with self._lock:
            before = {uid: seen for uid, seen in self._pods.items() if seen.source is source}
            for uid in before:
                del self._pods[uid]
            for uid in before.keys() - {pod["metadata"]["uid"] for pod in objects}:
                self._gone(before[uid].pod)  # first: a pod of the same name may be among the others
            there = [*objects, *(seen.pod for seen in self._pods.values())]
            reports = self._cache.keep({(pod["metadata"].get("annotations") or {}).get(RUN, "") for pod in there})
            for pod in objects:
                uid = pod["metadata"]["uid"]
                if uid in before:
                    self._pods[uid] = before[uid]
                reports += self._take(source, pod, is_deleted=False)
            self._launched &= self._pods.keys()
            for run, uid in list(self._runs.items()):
                if uid not in self._pods:
                    self._forget_if_done(run)
            source.is_listed = True
        self._publish(reports)
        self._changed()

    def change(self, source: _Source, kind: str, object: Json) -> None:
        with self._lock:
            reports = self._take(source, object, kind == "DELETED")
        if reports:
            self._publish(reports)
        if not run_of(object):  # launched pods are covered by reports
            self._changed()

    def look(self, pod: Json) -> None:
        """Record a launched pod that was read directly, unless a watch has shown its launch: the read may be older."""
        with self._lock:
            seen = self._pods.get(pod["metadata"]["uid"])
            reports = [] if seen is None or run_of(seen.pod) else self._take(seen.source, pod, is_deleted=False)
        self._publish(reports)

    def _take(self, source: _Source, pod: Json, is_deleted: bool) -> list[PodReport]:
        meta = pod["metadata"]
        meta.pop("managedFields", None)
        if is_deleted:
            self._pods.pop(meta["uid"], None)
            self._launched.discard(meta["uid"])
        else:
            self._pods.setdefault(meta["uid"], _Seen(pod, source)).pod = pod
        if is_deleted or is_over(pod):
            self._gone(pod)
        run = run_of(pod)
        if not run:
            return []
        self._runs[run] = meta["uid"]
        node = pod["spec"].get("nodeName", "") or node_of_fit(pod)
        if node and not pod["spec"].get("nodeName") and not is_deleted and not is_over(pod):
            self._fits(pod, node)
        known = {**pod, "metadata": {**meta, "name": run}, "spec": {**pod["spec"], "nodeName": node}}
        report = self._cache.record_state(known, self._host_id_of(node), is_deleted, may_move=is_by_gate(pod))
        if is_deleted:
            self._forget_if_done(run)
        return [report] if report is not None else []

    def _forget_if_done(self, run: str) -> None:
        """Remove the run of a deleted pod when its end is stored, or was never seen. The caller holds the lock."""
        self._hindered.pop(run, None)
        if run not in self._cache.pods:
            self._runs.pop(run, None)

    # Interface for the adoption of pods.

    def list_pods(self) -> Sequence[FoundPod] | None:
        with self._lock:
            if not self._is_listed:
                return None
            pods = sorted(self._pods.values(), key=lambda seen: age_key(seen.pod))
            launched = frozenset(self._launched)
        pods = self._leave_to_owners(pods, launched)
        taints = self._taints()
        if len(self._groups) > OWNERS_MAX:
            self._groups.clear()
        return [self._make_found(seen, launched, taints) for seen in pods]

    def _leave_to_owners(self, pods: list[_Seen], launched: frozenset[str]) -> list[_Seen]:
        """Return the pods without those that take places of stand-ins."""
        if self._owners is None:
            return pods
        for seen in pods:
            if seen.may_join is None:
                seen.may_join = not is_stand_in(seen.pod) and is_by_gate(seen.pod) and self._owners.may_take(seen.pod)
        waiting = [seen.pod for seen in pods if seen.may_join and wants_launch(seen.pod)]
        asked = [pod for pod in waiting if pod["metadata"]["uid"] not in launched]
        taken = self._owners.take(asked) if asked else set()
        if not taken:
            return pods
        with self._lock:
            for uid in taken:
                self._pods.pop(uid, None)
        return [seen for seen in pods if seen.pod["metadata"]["uid"] not in taken]

    def _make_found(self, seen: _Seen, launched: frozenset[str], taints: frozenset[Taints]) -> FoundPod:
        pod = seen.pod
        waits = wants_launch(pod) and pod["metadata"]["uid"] not in launched
        own, has_gate = pool_of_pod(pod), is_by_gate(pod)
        needs_terms = waits and (has_gate or not own)
        terms = self._namespaces.terms_of(pod["metadata"]["namespace"]) if needs_terms else NO_TERMS
        pool = own or terms.pool or queue_named(pod) if waits else ""
        group = self._group_of(pod) if waits and has_gate and not is_stand_in(pod) else NO_GROUP
        refusal = terms.refusal if has_gate else ""
        valid_for = waits, pool, taints, group, refusal
        if seen.found is None or seen.found[0] is not pod or seen.found[1] != valid_for:
            seen.found = (pod, valid_for, self._evaluate(seen, waits, pool, taints, group, refusal))
        return seen.found[2]

    def _evaluate(
        self, seen: _Seen, waits: bool, pool: str, taints: frozenset[Taints], group: _Group, refusal: str
    ) -> FoundPod:
        pod = seen.pod
        meta = pod["metadata"]
        owner = group.owner or seen.owner or self._owner_of(pod)
        seen.owner = owner
        name = f"{meta['namespace']}/{meta['name']}"
        try:
            observed = ObservedPod(meta["uid"], owner.job_id, waits)
            if refusal or group.refusal:
                raise Refused(refusal or group.refusal)
            if waits and (seen.config is None or seen.config[0] != (taints, group)):
                config = config_of(pod, owner, self._cluster, taints, group_size=group.size)
                seen.config = (taints, group), config
        except Refused as refused:
            return FoundPod(ObservedPod(meta["uid"], JobId(meta["uid"]), False), name, refusal=str(refused))
        known = seen.config[1] if seen.config is not None else None
        return FoundPod(
            *(observed, name, known, pool),
            since_s=seen.since_s,
            has_gate=is_by_gate(pod),
            is_ahead=is_unscheduled(pod) and not node_of_fit(pod),
            is_stand_in=is_stand_in(pod),
        )

    def _owner_of(self, pod: Json) -> Owner:
        """Return the pod's controller; for a ReplicaSet its own controller, so that a Deployment is one job through
        its rollouts."""
        owner = controller_of(pod)
        if owner is None:
            return owner_of_bare_pod(pod)
        if owner.kind != "ReplicaSet" or not owner.api_version.startswith("apps/"):
            return owner
        if owner.uid not in self._controllers:
            path = f"/apis/{quote(owner.api_version)}/namespaces/{owner.namespace}/replicasets"
            answer = self._api.ask(Request("GET", f"{path}/{quote(owner.name, safe='')}"))
            if answer.may_pass:
                raise OSError(f"ReplicaSet {owner.namespace}/{owner.name} cannot be read: {answer.message}")
            above = controller_of(answer.json()) if answer.is_ok else None
            if len(self._controllers) >= OWNERS_MAX:
                self._controllers.clear()
            self._controllers[owner.uid] = above or owner
        return self._controllers[owner.uid]

    def _group_of(self, pod: Json) -> _Group:
        """Return the group that the pod names, as read within the last seconds."""
        key = group_of(pod)
        if key is None:
            return NO_GROUP
        read_s, group = self._groups.get(key, (float("-inf"), NO_GROUP))
        now_s = time.monotonic()
        if now_s - read_s > (GROUP_RETRY_S if group.refusal else GROUP_AGE_S):
            answer = self._api.ask(Request("GET", key.path))
            if answer.may_pass:
                raise OSError(f"{key.title} cannot be read: {answer.message}")
            if answer.is_ok:
                found = answer.json()
                owner = Owner("PodGroup", key.namespace, key.name, found["metadata"]["uid"], key.api_version)
                group = _Group(owner, size_of(found, key))
            else:
                group = _Group(refusal=f"its {key.title} cannot be read: {answer.message}")
            self._groups[key] = (now_s, group)
        return group

    def set_conditions(self, conditions: Sequence[PodCondition]) -> None:
        """Show statuses at pods. A rejected status is not repeated until it changes; a new reason also writes an
        event."""
        sent: list[tuple[_Seen, Json, PodCondition]] = []
        of_owners: list[tuple[Json, PodCondition]] = []
        with self._lock:
            for condition in conditions:
                seen = self._pods.get(condition.uid)
                if seen is not None and is_stand_in(seen.pod):
                    of_owners.append((seen.pod, condition))
                    continue
                if seen is None or not wants_launch(seen.pod) or seen.said == condition or len(sent) == CONDITIONS_MAX:
                    continue
                if read_condition(seen.pod) != (condition.reason, condition.message[:MESSAGE_MAX]):
                    sent.append((seen, seen.pod, condition))
                seen.said = condition
        answers = self._api.ask_all([condition_request(pod, one.reason, one.message) for _, pod, one in sent])
        events = []
        for (seen, pod, one), answer in zip(sent, answers, strict=True):
            if isinstance(answer, OSError) or answer.status == HTTPStatus.CONFLICT or answer.may_pass:
                seen.said = None  # it has changed meanwhile, or cannot be written now: retried in the next call
            elif answer.is_ok and read_condition(pod)[0] != one.reason:
                kind = "Normal" if one.is_expected else "Warning"
                events.append(event_request(pod, kind, one.reason, one.message))
        check_answers([*answers, *self._api.ask_all(events)], *GONE_OR_CHANGED)
        if self._owners is not None:
            self._owners.show(of_owners)

    def blocked_evictions(self) -> dict[str, str]:
        with self._lock:
            return {self._runs[run]: why for run, (why, _) in self._hindered.items() if run in self._runs}

    # Interface for the driver.

    def pods_of(self, runs: Sequence[PodId]) -> dict[PodId, Json]:
        """Return the objects of the runs among these that belong to external pods; empty if the object is not
        known."""
        uids = self._uids_of({(run.job_id, run.instance_id) for run in runs})
        found = {run: uid for run in runs if (uid := uids.get((run.job_id, run.instance_id)))}
        with self._lock:
            if found and not self._is_listed:
                raise ConnectionError("the pods of others are not listed yet")
            return {run: self._pods[uid].pod if uid in self._pods else {} for run, uid in found.items()}

    def launch(self, pods: Sequence[tuple[PodId, Json, str]]) -> dict[PodId, str]:
        """Launch pods ``(run, pod, node)``. Returns the runs that certainly were not launched, with the reason. Raises
        OSError when the result of some is unknown."""
        stand_ins = [each for each in pods if is_stand_in(each[1])]
        pods = [each for each in pods if not is_stand_in(each[1])]
        answers = self._api.ask_all([launch_request(pod, run, node) for run, pod, node in pods])
        refused: dict[PodId, str] = {}
        unknown: OSError | None = None
        for (run, pod, node), answer in zip(pods, answers, strict=True):
            try:
                why = self._why_not_launched(run, pod, answer)
            except OSError as error:
                unknown = error
                continue
            if why:
                refused[run] = why
                continue
            seen = self._note_launched(run, pod)
            self._unwritten += describe_launch(pod, node, was_explained=seen is not None and seen.said is not None)
        if self._owners is not None and stand_ins:
            refused |= self._owners.admit(stand_ins)
            for run, pod, _ in stand_ins:
                if run not in refused:
                    self._note_launched(run, pod)
        if unknown is not None:
            raise unknown
        return refused

    def _note_launched(self, run: PodId, pod: Json) -> _Seen | None:
        with self._lock:
            seen = self._pods.get(pod["metadata"]["uid"])
            if seen is not None:  # else it is gone already
                self._launched.add(pod["metadata"]["uid"])
                self._runs[str(run)] = pod["metadata"]["uid"]
        return seen

    def launch_ahead(self, runs: Sequence[PodId]) -> dict[PodId, str]:
        pods = self.pods_of(runs)
        there = [(run, pod, "") for run, pod in pods.items() if pod and wants_launch(pod) and is_by_gate(pod)]
        gone = dict.fromkeys(runs, "its pod is gone") | {run: "" for run, *_ in there}
        return {run: why for run, why in gone.items() if why} | self.launch(there)

    def _why_not_launched(self, run: PodId, pod: Json, answer: Answer | OSError) -> str:
        """Return why the pod is not launched as this run; empty if it is. A conflict may result from a repeated
        request."""
        if isinstance(answer, OSError):
            raise answer
        if answer.is_ok:
            return ""
        if answer.may_pass:
            raise OSError(answer.message)
        if answer.status == HTTPStatus.CONFLICT:
            [now] = self._api.ask_all([get_request(pod)])
            found = read_answer(now)
            if found is not None and is_launched_as(found, run, pod["metadata"]["uid"]):
                return ""
        deed = "admitted" if is_by_gate(pod) else "bound"
        return f"{pod['metadata']['namespace']}/{pod['metadata']['name']} was not {deed}: {answer.message}"

    @property
    def has_events(self) -> bool:
        """Return whether events of launches wait to be written."""
        return bool(self._unwritten)

    def write_events(self) -> None:
        """Write some of the events, after the urgent launches. Best effort: the pods run all the same."""
        some = [self._unwritten.popleft() for _ in range(min(len(self._unwritten), EVENTS_MAX))]
        for start in range(0, len(some), EVENTS_AT_ONCE):
            for answer in self._api.ask_all(some[start : start + EVENTS_AT_ONCE]):
                if why := fault_of(answer):
                    log.info("Kubernetes event not written: %s", why)
                    return

    def has(self, run: str) -> bool:
        """Return whether an external pod is, or was, launched as this run."""
        with self._lock:
            return run in self._runs

    def evict(self, runs: Sequence[str]) -> None:
        """Evict running pods. Evictions that a PodDisruptionBudget forbids are repeated. Raises OSError."""
        with self._lock:
            there = [(run, self._pods[uid].pod) for run in runs if (uid := self._runs.get(run)) in self._pods]
            pods = [(run, pod) for run, pod in there if not is_over(pod)]
            for run in {*runs}.difference(run for run, _ in pods):
                self._hindered.pop(run, None)
            for run, _ in pods:
                self._cache.kill_asked(run)
            known = [seen.pod for seen in self._pods.values() if not is_stand_in(seen.pod)]
        self._describe_evictions([run for run, _ in pods])
        pods = [(run, pod) for run, pod in pods if not is_stand_in(pod)]
        jobs = jobs_to_suspend([pod for _, pod in pods], known)
        if jobs:
            self.put_back_jobs.suspend(jobs)
            pods = [(run, pod) for run, pod in pods if job_of(pod) not in jobs]
        answers = self._api.ask_all([eviction_request(pod) for _, pod in pods])
        again_s = time.monotonic() + EVICT_AGAIN_S
        others: list[Answer | OSError] = []
        with self._lock:
            for (run, _), answer in zip(pods, answers, strict=True):
                if not isinstance(answer, OSError) and answer.status == HTTPStatus.TOO_MANY_REQUESTS:
                    self._hindered[run] = (answer.message, again_s)
                    continue
                self._hindered.pop(run, None)
                others.append(answer)
        if any(run in self._hindered for run, _ in pods):
            self._changed()
        if self._owners is not None:  # last: an owner that cannot be suspended does not stop the evictions
            self._owners.suspend([pod for _, pod in there if is_stand_in(pod)], "its pool takes its resources back")
        check_answers(others, *GONE_OR_CHANGED)

    def _describe_evictions(self, runs: Sequence[str]) -> None:
        """Add an event for each owner of pods that are evicted for the first time."""
        with self._lock:
            seen = {
                PodId.parse(run): one for run in runs if (one := self._pods.get(self._runs.get(run, ""))) is not None
            }
        new = {run: one for run, one in seen.items() if not one.is_eviction_shown}
        causes = self._causes_of(new) if new else {}
        seen_of = ((new[run], why) for run, why in causes.items())
        endings = [Ending(one.owner or owner_of_bare_pod(one.pod), one.pod, why) for one, why in seen_of]
        self._unwritten += describe_evictions(endings)
        for run in causes:
            new[run].is_eviction_shown = True

    def put_back(self, timeout_s: float) -> None:
        """Put admitted pods back into the queue that no scheduler has bound within ``timeout_s``, or the bound of their
        namespace, as their owners allow; others stay, and show it. Raises OSError."""
        with self._lock:
            waiting = {seen.pod["metadata"]["namespace"] for seen in self._pods.values() if is_unscheduled(seen.pod)}
        bounds_s = {name: self._namespaces.terms_of(name).timeout_s or timeout_s for name in waiting}
        with self._lock:
            known = [seen.pod for seen in self._pods.values()]
            overdue = find_overdue(known, time.time(), bounds_s)[:PUT_BACK_MAX]
            stand_ins = [*filter(is_stand_in, overdue)]
            overdue, known = ([pod for pod in pods if not is_stand_in(pod)] for pods in (overdue, known))
            for pod in stand_ins:
                self._cache.kill_asked(run_of(pod))
            returns = sort_overdue(overdue, known) if overdue else NO_RETURNS
            staying = [self._pods[pod["metadata"]["uid"]] for pod in returns.staying]
            for pod in known if returns.suspended else ():
                if job_of(pod) in returns.suspended:
                    self._cache.kill_asked(run_of(pod))
        for seen in staying:
            if not seen.is_overdue_shown:
                bound_s = bounds_s[seen.pod["metadata"]["namespace"]]
                text = f"no scheduler has bound it in {bound_s:g} s, and its owner would not replace it: it stays"
                seen.is_overdue_shown = True
                self._unwritten.append(show_admission_request(seen.pod, True, NOT_SCHEDULED, text))
                self._unwritten.append(event_request(seen.pod, "Warning", NOT_SCHEDULED, text))
        if returns.suspended:
            self.put_back_jobs.suspend(returns.suspended)
        if returns.evicted:
            log.info("%d admitted pods are put back: not scheduled in time", len(returns.evicted))
            self.evict([run_of(pod) for pod in returns.evicted])
        if self._owners is not None and stand_ins:
            self._owners.suspend(stand_ins, "no scheduler has bound its pods in time: it is queued again")

    def evict_again(self) -> None:
        """Repeat due evictions. Raises OSError."""
        now_s = time.monotonic()
        with self._lock:
            due = [run for run, (_, again_s) in self._hindered.items() if again_s <= now_s]
        if due:
            self.evict(due)

    def answer(self, run: str) -> PodReport | None:
        """Return the answer to reconciliation; None for an unknown run."""
        with self._lock:
            return self._cache.answer(run)

    def all_runs(self) -> list[str]:
        with self._lock:
            return list(self._cache.pods)

    def acknowledge(self, token: tuple[str, ...]) -> PodReport | None:
        """Acknowledge a report; return the next one."""
        with self._lock:
            report, stored = self._cache.acknowledge(token)
            if stored is not None and stored.pod.is_gone:
                self._forget_if_done(stored.pod.name)
            return report

    def list_unacknowledged(self) -> list[PodReport]:
        with self._lock:
            return self._cache.list_unacknowledged()
