"""A Peloton as services of another one: deployed, killed part by part, upgraded and deleted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import yaml

from cli.deployed import Deployed
from cli.settings import Settings
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.overview import overview_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.task import task_pb2
from peloton.client import Client
from peloton.deployment.description import parse
from peloton.deployment.parts import api_address, parts_of
from tests.e2e.local import Cluster, job_config, shell, temporary
from tests.frameworks.processes import processes_of
from tests.nightly import NIGHTLY

pytestmark = NIGHTLY
HOSTS, PODS = 50, 5
SIMULATE_S = {"variables": [{"name": "PELOTON_SIMULATE_SECONDS", "value": "100000"}]}
DEPLOY_MAX_S, BACK_QUIET_S = 600.0, 90.0
"""A killed pod of a service runs again after 30 s."""
EMULATED_MESOS = "mesos"


class Inner:
    """The deployed Peloton, by the command line and a client of its own."""

    def __init__(self, outer: Cluster, folder: Path) -> None:
        self.outer = outer
        self.given = {"name": "inner", "pool": "/inner", "data": str(folder / "inner"), "simulate": HOSTS}
        self.file = folder / "inner.yaml"
        self.file.write_text(yaml.safe_dump(self.given))
        self.program = Path(sys.executable).parent / "peloton"
        self.deployment = parse(self.given, str(self.program))
        self.client = Client(api_address(self.deployment), timeout_s=5)

    def deploy(self, *options: str) -> str:
        command = [str(self.program), "--address", self.outer.local.address, "admin", "deploy", str(self.file)]
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=DEPLOY_MAX_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self) -> str:
        """Create a job of pods that run on, and return its id."""
        config = respool_pb2.ResourcePoolConfig(name="jobs", parent=peloton_pb2.ResourcePoolID(value="root"))
        for kind in ("cpu", "memory", "disk"):
            config.resources.add(kind=kind, limit=100, share=1)
        pool = self.client.respools.CreateResourcePool(respool_pb2.CreateRequest(config=config)).result.value
        pod = shell("true")
        pod["command"]["environment"] = SIMULATE_S
        request = job_pb2.CreateRequest(config=job_config(pool, instanceCount=PODS, defaultConfig=pod))
        return str(self.client.jobs.Create(request).jobId.value)

    def runs(self, job_id: str) -> dict[int, str]:
        """Return the runs of the pods that run."""
        answer = self.client.tasks.List(task_pb2.ListRequest(jobId=peloton_pb2.JobID(value=job_id)), timeout=5)
        return {
            number: task.runtime.mesosTaskId.value
            for number, task in answer.result.value.items()
            if task.runtime.state == task_pb2.RUNNING
        }

    def lose(self, part: str) -> None:
        """Kill all processes of a part at once, and wait until it serves again."""
        service = Deployed(Settings(), self.deployment.name, self.deployment.pool).job_id(part)
        before = processes_of(service)
        assert before, f"{part} has no process"
        for process in before:
            os.kill(process, signal.SIGKILL)
        self.outer.wait(lambda: bool(processes_of(service) - before), f"{part} runs again", BACK_QUIET_S)
        self.outer.wait(self.is_well, f"the inner Peloton is well after the loss of {part}", BACK_QUIET_S)

    def is_well(self) -> bool:
        answer = self.client.overview.GetOverview(overview_pb2.GetOverviewRequest())
        return not [one for one in answer.problems if one.severity == overview_pb2.SEVERITY_CRITICAL]


def test_it_survives_the_loss_of_each_pod_and_an_upgrade(tmp_path: Path) -> None:
    """Pods of the inner Peloton run on while each of its processes is killed once, and while all are replaced."""
    with Cluster(temporary(tmp_path / "outer")) as outer:
        inner = Inner(outer, tmp_path)
        assert f"{inner.deployment.name} is up" in inner.deploy()
        job = inner.submit()
        outer.wait(lambda: len(inner.runs(job)) == PODS, "pods of the inner Peloton run")
        runs = inner.runs(job)

        for part in parts_of(inner.deployment):
            if part.name == EMULATED_MESOS:
                continue  # with it all hosts are lost, and not a part of the control plane
            inner.lose(part.name)
            outer.wait(lambda: inner.runs(job) == runs, f"pods run on after the loss of {part.name}")

        new = tmp_path / "new"
        new.symlink_to(inner.program.parent.parent)
        said = inner.deploy("--command", str(new / "bin" / "peloton"))
        assert ["resmgr", "hostmgr", "api", "worker"] == [
            line.split()[1].rstrip(":") for line in said.splitlines() if line.startswith("update")
        ]
        outer.wait(lambda: inner.runs(job) == runs, "pods run on after the upgrade")

        assert "inner is deleted" in inner.deploy("--delete")
