"""Reads of many jobs at once agree with the reads of each job, pod and update, however they are cut into batches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from peloton.api import convert, convert_v1, convert_v1_spec
from peloton.api.private import bulk_reads_pb2 as reads
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.peloton_pb2 import Label
from peloton.api.v1alpha.pod import pod_pb2
from peloton.errors import InvalidArgument
from peloton.model.ids import JobId, new_job_id
from peloton.model.job import JobState
from peloton.model.update import UpdateSpec
from services.api import bulk_reads
from services.api.bulk_reads import BulkReads
from services.api.calls import Calls
from services.storage.storage import Storage
from tests.conformance.storage.builders import NOW, SECOND, K, report, settle_all
from tests.conformance.storage.services import roll, service_config, update

LABELS = [Label(key="aurora_job_key_role", value="maps"), Label(key="mark", value="bridge")]


@pytest.fixture
async def service(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BulkReads]:
    """Serve batches of a few rows, so that each answer has several."""
    for name, size in {"JOBS_PER_BATCH": 2, "RUNS_PER_BATCH": 6, "UPDATES_WITH_INSTANCES_PER_BATCH": 2}.items():
        monkeypatch.setattr(bulk_reads, name, size)
    calls = Calls()
    yield BulkReads(storage, calls)
    await calls.close()


def make_spec(name: str, count: int, command: str = "v1", own: tuple[int, ...] = ()) -> stateless_pb2.JobSpec:
    """Return a spec in which the instances ``own`` have an equal spec of their own."""
    spec = stateless_pb2.JobSpec(name=name, instance_count=count, owning_team="maps", labels=LABELS)
    spec.respool_id.value = "pool"
    spec.default_spec.containers.add().entrypoint.value = command
    for instance in own:
        spec.instance_spec[instance].CopyFrom(spec.default_spec)
        spec.instance_spec[instance].labels.add(key="pinned", value="yes")
    return spec


def create(storage: Storage, spec: stateless_pb2.JobSpec, at: int = 0, is_rolled: bool = True) -> JobId:
    config, job_id = convert_v1_spec.job_config(spec), new_job_id()
    record = convert.new_job_record(job_id, config, NOW + at * SECOND)
    sent = spec.SerializeToString()
    storage.updates.create_service(record, config, sent, UpdateSpec(batch_size=2), f"opaque of {spec.name}", NOW)
    if is_rolled:
        roll(storage, job_id)
    return job_id


def create_by_v0(storage: Storage) -> JobId:
    config, job_id = service_config(2, "serve"), new_job_id()
    storage.updates.create_service(convert.new_job_record(job_id, config, NOW), config, b"", UpdateSpec(), "", NOW)
    roll(storage, job_id)
    return job_id


def change(storage: Storage, job_id: JobId, spec: stateless_pb2.JobSpec, is_rolled: bool = True) -> None:
    config = convert_v1_spec.job_config(spec)
    update(storage, job_id, config, UpdateSpec(batch_size=3), job_spec=spec.SerializeToString(), opaque="changed")
    if is_rolled:
        roll(storage, job_id)


def delete(storage: Storage, job_id: JobId) -> None:
    storage.jobs.set_service_goal(job_id, None, JobState.DELETED, True, NOW)
    for _ in range(3):
        settle_all(storage, job_id)
        report(storage, job_id, [row[0].instance_id for row in storage.host_pods.mark_killing(job_id, 10)], K)
    storage.jobs.delete(job_id)


async def jobs_of(service: BulkReads, **request: Any) -> list[reads.Job]:
    return [job async for batch in service.ListJobs(reads.ListJobsRequest(**request), None) for job in batch.jobs]


async def test_jobs_by_label_and_by_name(storage: Storage, service: BulkReads) -> None:
    """Deleted jobs, and jobs that lack a label, are skipped; a name finds the newest job that had it."""
    ids = [create(storage, make_spec(f"maps/prod/job{i}", count=i), at=i) for i in range(5)]
    create(storage, stateless_pb2.JobSpec(name="other", labels=LABELS[:1]))
    delete(storage, ids[3])
    there = [ids[i] for i in (0, 1, 2, 4)]

    found = await jobs_of(service, labels=LABELS)
    assert there == [job.job_id for job in found]
    for job in found:
        record = storage.jobs.get(JobId(job.job_id))
        assert record is not None
        counts = {convert_v1.POD_STATE_NUMBERS[s.public]: n for s, n in record.pod_counts.items()}
        assert (record.name, record.instance_count, counts) == (job.name, job.instance_count, dict(job.pod_counts))
        assert (str(record.entity_version), 1) == (job.version, job.config_version)
        assert make_spec(record.name, record.instance_count) == job.spec

    names = ["maps/prod/job4", "maps/prod/job3", "nosuch", "maps/prod/job1"]
    assert {ids[4], ids[1]} == {job.job_id for job in await jobs_of(service, names=names)}


async def test_spec_of_a_job_of_v0(storage: Storage, service: BulkReads) -> None:
    """A job that has no spec of v1alpha has one made of its configuration."""
    job_id = create_by_v0(storage)
    [job] = await jobs_of(service, names=["train"])
    assert "serve" == job.spec.default_spec.containers[0].command.value
    pods = await pods_of(service, [job_id])
    assert job.spec.default_spec == pods[job_id, 0][0]["spec"]


async def pods_of(
    service: BulkReads, job_ids: list[JobId], runs: int = 0
) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Read pods, and resolve the numbers of texts, events and specs."""
    specs: list[pod_pb2.PodSpec] = []
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    async for batch in service.ListPods(reads.ListPodsRequest(job_ids=job_ids, runs=runs), None):
        specs += batch.specs
        events = iter(batch.event)
        for at, instance in enumerate(batch.instance):
            one = {
                "run": batch.run[at],
                "state": batch.state[at],
                "host": batch.texts[batch.host[at]],
                "agent": batch.texts[batch.agent_id[at]],
                "version": batch.config_version[at],
                "spec": specs[batch.spec[at] - 1] if batch.spec[at] else None,
                "events": [batch.events[next(events)] for _ in range(batch.event_count[at])],
            }
            found.setdefault((job_ids[batch.job[at]], instance), []).append(one)
    return found


