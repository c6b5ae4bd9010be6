"""Commands in a running container, over a WebSocket as kubectl opens it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode

import pytest

from services.lab.kubernetes.nodes.settings import NodeSettings
from services.lab.shared.hosts import HostSpec
from tests.unit.lab.kubernetes.cluster import PODS, Cluster, pod
from tests.unit.lab.shared.websockets import Channels

pytestmark = pytest.mark.slow

V5 = "v5.channel.k8s.io"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Yield a cluster of one node, and a pod ``a`` that runs there."""
    with Cluster(tmp_path, nodes=NodeSettings(tmp_path, (HostSpec("node-1"),))) as cluster:
        body = pod("a")
        body["spec"]["containers"][0] |= {"command": ["sleep", "1000"], "env": [{"name": "OURS", "value": "yes"}]}
        with cluster.watch(f"{PODS}?watch=1") as watch:
            cluster.create(PODS, body)
            while watch.next()[1]["status"]["phase"] != "Running":
                pass
        yield cluster


def open_channels(cluster: Cluster, command: str, name: str = "a", **options: str) -> Channels:
    query = [("command", word) for word in ("sh", "-c", command)] + list(options.items())
    return Channels(cluster.server.port, f"{PODS}/{name}/exec?{urlencode(query)}", V5)


def test_output_and_exit_code(cluster: Cluster) -> None:
    """A command runs in the environment and folder of the container, with each stream in its own channel."""
    with closing(open_channels(cluster, "echo $OURS; echo bad >&2; exit 3", stdout="true", stderr="true")) as channels:
        found = channels.rest()

    assert (b"yes\n", b"bad\n") == (found[1], found[2])
    status = json.loads(found[3])
    assert ("Failure", "NonZeroExitCode") == (status["status"], status["reason"])
    assert [{"reason": "ExitCode", "message": "3"}] == status["details"]["causes"]


def test_input_ends_by_closing_its_channel(cluster: Cluster) -> None:
    """More data than a pipe holds is passed through."""
    data = b"0123456789" * 50_000
    with closing(open_channels(cluster, "cat", stdin="true", stdout="true")) as channels:
        for at in range(0, len(data), 30_000):
            channels.send(0, data[at : at + 30_000])
        channels.send(255, bytes((0,)))
        found = channels.rest()

    assert data == found[1]
    assert "Success" == json.loads(found[3])["status"]


def test_without_input_a_command_reads_its_end(cluster: Cluster) -> None:
    """A command without input reads the end of file at once."""
    with closing(open_channels(cluster, "cat; echo end", stdout="true")) as channels:
        assert b"end\n" == channels.rest()[1]


def test_a_terminal_has_the_size_of_its_client(cluster: Cluster) -> None:
    """A terminal has the size of its client and one stream of output."""
    command = "read line; stty size; test -t 1 && echo terminal"
    with closing(open_channels(cluster, command, stdin="true", stdout="true", tty="true")) as channels:
        channels.send(4, b'{"Width": 91, "Height": 17}')
        channels.send(0, b"go\n")
        found = channels.rest()

    assert b"17 91\r\nterminal\r\n" in found[1]


def test_a_session_ends_with_its_pod(cluster: Cluster) -> None:
    """The command of a session is killed when its pod ends."""
    with closing(open_channels(cluster, "echo on; exec sleep 1000", stdout="true")) as channels:
        assert (1, b"on\n") == next(channels.messages())
        cluster.ask("DELETE", f"{PODS}/a?gracePeriodSeconds=0")

        assert "exit status 137" in json.loads(channels.rest()[3])["message"]


def test_a_command_ends_with_its_client(cluster: Cluster, tmp_path: Path) -> None:
    """The command is killed when its connection closes: until then it holds a pipe open."""
    os.mkfifo(tmp_path / "pipe")
    channels = open_channels(cluster, f"exec sleep 1000 > {tmp_path / 'pipe'}", stdout="true")
    with (tmp_path / "pipe").open("rb") as pipe:
        channels.close()

        assert b"" == pipe.read()


def test_pages_of_others_cannot_run_commands(cluster: Cluster) -> None:
    """The Origin header names the page that opens the WebSocket; another origin is rejected."""
    assert 403 == cluster.get(f"{PODS}/a/exec?command=true", Origin="http://elsewhere.example").status


def status_of(channels: Channels) -> int:
    with closing(channels):
        return channels.status


def test_refusals(cluster: Cluster) -> None:
    """Faulty requests are rejected before the connection changes its protocol."""
    assert 404 == status_of(open_channels(cluster, "true", "none"))
    assert 400 == status_of(open_channels(cluster, "true", container="x"))
    assert 400 == cluster.get(f"{PODS}/a/exec").status
    assert 400 == cluster.get(f"{PODS}/a/exec?command=true").status
    assert 101 == status_of(open_channels(cluster, "true"))
    cluster.create(PODS, pod("waits", containers=[{"name": "main", "image": "absent:1"}]))
    assert 500 == status_of(open_channels(cluster, "true", "waits"))


def test_a_client_that_accepts_json_alone_is_refused(cluster: Cluster) -> None:
    """A client that accepts JSON alone is rejected, as containerd does through a real apiserver."""
    path = f"{PODS}/a/exec?{urlencode({'command': 'true', 'stdout': 'true'})}"

    assert 406 == status_of(Channels(cluster.server.port, path, V5, accept="application/json"))
    assert 101 == status_of(Channels(cluster.server.port, path, V5, accept="application/json, */*"))
