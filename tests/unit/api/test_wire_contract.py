"""The error-prone parts of the wire contract, and a round trip of each family of messages."""

from collections.abc import Iterator
from concurrent import futures

import grpc
import pytest
from google.protobuf import descriptor_pool
from google.protobuf.message import Message
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from peloton.api import service_names
from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.query import query_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.short_names import job_pb2_grpc as short_job_pb2_grpc
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.admin.svc import admin_svc_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.v1alpha.query import query_pb2 as query_v1alpha_pb2
from peloton.api.v1alpha.respool.svc import respool_svc_pb2
from peloton.api.v1alpha.watch.svc import watch_svc_pb2

NUMBERS: dict[str, tuple[type[Message], str, int]] = {
    "v0 page limit is 3, number 2 is unused": (query_pb2.PaginationSpec, "limit", 3),
    "v1alpha page limit is 2": (query_v1alpha_pb2.PaginationSpec, "limit", 2),
    "v1alpha order_by is 3": (query_v1alpha_pb2.PaginationSpec, "order_by", 3),
    "the misspelled field of pod events is kept": (task_pb2.PodEvent, "desriedTaskId", 13),
    "executor of a task is 15": (task_pb2.TaskConfig, "executor", 15),
    "the old config version is 6": (job_pb2.RuntimeInfo, "configVersion", 6),
    "the config version is 8": (job_pb2.RuntimeInfo, "configurationVersion", 8),
    "Force of a pool update has a capital letter": (respool_pb2.UpdateRequest, "Force", 3),
    "Force of a v1alpha pool update too": (respool_svc_pb2.UpdateResourcePoolRequest, "Force", 3),
    "executor of a container comes after its command": (pod_pb2.ContainerSpec, "executor", 8),
    "shell of a Mesos command is 6": (mesos_pb2.CommandInfo, "shell", 6),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_field_numbers(case: str) -> None:
    """Fields with surprising numbers or spellings have the contract's."""
    message, field, number = NUMBERS[case]
    assert message.DESCRIPTOR.fields_by_name[field].number == number


def test_states_must_be_converted_by_name() -> None:
    """LAUNCHED is 15 in v0 and 7 in v1alpha."""
    assert (task_pb2.LAUNCHED, pod_pb2.POD_STATE_LAUNCHED) == (15, 7)


def test_the_first_admin_component_is_the_goal_state_engine() -> None:
    """An unset component means the goal state engine."""
    assert admin_svc_pb2.ComponentFailure().component == admin_svc_pb2.GoalStateEngine


def test_mesos_messages_know_unset_from_default() -> None:
    """The embedded Mesos messages are proto2: shell is true by default, and unset differs from set."""
    config = task_pb2.TaskConfig(command=mesos_pb2.CommandInfo(value="true"))
    assert config.command.shell is True
    assert not config.command.HasField("shell")


def test_mesos_fields_we_do_not_know_survive() -> None:
    """A field of a newer Mesos is returned unchanged."""
    raw = mesos_pb2.CommandInfo(value="true").SerializeToString() + b"\xf8\x3f\x07"  # field 1023, a varint
    config = task_pb2.TaskConfig(command=mesos_pb2.CommandInfo.FromString(raw))
    assert task_pb2.TaskConfig.FromString(config.SerializeToString()).command.SerializeToString() == raw


def test_streams_are_where_clients_expect_them() -> None:
    """Watch, ListPods and ListJobs answer with a stream; no method accepts one."""
    files = (watch_svc_pb2.DESCRIPTOR, stateless_svc_pb2.DESCRIPTOR)
    services = [service for file in files for service in file.services_by_name.values()]
    methods = [method for service in services for method in service.methods]
    assert {method.name for method in methods if method.server_streaming} == {"Watch", "ListPods", "ListJobs"}
    assert not any(method.client_streaming for method in methods)


class OneJob(short_job_pb2_grpc.JobManagerServicer):
    def GetActiveJobs(self, request: object, context: object) -> job_pb2.GetActiveJobsResponse:
        return job_pb2.GetActiveJobsResponse(ids=[peloton_pb2.JobID(value="one")])


@pytest.fixture
def channel() -> Iterator[grpc.Channel]:
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    service_names.add_under_all_names(server, OneJob(), service_names.JOB_MANAGER)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    server.stop(grace=None).wait()


@pytest.mark.parametrize("name", service_names.JOB_MANAGER)
def test_one_servicer_answers_under_every_name(channel: grpc.Channel, name: str) -> None:
    """Each spelling of the job manager reaches the same servicer."""
    call = channel.unary_unary(
        f"/{name}/GetActiveJobs",
        request_serializer=job_pb2.GetActiveJobsRequest.SerializeToString,
        response_deserializer=job_pb2.GetActiveJobsResponse.FromString,
    )
    assert [job.value for job in call(job_pb2.GetActiveJobsRequest()).ids] == ["one"]


def test_the_stub_of_the_short_name_works(channel: grpc.Channel) -> None:
    """The stub of the name without a version works; an absent method answers UNIMPLEMENTED."""
    stub = short_job_pb2_grpc.JobManagerStub(channel)
    assert [job.value for job in stub.GetActiveJobs(job_pb2.GetActiveJobsRequest()).ids] == ["one"]
    with pytest.raises(grpc.RpcError) as error:
        stub.Get(job_pb2.GetRequest())
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    "names", [service_names.JOB_MANAGER, service_names.TASK_MANAGER, service_names.RESOURCE_MANAGER]
)
def test_every_name_is_declared_with_the_same_methods(names: tuple[str, ...]) -> None:
    """The descriptor pool, which reflection uses, has all names with the same methods and messages."""
    pool = descriptor_pool.Default()
    shapes = [
        [(method.name, method.input_type.full_name, method.output_type.full_name) for method in service.methods]
        for service in map(pool.FindServiceByName, names)
    ]
    assert shapes[0] == shapes[1] == shapes[2]


async def test_an_asyncio_server_lists_every_name() -> None:
    """Registration works for asyncio servers as well, and reflection has each name with its methods."""
    server = grpc.aio.server()
    service_names.add_under_all_names(server, OneJob(), service_names.JOB_MANAGER)
    reflection.enable_server_reflection(service_names.JOB_MANAGER, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = short_job_pb2_grpc.JobManagerStub(channel)
        assert [job.value for job in (await stub.GetActiveJobs(job_pb2.GetActiveJobsRequest())).ids] == ["one"]
        requests = [reflection_pb2.ServerReflectionRequest(list_services="")]
        requests += [
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=name) for name in service_names.JOB_MANAGER
        ]
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter(requests))
        listed, *found = [response async for response in call]
    await server.stop(grace=None)
    assert [service.name for service in listed.list_services_response.service] == sorted(service_names.JOB_MANAGER)
    assert all(response.file_descriptor_response.file_descriptor_proto for response in found)
