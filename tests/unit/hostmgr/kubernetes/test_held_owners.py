"""Owners that are held suspended, on a scripted apiserver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.driver import KubernetesDriver
from services.hostmgr.kubernetes.external.external_driver import ExternalPodsDriver
from services.hostmgr.kubernetes.external.external_specs import POOL
from services.hostmgr.kubernetes.pods.launches import BY_SUSPEND, HELD
from services.hostmgr.kubernetes.settings import KubernetesSettings
from services.hostmgr.kubernetes.suspend.held_owners import HeldOwners
from services.hostmgr.kubernetes.suspend.owner_kinds import KINDS
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, api_of, run_scripted, status, write_kubeconfig

JOB = next(kind for kind in KINDS if kind.group == "batch")
UID = "0f0e0d0c-0b0a-4908-8706-050403020100"


class Sink:
    """A receiver of stand-ins, by uid."""

    def __init__(self) -> None:
        self.there: set[str] = set()

    def on_replace(self, objects: Sequence[Json]) -> None:
        self.there = {one["metadata"]["uid"] for one in objects}

    def on_change(self, kind: str, object: Json) -> None:
        (self.there.discard if kind == "DELETED" else self.there.add)(object["metadata"]["uid"])

    def on_lost(self, why: str) -> None:
        raise AssertionError(why)


def a_job(**annotations: str) -> Json:
    meta = {"name": "train", "namespace": "team", "uid": UID, "labels": {POOL: "eng"}, "annotations": annotations}
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


def test_an_owner_whose_change_is_refused_stops_no_eviction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chores of external pods follow those of owners, whatever becomes of these."""

    def refuse(self: Any) -> None:
        raise OSError("admission webhook denied the request")

    monkeypatch.setattr(KubernetesDriver, "run_periodic", lambda self: None)
    monkeypatch.setattr(HeldOwners, "run_periodic", refuse)
    kubeconfig = write_kubeconfig(tmp_path, {"server": "http://127.0.0.1:1"})
    driver = ExternalPodsDriver(KubernetesSettings(str(kubeconfig)), lambda instances: {})
    chores: list[str] = []
    monkeypatch.setattr(driver.external, "evict_again", lambda: chores.append("evictions"))
    monkeypatch.setattr(driver.external, "resume_jobs", lambda: chores.append("Jobs"))

    with pytest.raises(OSError, match="webhook denied"):
        driver.run_periodic()

    assert ["evictions", "Jobs"] == chores
