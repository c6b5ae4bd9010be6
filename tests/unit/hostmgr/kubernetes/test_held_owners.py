"""Owners that are held suspended, on a scripted apiserver."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest

from services.hostmgr.external_port import PodCondition
from services.hostmgr.kubernetes.apiserver import wire
from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.driver import KubernetesDriver
from services.hostmgr.kubernetes.external.external_driver import ExternalPodsDriver
from services.hostmgr.kubernetes.external.external_specs import POOL
from services.hostmgr.kubernetes.pods.launches import BY_SUSPEND, HELD, RUN
from services.hostmgr.kubernetes.settings import KubernetesSettings
from services.hostmgr.kubernetes.suspend import held_owners
from services.hostmgr.kubernetes.suspend.held_owner import ADMITTED_AS, PAUSED
from services.hostmgr.kubernetes.suspend.held_owners import HeldOwners
from services.hostmgr.kubernetes.suspend.owner_kinds import KINDS
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, api_of, run_scripted, status, write_kubeconfig
from tests.unit.hostmgr.mesos.sockets import TIMEOUT_S

JOB = next(kind for kind in KINDS if kind.group == "batch")
UID = "0f0e0d0c-0b0a-4908-8706-050403020100"


class Sink:
    """A receiver of stand-ins, by uid."""

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.losses: list[str] = []

    def on_replace(self, objects: Sequence[Json]) -> None:
        self.there = {one["metadata"]["uid"] for one in objects}

    def on_change(self, kind: str, object: Json) -> None:
        (self.there.discard if kind == "DELETED" else self.there.add)(object["metadata"]["uid"])

    def on_lost(self, why: str) -> None:
        self.losses.append(why)


def a_job(**annotations: str) -> Json:
    meta: Json = {"name": "train", "namespace": "team", "uid": UID, "resourceVersion": "1"}
    meta |= {"labels": {POOL: "eng"}, "annotations": annotations}
    pod = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    return {"metadata": meta, "spec": {"suspend": True, "parallelism": 2, "completions": 2, "template": pod}}


def find_nothing(asked: Asked) -> Iterator[bytes]:
    yield answer(404, status(404, "NotFound"))


def test_a_released_owner_leaves_the_queue() -> None:
    """The end of its mark, as after an uninstallation, ends its admission too."""
    with run_scripted(find_nothing) as server, api_of(server) as api:
        owners, sink = HeldOwners(api, lambda stand_in, pod: None, KINDS), Sink()
        owners.pass_to(sink)
        owners.run_periodic()
        owners.replace_pods([])
        owners.change(JOB, a_job(**{HELD: BY_SUSPEND}), is_deleted=False)
        count = len(sink.there)

        owners.change(JOB, a_job(), is_deleted=False)

    assert (2, set()) == (count, sink.there)


def test_a_pause_that_crosses_the_admission_suspends_the_owner() -> None:
    """The admission does not look at the mark, which came after the owner was last seen."""
    asked: list[Json] = []

    def serve(request: Asked) -> Iterator[bytes]:
        if request.method == "PATCH":
            asked.append(orjson.loads(request.body)["spec"])
        yield from find_nothing(request)

    with run_scripted(serve) as server, api_of(server) as api:
        owners = HeldOwners(api, lambda stand_in, pod: None, KINDS)
        owners.pass_to(Sink())
        owners.replace_pods([])
        for paused in ("false", "true"):
            job = a_job(**{HELD: BY_SUSPEND, PAUSED: paused, ADMITTED_AS: "0.x", RUN: "0+2/1"})
            job["spec"]["suspend"] = False
            owners.change(JOB, job, is_deleted=False)
            owners.run_periodic()

    assert [{"suspend": True}] == asked


def test_what_changed_while_a_watch_was_lost_is_shown_after_it() -> None:
    """An owner that its user pauses meanwhile leaves the queue with the next list, and returns later."""
    held = {HELD: BY_SUSPEND}
    with run_scripted(find_nothing) as server, api_of(server) as api:
        owners, sink = HeldOwners(api, lambda stand_in, pod: None, KINDS), Sink()
        owners.pass_to(sink)
        owners.run_periodic()
        owners.replace_pods([])
        owners.replace(JOB, [a_job(**held)])
        counts = [len(sink.there)]
        for marks in (held | {PAUSED: "true"}, held):
            owners.lose("pods", "the connection was closed")
            owners.change(JOB, a_job(**marks), is_deleted=False)
            owners.replace_pods([])
            counts.append(len(sink.there))

    assert ([2, 0, 2], 2) == (counts, len(sink.losses))


def test_a_kind_that_is_removed_from_the_cluster_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of an operator's CRD ends the watch of its objects; Jobs wait on."""
    monkeypatch.setattr(held_owners, "FIND_S", 0.0)
    is_there = {"jobsets": True}

    def serve(asked: Asked) -> Iterator[bytes]:
        page = {"metadata": {"resourceVersion": "1"}, "items": []}
        if "/jobs?" in asked.path or ("/jobsets?" in asked.path and is_there["jobsets"] and "watch=" not in asked.path):
            yield answer(200, page)
        else:
            yield answer(404, status(404, "NotFound"))

    with run_scripted(serve) as server, api_of(server) as api:
        lives, losses = threading.Event(), threading.Event()
        owners = HeldOwners(api, lambda stand_in, pod: None, [each for each in KINDS if each.plural == "jobsets"])
        owners.pass_to(Turns(lives, losses))
        owners.replace_pods([])
        owners.run_periodic()
        assert lives.wait(TIMEOUT_S)
        is_there["jobsets"] = False
        assert losses.wait(TIMEOUT_S)
        lives.clear()
        try:
            owners.run_periodic()
            assert lives.wait(TIMEOUT_S)
        finally:
            owners.stop()


