"""Distributed learning on a local cluster, by the templates and programs of examples/learning: real frameworks train
a small model, lose a member, and continue from their last checkpoint."""

from __future__ import annotations

import itertools
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from cli.job.templates import FOLDER, fill
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.yaml_config import load_message
from tests.e2e.local import Cluster, shell, temporary
from tests.frameworks.environments import ROOT, environment
from tests.nightly import NIGHTLY

pytestmark = [NIGHTLY, pytest.mark.xdist_group("learning"), pytest.mark.timeout(1800)]

HOSTS, CPUS_OF_HOST = 3, 2
STEPS = 40
START_S = 150.0
"""Seconds in which a framework starts on a quiet machine: imports take most of it."""
BEGIN = re.compile(r"rank (\d+) of (\d+) begins at step (\d+)")
STEP = re.compile(r"step (\d+) loss ([\d.]+) on (\d+) processes")
FRAMEWORK = {"torchrun": "torch"}
"""The environment and the program of a template, if they are not named after it."""
ELASTIC = ["torchrun", "horovod"]
WORKER = Path(__file__).parent / "horovod_worker.py"
NO_FRAMEWORK = ["HOROVOD_WITHOUT_PYTORCH", "HOROVOD_WITHOUT_TENSORFLOW", "HOROVOD_WITHOUT_MXNET", "HOROVOD_WITHOUT_MPI"]
"""Variables of Horovod's build."""
CREATED: list[str] = []
"""Jobs of this process."""


class Step(NamedTuple):
    number: int
    loss: float
    processes: int


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("learning")
    hosts = folder / "hosts.yaml"
    host = {"cpus": CPUS_OF_HOST, "mem": 4096, "disk": 20000, "attributes": {"rack": "r1"}}
    hosts.write_text(yaml.safe_dump([{"name": f"host-{i}", **host} for i in range(HOSTS)]))
    with Cluster(temporary(folder, hosts_file=hosts)) as running:
        yield running
        for job, instance in itertools.product(CREATED, range(HOSTS)):
            kill_pod(job, instance)  # torchrun's processes leave the group of their pod


def program_of(template: str, folder: Path, steps: int, pause_s: float) -> tuple[str, str]:
    """Return the interpreter and the program of a job.

    Horovod has its launcher and its elastic mode, and a program that speaks to them: its collective operations would
    have to be built against a framework.
    """
    if template == "horovod":
        with pytest.MonkeyPatch.context() as patch:
            for name in NO_FRAMEWORK:
                patch.setenv(name, "1")
            python = environment("horovod")
        for name, arguments in (("python", ""), ("horovodrun", f"{WORKER} run")):
            script = folder / name
            script.write_text(f'#!/bin/sh\nexec {python} {arguments} "$@"\n')
            script.chmod(0o755)
        return str(folder / "python"), f"{WORKER} {steps} {pause_s}"
    framework = FRAMEWORK.get(template, template)
    return str(environment(framework)), f"{FOLDER.parent}/train_{framework}.py --steps {steps} --pause {pause_s}"


def submit(
    cluster: Cluster, pool: str, template: str, folder: Path, *, steps: int, pause_s: float = 0.4, **changes: object
) -> str:
    """Create a job of a template in the framework's own environment."""
    python, program = program_of(template, folder, steps, pause_s)
    set_lines = {
        "python": python,
        "program": program,
        "checkpoints": str(folder),
        **{name.replace("_", "-"): value for name, value in changes.items()},
    }
    config = load_message(fill(template, set_lines), job_pb2.JobConfig)
    config.respoolID.value = pool
    variables = config.defaultConfig.command.environment.variables
    for variable in variables:
        if variable.name == "INTERFACES":
            variable.value = "lo"
    given = {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "2"}
    for name, value in given.items():
        variables.add(name=name, value=value)
    answer = cluster.client.jobs.Create(job_pb2.CreateRequest(config=config))
    assert not answer.HasField("error"), answer.error
    CREATED.append(answer.jobId.value)
    return CREATED[-1]


def log(cluster: Cluster, job: str, instance: int = 0) -> str:
    """Return what the present run has printed; "" before it has a sandbox."""
    try:
        return cluster.log_of(job, instance)
    except (AssertionError, StopIteration, OSError):
        return ""


def steps_of(text: str) -> list[Step]:
    return [Step(int(n), float(loss), int(size)) for n, loss, size in STEP.findall(text)]


def begins_of(text: str) -> list[int]:
    return [int(step) for _, _, step in BEGIN.findall(text)]


