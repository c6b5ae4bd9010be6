"""Plans of drains, as the host manager computes them before a drain is requested."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from peloton.api.v0.maintenance import maintenance_pb2 as pb
from peloton.model.job import JobType
from tests.conformance.hostmgr.test_host_pools import Manager, hosts, url
from tests.conformance.hostmgr.world import wait

__all__ = ["url"]
NAME = "train"


@pytest.fixture
def manager(url: str) -> Iterator[Manager]:
    made = Manager(url, "east", hosts("e"), is_on=False)
    yield made
    made.close()


def test_the_plan_of_a_drain(manager: Manager) -> None:
    """The plan counts pods by job and by the way they leave, and the pods that fit on no other host. The plan changes
    nothing."""
    wait(lambda: manager.maintenance_controller.host_count() == 3, "all hosts")
    service = manager.job(3, 6.0, JobType.SERVICE)
    batch = manager.job(1, 3.0)
    manager.start(service)
    (at,) = manager.start(batch)

    expected = [
        pb.JobDeparture(job_id=batch, job_name=NAME, departure=pb.DEPARTURE_REQUEUED, pod_count=1),
        pb.JobDeparture(
            job_id=service, job_name=NAME, departure=pb.DEPARTURE_SLA, pod_count=1, allowed_count=1, homeless_count=1
        ),
    ]
    expected.sort(key=lambda job: job.job_id)

    def plan() -> pb.HostDeparture:
        (host,) = manager.maintenance.Plan(pb.PlanRequest(hostnames=[at])).hosts
        return host

    wait(lambda: expected == list(plan().jobs), "the pods to run, so that the SLA lets one go")
    assert (at, "east", 0, 0) == (plan().hostname, plan().cluster, plan().leaving_count, plan().unchecked_count)
    assert not manager.maintenance.Query(pb.QueryRequest()).hosts


def test_the_plan_asks_the_bound_on_skew(manager: Manager) -> None:
    """The pod of a drained host may not go to the host that has the other pod while a third, full host has none. A
    third host that is drained too does not count."""
    wait(lambda: manager.maintenance_controller.host_count() == 3, "all hosts")
    service = manager.job(2, 1.0, JobType.SERVICE, spread=["hostname"])
    at = manager.start(service)
    batch = manager.job(1, 10.0)
    (full,) = manager.start(batch)
    drained = sorted(at)[0]

    def fill_hosts(*hosts: str) -> list[int]:
        plan = manager.maintenance.Plan(pb.PlanRequest(hostnames=hosts))
        return [job.homeless_count for host in plan.hosts for job in host.jobs if job.job_id == service]

    assert 3 == len({*at, full})
    assert [1] == fill_hosts(drained)
    assert [0] == fill_hosts(drained, full)


def test_the_plan_of_hosts_that_are_not_there_is_refused(manager: Manager) -> None:
    """A plan for unknown hosts is refused, as their drain is."""
    wait(lambda: manager.maintenance_controller.host_count() == 3, "all hosts")

    assert ("ABORTED", "host is not a Peloton agent: e9") == manager.refusal(
        manager.maintenance.Plan, pb.PlanRequest(hostnames=["e0", "e9"])
    )
    assert ("INVALID_ARGUMENT", "no host is named") == manager.refusal(manager.maintenance.Plan, pb.PlanRequest())
