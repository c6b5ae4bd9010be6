"""Reads of the Aurora bridge over a running server of role api, of jobs that the bridge has started."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from peloton.model.ids import JobId
from peloton.model.job import JobState
from peloton.model.pod import PodState
from services.aurorabridge import lookup, reads, writes
from services.aurorabridge.backend import Backend
from services.aurorabridge.method import Refusal
from services.aurorabridge.settings import BridgeSettings
from services.aurorabridge.tasks import count_runs
from services.aurorabridge.thrift import api
from services.storage.storage import Storage
from tests.conformance.storage.builders import report, settle_all
from tests.conformance.storage.services import roll
from tests.unit.api_service.aurora import POOL, Pools
from tests.unit.aurorabridge.scenario import KEY, task_config, update_request

Status, Update = api.ScheduleStatus, api.JobUpdateStatus
OTHER = api.JobKey(role="ads", environment="staging", name="web")
FOREIGN = api.JobKey(role="maps", environment="prod", name="tiles")


class Bridge(Backend):
    async def call(self, method: str, **args: Any) -> Any:
        methods = {**reads.METHODS, **writes.METHODS}
        return await methods[method](self, getattr(api.AuroraSchedulerManager, f"{method}_args")(**args))


@pytest.fixture
async def bridge(address: str, storage: Storage) -> AsyncIterator[Bridge]:
    bridge = Bridge(address, BridgeSettings(pod_runs_depth=2))
    bridge.__dict__["pools"] = Pools(storage, {"/AuroraBridge": POOL})
    yield bridge
    await bridge.close()


async def start(bridge: Bridge, storage: Storage, key: Any = KEY, command: str = "sleep 100", **request: Any) -> str:
    """Start an update and take it to its end; returns its id."""
    metadata = [api.Metadata("build", command)]
    wanted = update_request(task_config(command, job=key, metadata=metadata), metadata=metadata, **request)
    result = await bridge.call("startJobUpdate", request=wanted, message=f"start {command}")
    roll(storage, job_id_of(storage, key))
    return str(result.startJobUpdateResult.key.id)


def job_id_of(storage: Storage, key: Any) -> JobId:
    return storage.search.services_named(f"{key.role}/{key.environment}/{key.name}")[0]


def remove(storage: Storage, key: Any) -> None:
    job_id = job_id_of(storage, key)
    storage.jobs.set_service_goal(job_id, None, JobState.DELETED, True, 1)
    for _ in range(3):
        settle_all(storage, job_id)
        killing = [row[0].instance_id for row in storage.host_pods.mark_killing(job_id, 10)]
        report(storage, job_id, killing, PodState.KILLED)
    storage.jobs.delete(job_id)


async def refusal(call: Any) -> str:
    with pytest.raises(Refusal) as caught:
        await call
    return str(caught.value)


async def test_jobs_of_a_role_and_of_all(bridge: Bridge, storage: Storage) -> None:
    """Jobs have the configuration that started them, their counts, and a count of active pods; a job without instances
    and a deleted one are left out."""
    for key, count in ((KEY, 3), (OTHER, 1), (FOREIGN, 2)):
        await start(bridge, storage, key, count=count)
    report(storage, job_id_of(storage, KEY), [2], PodState.FAILED)
    storage.jobs.settle(job_id_of(storage, KEY), 1)

    summaries = (await bridge.call("getJobSummary", role="ads")).jobSummaryResult.summaries
    assert [(KEY, 3), (OTHER, 1)] == [(one.job.key, one.job.instanceCount) for one in summaries]
    first = summaries[0]
    assert (2, 1) == (first.stats.activeTaskCount, first.stats.failedTaskCount + first.stats.pendingTaskCount)
    assert api.Identity(user="ann") == first.job.owner == first.job.taskConfig.owner
    assert task_config().executorConfig.name == first.job.taskConfig.executorConfig.name
    configs = (await bridge.call("getJobs", ownerRole=None)).getJobsResult.configs
    assert [(KEY, 2), (OTHER, 1), (FOREIGN, 2)] == [(one.key, one.instanceCount) for one in configs]

    await start(bridge, storage, OTHER, count=0)
    remove(storage, FOREIGN)
    assert [KEY] == [one.key for one in (await bridge.call("getJobs", ownerRole="")).getJobsResult.configs]
    assert [] == (await bridge.call("getJobs", ownerRole="nosuch")).getJobsResult.configs


async def tasks_of(bridge: Bridge, **query: Any) -> list[Any]:
    result = await bridge.call("getTasksWithoutConfigs", query=api.TaskQuery(**query))
    tasks = result.scheduleStatusResult.tasks
    assert len(tasks) == len(list(tasks))
    return list(tasks)


async def test_tasks_of_a_job(bridge: Bridge, storage: Storage) -> None:
    """Each run is a task with its own configuration and events; all but the first have an ancestor."""
    await start(bridge, storage, command="v1", count=2)
    await start(bridge, storage, command="v2", count=2)
    job_id = job_id_of(storage, KEY)
    found = await tasks_of(bridge, role="ads", environment="prod", jobName="web")

    names = [(f"{job_id}-{i}-{run}", f"{job_id}-{i}-{run - 1}" if run > 1 else None) for i in (0, 1) for run in (2, 1)]
    assert names == [(task.assignedTask.taskId, task.ancestorId) for task in found]
    builds = [[one.value for one in task.assignedTask.task.metadata] for task in found]
    assert [["v2"], ["v1"]] * 2 == builds
    assert [Status.RUNNING, Status.KILLED] * 2 == [task.status for task in found]
    for task in found:
        events = task.taskEvents
        assert (task.status, "peloton") == (events[-1].status, events[-1].scheduler)
        assert {0} == {event.timestamp % 1_000 for event in events}
        assert (None, None) == (task.failureCount, task.assignedTask.task.executorConfig)
        assert KEY == task.assignedTask.task.job
    current = found[0].assignedTask
    assert (0, "agent", True) == (current.instanceId, current.slaveId, current.slaveHost.startswith("host"))
    assert Status.INIT == found[0].taskEvents[0].status


async def test_which_tasks_a_query_finds(bridge: Bridge, storage: Storage) -> None:
    """Jobs are found by keys, by any part of their key, or all; unknown ones are skipped, and statuses filter tasks."""
    for key in (KEY, OTHER, FOREIGN):
        await start(bridge, storage, key, count=1)
    nosuch = api.JobKey(role="ads", environment="prod", name="nosuch")

    async def jobs(**query: Any) -> list[Any]:
        return [task.assignedTask.task.job for task in await tasks_of(bridge, **query)]

    assert [OTHER] == await jobs(jobKeys=[OTHER, nosuch], role="maps")
    assert [KEY] == await jobs(role="ads", environment="prod", jobName="web")
    assert [] == await jobs(role="ads", environment="prod", jobName="nosuch")
    for query, keys in (({"role": "ads"}, (KEY, OTHER)), ({"environment": "prod"}, (KEY, FOREIGN)), ({}, None)):
        found = await jobs(**query)
        assert {key.environment + key.role for key in keys or (KEY, OTHER, FOREIGN)} == {
            key.environment + key.role for key in found
        }
    assert [] == await jobs(statuses=[Status.PENDING, Status.PARTITIONED])
    assert 3 == len(await jobs(statuses=[Status.RUNNING], instanceIds=[7], limit=1))
    assert "unknown schedule status" in await refusal(tasks_of(bridge, statuses=[99]))
    assert "query is missing" in await refusal(bridge.call("getTasksWithoutConfigs", query=None))


async def test_bounds_of_answers(bridge: Bridge, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that find too much are refused with the bound, and with what to name instead."""
    await start(bridge, storage, count=2)
    await start(bridge, storage, OTHER, count=1)
    monkeypatch.setattr(reads, "TASKS_MAX", 1)
    assert "more than 1 tasks: name a job" in await refusal(tasks_of(bridge))
    assert 1 == len(await tasks_of(bridge, jobKeys=[OTHER]))
    monkeypatch.setattr(reads, "INSTANCE_EVENTS_MAX", 1)
    query = api.JobUpdateQuery(role="ads")
    assert "more than 1 events" in await refusal(bridge.call("getJobUpdateDetails", key=None, query=query))
    assert await bridge.call("getJobUpdateSummaries", jobUpdateQuery=query)
    monkeypatch.setattr(lookup, "JOBS_MAX", 1)
    assert "more than 1 such jobs: name a role" in await refusal(bridge.call("getJobs", ownerRole=None))


