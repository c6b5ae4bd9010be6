"""`job why`, `respool why`, `respool tree`, the plans and `top`, through the commands, against a whole cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cli.main import peloton
from cli.settings import Settings
from cli.top.app import TopApp
from cli.top.reading import Reader
from tests.e2e.local import Cluster, shell
from tests.e2e.shared import THREE_HOSTS, Lend
from tests.unit.cli.top_screen import Screen, table

pytestmark = pytest.mark.xdist_group("batch")


@pytest.fixture(scope="module")
def cluster(lend: Lend) -> Iterator[Cluster]:
    with lend(THREE_HOSTS) as running:
        yield running


def run(cluster: Cluster, *words: object, exit_code: int = 0) -> str:
    """Run a command; return its output, or the error of a refusal."""
    result = CliRunner().invoke(peloton, ["-a", cluster.local.address, *map(str, words)], prog_name="peloton")
    print(result.output)
    assert result.exit_code == exit_code, result.output
    return result.stderr if exit_code else result.stdout


def reason(cluster: Cluster, job_id: str) -> Any:
    """The reason of the first gang that waits, as JSON."""
    waiting = json.loads(run(cluster, "--json", "job", "why", job_id)).get("waiting", [])
    return waiting[0]["reason"] if waiting else {}


def sleepers(cluster: Cluster, pool: str, count: int, cpu: float = 1.0, **more: Any) -> str:
    config = {"instanceCount": count, "defaultConfig": shell("sleep 600", cpu=cpu, memory=16), **more}
    return cluster.submit(pool, **config)


def test_a_full_pool(cluster: Cluster) -> None:
    """A job behind a full pool is explained by the limit that binds, its use, and the job that holds it."""
    pool = cluster.pool("full", cpu=2)
    holder = sleepers(cluster, pool, 2, name="holder")
    cluster.wait(lambda: cluster.counts(holder).get("RUNNING") == 2, "the holder runs")
    waiter = sleepers(cluster, pool, 3, name="waiter")
    cluster.wait(lambda: reason(cluster, waiter).get("rule") == "RULE_POOL_LIMIT", "the limit is named")

    why = run(cluster, "job", "why", waiter)
    found = reason(cluster, waiter)

    assert "cpu 1 wanted, 0 left of the pool limit of /full: 2\n    held by job holder: cpu 2" in why
    assert (found["wanted"], found["bound"], found["holders"][0]["jobId"]["value"]) == (1, 2, holder)
    assert "nothing waits: 2 instances on hosts" in run(cluster, "job", "why", holder)
    assert "first job waiter" in run(cluster, "respool", "why", "/full")
    behind = sleepers(cluster, pool, 1)
    cluster.wait(lambda: reason(cluster, behind).get("rule") == "RULE_HEAD_OF_LINE", "it stands in line")
    assert "3 gangs ahead" in run(cluster, "job", "why", behind)
    tree = run(cluster, "respool", "tree").splitlines()
    assert next(line.split() for line in tree if line.startswith("/full  ") and "cpu" in line) == [
        "/full", "cpu(cores)", "0", "2", "1", "2", "2", "4"
    ]  # fmt: skip
    stop(cluster, holder, waiter, behind)


def test_a_gang_too_big(cluster: Cluster, tmp_path: Path) -> None:
    """A gang larger than its pool may ever have is refused by a plan as by the API."""
    cluster.pool("gangs", cpu=2)
    config = {"name": "gang", "instancecount": 4, "sla": {"preemptible": True, "minimumrunninginstances": 4}}
    resource = {"cpulimit": 1, "memlimitmb": 16, "disklimitmb": 1}
    path = tmp_path / "gang.yaml"
    path.write_text(yaml.safe_dump({**config, "defaultconfig": {"resource": resource, "command": {"value": "true"}}}))

    plan, job = (run(cluster, "job", what, "/gangs", path, exit_code=1) for what in ("plan", "create"))

    refusal = "the gang of instances 0-3 asks cpu 4, limit of resource pool /gangs is 2"
    assert (plan, job) == (f"{refusal} (INVALID_ARGUMENT)\n", f"Invalid job config: {refusal}\n")


def test_no_host_has_two_gpus(cluster: Cluster) -> None:
    """A pod that the pool admits and no host could ever take is explained with the numbers, and is in backoff."""
    pool = cluster.pool("gpus", gpu=3)
    config = {**shell("sleep 600"), "resource": {"cpuLimit": 0.1, "memLimitMb": 16, "diskLimitMb": 1, "gpuLimit": 2}}
    job = cluster.submit(pool, instanceCount=1, defaultConfig=config)
    cluster.wait(lambda: reason(cluster, job).get("rule") == "RULE_HELD_BACK", "it is in backoff")

    (found,) = json.loads(run(cluster, "--json", "job", "why", job))["reasons"]

    assert found["rule"] == "RULE_FITS_NO_HOST"
    assert "no host has gpu 2: the largest of 3 hosts has 1" in found["text"]
    assert "last result of placement: 1 pod without a host (3 hosts: less than 2 gpu free, 1 at most)" in run(
        cluster, "job", "why", job
    )
    stop(cluster, job)


def test_no_host_has_two_cpus_free(cluster: Cluster) -> None:
    """A pod that the pool admits and hosts could take later names the rule and the number of hosts that fail it."""
    holder = sleepers(cluster, cluster.pool("holder"), 3, cpu=2.5)
    cluster.wait(lambda: cluster.counts(holder).get("RUNNING") == 3, "a holder on each host")
    job = sleepers(cluster, cluster.pool("large"), 1, cpu=2)
    rest = "1.5 at most"  # what the holder leaves; Mesos offers it a moment after the launch
    cluster.wait(lambda: rest in run(cluster, "job", "why", job), "the reason of placement")

    (found,) = json.loads(run(cluster, "--json", "job", "why", job))["reasons"]

    assert found["rule"] == "RULE_NO_HOST"
    assert found["refusingHosts"] == [{"hostCount": 3, "rule": "less than 2 cpu free, 1.5 at most"}]
    stop(cluster, holder, job)


def test_how_a_job_ended(cluster: Cluster) -> None:
    """The explanation of a failed job names its failed instances."""
    job = cluster.submit(cluster.pool("short"), instanceCount=1, defaultConfig=shell("exit 3"))
    assert cluster.finish(job) == "FAILED"

    why = run(cluster, "job", "why", job)

    assert "ended FAILED in pool /short: 1 FAILED" in why
    assert "instance 0: FAILED" in why


def test_a_plan_of_a_pool(cluster: Cluster, tmp_path: Path) -> None:
    """A new pool's reservation would take entitlement from the others; nothing is created."""
    path = tmp_path / "pool.yaml"
    cpu = {"kind": "cpu", "reservation": 6, "limit": 12, "share": 1, "type": "STATIC"}
    path.write_text(yaml.safe_dump({"name": "planned", "resources": [cpu]}))

    plan = run(cluster, "respool", "plan", path)

    assert "Pool /planned would be created." in plan
    assert "/planned cpu: 0 -> " in plan
    assert "planned" not in run(cluster, "respool", "tree")


