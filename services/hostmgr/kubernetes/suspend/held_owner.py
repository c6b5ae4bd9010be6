"""An owner that waits suspended for its pool, as a value; and its stand-ins.

A stand-in has the place of a pod that does not exist yet: the queue, the fit test and the accounting see the pods that
an owner is going to have. It is a gated pod of the owner's template. The owner's annotations say which of its pods were
admitted, as which runs, so that the truth is in the cluster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import UUID, uuid5

import orjson

from peloton.model.ids import PodId, parse_job_id
from services.hostmgr.kubernetes.apiserver.wire import MERGE_PATCH, Json, Request
from services.hostmgr.kubernetes.external.external_requests import false_condition_request, read_false
from services.hostmgr.kubernetes.external.external_specs import (
    GANG_SIZE,
    POOL,
    PREEMPTIBLE,
    PRIORITY,
    label_or_annotation,
)
from services.hostmgr.kubernetes.external.gate import ADMITTED, ADMITTED_AT, FITS_ON, GATE, STAND_IN_FOR, write_now
from services.hostmgr.kubernetes.pods.launches import BY_SUSPEND, HELD, RUN
from services.hostmgr.kubernetes.suspend.owner_kinds import (
    OwnerKind,
    Unreadable,
    is_ended,
    is_suspended,
    pod_sets,
    suspend_patch,
)

PAUSED = "peloton.io/paused"
"""Annotation of an owner: "true" if its user wants it suspended, so that it is not in the queue."""
ADMITTED_AS = "peloton.io/admitted-as"
"""Annotation of an admitted owner: the stand-ins that were admitted, by ``HeldOwner.key``."""
ADMISSIONS = "peloton.io/ended-admissions"
"""Annotation of an owner: how many of its admissions have ended."""
ADMISSION_MARKS = (ADMITTED_AS, RUN, FITS_ON, ADMITTED_AT)
OWNER_PODS_MAX = 2_000
"""Limit of pods of an owner: their runs and nodes are in its annotations, which have 256 KiB."""
FITS_MAX = 150_000
"""Limit in characters of the nodes of the fit test; without them a successor does not claim room until pods are
bound."""


NO_TEMPLATE: Json = {"spec": {"containers": []}}
"""Template of a pod that an owner has no longer since it was scaled down."""


class Phase(Enum):
    WAITS = "it is suspended until its pool admits it"
    RESTS = "its user has suspended it, or others run it"
    RUNS = "Peloton has admitted it"
    STOPS = "it is suspended, and its pods end"
    ENDED = "it has ended"


class Admission(NamedTuple):
    """The runs of an owner's stand-ins and the nodes of their fit tests, in their order."""

    key: str
    runs: tuple[PodId, ...]
    nodes: tuple[str, ...]
    at: str


