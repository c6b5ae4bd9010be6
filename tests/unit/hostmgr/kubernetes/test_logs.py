"""Logs of pods through the apiserver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

import pytest

from peloton.errors import NotFound
from services.hostmgr.kubernetes.apiserver.wire import Json, Refused
from services.hostmgr.kubernetes.output import logs
from services.hostmgr.kubernetes.output.logs import PodLogs
from tests.unit.hostmgr.kubernetes.scripted import Asked, answer, api_of, chunk_answer, run_scripted, status
from tests.unit.hostmgr.mesos.sockets import chunk

PODS = "/api/v1/namespaces/peloton/pods"
RUNNING: dict[str, Any] = {"running": {}}


def make_ended_status(code: int) -> Json:
    return {"terminated": {"exitCode": code}}


def pod(init: Json | None = None, **states: Json) -> Json:
    """Return a pod with containers ``main`` and ``side``."""
    return {
        "spec": {"containers": [{"name": "main"}, {"name": "side"}], "initContainers": [{"name": "init"}]},
        "status": {
            "containerStatuses": [{"name": name, "state": state} for name, state in sorted(states.items())[::-1]],
            "initContainerStatuses": [{"name": "init", "state": init}] if init else [],
        },
    }


class Cluster:
    """A cluster that serves one pod and its log."""

    def __init__(self, pod: Json, *log: bytes) -> None:
        self.pod = pod
        self.log = log
        self.asked: list[dict[str, str]] = []

    def serve(self, asked: Asked) -> Iterator[bytes]:
        path, _, query = asked.path.partition("?")
        if path == f"{PODS}/p/log":
            self.asked.append({key: values[0] for key, values in parse_qs(query).items()})
            yield chunk_answer() + b"".join(map(chunk, self.log)) + chunk(b"")
        elif path == f"{PODS}/p":
            yield answer(200, self.pod)
        else:
            yield answer(404, status(404, "NotFound"))


def test_files_are_logs_of_containers_that_have_begun() -> None:
    """The log of the first container is stdout; the others are in a folder of their name."""
    cluster = Cluster(pod(init=make_ended_status(0), main=RUNNING, side={"waiting": {}}))
    with run_scripted(cluster.serve) as server, api_of(server) as api:
        assert ("stdout", "init/stdout") == PodLogs(api, "peloton").files("p")
        cluster.pod = pod(init=make_ended_status(0), main=RUNNING, side=make_ended_status(1))
        assert ("stdout", "side/stdout", "init/stdout") == PodLogs(api, "peloton").files("p")


def test_a_log_is_read_or_followed() -> None:
    """The log of the container in the file name is read in pieces."""
    cluster = Cluster(pod(main=RUNNING), b"one\n", b"two")
    with run_scripted(cluster.serve) as server, api_of(server) as api:
        for file, follow in (("stdout", False), ("side/stdout", True)):
            with PodLogs(api, "peloton").open("p", file, follow) as stream:
                assert b"one\ntwo" == b"".join(stream.pieces())
    assert [{"container": "main"}, {"container": "side", "follow": "true"}] == cluster.asked


@pytest.mark.parametrize(
    ("found", "container"),
    [
        (pod(main=make_ended_status(0), side=make_ended_status(3)), "side"),
        (pod(init=make_ended_status(5), main={"waiting": {}}), "init"),
        (pod(main=RUNNING), "main"),
    ],
)
def test_the_tail_is_of_the_container_that_failed(found: Json, container: str) -> None:
    """The first container is used when none has failed."""
    cluster = Cluster(found, b"first\n", b"last\n")
    with run_scripted(cluster.serve) as server, api_of(server) as api:
        assert b"t\nlast\n" == PodLogs(api, "peloton").tail("p", 7)
    assert [{"container": container, "tailLines": "100"}] == cluster.asked


def test_a_tail_of_long_lines_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is the end of the part that was read."""
    monkeypatch.setattr(logs, "TAIL_BYTES_MAX", 10)
    cluster = Cluster(pod(main=RUNNING), *[b"%02d" % number for number in range(50)])
    with run_scripted(cluster.serve) as server, api_of(server) as api:
        assert b"0405" == PodLogs(api, "peloton").tail("p", 4)


def test_a_log_that_is_not_there() -> None:
    """The errors differ for a deleted pod, an unknown file, and a missing permission."""
    cluster = Cluster(pod(main=RUNNING))
    with run_scripted(cluster.serve) as server, api_of(server) as api:
        pods = PodLogs(api, "peloton")
        with pytest.raises(NotFound, match="pod gone is not in the cluster any more"):
            pods.files("gone")
        with pytest.raises(NotFound, match="pod gone is not in the cluster any more"):
            pods.open("gone", "side/stdout")
        with pytest.raises(NotFound, match="pod p has no file stderr: Kubernetes keeps only"):
            pods.open("p", "stderr")
    forbidden = answer(403, status(403, "Forbidden", "no pods/log for you"))
    with (
        run_scripted(lambda asked: [forbidden]) as server,
        api_of(server) as api,
        pytest.raises(Refused, match="no pods/log for you"),
    ):
        PodLogs(api, "peloton").tail("p", 10)
