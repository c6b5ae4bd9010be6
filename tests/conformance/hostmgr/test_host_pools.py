"""Host pools through the calls of HostService: two host managers of two clusters on one database."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.api.v0.host import host_pb2
from peloton.api.v0.host.svc import host_svc_pb2 as pb
from peloton.api.v0.host.svc import host_svc_pb2_grpc
from peloton.api.v0.maintenance import maintenance_pb2_grpc
from peloton.lifecycle.reason_text import infeasible_text, placement_text
from peloton.model.host import LaunchResult, PlacementBatch
from peloton.model.ids import Hostname, JobId
from peloton.model.job import JobType
from peloton.model.pod import PodState
from peloton.model.resources import Resources
from peloton.scheduling.placement import FirstFitPlacer
from services.hostmgr.advisor import AdvisorSettings, HostAdvisor
from services.hostmgr.drain_watch import DrainWatch
from services.hostmgr.driver import ClusterDriver
from services.hostmgr.host_pool_controller import HostPoolController
from services.hostmgr.latency_reports import LatencyReports
from services.hostmgr.maintenance import MaintenanceController
from services.hostmgr.manager import HostManagerCore, HostManagerSettings
from services.hostmgr.rebalancer import Rebalancer
from services.hostmgr.servicer import serve
from services.hostmgr.views import ClusterViews
from services.storage import migrate
from services.storage.storage import Storage
from tests.conformance.hostmgr.world import Wakes, wait
from tests.conformance.storage import builders
from tests.doubles.hostmgr.cluster import MemoryCluster, MemoryHost
from tests.doubles.hostmgr.driver import MemoryDriver

CAPACITY = Resources.of(10, 10_000, 10_000)
Drives = Callable[[Storage], ClusterDriver]
CREATE, CHANGE = pb.CreateHostPoolRequest, pb.ChangeHostPoolRequest


class Manager:
    """A host manager with its server and a client of it."""

    def __init__(self, url: str, cluster: str, hosts: MemoryCluster | Drives, is_on: bool = True) -> None:
        """``hosts``: a cluster in memory, or a factory of the cluster's driver."""
        self.cluster, self._hosts, self.storage = cluster, hosts, Storage(url)
        wakes: Any = Wakes()
        settings = HostManagerSettings(cluster, 30.0, is_on)
        driver = MemoryDriver(hosts) if isinstance(hosts, MemoryCluster) else hosts(self.storage)
        self.core = HostManagerCore(settings, self.storage, wakes, driver)
        self.woken: list[Hostname] = []
        wakes.hosts_changed = self.woken.extend
        watch = DrainWatch(wakes, wakes)
        records = (self.storage.maintenance, self.storage.host_pods, self.storage.disruptions, self.storage.host_pools)
        self.maintenance_controller = MaintenanceController(
            self.core, *records, wakes, wakes, watch, cluster=cluster, share=0.1
        )
        self.core.start()
        self.maintenance_controller.start()
        self.controller = self._controller() if is_on else None
        images: Any = None
        self.rebalancer = self._rebalancer(wakes)
        self.advisor = HostAdvisor(AdvisorSettings(), self.storage.jobs, LatencyReports(time.monotonic))
        self.views = ClusterViews(cluster, self.core, self.advisor, dict, self.storage.overview)
        checks = self.rebalancer, self.advisor, self.views
        self._server, port = serve(
            self.core, self.maintenance_controller, images, dict, "127.0.0.1:0", 3_600, *checks, self.controller
        )
        if self.controller is not None:
            self.controller.start()
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.stub = host_svc_pb2_grpc.HostServiceStub(self.channel)
        self.maintenance = maintenance_pb2_grpc.MaintenanceServiceStub(self.channel)

    def _rebalancer(self, wakes: Any) -> Rebalancer:
        back = self.storage.host_pods.coming_back
        return Rebalancer(
            self.core.cache,
            self.storage.rebalances,
            self.cluster,
            back,
            wakes,
            self.core.count_domains,
            self.core.kill_evicted,
        )

    @property
    def hosts(self) -> MemoryCluster:
        assert isinstance(self._hosts, MemoryCluster), "this story needs a cluster in memory"
        return self._hosts

    def _controller(self) -> HostPoolController:
        records, pods = self.storage.host_pools, self.storage.host_pods
        return HostPoolController(self.core, records, pods, self.maintenance_controller, 3_600, period_s=0.02)

    def close(self) -> None:
        self.channel.close()
        self._server.stop(0).wait()
        if self.controller is not None:
            self.controller.stop()
        self.maintenance_controller.stop()
        self.core.stop()
        self.storage.close()

    def pools(self) -> dict[str, list[str]]:
        return {one.name: list(one.hosts) for one in self.stub.ListHostPools(pb.ListHostPoolsRequest()).pools}

    def hosts_now(self) -> dict[str, host_pb2.HostInfo]:
        return {info.hostname: info for info in self.stub.QueryHosts(pb.QueryHostsRequest()).host_infos}

    def job(
        self, count: int, cpu: float, type_: JobType = JobType.BATCH, spread: Sequence[str] = (), **sla: Any
    ) -> JobId:
        """Create a job whose pods are READY. ``spread``: labels of hosts."""
        config = builders.a_config(count, type_=type_, **sla)
        for label in spread:
            config.placement.spread.add(label=label)
        config.defaultConfig.command.value = "sleep 300"
        config.defaultConfig.resource.cpuLimit = cpu
        job_id = builders.create(self.storage, config)
        self.storage.pods.create(job_id, lambda _: None)
        self.storage.jobs.settle(job_id, builders.NOW)
        builders.admit(self.storage, job_id)
        return job_id

    def database(self, count: int, size_mib: int, disk_mib: int = 0) -> JobId:
        """Create a service whose pods are READY and have volumes."""
        config = builders.a_config(count, type_=JobType.SERVICE)
        config.defaultConfig.command.value = "sleep"
        config.defaultConfig.resource.cpuLimit, config.defaultConfig.resource.diskLimitMb = 1.0, disk_mib
        config.defaultConfig.volume.containerPath, config.defaultConfig.volume.sizeMB = "data", size_mib
        job_id = builders.create(self.storage, config)
        self.storage.pods.create(job_id, lambda _: None)
        self.storage.jobs.settle(job_id, builders.NOW)
        builders.admit(self.storage, job_id)
        return job_id

    def place(self, job_id: JobId) -> PlacementBatch:
        gangs = self.storage.pods.ready_gangs(job_id, 1_000)
        lease = self.core.acquire_hosts(job_id, list(Counter(gang.shape for gang in gangs).items()))
        return FirstFitPlacer().place(job_id, gangs, lease)

    def start(self, job_id: JobId) -> Counter[str]:
        """Place and launch the pods that fit. Returns pods by host."""
        batch = self.place(job_id)
        placed = Counter({str(each.hostname): len(each.pods) for each in batch.placements})
        launched = self.core.launch(job_id, batch.lease_id, batch.placements)
        assert LaunchResult(placed.total()) == launched
        return placed

    def refusal(self, call: Callable[[Any], Any], request: Any) -> tuple[str, str]:
        with pytest.raises(grpc.RpcError) as refused:
            call(request)
        error: Any = refused.value
        return error.code().name, error.details()