@dataclass(frozen=True)
class HeldOwner:
    kind: OwnerKind
    object: Json
    referenced: Json | None = None  # the object that describes its pods, for kinds with a reference

    @property
    def uid(self) -> str:
        return str(self.object["metadata"]["uid"])

    @property
    def title(self) -> str:
        meta = self.object["metadata"]
        return f"{self.kind.kind} {meta['namespace']}/{meta['name']}"

    @property
    def path(self) -> str:
        meta = self.object["metadata"]
        return f"{collection_of(self.kind, meta['namespace'])}/{quote(meta['name'], safe='')}"

    @cached_property
    def _annotations(self) -> Json:
        return self.object["metadata"].get("annotations") or {}

    @property
    def is_held(self) -> bool:
        """Return whether the policy has suspended it when it was created."""
        return bool(self._annotations.get(HELD) == BY_SUSPEND)

    @cached_property
    def _pods(self) -> tuple[tuple[tuple[str, Json], ...], frozenset[int], str]:
        """Return the name and the template of each pod that it is going to have, with the numbers of those that are
        spare, or why it cannot be queued."""
        found: list[tuple[str, Json]] = []
        spare: set[int] = set()
        try:
            sets = pod_sets(self.kind, self.object, self.referenced)
        except Unreadable as error:
            return (), frozenset(), str(error)
        for each in sets:
            count = min(each.count, _count_left(self.object)) if self.kind.is_job else each.count
            if len(found) + count > OWNER_PODS_MAX:
                return (), frozenset(), f"it has more than {OWNER_PODS_MAX:,} pods, the limit of an owner that is held"
            found += [(f"{each.name}-{number}", each.template) for number in range(count)]
            spare.update(range(len(found) - each.spare, len(found)))
        return tuple(found), frozenset(spare), "" if found else "it has no pods"

    @property
    def templates(self) -> tuple[tuple[str, Json], ...]:
        return self._pods[0]

    @property
    def spare(self) -> frozenset[int]:
        """Return the numbers of the pods that come only when they are wanted."""
        return self._pods[1]

    @property
    def problem(self) -> str:
        """Return why it cannot be queued; empty if it can."""
        return self._pods[2]

    @cached_property
    def key(self) -> str:
        """Return what distinguishes its stand-ins: the number of its admission, and what its pods request."""
        meta = self.object["metadata"]
        terms = [label_or_annotation(meta, each) for each in (POOL, PRIORITY, PREEMPTIBLE)]
        different = {id(template): template for _, template in self.templates}
        digests = {each: _digest(template.get("spec")) for each, template in different.items()}
        pods = [(name, digests[id(template)]) for name, template in self.templates]
        return f"{self.admissions}.{_digest([terms, pods])[:12]}"

    @property
    def admissions(self) -> int:
        text = str(self._annotations.get(ADMISSIONS) or "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0

    @cached_property
    def admission(self) -> Admission | None:
        """Return the admission in its annotations; None for an owner without one."""
        key = str(self._annotations.get(ADMITTED_AS) or "")
        if not key:
            return None
        try:
            runs = tuple(_read_runs(self.uid, str(self._annotations.get(RUN) or "")))
        except ValueError:
            return None
        nodes = tuple(_read_nodes(str(self._annotations.get(FITS_ON) or "")))
        nodes = (*nodes, *("" for _ in runs))[: len(runs)]
        return Admission(key, runs, nodes, str(self._annotations.get(ADMITTED_AT) or ""))

    @property
    def phase(self) -> Phase:
        if is_ended(self.kind, self.object):
            return Phase.ENDED
        is_admitted = self.admission is not None
        if not is_suspended(self.kind, self.object):
            return Phase.RUNS if is_admitted else Phase.RESTS
        if ADMITTED_AS in self._annotations:
            return Phase.STOPS
        return Phase.RESTS if self.is_paused else Phase.WAITS

    @property
    def is_paused(self) -> bool:
        """Return whether its user wants it suspended."""
        return bool(self._annotations.get(PAUSED) == "true")

    @property
    def is_quiet(self) -> bool:
        """Return whether it makes no pods any more, as far as its status tells."""
        status = self.object.get("status") or {}
        if self.kind.is_job:
            conditions = status.get("conditions") or ()
            if not any(one["type"] == "Suspended" and one["status"] == "True" for one in conditions):
                return False
        return not status.get("active") and not status.get("terminating")

    @property
    def has_outgrown(self) -> bool:
        """Return whether it has more pods than were admitted: its user has scaled it since."""
        return self.admission is not None and len(self.templates) > len(self.admission.runs)


def _digest(value: Any) -> str:
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def collection_of(kind: OwnerKind, namespace: str = "") -> str:
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{kind.api_version}{place}/{kind.plural}"


def _count_left(job: Json) -> int:
    """Return how many pods a Job still needs: it makes no more after a suspension."""
    completions = job["spec"].get("completions")
    succeeded = (job.get("status") or {}).get("succeeded") or 0
    return OWNER_PODS_MAX + 1 if completions is None else max(completions - succeeded, 0)


# -- stand-ins ---------------------------------------------------------------------------------------------------------


def owner_of_stand_in(pod: Json) -> str:
    """Return the uid of the owner."""
    return str(pod[STAND_IN_FOR])


def stand_ins_of(owner: HeldOwner) -> list[Json]:
    """Return the stand-ins in their state without any real pods; none for an owner that needs none."""
    phase, admission = owner.phase, owner.admission
    if phase is Phase.RESTS:
        return []
    if phase is Phase.WAITS:
        return [*_make(owner, owner.key, len(owner.templates))]
    if admission is None:
        return []
    made = [*_make(owner, admission.key, len(admission.runs))]
    for number, (one, run, node) in enumerate(zip(made, admission.runs, admission.nodes, strict=True)):
        marks = {RUN: str(run), FITS_ON: node, ADMITTED_AT: admission.at}
        one["metadata"]["annotations"] = {**one["metadata"]["annotations"], **marks}
        one["spec"] = {key: value for key, value in one["spec"].items() if key != "schedulingGates"}
        if number in owner.spare and node:  # it has its place without a pod, for which no launch waits
            one["status"] = {"phase": "Running"}
        if phase is Phase.STOPS:
            one["metadata"]["deletionTimestamp"] = admission.at
            one["metadata"]["deletionGracePeriodSeconds"] = 0
        if phase is Phase.ENDED:
            one["status"] = {"phase": "Failed" if _has_failed(owner.object) else "Succeeded"}
    return made


def _make(owner: HeldOwner, key: str, count: int) -> Iterator[Json]:
    meta, kind = owner.object["metadata"], owner.kind
    reference = {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta["name"]}
    reference |= {"uid": meta["uid"], "controller": True}
    annotations = {each: text for each in (PRIORITY, PREEMPTIBLE) if (text := label_or_annotation(meta, each))}
    annotations[GANG_SIZE] = str(count)
    labels = {POOL: (meta.get("labels") or {}).get(POOL, "")}
    specs: dict[int, Json] = {}
    for number in range(count):
        name, template = owner.templates[number] if number < len(owner.templates) else (f"former-{number}", NO_TEMPLATE)
        spec = specs.setdefault(id(template), {**template["spec"], "schedulingGates": [{"name": GATE}]})
        yield {
            STAND_IN_FOR: meta["uid"],
            "metadata": {
                "name": f"{meta['name']}:{name}",  # no pod has such a name
                "namespace": meta["namespace"],
                "uid": str(uuid5(UUID(meta["uid"]), f"{key}/{number}")),
                "creationTimestamp": meta.get("creationTimestamp"),
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": [reference],
            },
            "spec": spec,
            "status": {"phase": "Pending"},
        }


def _has_failed(object: Json) -> bool:
    conditions = (object.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Failed" and one.get("status") == "True" for one in conditions)


# -- changes of an owner -----------------------------------------------------------------------------------------------


def admission_request(owner: HeldOwner, runs: Sequence[PodId], nodes: Sequence[str]) -> Request:
    """Return the patch that unsuspends the owner and says which runs its pods are. The uid is its precondition."""
    fits = _write_nodes(nodes)
    marks = {
        ADMITTED_AS: owner.key,
        RUN: _write_runs(runs),
        FITS_ON: fits if len(fits) <= FITS_MAX else "",
        ADMITTED_AT: write_now(),
    }
    return _patch(owner, marks, is_suspended=False)


def suspension_request(owner: HeldOwner) -> Request:
    return _patch(owner, {}, is_suspended=True)


def return_request(owner: HeldOwner) -> Request:
    """Return the patch with which an owner whose pods are gone returns to the queue. Its version is a precondition: a
    late repetition would suspend it again."""
    marks = {**dict.fromkeys(ADMISSION_MARKS, None), ADMISSIONS: str(owner.admissions + 1)}
    return _patch(owner, marks, is_suspended=True, resourceVersion=owner.object["metadata"]["resourceVersion"])


def release_request(owner: HeldOwner) -> Request:
    """Return the patch that unsuspends an owner past all pools, and takes the marks of Peloton off."""
    return _patch(owner, dict.fromkeys((*ADMISSION_MARKS, ADMISSIONS, HELD, PAUSED), None), is_suspended=False)


def _patch(owner: HeldOwner, annotations: dict[str, Any], is_suspended: bool, **preconditions: str) -> Request:
    body = suspend_patch(owner.kind, is_suspended)
    body["metadata"] = {"uid": owner.uid, **preconditions, "annotations": annotations}
    return Request("PATCH", owner.path, orjson.dumps(body), MERGE_PATCH)


def read_condition(owner: HeldOwner) -> tuple[str, str]:
    """Return reason and message of Peloton's condition, if that is False."""
    return read_false(owner.object, ADMITTED)


def condition_request(owner: HeldOwner, reason: str, message: str) -> Request:
    """Return the patch of Peloton's condition."""
    return false_condition_request(owner.path, owner.object, ADMITTED, reason, message)


def _write_runs(runs: Iterable[PodId]) -> str:
    """Return the instances and their runs, those in succession as one: ``FIRST+COUNT/RUN``."""
    parts = []
    for (offset, run), some in groupby(
        enumerate(runs), key=lambda each: (each[1].instance_id - each[0], each[1].run_id)
    ):
        members = [*some]
        parts.append(f"{members[0][0] + offset}+{len(members)}/{run}")
    return ",".join(parts)


def _read_runs(uid: str, text: str) -> Iterator[PodId]:
    """Yield what ``_write_runs`` wrote. Raises ValueError."""
    job_id, total = parse_job_id(uid), 0
    for part in text.split(","):
        span, _, run = part.partition("/")
        first, _, count = span.partition("+")
        total += int(count)
        if total > OWNER_PODS_MAX:
            raise ValueError(f"more than {OWNER_PODS_MAX} runs")
        yield from (PodId(job_id, instance, int(run)) for instance in range(int(first), int(first) + int(count)))


def _write_nodes(nodes: Iterable[str]) -> str:
    return ",".join(f"{node}*{len([*some])}" for node, some in groupby(nodes))


def _read_nodes(text: str) -> Iterator[str]:
    left = OWNER_PODS_MAX
    for part in filter(None, text.split(",")):
        node, _, count = part.partition("*")
        times = min(int(count), left) if count.isdigit() else 0
        left -= times
        yield from (node for _ in range(times))