@pytest.mark.parametrize(
    ("pods", "depth", "runs"),
    [(0, 6, 1), (1, 6, 6), (100, 6, 6), (400, 6, 3), (1_000, 6, 2), (10_000, 6, 2), (10_000, 1, 1), (5, 1_000, 100)],
)
def test_runs_of_many_pods(pods: int, depth: int, runs: int) -> None:
    """A thousand tasks are read to the full depth, more pods to two runs each at least."""
    assert runs == count_runs(pods, depth, tasks_max=1_000)


async def test_groups_of_equal_configurations(bridge: Bridge, storage: Storage) -> None:
    """Instances that an update has left alone have the configuration before it; labels that force a restart count
    not."""
    await start(bridge, storage, command="v1", count=5)
    pinned = api.JobUpdateSettings(updateGroupSize=5, updateOnlyTheseInstances=[api.Range(1, 2)])
    await start(bridge, storage, command="v2", count=5, settings=pinned)
    summary = (await bridge.call("getConfigSummary", job=KEY)).configSummaryResult.summary

    groups = {
        group.config.metadata[0].value: [(span.first, span.last) for span in group.instances]
        for group in summary.groups
    }
    assert (KEY, {"v1": [(0, 0), (3, 4)], "v2": [(1, 2)]}) == (summary.key, groups)
    assert "ads/staging/web not found" in await refusal(bridge.call("getConfigSummary", job=OTHER))


