"""Secrets of jobs in an apiserver that stores its objects."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import orjson
import pytest

from peloton.api.convert import new_job_record
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.ids import Hostname, JobId, PodId
from peloton.model.secret import Secret
from services.hostmgr.driver import Claim, HostLaunch, PodLaunch, PodTemplate
from services.hostmgr.kubernetes.cluster_view import SecretUse
from services.hostmgr.kubernetes.pods import pod_secrets
from services.hostmgr.kubernetes.pods.pod_secrets import PodSecrets
from services.hostmgr.kubernetes.preparation import Preparation
from services.hostmgr.kubernetes.settings import KubernetesSettings
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, api_of, run_scripted, status

SETTINGS = KubernetesSettings("in-cluster", cluster="west", namespace="peloton")
PATH = "/api/v1/namespaces/peloton/secrets"
JOB, OTHER = (JobId(f"00000000-0000-4000-8000-00000000000{digit}") for digit in (1, 2))
KEY = Secret("00000000-0000-4000-8000-00000000000a", "/run/key", b"\x00\xff")
NAME = f"peloton-west-{KEY.secret_id}-0"


def cluster_of(secret: Any) -> str:
    return f"peloton.io/cluster={secret['metadata']['labels']['peloton.io/cluster']}"


class Store:
    """A store of Secrets by name; it creates none if ``refuses`` is set."""

    def __init__(self) -> None:
        self.secrets: dict[str, Any] = {}
        self.refuses = False

    def serve(self, asked: Asked) -> Iterator[bytes]:
        path, _, query = asked.path.partition("?")
        name = path.removeprefix(f"{PATH}/")
        if asked.method == "GET":
            yield answer(200, {"items": [each for each in self.secrets.values() if cluster_of(each) in unquote(query)]})
        elif asked.method == "DELETE":
            found = self.secrets.pop(name, None)
            yield answer(200, {}) if found else answer(404, status(404, "NotFound"))
        elif self.refuses:
            yield answer(403, status(403, "Forbidden", 'cannot create resource "secrets"'))
        else:
            body = orjson.loads(asked.body)
            name = body["metadata"]["name"]
            is_there = name in self.secrets
            self.secrets.setdefault(name, body)
            yield answer(409, status(409, "AlreadyExists")) if is_there else answer(201, body)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(pod_secrets, "SWEEP_S", 0.0)
    monkeypatch.setattr(pod_secrets, "UNUSED_S", 0.0)
    return Store()


class Pods:
    """Live pods: the ``names`` of their Secrets, and the ``jobs`` whose pods are being created."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.jobs: set[str] = set()


@pytest.fixture
def live() -> Pods:
    return Pods()


@contextmanager
def secrets_of(store: Store, live: Pods, settings: KubernetesSettings) -> Iterator[PodSecrets]:
    with run_scripted(store.serve) as server, api_of(server) as api:
        use = lambda: SecretUse(live.names, live.names, live.jobs)  # noqa: E731
        yield PodSecrets(api, settings, use, Preparation(api, settings))


@pytest.fixture
def secrets(store: Store, live: Pods) -> Iterator[PodSecrets]:
    with secrets_of(store, live, SETTINGS) as found:
        yield found


def launch(job_id: JobId, *secrets: Secret, count: int = 2) -> HostLaunch:
    job = new_job_record(job_id, job_pb2.JobConfig(name="train", instanceCount=4), 1)
    template = PodTemplate(job, "/eng", task_pb2.TaskConfig(), secrets)
    pods = [PodLaunch(PodId(job_id, instance, 1), template, ()) for instance in range(count)]
    return HostLaunch(Claim(Hostname("node-1"), "uid", ("room",)), pods)


def test_a_secret_is_made_once_for_all_pods(secrets: PodSecrets, store: Store) -> None:
    """The secret has its bytes and the labels of its job; it is never changed, and a repeated creation is no error."""
    launches = [launch(JOB, KEY), launch(OTHER)]

    assert [(launches, [])] * 2 == [secrets.make(launches) for _ in range(2)]

    [(name, body)] = store.secrets.items()
    assert (NAME, KEY.data, True) == (name, b64decode(body["data"]["data"]), body["immutable"])
    labels = {"peloton.io/cluster": "west", "peloton.io/job": JOB, "peloton.io/secret": KEY.secret_id}
    assert labels == body["metadata"]["labels"]


def test_pods_whose_secret_is_not_made_are_not_launched(secrets: PodSecrets, store: Store) -> None:
    """Other pods are launched, and a launch without pods returns the resources of a host."""
    store.refuses = True

    kept, failed = secrets.make([launch(JOB, KEY), launch(OTHER)])

    assert [0, 2] == [len(each.pods) for each in kept]
    why = 'the secret at /run/key was not made: HTTP 403: cannot create resource "secrets"'
    assert [(PodId(JOB, instance, 1), why) for instance in range(2)] == failed


def test_a_secret_goes_when_no_live_pod_has_it(secrets: PodSecrets, store: Store, live: Pods) -> None:
    """A secret is created again by the next launch. Pods that are being created count."""
    secrets.make([launch(JOB, KEY)])
    cases: list[tuple[set[str], set[str]]] = [({NAME}, set()), (set(), {JOB})]
    for live.names, live.jobs in cases:
        secrets.run_periodic()
        assert [NAME] == list(store.secrets)

    live.names, live.jobs = {"another"}, {OTHER}
    secrets.run_periodic()
    assert [] == list(store.secrets)
    secrets.make([launch(JOB, KEY)])
    assert [NAME] == list(store.secrets)


def test_one_that_was_just_made_stays(secrets: PodSecrets, store: Store, live: Pods) -> None:
    """The pods of the secret, or of a later launch that reuses it, may not be visible yet."""
    for seen in (set[str](), {NAME}):
        live.names = seen
        secrets.run_periodic()
        secrets.make([launch(JOB, KEY)])
        live.names = set()
        secrets.run_periodic()
        assert [NAME] == list(store.secrets)


def test_a_successor_removes_what_is_left(secrets: PodSecrets, store: Store, live: Pods) -> None:
    """Secrets whose pods have ended meanwhile are removed."""
    for job_id, name in ((JOB, "left"), (OTHER, "used")):
        store.secrets[name] = {
            "metadata": {"name": name, "labels": {"peloton.io/job": job_id, "peloton.io/cluster": "west"}}
        }
    live.names.add("used")

    secrets.run_periodic()

    assert ["used"] == list(store.secrets)


def test_new_data_is_another_secret(secrets: PodSecrets, store: Store) -> None:
    """Running pods keep their secret."""
    secrets.make([launch(JOB, KEY)])
    secrets.make([launch(JOB, Secret(KEY.secret_id, KEY.path, b"new", 1))])

    assert [NAME, f"peloton-west-{KEY.secret_id}-1"] == list(store.secrets)


def test_another_cluster_of_the_namespace_has_secrets_of_its_own(secrets: PodSecrets, store: Store, live: Pods) -> None:
    """Another cluster does not see the pods of this one, and deletes secrets that none of its own pods has."""
    with secrets_of(store, Pods(), replace(SETTINGS, cluster="east")) as others:
        others.make([launch(JOB, KEY)])
        secrets.make([launch(JOB, KEY)])
        live.names = {NAME}
        for each in (others, secrets):
            each.run_periodic()
    assert NAME in store.secrets
