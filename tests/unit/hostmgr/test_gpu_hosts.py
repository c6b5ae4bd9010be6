"""Hosts with gpus are kept for the pods that ask for gpus."""

from __future__ import annotations

from typing import Any

from peloton.hosts.gpu_waits import GPU_WAIT_S
from peloton.model.host import HostLease
from peloton.model.ids import Hostname, JobId
from peloton.model.pod import PodShape, Strategy
from peloton.model.resources import Resources
from services.hostmgr.driver import FreeResources, RegisteredHost
from services.hostmgr.hosts.host_cache import HostCache
from tests.unit.hostmgr.test_hosts import JOB, LEASE_S, OTHER, THIRD, refusals_of


def cache(**gpus: int) -> HostCache:
    """Return a book of hosts with four cpus and the given gpus each."""
    found = HostCache(LEASE_S)
    size = {name: Resources.of(4, 2048, 1000, count) for name, count in gpus.items()}
    found.set_hosts([RegisteredHost(f"{n}-S", Hostname(n), "", size[n], Resources(), {}) for n in gpus])
    found.add_resources([FreeResources(f"{n}-O", Hostname(n), f"{n}-S", size[n], Resources(), (), {}) for n in gpus])
    return found


def pods(cpu: float = 4, gpu: float = 0, **more: Any) -> PodShape:
    return PodShape(Resources.of(cpu, 10, 0, gpu), **more)


def names(lease: HostLease) -> list[str]:
    return [host.hostname for host in lease.hosts]


def test_pods_without_gpus_go_to_hosts_with_gpus_last() -> None:
    """Hosts with GPUs come last in every strategy, and are used while no pod with GPUs waits."""
    for strategy in Strategy:
        hosts = cache(a=2, b=0, c=0)
        assert ["b", "c"] == sorted(names(hosts.acquire(JOB, [(pods(strategy=strategy), 2)], 0.0)))
        assert ["a"] == names(hosts.acquire(OTHER, [(pods(strategy=strategy), 1)], 0.0))


def test_they_keep_off_while_a_pod_with_gpus_waits() -> None:
    """Pods without GPUs wait, with the reason, until the pod with GPUs is placed or gives up."""
    hosts = cache(a=2, b=2, c=0)
    hosts.acquire(OTHER, [(pods(), 2)], 0.0)  # on c, and on one host with gpus
    assert 1 == len(hosts.acquire(JOB, [(pods(gpu=2), 2)], 0.0).hosts)
    hosts.release(hosts.acquire(JOB, [(pods(gpu=2), 2)], 1.0).lease_id)

    lease = hosts.acquire(THIRD, [(pods(1), 1)], 2.0)

    assert [] == names(lease)
    assert {"kept for pods with gpus, which wait": 1, "leased to another placement": 2} == refusals_of(lease)
    assert 1 == len(hosts.acquire(THIRD, [(pods(1), 1)], 1.0 + GPU_WAIT_S).hosts)


def test_they_do_not_wait_for_a_pod_that_was_placed_or_that_no_host_could_take() -> None:
    """Pods without GPUs do not wait for a pod of their own job either."""
    hosts = cache(a=2, b=0)
    hosts.acquire(JOB, [(pods(gpu=2), 2)], 0.0)
    hosts.release(hosts.acquire(JOB, [(pods(gpu=2), 1)], 1.0).lease_id)
    hosts.release(hosts.acquire(OTHER, [(pods(gpu=3), 1)], 1.0).lease_id)

    assert ["b", "a"] == names(hosts.acquire(THIRD, [(pods(), 2)], 2.0))


def test_where_all_hosts_have_gpus_none_is_kept() -> None:
    """A cluster in which all hosts have GPUs runs pods without them."""
    hosts = cache(a=2, b=2)
    hosts.release(hosts.acquire(JOB, [(pods(gpu=2), 3)], 0.0).lease_id)

    assert 2 == len(hosts.acquire(JobId("x"), [(pods(), 2)], 1.0).hosts)
