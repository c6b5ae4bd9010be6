"""Pods without processes."""

from __future__ import annotations

import pytest

from services.lab.kubernetes.nodes.pods import backoff_s
from services.lab.kubernetes.store import Store
from services.lab.shared.simulation.outcomes import Failure, Simulation
from tests.present import require
from tests.unit.lab.kubernetes.nodes.conftest import Start, conditions, state_of


async def test_a_command_says_how_long_a_pod_runs_and_how_it_ends(start: Start) -> None:
    """The node writes twice: Running, and the last phase."""
    cluster = await start(simulate=True, time_scale=100.0)
    cluster.create("ok", "sleep 10")
    cluster.create("bad", "sleep 5; exit 3")

    assert "Succeeded" == (await cluster.ended("ok"))["phase"]
    assert "terminated Error 3" == state_of((await cluster.ended("bad"))["containerStatuses"][0])
    assert [
        ("ADDED", "Pending"),
        ("MODIFIED", "Running", "running"),
        ("MODIFIED", "Succeeded", "terminated Completed 0"),
    ] == cluster.history("ok")


async def test_the_simulation_decides_who_fails(start: Start) -> None:
    """The rules are the same as for hosts of an emulated Mesos."""
    simulation = Simulation(failures=(Failure(probability=1.0, signal=9),))
    cluster = await start(simulate=True, simulation=simulation)
    cluster.create("pod")

    assert "terminated Error 137" == state_of((await cluster.ended("pod"))["containerStatuses"][0])


async def test_a_graceful_deletion_ends_a_pod_at_once(start: Start) -> None:
    """A simulated pod ends as if its command had answered SIGTERM."""
    cluster = await start(simulate=True)
    cluster.create("pod", "sleep 1000")
    await cluster.running("pod")

    cluster.delete("pod")
    await cluster.gone("pod")

    assert ("DELETED", "Failed", "terminated Error 143") == cluster.history("pod")[-1]


async def test_a_deadline(start: Start) -> None:
    """The deadline ends a pod that would run longer."""
    cluster = await start(simulate=True, time_scale=100.0)
    cluster.create("pod", "sleep 1000", activeDeadlineSeconds=5)

    assert "DeadlineExceeded" == (await cluster.ended("pod"))["reason"]


async def test_a_service_runs_again_after_its_end(start: Start) -> None:
    """A pod with the restart policy Always runs again after its end."""
    cluster = await start(simulate=True, time_scale=100.0)
    cluster.create("pod", "sleep 5; exit 1", restartPolicy="Always")

    await cluster.until(lambda: cluster.history("pod")[-1] == ("MODIFIED", "Running", "running"))
    await cluster.until(lambda: cluster.status("pod")["containerStatuses"][0]["restartCount"] == 2)
    cluster.delete("pod")
    await cluster.gone("pod")


async def test_simulated_pods_outlive_the_emulation(start: Start) -> None:
    """Pods run on after a restart for their remaining time; pods that had not started start."""
    store = Store()
    first = await start(store=store, simulate=True)
    first.create("pod", "sleep 200")
    await first.running("pod")
    started_at = first.status("pod")["containerStatuses"][0]["state"]["running"]["startedAt"]
    await first.close()
    first.create("waits")

    second = await start(store=store, simulate=True, time_scale=2_000.0)

    status = await second.ended("pod")
    assert ("Succeeded", started_at) == (
        status["phase"],
        status["containerStatuses"][0]["state"]["terminated"]["startedAt"],
    )
    assert "Succeeded" == (await second.ended("waits"))["phase"]


async def test_nodes_register_with_their_sizes_and_leases(start: Start) -> None:
    """A restart keeps cordons, labels and taints that clients wrote, and removes the taints of a lost node."""
    cluster = await start(simulate=True)
    node = require(cluster.store.get("nodes", "", "node-0")).body
    assert {"cpu": "4", "memory": "2048Mi", "pods": "110", "ephemeral-storage": "20000Mi"} == node["status"][
        "allocatable"
    ]
    assert ("True", "KubeletReady") == conditions(node["status"])["Ready"]
    assert cluster.store.get("leases", "kube-node-lease", "node-0") is not None
    await cluster.close()
    taints = [
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
        {"key": "ours", "effect": "NoSchedule"},
    ]
    metadata = {**node["metadata"], "labels": {**node["metadata"]["labels"], "zone": "a"}}
    cluster.store.update("nodes", {**node, "metadata": metadata, "spec": {"unschedulable": True, "taints": taints}})

    again = await start(store=cluster.store, simulate=True)

    found = require(again.store.get("nodes", "", "node-0")).body
    assert {"unschedulable": True, "taints": taints[1:]} == found["spec"]
    assert "a" == found["metadata"]["labels"]["zone"]
    assert node["metadata"]["uid"] == found["metadata"]["uid"]


@pytest.mark.parametrize(("restarts", "seconds"), [(0, 0.0), (1, 10.0), (2, 20.0), (9, 300.0)])
def test_restarts_wait_longer_each_time(restarts: int, seconds: float) -> None:
    """The pause grows up to five minutes."""
    assert seconds == backoff_s(restarts, 10.0)
