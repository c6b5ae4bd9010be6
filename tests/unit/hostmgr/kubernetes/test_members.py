"""Pods of held owners, on a scripted apiserver: the owner at the top of their controllers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.suspend import members
from tests.unit.hostmgr.kubernetes.held_world import JOB, UID, a_job, a_pod_of, admit, open_world
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, status
from tests.unit.owner_examples import example, kind_named

JOB_SET = kind_named("JobSet", "v1alpha2")


def a_job_set() -> Json:
    meta = {"name": "set", "namespace": "team", "uid": UID, "resourceVersion": "1"}
    return {**example(JOB_SET), "metadata": a_job()["metadata"] | meta}


def a_child() -> Json:
    """Return a Job of the JobSet."""
    reference = {"apiVersion": JOB_SET.api_version, "kind": "JobSet", "name": "set", "uid": UID, "controller": True}
    meta = {"name": "child", "namespace": "team", "uid": "child", "ownerReferences": [reference]}
    return {"metadata": meta, "spec": {"suspend": False}}


@pytest.mark.parametrize("code", [403, 404])
def test_a_controller_that_could_not_be_read_is_asked_for_again(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """The kind, or the right to read it, comes late: the pods take their places without an event."""
    monkeypatch.setattr(members, "UNREAD_S", 0.0)
    is_there: list[bool] = []
    asked: list[str] = []

    def serve(request: Asked) -> Iterator[bytes]:
        if request.path.endswith("/jobsets/set"):
            yield answer(200, admit(a_job_set(), 5))
        elif request.path.endswith("/jobs/child") and is_there:
            asked.append(request.path)
            yield answer(200, a_child())
        else:
            yield answer(code, status(code, "Refused"))

    with open_world(serve) as world:
        world.owners.change(JOB_SET, admit(a_job_set(), 5), is_deleted=False)
        for number in range(3):
            world.pods.on_change("MODIFIED", a_pod_of(a_child(), number, JOB))
        before = [one["status"]["phase"] for one in world.stand_ins.there.values()]
        is_there.append(True)
        world.owners.run_periodic()
        world.owners.run_periodic()

        assert ["Pending"] * 5 == before
        assert 3 == sum(one["status"]["phase"] == "Running" for one in world.stand_ins.there.values())
        world.pods.on_change("MODIFIED", a_pod_of(a_child(), 3, JOB))
        assert 1 == len(asked)


def test_an_answer_about_a_controller_is_kept_for_a_while() -> None:
    """Pods of a controller that cannot be read do not ask for it each."""
    asked: list[str] = []

    def serve(request: Asked) -> Iterator[bytes]:
        asked.append(request.path.rpartition("/")[2])
        yield answer(403, status(403, "Forbidden"))

    with open_world(serve) as world:
        for number in range(5):
            world.pods.on_change("MODIFIED", a_pod_of(a_child(), number, JOB))
        world.owners.run_periodic()

    assert 1 == asked.count("child")
