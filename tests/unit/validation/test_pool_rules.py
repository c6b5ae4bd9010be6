"""Pools that accept jobs, and the limits of a pod on the path to the root."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict

from peloton.api.v0.job import job_pb2
from peloton.model.ids import ROOT_POOL_ID, RespoolId
from peloton.model.resources import RESOURCE_KINDS, UNLIMITED, Resources
from peloton.model.respool import PoolResource, PoolSpec
from services.api.pool_rules import PoolBounds, PoolValidator, pool_bounds, pool_fault
from services.api.validation import job_faults


def pool(pool_id: str, parent: str, cpu: int, memory: int = 1000) -> PoolSpec:
    amounts = {"cpu": cpu, "memory": memory, "disk": 1000, "gpu": 0}
    resources = tuple(PoolResource(kind, 0, amounts[kind], 1) for kind in RESOURCE_KINDS)
    return PoolSpec(RespoolId(pool_id), RespoolId(parent), pool_id, resources)


POOLS = [
    pool(ROOT_POOL_ID, "", UNLIMITED, UNLIMITED),
    pool("eng", ROOT_POOL_ID, 8_000, 500),
    pool("maps", "eng", 12_000, 400),
    pool("ads", ROOT_POOL_ID, 4_000),
]

SUBMISSIONS = {
    "leaf": ("maps", ""),
    "no pool": ("", "resource pool ID is null"),
    "root": ("root", "cannot submit jobs to the `root` resource pool"),
    "unknown": ("sales", "resource pool not found"),
    "inner": ("eng", "cannot submit jobs to a non leaf resource pool: /eng has child pools"),
}


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_submission(name: str) -> None:
    """Jobs are accepted in known leaves; every other pool is refused with the original's text."""
    respool_id, text = SUBMISSIONS[name]

    assert text == pool_fault(respool_id, POOLS)


def test_tightest_limit_counts() -> None:
    """Each kind has the tightest limit on the path, the nearest one among equal ones."""
    bounds = pool_bounds("maps", POOLS, None)

    assert (
        PoolBounds((8_000, 400, 1000, 0), ("/eng", "/eng/maps", "/eng/maps", "/eng/maps"), (0,) * 4, "/eng/maps")
        == bounds
    )


def test_root_is_bounded_by_the_cluster() -> None:
    """The root's limit is the cluster's capacity if it is known."""
    bounds = pool_bounds("maps", POOLS, Resources(2_000, 4_096, 10, 0))

    assert PoolBounds((2_000, 400, 10, 0), ("/", "/eng/maps", "/", "/eng/maps"), (0,) * 4, "/eng/maps") == bounds


def test_circle_of_pools_ends() -> None:
    """A cycle of parents does not cause an endless loop."""
    circle = [pool("a", "b", 1), pool("b", "a", 2)]

    assert pool_bounds("a", circle, None).limits[0] == 1


UNPREEMPTIBLE: dict[str, tuple[dict[str, Any], tuple[int, ...], list[str]]] = {
    "inside the reservation": ({}, (1_000, 64, 0, 0), []),
    "beyond the reservation": ({}, (500, 64, 0, 0), ["cpu 1, reservation of resource pool /eng/maps is 0.5"]),
    "preemptible job": ({"sla": {"preemptible": True}}, (0, 0, 0, 0), []),
    "revocable job": ({"sla": {"revocable": True}}, (0, 0, 0, 0), []),
    "preemptible pod of another job": (
        {"defaultConfig": {"preemptionPolicy": {"type": "TYPE_PREEMPTIBLE"}}},
        (0, 0, 0, 0),
        [],
    ),
    "unpreemptible pod of a preemptible job": (
        {"sla": {"preemptible": True}, "defaultConfig": {"preemptionPolicy": {"type": "TYPE_NON_PREEMPTIBLE"}}},
        (1_000, 32, 0, 0),
        ["memory 64, reservation of resource pool /eng/maps is 32"],
    ),
}


@pytest.mark.parametrize("name", UNPREEMPTIBLE)
def test_pods_that_may_not_be_preempted_fit_the_reservation(name: str) -> None:
    """A pod above the reservation is refused with both numbers if not preemptible, since it would never start."""
    fields, reservations, said = UNPREEMPTIBLE[name]
    config = ParseDict(fields, job_pb2.JobConfig(instanceCount=2))
    config.defaultConfig.resource.cpuLimit = 1
    config.defaultConfig.resource.memLimitMb = 64
    bounds = PoolBounds((UNLIMITED,) * 4, ("/",) * 4, reservations, "/eng/maps")

    texts = list(PoolValidator(config, bounds).plain(0, None))

    start, end = "instance 0 is not preemptible and asks ", " (set sla.preemptible, or raise the reservation)"
    assert [f"{start}{text}{end}" for text in said] == texts


def test_licenses_are_bounded_by_the_pools_that_name_them() -> None:
    """The tightest limit above counts, and the reservation; a kind that the pool does not name is refused."""
    named = [
        replace(each, resources=(*each.resources, PoolResource("license/a", 2, limit, 1)))
        for each, limit in zip(POOLS[1:3], (3, 5), strict=True)
    ]
    config = job_pb2.JobConfig(instanceCount=1)
    config.sla.preemptible = True
    config.defaultConfig.resource.extended.update({"license/a": 4, "license/b": 1})

    def faults(preemptible: bool) -> list[str]:
        config.sla.preemptible = preemptible
        return list(PoolValidator(config, pool_bounds("maps", named, None)).plain(0, None))

    known = [
        "instance 0 asks license/a 4, limit of resource pool /eng is 3",
        "instance 0 asks license/b 1, and resource pool /eng/maps has none of it: it has license/a (name the kind in "
        "the resources of the pool and of the pools above it)",
    ]
    assert faults(preemptible=True) == known
    assert faults(preemptible=False) == [
        *known,
        "instance 0 is not preemptible and asks license/a 4, reservation of resource pool /eng/maps is 2 (set "
        "sla.preemptible, or raise the reservation)",
    ]


def test_a_gang_is_bounded() -> None:
    """A gang above the limit of one placement is refused with both numbers."""
    config = job_pb2.JobConfig(instanceCount=20_000)
    config.sla.minimumRunningInstances = 10_001
    config.sla.preemptible = True

    texts = list(PoolValidator(config, PoolBounds((UNLIMITED,) * 4, ("/",) * 4)).gang())

    assert ["the gang of instances 0-10000 has 10001 members, at most 10000 can start together"] == texts


def test_a_volume_is_disk_of_its_pod() -> None:
    """A volume counts as disk of its pod, against the pool's limit and reservation."""
    job = job_pb2.JobConfig(name="db", type=job_pb2.SERVICE, instanceCount=1)
    job.defaultConfig.command.value = "serve"
    job.defaultConfig.resource.diskLimitMb = 10
    job.defaultConfig.volume.containerPath, job.defaultConfig.volume.sizeMB = "data", 500
    bounds = PoolBounds((UNLIMITED, UNLIMITED, 509, UNLIMITED), ("/p",) * 4, (0, 0, 509, 0), "/p")

    assert [
        "instance 0 asks disk 510, limit of resource pool /p is 509",
        "instance 0 is not preemptible and asks disk 510, reservation of resource pool /p is 509 "
        "(set sla.preemptible, or raise the reservation)",
    ] == job_faults(job, bounds).lines()