async def test_updates_of_a_job(bridge: Bridge, storage: Storage) -> None:
    """Summaries and details name each update by its id, newest first; an update of another job is not among them."""
    first, second = [await start(bridge, storage, command=command) for command in ("v1", "v2")]
    other = await start(bridge, storage, OTHER)

    async def summaries(**query: Any) -> list[str]:
        result = await bridge.call("getJobUpdateSummaries", jobUpdateQuery=api.JobUpdateQuery(**query))
        return [one.key.id for one in result.getJobUpdateSummariesResult.updateSummaries]

    assert [first] == await summaries(key=api.JobUpdateKey(job=KEY, id=first))
    assert {first, second} == set(await summaries(jobKey=KEY))
    assert {first, second, other} == set(await summaries(role="ads")) == set(await summaries())
    assert [] == await summaries(jobKey=FOREIGN) == await summaries(jobKey=KEY, updateStatuses=[Update.ABORTED])

    key = api.JobUpdateKey(job=KEY, id=second)
    query = api.JobUpdateQuery(jobKey=OTHER)
    result = await bridge.call("getJobUpdateDetails", key=key, query=query)
    [details] = result.getJobUpdateDetailsResult.detailsList
    assert (key, Update.ROLLED_FORWARD) == (details.update.summary.key, details.update.summary.state.status)
    assert (Update.ROLLING_FORWARD, "start v2") == (details.updateEvents[0].status, details.updateEvents[0].message)
    assert {0, 1, 2} == {event.instanceId for event in details.instanceEvents}
    [initial] = details.update.instructions.initialState
    assert ([api.Metadata("build", "v1")], [api.Range(0, 2)]) == (initial.task.metadata, initial.instances)


async def test_an_update_without_a_difference(bridge: Bridge, storage: Storage) -> None:
    """The update succeeds without an event of an instance."""
    await start(bridge, storage, command="v1")
    again = await start(bridge, storage, command="v1", settings=api.JobUpdateSettings(updateGroupSize=7))
    result = await bridge.call("getJobUpdateDetails", key=api.JobUpdateKey(job=KEY, id=again), query=None)
    [details] = result.getJobUpdateDetailsResult.detailsList
    assert (Update.ROLLED_FORWARD, []) == (details.updateEvents[-1].status, list(details.instanceEvents))


async def test_a_deleted_job_has_no_updates(bridge: Bridge, storage: Storage) -> None:
    """Updates of a new job of the name are listed alone."""
    old = await start(bridge, storage)
    remove(storage, KEY)
    key, query = None, api.JobUpdateQuery(jobKey=KEY)
    gone = await bridge.call("getJobUpdateDetails", key=key, query=query)
    new = await start(bridge, storage, command="v2")
    found = await bridge.call("getJobUpdateDetails", key=key, query=query)
    assert ([], [new]) == (
        gone.getJobUpdateDetailsResult.detailsList,
        [one.update.summary.key.id for one in found.getJobUpdateDetailsResult.detailsList],
    )
    assert old != new


async def test_difference_of_a_request(bridge: Bridge, storage: Storage) -> None:
    """Every instance of an unknown job is added; otherwise instances are grouped by what the request does to them."""

    async def diff(command: str, count: int) -> dict[str, list[tuple[int, int]] | None]:
        request = update_request(task_config(command, metadata=[api.Metadata("build", command)]), count)
        found = (await bridge.call("getJobUpdateDiff", request=request)).getJobUpdateDiffResult
        return {
            name: groups and [(span.first, span.last) for group in groups for span in group.instances]
            for name in ("add", "remove", "update", "unchanged")
            if (groups := getattr(found, name)) is not None
        }

    assert {"add": [(0, 2)]} == await diff("v1", 3)
    assert {} == await diff("v1", 0)
    await start(bridge, storage, command="v1")
    assert {"unchanged": [(0, 2)]} == await diff("v1", 3)
    assert {"update": [(0, 1)], "remove": [(2, 2)]} == await diff("v2", 2)
    assert {"add": [(3, 4)], "unchanged": [(0, 2)]} == await diff("v1", 5)


async def test_tiers(bridge: Bridge) -> None:
    """The tiers are those of Aurora, with settings as texts."""
    found = (await bridge.call("getTierConfigs")).getTierConfigResult
    assert "preemptible" == found.defaultTierName
    settings = {tier.name: (tier.settings["preemptible"], tier.settings["revocable"]) for tier in found.tiers}
    wanted = {"revocable": ("true", "true"), "preferred": ("false", "false"), "preemptible": ("true", "false")}
    assert wanted == settings