def hosts(prefix: str) -> MemoryCluster:
    return MemoryCluster(MemoryHost(Hostname(f"{prefix}{at}"), CAPACITY) for at in range(3))


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'storage.db'}"
    migrate.upgrade(url)
    return url


@pytest.fixture
def managers(url: str) -> Iterator[tuple[Manager, Manager]]:
    """Host managers of the clusters east and west, with three hosts each."""
    both = Manager(url, "east", hosts("e")), Manager(url, "west", hosts("w"))
    yield both
    for one in both:
        one.close()


def test_calls_of_the_original_do_what_they_did(managers: tuple[Manager, Manager]) -> None:
    """Create, list, change and delete behave as in the original. A host of any cluster is in one host pool, which
    QueryHosts reports."""
    east, west = managers
    wait(lambda: len(east.pools()["default"]) == 6, "all hosts")
    east.stub.CreateHostPool(CREATE(name="stateless"))
    east.stub.ChangeHostPool(CHANGE(hostname="e1", sourcePool="default", destinationPool="stateless"))
    west.stub.ChangeHostPool(CHANGE(hostname="w2", sourcePool="default", destinationPool="stateless"))

    assert {"default": ["e0", "e2", "w0", "w1"], "stateless": ["e1", "w2"]} == west.pools()
    known = east.hosts_now()["e1"]
    assert ("stateless", "stateless") == (known.current_pool, known.desired_pool)
    labels = {label.key: label.value for label in known.labels}
    assert ("stateless", "stateless") == (labels["peloton/host-pool"], labels["host_pool"])

    west.stub.DeleteHostPool(pb.DeleteHostPoolRequest(name="stateless"))
    assert {"default": ["e0", "e1", "e2", "w0", "w1", "w2"]} == east.pools()
    wait(lambda: east.hosts_now()["e1"].current_pool == "default", "east to learn of it")


