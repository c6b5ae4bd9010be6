"""Rebalancing against whole clusters of both kinds, emulated, with simulated hosts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from cli.main import peloton
from tests.e2e.local import Cluster, bound_to, shell
from tests.e2e.shared import BOTH_KINDS, Lend
from tests.e2e.test_faults import list_launched_twice
from tests.nightly import NIGHTLY, nightly

pytestmark = pytest.mark.xdist_group("rebalance")
KINDS = ("local", nightly("kubernetes"))


@pytest.fixture(scope="module")
def cluster(lend: Lend) -> Iterator[Cluster]:
    with lend(BOTH_KINDS) as running:
        yield running


class Rebalanced:
    """One of the clusters, with what runs on it."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name

    @property
    def host_manager(self) -> str:
        return next(part for part in (f"hostmgr-{self.name}", "hostmgr") if part in self.cluster.local.parts)

    def rebalance(self, *words: str) -> str:
        words = ("-a", self.cluster.local.address, "host", "rebalance", *words, "--cluster", self.name)
        result = CliRunner().invoke(peloton, words)
        assert result.exit_code == 0, result.output
        return result.output

    def plan(self, goal: str) -> dict[str, Any]:
        words = ("-a", self.cluster.local.address, "--json", "host", "rebalance", "--plan", "--goal", goal)
        return dict(json.loads(CliRunner().invoke(peloton, words).stdout))

    def submit(self, pool: str, count: int, cpu: float, type_: str = "SERVICE", **sla: Any) -> str:
        """A job of this cluster only."""
        config = shell("sleep 1000", cpu=cpu, **bound_to("peloton/cluster", self.name))
        return self.cluster.submit(pool, type=type_, instanceCount=count, defaultConfig=config, sla=sla)

    def row(self) -> dict[str, Any]:
        (found,) = json.loads(self.rebalance("status", "--json"))["rebalances"]
        return dict(found)

    def moves(self, goal: str) -> Counter[str]:
        """Moves by their outcome."""
        return Counter(move["state"] for move in self.row().get("moves", ()) if move["goal"] == f"GOAL_{goal}")

    def runs(self, job: str, count: int) -> None:
        self.cluster.wait(lambda: self.cluster.counts(job) == {"RUNNING": count}, "its pods running")

    def pod_hosts(self, job: str) -> Counter[str]:
        return Counter(task.runtime.host for task in self.cluster.tasks(job).values())

    def stop(self, *jobs: str) -> None:
        assert self.rebalance("stop").endswith(("STOPPING\n", "STOPPED\n"))
        self.cluster.wait(lambda: self.row()["state"] == "STOPPED", "rebalancing to stop")
        for job in jobs:
            with_changes = ["-a", self.cluster.local.address, "job", "stop", job]
            assert 0 == CliRunner().invoke(peloton, with_changes).exit_code
            self.cluster.wait(lambda job=job: set(self.cluster.counts(job)) == {"KILLED"}, "its end")


@pytest.fixture(params=KINDS)
def rebalanced(request: pytest.FixtureRequest, cluster: Cluster) -> Rebalanced:
    return Rebalanced(cluster, request.param)


def test_a_host_is_freed_for_a_pod_that_fits_nowhere(rebalanced: Rebalanced) -> None:
    """A host is freed although workers and host managers die with kill -9 while pods are on their way; no run is
    launched twice."""
    cluster = rebalanced.cluster
    pool = cluster.pool(f"free-{rebalanced.name}")
    web = rebalanced.submit(pool, 3, 1.5, maximumUnavailableInstances=1)
    rebalanced.runs(web, 3)
    assert [1, 1, 1] == list(rebalanced.pod_hosts(web).values())
    big = rebalanced.submit(pool, 1, 3.5, "BATCH")
    cluster.wait(lambda: bool(rebalanced.plan("free")["moves"]), "a pod that is known to fit nowhere")
    rebalanced.rebalance("start", "--per-hour", "5")

    cluster.wait(lambda: rebalanced.row().get("moveCount", 0) > 0, "a move")
    cluster.kill("worker")
    cluster.kill(rebalanced.host_manager)

    rebalanced.runs(big, 1)
    rebalanced.runs(web, 3)
    cluster.wait(lambda: "MOVING" not in rebalanced.moves("FREE"), "the end of the move")
    row = rebalanced.row()
    assert all(f"for a pod of job {big} that fits on no host" in move["reason"] for move in row["moves"])
    assert row["moveCount"] == sum(run - 1 for run in cluster.run_ids(web).values()) <= 5
    assert ([], []) == (list_launched_twice(cluster, web, 3), list_launched_twice(cluster, big, 1))
    rebalanced.stop(web, big)


@NIGHTLY
def test_consolidation_empties_hosts(rebalanced: Rebalanced) -> None:
    """Consolidation moves as many pods at a time as the SLA allows, and then stops."""
    cluster = rebalanced.cluster
    web = rebalanced.submit(cluster.pool(f"empty-{rebalanced.name}"), 3, 0.5, maximumUnavailableInstances=2)
    rebalanced.runs(web, 3)
    assert 3 == len(rebalanced.pod_hosts(web))
    cluster.wait(lambda: len(rebalanced.plan("empty")["moves"]) == 2, "moves that empty two hosts")
    rebalanced.rebalance("start", "--goal", "empty")

    cluster.wait(lambda: [3] == list(rebalanced.pod_hosts(web).values()), "one host with all of it")
    rebalanced.runs(web, 3)
    cluster.wait(lambda: rebalanced.moves("EMPTY") == {"MOVED": 2}, "the end of both moves")

    assert [] == rebalanced.plan("empty")["moves"]
    rebalanced.stop(web)
