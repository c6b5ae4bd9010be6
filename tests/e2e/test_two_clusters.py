"""Two local clusters that start at the same moment on one machine."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.local import Cluster, shell, temporary
from tests.nightly import NIGHTLY
from tests.ports import free_ports

pytestmark = [NIGHTLY, pytest.mark.xdist_group("up")]

SERVER = """
import os, pathlib, socket, sys, time
folder, cluster = pathlib.Path(sys.argv[1]), sys.argv[2]
server = socket.create_server(("127.0.0.1", int(os.environ["HTTP"])))
(folder / f"listens-{cluster}-{os.environ['PELOTON_INSTANCE_ID']}").touch()
while not (folder / "enough").exists():
    time.sleep(0.1)
"""
INSTANCES = 6


def test_two_clusters_that_start_at_once_do_not_meet(tmp_path: Path) -> None:
    """Each has a Web UI and ports for its pods: servers of both listen at the same time."""
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    settings = [replace(temporary(tmp_path / str(port)), port=port) for port in free_ports(2)]
    with ExitStack() as stack, ThreadPoolExecutor(2) as threads:
        clusters = list(threads.map(lambda each: stack.enter_context(Cluster(each)), settings))
        jobs = []
        for each in clusters:
            command = f"{sys.executable} {script} {tmp_path} {each.local.port}"
            task = shell(command, ports=[{"name": "http", "envName": "HTTP"}])
            jobs.append(each.submit(each.pool("p"), instanceCount=INSTANCES, defaultConfig=task))
        clusters[0].wait(lambda: 2 * INSTANCES == len(list(tmp_path.glob("listens-*"))), "servers of both clusters")
        (tmp_path / "enough").touch()

        assert ["SUCCEEDED"] * 2 == [each.finish(job) for each, job in zip(clusters, jobs, strict=True)]
        assert 2 == len({each.local.ui_port for each in clusters})
