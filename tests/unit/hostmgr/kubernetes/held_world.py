"""Held owners on a scripted apiserver, with the view of the cluster in which their stand-ins claim room."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import orjson

from services.hostmgr.kubernetes.apiserver.wire import ApiServer, Json
from services.hostmgr.kubernetes.cluster_view import ClusterView
from services.hostmgr.kubernetes.external.external_specs import POOL
from services.hostmgr.kubernetes.external.gate import ADMITTED_AT, FITS_ON, node_of_fit
from services.hostmgr.kubernetes.pods.launches import BY_SUSPEND, HELD, RUN
from services.hostmgr.kubernetes.pods.statuses import is_over
from services.hostmgr.kubernetes.settings import IN_CLUSTER, KubernetesSettings
from services.hostmgr.kubernetes.suspend.held_owner import ADMITTED_AS
from services.hostmgr.kubernetes.suspend.held_owners import HeldOwners, PodsOfHeld
from services.hostmgr.kubernetes.suspend.owner_kinds import KINDS, OwnerKind
from tests.unit.hostmgr.kubernetes.scripted import Answerer, Asked, answer, api_of, run_scripted, status

JOB = next(kind for kind in KINDS if kind.group == "batch")
UID = "0f0e0d0c-0b0a-4908-8706-050403020100"
NODE = "n1"


class Shown:
    """A receiver of pods, which keeps them by uid."""

    def __init__(self) -> None:
        self.there: dict[str, Json] = {}

    def on_replace(self, objects: Sequence[Json]) -> None:
        self.there = {one["metadata"]["uid"]: one for one in objects}

    def on_change(self, kind: str, object: Json) -> None:
        uid = object["metadata"]["uid"]
        if kind == "DELETED":
            self.there.pop(uid, None)
        else:
            self.there[uid] = object

    def on_lost(self, why: str) -> None:
        raise AssertionError(why)


class _StandIns(Shown):
    """Claims room for admitted stand-ins without a node, and gives it back, as the receiver of external pods does."""

    def __init__(self, view: ClusterView) -> None:
        super().__init__()
        self._view = view

    def on_change(self, kind: str, object: Json) -> None:
        super().on_change(kind, object)
        if kind == "DELETED" or is_over(object):
            self._view.external_pod_gone(object)
        elif node := node_of_fit(object):
            self._view.external_pod_fits(object, node)


class HeldWorld:
    """``bound`` is the watch of pods on nodes, ``pods`` that of pods with a pool: either may be late."""

    def __init__(self, api: ApiServer, kinds: Sequence[OwnerKind]) -> None:
        self.bound = ClusterView(KubernetesSettings(IN_CLUSTER), lambda reports: None, lambda: None)
        self.owners = HeldOwners(api, self.bound.stand_in_placed, kinds, self.bound.drop_unseen_pod)
        self.stand_ins = _StandIns(self.bound)
        self.others = Shown()
        self.owners.pass_to(self.stand_ins)
        self.pods = PodsOfHeld(self.owners, self.others)
        self.owners.run_periodic()
        self.pods.on_replace([])

    @property
    def claims(self) -> list[str]:
        """Return the pods and stand-ins that have room on the node."""
        return sorted(self.bound.ledger.pods_on(NODE))


@contextmanager
def open_world(serve: Answerer | None = None, kinds: Sequence[OwnerKind] = KINDS) -> Iterator[HeldWorld]:
    with run_scripted(serve or find_nothing) as server, api_of(server) as api:
        yield HeldWorld(api, kinds)


def find_nothing(asked: Asked) -> Iterator[bytes]:
    yield answer(404, status(404, "NotFound"))


def a_job(count: int = 1, uid: str = UID, name: str = "train", **annotations: str) -> Json:
    """Return a held Job of ``count`` pods, which waits."""
    meta: Json = {"name": name, "namespace": "team", "uid": uid, "resourceVersion": "1", "labels": {POOL: "eng"}}
    meta["annotations"] = {HELD: BY_SUSPEND, **annotations}
    pod = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    return {"metadata": meta, "spec": {"suspend": True, "parallelism": count, "completions": count, "template": pod}}


def admit(owner: Json, count: int = 1) -> Json:
    """Return the owner as it is after its admission to the node."""
    copy: Json = orjson.loads(orjson.dumps(owner))
    copy["spec"]["suspend"] = False
    marks = {ADMITTED_AS: "0.abc", RUN: f"0+{count}/1", FITS_ON: f"{NODE}*{count}", ADMITTED_AT: "2026-01-01T00:00:00Z"}
    copy["metadata"]["annotations"] |= marks
    return copy


def a_pod_of(owner: Json, number: int, kind: OwnerKind = JOB, node: str = NODE, phase: str = "Running") -> Json:
    """Return a pod that the controller of the owner has made."""
    meta = owner["metadata"]
    reference = {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta["name"], "uid": meta["uid"]}
    return {
        "metadata": {
            "name": f"{meta['name']}-{number}",
            "namespace": meta["namespace"],
            "uid": f"pod-{number}",
            "labels": {POOL: "eng"},
            "annotations": {HELD: BY_SUSPEND},
            "ownerReferences": [{**reference, "controller": True}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "busybox"}]},
        "status": {"phase": phase},
    }
