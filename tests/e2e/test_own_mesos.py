"""`peloton up --mesos`: on a Mesos of the user's, which is left as it was found."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.local import Cluster, shell, temporary
from tests.e2e.test_up import up
from tests.ports import free_ports

pytestmark = pytest.mark.xdist_group("up")


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A Mesos of the user, of which only the address is known."""
    command = [sys.executable, "-m", "services.lab.mesos", "--port", "0", "--data", str(tmp_path / "theirs")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


def ask(master: str, type_: str) -> Any:
    with closing(http.client.HTTPConnection(master, timeout=10)) as connection:
        connection.request("POST", "/api/v1", json.dumps({"type": type_}), {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())[type_.lower()]


def test_a_cluster_on_a_mesos_that_runs(master: str, tmp_path: Path) -> None:
    """None is started, and with the data folder the framework and its pods go."""
    settings = replace(temporary(tmp_path), data_dir=None, mesos=master)
    with Cluster(settings) as cluster:
        job = cluster.submit(cluster.pool("ours"), instanceCount=2, defaultConfig=shell("sleep 300"))
        cluster.wait(lambda: {"RUNNING": 2} == cluster.counts(job), "running pods")
        framework = ask(master, "GET_FRAMEWORKS")["frameworks"][0]["framework_info"]["id"]["value"]
        assert "minicluster" not in cluster.local.parts

    assert f"mesos: framework {framework} is torn down" in cluster.log
    assert [] == ask(master, "GET_FRAMEWORKS").get("frameworks", [])


def test_a_mesos_that_cannot_be_used_is_named() -> None:
    """An unusable Mesos is refused before anything starts: no listener, no address, and options that describe emulated
    hosts."""
    (port,) = free_ports(1)

    away, nonsense = up("--mesos", f"127.0.0.1:{port}"), up("--mesos", "https://mesos")
    both = up("--mesos", f"127.0.0.1:{port}", "--simulate", "3")

    assert (1, 2, 2) == (away.returncode, nonsense.returncode, both.returncode)
    assert f"no Mesos master answers at 127.0.0.1:{port}: start it, or leave out --mesos" in away.stderr
    assert "https://mesos: want HOST:PORT or zk://HOST:PORT,.../PATH" in nonsense.stderr
    assert "--mesos has hosts of its own" in both.stderr
