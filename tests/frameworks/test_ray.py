"""Ray's autoscaler with nodes on Peloton, from none to two and back, of which one is killed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import yaml

from tests.e2e.local import Cluster, temporary
from tests.frameworks.environments import ROOT, environment, run_in
from tests.nightly import NIGHTLY
from tests.ports import free_ports

pytestmark = NIGHTLY
TIMEOUT_S = 700.0
HOST = "127.0.0.1"


@contextmanager
def head(python: Path, config: Path, port: int, variables: Mapping[str, str]) -> Iterator[None]:
    """Run the head of a Ray cluster, in a folder whose path is short enough for its sockets."""
    folder = tempfile.mkdtemp(prefix="ray")
    identity = {"RAY_CLOUD_INSTANCE_ID": "head", "RAY_NODE_TYPE_NAME": "head"}
    command = [str(python.with_name("ray")), "start", "--head", "--block", f"--port={port}", "--num-cpus=0"]
    command += [f"--node-ip-address={HOST}", "--include-dashboard=false", "--object-store-memory=80000000"]
    command += [f"--temp-dir={folder}", f"--autoscaling-config={config}"]
    running = subprocess.Popen(command, env={**variables, **identity}, cwd=ROOT, start_new_session=True)
    try:
        yield
    finally:
        running.terminate()
        try:
            running.wait(60)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)  # what the head started and left
            shutil.rmtree(folder, ignore_errors=True)


def test_nodes_follow_tasks(tmp_path: Path) -> None:
    """Two nodes come for the tasks, the tasks of a killed one run elsewhere, and idle nodes leave."""
    python, [port] = environment("ray"), free_ports(1)
    with Cluster(temporary(tmp_path / "peloton")) as cluster:
        cluster.pool("science")
        config = yaml.safe_load((ROOT / "examples/ray/cluster.yaml").read_text())
        config["idle_timeout_minutes"] = 0.2
        config["provider"] |= {"address": cluster.local.address, "head": f"{HOST}:{port}"}
        config["available_node_types"]["worker"]["max_workers"] = 2
        (path := tmp_path / "cluster.yaml").write_text(yaml.safe_dump(config))
        variables = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "RAY_enable_autoscaler_v2": "1",
            "RAY_raylet_start_wait_time_s": "240",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        with head(python, path, port, variables):
            script = "tests/frameworks/ray_life.py"
            printed = run_in("ray", script, f"{HOST}:{port}", timeout_s=TIMEOUT_S, variables=variables)
            jobs = re.findall(r"^job (\S+)$", printed, re.MULTILINE)
            assert jobs, printed
            for job in jobs:
                assert cluster.finish(job) in ("FAILED", "KILLED")
