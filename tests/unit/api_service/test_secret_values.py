"""Secret values in configurations: stored as secrets of the job, and nowhere in its configuration."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.secret_values import OF_JOB, clear_values, has_any_value, take_values
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.pod import pod_pb2
from peloton.errors import InvalidArgument
from peloton.model.secret import Secret
from services.audit.facts import digest_of
from services.hostmgr.kubernetes.pods.containers import _variables
from services.hostmgr.kubernetes.pods.pod_secrets import _encode_data
from services.hostmgr.kubernetes.pods.volumes import PodVolumes, secret_name
from services.hostmgr.mesos.codec import _reveal, _reveal_images
from services.storage.storage import Storage
from tests.unit.api_service.services import create as create_service
from tests.unit.api_service.services import spec
from tests.unit.api_service.story import ID, JOB, Config, expect_refusal

DATA = b"c4n4ry-of-a-variable"
OTHER = b"an0ther-value"
PATH = "env/TOKEN"
IMAGE = "registry.example.com:5000/team/app:7"
CONFIG = b'{"auths": {"registry.example.com:5000": {"auth": "c4n4ry-of-an-image"}}}'


def add(command: mesos_pb2.CommandInfo, data: bytes = DATA, name: str = "TOKEN") -> None:
    variable = command.environment.variables.add(name=name, type=mesos_pb2.Environment.Variable.SECRET)
    variable.secret.type = mesos_pb2.Secret.VALUE
    variable.secret.value.data = data


def add_config(container: mesos_pb2.ContainerInfo, data: bytes = CONFIG, name: str = IMAGE) -> None:
    """Give a container an image of a private registry."""
    container.type = mesos_pb2.ContainerInfo.MESOS
    container.mesos.image.type = mesos_pb2.Image.DOCKER
    container.mesos.image.docker.name = name
    container.mesos.image.docker.config.type = mesos_pb2.Secret.VALUE
    container.mesos.image.docker.config.value.data = data


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
    assert [(PATH, DATA)] == take_values(pod)
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
    assert [(PATH, DATA)] == take_values(pod)
    add(pod.otherContainers.add(name="third").command, OTHER, "KEY")
    add(pod.initContainers.add(name="first").command, DATA, "KEY")
    with pytest.raises(InvalidArgument, match=r"'?KEY'? has two secret values") as caught:
        take_values(pod)
    assert not is_there(DATA, caught.value.message.encode())


async def test_credentials_of_an_image_are_stored_as_a_secret(jobs: Any, config: Config, storage: Storage) -> None:
    """Answers and the stored configuration have the name of the image alone, and can be sent again."""
    wanted = config(2)
    add_config(wanted.defaultConfig.container)
    volume = wanted.defaultConfig.container.volumes.add(container_path="/data", mode=mesos_pb2.Volume.RO)
    volume.image.type = mesos_pb2.Image.DOCKER
    volume.image.docker.name = "registry.example.com/data"
    volume.image.docker.config.value.data = CONFIG
    answer = await jobs.Create(job_pb2.CreateRequest(id=ID, config=wanted))
    assert not answer.HasField("error"), answer

    read = await jobs.Get(job_pb2.GetRequest(id=ID))
    stored = storage.configs.job_config(JOB, 1)

    assert stored is not None
    assert not is_there(CONFIG, read.SerializeToString(), stored.SerializeToString())
    reference = stored.defaultConfig.container.mesos.image.docker.config.reference
    assert (OF_JOB, IMAGE) == (reference.name, reference.key)
    assert [f"image/{IMAGE}", "image/registry.example.com/data"] == [one.path for one in read.secrets]
    assert [CONFIG, CONFIG] == read_data(storage, read.secrets)
    grown = job_pb2.UpdateRequest(id=ID, config=read.jobInfo.config, secrets=read.secrets)
    grown.config.instanceCount = 3
    assert not (await jobs.Update(grown)).HasField("error")


async def test_an_image_of_a_service_has_them_too(v1: Any, storage: Storage) -> None:
    """The spec that is stored refers to them."""
    wanted = spec(2)
    add_config(wanted.default_spec.containers[0].container)
    await create_service(v1, wanted)

    found = await v1.GetJob(svc.GetJobRequest(job_id=peloton_pb2.JobID(value=JOB)))

    stored = storage.configs.job_config(JOB, 1)
    assert stored is not None
    specs = storage.configs.job_specs([(JOB, 1)]).values()
    assert not is_there(CONFIG, found.SerializeToString(), stored.SerializeToString(), *specs)
    assert [CONFIG] == read_data(storage, stored.defaultConfig.secrets)


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("override", "belong into the default configuration"),
        ("text", "is no JSON object: want the content of ~/.docker/config.json"),
        ("empty", "has an empty secret value"),
        ("two", "has two secret values in the pod"),
        ("no such secret", "refers to a secret that the job does not have"),
        ("credential", "Mesos does not read it: put the credentials into config"),
        ("long name", "at most 1000 are allowed"),
    ],
)
async def test_credentials_that_are_refused(place: str, why: str, jobs: Any, config: Config) -> None:
    """The refusal names the image, and never the credentials."""
    wanted = config(2)
    container = wanted.defaultConfig.container
    if place == "override":
        add_config(wanted.instanceConfig[1].container)
    elif place == "no such secret":
        add_config(container)
        container.mesos.image.docker.config.CopyFrom(
            mesos_pb2.Secret(reference=mesos_pb2.Secret.Reference(name=OF_JOB, key=IMAGE))
        )
    elif place == "credential":
        add_config(container)
        container.mesos.image.docker.ClearField("config")
        container.mesos.image.docker.credential.principal = "p"
        container.mesos.image.docker.credential.secret = CONFIG.decode()
    else:
        data = {"text": b"c4n4ry-of-an-image", "empty": b""}.get(place, CONFIG)
        add_config(container, data, "i" * 1_000 if place == "long name" else IMAGE)
    if place == "two":
        add_config(wanted.defaultConfig.otherContainers.add(name="side").container, b"{}")

    code, text = await expect_refusal(jobs.Create(job_pb2.CreateRequest(id=ID, config=wanted)))

    assert (grpc.StatusCode.INVALID_ARGUMENT, True) == (code, why in text), text
    assert "c4n4ry" not in text


def secret_paths(kind: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the fields that lead to each secret of Mesos, or password, in a message."""
    for field in kind.fields:
        if field.message_type is None:
            continue
        path = (*above, field)
        if field.message_type.full_name in ("mesos.v1.Secret", "mesos.v1.Credential"):
            yield path
        elif field.message_type not in [one.message_type for one in above]:
            yield from secret_paths(field.message_type, path)