def processes_of(job: str, instance: int) -> dict[int, int]:
    """Return the processes of a pod: id and parent."""
    wanted = {f"PELOTON_JOB_ID={job}".encode(), f"PELOTON_INSTANCE_ID={instance}".encode()}
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted <= set((folder / "environ").read_bytes().split(b"\0")):
                found[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
    return found


def kill_worker(job: str, instance: int) -> None:
    """kill -9 of the process that computes: it has no child."""
    processes = processes_of(job, instance)
    leaves = set(processes) - set(processes.values())
    os.kill(max(leaves), signal.SIGKILL)


def kill_pod(job: str, instance: int) -> None:
    """kill -9 of all processes of a pod, as when its host is lost."""
    for process in processes_of(job, instance):
        os.kill(process, signal.SIGKILL)


def learn_with_a_loss(cluster: Cluster, job: str) -> tuple[list[Step], list[Step], float]:
    """Let a member be lost amid training. Return the steps before and after, and the seconds from the loss to the next
    step."""
    cluster.wait(lambda: len(steps_of(log(cluster, job))) >= 5, "five steps", START_S)
    before = steps_of(log(cluster, job))
    began_s = time.monotonic()
    kill_pod(job, 1)
    cluster.wait(lambda: set(cluster.run_ids(job).values()) == {2}, "the next run of all members", START_S)
    cluster.wait(lambda: bool(steps_of(log(cluster, job))), "a step of the next run", START_S)
    lost_s = time.monotonic() - began_s
    assert "SUCCEEDED" == cluster.finish(job, START_S)
    return before, steps_of(log(cluster, job)), lost_s


@pytest.mark.parametrize("template", ["tensorflow", "jax", "mpi", *ELASTIC])
def test_a_lost_member_restarts_the_gang_from_its_checkpoint(template: str, cluster: Cluster, tmp_path: Path) -> None:
    """Three processes train together; one is killed, all start again, and no step before the last checkpoint is
    repeated. The model has learned at the end."""
    pool = cluster.pool(f"lost-{template}")
    least = {"min_count": 3} if template in ELASTIC else {}
    job = submit(cluster, pool, template, tmp_path, steps=STEPS, cpus=0.5, **least)

    before, after, lost_s = learn_with_a_loss(cluster, job)

    print(f"{template}: {lost_s:.1f} s from the loss of a member to the next step")
    assert before[0].number == 1
    assert before[-1].number < after[0].number == begins_of(log(cluster, job))[0] + 1
    assert list(range(after[0].number, STEPS + 1)) == [step.number for step in after]
    assert {3} == {step.processes for step in before + after}
    assert after[-1].loss < before[0].loss / 20
    assert {0: 2, 1: 2, 2: 2} == cluster.run_ids(job)


def test_a_killed_process_of_torchrun_starts_again_in_its_pod(cluster: Cluster, tmp_path: Path) -> None:
    """The agents of torchrun start the processes again by themselves: no pod has another run."""
    pool = cluster.pool("process")
    job = submit(cluster, pool, "torchrun", tmp_path, steps=STEPS, cpus=0.5, min_count=3)
    cluster.wait(lambda: len(steps_of(log(cluster, job))) >= 5, "five steps", START_S)

    kill_worker(job, 1)

    assert "SUCCEEDED" == cluster.finish(job, START_S)
    first, second = begins_of(log(cluster, job))
    assert 0 == first < second
    assert {0: 1, 1: 1, 2: 1} == cluster.run_ids(job)


@pytest.mark.parametrize("template", ELASTIC)
def test_an_elastic_gang_shrinks_and_grows_back(template: str, cluster: Cluster, tmp_path: Path) -> None:
    """A job of another pool takes back the resources of one of three pods: training continues on two from the last
    checkpoint, and on three when the other job has ended. The gang itself has one run."""
    pool = cluster.pool(f"elastic-{template}")
    owner = cluster.pool(f"owner-{template}", own_cpu=CPUS_OF_HOST)
    changes = {"count": 3, "min_count": 2, "cpus": CPUS_OF_HOST, "memory": 1024}
    job = submit(cluster, pool, template, tmp_path, steps=100_000, **changes)

    def trains_on(size: int) -> bool:
        steps = steps_of(log(cluster, job))
        return bool(steps) and steps[-1].processes == size

    cluster.wait(lambda: trains_on(3), "three processes", START_S)
    urgent = cluster.submit(owner, instanceCount=1, defaultConfig=shell("sleep 1000", cpu=CPUS_OF_HOST, memory=16))
    began_s = time.monotonic()
    cluster.wait(lambda: trains_on(2), "two processes", START_S)
    shrunk_s = time.monotonic() - began_s
    cluster.wait(lambda: cluster.counts(urgent) == {"RUNNING": 1}, "the job of the owner")
    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=urgent)))
    began_s = time.monotonic()
    cluster.wait(lambda: trains_on(3), "three processes again", START_S)

    print(f"{template}: {shrunk_s:.1f} s to go on with two, {time.monotonic() - began_s:.1f} s to be three again")
    runs = cluster.run_ids(job)
    assert 1 == runs[0] == runs[1] < runs[2]
    begun = begins_of(log(cluster, job))
    assert begun == sorted(begun)
    cluster.client.tasks.Stop(task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job)))
    assert "KILLED" == cluster.finish(job)
