"""`peloton up --mesos --temporal`: on a Mesos and a Temporal server of the user, which are left as they were found."""

from __future__ import annotations

import asyncio
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
from temporalio.client import Client, WorkflowExecutionStatus

from peloton.model.ids import job_workflow_id
from tests.e2e.local import Cluster, shell, temporary
from tests.temporal_server import temporal_server
from workflows.attributes import SEARCH_ATTRIBUTES

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


@pytest.fixture
def temporal() -> Iterator[str]:
    """Yield the address of the user's Temporal server, which has a namespace for the test."""
    with temporal_server(["--namespace", "ours"], [attribute.name for attribute in SEARCH_ATTRIBUTES]) as address:
        yield address


def ask(master: str, type_: str) -> Any:
    with closing(http.client.HTTPConnection(master, timeout=10)) as connection:
        connection.request("POST", "/api/v1", json.dumps({"type": type_}), {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())[type_.lower()]


def test_a_cluster_on_a_mesos_and_a_temporal_that_run(master: str, temporal: str, tmp_path: Path) -> None:
    """None of either is started. The framework and its pods go with the data folder; the job's workflow is in the
    namespace of the settings, and still there after the cluster.
    """

    async def status() -> WorkflowExecutionStatus | None:
        client = await Client.connect(temporal, namespace="ours")
        return (await client.get_workflow_handle(job_workflow_id(short)).describe()).status

    def has_completed() -> bool:
        return asyncio.run(status()) is WorkflowExecutionStatus.COMPLETED

    environment = {"PELOTON_TEMPORAL_NAMESPACE": "ours"}
    settings = replace(temporary(tmp_path, temporal=temporal, environment=environment), data_dir=None, mesos=master)
    with Cluster(settings) as cluster:
        pool = cluster.pool("ours")
        short = cluster.submit(pool, instanceCount=3, defaultConfig=shell("sleep 1"))
        long = cluster.submit(pool, instanceCount=2, defaultConfig=shell("sleep 300"))
        cluster.wait(lambda: {"RUNNING": 2} == cluster.counts(long), "running pods")
        assert "SUCCEEDED" == cluster.finish(short)
        cluster.wait(has_completed, "the end of its workflow, which follows that of the job")
        framework = ask(master, "GET_FRAMEWORKS")["frameworks"][0]["framework_info"]["id"]["value"]
        assert not {"minicluster", "temporal"} & set(cluster.local.parts)

    assert f"mesos: framework {framework} is torn down" in cluster.log
    assert [] == ask(master, "GET_FRAMEWORKS").get("frameworks", [])

    assert has_completed()
