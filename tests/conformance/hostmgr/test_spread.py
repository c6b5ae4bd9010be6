"""Spread over racks of two clusters: two host managers on one database, each called over gRPC."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from peloton.api.v0.job import job_pb2
from peloton.errors import Unavailable
from peloton.lifecycle.reason_text import placement_text
from peloton.model.host import HostLease, PlacementBatch
from peloton.model.ids import Hostname, JobId
from peloton.model.resources import Resources
from peloton.scheduling.placement import FirstFitPlacer
from services.hostmgr.client import HostManagerClient
from services.hostmgr.federation import HostManagers
from services.storage import migrate
from tests.conformance.hostmgr.test_host_pools import Manager
from tests.conformance.hostmgr.world import wait
from tests.conformance.storage import builders
from tests.doubles.hostmgr.cluster import MemoryCluster, MemoryHost

ALL = slice(None)
RACKS = {"east": {"e0": "a", "e1": "a", "e2": "b"}, "west": {"w0": "c", "w1": "c", "w2": ""}}


class Both:
    """The clusters east, with racks a and b, and west, with rack c and a host without a rack."""

    def __init__(self, url: str) -> None:
        self.managers = {name: Manager(url, name, cluster(name)) for name in RACKS}
        self.storage = self.managers["east"].storage
        self.before_lease: Callable[[str], object] = lambda _: None
        """Called between the count of pods and the lease."""
        unused: Any = None
        addresses = dict.fromkeys(RACKS, "led")
        self.all = HostManagers(lambda: addresses, self._client, unused, unused)
        for name, manager in self.managers.items():
            wait(lambda manager=manager: manager.core.cache.are_hosts_known, f"hosts of {name}")

    def _client(self, name: str) -> HostManagerClient:
        client = HostManagerClient(lambda: self.managers[name].channel)
        lease = client.acquire_hosts

        def acquire_hosts(*given: Any) -> HostLease:
            self.before_lease(name)
            return lease(*given)

        client.acquire_hosts = acquire_hosts  # type: ignore[method-assign, assignment]
        return client

    def close(self) -> None:
        for manager in self.managers.values():
            manager.close()

    def job(self, pods: int, **rule: Any) -> JobId:
        """Create a job whose pods are READY."""
        config = builders.a_config(pods)
        config.defaultConfig.command.value = "sleep"
        config.defaultConfig.resource.cpuLimit = 1
        config.placement.spread.append(job_pb2.Spread(label="rack", **rule))
        job_id = builders.create(self.storage, config)
        self.storage.pods.create(job_id, lambda _: None)
        self.storage.jobs.settle(job_id, builders.NOW)
        builders.admit(self.storage, job_id)
        return job_id

    def place_in(
        self, cluster: str, job_id: JobId, limit: int = 1_000, part: slice = ALL, for_gang: bool = False
    ) -> PlacementBatch:
        """Place and launch the pods that fit in the cluster. ``part``: a part of the READY pods."""
        gangs = self.storage.pods.ready_gangs(job_id, limit)[part]
        wanted = list(Counter(gang.shape for gang in gangs).items())
        lease = self.all.acquire_hosts(job_id, wanted, for_gang, cluster=cluster)
        batch = FirstFitPlacer().place(job_id, gangs, lease)
        launched = self.all.launch(job_id, lease.lease_id, batch.placements).launched_count
        assert batch.placed_count == launched
        return batch

    def by_rack(self, job_id: JobId) -> dict[str, int]:
        rack_of = {host: rack for racks in RACKS.values() for host, rack in racks.items()}
        pods = self.storage.pods.page(job_id)
        return dict(Counter(rack_of[pod.host] for pod in pods if pod.host))


def cluster(name: str) -> MemoryCluster:
    size = Resources.of(10, 10_000, 10_000)
    return MemoryCluster(
        MemoryHost(Hostname(host), size, labels={"rack": rack} if rack else {}) for host, rack in RACKS[name].items()
    )


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    url = f"sqlite:///{tmp_path / 'storage.db'}"
    migrate.upgrade(url)
    found = Both(url)
    yield found
    found.close()


def test_the_bound_holds_over_all_clusters(both: Both) -> None:
    """East stops when its racks are one pod above west's, and continues when west has caught up."""
    job_id = both.job(8)

    batch = both.place_in("east", job_id)
    assert {"a": 1, "b": 1} == both.by_rack(job_id)
    assert "3 hosts: at most 1 pod of the job in a rack: rack=c has 0, max skew 1" in placement_text(batch.why)

    batch = both.place_in("west", job_id)
    assert {"a": 1, "b": 1, "c": 2} == both.by_rack(job_id)
    assert "1 host: no label rack with a domain that could take the pod" in placement_text(batch.why)

    for name in ("east", "west"):
        both.place_in(name, job_id)
    assert {"a": 3, "b": 3, "c": 2} == both.by_rack(job_id)


