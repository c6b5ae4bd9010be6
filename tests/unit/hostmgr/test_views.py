"""A cluster as a whole: its sums, its problems, and the map of its hosts."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

import grpc
import pytest

from peloton.api.private import hostmgr_pb2 as private
from peloton.api.v0.host import host_pb2
from peloton.api.v0.overview import overview_pb2 as pb
from peloton.errors import Unavailable
from peloton.model.advice import HostMark, Mark, ServiceMark
from peloton.model.host import HostState
from peloton.model.host_pool import DEFAULT_HOST_POOL, HostInPool, HostPool, HostPools
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.maintenance import Blocker, DrainProgress, HostMaintenance
from peloton.model.resources import Resources
from peloton.model.times import NS_PER_S
from peloton.scheduling.columns import UNKNOWN, HostColumns
from peloton.scheduling.qos import Use
from services.hostmgr import pod_uses
from services.hostmgr.driver import Capabilities, RegisteredHost, UseSample
from services.hostmgr.hosts.host_cache import HostCache
from services.hostmgr.views import AVOIDED, MAINTAINED, ClusterViews, ViewsServicer
from tests.unit.hostmgr.test_maintenance import make_maintenance

CAPACITY = Resources.of(8, 4_096, 40_000)
JOB = JobId("91b1b8e5-2ba8-11e7-bc23-0242ac11000d")
HALF = Resources.of(4, 1_024, 0)


@dataclass
class Driver:
    capabilities = Capabilities("mesos")
    is_connected: bool = True
    unready: str = ""
    cpu_s: float = 0.0

    def samples_of(self, hostname: Hostname) -> list[UseSample]:
        self.cpu_s += 1.0
        return [UseSample(hostname, PodId(JOB, 0, 1), self.cpu_s, 4 * self.cpu_s, 64)]


class Advisor:
    def __init__(self, *marks: HostMark) -> None:
        self.marks = marks

    def host_marks(self, wanted: Any = tuple(Mark)) -> list[HostMark]:
        return [one for one in self.marks if one.mark in wanted]

    def service_marks(self, wanted: Any) -> list[ServiceMark]:
        return []


def host(name: str, **facts: Any) -> RegisteredHost:
    found = RegisteredHost(f"{name}-S", Hostname(name), "", CAPACITY, Resources.of(2), {}, held=HALF)
    return replace(found, **facts)


def cache(*hosts: RegisteredHost) -> HostCache:
    found = HostCache(30.0)
    found.set_hosts(hosts)
    return found


class Story:
    """Hosts b and a, of which a is measured and red."""

    def __init__(self, *hosts: RegisteredHost) -> None:
        self.cache = cache(*(hosts or (host("b"), host("a", revocable_held=Resources.of(1)))))
        self.driver = Driver()
        self.rows: list[HostMaintenance] | None = []  # rows of draining hosts; None: storage does not answer
        self.uses = {Hostname("a"): Use(6_000, 2_048)}
        red = HostMark(Hostname("a"), Mark.RED, 1, "cpu 97 %, red from 90 %")
        advisor: Any = Advisor(red)
        core: Any = self
        self.views = ClusterViews("west", core, advisor, lambda: self.uses, core)

    def drains(self, cluster: str) -> list[HostMaintenance]:
        if self.rows is None:
            raise Unavailable("storage does not answer")
        return self.rows

    def job_names(self, job_ids: Iterable[str]) -> dict[str, str]:
        return dict.fromkeys(job_ids, "db")

    def pods_by_host(self, cluster: str) -> dict[str, int]:
        return {"a": 3} if cluster == "west" else {}

    def map(self) -> pb.HostMap:
        return self.views._draw()

    def problems(self) -> list[str]:
        return [one.text for one in self.views._describe().problems]


def test_the_sums_of_a_cluster() -> None:
    """Sums are by kind; usage covers measured hosts only, and slack cpu alone."""
    found = Story().views.overview().overview

    cpu, memory, disk, gpu = found.amounts
    assert pb.KindAmounts(
        kind="cpu", capacity=16, allocation=8, used=6, measured_capacity=8, slack=4, slack_held=1
    ) == cpu  # fmt: skip
    assert (
        pb.KindAmounts(kind="memory", capacity=8_192, allocation=2_048, used=2_048, measured_capacity=4_096) == memory
    )
    assert (80_000, 0, 0) == (disk.capacity, disk.allocation, disk.measured_capacity)
    assert pb.KindAmounts(kind="gpu") == gpu
    assert ("west", "mesos", 2, {"UP": 2}, {"RED": 1}) == (
        found.cluster, found.cluster_kind, found.hosts.total, dict(found.hosts.states), dict(found.hosts.marks)
    )  # fmt: skip


def test_hosts_in_maintenance_count_by_their_state() -> None:
    """A host that is down and gone from the cluster is counted without its capacity; the capacity of a draining host
    counts.
    """
    story = Story()
    story.cache.set_maintained([make_maintenance("a", HostState.DRAINING), make_maintenance("gone", HostState.DOWN)])

    found = story.views.overview().overview

    assert (3, {"UP": 1, "DRAINING": 1, "DOWN": 1}, 2) == (
        found.hosts.total, dict(found.hosts.states), found.hosts.in_maintenance
    )  # fmt: skip
    assert (16, 8) == (found.amounts[0].capacity, found.amounts[0].away)


def test_what_is_wrong_with_a_cluster() -> None:
    """Problems are listed in the order cluster, hosts that left, marks."""
    story = Story()
    story.driver.is_connected = False
    story.cache.set_hosts([host("a")])

    cluster, gone, red = story.problems()

    assert "Cluster west is not connected to its Mesos master" in cluster
    assert gone.startswith("Host b left cluster west 0 s ago")
    assert "Host a is marked RED: cpu 97 %, red from 90 %" == red


def test_drains_are_reported_with_their_progress() -> None:
    """The progress is in storage; while storage does not answer, a late drain is reported without it."""
    story, hour_ago = Story(), time.time_ns() - 3_600 * NS_PER_S
    draining = replace(make_maintenance("a", HostState.DRAINING), drained_from_ns=hour_ago, deadline_s=1_800)
    story.cache.set_maintained([draining])
    story.rows = [replace(draining, progress=DrainProgress(3, waiting_for="the SLA of 1 job to let 3 pods go"))]
    late = [text for text in story.problems() if "drain of host a" in text]
    blocked = DrainProgress(1, blockers=(Blocker(JOB, 1, "1 of at most 1 instances are unavailable already"),))
    story.rows = [replace(draining, deadline_s=7_200, progress=blocked)]
    held_up = [text for text in story.problems() if "drain of host a" in text]
    story.rows = None
    silent = [text for text in story.problems() if "drain of host a" in text]

    assert [True] == ["3 pods are left and wait for the SLA of 1 job to let 3 pods go" in text for text in late]
    assert [True] == ["pods hold it up: 1 pod of job db: 1 of at most 1" in text for text in held_up]
    assert ["The drain of host a is 30 min beyond its deadline"] == silent


def test_a_host_that_is_back_or_went_for_maintenance_is_not_wrong() -> None:
    """A host that has been gone for long counts as removed."""
    story = Story()
    story.cache.set_hosts([])
    story.cache.set_maintained([make_maintenance("a", HostState.DOWN)])

    assert ["Host b left"] == [text[:11] for text in story.problems() if text.startswith("Host") and "left" in text]
    story.cache.set_hosts([host("b")])
    assert not any("left" in text for text in story.problems())
    assert {} == story.cache.avoidances.list_gone(60.0, time.monotonic() + 100.0)


def test_the_map_has_one_entry_for_each_host() -> None:
    """Hosts are sorted by name. 255 stands for a missing or unknown amount."""
    story = Story(host("b"), host("a"), host("c", withdrawn="an operator drains it", state=HostState.DRAINING))
    story.cache.set_maintained([make_maintenance("d", HostState.DOWN)])

    found = story.map()

    assert ["a", "b", "c", "d"] == list(found.hostnames)
    up, draining, down = host_pb2.HOST_STATE_UP, host_pb2.HOST_STATE_DRAINING, host_pb2.HOST_STATE_DOWN
    assert [up, up, draining, down] == list(found.states)
    assert ([3, 0, 0, 0], [0, 0, 0, MAINTAINED]) == (list(found.marks), list(found.flags))
    assert [3, 0, 0, 0] == list(found.pod_counts)
    cpu, memory, disk, gpu = found.kinds
    assert ([50, 50, UNKNOWN, UNKNOWN], [75, UNKNOWN, UNKNOWN, UNKNOWN]) == (list(cpu.allocation), list(cpu.used))
    assert [25, 25, UNKNOWN, UNKNOWN] == list(memory.allocation)
    assert ([0, 0, UNKNOWN, UNKNOWN], b"") == (list(disk.allocation), disk.used)
    assert {UNKNOWN} == set(gpu.allocation)
    assert ([], []) == (list(found.host_pools), list(found.host_pool_names))


def test_more_than_everything_is_still_a_byte() -> None:
    """A host on which others hold more than it announces shows 254."""
    story = Story(host("a", held=Resources.of(100, 5_000)))

    cpu, memory, *_ = story.map().kinds

    assert ([254], [122]) == (list(cpu.allocation), list(memory.allocation))


def test_host_pools_of_the_map() -> None:
    """Host pools are indices in the list of their names."""
    story = Story()
    pools = {name: HostPool(name) for name in (DEFAULT_HOST_POOL, "batch")}
    story.cache.host_pools.set(HostPools(1, pools, {Hostname("b"): HostInPool("batch", "batch")}))
    story.cache.set_hosts([host("a"), host("b")])

    found = story.map()

    assert (["batch", DEFAULT_HOST_POOL], [1, 0]) == (list(found.host_pool_names), list(found.host_pools))


def test_the_version_changes_with_the_map_alone() -> None:
    """A map that the caller has is answered without hosts."""
    story = Story()
    servicer, context = ViewsServicer(story.views), cast("grpc.ServicerContext", None)
    first = servicer.MapHosts(private.MapHostsRequest(known_version="none"), context)
    again = servicer.MapHosts(private.MapHostsRequest(known_version=first.version), context)

    assert (True, first.version, []) == (again.is_unchanged, again.version, list(again.hostnames))
    assert (False, 2) == (first.is_unchanged, len(first.hostnames))
    assert first.version == story.map().version
    story.cache.set_hosts([host("b"), host("a", held=CAPACITY)])
    assert first.version != story.map().version
    assert 100 == story.map().kinds[0].allocation[0]


def test_pods_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods are measured on the named hosts; the second sample makes a rate."""
    monkeypatch.setattr(pod_uses, "SAMPLE_AGE_S", 0.0)
    servicer, context = ViewsServicer(Story().views), cast("grpc.ServicerContext", None)
    asked = private.MeasurePodsRequest(hostnames=["a"])

    assert not servicer.MeasurePods(asked, context).pods
    (use,) = servicer.MeasurePods(asked, context).pods
    assert (f"{JOB}-0-1", 250, 64) == (use.pod_id, use.cpu_milli, use.memory_mib)


