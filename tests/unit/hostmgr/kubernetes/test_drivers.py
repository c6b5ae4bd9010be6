"""Pods that drivers of held owners make, on a scripted apiserver: they take places of stand-ins, and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.external.external_pods import ExternalPods
from services.hostmgr.kubernetes.external.external_specs import POOL
from services.hostmgr.kubernetes.external.gate import ADMITTED_AT, GATE
from services.hostmgr.kubernetes.pods.launches import BY_SUSPEND, HELD
from tests.unit.hostmgr.kubernetes.held_world import UID, HeldWorld, a_job, a_pod_of, admit, open_world
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, api_of, run_scripted, status
from tests.unit.owner_examples import example, kind_named

SPARK = kind_named("SparkApplication", "v1beta2")
COUNT = 4
"""Pods of the application: a driver, and three executors of 2 cpus."""


def an_application() -> Json:
    return {**example(SPARK), "metadata": {**a_job()["metadata"], "name": "app"}}


def the_driver() -> Json:
    return a_pod_of(an_application(), 0, SPARK)


def an_executor(number: int, cpu: str = "2", namespace: str = "team", maker: str = "pod-0", **marks: str) -> Json:
    """Return an executor as its driver makes it, with the gate of the policies."""
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "app-0", "uid": maker, "controller": True}
    meta = {"name": f"exec-{number}", "namespace": namespace, "uid": f"exec-{number}", "labels": {POOL: "eng"}}
    container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return {
        "metadata": {**meta, "annotations": marks, "ownerReferences": [reference]},
        "spec": {"schedulingGates": [{"name": GATE}], "containers": [container]},
        "status": {"phase": "Pending"},
    }


class Cluster:
    """Answers the patches of pods as ``code`` says, and keeps them by the pods' names."""

    def __init__(self) -> None:
        self.code = 200
        self.patches: dict[str, Json] = {}

    def __call__(self, asked: Asked) -> Iterator[bytes]:
        if asked.method == "PATCH" and "/pods/" in asked.path:
            self.patches[asked.path.rpartition("/")[2]] = orjson.loads(asked.body)
            yield answer(self.code, {} if self.code == 200 else status(self.code, "Refused"))
        else:
            yield answer(404, status(404, "NotFound"))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def world(cluster: Cluster) -> Iterator[HeldWorld]:
    """An application that is admitted, and its driver."""
    with open_world(cluster) as world:
        world.owners.change(SPARK, admit(an_application(), COUNT), is_deleted=False)
        world.pods.on_change("MODIFIED", the_driver())
        yield world


def free(pod: Json, node: str = "n1") -> Json:
    """Return the executor as it runs after its gate was removed."""
    meta = {**pod["metadata"], "annotations": {HELD: BY_SUSPEND}}
    return {"metadata": meta, "spec": {**pod["spec"], "schedulingGates": [], "nodeName": node}, "status": RUNNING}


RUNNING = {"phase": "Running"}


def test_executors_take_the_places_of_their_application(world: HeldWorld, cluster: Cluster) -> None:
    """The gate of each is removed once, its stand-in runs, and no more of them than were admitted are taken."""
    made = [an_executor(number) for number in range(5)]

    assert {"exec-0", "exec-1", "exec-2"} == world.owners.take(made)
    assert {"exec-0", "exec-1", "exec-2"} == cluster.patches.keys()
    assert {
        "metadata": {"uid": "exec-0", "annotations": {HELD: BY_SUSPEND}},
        "spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]},
    } == cluster.patches["exec-0"]
    cluster.patches.clear()
    assert {"exec-0", "exec-1", "exec-2"} == world.owners.take(made)
    assert {} == cluster.patches

    for pod in made[:3]:
        world.pods.on_change("MODIFIED", free(pod))
    assert [RUNNING] * COUNT == [one["status"] for one in world.stand_ins.there.values()]
    assert ["team/app-0", "team/exec-0", "team/exec-1", "team/exec-2"] == world.claims
    world.pods.on_change("DELETED", free(made[1]))
    assert "exec-4" in world.owners.take([made[4]])


