"""Random lives of hosts in host pools: launches, ends, moves between host pools, changed factors, lost hosts, restarts
of the host manager, and news of the cluster that come late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from peloton.api.convert import new_job_record
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.lifecycle.host_pools import announce, announce_with_volumes, compute_announced_free
from peloton.lifecycle.volumes import at_its_volume
from peloton.model.host import ReadyGang
from peloton.model.host_pool import DEFAULT_HOST_POOL, Factors, HostInPool, HostPool, HostPools, Workload
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.pod import PodShape, PodState
from peloton.model.resources import Resources, ordinary
from peloton.model.volume import VolumeRecord, VolumeState
from peloton.scheduling.placement import place
from services.hostmgr.driver import NOTHING, FreeResources, HostLaunch, PodLaunch, PodTemplate, RegisteredHost
from services.hostmgr.hosts.host_cache import HostCache
from tests.doubles.hostmgr.cluster import MemoryCluster, MemoryHost
from tests.doubles.hostmgr.driver import MemoryDriver
from tests.nightly import PROPERTY, examples

JOB = JobId("00000000-0000-4000-8000-000000000001")
HOSTS = [Hostname(f"h{at}") for at in range(3)]
CAPACITY = Resources(10_007, 1_003, 503, 2_000)
POOLS = (DEFAULT_HOST_POOL, "services")
WORKLOADS = (Workload.BATCH, Workload.STATELESS)
FEW_DISKS = Factors(disk_percent=250)
PERCENTS = st.sampled_from([100, 133, 160, 250, 1_000])
JOB_RECORD = new_job_record(JOB, job_pb2.JobConfig(name="j"), 1)


class Events:
    """The part of a host manager that handles hosts and free resources."""

    def __init__(self, cache: HostCache) -> None:
        self._cache = cache

    def on_connect(self) -> None:
        pass

    def on_disconnect(self) -> None:
        self._cache.forget_resources()

    def hosts_registered(self, hosts: Sequence[RegisteredHost]) -> None:
        self._cache.set_hosts(hosts)

    def resources_announced(self, free_resources: Sequence[FreeResources]) -> None:
        self._cache.add_resources(free_resources)

    def resources_withdrawn(self, resources_ids: Sequence[str]) -> None:
        self._cache.remove_resources(resources_ids)


def template(asked: Resources, is_revocable: bool) -> PodTemplate:
    config = task_pb2.TaskConfig(revocable=is_revocable)
    cpu, memory, disk, gpu = asked
    config.resource.cpuLimit, config.resource.memLimitMb = cpu / 1000, memory
    config.resource.diskLimitMb, config.resource.gpuLimit = disk, gpu / 1000
    made = PodTemplate(JOB_RECORD, "/", config)
    assert made.resources == asked
    return made


def volume_of(pod: PodId, host: Hostname, size_mib: int) -> VolumeRecord | None:
    """Return the new volume of an instance that has none yet."""
    if not size_mib:
        return None
    made = VolumeState.INITIALIZED
    return VolumeRecord(f"v-{pod}", JOB, pod.instance_id, pod.run_id, "", "", host, "data", size_mib, made)


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        hosts = [MemoryHost(name, CAPACITY, revocable=Resources(3_000)) for name in HOSTS]
        self.cluster = MemoryCluster(hosts, delivers=False)
        pools = [HostPool(POOLS[0], factors=FEW_DISKS), HostPool(POOLS[1], frozenset(WORKLOADS[1:]), FEW_DISKS)]
        self.pools = HostPools(1, {pool.name: pool for pool in pools})
        self.stored: dict[PodId, tuple[Hostname, Resources]] = {}  # pods that storage believes on hosts
        self.ended: list[PodId] = []  # the ended ones among them, which storage does not know yet
        self.run = 0
        self.begin()
        self.news_come(is_late=False)

    def begin(self) -> None:
        """Start a host manager that leads."""
        self.cache = HostCache(30.0, clock=lambda: 0.0)
        self.cache.host_pools.set(self.pools)
        self.cache.read_requests(self.rows)
        self.driver = MemoryDriver(self.cluster)
        events: Any = Events(self.cache)
        self.driver.start(events)

    def rows(self) -> list[list[tuple[PodId, str, Resources]]]:
        return [[(pod, host, asked) for pod, (host, asked) in self.stored.items()]]

    def sum_requests_on(self, host: Hostname) -> Resources:
        return sum((asked for where, asked in self.stored.values() if where == host), NOTHING)

    def sum_announced(self, host: Hostname) -> Resources:
        """Return the resources announced for pods, without volumes."""
        known = self.cache._state.table.registered.by_name.get(host)
        own = CAPACITY - Resources(disk_mib=known.volumes_mib if known is not None else 0)
        return announce(own, self.pools.pools[self.pools.of(host).current].factors)

    # Events.

    @rule(is_late=st.booleans())
    def news_come(self, is_late: bool) -> None:
        """Deliver resources without their host, or both."""
        if not is_late:
            self.cluster.deliver_hosts()
        self.cluster.deliver_resources()

    @rule(
        cpu=st.integers(1, 5_000),
        memory=st.integers(0, 400),
        disk=st.integers(0, 60),
        gpu=st.sampled_from([0, 0, 0, 1_000]),
        volume_mib=st.sampled_from([0, 0, 7, 90, 400]),
        count=st.integers(1, 12),
        workload=st.sampled_from(WORKLOADS),
        is_revocable=st.sampled_from([False, False, False, True]),
        refused=st.sampled_from([0, 0, 0, 1]),
        is_unknown=st.sampled_from([False] * 7 + [True]),
        is_told=st.sampled_from([True, True, False]),
    )
    def launch(
        self,
        cpu: int,
        memory: int,
        disk: int,
        gpu: int,
        volume_mib: int,
        count: int,
        workload: Workload,
        is_revocable: bool,
        refused: int,
        is_unknown: bool,
        is_told: bool,
    ) -> None:
        """Launch pods, of which storage may reject some, or whose commit may be unknown for a while."""
        if is_told:
            self.cluster.deliver_hosts()
            self.cluster.deliver_resources()
        asked = Resources(cpu, memory, disk, gpu)
        shape = PodShape(asked, revocable=is_revocable, workload=workload, volume_mib=volume_mib)
        own, shape = template(asked, is_revocable), at_its_volume(shape, None)
        self.run += 1
        gangs = [ReadyGang(shape, ((self.run * 100 + at, self.run),)) for at in range(count)]
        lease = self.cache.acquire(JOB, [(shape, count)], 0.0)
        batch = place(JOB, gangs, lease)
        pods = [
            (PodId(JOB, pod.instance_id, pod.run_id), each.hostname) for each in batch.placements for pod in each.pods
        ]
        held = ordinary(asked, is_revocable)
        claims = self.cache.claim(lease.lease_id, [host for _, host in pods], [(*one, held) for one in pods])
        self.cache.release(lease.lease_id)
        assert {host for _, host in pods} == claims.keys()
        for host in claims:
            assert self.serves(host, workload)
        taken, left = pods[refused:], pods[:refused]
        before = {host: self.sum_requests_on(host) for host in HOSTS}
        for pod, host in taken:
            self.stored[pod] = (host, held)
        if is_unknown:  # the commit got through, but its answer is lost: storage is read again
            self.cache.host_pools.unknown([pod for pod, _ in pods])
            self.driver.return_resources(
                [resources_id for claim in claims.values() for resources_id in claim.resources_ids]
            )
            assert self.cache.host_pools.is_stale
            self.cache.read_requests(self.rows)
            self.ended += [pod for pod, _ in taken]
            return
        self.cache.pods_launched(JOB, [(pod.instance_id, pod.run_id, host, ()) for pod, host in taken])
        self.cache.host_pools.remove_refused([pod for pod, _ in left])
        for host in claims:
            have = zip(self.sum_requests_on(host), before[host], self.sum_announced(host), strict=True)
            assert all(now <= max(was, most) for now, was, most in have), "more than the host pool announces"
        self.send(claims, [(pod, host) for pod, host in taken], own, volume_mib)

    def send(self, claims: Any, pods: Sequence[tuple[PodId, Hostname]], own: PodTemplate, volume_mib: int) -> None:
        for host, claim in claims.items():
            there = self.cluster.hosts[host]
            stands = there.is_up and there.resources_id != "" and there.resources_id in claim.resources_ids
            mine = [
                PodLaunch(pod, own, (), volume_of(pod, host, volume_mib), claim.factors)
                for pod, where in pods
                if where == host
            ]
            self.driver.launch([HostLaunch(claim, mine)])
            running = self.cluster.running()
            lost = [pod.pod_id for pod in mine if pod.pod_id not in running]
            assert not (stands and lost), "the cluster has less room than was announced"
            self.ended += lost

    def serves(self, host: Hostname, workload: Workload) -> bool:
        return ("services" == self.pools.of(host).current) == (workload is Workload.STATELESS)

    @precondition(lambda self: self.cluster.running())
    @rule(data=st.data())
    def a_pod_ends(self, data: st.DataObject) -> None:
        pod = data.draw(st.sampled_from(sorted(self.cluster.running())))
        self.cluster.end(pod, PodState.SUCCEEDED)
        self.ended.append(pod)

    @rule(host=st.sampled_from(HOSTS))
    def volumes_go(self, host: Hostname) -> None:
        """Destroy the volumes that no pod uses."""
        there = self.cluster.hosts[host]
        for volume_id in there.volumes.keys() - there.volumes_in_use if there.is_up else ():
            self.cluster.destroy_volume(host, volume_id)

    @precondition(lambda self: self.ended)
    @rule(count=st.integers(1, 5))
    def storage_learns_of_ends(self, count: int) -> None:
        known, self.ended = self.ended[:count], self.ended[count:]
        for pod in known:
            self.stored.pop(pod, None)
        self.cache.pods_ended(known)

    @rule(host=st.sampled_from(HOSTS[1:]), pool=st.sampled_from(POOLS))
    def a_host_changes_its_host_pool(self, host: Hostname, pool: str) -> None:
        self.change(hosts={**self.pools.hosts, host: HostInPool(pool, pool)})

    @rule(pool=st.sampled_from(POOLS), cpu=PERCENTS, memory=PERCENTS, disk=PERCENTS)
    def factors_change(self, pool: str, cpu: int, memory: int, disk: int) -> None:
        changed = replace(self.pools.pools[pool], factors=Factors(cpu, memory, disk))
        self.change(pools={**self.pools.pools, pool: changed})

    def change(self, **changes: Any) -> None:
        """A lease from before is of no use after it, where it changes anything."""
        lease = self.cache.acquire(JOB, [(PodShape(Resources(1)), 100)], 0.0)
        before, self.pools = self.pools, replace(self.pools, version=self.pools.version + 1, **changes)
        self.cache.host_pools.set(self.pools)
        claims = self.cache.claim(lease.lease_id, HOSTS)
        for host in claims:
            was, now = (pools.pools[pools.of(host).current] for pools in (before, self.pools))
            assert was == now
        self.driver.return_resources(
            [resources_id for claim in claims.values() for resources_id in claim.resources_ids]
        )
        self.cache.release(lease.lease_id)

    @rule()
    def a_host_is_lost_or_comes_back(self) -> None:
        if self.cluster.hosts[HOSTS[2]].is_up:
            self.ended += self.cluster.lose(HOSTS[2])
        else:
            self.cluster.bring_back(HOSTS[2])

    @rule()
    def another_host_manager_leads(self) -> None:
        self.begin()

    # Invariants.

    @invariant()
    def free_resources_are_those_of_cluster_and_host_pool(self) -> None:
        """Never negative, and nothing counts twice."""
        table = self.cache._state.table
        for name, host in table.free_resources.hosts.items():
            free = sum((part.free for part in host.free_resources.values()), NOTHING)
            known = name in table.registered.by_name
            factors = self.pools.pools[self.pools.of(name).current].factors
            have = self.sum_announced(name) if known else NOTHING
            assert compute_announced_free(free, have, self.sum_requests_on(name), factors) == host.free
            assert all(amount >= 0 for amount in host.free)
            assert self.pools.of(name).current == host.labels["peloton/host-pool"]

    @invariant()
    def capacity_is_what_host_pools_announce(self) -> None:
        """The capacity is the sum of the announcements, with volumes counted once."""
        known, total = self.cache._state.table.registered, NOTHING
        for name, host in known.by_name.items():
            factors = self.pools.pools[self.pools.of(name).current].factors
            total += announce_with_volumes(CAPACITY, host.volumes_mib, factors)
        assert total == known.total

    @invariant()
    def the_cluster_is_never_overcommitted(self) -> None:
        for host in self.cluster.hosts.values():
            assert all(amount >= 0 for amount in host.free)


@PROPERTY
def test_no_host_holds_more_than_its_host_pool_announces() -> None:
    """The limit holds for every sequence of events of pods, hosts, host pools and host managers, in every order of
    delivery.
    """
    run_state_machine_as_test(Life, settings=settings(max_examples=examples(40), stateful_step_count=30, deadline=None))
