"""Prefect's flow runs as jobs: one ends well, one is killed, and one has to move and is cancelled."""

from __future__ import annotations

import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.e2e.local import Cluster, temporary
from tests.frameworks.environments import ROOT, environment
from tests.nightly import NIGHTLY
from tests.ports import free_ports

pytestmark = NIGHTLY
TIMEOUT_S = 800.0
ENDED = ("SUCCEEDED", "FAILED", "KILLED")


@contextmanager
def process(variables: Mapping[str, str], log: Path, *command: str) -> Iterator[None]:
    with log.open("w") as output:
        running = subprocess.Popen(command, env=variables, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            running.terminate()
            running.wait(60)


def answers(url: str) -> bool:
    try:
        return bool(urllib.request.urlopen(url, timeout=10).read())
    except (OSError, urllib.error.URLError):
        return False


def test_flow_runs_live_as_jobs(tmp_path: Path) -> None:
    """A killed pod is a crash; SIGTERM schedules the flow run again, as another job; a cancelled one leaves no job."""
    python = environment("prefect")
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}/api"
    variables = {
        **os.environ,
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PREFECT_API_URL": url,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_WORKER_QUERY_SECONDS": "1",
    }
    server = (str(python.with_name("prefect")), "server", "start", "--no-ui", "--port", str(port))
    worker = (str(python), "tests/frameworks/prefect_worker.py", "cluster")
    with (
        Cluster(temporary(tmp_path / "peloton")) as cluster,
        process(variables, tmp_path / "server.log", *server),
        ExitStack() as stack,
    ):
        cluster.pool("science")
        cluster.wait(lambda: answers(f"{url}/health"), "the server of Prefect", 120)
        stack.enter_context(process(variables, tmp_path / "worker.log", *worker))
        cluster.wait(lambda: answers(f"{url}/work_pools/cluster"), "the work pool, which the worker creates", 120)
        command = [str(python), "tests/frameworks/prefect_life.py", cluster.local.address]
        done = subprocess.run(
            command, env=variables, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == 0, done.stderr[-5000:] + (tmp_path / "worker.log").read_text()[-5000:]
        ends = [line.split() for line in done.stdout.splitlines() if line.endswith(ENDED)]
        assert len(ends) == 4, done.stdout
        for job, state in ends:
            assert cluster.finish(job, 120) == state
