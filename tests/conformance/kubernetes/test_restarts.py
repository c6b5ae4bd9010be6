"""An apiserver that is killed comes back with all that was stored, and without what a watch could go on from."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conformance.kubernetes.emulated import EmulatedKubernetes
from tests.conformance.kubernetes.lab import pod
from tests.kubernetes.client import Client, Json
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.fixtures import REAL_KUBERNETES

NAMESPACE = "restarts"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


class Restartable(NamedTuple):
    client: Client
    restart: Callable[[], None]


@pytest.fixture(params=["emulated", pytest.param("real", marks=REAL_KUBERNETES)])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Restartable]:
    if request.param == "real":
        plane: ControlPlane = request.getfixturevalue("control_plane")  # nobody else uses it at the same time
        with Client(plane.login) as client:

            def restart() -> None:
                plane.kill("kube-apiserver")
                client.close()
                plane.start("kube-apiserver")

            yield Restartable(client, restart)
            plane.restore()
            client.ask("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
        return
    with EmulatedKubernetes(tmp_path) as emulated, Client(emulated.login) as client:

        def restart_emulated() -> None:
            emulated.kill()
            client.close()
            emulated.start()

        yield Restartable(client, restart_emulated)


def test_a_watch_from_before_a_restart_is_too_old(cluster: Restartable) -> None:
    """Objects outlive a kill -9; watches end, and one from an earlier version has an ERROR 410."""
    client = cluster.client
    assert client.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}).status == http.client.CREATED
    versions = []
    for name in ("r1", "r2", "r3"):
        created = client.ask("POST", PODS, pod(name))
        assert created.status == http.client.CREATED, created.body
        versions.append(created.json()["metadata"]["resourceVersion"])
    with client.watch(f"{PODS}?watch=1&resourceVersion={versions[0]}") as watch:
        events = iter(watch)
        seen = [next(events)["object"]["metadata"]["name"] for _ in range(2)]
        cluster.restart()
        assert [] == list(events)
    listed = client.ask("GET", PODS).json()

    assert ["r2", "r3"] == seen
    assert ["r1", "r2", "r3"] == [item["metadata"]["name"] for item in listed["items"]]
    assert versions == [item["metadata"]["resourceVersion"] for item in listed["items"]]
    assert [("ERROR", 410, "Expired")] == _first(client, versions[0])
    now = listed["metadata"]["resourceVersion"]
    with client.watch(f"{PODS}?watch=1&resourceVersion={now}&timeoutSeconds=60") as watch:
        assert client.ask("DELETE", f"{PODS}/r1").status == http.client.OK
        assert "r1" == next(iter(watch))["object"]["metadata"]["name"]


def _first(client: Client, version: str) -> list[tuple[str, int, str]]:
    """The only event of a watch that ends at once."""
    with client.watch(f"{PODS}?watch=1&resourceVersion={version}&timeoutSeconds=60") as watch:
        return [(event["type"], *_status(event["object"])) for event in watch]


def _status(status: Json) -> tuple[int, str]:
    return status["code"], status["reason"]