async def test_pods_and_their_runs(storage: Storage, service: BulkReads) -> None:
    """Current pods agree with the public reads, and each run has its own events, state and spec."""
    plain, pinned = make_spec("maps/prod/a", 3), make_spec("maps/prod/b", 5)
    ids = [create(storage, plain, is_rolled=False), create(storage, pinned), create_by_v0(storage)]
    change(storage, ids[1], make_spec("maps/prod/b", 4, "v2", own=(1, 2)))
    report(storage, ids[1], [3], K)

    current = await pods_of(service, ids)
    assert current.keys() == {(ids[1], i) for i in range(4)} | {(ids[2], i) for i in range(2)}
    for (job_id, instance), [one] in current.items():
        pod = storage.pods.get(JobId(job_id), instance)
        assert pod is not None
        state = convert_v1.POD_STATE_NUMBERS[pod.state.public]
        assert (pod.run_id, state, pod.host, pod.agent_id, pod.config_version, []) == tuple(
            one[key] for key in ("run", "state", "host", "agent", "version", "events")
        )
    assert 1 == len({id(current[ids[1], i][0]["spec"]) for i in (0, 3)} | {id(current[ids[1], 0][0]["spec"])})
    own = [bool(current[ids[1], i][0]["spec"].labels) for i in range(4)]
    assert [False, True, True, False] == own

    both = await pods_of(service, ids, runs=2)
    for (job_id, instance), runs in both.items():
        assert [one["run"] for one in runs] == sorted((one["run"] for one in runs), reverse=True)
        for one in runs:
            events = storage.pods.events(JobId(job_id), instance, one["run"])[::-1]
            texts = [(e.time_ns // SECOND, convert_v1.POD_STATE_NUMBERS[e.state.public], e.message) for e in events]
            assert texts == [(event.time_s, event.state, event.message) for event in one["events"]]
            assert texts[-1][1] == one["state"]
    before, now = both[ids[1], 0][1], both[ids[1], 0][0]
    commands = [one["spec"].containers[0].entrypoint.value for one in (before, now)]
    assert (["v1", "v2"], [1, 2]) == (commands, [before["version"], now["version"]])


async def updates_of(service: BulkReads, job_ids: list[JobId], **request: Any) -> list[reads.Update]:
    wanted = reads.ListUpdatesRequest(job_ids=job_ids, **request)
    return [update async for batch in service.ListUpdates(wanted, None) for update in batch.updates]


async def test_updates_and_their_events(storage: Storage, service: BulkReads) -> None:
    """Updates come newest first, with the events that the public reads return."""
    ids = [create(storage, make_spec(f"maps/prod/{name}", 4), at=at) for at, name in enumerate("abc")]
    change(storage, ids[1], make_spec("maps/prod/b", 3, "v2"))
    change(storage, ids[1], make_spec("maps/prod/b", 6, "v3"), is_rolled=False)

    found = await updates_of(service, ids, instance_events=True)
    assert {0: 1, 1: 3, 2: 1} == {job: [one.job for one in found].count(job) for job in range(3)}
    for at, job_id in enumerate(ids):
        for record, one in zip(storage.updates.of_job(job_id), [one for one in found if one.job == at], strict=True):
            assert (record.config_version, record.opaque_data) == (one.config_version, one.opaque_data)
            assert convert_v1.update_spec(record.spec) == one.spec
            for name in ("added", "updated", "removed"):
                assert convert_v1.ranges(getattr(record, name)) == list(getattr(one, name))
            mine = [event for event in one.events if not event.instances]
            states = [convert_v1.WORKFLOW_STATE_NUMBERS[e.state] for e in storage.updates.events(record.update_id)]
            assert states[::-1] == [event.state for event in mine]
            named = {
                i for event in one.events for span in event.instances for i in range(getattr(span, "from"), span.to + 1)
            }
            assert storage.updates.instance_events(record.update_id).keys() == named
    summaries = await updates_of(service, ids, updates_limit=2)
    assert [1, 1, 2] == sorted([one.job for one in summaries].count(job) for job in range(3))
    assert not any(event.instances for one in summaries for event in one.events)


async def test_bounds(storage: Storage, service: BulkReads) -> None:
    """Requests beyond the bounds are refused with the numbers; ids that are none belong to no job."""
    refused = [
        service.ListJobs(reads.ListJobsRequest(names=["n"] * 1_001), None),
        service.ListJobs(reads.ListJobsRequest(labels=LABELS * 9), None),
        service.ListPods(reads.ListPodsRequest(runs=101), None),
        service.ListUpdates(reads.ListUpdatesRequest(job_ids=["j"] * 10_001), None),
    ]
    for stream, number in zip(refused, ("1001", "18", "101", "10001"), strict=True):
        with pytest.raises(InvalidArgument, match=number):
            await anext(aiter(stream))
    assert {} == await pods_of(service, [JobId("job-1"), new_job_id()], runs=1)