def sum_held_cpu(columns: HostColumns) -> dict[str, int]:
    """Return the allocation by host, in percent."""
    return dict(zip(columns.hostnames, columns.compute_held_percents("cpu"), strict=True))


def test_columns_follow_hosts_that_come_change_and_go() -> None:
    """Earlier columns stay unchanged."""
    story = Story()
    views = story.cache.views
    first = views.view().columns
    kept = story.cache.host("b")
    assert kept is not None

    story.cache.set_hosts([kept, host("a", held=CAPACITY)])
    changed = views.view().columns
    story.cache.set_hosts([kept, host("z")])
    swapped = views.view().columns
    story.cache.set_hosts([])

    assert {"a": 50, "b": 50} == sum_held_cpu(first)
    assert {"a": 100, "b": 50} == sum_held_cpu(changed)
    assert {"b": 50, "z": 50} == sum_held_cpu(swapped)
    assert {} == sum_held_cpu(views.view().columns)


def test_avoided_hosts_have_a_flag() -> None:
    """Avoided hosts have a flag, and are counted."""
    story = Story()
    for _ in range(5):  # the host flaps
        story.cache.set_hosts([host("b")])
        story.cache.set_hosts([host("b"), host("a")])

    assert [AVOIDED, 0] == list(story.map().flags)
    assert 1 == story.views.overview().overview.hosts.avoided
    assert any("Host a is avoided after it was gone and came back" in text for text in story.problems())
