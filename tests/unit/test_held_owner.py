"""Owners that are held suspended: keys, which distinguish the stand-ins of their admissions, and stand-ins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.external.gate import node_of_fit
from services.hostmgr.kubernetes.suspend import held_owner
from services.hostmgr.kubernetes.suspend.held_owner import ADMITTED_AS, HeldOwner, Phase, stand_ins_of
from services.hostmgr.kubernetes.suspend.owner_kinds import OwnerKind
from tests.unit.hostmgr.kubernetes.held_world import JOB, NODE, a_job, admit
from tests.unit.owner_examples import example, kind_named

JOB_SET = kind_named("JobSet", "v1alpha2")


def test_each_template_is_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner of 2,000 pods has one template mostly, and each event of it asks for the key."""
    written: list[int] = []

    def dumps(value: Any, option: int | None = None) -> bytes:
        text = orjson.dumps(value, option=option)
        written.append(len(text))
        return text

    job = a_job(2_000)
    job["spec"]["template"]["spec"]["containers"][0]["args"] = ["x" * 1_000]
    owner = HeldOwner(JOB, job)
    monkeypatch.setattr(held_owner, "orjson", SimpleNamespace(dumps=dumps, OPT_SORT_KEYS=orjson.OPT_SORT_KEYS))

    assert owner.key
    assert sum(written) < 200_000


def _replicas(owner: Json) -> list[Json]:
    found: list[Json] = owner["spec"]["replicatedJobs"]
    return found


def test_a_key_changes_with_what_the_pods_request() -> None:
    """The object in which it was read does not matter."""
    first = example(JOB_SET)
    grown, renamed, other = (orjson.loads(orjson.dumps(first)) for _ in range(3))
    _replicas(grown)[0]["replicas"] = 7
    _replicas(renamed)[0]["name"] = "another"
    _replicas(other)[0]["template"]["spec"]["template"]["spec"]["priorityClassName"] = "high"
    for one in (first, grown, renamed, other):
        one["metadata"] |= {"uid": "u", "labels": {}}

    keys = [HeldOwner(JOB_SET, one).key for one in (first, grown, renamed, other)]

    assert 4 == len({*keys})
    assert keys[0] == HeldOwner(JOB_SET, orjson.loads(orjson.dumps(first))).key


def test_an_admission_keeps_its_stand_ins_whatever_key_it_has_now() -> None:
    """Another release may have admitted it: the key in the annotation is only compared with itself."""
    owners = [HeldOwner(JOB, admit(a_job())) for _ in range(2)]
    owners[1].object["spec"]["template"]["spec"]["containers"][0]["image"] = "another"
    ids = [[one["metadata"]["uid"] for one in stand_ins_of(owner)] for owner in owners]

    assert owners[0].key != owners[1].key
    assert owners[0].object["metadata"]["annotations"][ADMITTED_AS] not in {owner.key for owner in owners}
    assert {Phase.RUNS} == {owner.phase for owner in owners}
    assert ids[0] == ids[1] != []


RAY, SPARK = kind_named("RayCluster", "v1"), kind_named("SparkApplication", "v1beta2")
_DYNAMIC = {"enabled": True, "minExecutors": 1, "maxExecutors": 7}


def _cluster_that_scales() -> Json:
    group = {**example(RAY)["spec"]["workerGroupSpecs"][0], "replicas": 2, "minReplicas": 1, "maxReplicas": 6}
    return example(RAY, enableInTreeAutoscaling=True, workerGroupSpecs=[group])


@pytest.mark.parametrize(
    ("kind", "owner", "count", "running"),
    [
        (RAY, _cluster_that_scales(), 7, [3, 4, 5, 6]),
        (SPARK, example(SPARK, dynamicAllocation=_DYNAMIC), 8, [4, 5, 6, 7]),
        (SPARK, example(SPARK, dynamicAllocation={**_DYNAMIC, "initialExecutors": 5}), 8, [6, 7]),
        (SPARK, example(SPARK), 4, []),
    ],
    ids=["workers of Ray", "executors", "more executors at first", "a fixed number"],
)
def test_pods_that_may_never_come_hold_up_no_gang(kind: OwnerKind, owner: Json, count: int, running: list[int]) -> None:
    """A gang whose members do not all run in time is put back: places of pods that scale later run from the start."""
    meta = {**a_job()["metadata"], "name": "one"}
    found = stand_ins_of(HeldOwner(kind, admit({**owner, "metadata": meta}, count)))

    assert count == len(found)
    assert running == [number for number, one in enumerate(found) if one["status"]["phase"] == "Running"]
    assert {NODE} == {node_of_fit(one) for one in found}
