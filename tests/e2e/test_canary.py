"""Data of secrets is nowhere but in pods: canaries go through every path on both kinds of clusters, and everything that
the cluster stores, logs, answers and shows is searched for them.

Payloads of Temporal are not encrypted here, so that a canary in a history would be seen.
"""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import re
import secrets
import sqlite3
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import grpc
import pytest
import zstandard
from click.testing import CliRunner

from cli.main import peloton
from peloton.api.mesos.v1 import mesos_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.peloton_pb2 import JobID, Secret
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha import peloton_pb2 as v1
from peloton.model.ids import JobId, job_workflow_id
from services.secrets.keyring import Keyring, write_keyring
from services.storage.storage import Storage
from services.temporal.connection import connect, connect_config
from tests.e2e.local import Cluster, bound_to, job_config, shell, temporary
from tests.e2e.service import Service
from tests.e2e.shared import Forked
from tests.nightly import NIGHTLY, nightly

pytestmark = pytest.mark.xdist_group("canary")
PATH = "/run/canary"
PREEMPTIBLE = {"preemptible": True}
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
SEARCHED_BYTES_MAX = 64 * 2**20
HOLDERS = ("sandboxes", "agents", "kubernetes", "nodes")
"""Folders of the emulated clusters below the data: pods have their secrets there, and Kubernetes its Secrets."""


class Canaries:
    """Random values that no other text contains, with characters that encodings change."""

    def __init__(self) -> None:
        self.words: list[bytes] = []

    def one(self) -> bytes:
        word = b"C&/+=%<\xc3\xa9>" + secrets.token_hex(12).encode()
        self.words.append(word)
        return word

    def find(self, text: bytes) -> list[str]:
        """Return the canaries in a text: raw, in base64 at each alignment, in hexadecimal digits, and as of URLs."""
        lower = text.lower()
        found = []
        for word in self.words:
            core = word[-24:]
            forms = {core, quote(word).encode(), *(_base64_core(core, shift) for shift in range(3))}
            if any(form in text for form in forms) or core.hex().encode() in lower:
                found.append(word.decode())
        return found


def _base64_core(word: bytes, shift: int) -> bytes:
    """Return the characters of base64 that depend on the word alone, after ``shift`` other bytes."""
    coded = b64encode(b"x" * shift + word)
    return coded[4 if shift else 0 : -4]


def test_the_search_finds_each_form() -> None:
    """A canary is found behind any number of other bytes."""
    canaries = Canaries()
    word = canaries.one()
    forms = [word, word.hex().encode(), word.hex().upper().encode(), quote(word).encode()]
    forms += [b64encode(b"x" * shift + word + b"tail") for shift in range(4)]

    assert [[word.decode()]] * 8 == [canaries.find(b"before " + form + b" after") for form in forms]
    assert [] == canaries.find(b"nothing")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("canary")
    write_keyring(folder / "keyring.json", Keyring("", {}).add("first", is_active=True), is_new=True)
    environment = {"PELOTON_LOG_LEVEL": "DEBUG", "PELOTON_SECRETS_KEYRING_FILE": str(folder / "keyring.json")}
    settings = temporary(folder / "data", environment=environment, kubernetes=0, web=True)
    with Forked(settings) as running:
        yield running


@pytest.fixture
def canaries() -> Canaries:
    return Canaries()


def v0_secret(data: bytes) -> Secret:
    return Secret(path=PATH, value=Secret.Value(data=b64encode(data)))


def reads(data: bytes, place: str) -> dict[str, object]:
    """A container that succeeds only if it reads the data, and prints none of it."""
    digest = hashlib.sha256(data).hexdigest()
    command = f"sha256sum < .{PATH} | grep -q ^{digest}"
    return shell(command, restartPolicy={"maxFailures": 0}, **bound_to("peloton/cluster", place))


def cli(cluster: Cluster, *words: str, code: int = 0) -> bytes:
    result = CliRunner().invoke(peloton, ["-a", cluster.local.address, "--debug", *words])
    assert code == result.exit_code, result.output
    return result.output.encode()


def gateway(cluster: Cluster, method: str, body: Mapping[str, object]) -> bytes:
    with closing(http.client.HTTPConnection(cluster.local.web_url.removeprefix("http://"), timeout=60)) as connection:
        connection.request("POST", f"/api/{method}", json.dumps(body), {"Content-Type": "application/json"})
        return connection.getresponse().read()


