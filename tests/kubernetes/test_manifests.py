"""Validation by a real apiserver of the pods that configurations produce."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from google.protobuf.json_format import ParseDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from peloton.api.convert import new_job_record
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.model.ids import JobId, PodId
from services.hostmgr.driver import PodLaunch, PodTemplate
from services.hostmgr.kubernetes.pods import statuses
from services.hostmgr.kubernetes.pods.manifests import PodManifest
from services.hostmgr.kubernetes.pods.quantities import amount
from services.hostmgr.kubernetes.settings import KubernetesSettings
from tests.kubernetes.client import Client, Login
from tests.kubernetes.fixtures import REAL_KUBERNETES

pytestmark = REAL_KUBERNETES
Json = dict[str, Any]
JOB = JobId("00000000-0000-4000-8000-000000000001")
NAMESPACE = "manifests"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All&fieldValidation=Strict"
SETTINGS = KubernetesSettings("in-cluster", namespace=NAMESPACE, priority_class="manifests")
EXAMPLES_MAX = 60
TIMEOUT_S = 180.0

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12) | st.sampled_from(
    ["$(A)", "$$", "a" * 70, "/x/y", "Ünï", "peloton.run", "-", "a b", ""]
)
WORDS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
AMOUNTS = st.sampled_from([0, 0.1, 0.3333, 1, 1.5, 100, 1024.7])
MESOS_IMAGE = {"type": "DOCKER", "docker": {"name": "app:1"}}
IMAGES = [
    {"type": "DOCKER", "docker": {"image": "registry.example:5000/team/app@sha256:" + "a" * 64}},
    {"type": "DOCKER", "docker": {"image": "app", "network": "HOST", "force_pull_image": True}},
    {"type": "MESOS", "mesos": {"image": MESOS_IMAGE}, "tty_info": {}, "hostname": "web"},
]
VOLUMES = [
    {"mode": "RW", "container_path": "/data", "host_path": "/mnt"},
    {"mode": "RO", "container_path": "/etc/x", "source": {"type": "HOST_PATH", "host_path": {"path": "/etc/x"}}},
    {"mode": "RW", "container_path": "/s", "source": {"type": "SANDBOX_PATH", "sandbox_path": {"path": "s"}}},
    {
        "mode": "RO",
        "container_path": "/run/key",
        "source": {"type": "SECRET", "secret": {"type": "REFERENCE", "reference": {"name": "db", "key": "password"}}},
    },
]
SECRET = {"type": "REFERENCE", "reference": {"name": "db", "key": "password"}}
CHECKS = [
    {"type": "COMMAND", "enabled": True, "commandCheck": {"command": "true"}},
    {"type": "HTTP", "httpCheck": {"scheme": "https", "port": 8080, "path": "/up"}, "initialIntervalSecs": 1},
    {"type": "HTTP", "httpCheck": {"port": 1}, "intervalSecs": 7, "timeoutSecs": 3, "maxConsecutiveFailures": 9},
]
FOLDERS = [{"name": "shared", "containerPath": "/shared", "medium": "Memory", "sizeMB": 4}]


@st.composite
def parts(draw: st.DrawFn, runs_first: bool = False) -> Json:
    """Draw the description of one container, without its name and its ports."""
    command: Json = {"shell": draw(st.booleans()), "arguments": draw(st.lists(TEXTS, max_size=2))}
    if value := draw(TEXTS):
        command["value"] = value
    if user := draw(st.sampled_from(["", "root", "1000"])):
        command["user"] = user
    variables: list[Json] = [{"name": name, "value": draw(TEXTS)} for name in draw(st.lists(WORDS, max_size=2))]
    if draw(st.booleans()):
        variables.append({"name": "PASSWORD", "type": "SECRET", "secret": SECRET})
    command["environment"] = {"variables": variables}
    kinds = ("cpuLimit", "memLimitMb", "diskLimitMb")
    part: Json = {"command": command, "resource": {kind: draw(AMOUNTS) for kind in kinds}}
    part["resource"]["gpuLimit"] = draw(st.integers(0, 2))
    if draw(st.booleans()):
        part["container"] = {
            **draw(st.sampled_from(IMAGES)),
            "volumes": draw(st.lists(st.sampled_from(VOLUMES), unique_by=str)),
        }
    part["emptyDirs"] = draw(st.sampled_from([[], FOLDERS]))
    for name in () if runs_first else ("healthCheck", "readinessCheck"):
        if check := draw(st.sampled_from([None, *CHECKS])):
            part[name] = check
    return part


@st.composite
def tasks(draw: st.DrawFn) -> tuple[Json, int]:
    """Draw a valid pod, and the number of its ports."""
    task = draw(parts())
    task["otherContainers"] = [{**draw(parts()), "name": f"other-{n}"} for n in range(draw(st.integers(0, 2)))]
    task["initContainers"] = [{**draw(parts(True)), "name": f"first-{n}"} for n in range(draw(st.integers(0, 1)))]
    task["killGracePeriodSeconds"] = draw(st.integers(0, 60))
    task["labels"] = [{"key": draw(TEXTS), "value": draw(TEXTS)} for _ in range(draw(st.integers(0, 3)))]
    dynamic = 0
    for number, part in enumerate((task, *task["otherContainers"])):
        part["ports"] = []
        for name in draw(st.lists(st.sampled_from(["http", "Admin_Port", "a-name-that-is-too-long"]), unique=True)):
            static = draw(st.sampled_from([0, 7_000 + len(part["ports"]) + 10 * number]))
            dynamic += static == 0
            part["ports"].append({"name": f"{name}{number}", "envName": f"PORT_{number}_{len(part['ports'])}"})
            part["ports"][-1] |= {"value": static} if static else {}
    return task, dynamic


@pytest.fixture(scope="module")
def client(kubernetes_login: Login) -> Iterator[Client]:
    priority = "/apis/scheduling.k8s.io/v1/priorityclasses"
    with Client(kubernetes_login) as client:
        assert client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}).status == 201
        assert client.ask("POST", priority, {"metadata": {"name": "manifests"}, "value": 1}).status == 201
        until_s = time.monotonic() + TIMEOUT_S
        while client.ask("POST", PODS, _smallest()).status != 201:  # admission sees the class a moment later
            assert time.monotonic() < until_s
        yield client
        client.ask("DELETE", f"{priority}/manifests")
        client.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}")


def _smallest() -> Json:
    container = {"name": "main", "image": "busybox"}
    return {"metadata": {"name": "try"}, "spec": {"priorityClassName": "manifests", "containers": [container]}}


def is_returned(sent: Any, stored: Any) -> bool:
    """Return whether all sent fields are stored, among defaults; empty ones may be left out."""
    if isinstance(sent, dict):
        if "requests" in sent:  # amounts may be written otherwise
            return all(amount(sent[kind][of]) == amount(stored[kind][of]) for kind in sent for of in sent[kind])
        return all(is_returned(value, stored.get(key, "")) for key, value in sent.items())
    if isinstance(sent, list):
        return len(sent) <= len(stored) and all(map(is_returned, sent, stored))
    return bool(sent == stored)


@given(tasks(), st.booleans())
@settings(max_examples=EXAMPLES_MAX, deadline=None, suppress_health_check=list(HealthCheck))
def test_pods_are_taken_as_they_are(client: Client, wanted: tuple[Json, int], revocable: bool) -> None:
    """No field of a valid configuration's pod is refused, unknown or changed, and its requests equal the
    placement's.
    """
    task, dynamic = wanted
    job = job_pb2.JobConfig(name="train", owningTeam="maps", type=job_pb2.BATCH, instanceCount=4)
    job.sla.revocable = revocable
    template = PodTemplate(new_job_record(JOB, job, 1), "/eng/ml", ParseDict(task, task_pb2.TaskConfig()))
    launch = PodLaunch(PodId(JOB, 3, 2), template, tuple(range(31_000, 31_000 + dynamic)))
    sent = orjson.loads(PodManifest(template, SETTINGS).body(launch, "node-1"))

    reply = client.ask("POST", PODS, sent)

    assert reply.status == 201, reply.body
    stored = reply.json()
    assert is_returned(sent["metadata"], stored["metadata"])
    assert is_returned(sent["spec"], stored["spec"])
    taken = statuses.sum_occupied(stored)
    assert taken.memory_mib == template.resources.memory_mib
    assert revocable or any(template.resources) or taken.cpu_milli == 10
    assert revocable or not any(template.resources) or taken == template.resources
