"""Logs of pods over HTTP."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.lab.kubernetes.nodes.settings import NodeSettings
from services.lab.shared.hosts import HostSpec
from tests.unit.lab.kubernetes.cluster import PODS, Cluster, pod

pytestmark = pytest.mark.slow

WATCH = f"{PODS}?watch=1&fieldSelector=metadata.name="


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Yield a cluster of one node with processes."""
    with Cluster(tmp_path, nodes=NodeSettings(tmp_path, (HostSpec("node-1"),))) as cluster:
        yield cluster


def run(cluster: Cluster, name: str, command: str, phase: str, **spec: Any) -> None:
    """Create a pod and wait until it is in the phase."""
    body = pod(name, **spec)
    body["spec"]["containers"][0]["command"] = ["/bin/sh", "-c", command]
    with cluster.watch(f"{WATCH}{name}") as watch:
        assert 201 == cluster.create(PODS, body).status
        while watch.next()[1]["status"]["phase"] != phase:
            pass


def test_the_log_of_a_pod_that_has_ended(cluster: Cluster) -> None:
    """The log has both outputs in their order, and the options of the query apply."""
    run(cluster, "a", "echo one; echo two >&2; echo three", "Succeeded")

    assert b"one\ntwo\nthree\n" == cluster.get(f"{PODS}/a/log").body
    assert b"three\n" == cluster.get(f"{PODS}/a/log?tailLines=1&container=main").body
    assert b"one" == cluster.get(f"{PODS}/a/log?limitBytes=3").body
    assert b"" == cluster.get(f"{PODS}/a/log?tailLines=0").body
    assert b"one\ntwo\nthree\n" == cluster.get(f"{PODS}/a/log?tailLines=9").body


def test_a_log_is_followed_to_its_end(cluster: Cluster) -> None:
    """A followed log shows later lines when they are written, and ends with the container."""
    run(cluster, "a", "echo one; until test -e go; do sleep 0.05; done; echo two", "Running")
    connection = http.client.HTTPConnection("127.0.0.1", cluster.server.port, timeout=180)
    connection.request("GET", f"{PODS}/a/log?follow=true")
    response = connection.getresponse()
    assert b"one\n" == response.readline()

    (next(Path(cluster.server.settings.data_dir).glob("pods/*/containers/main")) / "go").touch()

    assert b"two\n" == response.read()
    connection.close()


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("two/log", 400, "a container name must be specified for pod two, choose one of: [main side]"),
        ("two/log?container=x", 400, "container x is not valid for pod two"),
        ("none/log", 404, 'pods "none" not found'),
        ("two/log?container=main&previous=true", 400, 'previous terminated container "main" in pod "two" not found'),
        ("two/log?container=main&sinceTime=x", 400, "this apiserver keeps no times of lines: logs have no sinceTime"),
        ("waits/log", 400, 'container "main" in pod "waits" is waiting to start: ErrImageNeverPull'),
    ],
)
def test_refusals(cluster: Cluster, path: str, status: int, message: str) -> None:
    """Faulty requests are rejected with the messages of an apiserver."""
    containers = [{"name": name, "image": "b:1", "command": ["true"]} for name in ("main", "side")]
    run(cluster, "two", "true", "Succeeded", containers=containers)
    absent = {"name": "main", "image": "absent:1", "imagePullPolicy": "Never"}
    with cluster.watch(f"{WATCH}waits") as watch:
        cluster.create(PODS, pod("waits", containers=[absent]))
        while "ErrImageNeverPull" not in str(watch.next()):
            pass

    answer = cluster.get(f"{PODS}/{path}")

    assert (status, message) == (answer.status, answer.json["message"])


def test_logs_outlive_the_emulation_with_their_pods(tmp_path: Path) -> None:
    """Logs persist over a restart of the emulation and are removed with their pods."""
    settings = NodeSettings(tmp_path, (HostSpec("node-1"),))
    with Cluster(tmp_path, nodes=settings) as cluster:
        run(cluster, "a", "echo kept", "Succeeded")

    with Cluster(tmp_path, nodes=settings) as cluster:
        assert b"kept\n" == cluster.get(f"{PODS}/a/log").body
        assert 200 == cluster.ask("DELETE", f"{PODS}/a").status
        assert 404 == cluster.get(f"{PODS}/a/log").status
    assert [] == list((tmp_path / "pods").iterdir())