@pytest.mark.parametrize(("plural", "code"), [("jobs", 503), ("rayjobs", 429)])
def test_an_overloaded_apiserver_makes_no_kind_missing(plural: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new host manager waits until it can list them: the pods of owners that run would count as lost without their
    stand-ins, and their owners be suspended when they are found.
    """
    monkeypatch.setattr(wire, "BACKOFF_S", 0.001)

    def serve(asked: Asked) -> Iterator[bytes]:
        code_now = code if f"/{plural}?" in asked.path else 404
        yield answer(code_now, status(code_now, "TooManyRequests"))

    with run_scripted(serve) as server, api_of(server) as api:
        lives = threading.Event()
        owners = HeldOwners(api, lambda stand_in, pod: None, KINDS)
        owners.pass_to(Turns(lives, threading.Event()))
        owners.replace_pods([])
        with pytest.raises(OSError, match=str(code)):
            owners.run_periodic()
        assert not lives.is_set()


class Turns:
    """A receiver that notes when all is listed, and when a watch is lost."""

    def __init__(self, lives: threading.Event, losses: threading.Event) -> None:
        self._lives, self._losses = lives, losses

    def on_replace(self, objects: Sequence[Json]) -> None:
        self._lives.set()

    def on_change(self, kind: str, object: Json) -> None:
        raise AssertionError(kind)

    def on_lost(self, why: str) -> None:
        self._losses.set()


def test_a_late_hold_that_meets_another_change_is_repeated() -> None:
    """The apiserver refuses it while others write to the owner; it would run outside its pool."""
    owner = {"apiVersion": JOB.api_version, "kind": JOB.kind, "name": "train", "uid": UID, "controller": True}
    pod = a_job()["spec"]["template"]
    pod["metadata"] = {"name": "train-0", "namespace": "team", "uid": "p", "ownerReferences": [owner]}
    pod["metadata"] |= {"labels": {POOL: "eng"}, "annotations": {HELD: BY_SUSPEND}}
    statuses = [409, 200]

    def serve(request: Asked) -> Iterator[bytes]:
        if request.path.endswith("/jobs/train"):
            job = a_job()
            job["metadata"]["creationTimestamp"] = datetime.now(UTC).isoformat()
            yield answer(statuses.pop(0) if request.method == "PATCH" else 200, job)
        else:
            yield answer(404, status(404, "NotFound"))

    with run_scripted(serve) as server, api_of(server) as api:
        owners = HeldOwners(api, lambda stand_in, pod: None, KINDS)
        owners.pass_to(Sink())
        owners.replace_pods([pod])
        for _ in range(3):
            owners.run_periodic()

    assert [] == statuses


def test_an_owner_that_is_not_suspended_keeps_no_other_from_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """A webhook denies the suspension of an owner that has grown; another one, whose pods are gone, returns."""
    monkeypatch.setattr(held_owners, "QUIET_S", 0.0)
    asked: list[str] = []

    def serve(request: Asked) -> Iterator[bytes]:
        if request.method == "PATCH":
            asked.append(request.path.rpartition("/")[2])
            yield answer(403, status(403, "Forbidden", "a webhook denied the request"))
        else:
            yield from find_nothing(request)

    with run_scripted(serve) as server, api_of(server) as api:
        owners = HeldOwners(api, lambda stand_in, pod: None, KINDS)
        owners.pass_to(Sink())
        owners.run_periodic()
        owners.replace_pods([])
        for name, is_suspended in (("grown", False), ("stopped", True)):
            job = a_job(**{HELD: BY_SUSPEND, ADMITTED_AS: "0.x", RUN: "0+1/1"})
            job["metadata"] |= {"name": name, "uid": str(uuid4())}
            job["spec"]["suspend"] = is_suspended
            job["status"] = {"conditions": [{"type": "Suspended", "status": "True"}]}
            owners.change(JOB, job, is_deleted=False)
        with pytest.raises(OSError, match="a webhook denied"):
            owners.run_periodic()

    assert ["grown", "stopped"] == asked


def test_an_owner_whose_change_is_refused_stops_no_eviction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chores of external pods follow those of owners, whatever becomes of these."""

    def refuse(self: Any) -> None:
        raise OSError("admission webhook denied the request")

    monkeypatch.setattr(KubernetesDriver, "run_periodic", lambda self: None)
    monkeypatch.setattr(HeldOwners, "run_periodic", refuse)
    kubeconfig = write_kubeconfig(tmp_path, {"server": "http://127.0.0.1:1"})
    driver = ExternalPodsDriver(KubernetesSettings(str(kubeconfig)), lambda instances: {}, lambda runs: {})
    chores: list[str] = []
    monkeypatch.setattr(driver.external, "evict_again", lambda: chores.append("evictions"))
    monkeypatch.setattr(driver.external.put_back_jobs, "resume_due", lambda: chores.append("Jobs"))

    with pytest.raises(OSError, match="webhook denied"):
        driver.run_periodic()

    assert ["evictions", "Jobs"] == chores


def test_a_refused_condition_is_an_event_and_no_failure() -> None:
    """A kind may reject a status of its waiting objects: the reason is shown once, by the event."""
    asked: list[str] = []

    def serve(request: Asked) -> Iterator[bytes]:
        asked.append(f"{request.method} {request.path.rpartition('/')[2]}")
        if request.path.endswith("/status"):
            yield answer(422, status(422, "Invalid", "status.driverInfo: Required value"))
        elif request.path.endswith("/events"):
            yield answer(201, {})
        else:
            yield answer(404, status(404, "NotFound"))

    with run_scripted(serve) as server, api_of(server) as api:
        owners, stand_ins = HeldOwners(api, lambda stand_in, pod: None, KINDS), dict[str, Json]()
        sink = Sink()
        sink.on_change = lambda kind, object: stand_ins.update({object["metadata"]["uid"]: object})  # type: ignore[method-assign]
        owners.pass_to(sink)
        owners.run_periodic()
        owners.replace_pods([])
        owners.change(JOB, a_job(**{HELD: BY_SUSPEND}), is_deleted=False)
        one = next(iter(stand_ins.values()))
        for number in range(3):
            owners.show([(one, PodCondition(one["metadata"]["uid"], "PelotonQueued", f"{number} jobs are before it"))])
        owners.run_periodic()

    assert (3, 1) == (asked.count("PATCH status"), asked.count("POST events"))
