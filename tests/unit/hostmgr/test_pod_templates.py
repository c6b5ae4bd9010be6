"""Templates are made once for each configuration, and limited by their size in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from peloton.api import convert
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.ids import new_job_id
from peloton.model.secret import HeldSecret, Secret
from services.hostmgr import pod_templates
from services.hostmgr.pod_templates import TemplateCache

JOB = convert.new_job_record(new_job_id(), job_pb2.JobConfig(name="train", instanceCount=9), 1)


class Configs:
    """Instances 0 to 3 share a configuration, the others have one each."""

    def __init__(self) -> None:
        self.default = task_pb2.TaskConfig(name="default")
        self.sla = job_pb2.SlaConfig()
        self.revision = 0
        self.reveal_count = 0

    def instances_by_version(self, _: str, instance_ids: Sequence[int]) -> dict[int, Sequence[int]]:
        return {1: instance_ids}

    def task_configs(self, _: str, version: int, instance_ids: Sequence[int]) -> dict[int, task_pb2.TaskConfig]:
        return {i: self.default if i < 4 else task_pb2.TaskConfig(name=f"own {i}") for i in instance_ids}

    def job_config(self, _: str, version: int) -> job_pb2.JobConfig:
        return job_pb2.JobConfig(sla=self.sla)

    def specs(self) -> list[Any]:
        return []

    def rows(self, _: str, wanted: Sequence[Secret]) -> list[HeldSecret]:
        return [HeldSecret(one.secret_id, self.revision, "", b"x" * 100) for one in wanted]

    def reveal(self, _: str, wanted: Sequence[Secret], held: Sequence[HeldSecret]) -> tuple[Secret, ...]:
        self.reveal_count += 1
        return tuple(replace(one, data=row.data, revision=row.revision) for one, row in zip(wanted, held, strict=True))


@pytest.fixture
def configs() -> Configs:
    return Configs()


@pytest.fixture
def cache(configs: Configs) -> TemplateCache:
    records: Any = configs
    return TemplateCache(records, records, records, records)


def test_instances_alike_share_a_template(cache: TemplateCache) -> None:
    """Equal instances share a template, even over several launches."""
    first, second = cache.of_job(JOB, [0, 1, 4]), cache.of_job(JOB, [2, 4, 5])

    assert first[0] is first[1]
    assert first[0] is second[2]
    assert first[4] is second[4]
    assert first[4] is not second[5]


def test_another_job_with_the_same_id_has_its_own(cache: TemplateCache, configs: Configs) -> None:
    """The id of a deleted job is used again: a template has the values of the new job."""
    before = cache.of_job(JOB, [0])[0]

    configs.sla.revocable = True
    again = job_pb2.JobConfig(name="train", instanceCount=9, sla=configs.sla)
    after = cache.of_job(convert.new_job_record(JOB.job_id, again, 2), [0])[0]

    assert (False, True) == (before.revocable, after.revocable)


def test_a_pod_is_revocable_as_its_own_version_says(cache: TemplateCache, configs: Configs) -> None:
    """The pod was queued and placed like that, even if a later version of the job says otherwise."""
    config = job_pb2.JobConfig(name="train", instanceCount=10, sla=job_pb2.SlaConfig(revocable=True))
    grown = replace(convert.new_job_record(JOB.job_id, config, 1), config_version=2)

    assert not cache.of_job(grown, [0])[0].revocable


def test_heavy_configurations_push_out_the_oldest(cache: TemplateCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Templates are kept up to the size limit, and an evicted one is made again."""
    weight = task_pb2.TaskConfig(name="own 4").ByteSize()
    monkeypatch.setattr(pod_templates, "TEMPLATES_BYTES_MAX", 2 * weight)
    before = cache.of_job(JOB, [4, 5, 6])

    after = {i: cache.of_job(JOB, [i])[i] for i in (6, 5, 4)}

    assert [i for i in (4, 5, 6) if before[i] is after[i]] == [5, 6]


def test_new_data_of_a_secret_makes_a_new_template(cache: TemplateCache, configs: Configs) -> None:
    """The data of the secret was replaced in place, under the same configuration."""
    configs.default.secrets.add(path="/run/key").id.value = "a"
    before = cache.of_job(JOB, [0])[0]
    same = cache.of_job(JOB, [0])[0]
    configs.revision = 1

    after = cache.of_job(JOB, [0])[0]

    assert (True, 2, [0], [1]) == (
        before is same,
        configs.reveal_count,
        [one.revision for one in before.secrets],
        [one.revision for one in after.secrets],
    )
