"""The host advisor on clusters of both kinds, emulated, with simulated hosts."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from cli.main import peloton
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.task import task_pb2
from tests.e2e.local import Cluster, bound_to, shell
from tests.e2e.shared import BOTH_KINDS, LATENCY_PORT, Lend
from tests.nightly import nightly

pytestmark = pytest.mark.xdist_group("rebalance")
KINDS = ("local", nightly("kubernetes"))
HOSTS, CPUS = 3, 4
"""Hosts of each cluster, and cpus of each host."""


class Advised:
    """A cluster, its marks, and the reports of its pods."""

    def __init__(self, cluster: Cluster, port: int) -> None:
        self.cluster, self.url = cluster, f"http://127.0.0.1:{port}/v1/latencies"

    def report(self, job: str, p99_ms: float) -> None:
        """All instances of a job, as they would."""
        times = {"p50_ms": 1, "p95_ms": 2, "p99_ms": p99_ms, "requests": 10}
        lines = [json.dumps({"pod": f"{job}-{instance}", **times}) for instance in self.cluster.tasks(job)]
        request = urllib.request.Request(self.url, "\n".join(lines).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert f"{len(lines)} pods\n" == answer.read().decode()

    def rows(self) -> list[list[str]]:
        """Words of each line, the worst first."""
        result = CliRunner().invoke(peloton, ["-a", self.cluster.local.address, "host", "advice"])
        assert result.exit_code == 0, result.output
        return [line.split() for line in result.stdout.splitlines()[1:]]

    def wait_mark(self, mark: str, what: str, name: str) -> list[str]:
        found: list[list[str]] = []

        def there() -> bool:
            found[:] = [row for row in self.rows() if row[:3] == [mark, what, name]]
            return bool(found)

        self.cluster.wait(there, f"{what} {name} marked {mark}")
        return found[0]


@pytest.fixture(scope="module")
def advised(lend: Lend) -> Iterator[Advised]:
    with lend(BOTH_KINDS) as running:
        yield Advised(running, int(running.local.settings.environment[LATENCY_PORT]))


def busy(host: str, share: float) -> dict[str, Any]:
    """A pod that uses this share of all cpus of a host."""
    config = shell("sleep 1000", cpu=CPUS, **bound_to("hostname", host))
    config["command"]["environment"] = {"variables": [{"name": "PELOTON_SIMULATE_SHARE", "value": str(share)}]}
    return config


@pytest.mark.parametrize("kind", KINDS)
def test_a_host_in_use_becomes_red_and_green_again(advised: Advised, kind: str) -> None:
    """A host is red by what its pods use, not by what they ask for, until they have ended."""
    cluster = advised.cluster
    names = sorted(row[2] for row in wait_hosts(advised) if (row[2].startswith("kubernetes")) == (kind == "kubernetes"))
    job = cluster.submit(cluster.pool(f"busy-{kind}"), instanceCount=1, defaultConfig=busy(names[0], 1.0))
    idle = cluster.submit(cluster.pool(f"idle-{kind}"), instanceCount=1, defaultConfig=busy(names[1], 0.1))
    for one in (job, idle):
        cluster.wait(lambda one=one: cluster.counts(one) == {"RUNNING": 1}, "its pod to run")

    red = advised.wait_mark("RED", "host", names[0])

    assert "red from 90 %" in " ".join(red)
    assert ["RED", "host", names[0]] == advised.rows()[0][:3]
    marked = f"{names[0]} is marked RED: cpu "
    assert marked in CliRunner().invoke(peloton, ["-a", cluster.local.address, "host", "query"]).stdout
    assert ["GREEN"] == [row[0] for row in advised.rows() if row[2] == names[1]]
    for one in (job, idle):
        cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=one)))
        assert "KILLED" == cluster.finish(one)
    advised.wait_mark("GREEN", "host", names[0])

    def list_reported() -> list[str]:
        return [text for kind, text in cluster.host_events(names[0]) if kind == "MARKED"]

    cluster.wait(
        lambda: list_reported()[-1:] != [] and list_reported()[-1].startswith("Marked green, before "),
        "events of the marks",
    )
    assert [text for text in list_reported() if text.startswith("Marked red, before ") and "red from 90 %" in text]


def wait_hosts(advised: Advised) -> list[list[str]]:
    """Wait for the hosts' marks when all are measured."""
    found: list[list[str]] = []

    def all_there() -> bool:
        found[:] = [row for row in advised.rows() if row[1] == "host"]
        return len(found) == HOSTS * len(KINDS)

    advised.cluster.wait(all_there, "the marks of all hosts")
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_slow_service_becomes_red_and_green_again(advised: Advised, kind: str) -> None:
    """A service is red by the bounds of its labels and the reports of its pods, whichever cluster they run on."""
    cluster = advised.cluster
    config = shell("sleep 1000", **bound_to("peloton/cluster", kind))
    labels = [{"key": "peloton/p99-red-ms", "value": "250"}]
    pool = cluster.pool(f"web-{kind}")
    job = cluster.submit(pool, type="SERVICE", instanceCount=2, defaultConfig=config, labels=labels)
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 2}, "its pods to run")

    def is_marked(mark: str, p99_ms: float) -> bool:
        advised.report(job, p99_ms)
        return any(row[:3] == [mark, "service", job] for row in advised.rows())

    cluster.wait(lambda: is_marked("RED", 400), "the service to be red")
    assert "p99 400 ms, red from 250 ms" in " ".join(advised.wait_mark("RED", "service", job))
    cluster.wait(lambda: is_marked("GREEN", 20), "the service to be green")
    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job)))
    assert "KILLED" == cluster.finish(job)