def test_errors_are_those_of_the_original(managers: tuple[Manager, Manager]) -> None:
    """Errors have the code of the original, and its text where it had one. Nothing changes."""
    east, _ = managers
    stub = east.stub
    stub.CreateHostPool(CREATE(name="batch"))
    change = {
        ("e9", "default", "batch"): ("NOT_FOUND", "host not found: e9"),
        ("e1", "batch", "batch"): (
            "INVALID_ARGUMENT",
            "source pool mismatch: host e1 is in host pool default, not in batch",
        ),
        ("e1", "default", "other"): ("INVALID_ARGUMENT", "invalid dest pool: there is no host pool other"),
    }

    for (host, source, destination), expected in change.items():
        request = CHANGE(hostname=host, sourcePool=source, destinationPool=destination)
        assert expected == east.refusal(stub.ChangeHostPool, request)
    stub.ChangeHostPool(CHANGE(hostname="e1", sourcePool="default", destinationPool="default"))
    assert ("INVALID_ARGUMENT", "name: a host pool must have one") == east.refusal(stub.CreateHostPool, CREATE())
    assert ("ALREADY_EXISTS", "host pool batch exists already") == east.refusal(
        stub.CreateHostPool, CREATE(name="batch")
    )
    delete = pb.DeleteHostPoolRequest
    assert "INVALID_ARGUMENT" == east.refusal(stub.DeleteHostPool, delete(name="default"))[0]
    assert ("NOT_FOUND", "host pool other not found") == east.refusal(stub.DeleteHostPool, delete(name="other"))
    assert [] == east.pools()["batch"]


def test_numbers_and_names_that_cannot_be_are_refused(managers: tuple[Manager, Manager]) -> None:
    """The refusal names the object, the rule and the numbers."""
    east, _ = managers
    create, update = east.stub.CreateHostPool, east.stub.UpdateHostPool
    factors = host_pb2.HostPoolFactors

    for call, request, text in (
        (create, CREATE(name="a b"), "name 'a b' of a host pool has ' ': want letters, digits, any of -_."),
        (create, CREATE(name="a\x1b\u202e"),
         r"name 'a\x1b\u202e' of a host pool has '\x1b\u202e': want letters, digits, any of -_."),
        (create, CREATE(name="a" * 50_000_000), "name of a host pool has 50000000 characters, the limit is 63"),
        (create, CREATE(name="a" * 64), "name of a host pool has 64 characters, the limit is 63"),
        (create, CREATE(name="a", serves=["web"]),
         "unknown workload 'web': want batch, shared, stateless, stateful, gpu"),
        (create, CREATE(name="a", factors=factors(cpu=0.5)), "host pool a: the factor for cpu is 0.5, want 1 to 10"),
        (create, CREATE(name="a", factors=factors(memory=11)),
         "host pool a: the factor for memory is 11, want 1 to 10"),
        (update, pb.UpdateHostPoolRequest(name="default", factors=factors(disk=float("nan"))),
         "factor disk=nan is not a number"),
        (update, pb.UpdateHostPoolRequest(name="a", serves=["gpu"]),
         "host pool a: serves is given, and sets_serves is not set"),
    ):  # fmt: skip
        assert ("INVALID_ARGUMENT", text) == east.refusal(call, request)
    assert ["default"] == list(east.pools())


def test_errors_quote_little_of_huge_names(managers: tuple[Manager, Manager]) -> None:
    """Errors quote the beginning of a huge name and its length."""
    east, _ = managers
    huge, cut = "a" * 50_000_000, f"{'a' * 80}... (50,000,000 characters)"
    change = partial(CHANGE, hostname="e1")

    for call, request, text in (
        (east.stub.DeleteHostPool, pb.DeleteHostPoolRequest(name=huge), f"host pool {cut} not found"),
        (east.stub.ChangeHostPool, change(sourcePool="default", destinationPool=huge),
         f"invalid dest pool: there is no host pool {cut}"),
        (east.stub.ChangeHostPool, change(sourcePool=huge, destinationPool="default"),
         f"source pool mismatch: host e1 is in host pool default, not in {cut}"),
        (east.stub.ChangeHostPool, CHANGE(hostname=huge, sourcePool="default", destinationPool="default"),
         f"host not found: {cut}"),
        (east.stub.CreateHostPool, CREATE(name="a", serves=[huge]),
         f"unknown workload '{'a' * 80}'... (50,000,000 characters): want batch, shared, stateless, stateful, gpu"),
    ):  # fmt: skip
        assert text == east.refusal(call, request)[1]


