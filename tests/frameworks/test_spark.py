"""Spark on Peloton with the real pyspark: a sort that spills while an agent dies, executors that a second team takes
back for a while, and a driver that is killed and continues from its checkpoint."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.yaml_config import load_message
from peloton.integrations.spark_submit import create_job, driver_job, parse
from tests.e2e.local import Cluster, shell, temporary
from tests.frameworks.environments import ROOT, environment
from tests.nightly import NIGHTLY

pytestmark = [NIGHTLY, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

APPS = Path(__file__).parent / "spark_apps"
MODULE = ROOT / "integrations" / "spark"
BUILD_MAX_S, APP_MAX_S = 580.0, 400.0
START_S = 120.0
"""Longest time on a quiet machine until a JVM with Spark has done its first step."""
SMALL = (
    "spark.driver.memory=512m",
    "spark.executor.memory=512m",
    "spark.executor.memoryOverhead=200m",
    "spark.ui.showConsoleProgress=false",
)
KEEPS_BLOCKS = (
    "spark.decommission.enabled=true",
    "spark.storage.decommission.enabled=true",
    "spark.storage.decommission.rddBlocks.enabled=true",
    "spark.storage.decommission.shuffleBlocks.enabled=true",
)
"""Settings by which an executor that is evicted moves its blocks."""


@pytest.fixture(scope="module")
def jar() -> str:
    """The jar, built as ``make spark`` does, with the tests of the module, if a source is newer."""
    target = MODULE / "target" / "peloton-spark.jar"
    sources = [MODULE / "pom.xml", *filter(Path.is_file, (MODULE / "src").rglob("*"))]
    if target.exists() and target.stat().st_mtime > max(source.stat().st_mtime for source in sources):
        return str(target)
    if not shutil.which("mvn"):
        pytest.skip("mvn: not installed")
    built = subprocess.run(
        ["mvn", "-q", "-B", "package"],
        cwd=MODULE,
        capture_output=True,
        text=True,
        timeout=BUILD_MAX_S,
        check=False,
        env={**os.environ, "MAVEN_OPTS": "-Xmx400m"},
    )
    if "Could not resolve" in built.stdout or "Could not transfer" in built.stdout:
        pytest.skip("Maven cannot download what Spark needs")
    assert built.returncode == 0, built.stdout[-4000:]
    return str(target)


@contextmanager
def cluster_of(tmp_path: Path, hosts: int, cpus: int = 2) -> Iterator[Cluster]:
    shape = f"cpus: {cpus}, mem: 4000, disk: 20000, ports: [7337-7337, 31000-31100]"  # one for the shuffle service
    lines = [f"- {{name: host-{i}, {shape}}}" for i in range(hosts)]
    (tmp_path / "hosts.yaml").write_text("\n".join(lines))
    settings = {"web": True, "hosts_file": tmp_path / "hosts.yaml", "pass_env": ("PATH", "JAVA_HOME")}
    with Cluster(temporary(tmp_path / "data", **settings)) as cluster:
        yield cluster


def master_of(cluster: Cluster, pool: str) -> str:
    return f"spark+peloton://127.0.0.1:{cluster.local.web_port}/{pool}"


class App:
    """A driver in client mode whose output is lines of JSON."""

    def __init__(self, name: str, arguments: list[str], log: Path) -> None:
        self.log = log
        python = environment("spark")
        with open(log, "w") as errors:
            self.process = subprocess.Popen(
                [str(python), str(APPS / name), *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYSPARK_PYTHON": str(python)},
            )

    def line(self) -> str:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(("{", "ready")):
                return line
        raise AssertionError(f"the application ended:\n{self.log.read_text()[-6000:]}")

    def answer(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.line())
        return answer


@contextmanager
def app(name: str, arguments: list[str], log: Path) -> Iterator[App]:
    running = App(name, arguments, log)
    try:
        yield running
        assert running.process.wait(APP_MAX_S) == 0, log.read_text()[-6000:]
    finally:
        running.process.kill()
        running.process.communicate()


def test_a_sort_spills_and_survives_the_loss_of_an_agent(tmp_path: Path, jar: str) -> None:
    """200 MB are sorted by two executors with little memory; an agent dies with one of them amid the sort."""
    with cluster_of(tmp_path, hosts=3, cpus=1) as cluster:
        cluster.pool("spark")
        arguments = [master_of(cluster, "spark"), jar, "2500", "2"]
        with app("sort.py", arguments, tmp_path / "driver.log") as driver:
            assert driver.line() == "ready\n"
            [job] = active_jobs(cluster)
            victim = cluster.task(job, 0).runtime.host
            time.sleep(5)  # amid the sort
            cluster.drill(f"agents/{victim}/stop", {"now": True})
            found = driver.answer()

        assert found["is_right"]
        assert found["spilled"] > 0
        assert cluster.job_state(job) in ("KILLED", "KILLING", "SUCCEEDED")


def test_a_team_takes_back_half_of_the_executors_and_returns_them(tmp_path: Path, jar: str) -> None:
    """Two of four executors are evicted after they have written shuffle files: these move, no task fails or runs again,
    and the executors come back when the other team's job has ended."""
    with cluster_of(tmp_path, hosts=2) as cluster:
        cluster.pool("spark", own_cpu=2)
        team = cluster.pool("team", own_cpu=2)
        settings = ["spark.executor.instances=4", *SMALL, *KEEPS_BLOCKS]
        arguments = [master_of(cluster, "spark"), jar, str(tmp_path), *settings]
        with app("rounds.py", arguments, tmp_path / "driver.log") as driver:
            assert driver.answer()["keys"] == 1000
            [job] = active_jobs(cluster)
            cluster.wait(lambda: running(cluster, job) == 4, "four executors", START_S)
            other = cluster.submit(team, instanceCount=2, defaultConfig=shell("sleep 1000", cpu=1, memory=16))
            cluster.wait(lambda: running(cluster, other) == 2, "the team's pods", START_S)
            assert running(cluster, job) == 2
            (tmp_path / "go").touch()
            found = driver.answer()
            stop(cluster, other)
            cluster.wait(lambda: running(cluster, job) == 4, "the executors back", START_S)
            (tmp_path / "end").touch()

        assert found["sum"] == sum(range(400_000))
        assert found["failed_tasks"] == 0
        assert found["tasks"] == 8 + 8 + 8  # written, counted, summed: none of the first again
        assert sorted(cluster.run_ids(job).values()) == [1, 1, 2, 2]


