"""The topic of a service's page: its pods and their problems."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

from peloton.api.convert_time import rfc3339
from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.overview import overview_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.model.times import NS_PER_S
from services.web.api import Api
from services.web.topics import overview, service

JOB = "91b1b8e5-2ba8-11e7-bc23-0242ac11000d"
NOW_S = 1_800_000_000.0
WHY = explain_pb2.JobWhyResponse(poolPath="/web")


def pod(instance: int, state: str = "RUNNING", age_s: float = 3_600, health: str = "", **status: Any) -> Any:
    given: dict[str, Any] = {
        "state": f"POD_STATE_{state}",
        "start_time": rfc3339(int((NOW_S - age_s) * NS_PER_S)),
        "pod_id": {"value": f"{JOB}-{instance}-2"},
        "containers_status": [{"healthy": {"state": f"HEALTH_STATE_{health}"}}] if health else [],
        **status,
    }
    named: dict[str, Any] = {"pod_name": {"value": f"{JOB}-{instance}"}, "status": given}
    return pod_pb2.PodSummary(**named)


def list_troubles(*pods: Any, why: Any = WHY) -> list[Any]:
    return [tuple(one.values()) for one in service.troubles(pods, why, NOW_S)]


def test_a_service_that_is_well_has_no_trouble() -> None:
    """An instance that failed once and has run for long is healthy."""
    assert [] == list_troubles(pod(0), pod(1, failure_count=3), pod(2, "PENDING"))


def test_a_service_that_crash_loops_says_so_between_its_runs_too() -> None:
    """The cause is the resource manager's, or else the pods' last messages."""
    why = explain_pb2.JobWhyResponse()
    why.reasons.add(rule=explain_pb2.RULE_BACK_OFF, text="instance 1 FAILED on h1, exit code 3; it runs again at ...")
    waits = pod(1, "INITIALIZED", failure_count=8, message="Task throttled due to failure; stderr: no config")

    assert [("1 of 2 instances fails", f"{why.reasons[0].text}\nstderr: no config", 1)] == list_troubles(
        pod(0), waits, why=why
    )
    assert [("1 of 1 instance fails", "", 1)] == list_troubles(pod(1, age_s=20, failure_count=8))
    failed = [pod(n, "FAILED", message="Command exited with status 2") for n in (0, 1)]
    assert [("2 of 2 instances fail", "Command exited with status 2 (2 instances)", 0)] == list_troubles(*failed)


def test_instances_that_fail_alike_are_counted_whatever_they_print() -> None:
    """Instances with the same cause are one problem; its lines of stderr occur once."""
    failed = [pod(n, "FAILED", message=f"Command exited with status 1; stderr: boom {n}") for n in (0, 1)]

    assert [
        ("2 of 2 instances fail", "Command exited with status 1 (2 instances)\nstderr: boom 0", 0)
    ] == list_troubles(*failed)


def test_an_instance_whose_health_check_fails_is_reported() -> None:
    """The problem occurs once, even if the instance has failed before."""
    assert [("1 of 2 instances is unhealthy", "Health checks fail.", 1)] == list_troubles(
        pod(0), pod(1, health="UNHEALTHY")
    )


class Services:
    """A service with the given pods and ``goal``."""

    def __init__(self, pods: Sequence[Any], goal: str, opaque: str = "") -> None:
        self.pods, self.goal, self.opaque = pods, goal, opaque

    async def GetJob(self, request: Any, timeout: float) -> Any:
        status = stateless_pb2.JobStatus(desired_state=stateless_pb2.JobState.Value(f"JOB_STATE_{self.goal}"))
        answer = stateless_svc_pb2.GetJobResponse(job_info=stateless_pb2.JobInfo(status=status))
        answer.workflow_info.opaque_data.data = self.opaque
        return answer

    async def ListPods(self, request: Any, timeout: float) -> AsyncIterator[Any]:
        yield stateless_svc_pb2.ListPodsResponse(pods=self.pods)

    async def JobWhy(self, request: Any, timeout: float) -> Any:
        return WHY


async def test_pods_have_run_times_attempts_and_messages_for_people() -> None:
    """Rows are in the order of instances. A service that an operator stopped has no problems."""
    pods = [pod(1, "FAILED", failure_count=1), pod(0, host="h1", message="Add hostname and ports")]
    looked = [
        await service.read(cast(Api, SimpleNamespace(services=one, explain=one)), JOB)
        for one in (Services(pods, "RUNNING"), Services(pods, "KILLED"))
    ]

    began = rfc3339(int((NOW_S - 3_600) * NS_PER_S))
    first = [0, "RUNNING", "h1", "", "launched on its host", "", 2, began, "", 0]
    assert (first, "/web") == (looked[0]["pods"][0], looked[0]["poolPath"])
    assert [1, 0] == [len(one["trouble"]) for one in looked]


async def test_an_update_that_aurora_started_has_its_words() -> None:
    """The page shows the id and the message by which a client of Aurora knows the update."""
    opaque = '{"update_id":"u-1","start_job_update_msg":"deploy 42"}'
    theirs, own = [
        await service.read(cast(Api, SimpleNamespace(services=one, explain=one)), JOB)
        for one in (Services([], "RUNNING", opaque), Services([], "RUNNING", "note"))
    ]

    assert ("Aurora's update u-1 'deploy 42'", "") == (theirs["aurora"], own["aurora"])


async def test_the_problems_of_one_job_are_those_of_the_overview() -> None:
    """Problems of other subjects are omitted."""

    async def answer(request: Any, timeout: float) -> Any:
        found = overview_pb2.GetOverviewResponse()
        for kind, subject in (("JOB", JOB), ("JOB", "another"), ("POOL", JOB)):
            found.problems.add(text=f"of {kind} {subject}", subject_kind=f"SUBJECT_KIND_{kind}", subject_id=subject)
        return found

    api = SimpleNamespace(overview=SimpleNamespace(GetOverview=answer))

    assert [f"of JOB {JOB}"] == [one["text"] for one in await overview.read_problems(cast(Api, api), JOB)]