def test_nothing_is_served_while_host_pools_are_not_enabled(url: str) -> None:
    """The answer is that of the original. Hosts have no host pool and no labels of one."""
    off = Manager(url, "east", hosts("e"), is_on=False)
    try:
        for name in ("ListHostPools", "CreateHostPool", "UpdateHostPool", "DeleteHostPool", "ChangeHostPool"):
            request = getattr(pb, f"{name}Request")()
            assert ("UNIMPLEMENTED", "host pools not enabled") == off.refusal(getattr(off.stub, name), request)
        known = off.hosts_now()["e1"]
        assert ("", "") == (known.current_pool, known.desired_pool)
        others = {"hostname", "peloton/cluster", "peloton/cluster-kind", "peloton/volumes"}
        assert others == {label.key for label in known.labels}
    finally:
        off.close()


def test_pods_go_to_the_host_pools_that_serve_them(managers: tuple[Manager, Manager]) -> None:
    """Services go to their host pools, and pods that no other host pool serves to the default one. A pod without a host
    reports the rule that excluded hosts, with their number."""
    east, _ = managers
    east.stub.CreateHostPool(CREATE(name="services", serves=["stateless"]))
    east.stub.ChangeHostPool(CHANGE(hostname="e1", sourcePool="default", destinationPool="services"))
    service, batch = east.job(12, 1.0, JobType.SERVICE), east.job(5, 1.0)

    assert Counter({"e1": 10}) == east.start(service)
    assert Counter({"e0": 5}) == east.start(batch)

    assert (
        "2 pods without a host (2 hosts: host pool default does not serve stateless pods; "
        "1 host: less than 1 cpu free, 0 at most)"
    ) == placement_text(east.place(service).why)


def test_pods_that_no_host_pool_could_take_are_said_so(managers: tuple[Manager, Manager]) -> None:
    """A host pool without hosts and one whose hosts are all too small are each named as the reason."""
    east, _ = managers
    east.stub.CreateHostPool(CREATE(name="services", serves=["stateless"]))
    [gang] = east.storage.pods.ready_gangs(east.job(1, 12.0, JobType.SERVICE), 1)

    def why() -> str:
        return infeasible_text(tuple(east.core.cache.evaluate([gang.shape]).values()))

    assert "0 of 3 hosts are in host pools that serve stateless pods" == why()
    east.stub.ChangeHostPool(CHANGE(hostname="e1", sourcePool="default", destinationPool="services"))
    assert "no host has cpu 12: the largest of 1 host in host pools that serve stateless pods has 10" == why()


def test_a_host_announces_more_than_it_has(managers: tuple[Manager, Manager]) -> None:
    """A host with 10 cpus announces 16, which 16 pods of one cpu fill. Each takes 625 thousandths of a cpu of its
    cluster."""
    east, _ = managers
    east.stub.CreateHostPool(CREATE(name="batch", factors=host_pb2.HostPoolFactors(cpu=1.6, memory=2)))
    east.stub.ChangeHostPool(CHANGE(hostname="e1", sourcePool="default", destinationPool="batch"))

    assert Resources.of(36, 40_000, 30_000) == east.core.cache.capacity()[0]
    assert Counter({"e1": 16}) == east.start(east.job(20, 1.0))

    now, there = east.hosts_now()["e1"], east.hosts.hosts[Hostname("e1")]
    assert (16.0, 0.0) == (now.capacity.cpu, now.free.cpu)
    assert [625] * 16 == [pod.taken.cpu_milli for pod in there.pods.values()]
    assert Resources(0, 9_200, 10_000) == there.free


