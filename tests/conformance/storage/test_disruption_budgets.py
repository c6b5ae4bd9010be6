"""Disruption budgets: the number of pods of a service in one cluster that must stay when others drain its hosts."""

from __future__ import annotations

from peloton.api import convert
from peloton.model.ids import JobId, PodId, new_job_id
from peloton.model.pod import PodStatus
from services.storage.storage import Storage
from tests.conformance.storage.builders import NOW, F, R, a_running_job, admit, launch, runs_of
from tests.conformance.storage.services import ALL_AT_ONCE, a_service, service_config, turn

WEST, EAST = "west", "east"


def two_clusters(storage: Storage, maximum: int) -> JobId:
    """Create a service with three instances in the west and two in the east."""
    job_id, config = new_job_id(), service_config(5, maximumUnavailableInstances=maximum)
    storage.updates.create_service(convert.new_job_record(job_id, config, NOW), config, b"spec", ALL_AT_ONCE, "", NOW)
    turn(storage, job_id, starts=False)
    admit(storage, job_id)
    for cluster, count in ((WEST, 3), (EAST, 2)):
        started = launch(storage, job_id, count, cluster)
        runs = runs_of(storage, job_id)
        statuses = [PodStatus(PodId(job_id, i, runs[i]), R, NOW, host="host") for i in started]
        storage.host_pods.apply_status(statuses, cluster)
    return job_id


def test_a_service_keeps_what_its_sla_wants(storage: Storage) -> None:
    """The budget counts pods in the cluster. Pods that are missing elsewhere have used a part of the allowance."""
    job_id = two_clusters(storage, maximum=2)
    assert ({job_id: 1}, {job_id: 0}) == (storage.disruptions.budgets(WEST), storage.disruptions.budgets(EAST))

    storage.host_pods.apply_status([PodStatus(PodId(job_id, 4, 1), F, NOW, host="host")], EAST)

    assert ({job_id: 2}, {job_id: 0}) == (storage.disruptions.budgets(WEST), storage.disruptions.budgets(EAST))


def test_only_services_with_a_limit_are_budgets(storage: Storage) -> None:
    """A service without a limit has no budget, and any of its pods may be evicted."""
    a_service(storage, 2)
    a_running_job(storage, 2)

    assert {} == storage.disruptions.budgets("") | storage.disruptions.budgets("cluster")