def test_idle_executors_go_and_their_shuffle_files_stay(tmp_path: Path, jar: str) -> None:
    """Dynamic allocation stops executors that are idle, and with the last one their job; a shuffle service, which is a
    daemon, keeps their files, so that executors of the next job read them and no task runs again."""
    with cluster_of(tmp_path, hosts=1, cpus=4) as cluster:
        cluster.pool("spark")
        daemon = submit_shuffle_service(cluster, cluster.pool("daemons"))
        cluster.wait(lambda: running(cluster, daemon) == 1, "the shuffle service", START_S)
        settings = [
            "spark.dynamicAllocation.enabled=true",
            "spark.dynamicAllocation.maxExecutors=2",
            "spark.dynamicAllocation.executorIdleTimeout=3s",
            "spark.shuffle.service.enabled=true",
            *SMALL,
        ]
        arguments = [master_of(cluster, "spark"), jar, str(tmp_path), *settings]
        with app("rounds.py", arguments, tmp_path / "driver.log") as driver:
            assert driver.answer()["keys"] == 1000
            [first] = set(active_jobs(cluster)) - {daemon}
            assert cluster.finish(first, START_S) == "KILLED"
            (tmp_path / "go").touch()
            found = driver.answer()
            (tmp_path / "end").touch()

        assert found["sum"] == sum(range(400_000))
        assert (found["failed_tasks"], found["tasks"]) == (0, 8 + 8 + 8)
        stop(cluster, daemon)


def submit_shuffle_service(cluster: Cluster, pool: str) -> str:
    """Create the daemon of the example, with the Spark of the tests."""
    text = (ROOT / "examples" / "spark" / "shuffle-service.yaml").read_text()
    assert "/opt/spark" in text
    config = load_message(text.replace("/opt/spark", str(spark_home())), job_pb2.JobConfig)
    config.respoolID.value = pool
    answer = cluster.client.jobs.Create(job_pb2.CreateRequest(config=config))
    assert not answer.HasField("error"), answer.error
    return str(answer.jobId.value)


def spark_home() -> Path:
    """Return the folder of pyspark in its environment."""
    return next(environment("spark").parents[1].glob("lib/python*/site-packages/pyspark"))


def test_a_killed_driver_continues_from_its_checkpoint(tmp_path: Path, jar: str) -> None:
    """A driver in cluster mode that is killed amid a stream runs again, adds executors of its own to its job, and each
    word is written once."""
    python, source = environment("spark"), tmp_path / "source"
    source.mkdir()
    for i in range(6):
        (source / f"{i}.txt").write_text(f"a{i} b{i} c{i}\n")
    with cluster_of(tmp_path, hosts=2) as cluster:
        cluster.pool("spark")
        options = ["--master", master_of(cluster, "spark"), "--name", "stream"]
        for setting in ("spark.peloton.driver.preemptible=true", "spark.driver.memoryOverhead=200m", *SMALL):
            options += ["--conf", setting]
        options += ["--num-executors", "1", "--conf", f"spark.pyspark.python={python}", str(APPS / "stream.py")]
        options += [str(source), str(tmp_path / "sink"), str(tmp_path / "checkpoint")]
        asked = parse(options)
        job = create_job(asked.address, asked.pool, driver_job(asked, jar, str(spark_home())))
        commits = tmp_path / "checkpoint" / "commits"
        cluster.wait(lambda: commits.is_dir() and len(list(commits.glob("[0-9]*"))) >= 2, "two batches", START_S)
        kill_driver(job)

        assert cluster.finish(job, APP_MAX_S) == "SUCCEEDED"
        assert cluster.run_ids(job)[0] == 2
        assert len(cluster.states(job)) == 3  # the driver, an executor of each of its runs
        metadata = tmp_path / "sink" / "_spark_metadata"
        written = {
            json.loads(line)["path"].removeprefix("file://")
            for batch in metadata.glob("[0-9]*")
            for line in batch.read_text().splitlines()[1:]
        }
        words = [word for path in written for word in Path(path).read_text().split()]
        assert sorted(words) == sorted(f"{letter}{i}" for letter in "abc" for i in range(6))


def active_jobs(cluster: Cluster) -> list[str]:
    return [str(one.value) for one in cluster.client.jobs.GetActiveJobs(job_pb2.GetActiveJobsRequest()).ids]


def running(cluster: Cluster, job: str) -> int:
    return list(cluster.states(job).values()).count("RUNNING")


def stop(cluster: Cluster, job: str) -> None:
    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job)))


def kill_driver(job: str) -> None:
    """Kill the JVM of the driver, which has its job's id among its arguments."""
    for arguments in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = arguments.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"org.apache.spark.deploy.SparkSubmit" in words and f"spark.peloton.driver.job={job}".encode() in words:
            os.kill(int(arguments.parent.name), 9)
