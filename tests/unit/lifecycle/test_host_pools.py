"""Host pools that a pod may use, and the resources that a host pool announces for a host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.lifecycle.constraints import host_labels
from peloton.lifecycle.host_pools import (
    announce,
    compute_announced_free,
    find_unserving,
    host_pool_labels,
    infer_workloads,
    scale_request,
    serving,
    workload_of,
)
from peloton.model.host_pool import AT_PAR, FACTOR_PERCENT_MAX, Factors, HostPool, Workload
from peloton.model.job import JobType
from peloton.model.pod import PodShape
from peloton.model.resources import Resources

W = Workload
AMOUNTS = st.builds(Resources, *[st.integers(0, 10**6)] * 4)
FACTORS = st.builds(Factors, *[st.integers(100, FACTOR_PERCENT_MAX)] * 3)


@pytest.mark.parametrize(
    ("job_type", "more", "workload"),
    [
        (JobType.BATCH, {}, W.BATCH),
        (JobType.BATCH, {"preemptible": True}, W.SHARED),
        (JobType.BATCH, {"preemptible": True, "revocable": True}, W.SHARED),
        (JobType.SERVICE, {"preemptible": True}, W.STATELESS),
        (JobType.SERVICE, {"volume_mib": 500}, W.STATEFUL),
        (JobType.SERVICE, {"gpu": 1_000}, W.GPU),
        (JobType.BATCH, {"gpu": 1}, W.GPU),
        (JobType.EXTERNAL, {}, W.BATCH),
        (JobType.EXTERNAL, {"preemptible": True}, W.SHARED),
        (JobType.DAEMON, {"gpu": 1_000}, W.ANY),
    ],
)
def test_the_workload_of_a_pod_follows_from_its_job_and_shape(
    job_type: JobType, more: Mapping[str, int], workload: Workload
) -> None:
    """A pod that requests gpus has the workload for gpus, whatever its job; a daemon fits any host pool."""
    flags: dict[str, Any] = dict(more)
    shape = PodShape(Resources(1_000, gpu_milli=flags.pop("gpu", 0)), **flags)

    assert workload is workload_of(job_type, shape)


def test_the_default_host_pool_serves_what_no_other_does() -> None:
    """The default host pool serves its own workloads and the ones that no other serves; several host pools may serve
    the same.
    """
    pools = [
        HostPool("default", frozenset({W.GPU})),
        HostPool("a", frozenset({W.BATCH, W.GPU})),
        HostPool("b", frozenset({W.BATCH})),
        HostPool("idle"),
    ]

    assert serving(pools) == {
        "default": {W.GPU, W.SHARED, W.STATELESS, W.STATEFUL},
        "a": {W.BATCH, W.GPU},
        "b": {W.BATCH},
        "idle": set(),
    }
    assert {"default": {work for work in W if work}} == serving([HostPool("default")])


def test_names_of_the_original_say_what_is_served() -> None:
    """Names of the original and Peloton's own words select the workloads; any other name selects none."""
    names = ("batch_reserved", "shared", "stateless", "batch", "stateful", "gpu")

    assert [W.BATCH, W.SHARED, W.STATELESS, W.BATCH, W.STATEFUL, W.GPU] == [
        next(iter(infer_workloads(name))) for name in names
    ]
    assert frozenset() == infer_workloads("default") == infer_workloads("canary") == infer_workloads("")


def test_a_host_refuses_what_its_host_pool_does_not_serve() -> None:
    """A host pool is named in a refusal, in both forms of labels; a host without the label is in no host pool, and
    refuses no workload.
    """
    labels = host_pool_labels("services", [W.STATELESS, W.GPU])
    counted = host_labels("h1", labels.items())

    for form in (labels, counted):
        assert [None, "services", None] == [find_unserving(work, form) for work in (W.GPU, W.BATCH, W.ANY)]
    assert "idle" == find_unserving(W.BATCH, host_pool_labels("idle", []))
    assert find_unserving(W.BATCH, {}) is None


def test_sixteen_cpus_of_ten() -> None:
    """Each kind has a factor of its own; gpus have none."""
    factors = Factors(160, 150, 100)

    assert Resources(16_000, 96_000, 500, 4_000) == announce(Resources(10_000, 64_000, 500, 4_000), factors)
    assert Resources(625, 66, 10, 1_000) == scale_request(Resources(1_000, 100, 10, 1_000), factors)
    assert Resources(1) == scale_request(Resources(1), factors), "no cluster accepts a pod that takes nothing"


@given(AMOUNTS, FACTORS, st.lists(st.tuples(*[st.integers(11, 4_000)] * 3), max_size=20))
def test_what_fits_the_announced_resources_fits_the_cluster(
    free: Resources, factors: Factors, pods: list[tuple[int, int, int]]
) -> None:
    """All pods of a launch that fit the announced resources fit the cluster; with factors of 100 each uses its
    request.
    """
    room = announce(free, factors)
    asked = took = Resources()
    for pod in (Resources(*amounts) for amounts in pods):
        if (asked + pod).fits_in(room):
            asked, took = asked + pod, took + scale_request(pod, factors)
        assert pod == scale_request(pod, AT_PAR)

    assert took.fits_in(free)


@given(AMOUNTS, AMOUNTS, AMOUNTS, FACTORS)
def test_offers_are_bounded_by_cluster_and_host_pool(
    free: Resources, capacity: Resources, held: Resources, factors: Factors
) -> None:
    """Free resources are never negative, and with them pods never request more than is announced, unless they have
    already.
    """
    room = compute_announced_free(free, capacity, held, factors)

    assert all(amount >= 0 for amount in room)
    assert room.fits_in(announce(free, factors))
    for amount, most, asked in zip(room, capacity, held, strict=True):
        assert asked + amount <= max(most, asked)