PATHS = [*secret_paths(task_pb2.TaskConfig.DESCRIPTOR), *secret_paths(pod_pb2.PodSpec.DESCRIPTOR)]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(field.name for field in path))
def test_no_field_stores_a_secret_in_plain_text(path: tuple[Any, ...]) -> None:
    """A value in any field of a pod that can have one is taken out, or refused; the audit log leaves it out."""
    pod: Any = task_pb2.TaskConfig() if path[0].containing_type.name == "TaskConfig" else pod_pb2.PodSpec()
    message = pod
    for field in path:
        found = getattr(message, field.name)
        message = found.add() if field.is_repeated else found
    if path[-1].message_type.name == "Credential":
        message.secret = CONFIG.decode()
    else:
        message.value.data = CONFIG
    copied = type(pod).FromString(pod.SerializePartialToString())

    taken = take_values(pod)
    clear_values(copied)

    assert has_any_value(pod) or (
        CONFIG in dict(taken).values() and not is_there(CONFIG, pod.SerializePartialToString())
    )
    assert not is_there(CONFIG, copied.SerializePartialToString())


def test_mesos_gets_the_credentials_with_the_task() -> None:
    """Each image with a reference to the job's secret has its value at the launch; others keep theirs."""
    held = Secret("id", f"image/{IMAGE}", CONFIG)
    own = {"reference": {"name": OF_JOB, "key": IMAGE}}
    other = {"type": "REFERENCE", "reference": {"name": "of-the-agents"}}
    container: dict[str, Any] = {
        "mesos": {"image": {"docker": {"name": IMAGE, "config": own}}},
        "volumes": [{"image": {"docker": {"config": own}}}, {"image": {"docker": {"config": other}}}],
    }

    _reveal_images(container, {IMAGE: held})

    value = {"type": "VALUE", "value": {"data": b64encode(CONFIG).decode()}}
    assert value == container["mesos"]["image"]["docker"]["config"]
    assert [value, other] == [one["image"]["docker"]["config"] for one in container["volumes"]]


def test_kubernetes_gets_a_secret_for_the_kubelet() -> None:
    """Pods name a Secret of the type that a kubelet reads credentials from; no file and no variable has it."""
    held = Secret("id", f"image/{IMAGE}", CONFIG)
    volumes = PodVolumes("c", [held])

    assert "peloton-c-id-0" == volumes.find_image_secret(IMAGE)
    assert [] == volumes.mounts_of(task_pb2.TaskConfig())
    assert {
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": b64encode(CONFIG).decode()},
    } == _encode_data(b64encode(CONFIG).decode(), held)


@pytest.mark.parametrize("place", ["variable", "image", "volume", "override"])
async def test_a_secret_that_is_made_for_a_job_has_no_other_users(place: str, jobs: Any, config: Config) -> None:
    """Readers of a job see the ids of its secrets, of which names of Secrets in Kubernetes are made."""
    held = Secret("11111111-1111-4111-8111-111111111111", PATH, DATA, 2)
    reference = mesos_pb2.Secret(
        type=mesos_pb2.Secret.REFERENCE,
        reference=mesos_pb2.Secret.Reference(name=secret_name("Main_2", held), key="data"),
    )
    wanted = config(2)
    pod = wanted.instanceConfig[1] if place == "override" else wanted.defaultConfig
    if place in ("variable", "override"):
        variable = pod.command.environment.variables.add(name="TOKEN", type=mesos_pb2.Environment.Variable.SECRET)
        variable.secret.CopyFrom(reference)
    else:
        pod.container.type = mesos_pb2.ContainerInfo.MESOS
        if place == "image":
            pod.container.mesos.image.type = mesos_pb2.Image.DOCKER
            pod.container.mesos.image.docker.name = IMAGE
            pod.container.mesos.image.docker.config.CopyFrom(reference)
        else:
            volume = pod.container.volumes.add(container_path="/stolen", mode=mesos_pb2.Volume.RO)
            volume.source.type = mesos_pb2.Volume.Source.SECRET
            volume.source.secret.CopyFrom(reference)

    code, text = await expect_refusal(jobs.Create(job_pb2.CreateRequest(id=ID, config=wanted)))

    assert (grpc.StatusCode.INVALID_ARGUMENT, True) == (code, "a pod gets those of its own job only" in text), text