async def test_top(cluster: Cluster) -> None:
    """`peloton top` shows what waits and runs, and leads from the overview to a pool, its job, why it waits, and from a
    host to the pods on it."""
    pool = cluster.pool("watched", cpu=2)
    job = sleepers(cluster, pool, 3, name="watched-job")
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 2, "PENDING": 1}, "two run and one waits")
    at = next(task.runtime.host for task in cluster.tasks(job).values() if task.runtime.host)
    app = TopApp(Reader(Settings(address=cluster.local.address)), 0.2)
    async with app.run_test(size=(130, 30)) as pilot:
        screen = Screen(pilot, app)
        await screen.shows("cpu (cores)", "Hosts: 3 UP", "resmgr led at", "Pool /watched: 1 instance waits for cpu 1")
        await screen.press("2")
        await screen.type("watched")
        await screen.until(lambda lines: table(lines, "Pool") == ["watched"])
        await screen.press("enter")
        await screen.shows("> /watched", "left of the pool limit of /watched: 2", "watched-job", "R2 P1")
        await screen.press("enter")
        await screen.shows(f"> job {job[:8]}", "held by job", "PENDING")
        await screen.type("running")
        await screen.until(lambda lines: len(table(lines, "Instance")) == 2)
        await screen.press("enter")
        await screen.shows("> instance ", "LAUNCHED")
        await screen.press("4")
        await screen.type(at)
        await screen.until(lambda lines: table(lines, "Host") == [at])
        await screen.press("enter")
        await screen.shows(f"{at} is UP", "takes pods", f"{job[:8]}-")
        await screen.press("q")
    stop(cluster, job)


def stop(cluster: Cluster, *jobs: str) -> None:
    for job_id in jobs:
        run(cluster, "job", "stop", job_id)
    for job_id in jobs:
        assert cluster.finish(job_id) == "KILLED"