def test_a_factor_for_disk_is_not_for_volumes(managers: tuple[Manager, Manager]) -> None:
    """A pod of 2,000 MiB with a volume of 6,000 takes 7,000 of a host with 10,000, so each host takes one and the rest
    waits with the reason. Afterwards each host counts 6,000 MiB and twice the other 4,000."""
    east, _ = managers
    east.stub.UpdateHostPool(pb.UpdateHostPoolRequest(name="default", factors=host_pb2.HostPoolFactors(disk=2)))
    assert 60_000 == east.core.cache.capacity()[0].disk_mib
    job = east.database(4, 6_000, 2_000)
    batch = east.place(job)
    assert {"e0": 1, "e1": 1, "e2": 1} == {each.hostname: len(each.pods) for each in batch.placements}
    short = "3 hosts: less than 7000 MiB disk free with a volume of 6000 MiB, 3000 MiB at most"
    assert short in placement_text(batch.why)

    assert LaunchResult(3) == east.core.launch(job, batch.lease_id, batch.placements)

    assert [3_000] * 3 == [host.free.disk_mib for host in east.hosts.hosts.values()]
    wait(lambda: east.core.cache.capacity()[0].disk_mib == 3 * 14_000, "what the volumes leave")


def test_capacity_is_reported_by_host_pool(managers: tuple[Manager, Manager]) -> None:
    """Capacity is reported as host pools announce it, for hosts that take pods, with the kinds of pods served. A host
    pool without hosts has none."""
    east, _ = managers
    east.stub.CreateHostPool(CREATE(name="batch", factors=host_pb2.HostPoolFactors(cpu=1.6)))
    east.stub.CreateHostPool(CREATE(name="services", serves=["stateless"]))
    east.stub.ChangeHostPool(CHANGE(hostname="e1", sourcePool="default", destinationPool="batch"))

    def cpus() -> dict[str, tuple[int, list[str]]]:
        found = east.core.cache.host_pools.capacities()
        return {pool.name: (pool.up.cpu_milli, sorted(pool.serves)) for pool in found}

    rest = ["gpu", "shared", "stateful"]
    assert {"batch": (16_000, ["batch"]), "default": (20_000, rest), "services": (0, ["stateless"])} == cpus()
    total = east.core.cache.capacity()[0].cpu_milli
    assert sum(cpu for cpu, _ in cpus().values()) == total

    east.stub.ChangeHostPool(CHANGE(hostname="e1", sourcePool="batch", destinationPool="services"))
    assert {"batch": 0, "default": 20_000, "services": 10_000} == {name: cpu for name, (cpu, _) in cpus().items()}


def test_a_lower_factor_gives_no_free_resources_that_pods_have_asked_for(managers: tuple[Manager, Manager]) -> None:
    """8 pods of one cpu take 5 of 10 cpus. At a factor of 1, 2 more cpus may be allocated, not the 5 that the cluster
    has left. The same holds after a restart of the host manager."""
    east, _ = managers
    east.stub.UpdateHostPool(pb.UpdateHostPoolRequest(name="default", factors=host_pb2.HostPoolFactors(cpu=1.6)))
    assert Counter({"e0": 8}) == east.start(east.job(8, 1.0))
    assert 5_000 == east.hosts.hosts[Hostname("e0")].free.cpu_milli

    east.stub.UpdateHostPool(pb.UpdateHostPoolRequest(name="default", factors=host_pb2.HostPoolFactors(cpu=1)))
    assert 2.0 == east.hosts_now()["e0"].free.cpu

    again = Manager(str(east.storage.db.engine.url), "east", east.hosts)
    try:
        assert 2.0 == again.hosts_now()["e0"].free.cpu
        assert Counter({"e0": 2, "e1": 1}) == again.start(again.job(3, 1.0))
    finally:
        again.close()


def test_a_host_that_changes_its_host_pool_is_not_launched_on(managers: tuple[Manager, Manager]) -> None:
    """A placement from before the change is refused. Its pods stay READY and find another host."""
    east, _ = managers
    east.stub.CreateHostPool(CREATE(name="services", serves=["stateless"]))
    job = east.job(1, 1.0)
    batch = east.place(job)
    assert ["e0"] == [each.hostname for each in batch.placements]

    east.stub.ChangeHostPool(CHANGE(hostname="e0", sourcePool="default", destinationPool="services"))

    assert LaunchResult(0, 1) == east.core.launch(job, batch.lease_id, batch.placements)
    assert [PodState.READY] == builders.states(east.storage, job)
    assert Counter({"e1": 1}) == east.start(job)
