"""External pods, which are instances of their owners' jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peloton.api.v0.job import job_pb2
from peloton.model.admission import EvictionOrder
from peloton.model.ids import JobId, PodId
from peloton.model.job import JobState, JobType
from peloton.model.pod import Cause, PodState
from services.storage.moves.bindings import bind
from services.storage.pods.external_pods import JOB_CLUSTER_LABEL, Arrival
from services.storage.storage import Storage
from tests.conformance.storage.builders import NOW, R, admit, launch, pod, report, run, settle_all, states
from tests.reasons import PREEMPTED

JOB = JobId("5d3a3f0e-9b1c-4e0c-8a6e-2f8f64a4d1aa")
CLUSTER = "k8s"
WAITS, P, S, K = PodState.INITIALIZED, PodState.PENDING, PodState.SUCCEEDED, PodState.KILLED


def a_config(cpu: float = 1.0, **sla: Any) -> job_pb2.JobConfig:
    config = job_pb2.JobConfig(name="default/train", type=job_pb2.EXTERNAL, owningTeam="default")
    config.sla.CopyFrom(job_pb2.SlaConfig(preemptible=True, **sla))
    config.respoolID.value = "pool"
    config.labels.add(key=JOB_CLUSTER_LABEL, value=CLUSTER)
    config.defaultConfig.resource.cpuLimit = cpu
    config.defaultConfig.preemptionPolicy.killOnPreempt = True
    return config


def take(storage: Storage, uids: Sequence[str], config: job_pb2.JobConfig | None = None, job_id: JobId = JOB) -> None:
    arrival = Arrival(job_id, config or a_config(), {uid: f"default/{uid}" for uid in uids})
    storage.external_pods.adopt(CLUSTER, arrival, NOW)


def instances(storage: Storage) -> dict[str, int]:
    return {slot.uid: slot.instance_id for slot in storage.external_pods.slots(CLUSTER)}


def test_the_first_pod_of_an_owner_makes_its_job(storage: Storage) -> None:
    """The job has the owner's uid and a kind of its own. A repetition changes nothing."""
    for _ in range(2):
        take(storage, ["a", "b"])
    job = storage.jobs.get(JOB)
    assert job is not None
    assert (JobType.EXTERNAL, "default/train", 2, JobState.RUNNING) == (
        job.type, job.name, job.instance_count, job.goal
    )  # fmt: skip
    assert ({"a": 0, "b": 1}, [WAITS, WAITS]) == (instances(storage), states(storage, JOB))
    assert 2 == settle_all(storage, JOB).admit_count


def test_an_instance_is_used_again_by_the_owners_next_pod(storage: Storage) -> None:
    """The instance continues with its next run: numbers stay bounded, and Peloton never repeats a run that ended."""
    take(storage, ["a", "b"])
    run(storage, JOB)
    report(storage, JOB, [0], PodState.FAILED)
    settle_all(storage, JOB)
    assert PodState.FAILED is pod(storage, JOB, 0).state
    take(storage, ["b", "c"])
    assert ({"b": 1, "c": 0}, 2) == (instances(storage), pod(storage, JOB, 0).run_id)
    assert [WAITS, R] == states(storage, JOB)


def test_pods_are_found_by_their_instances(storage: Storage) -> None:
    """The answer contains pods of several jobs, of more instances than one statement reads, and no others."""
    other = JobId("6d3a3f0e-9b1c-4e0c-8a6e-2f8f64a4d1aa")
    many = [f"a{number:03}" for number in range(600)]
    take(storage, many)
    take(storage, ["b0", "b1"], job_id=other)
    found = storage.external_pods.uids_of([*((JOB, number) for number in range(1, 600)), (other, 0), (other, 7)])
    assert {(JOB, number): many[number] for number in range(1, 600)} | {(other, 0): "b0"} == found


def test_a_run_that_was_not_bound_waits_again(storage: Storage) -> None:
    """A pod whose launch the cluster refused is as it was before."""
    take(storage, ["a"])
    admit(storage, JOB)
    launch(storage, JOB)
    report(storage, JOB, [0], PodState.LOST, cause=Cause.RESOURCES_GONE)
    settle_all(storage, JOB)
    assert (WAITS, 2) == (pod(storage, JOB, 0).state, pod(storage, JOB, 0).run_id)


def test_a_run_follows_its_pod_to_the_host_that_is_reported(storage: Storage) -> None:
    """Another scheduler has placed the pod: the host of the launch was that of a fit test."""
    take(storage, ["a"])
    admit(storage, JOB)
    launch(storage, JOB)
    launched_on = pod(storage, JOB, 0).host
    report(storage, JOB, [0], PodState.LAUNCHED, agent_id="agent")
    moved = pod(storage, JOB, 0)
    assert ("host", "agent", PodState.LAUNCHED) == (moved.host, moved.agent_id, moved.state)
    assert launched_on != moved.host
    assert [] == report(storage, JOB, [0], PodState.LAUNCHED, agent_id="agent").changed_jobs


def test_an_evicted_pod_is_not_run_again(storage: Storage) -> None:
    """The owner of an evicted pod creates another one."""
    take(storage, ["a"])
    run(storage, JOB)
    storage.host_pods.evict_from_host(JOB, "host", NOW)
    assert PodState.PREEMPTING is pod(storage, JOB, 0).state
    report(storage, JOB, [0], PodState.KILLED)
    settle_all(storage, JOB)
    assert K is pod(storage, JOB, 0).state
    take(storage, ["b"])
    assert ({"b": 0}, WAITS) == (instances(storage), pod(storage, JOB, 0).state)


