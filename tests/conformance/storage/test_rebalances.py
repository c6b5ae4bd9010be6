"""Pods as rebalancing reads them."""

from __future__ import annotations

from peloton.model.pod import TerminationReason
from peloton.model.rebalance import Stays
from services.storage.moves.rebalances import WAITED_MIN_S
from services.storage.storage import Storage
from tests.conformance.storage import test_rebalancing, test_volumes
from tests.conformance.storage.builders import NOW, Clock, R, a_job, a_running_job, admit, report
from tests.conformance.storage.services import a_service, service_config, update


def staying(storage: Storage, cluster: str = "") -> dict[int, Stays | None]:
    return {pod.pod_id.instance_id: pod.stays for pod in storage.rebalances.census(cluster).pods}


def test_pods_of_services_on_hosts_of_the_cluster(storage: Storage) -> None:
    """Pods of services are listed with their shape. Pods of other jobs are counted by host."""
    service = a_service(storage, 4)
    a_running_job(storage, 4)

    found = storage.rebalances.census("")

    assert [(service, i, f"host{i % 3}") for i in range(4)] == [
        (pod.pod_id.job_id, pod.pod_id.instance_id, pod.hostname) for pod in found.pods
    ]
    assert {(1500, (), None)} == {(pod.shape.resources.cpu_milli, pod.labels, pod.stays) for pod in found.pods}
    assert {"host0": {Stays.BATCH: 2}, "host1": {Stays.BATCH: 1}, "host2": {Stays.BATCH: 1}} == found.others
    elsewhere = storage.rebalances.census("elsewhere")
    assert ([], {}) == (list(elsewhere.pods), elsewhere.others)


def test_grants_are_what_the_sla_leaves(storage: Storage) -> None:
    """A service without an SLA may lack a tenth of its instances, at least one. A missing instance uses one up."""
    strict, none = a_service(storage, 4, maximumUnavailableInstances=2), a_service(storage, 4)
    large = a_service(storage, 30)
    assert {strict: 2, none: 1, large: 3} == storage.rebalances.census("").grants

    for job_id in (strict, none):
        storage.disruptions.disrupt(
            job_id, [1], reason=TerminationReason.KILLED_HOST_MAINTENANCE, message="", checks_sla=True, now_ns=NOW
        )

    assert {strict: 1, none: 0, large: 3} == storage.rebalances.census("").grants


def test_pods_that_leave_stay_out_of_it(storage: Storage) -> None:
    """Pods that leave run again elsewhere, and are placed by placement."""
    job_id = a_service(storage, 2)
    storage.disruptions.disrupt(
        job_id, [1], reason=TerminationReason.KILLED_HOST_MAINTENANCE, message="", checks_sla=True, now_ns=NOW
    )

    assert {0: None, 1: Stays.LEAVING} == staying(storage)


def test_an_update_has_its_service_to_itself(storage: Storage) -> None:
    """A service with an update under way is left out, so that only the update takes instances down."""
    job_id = a_service(storage, 2)
    update(storage, job_id, service_config(2, "v2"))

    assert {0: Stays.UPDATE, 1: Stays.UPDATE} == staying(storage)


def test_a_pod_that_comes_back_waits_for_its_host(storage: Storage, clock: Clock) -> None:
    """A pod with a volume waits for its host, and is not listed for another cluster."""
    job_id = test_volumes.a_database(storage)
    test_volumes.launch(storage, job_id, {0: "host0", 1: "host1"}, cluster="")
    report(storage, job_id, [0, 1], R)
    why = TerminationReason.KILLED_FOR_SLA_AWARE_RESTART
    storage.disruptions.disrupt(job_id, [0], reason=why, message="", checks_sla=True, now_ns=NOW)
    test_rebalancing.end_and_queue(storage, job_id)
    clock.advance(WAITED_MIN_S)

    assert [(1, "host0")] == [(one.count, one.home) for one in storage.rebalances.census("").waiting]
    assert () == tuple(storage.rebalances.census("west").waiting)


def test_jobs_with_pods_in_other_clusters_are_known(storage: Storage) -> None:
    """A plan for one cluster does not see the pods that its jobs have in others."""
    job_id, waiting = a_service(storage, 2), a_job(storage, 2)

    assert (set(), {job_id}) == tuple(
        storage.rebalances.are_elsewhere([job_id, waiting], cluster) for cluster in ("", "west")
    )


def test_pods_that_have_waited_for_a_host(storage: Storage, clock: Clock) -> None:
    """The pods are grouped by shape. A pod that was admitted a moment ago is left out."""
    job_id = a_job(storage, 4, unlike=[3])
    admit(storage, job_id)
    assert [] == list(storage.rebalances.census("").waiting)

    clock.advance(WAITED_MIN_S)

    found = storage.rebalances.census("").waiting
    assert [(1500, 3, WAITED_MIN_S), (5000, 1, WAITED_MIN_S)] == [
        (one.shape.resources.cpu_milli, one.count, one.waited_s) for one in found
    ]
    assert {job_id} == {one.job_id for one in found}
