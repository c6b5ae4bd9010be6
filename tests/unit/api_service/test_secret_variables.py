"""Secret values of environment variables: stored as secrets of the job, and nowhere in its configuration."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import grpc
import pytest

from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.secret_variables import OF_JOB, take_values
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.errors import InvalidArgument
from peloton.model.secret import Secret
from services.audit.facts import digest_of
from services.hostmgr.kubernetes.pods.containers import _variables
from services.hostmgr.kubernetes.pods.volumes import PodVolumes
from services.hostmgr.mesos.codec import _reveal
from services.storage.storage import Storage
from tests.unit.api_service.services import create as create_service
from tests.unit.api_service.services import spec
from tests.unit.api_service.story import ID, JOB, Config, expect_refusal

DATA = b"c4n4ry-of-a-variable"
OTHER = b"an0ther-value"
PATH = "env/TOKEN"


def add(command: mesos_pb2.CommandInfo, data: bytes = DATA, name: str = "TOKEN") -> None:
    variable = command.environment.variables.add(name=name, type=mesos_pb2.Environment.Variable.SECRET)
    variable.secret.type = mesos_pb2.Secret.VALUE
    variable.secret.value.data = data


def with_variable(config: job_pb2.JobConfig, data: bytes = DATA) -> job_pb2.JobConfig:
    add(config.defaultConfig.command, data)
    return config


def read_data(storage: Storage, secrets: Any) -> list[bytes]:
    wanted = [Secret(one.id.value, one.path) for one in secrets]
    return [one.data for one in storage.secrets.reveal(JOB, wanted, storage.secrets.rows(JOB, wanted))]


def is_there(data: bytes, *texts: bytes) -> bool:
    return any(form in text for form in (data, b64encode(data)) for text in texts)


async def test_a_value_is_stored_as_a_secret(jobs: Any, config: Config, storage: Storage) -> None:
    """Answers and the stored configuration refer to it by name; the configuration can be sent again."""
    answer = await jobs.Create(job_pb2.CreateRequest(id=ID, config=with_variable(config(2))))
    assert not answer.HasField("error"), answer

    read = await jobs.Get(job_pb2.GetRequest(id=ID))
    stored = storage.configs.job_config(JOB, 1)

    assert stored is not None
    assert not is_there(DATA, read.SerializeToString(), stored.SerializeToString())
    (variable,) = stored.defaultConfig.command.environment.variables
    assert ("TOKEN", OF_JOB, "TOKEN") == (variable.name, variable.secret.reference.name, variable.secret.reference.key)
    assert ([PATH], [DATA]) == ([one.path for one in read.secrets], read_data(storage, read.secrets))
    grown = job_pb2.UpdateRequest(id=ID, config=read.jobInfo.config, secrets=read.secrets)
    grown.config.instanceCount = 3
    assert not (await jobs.Update(grown)).HasField("error")
    assert [DATA] == read_data(storage, (await jobs.Get(job_pb2.GetRequest(id=ID))).secrets)


async def test_a_new_value_replaces_it(jobs: Any, config: Config, storage: Storage) -> None:
    """A batch job changes the value for all runs that begin later."""
    await jobs.Create(job_pb2.CreateRequest(id=ID, config=with_variable(config(2))))

    changed = await jobs.Update(job_pb2.UpdateRequest(id=ID, config=with_variable(config(2), OTHER)))

    assert "changed 1 secrets" == changed.message
    assert [OTHER] == read_data(storage, (await jobs.Get(job_pb2.GetRequest(id=ID))).secrets)


async def test_a_service_has_it_too(v1: Any, storage: Storage) -> None:
    """The spec that is read again has the reference; a replacement with it keeps the value."""
    wanted = spec(2)
    add(wanted.default_spec.containers[0].command)
    wanted.default_spec.containers[0].command.value = "serve"
    await create_service(v1, wanted)

    found = await v1.GetJob(svc.GetJobRequest(job_id=peloton_pb2.JobID(value=JOB)))

    stored = storage.configs.job_config(JOB, 1)
    assert stored is not None
    specs = storage.configs.job_specs([(JOB, 1)]).values()
    assert not is_there(DATA, found.SerializeToString(), stored.SerializeToString(), *specs)
    assert [PATH] == [one.path for one in stored.defaultConfig.secrets]
    assert [DATA] == read_data(storage, stored.defaultConfig.secrets)


@pytest.mark.parametrize("place", ["override", "empty", "two values", "no such secret"])
async def test_what_is_refused(place: str, jobs: Any, config: Config) -> None:
    """A secret belongs to all instances; the refusal does not quote it."""
    wanted = config(2)
    if place == "override":
        add(wanted.instanceConfig[1].command)
    elif place == "empty":
        with_variable(wanted, b"")
    elif place == "two values":
        with_variable(with_variable(wanted), OTHER)
    else:
        variable = wanted.defaultConfig.command.environment.variables.add(name="TOKEN")
        variable.secret.reference.name, variable.secret.reference.key = OF_JOB, "TOKEN"
    code, text = await expect_refusal(jobs.Create(job_pb2.CreateRequest(id=ID, config=wanted)))
    assert (grpc.StatusCode.INVALID_ARGUMENT, False) == (code, is_there(DATA, text.encode()))


def test_pods_get_the_value() -> None:
    """Mesos gets it with the task, and Kubernetes a reference to the Secret that has it; no file is mounted."""
    pod = task_pb2.TaskConfig()
    add(pod.command)
    assert [("TOKEN", DATA)] == take_values(pod)
    held = Secret("id", PATH, DATA)
    volumes = PodVolumes("c", [held])

    (variable,) = _variables(pod.command, volumes)
    revealed = _reveal({"name": "TOKEN", "secret": {"reference": {"name": OF_JOB, "key": "TOKEN"}}}, {"TOKEN": held})

    assert "data" == variable["valueFrom"]["secretKeyRef"]["key"]
    assert not is_there(DATA, str(variable).encode())
    assert [] == volumes.mounts_of(pod)
    assert b64encode(DATA).decode() == revealed["secret"]["value"]["data"]


def test_the_digest_of_the_audit_log_leaves_it_out() -> None:
    """A value that is easy to guess cannot be confirmed by the digest."""
    requests = [job_pb2.CreateRequest(config=with_variable(job_pb2.JobConfig(), data)) for data in (DATA, OTHER)]
    assert 1 == len({digest_of(request) for request in requests})
    assert is_there(DATA, requests[0].SerializeToString())


def test_two_containers_share_a_value() -> None:
    """Equal values are one secret; other ones of the same name are refused without their data."""
    pod = task_pb2.TaskConfig()
    add(pod.command)
    add(pod.otherContainers.add(name="side").command)
    assert [("TOKEN", DATA)] == take_values(pod)
    add(pod.otherContainers.add(name="third").command, OTHER, "KEY")
    add(pod.initContainers.add(name="first").command, DATA, "KEY")
    with pytest.raises(InvalidArgument, match=r"'?KEY'? has two secret values") as caught:
        take_values(pod)
    assert not is_there(DATA, caught.value.message.encode())
