"""Answers do not tell which jobs of other pools they are about."""

from __future__ import annotations

from peloton.api.v0.advice import advice_pb2
from peloton.api.v0.explain import explain_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.overview import overview_pb2
from peloton.api.v0.peloton_pb2 import JobID
from peloton.api.v0.task import task_pb2
from services.access.redaction import OTHER_JOB, find_ids, redact, redact_text

MINE, OTHER = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


def eviction(job_id: str, for_job: str, text: str) -> explain_pb2.PlannedEviction:
    return explain_pb2.PlannedEviction(
        jobId=JobID(value=job_id), poolPath="/b", instanceCount=3, forJobId=JobID(value=for_job), text=text
    )


def test_a_plan_keeps_its_numbers() -> None:
    """Ids, names and texts of a hidden job become those of one job of another pool."""
    plan = explain_pb2.PoolPlanResponse(
        admitted=[explain_pb2.AdmittedGangs(jobId=JobID(value=OTHER), poolPath="/b", gangCount=7)],
        evictions=[eviction(OTHER, MINE, "preempted for job train"), eviction(MINE, OTHER, "for job train-2")],
        text="7 gangs of job train-2\n  3 instances of job train\n  of job train",
        jobNames={MINE: "train", OTHER: "train-2"},
    )

    redact(plan, {OTHER})

    assert plan == explain_pb2.PoolPlanResponse(
        admitted=[explain_pb2.AdmittedGangs(jobId=JobID(value=OTHER_JOB), poolPath="/b", gangCount=7)],
        evictions=[
            eviction(OTHER_JOB, MINE, "preempted for job train"),
            eviction(MINE, OTHER_JOB, "for a job of another pool"),
        ],
        text="7 gangs of a job of another pool\n  3 instances of job train\n  of job train",
        jobNames={MINE: "train", OTHER_JOB: "of another pool"},
    )


def test_a_reason_names_neither_what_is_in_front_nor_the_holders() -> None:
    """Jobs in front and holders are hidden in all fields; their amounts stay."""
    reason = explain_pb2.Reason(
        blockingJobId=JobID(value=OTHER),
        blockingReason=explain_pb2.Reason(text=f"waits behind job {OTHER} in the queue of /b"),
        holders=[explain_pb2.Holder(poolPath="/b", jobId=JobID(value=OTHER), amount=2)],
    )
    why = explain_pb2.JobWhyResponse(
        waiting=[explain_pb2.WaitingGangs(jobId=JobID(value=OTHER), jobName="canary", reason=reason)],
        jobNames={OTHER: " canary "},
        text="held by job canary: cpu 2",
    )

    redact(why, {OTHER})

    assert "canary" not in str(why)
    assert OTHER not in str(why)
    (waiting,) = why.waiting
    assert ("of another pool", OTHER_JOB) == (waiting.jobName, waiting.reason.holders[0].jobId.value)
    assert "held by a job of another pool: cpu 2" == why.text
    assert 2 == waiting.reason.holders[0].amount


def test_a_mark_of_a_hidden_service_is_left_out() -> None:
    """Marks of readable services stay."""
    marks = [advice_pb2.ServiceMark(job_id=job_id, reason="p99 of 3 s") for job_id in (OTHER, MINE, OTHER)]
    answer = advice_pb2.AdviceResponse(services=marks)

    redact(answer, {OTHER})

    assert advice_pb2.AdviceResponse(services=[marks[1]]) == answer


def test_texts_with_ids() -> None:
    """Ids that stand for themselves keep their form; in a sentence they become words."""
    cases = {
        OTHER: OTHER_JOB,
        f"{OTHER}-3-1": f"{OTHER_JOB}-3-1",
        f"preempted for job {OTHER} of /b": "preempted for a job of another pool of /b",
        f"reserved for pod {OTHER}-3": "reserved for a pod of another pool",
        f"volume V of {OTHER}-12 is lost": "volume V of a pod of another pool is lost",
        f"job {MINE}": f"job {MINE}",
        "job canary": "job canary",
    }

    assert cases == {text: redact_text(text, {OTHER}) for text in cases}


def test_what_a_client_has_sent_is_kept() -> None:
    """A configuration is read, changed and sent again: it is not redacted."""
    config = job_pb2.JobConfig(name="mine", description=f"after {OTHER}")
    info = job_pb2.JobInfo(config=config)

    redact(info, {OTHER})

    assert config == info.config


def test_elements_of_lists_and_maps() -> None:
    """Messages within lists and maps are redacted, too."""
    events = overview_pb2.ListHostEventsResponse(
        events=[overview_pb2.HostEvent(hostname="h1", text=f"Reserved for pod {OTHER}-0")]
    )
    tasks = task_pb2.ListResponse.Result(
        value={0: task_pb2.TaskInfo(runtime=task_pb2.RuntimeInfo(message=f"preempted for job {OTHER}"))}
    )

    for answer in (events, tasks):
        assert {OTHER} == find_ids(answer.SerializeToString())
        redact(answer, {OTHER})
        assert not find_ids(answer.SerializeToString()) - {OTHER_JOB}
