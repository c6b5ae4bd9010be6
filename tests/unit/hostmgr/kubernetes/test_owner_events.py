"""Events at the owners of evicted pods, on a scripted apiserver."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import orjson

from peloton.model.ids import JobId, PodId
from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.external.external_pods import ExternalPods
from services.hostmgr.kubernetes.external.external_requests import MESSAGE_MAX, RUN
from services.hostmgr.kubernetes.external.external_specs import Owner
from services.hostmgr.kubernetes.external.owner_events import Ending, describe_evictions
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, api_of, run_scripted

JOB = JobId("5d3a3f0e-9b1c-4e0c-8a6e-2f8f64a4d1aa")
TRAIN = Owner("Job", "team", "train", str(JOB), "batch/v1")
CAUSE = "preempted for job x of /q, which wants cpu 2: /p holds 8 and is entitled to 5"


def a_member(number: int) -> Json:
    """Return a running pod of the Job."""
    owner = {"kind": "Job", "name": "train", "apiVersion": "batch/v1", "controller": True, "uid": str(JOB)}
    meta = {
        "name": f"train-{number}",
        "namespace": "team",
        "uid": f"{number:08}-0b0a-4908-8706-050403020100",
        "annotations": {RUN: str(PodId(JOB, number, 1))},
        "ownerReferences": [owner],
    }
    return {"metadata": meta, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}}


def read(endings: list[Ending]) -> list[Json]:
    return [orjson.loads(one.body) for one in describe_evictions(endings)]


def test_an_owner_has_one_event_for_all_of_its_pods() -> None:
    """The event names some pods, their number, and each cause once; another owner has its own."""
    endings = [Ending(TRAIN, a_member(number), CAUSE) for number in range(300)]
    first, second = read([*endings, Ending(Owner("Pod", "team", "web", "u"), a_member(7), "maintenance of host h")])
    assert TRAIN.uid == first["involvedObject"]["uid"]
    assert ("batch/v1", "Job", "Warning", "PelotonEvicted") == (
        first["involvedObject"]["apiVersion"], first["involvedObject"]["kind"], first["type"], first["reason"]
    )  # fmt: skip
    named = "train-0, train-1, train-10, train-100, train-101 and 295 more"
    assert f"evicts 300 pods ({named}): {CAUSE}" == first["message"]
    assert "evicts pod train-7: maintenance of host h" == second["message"]


def test_the_message_of_an_event_is_bounded() -> None:
    """Three causes are named, and no text is longer than an event allows."""
    [event] = read([Ending(TRAIN, a_member(number), f"cause {number} " * 100) for number in range(9)])
    assert MESSAGE_MAX == len(event["message"])


def test_an_eviction_is_shown_once_at_its_owner() -> None:
    """Repetitions, and ends for other reasons, show nothing; the event is written by the periodic tasks."""
    events: list[Json] = []
    asked: list[Collection[PodId]] = []

    def serve(one: Asked) -> Iterator[bytes]:
        if one.path.endswith("/events"):
            events.append(orjson.loads(one.body))
        yield answer(201, {})

    def causes_of(runs: Collection[PodId]) -> dict[PodId, str]:
        asked.append(runs)
        return {run: CAUSE for run in runs if run.instance_id < 2}

    with run_scripted(serve) as server, api_of(server) as api:
        pods = ExternalPods(api, "k8s", str, lambda _: None, lambda _: {}, lambda _: None, causes_of=causes_of)
        pods.add_source().on_replace([a_member(number) for number in range(3)])
        pods.list_pods()
        for _ in range(2):
            pods.evict([str(PodId(JOB, number, 1)) for number in range(3)])
        pods.write_events()
    assert [3, 1] == [len(runs) for runs in asked]
    [event] = events
    assert ("train", f"evicts 2 pods (train-0, train-1): {CAUSE}") == (
        event["involvedObject"]["name"],
        event["message"],
    )
