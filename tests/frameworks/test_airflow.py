"""Airflow's tasks as jobs, by the operator, and as instances, by the executor; the API is killed in the middle."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import pytest
import yaml

from peloton.api.v0.job import job_pb2
from tests.e2e.local import Cluster, temporary
from tests.frameworks.environments import ROOT, environment, run_in
from tests.nightly import NIGHTLY
from tests.ports import free_ports

pytestmark = NIGHTLY
TIMEOUT_S = 500.0
EXAMPLE = ROOT / "examples" / "airflow"
WORKER_VARIABLES = ("AIRFLOW_HOME", "AIRFLOW__CORE__DAGS_FOLDER", "AIRFLOW__CORE__LOAD_EXAMPLES", "PYTHONPATH")
API_TIMEOUT_S = 60
"""Timeout of a worker's call: the first one of an API server takes long, on a machine that does other work."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    environment("airflow")
    with Cluster(temporary(tmp_path_factory.mktemp("cluster"))) as running:
        running.pool("science")
        yield running


@pytest.fixture(scope="module")
def variables(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of an Airflow whose database is made."""
    found = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow")),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLE / "dags"),
        "PELOTON_ADDRESS": cluster.local.address,
        "PYTHONPATH": str(ROOT),
    }
    subprocess.run([airflow(), "db", "migrate"], env=found, check=True, capture_output=True, timeout=TIMEOUT_S)
    return found


def airflow() -> str:
    return str(environment("airflow").with_name("airflow"))


def ids_of(cluster: Cluster, name: str) -> list[str]:
    found = cluster.client.jobs.Query(job_pb2.QueryRequest(spec=job_pb2.QuerySpec(name=name), summaryOnly=True))
    return [job.id.value for job in found.results]


def live(cluster: Cluster, variables: dict[str, str], job: str, *arguments: str) -> list[str]:
    """Run a DAG to its end, while the API is killed once a job of this name exists; return the printed lines."""
    command = [str(environment("airflow")), "tests/frameworks/airflow_life.py", *arguments]
    with subprocess.Popen(
        command, env=variables, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        cluster.wait(lambda: bool(ids_of(cluster, job)) or run.poll() is not None, f"job {job}", TIMEOUT_S)
        cluster.kill("api")
        printed, _ = run.communicate(timeout=TIMEOUT_S)
    assert run.returncode == 0, printed[-5000:]
    return printed.splitlines()


def test_tasks_of_the_operator_are_jobs(cluster: Cluster, variables: dict[str, str]) -> None:
    """A deferred task and a task that waits run one job each, show its output and hand its id on."""
    printed = live(cluster, variables, "airflow-count", "pi")

    assert printed[-1] == "run success", "\n".join(printed[-50:])
    [count], [check] = ids_of(cluster, "airflow-count"), ids_of(cluster, "airflow-check")
    assert ["SUCCEEDED", "SUCCEEDED"] == [cluster.finish(count), cluster.finish(check)]
    shown = "\n".join(printed)
    assert all(f"[{instance}] pi is about 3.1" in shown for instance in range(3))
    assert f"[0] checked {count}" in shown


def test_tasks_that_end_early_stop_their_jobs(cluster: Cluster, variables: dict[str, str]) -> None:
    """A killed task and a new try stop jobs; an executor adopts instances of another one, and stops revoked ones."""
    address = cluster.local.address
    more = {**variables, "AIRFLOW__PELOTON__ADDRESS": address}
    printed = run_in("airflow", "tests/frameworks/airflow_ends.py", address, timeout_s=TIMEOUT_S, variables=more)

    jobs = printed.splitlines()[-1].split()
    assert ["KILLED"] * 3 == [cluster.finish(job) for job in jobs]


@contextmanager
def api_server(variables: dict[str, str], port: int, log: Path) -> Iterator[None]:
    """Run Airflow's API server, which the tasks report to."""
    command = [airflow(), "api-server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    with log.open("w") as output:
        server = subprocess.Popen(command, env=variables, stdout=output, stderr=output, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=API_TIMEOUT_S) as answer:
            return bool(answer.status == HTTPStatus.OK)
    except OSError:
        return False


def test_tasks_of_the_executor_are_instances(cluster: Cluster, variables: dict[str, str], tmp_path: Path) -> None:
    """Mapped tasks that are queued together are instances of one job, and report to Airflow's API server."""
    [port] = free_ports(1)
    job = yaml.safe_load((EXAMPLE / "worker.yaml").read_text())
    url = f"http://127.0.0.1:{port}"
    more = {
        **variables,
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(64),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__CORE__EXECUTOR": "peloton.integrations.airflow_executor.PelotonExecutor",
        "AIRFLOW__PELOTON__ADDRESS": cluster.local.address,
        "AIRFLOW__PELOTON__POOL": "/science",
        "AIRFLOW__PELOTON__JOB_FILE": str(tmp_path / "worker.yaml"),
        "AIRFLOW__PELOTON__PYTHON": str(environment("airflow")),
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": str(API_TIMEOUT_S),
    }
    names = (*WORKER_VARIABLES, "AIRFLOW__CORE__EXECUTION_API_SERVER_URL", "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT")
    inherited = [{"name": name, "value": more[name]} for name in names]
    job["defaultConfig"]["command"]["environment"]["variables"] = inherited
    (tmp_path / "worker.yaml").write_text(yaml.safe_dump(job))
    with api_server(more, port, tmp_path / "api-server.log"):
        cluster.wait(lambda: answers(f"{url}/api/v2/monitor/health"), "Airflow's API server", TIMEOUT_S)
        printed = live(cluster, more, "airflow-worker", "squares", "--executor")

    assert printed[-1] == "run success", "\n".join(printed[-50:])
    batches = {job_id: len(cluster.tasks(job_id)) for job_id in ids_of(cluster, "airflow-worker")}
    assert [1, 4] == sorted(batches.values())
    assert {cluster.finish(job_id) for job_id in batches} == {"SUCCEEDED"}