def test_a_pod_that_goes_while_it_waits_leaves_the_queue(storage: Storage) -> None:
    """A deleted pod that is not queued yet leaves at once. The resource manager removes a queued one."""
    take(storage, ["a", "b"])
    storage.admission.mark_pending(JOB, [(1, 1)], 1)
    storage.external_pods.stop(JOB, [0, 1], "its pod is gone", NOW)
    storage.external_pods.forget(CLUSTER, ["a", "b"])
    assert ([K, P], {}) == (states(storage, JOB), instances(storage))
    assert 1 == settle_all(storage, JOB).queued_kill_count


def test_a_queued_gang_leaves_its_queue_whole(storage: Storage) -> None:
    """The members that still wait form the gang again."""
    take(storage, ["a", "b", "c"], a_config(minimumRunningInstances=3))
    admit(storage, JOB)
    storage.external_pods.stop(JOB, [1], "its pod is gone", NOW)
    assert 3 == settle_all(storage, JOB).queued_kill_count


def test_a_gang_is_queued_when_all_of_it_has_come(storage: Storage) -> None:
    """Two of three pods wait for the third."""
    config = a_config(minimumRunningInstances=3)
    take(storage, ["a", "b"], config)
    assert 0 == settle_all(storage, JOB).admit_count
    take(storage, ["c"], config)
    assert 3 == settle_all(storage, JOB).admit_count


def test_a_member_that_fails_leaves_the_others_alone(storage: Storage) -> None:
    """The owner of a gang of external pods decides whether it ends."""
    take(storage, ["a", "b"], a_config(minimumRunningInstances=2))
    run(storage, JOB)
    report(storage, JOB, [0], PodState.FAILED)
    assert 0 == settle_all(storage, JOB).kill_count
    take(storage, ["c"])
    assert ({"a": 0, "b": 1, "c": 2}, 1) == (instances(storage), settle_all(storage, JOB).admit_count)


def test_unlike_pods_have_versions_of_their_own(storage: Storage) -> None:
    """Pods with different configurations have different versions, and pods with equal ones share a version."""
    take(storage, ["a"], a_config(cpu=1))
    take(storage, ["b"], a_config(cpu=2))
    take(storage, ["c"], a_config(cpu=1))
    assert [1, 2, 1] == [one.config_version for one in storage.pods.page(JOB)]


def test_a_job_ends_on_request_and_comes_back_with_the_next_pod(storage: Storage) -> None:
    """The state of the job follows its pods. Pool and priority come from the first pod after its return."""
    take(storage, ["a"])
    run(storage, JOB)
    report(storage, JOB, [0], S)
    settle_all(storage, JOB)
    assert [] == storage.external_pods.idle_jobs(CLUSTER)
    storage.external_pods.forget(CLUSTER, ["a"])
    assert ([JOB], []) == (storage.external_pods.idle_jobs(CLUSTER), storage.external_pods.idle_jobs("another"))
    storage.jobs.set_goal(JOB, JobState.KILLED, NOW)
    assert JobState.SUCCEEDED is settle_all(storage, JOB).state
    config = a_config(priority=7)
    config.respoolID.value = "other"
    take(storage, ["b"], config)
    job = storage.jobs.get(JOB)
    assert job is not None
    assert (JobState.PENDING, "other", 7, JobState.RUNNING) == (job.state, job.respool_id, job.sla.priority, job.goal)
    assert 1 == settle_all(storage, JOB).admit_count


def test_notes_say_why_pods_do_not_get_on(storage: Storage) -> None:
    """A note reports the reason until the pod proceeds."""
    take(storage, ["a", "b"])
    storage.external_pods.note(CLUSTER, {"a": "the budget web allows no disruption", "unknown": "no"})
    assert [("default/a", "the budget web allows no disruption")] == storage.external_pods.notes(JOB, 10)
    storage.external_pods.note(CLUSTER, {"a": ""})
    assert [] == storage.external_pods.notes(JOB, 10)


def test_a_pool_that_moves_leaves_external_pods_where_they_were_made(storage: Storage) -> None:
    """The pods are bound to their own cluster."""
    storage.db.write(lambda conn: bind(conn, "pool", "another"))
    take(storage, ["a"])
    admit(storage, JOB)
    [gang] = storage.pods.ready_gangs(JOB, 10)
    assert gang.shape.constraint is None


def test_the_cause_of_an_eviction_is_read_by_its_runs(storage: Storage) -> None:
    """Runs that are not evicted have none, nor has the instance's next run. Marking the kill keeps the cause."""
    take(storage, ["a", "b", "c"])
    run(storage, JOB)
    runs = [pod(storage, JOB, instance).pod_id for instance in range(3)]
    storage.admission.evict([EvictionOrder(JOB, 1, 1, False, PREEMPTED)])
    storage.host_pods.mark_killing(JOB, 10)

    found = storage.external_pods.causes_of(runs)
    assert [runs[1]] == list(found)
    assert found[runs[1]].startswith("preempted for job x of /q, which wants cpu 2")
    assert {} == storage.external_pods.causes_of([PodId(JOB, 1, runs[1].run_id + 1)])
    assert {} == storage.external_pods.causes_of([])