@pytest.mark.parametrize("place", ["local", nightly("kubernetes")])
def test_no_path_leaks_a_secret(cluster: Cluster, canaries: Canaries, place: str, tmp_path: Path) -> None:
    """Creation, growth, rotation, refusals, the command line, JSON, services, crashes; then everything is searched."""
    cluster.wait(lambda: cluster.capacity() > 0, "hosts")
    pool = cluster.pool(f"canary-{place}")
    seen: list[bytes] = []
    first, grown = canaries.one(), canaries.one()
    job = cluster.submit(pool, secrets=[v0_secret(first)], instanceCount=1, defaultConfig=reads(first, place))
    assert "SUCCEEDED" == cluster.finish(job)
    rotate_a_batch_job(cluster, pool, place, v0_secret(first), v0_secret(grown), seen)
    by_variable = submit_variable(cluster, pool, canaries.one(), place)
    by_image = submit_image(cluster, pool, canaries.one(), place)
    seen += send_refused(cluster, pool, canaries)
    seen += by_command_line(cluster, pool, canaries, place, tmp_path)
    word = canaries.one()
    config = {"name": "gateway", "respoolID": {"value": pool}, "instanceCount": 1, "sla": PREEMPTIBLE}
    config["defaultConfig"] = reads(word, place)
    body = {"config": config, "secrets": [{"path": PATH, "value": {"data": b64encode(b64encode(word)).decode()}}]}
    seen.append(gateway(cluster, "peloton.api.job.JobManager/Create", body))
    sent = json.loads(seen[-1])["jobId"]["value"]
    cluster.kill("api")
    cluster.kill("hostmgr" if place == "local" else "hostmgr-kubernetes")
    cluster.wait(lambda: cluster.finish(sent) == "SUCCEEDED", "the job over the crash")
    seen += life_of_a_service(cluster, pool, canaries, place)
    seen += read_everything(cluster, [job, sent, by_variable, by_image])

    leaks = [found for text in seen if (found := canaries.find(text))]
    assert ([], [], []) == (leaks, canaries.find("\n".join(cluster.log).encode()), search_files(cluster, canaries))


def rotate_a_batch_job(cluster: Cluster, pool: str, place: str, old: Secret, new: Secret, seen: list[bytes]) -> None:
    """The data of a running job's secret is replaced in place."""
    waiting = shell("sleep 1000", **bound_to("peloton/cluster", place))
    job = cluster.submit(pool, secrets=[old], instanceCount=1, defaultConfig=waiting)
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 1}, "its pod")
    config = job_config(pool, instanceCount=1, defaultConfig=waiting)
    answer = cluster.client.jobs.Update(job_pb2.UpdateRequest(id=JobID(value=job), config=config, secrets=[new]))
    assert "changed 1 secrets" == answer.message
    seen.append(str(answer).encode())
    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=JobID(value=job)))
    assert "KILLED" == cluster.finish(job)


def submit_variable(cluster: Cluster, pool: str, word: bytes, place: str) -> str:
    """A job succeeds only with the value of its environment variable, and prints none of it."""
    command = f'printf %s "$CANARY" | sha256sum | grep -q ^{hashlib.sha256(word).hexdigest()}'
    config = job_config(
        pool,
        instanceCount=1,
        defaultConfig=shell(command, restartPolicy={"maxFailures": 0}, **bound_to("peloton/cluster", place)),
    )
    add_variable(config, word)
    job = str(cluster.client.jobs.Create(job_pb2.CreateRequest(config=config)).jobId.value)
    assert "SUCCEEDED" == cluster.finish(job)
    return job


def add_variable(config: job_pb2.JobConfig, word: bytes) -> None:
    variable = config.defaultConfig.command.environment.variables.add(name="CANARY")
    variable.type = mesos_pb2.Environment.Variable.SECRET
    variable.secret.type = mesos_pb2.Secret.VALUE
    variable.secret.value.data = word


def submit_image(cluster: Cluster, pool: str, word: bytes, place: str) -> str:
    """A job has the credentials of a private registry for its image, and for that of a volume."""
    config = job_config(pool, instanceCount=1, defaultConfig=shell("true", **bound_to("peloton/cluster", place)))
    container = config.defaultConfig.container
    container.type = mesos_pb2.ContainerInfo.MESOS
    image = container.mesos.image
    image.type, image.docker.name = mesos_pb2.Image.DOCKER, "registry.example.com/app"
    image.docker.config.type = mesos_pb2.Secret.VALUE
    login = b64encode(b"robot:" + word).decode()
    image.docker.config.value.data = json.dumps({"auths": {"registry.example.com": {"auth": login}}}).encode()
    job = str(cluster.client.jobs.Create(job_pb2.CreateRequest(config=config)).jobId.value)
    assert "SUCCEEDED" == cluster.finish(job)
    return job