def test_one_pod_at_a_time(both: Both) -> None:
    """Pods of earlier placements count, whichever cluster placed them."""
    job_id = both.job(9, maxSkew=2)
    seen = []
    for turn in count():
        both.place_in(("west", "east")[turn % 2], job_id, 1)
        racks = both.by_rack(job_id)
        seen.append(max(racks.values()) - min(racks.get(rack, 0) for rack in "abc"))
        if sum(racks.values()) == 9:
            break
    assert max(seen) <= 2
    assert turn < 20


def test_a_soft_bound_uses_what_there_is(both: Both) -> None:
    """All pods go to one cluster, as evenly as its racks have free resources."""
    job_id = both.job(12, soft=True)
    both.place_in("west", job_id)
    assert {"c": 12} == both.by_rack(job_id)


def test_parts_of_a_job_take_turns_in_two_clusters(both: Both) -> None:
    """The other pods of a job are not placed in one cluster while its gang is placed in the other, until the lease is
    returned."""
    job_id = both.job(4)
    wanted = [(both.storage.pods.ready_gangs(job_id, 1)[0].shape, 2)]
    lease = both.all.acquire_hosts(job_id, wanted, True, cluster="east")

    with pytest.raises(Unavailable, match=f"other pods of job {job_id} are being placed"):
        both.all.acquire_hosts(job_id, wanted, False, cluster="west")
    again = both.all.acquire_hosts(job_id, wanted, True, cluster="west")  # in its place: it asks again once
    both.all.release(again.lease_id)
    both.all.release(lease.lease_id)
    assert both.all.acquire_hosts(job_id, wanted, False, cluster="west").hosts


def test_parts_of_a_job_that_begin_at_once_in_two_clusters_keep_the_bound(both: Both) -> None:
    """Each cluster has counted the other before either has its lease. At most one of them continues."""
    job_id = both.job(6)
    counted = Barrier(2)
    both.before_lease = lambda _: counted.wait(30)

    def place(cluster: str, part: slice, for_gang: bool) -> str:
        try:
            both.place_in(cluster, job_id, part=part, for_gang=for_gang)
        except Unavailable as error:
            return error.message
        return ""

    with ThreadPoolExecutor(2) as pool:
        east = pool.submit(place, "east", slice(0, 3), True)
        west = pool.submit(place, "west", slice(3, 6), False)
        refusals = {east.result(), west.result()} - {""}
    assert refusals
    assert all(f"other pods of job {job_id}" in refusal for refusal in refusals)

    both.before_lease = lambda _: None
    for cluster in ("east", "west", "east"):
        both.place_in(cluster, job_id)
        racks = both.by_rack(job_id)
        assert max(racks.values()) <= min(racks.get(rack, 0) for rack in "abc") + 1
    assert {"a": 2, "b": 2, "c": 2} == both.by_rack(job_id)
