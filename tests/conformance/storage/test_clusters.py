"""Pods, hosts and leaders of several clusters in one database."""

from __future__ import annotations

import sqlalchemy as sa

from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.maintenance import MaintenanceRequest
from peloton.model.pod import PodStatus
from peloton.model.resources import Resources
from services.storage.pods.host_pods import LaunchRow
from services.storage.storage import Storage
from services.storage.tables import POD
from tests.conformance.storage.builders import KILLING, NOW, SECOND, K, R, S, a_job, admit, pod, states

A, B = "a", "b"


def a_job_in_both(storage: Storage, **config: object) -> JobId:
    """Create a job whose instances 0 and 1 are RUNNING on host0 and host1 of A, and 2 and 3 on hosts of B."""
    job_id = a_job(storage, 4, **config)
    admit(storage, job_id)
    for cluster, instances in ((A, (0, 1)), (B, (2, 3))):
        rows: list[LaunchRow] = [(i, 1, f"host{i}", f"agent{i}", {}) for i in instances]
        assert set(instances) == storage.host_pods.mark_launched(job_id, rows, NOW, cluster)
        storage.host_pods.apply_status([PodStatus(PodId(job_id, i, 1), R, NOW) for i in instances], cluster)
    storage.jobs.settle(job_id, NOW)
    return job_id


def test_a_pod_knows_its_cluster_from_its_launch_on(storage: Storage) -> None:
    """Each cluster reads, marks and reconciles its own pods. A cluster that never launched has none."""
    job_id = a_job_in_both(storage)

    assert [A, A, B, B] == [pod(storage, job_id, i).cluster for i in range(4)]
    for cluster, mine in ((A, [0, 1]), (B, [2, 3]), ("c", [])):
        assert mine == [row[0].instance_id for page in storage.host_pods.on_hosts(cluster) for row in page]
    assert [0, 2] == [len(storage.host_pods.hosted_pods(["host2", "host3"], c)[Hostname("host2")]) * 2 for c in (A, B)]

    storage.pods.set_goals(job_id, [(0, 4)], K, NOW, "stop")
    assert [2, 3] == [row[0].instance_id for row in storage.host_pods.mark_killing(job_id, 10, cluster=B)]
    assert [R, R, KILLING, KILLING] == states(storage, job_id)
    assert [0, 1] == [row[0].instance_id for row in storage.host_pods.mark_killing(job_id, 10, cluster=A)]


def test_a_report_of_another_cluster_is_not_believed(storage: Storage) -> None:
    """A report of the pod's end is ignored, and a run that is reported as running has to be killed."""
    job_id = a_job_in_both(storage)
    stranger = PodId(job_id, 0, 1)

    ended = storage.host_pods.apply_status([PodStatus(stranger, S, NOW + SECOND)], B)
    alive = storage.host_pods.apply_status([PodStatus(stranger, R, NOW + SECOND)], B)

    assert ([], [stranger]) == (ended.orphans, alive.orphans)
    assert R is pod(storage, job_id, 0).state
    assert [stranger] == storage.host_pods.apply_status([PodStatus(stranger, S, NOW + SECOND)], A).ended


def test_maintenance_is_of_a_host_of_one_cluster(storage: Storage) -> None:
    """A host of the same name in another cluster takes pods."""
    storage.maintenance.request(A, [MaintenanceRequest(Hostname("host0"), "")], 1, NOW)
    job_id = a_job(storage, 1)
    admit(storage, job_id)
    rows: list[LaunchRow] = [(0, 1, "host0", "agent", {})]

    assert set() == storage.host_pods.mark_launched(job_id, rows, NOW, A)
    assert {0} == storage.host_pods.mark_launched(job_id, rows, NOW, B)