def send_refused(cluster: Cluster, pool: str, canaries: Canaries) -> Iterator[bytes]:
    """Requests that fail validation for the secret, or for something else."""
    config, word = job_config(pool, instanceCount=1, defaultConfig=shell("true")), canaries.one()
    in_volume = job_config(pool, instanceCount=1, defaultConfig=shell("true"))
    in_volume.defaultConfig.container.type = mesos_pb2.ContainerInfo.MESOS
    volume = in_volume.defaultConfig.container.volumes.add(container_path=PATH, mode=mesos_pb2.Volume.RO)
    volume.source.type = mesos_pb2.Volume.Source.SECRET
    volume.source.secret.type = mesos_pb2.Secret.VALUE
    volume.source.secret.value.data = word
    in_override = job_config(pool, instanceCount=1, defaultConfig=shell("true"))
    in_override.instanceConfig[0].command.value = "true"
    override = in_override.instanceConfig[0].command.environment.variables.add(name="CANARY")
    override.secret.value.data = word
    of_executor = job_config(pool, instanceCount=1, defaultConfig=shell("true"))
    hidden = of_executor.defaultConfig.executor
    hidden.executor_id.value, hidden.container.type = "e", mesos_pb2.ContainerInfo.MESOS
    disk = hidden.container.volumes.add(container_path=PATH, mode=mesos_pb2.Volume.RO)
    disk.source.secret.value.data = word
    of_image = job_config(pool, instanceCount=1, defaultConfig=shell("true"))
    of_image.defaultConfig.container.CopyFrom(hidden.container)
    del of_image.defaultConfig.container.volumes[:]
    docker = of_image.defaultConfig.container.mesos.image.docker
    of_image.defaultConfig.container.mesos.image.type, docker.name = mesos_pb2.Image.DOCKER, "app"
    docker.config.value.data = word  # no JSON
    nowhere = job_config("no pool", instanceCount=1, defaultConfig=shell("true"))
    for given, sent in (
        (config, [Secret(path=PATH, value=Secret.Value(data=word))]),  # not in base64
        (config, [v0_secret(word)] * 2),
        (config, [Secret(path="relative", value=Secret.Value(data=b64encode(word)))]),
        (config, [v0_secret(word * 4_000)]),
        (in_volume, []),
        (in_override, []),
        (of_executor, []),
        (of_image, []),
        (nowhere, [v0_secret(word)]),
    ):
        try:
            answer = cluster.client.jobs.Create(job_pb2.CreateRequest(config=given, secrets=sent))
            assert answer.HasField("error"), answer
            yield str(answer).encode()
        except grpc.RpcError as error:
            yield f"{error} {error.details()} {error.trailing_metadata()}".encode()


def by_command_line(cluster: Cluster, pool: str, canaries: Canaries, place: str, folder: Path) -> Iterator[bytes]:
    """Files and arguments, with the traces of --debug."""
    word, other = canaries.one(), canaries.one()
    file, job = folder / "secret", folder / "job.yaml"
    file.write_bytes(word)
    job.write_text(
        json.dumps({"name": "cli", "instanceCount": 1, "sla": PREEMPTIBLE, "defaultConfig": reads(word, place)})
    )
    path = f"/canary-{place}"
    output = cli(cluster, "job", "create", path, str(job), "--secret-file", f"{PATH}={file}")
    yield output
    created = re.search(rb"[0-9a-f-]{36}", output)
    assert created is not None
    assert "SUCCEEDED" == cluster.finish(created[0].decode())
    for words in (["job", "get"], ["job", "status"], ["task", "list"], ["pod", "events"], ["job", "why"]):
        for form in ([], ["--json"]):
            name = created[0].decode() + ("-0" if words[0] == "pod" else "")
            yield CliRunner().invoke(peloton, ["-a", cluster.local.address, *form, *words, name]).output.encode()
    yield cli(
        *(cluster, "job", "create", path, str(job), "--secret-path", "no-path", "--secret-data", other.decode()), code=1
    )
    yield cli(cluster, "job", "schedule", "create", "x", path, str(job), "--secret-data", other.decode(), code=2)


