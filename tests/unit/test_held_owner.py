"""Keys of owners that are held suspended: they distinguish the stand-ins of one admission from those of others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from services.hostmgr.kubernetes.apiserver.wire import Json
from services.hostmgr.kubernetes.suspend import held_owner
from services.hostmgr.kubernetes.suspend.held_owner import ADMITTED_AS, HeldOwner, Phase, stand_ins_of
from tests.unit.hostmgr.kubernetes.held_world import JOB, a_job, admit
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
