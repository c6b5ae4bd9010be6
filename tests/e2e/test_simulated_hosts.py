"""A life on simulated hosts that are slow and fail, with pods that fail: the job succeeds all the same."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import yaml

from services.lab.shared.simulation.description import load_simulation
from tests.e2e.local import Cluster, shell, temporary
from tests.nightly import NIGHTLY

HOSTS, PODS = 20, 80
JOB = "5a3c1e50-0000-4000-8000-000000000001"
DESCRIPTION = {
    "seed": 11,
    "hosts": [
        {"name": "steady", "share": 3, "attributes": {"rack": ["a", "b"]}},
        {"name": "slow", "share": 1, "slow": {"uniform": [2, 4]}, "attributes": {"rack": "c"}},
        {
            "name": "shaky",
            "count": 5,
            "attributes": {"rack": "d"},
            "failures": {"every_s": {"exponential": {"mean": 8}}, "repair_s": {"uniform": [1, 4]}},
        },
    ],
    "run_times": [{"when": {"labels": {"kind": "train"}}, "seconds": {"lognormal": {"median": 2, "sigma": 0.5}}}],
    "failures": [{"probability": 0.2, "signal": 9, "at": {"uniform": [0.1, 0.9]}}],
    "images": [{"image": "cuda", "size_mb": 500, "bandwidth_mb_s": 1000, "jitter": {"uniform": [1, 2]}}],
}


@NIGHTLY
def test_a_job_succeeds_among_slow_and_failing_hosts(tmp_path: Path) -> None:
    """Pods fail as their random seed predicts, unless their host disturbed them, and the job succeeds."""
    file = tmp_path / "simulation.yaml"
    file.write_text(yaml.safe_dump(DESCRIPTION))
    simulation = load_simulation(file, HOSTS)
    with Cluster(temporary(tmp_path / "data", simulate=HOSTS, simulation_file=file)) as cluster:
        pool = cluster.pool("all")
        config = shell(
            "train",
            cpu=0.5,
            labels=[{"key": "kind", "value": "train"}],
            restartPolicy={"maxFailures": 100},
            container={"type": "DOCKER", "docker": {"image": "cuda:1"}},
        )
        cluster.submit(pool, JOB, instanceCount=PODS, defaultConfig=config)

        assert "SUCCEEDED" == cluster.finish(JOB)

        assert {"SUCCEEDED": PODS} == cluster.counts(JOB)
        runs = cluster.run_ids(JOB)
        for instance, run in runs.items():
            assert simulation.failure(f"{JOB}-{instance}-{run}", "train", {}) is None
        drawn = sum(simulation.failure(f"{JOB}-{i}-1", "train", {}) is not None for i in range(PODS))
        assert 0 < drawn <= sum(run > 1 for run in runs.values())
        hosts = {task.runtime.host for task in cluster.tasks(JOB).values()}
        assert hosts <= {f"sim-{number:05d}" for number in range(HOSTS)}
        cluster.wait(lambda: any("fails for" in line for line in cluster.log), "a host that fails")
        with urllib.request.urlopen(f"http://{cluster.local.mesos}/minicluster/images", timeout=120) as answer:
            assert b'"misses":0' not in answer.read()