def life_of_a_service(cluster: Cluster, pool: str, canaries: Canaries, place: str) -> Iterator[bytes]:
    service = Service(cluster, pool, 1, pod=bound_to_v1(place))
    for _ in range(2):
        sent = [v1.Secret(path=PATH, value=v1.Secret.Value(data=b64encode(canaries.one())))]
        service.replace(secrets=sent) if service.id else service.create(sent)
        service.wait_update("SUCCEEDED").wait_running()
        yield str(service.get()).encode()
    yield cli(cluster, "job", "stateless", "get", service.id)
    yield cli(cluster, "--json", "job", "stateless", "get", service.id)
    service.delete(force=True)
    service.wait(lambda: not service.pods(), "the end of its pods")


def bound_to_v1(place: str) -> dict[str, object]:
    rule = {"kind": 2, "condition": 2, "requirement": "1", "label": {"key": "peloton/cluster", "value": place}}
    return {"constraint": {"type": 1, "labelConstraint": rule}}


def read_everything(cluster: Cluster, jobs: list[str]) -> Iterator[bytes]:
    """Answers, pages and their live data."""
    for job in jobs:
        yield str(cluster.client.jobs.Get(job_pb2.GetRequest(id=JobID(value=job)))).encode()
        yield gateway(cluster, "peloton.api.job.JobManager/Get", {"id": {"value": job}})
        yield str(cluster.tasks(job)).encode()
    with closing(http.client.HTTPConnection(cluster.local.web_url.removeprefix("http://"), timeout=60)) as connection:
        for path in ("/", "/jobs", f"/jobs/{jobs[0]}"):
            connection.request("GET", path)
            yield connection.getresponse().read()


def search_files(cluster: Cluster, canaries: Canaries) -> list[str]:
    """Return the files of the cluster with a canary: stores, their write-ahead logs, and logs."""
    folder, found = cluster.local.data_dir, []
    names = set()
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).parts
        if path.is_file() and not any(part.startswith(HOLDERS) for part in inside[:-1]):
            names.add(path.name)
            text = path.read_bytes()
            assert len(text) <= SEARCHED_BYTES_MAX
            found += [f"{path}: {word}" for word in canaries.find(text)]
    assert {"peloton.db", "temporal.db"} <= names, names
    for name in ("peloton.db", "temporal.db"):
        found += [f"{name} {place}" for place in search_database(folder / name, canaries)]
    return found


def search_database(path: Path, canaries: Canaries) -> Iterator[str]:
    """Yield places of canaries in the values of all tables, of which some are compressed."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            for row in db.execute(f'SELECT * FROM "{table}"'):
                for value in row:
                    text = value.encode() if isinstance(value, str) else value
                    if isinstance(text, bytes) and canaries.find(decompress(text)):
                        yield table


def decompress(text: bytes) -> bytes:
    at = text.find(ZSTD_MAGIC)
    if at < 0:
        return text
    try:
        return text + zstandard.ZstdDecompressor().decompressobj().decompress(text[at:])
    except zstandard.ZstdError:
        return text


def test_rows_are_encrypted_and_decrypted(cluster: Cluster) -> None:
    """The rows of the jobs above bear the id of the key."""
    with closing(Storage(cluster.local.database)) as storage:
        assert ["key:first"] == list(storage.secrets.count_holders())


@NIGHTLY
def test_histories_are_encrypted_by_setting(tmp_path: Path) -> None:
    """A job runs, and no payload of its history is readable without the keyring."""
    write_keyring(tmp_path / "keyring.json", Keyring("", {}).add("first", is_active=True), is_new=True)
    environment = {
        "PELOTON_TEMPORAL_ENCRYPTION": "true",
        "PELOTON_SECRETS_KEYRING_FILE": str(tmp_path / "keyring.json"),
    }
    with Forked(temporary(tmp_path / "data", environment=environment, simulate=2)) as running:
        job = running.submit(running.pool("p"), instanceCount=3, defaultConfig=shell("true"))
        assert "SUCCEEDED" == running.finish(job)
        found = asyncio.run(encodings(running.local.temporal, job_workflow_id(JobId(job))))

    assert {"binary/encrypted"} == set(found)


async def encodings(address: str, workflow_id: str) -> list[str]:
    """Return the encodings of the inputs and results in a history, without headers and search attributes."""
    client = await connect(connect_config(address, environment={}), is_lazy=False)
    found = []
    async for event in client.get_workflow_handle(workflow_id).fetch_history_events():
        attributes = getattr(event, str(event.WhichOneof("attributes")))
        for name in ("input", "result"):
            if name in attributes.DESCRIPTOR.fields_by_name:
                found += [one.metadata["encoding"].decode() for one in getattr(attributes, name).payloads]
    return found