@pytest.mark.parametrize(
    "pod",
    [
        an_executor(1, cpu="3"),
        an_executor(1, namespace="other"),
        an_executor(1, maker="another"),
        an_executor(1, **{ADMITTED_AT: "2026-01-01T00:00:00Z"}),
        {**an_executor(1), "metadata": {**an_executor(1)["metadata"], "ownerReferences": []}},
    ],
    ids=["larger", "of another namespace", "of an unknown driver", "with marks of the gate", "with labels alone"],
)
def test_a_forged_executor_keeps_its_gate(world: HeldWorld, cluster: Cluster, pod: Json) -> None:
    """No label and no reference gives room that is not admitted."""
    pod["metadata"]["labels"] |= {"spark-role": "executor", "sparkoperator.k8s.io/app-name": "app"}
    assert world.owners.may_take(pod) is bool(pod["metadata"]["ownerReferences"])
    assert (set(), {}) == (world.owners.take([pod]), cluster.patches)


@pytest.mark.parametrize("state", ["waits", "stops", "is gone"])
def test_an_executor_of_an_application_that_is_not_admitted_keeps_its_gate(world: HeldWorld, state: str) -> None:
    """The pods of the last admission may still come while it is suspended."""
    owner = admit(an_application(), COUNT) if state == "stops" else an_application()
    owner["spec"]["suspend"] = True
    world.owners.change(SPARK, owner, is_deleted=state == "is gone")

    assert set() == world.owners.take([an_executor(1)])


@pytest.mark.parametrize(("code", "is_left"), [(403, False), (500, False), (404, True), (409, True)])
def test_a_gate_that_is_not_removed_takes_no_place(
    world: HeldWorld, cluster: Cluster, code: int, is_left: bool
) -> None:
    """A pod that is gone is left to no queue; another one waits in one, and may get its place later."""
    cluster.code = code
    assert ({"exec-0"} if is_left else set()) == world.owners.take([an_executor(0)])
    cluster.code = 200
    made = [an_executor(number) for number in range(1, 5)]

    assert 3 == len(world.owners.take(made))


def test_a_new_host_manager_finds_executors_before_their_driver(cluster: Cluster) -> None:
    """The first list of pods has them in any order."""
    with open_world(cluster) as world:
        world.pods.on_replace([free(an_executor(number)) for number in range(3)] + [the_driver()])
        world.owners.change(SPARK, admit(an_application(), COUNT), is_deleted=False)

        assert [RUNNING] * COUNT == [one["status"] for one in world.stand_ins.there.values()]
        assert set() == world.owners.take([an_executor(4)])


class Takers:
    """Owners that take these pods."""

    def __init__(self, *uids: str) -> None:
        self.uids = {*uids}

    def may_take(self, pod: Json) -> bool:
        return True

    def take(self, pods: list[Json]) -> set[str]:
        return self.uids & {pod["metadata"]["uid"] for pod in pods}


def test_a_pod_that_takes_a_place_is_in_no_other_queue() -> None:
    """The adoption of external pods does not see it."""
    ids = {number: UID[:-1] + str(number) for number in (1, 2)}
    pods_of: Callable[..., Any] = ExternalPods
    with run_scripted(Cluster()) as server, api_of(server) as api:
        pods = pods_of(
            *(api, "k8s", lambda node: "", lambda reports: None, lambda keys: {}, lambda pod: None),
            owners=Takers(ids[1]),
        )
        waiting = [an_executor(number, maker=UID) for number in ids]
        for number, pod in zip(ids, waiting, strict=True):
            pod["metadata"]["uid"] = ids[number]
        pods.add_source().on_replace(waiting)

        assert [ids[2]] == [one.observed.uid for one in pods.list_pods() or ()]
