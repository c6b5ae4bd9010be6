"""YARN as services: its distributed shell, Spark, a killed resource manager, and node managers that give way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.api.v0.respool import respool_pb2
from services.lab.local.ports import PortReservations
from tests.e2e.local import Cluster, shell, temporary
from tests.frameworks.environments import ENVIRONMENTS, environment, run
from tests.nightly import NIGHTLY

pytestmark = NIGHTLY
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "yarn"
JARS = ENVIRONMENTS / "yarn-jars"
RM_PORTS = 6
LEAST, MOST = 2, 3
WORK_MAX_S, QUIET_S = 600.0, 120.0
WITH_LITTLE_MEMORY = {
    "spark.yarn.am.memory": "384m",
    "spark.yarn.am.memoryOverhead": "128m",
    "spark.executor.memory": "512m",
    "spark.executor.memoryOverhead": "256m",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class Yarn:
    """YARN on a local cluster, by the commands of the example."""

    def __init__(self, cluster: Cluster, work: Path, port: int) -> None:
        self.cluster, self.work, self.port = cluster, work, port

    def command(self, *words: str) -> list[str]:
        given = ["--address", self.cluster.local.address, "--port", str(self.port), "--jars", str(JARS)]
        return [sys.executable, str(EXAMPLE / "yarn.py"), *given, "--work", str(self.work), *words]

    def run(self, *words: str) -> str:
        done = subprocess.run(self.command(*words), capture_output=True, text=True, timeout=WORK_MAX_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port + 4}/ws/v1/cluster/{path}", timeout=30) as answer:
            return json.load(answer)

    def states(self) -> list[str]:
        try:
            return [node["state"] for node in (self.ask("nodes")["nodes"] or {}).get("node", ())]
        except OSError:
            return []

    def kill_manager(self) -> None:
        """kill -9 of all processes of the resource manager's pod."""
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and self.is_of_manager(folder):
                os.kill(int(folder.name), signal.SIGKILL)

    def is_of_manager(self, folder: Path) -> bool:
        try:
            variables, words = (folder / "environ").read_text(errors="replace"), (folder / "cmdline").read_bytes()
        except OSError:
            return False
        return f"{self.work}" in variables and (b"controller.py" in words or b".ResourceManager" in words)


@pytest.fixture
def yarn(tmp_path: Path) -> Iterator[Yarn]:
    if shutil.which("mvn") is None or shutil.which("java") is None:
        pytest.skip("no Maven and Java here")
    pom = ("-f", str(EXAMPLE / "pom.xml"), f"-DoutputDirectory={JARS}")
    run("mvn", "-q", "-B", *pom, "dependency:copy-dependencies")
    taken = PortReservations()
    first = next(port for port in range(17_100, 17_900, RM_PORTS) if all(taken.take(port + n) for n in range(RM_PORTS)))
    taken.close()
    with Cluster(temporary(tmp_path / "peloton")) as cluster:
        cluster.pool("yarn", own_cpu=1)
        one = Yarn(cluster, tmp_path / "work", first)
        make_reservation(cluster, "yarn", 1024)
        yield one
        one.run("stop")


def make_reservation(cluster: Cluster, name: str, memory_mib: float) -> None:
    """Reserve memory and disk for a pool that is there."""
    key = cluster.client.respools.LookupResourcePoolID(
        respool_pb2.LookupRequest(path=respool_pb2.ResourcePoolPath(value=f"/{name}"))
    ).id
    config = cluster.client.respools.GetResourcePool(respool_pb2.GetRequest(id=key)).poolinfo.config
    for one in config.resources:
        one.reservation = {"memory": memory_mib, "disk": 1024}.get(one.kind, one.reservation)
    answer = cluster.client.respools.UpdateResourcePool(respool_pb2.UpdateRequest(id=key, config=config))
    assert not answer.HasField("error"), answer.error


def test_applications_run_and_node_managers_follow_demand(yarn: Yarn) -> None:
    """The resource manager dies and comes back; shells and a sort of Spark run; another pool takes a host back."""
    yarn.run("start", "/yarn", "--least", str(LEAST), "--most", str(MOST))

    yarn.kill_manager()
    yarn.cluster.wait(lambda: not yarn.states(), "the resource manager is gone", QUIET_S)
    yarn.cluster.wait(lambda: yarn.states().count("RUNNING") == LEAST, "its nodes come back to it", QUIET_S)

    said = yarn.run("shell", "sleep 30", "--containers", "9")
    assert "Application completed successfully" in said, said

    python = environment("yarn")
    assert "sorted 100000 rows: True" in sort(yarn, python)

    yarn.cluster.wait(lambda: yarn.states().count("RUNNING") == LEAST, "the idle node manager is gone", QUIET_S)
    taker = yarn.cluster.pool("taker")
    memory = yarn.cluster.capacity("memory")
    make_reservation(yarn.cluster, "taker", memory - 1024)
    job = yarn.cluster.submit(taker, instanceCount=3, defaultConfig=shell("sleep 600", memory=memory / 3 - 1024))
    yarn.cluster.wait(lambda: yarn.cluster.counts(job).get("RUNNING") == 3, "pods of the other pool", QUIET_S)
    assert 1 == yarn.states().count("RUNNING")
    assert "LOST" not in yarn.states()


def sort(yarn: Yarn, python: Path) -> str:
    """Run the sort of the example by Spark, and return its output."""
    [home] = (python.parents[1] / "lib").glob("python3*/site-packages/pyspark")
    settings = {
        **WITH_LITTLE_MEMORY,
        "spark.yarn.jars": f"local:{home}/jars/*",
        "spark.yarn.stagingDir": f"file://{yarn.work}",
    }
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    program = [str(EXAMPLE / "sort.py"), "100000"]
    done = subprocess.run(
        [str(python.with_name("spark-submit")), "--master", "yarn", "--num-executors", "2", *words, *program],
        env={
            **os.environ,
            "HADOOP_CONF_DIR": str(yarn.work / "conf"),
            "SPARK_HOME": str(home),
            "PYSPARK_PYTHON": str(python),
        },
        capture_output=True,
        text=True,
        timeout=WORK_MAX_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout
