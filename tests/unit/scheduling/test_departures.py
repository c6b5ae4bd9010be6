"""How pods would leave hosts that are drained, and which of them have nowhere to go."""

from __future__ import annotations

from collections.abc import Sequence

from peloton.model.departure import Departure, HostDeparture, JobDeparture
from peloton.model.ids import Hostname, JobId
from peloton.model.job import JobType
from peloton.model.maintenance import Resident
from peloton.model.rebalance import PodNow
from peloton.scheduling.departures import HOMES_SOUGHT_MAX, departures
from tests.unit.scheduling.moves_table import Cluster, cpu, hosts_of, pods_on


def planned(cluster: Cluster, *drained: str, others: Sequence[Resident] = ()) -> list[HostDeparture]:
    """``others``: pods on the first host that are not of services."""
    residents = {Hostname(name): [resident(pod) for pod in cluster.on(name)] for name in drained}
    residents[Hostname(drained[0])] += others
    return departures(residents, [cluster.host(name) for name in cluster.capacities], cluster.census())


def resident(pod: PodNow) -> Resident:
    return Resident(pod.pod_id.job_id, pod.pod_id.instance_id, JobType.SERVICE, is_leaving=False)


def test_each_pod_leaves_as_pods_of_its_kind_do() -> None:
    """Those that leave already are counted apart."""
    job = JobId
    others = [
        Resident(job("batch"), 0, JobType.BATCH, is_leaving=False),
        Resident(job("batch"), 1, JobType.BATCH, is_leaving=False),
        Resident(job("batch"), 2, JobType.BATCH, is_leaving=True),
        Resident(job("database"), 0, JobType.SERVICE, is_leaving=False, has_volume=True),
        Resident(job("logs"), 7, JobType.DAEMON, is_leaving=False),
    ]
    cluster = Cluster(hosts_of("h1", "h2"), pods_on("web", "h1", cpu(2), 3), grants=1)

    (found,) = planned(cluster, "h1", others=others)

    assert (1, 0) == (found.leaving_count, found.unchecked_count)
    assert found.jobs == (
        JobDeparture(job("batch"), Departure.REQUEUED, 2),
        JobDeparture(job("database"), Departure.STOPPED, 1),
        JobDeparture(job("logs"), Departure.LAST, 1),
        JobDeparture(job("web"), Departure.SLA, 3, allowed_count=1),
    )


def test_pods_that_no_other_host_takes_are_counted() -> None:
    """Large pods are tried first; what one takes is not there for the next; hosts that are drained too take none."""
    pods = [*pods_on("a", "h1", cpu(6)), *pods_on("b", "h1", cpu(2)), *pods_on("c", "h2", cpu(4))]
    cluster = Cluster(hosts_of("h1", "h2", "h3"), pods)

    first, second = planned(cluster, "h1", "h2")

    assert [("a", 0), ("b", 0)] == [(job.job_id, job.homeless_count) for job in first.jobs]
    assert [("c", 1)] == [(job.job_id, job.homeless_count) for job in second.jobs]
    (alone,) = planned(cluster, "h2")
    assert [("c", 0)] == [(job.job_id, job.homeless_count) for job in alone.jobs]


def test_for_more_pods_than_a_bound_no_host_is_looked_for() -> None:
    """They are counted, and not said to have none."""
    pods = pods_on("web", "h1", cpu(0), HOMES_SOUGHT_MAX + 2)
    cluster = Cluster(hosts_of("h1", "h2", "h3"), pods)

    (found,) = planned(cluster, "h1")

    assert (2, 0) == (found.unchecked_count, found.jobs[0].homeless_count)
