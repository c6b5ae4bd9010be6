"""Answers with long lists are encoded as the library encodes their members."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from peloton.api.private import bulk_reads_pb2 as reads
from peloton.api.v1alpha.pod import pod_pb2
from services.aurorabridge.envelopes import Encoding, Head, write_answer
from services.aurorabridge.lookup import PodBatch
from services.aurorabridge.mapping.job_spec import job_spec_of
from services.aurorabridge.splice import encode
from services.aurorabridge.tasks import Tasks
from services.aurorabridge.thrift import api
from services.aurorabridge.update_details import InstanceEvents
from tests.unit.aurorabridge.scenario import task_config, update_request


def make_tasks() -> Tasks:
    """Return tasks of two specs, with and without agents, ancestors and events, some of which are alike."""
    task = task_config(
        resources=[api.Resource(numCpus=1.0), api.Resource(namedPort="http")], metadata=[api.Metadata("ü", "→")]
    )
    spec = job_spec_of(update_request(task), "pool", None)
    job = reads.Job(job_id="91b1b8e5-2ba8-41e7-bc23-0242ac11000d", spec=spec)
    events = [
        (1, pod_pb2.POD_STATE_PENDING, ""),
        (2, pod_pb2.POD_STATE_RUNNING, "started → ü"),
        (3, pod_pb2.POD_STATE_KILLED, ""),
    ]
    wire = reads.ListPodsResponse(
        job=[0, 0, 0],
        instance=[0, 7, 100_000],
        run=[2, 1, 2**40],
        previous_run=[1, 0, 2**40 - 1],
        state=[pod_pb2.POD_STATE_RUNNING, pod_pb2.POD_STATE_KILLED, pod_pb2.POD_STATE_PENDING],
        host=[0, 0, 1],
        agent_id=[2, 1, 1],
        config_version=[1, 1, 2],
        spec=[1, 0, 1],
        event_count=[2, 3, 0],
        event=[0, 1, 0, 1, 2],
        texts=["höst", "", "agent"],
        events=[reads.PodEvent(time_s=at, state=state, message=text) for at, state, text in events],
    )
    tasks = Tasks(())
    tasks.add(PodBatch(wire, [job], [spec.default_spec, pod_pb2.PodSpec()]))
    return tasks


def make_events() -> InstanceEvents:
    return InstanceEvents([(1_790_000_000_000, 3, range(3)), (1_790_000_001_000, 1, [70_000]), (5, 2, [])])


def details(events: Any) -> Any:
    update = api.JobUpdate(summary=api.JobUpdateSummary(user="ann"))
    return [api.JobUpdateDetails(update=update, instanceEvents=events, updateEvents=[api.JobUpdateEvent(status=1)])]


ANSWERS = {
    "getTasksWithoutConfigs": lambda keep: api.Result(
        scheduleStatusResult=api.ScheduleStatusResult(tasks=keep(make_tasks()))
    ),
    "getJobUpdateDetails": lambda keep: api.Result(
        getJobUpdateDetailsResult=api.GetJobUpdateDetailsResult(detailsList=details(keep(make_events())) * 2)
    ),
    "getTierConfigs": lambda keep: api.Result(getTierConfigResult=api.GetTierConfigResult(tiers=[])),
}


@pytest.mark.parametrize("method", ANSWERS)
def test_spliced_answers_are_those_of_the_library(method: str) -> None:
    """The bytes are the same whether a list writes itself or is a list of structs, in each encoding."""

    def respond(keep: Any) -> Any:
        return api.Response(responseCode=1, result=ANSWERS[method](keep), details=[api.ResponseDetail(method)])

    expected = getattr(api.AuroraSchedulerManager, f"{method}_result")(success=respond(list))
    for encoding in Encoding:
        head = Head(encoding, "AuroraSchedulerManager", method, b"", seqid=3)
        written = write_answer(head, respond(lambda spliced: spliced))
        assert write_answer(head, respond(list)) == written
        if encoding is not Encoding.JSON:
            assert written.endswith(encode(expected))
        else:
            assert method == orjson.loads(written)[1]
