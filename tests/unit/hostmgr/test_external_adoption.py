"""Conditions that the intake writes to waiting pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.model.external import ObservedPod, Slot
from peloton.model.ids import JobId, PodId, RespoolId
from peloton.model.pod import PodState
from services.hostmgr import external_adoption
from services.hostmgr.external_adoption import GATHERING, MOMENT_S, NO_NODE, QUEUED, describe
from services.hostmgr.external_port import FoundPod, PodCondition
from services.storage import migrate
from services.storage.storage import Storage

UID = "0f0e0d0c-0b0a-4908-8706-050403020100"
JOB = JobId("5d3a3f0e-9b1c-4e0c-8a6e-2f8f64a4d1aa")
CAME_S = 1_000.0


class OnePod:
    """A cluster that records the conditions of its one pod."""

    def __init__(self) -> None:
        self.conditions: list[PodCondition] = []

    def watch(self, changed: Callable[[], None]) -> None:
        """Watch nothing, since the pod does not change."""

    def list_pods(self) -> Sequence[FoundPod]:
        config = job_pb2.JobConfig(name="train", type=job_pb2.EXTERNAL)
        return [FoundPod(ObservedPod(UID, JOB, True), "team/train-1", config, "/dev", since_s=CAME_S)]

    def set_conditions(self, conditions: Sequence[PodCondition]) -> None:
        self.conditions += conditions

    def launch_ahead(self, runs: Sequence[PodId]) -> dict[PodId, str]:
        raise AssertionError("the pod has no gate")

    def blocked_evictions(self) -> dict[str, str]:
        return {}


class NoLifecycles:
    def jobs_changed(self, job_ids: Any, cause: str = "") -> None:
        """Ignore the jobs, since no call waits for them."""

    pods_changed = jobs_changed


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    url = f"sqlite:///{tmp_path}/peloton.db"
    migrate.upgrade(url)
    storage = Storage(url)
    pool = respool_pb2.ResourcePoolConfig(name="dev")
    pool.parent.value = "root"
    storage.pools.put(RespoolId("pool-of-dev"), pool)
    yield storage
    storage.close()


def test_a_pod_shows_why_it_waits_when_it_has_waited_for_a_moment(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most pods are bound before: a condition and an event would cost more than their binding."""
    monkeypatch.setattr(external_adoption, "EXPLAIN_S", 0.5)
    cluster, answer = OnePod(), explain_pb2.JobWhyResponse(poolPath="/dev")
    parts = storage.external_pods, storage.jobs, storage.pools, NoLifecycles(), lambda job_id: answer
    adoption = external_adoption.ExternalAdoption("k8s", cluster, lambda: True, *parts)
    adoption.round(CAME_S)
    adoption.round(CAME_S + MOMENT_S / 2)
    assert [] == cluster.conditions
    adoption.round(CAME_S + MOMENT_S)
    assert [(UID, QUEUED)] == [(one.uid, one.reason) for one in cluster.conditions]


@pytest.mark.parametrize(
    ("state", "rule", "reason"),
    [
        (PodState.PENDING, explain_pb2.RULE_POOL_LIMIT, QUEUED),
        (PodState.READY, explain_pb2.RULE_NO_HOST, NO_NODE),
        (PodState.INITIALIZED, explain_pb2.RULE_GANG_GATHERS, GATHERING),
    ],
)
def test_a_pod_is_queued_only_while_it_waits_for_its_pool(state: PodState, rule: Any, reason: str) -> None:
    """The reason says what the pod waits for: its pool, a node, or the rest of its gang."""
    answer = explain_pb2.JobWhyResponse(poolPath="/dev")
    answer.reasons.add(rule=rule, text="3 of 4")
    found, message = describe(Slot(UID, JOB, 0, state), answer)
    assert (reason, True) == (found, "pool /dev" in message)