def test_host_names_belong_to_one_cluster(storage: Storage) -> None:
    """The first cluster that claims a name has it until it gives it back. Hosts in maintenance are known, too."""
    many = [f"h{i:04}" for i in range(1_201)]
    assert {} == storage.hosts.claim(A, many)
    assert {} == storage.hosts.claim(A, many[:3])
    assert {"h0001": A, "h1200": A} == storage.hosts.claim(B, ["h0001", "h1200", "other"])
    assert (set(many), {"other"}) == (storage.hosts.list_claimed(A), storage.hosts.list_claimed(B))

    storage.hosts.disclaim(A, ["h0001", "other"])
    storage.maintenance.request(B, [MaintenanceRequest(Hostname("down"), "")], 1, NOW)

    assert {"h0000": A, "other": B, "down": B} == storage.hosts.clusters_of(["h0000", "h0001", "other", "down"])
    assert {} == storage.hosts.claim(B, ["h0001"])
    assert {} == storage.hosts.clusters_of([])


def test_clusters_are_those_that_ran_pods_or_are_led(storage: Storage) -> None:
    """Leases of other roles and leases that have expired do not count."""
    assert {} == storage.leases.clusters(100.0)
    storage.hosts.set_framework_id(B, "f1")
    storage.leases.acquire("hostmgr/a", "me", "host:1", 10, 100.0)
    storage.leases.acquire("hostmgr/b", "me", "host:2", 10, 100.0)
    storage.leases.acquire("hostmgr", "old", "host:3", 10, 100.0)
    storage.leases.acquire("hostmgrxa", "other", "host:4", 10, 100.0)

    assert {"a": "host:1", "b": "host:2"} == storage.leases.clusters(105.0)
    assert ["a", "b"] == list(storage.leases.clusters(105.0))
    assert {"b": ""} == storage.leases.clusters(110.0)


def test_what_pods_of_a_cluster_hold(storage: Storage) -> None:
    """The sum covers pods on hosts, with revocable cpu apart."""
    a_job_in_both(storage)
    revocable = a_job_in_both(storage, revocable=True, preemptible=True)
    assert (Resources(3_000, 400), Resources(3_000)) == storage.host_pods.sum_held(B)

    storage.host_pods.apply_status([PodStatus(PodId(revocable, 2, 1), S, NOW)], B)

    assert (Resources(3_000, 300), Resources(1_500)) == storage.host_pods.sum_held(B)
    assert (Resources(), Resources()) == storage.host_pods.sum_held("c")


def test_pods_that_come_back_know_the_cluster_of_their_host(storage: Storage) -> None:
    """Pods that may go to any host name no cluster."""
    job_id = a_job_in_both(storage)
    of_three = sa.update(POD).where(POD.c.instance_id < 3).values(desired_host=POD.c.host)
    storage.db.write(lambda conn: conn.execute(of_three))
    for i in range(4):
        storage.host_pods.evict_from_host(job_id, f"host{i}", NOW)
    for cluster in (A, B):
        killed = [row[0] for row in storage.host_pods.mark_killing(job_id, 10, cluster=cluster)]
        storage.host_pods.apply_status([PodStatus(one, K, NOW) for one in killed], cluster)
    storage.jobs.settle(job_id, NOW)
    admit(storage, job_id)

    found = [(gang.desired_host, gang.desired_cluster) for gang in storage.pods.ready_gangs(job_id, 10)]

    assert [("host0", A), ("host1", A), ("host2", B), ("", "")] == found


def test_hosts_by_a_part_of_their_names(storage: Storage) -> None:
    """Case is ignored, and wildcards of patterns stand for themselves."""
    storage.hosts.claim(A, ["b-rack4", "Rack2", "rack1", "y_6"])
    storage.hosts.claim(B, ["rackx3", "z%5"])

    assert [("rack1", A), ("Rack2", A), ("rackx3", B), ("b-rack4", A)] == storage.hosts.like("RACK", 9)
    assert [("y_6", A)] == storage.hosts.like("_", 9)
    assert [("z%5", B)] == storage.hosts.like("%", 9)
    assert 2 == len(storage.hosts.like("rack", 2))
