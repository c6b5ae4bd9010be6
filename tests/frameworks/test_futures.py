"""concurrent.futures and joblib on instances of a job, of which some are killed in the middle."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import joblib
import pytest

import peloton.integrations.joblib  # noqa: F401  (registers the backend)
from peloton.integrations.futures import PelotonExecutor
from peloton.integrations.instances import InstanceSpec
from tests.e2e.local import Cluster, temporary
from tests.nightly import NIGHTLY

pytestmark = NIGHTLY
ROOT = Path(__file__).parents[2]
PELOTON = Path(sys.executable).with_name("peloton")
SPEC = InstanceSpec(cpu=0.2, memory_mib=64, disk_mib=16)
TIMEOUT_S = 120.0


def test_calls_survive_the_loss_of_instances(tmp_path: Path) -> None:
    """A killed worker and a stopped instance cost no result; idle instances leave, and the job ends in the end."""

    def wait_and_say_where(number: int) -> tuple[int, int]:
        time.sleep(0.2)
        return number, os.getpid()

    with Cluster(temporary(tmp_path)) as cluster:
        cluster.pool("science")
        executor = PelotonExecutor(cluster.local.address, "/science", instances_max=4, spec=SPEC, idle_s=2)
        with executor:
            futures = [executor.submit(wait_and_say_where, number) for number in range(100)]
            _, pid = futures[0].result(TIMEOUT_S)
            os.kill(pid, signal.SIGKILL)
            subprocess.run(
                [PELOTON, "-a", cluster.local.address, "task", "stop", executor.job_id, "-r", "1:2"],
                cwd=ROOT,
                check=True,
            )
            results = [future.result(TIMEOUT_S) for future in futures]
            assert list(range(100)) == [number for number, _ in results]
            assert len({pid for _, pid in results}) >= 4

            cluster.wait(lambda: "RUNNING" not in cluster.counts(executor.job_id), "the end of idle instances")
            assert 5 == executor.submit(abs, -5).result(TIMEOUT_S)
        assert cluster.finish(executor.job_id) == "SUCCEEDED"


def test_the_example_and_joblib(tmp_path: Path) -> None:
    """The command of the page prints pi, and joblib spreads its calls."""
    with Cluster(temporary(tmp_path)) as cluster:
        cluster.pool("science")
        command = [sys.executable, "examples/futures/pi.py", "--address", cluster.local.address]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        assert run.returncode == 0, run.stderr
        found = re.fullmatch(r"job (\S+): pi is about (3\.1\d+)\n", run.stdout)
        assert found is not None, run.stdout
        assert cluster.finish(found[1]) == "SUCCEEDED"

        options = {"address": cluster.local.address, "pool": "/science", "spec": SPEC}
        with joblib.parallel_config("peloton", n_jobs=3, **options):
            assert [number**2 for number in range(500)] == joblib.Parallel()(
                joblib.delayed(pow)(number, 2) for number in range(500)
            )
            with pytest.raises(ZeroDivisionError):
                joblib.Parallel()(joblib.delayed(divmod)(number, 0) for number in range(5))
