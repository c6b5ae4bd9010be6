"""Files, output and usage of pods, and commands run in them, by the command line."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.main import peloton
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from tests.e2e.local import TIMEOUT_S, Cluster, shell
from tests.e2e.service import Service
from tests.e2e.shared import THREE_HOSTS, Lend

pytestmark = pytest.mark.xdist_group("batch")


@pytest.fixture(scope="module")
def cluster(lend: Lend) -> Iterator[Cluster]:
    with lend(THREE_HOSTS) as running:
        yield running


@pytest.fixture(scope="module")
def pool(cluster: Cluster) -> str:
    return cluster.pool("sandboxes")


def run(cluster: Cluster, *words: str) -> Result:
    return CliRunner().invoke(peloton, ["--address", cluster.local.address, *words])


def arguments(cluster: Cluster, *words: str) -> list[str]:
    return [sys.executable, "-m", "cli.main", "--address", cluster.local.address, *words]


def test_a_job_has_its_secret(cluster: Cluster, pool: str, tmp_path: Path) -> None:
    """The command line sends it, the pod has it as a file, and no answer contains it."""
    config = tmp_path / "job.yaml"
    command = "tr a-z A-Z < run/key"
    config.write_text(json.dumps({"sla": {"preemptible": True}, "instancecount": 1, "defaultconfig": shell(command)}))
    secret = ("--secret-path", "/run/key", "--secret-data", "open sesame")
    made = run(cluster, "-o", "name", "job", "create", "/sandboxes", str(config), *secret)
    assert made.exit_code == 0, made.output
    job = made.output.strip()

    assert "SUCCEEDED" == cluster.finish(job)
    assert "OPEN SESAME" in cluster.log_of(job)
    answer = cluster.client.jobs.Get(job_pb2.GetRequest(id=peloton_pb2.JobID(value=job)))
    assert ["/run/key"] == [one.path for one in answer.secrets]
    texts = [answer.SerializeToString(), run(cluster, "job", "get", job).output.encode()]
    assert [False] * 4 == [data in text for text in texts for data in (b"sesame", b64encode(b"open sesame"))]


def test_the_output_of_a_job_is_one_stream(cluster: Cluster, pool: str, tmp_path: Path) -> None:
    """Output of all instances, both files, is one marked stream; followed until the job has ended, over a retry."""
    go = tmp_path / "go"
    script = (
        'echo "begin $PELOTON_INSTANCE_ID"; echo "careful" >&2; '
        f'while [ ! -e {go} ]; do sleep 0.1; done; [ "$PELOTON_INSTANCE_ID" = 0 ] || exit 0; '
        f"[ -e {go}-again ] || {{ touch {go}-again; exit 1; }}"
    )
    job = cluster.submit(pool, instanceCount=2, defaultConfig=shell(script, restartPolicy={"maxFailures": 2}))
    with subprocess.Popen(arguments(cluster, "job", "logs", job, "-f"), stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        seen = [follower.stdout.readline() for _ in range(4)]
        go.touch()
        seen += follower.stdout.readlines()

    assert 0 == follower.returncode
    assert "SUCCEEDED" == cluster.finish(job)
    lines = sorted(" ".join(line.split()) for line in seen)
    assert ["0 err | careful"] * 2 + ["0 out | begin 0"] * 2 + ["1 err | careful", "1 out | begin 1"] == lines
    once = run(cluster, "job", "logs", job, "--stream", "stdout", "--tail", "1", "--since", "1h")
    assert (0, " 0 | begin 0\n 1 | begin 1\n") == (once.exit_code, once.stdout)


def test_a_failure_says_why_in_the_words_of_the_command(cluster: Cluster, pool: str) -> None:
    """The end of stderr is in the message of the task."""
    job = cluster.submit(pool, instanceCount=1, defaultConfig=shell("echo 'no such table: users' >&2; exit 3"))
    assert "FAILED" == cluster.finish(job)
    expected = "Command exited with status 3; stderr: no such table: users"
    cluster.wait(lambda: expected == cluster.task(job).runtime.message, "the end of stderr in the message")


def test_a_command_runs_alongside_a_task(cluster: Cluster, pool: str) -> None:
    """A command has the task's environment, our input, and its exit code here; it is refused for a task that has
    ended."""
    job = cluster.submit(pool, instanceCount=1, defaultConfig=shell("echo 4711 > number; exec sleep 600"))
    cluster.wait(lambda: "RUNNING" in cluster.states(job).values(), "the task to run")
    script = "cat; cat number; echo $PELOTON_INSTANCE_ID >&2; exit 9"
    command = arguments(cluster, "task", "exec", "-i", job, "0", "sh", "-c", script)
    done = subprocess.run(command, input="typed\n", capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (9, "typed\n4711\n", "0\n") == (done.returncode, done.stdout, done.stderr)

    assert 0 == run(cluster, "job", "stop", job, "--force").exit_code or cluster.client
    cluster.wait(lambda: cluster.job_state(job) == "KILLED", "the end of the job")
    refused = run(cluster, "task", "exec", job, "0", "true")
    expected = f"pod {job}-0 is not running: it has no container to run a command in\n"
    assert (1, expected) == (refused.exit_code, refused.stderr)


def test_a_shell_alongside_the_pod_of_a_service(cluster: Cluster, pool: str) -> None:
    """A shell runs on a terminal and ends with the last line typed; the service's output is read as a job's."""
    service = Service(cluster, pool, 1, "echo up; exec sleep 600").create().wait_running()
    ours, theirs = pty.openpty()
    command = arguments(cluster, "pod", "exec", "-it", f"{service.id}-0")
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as client:
        os.close(theirs)
        os.write(ours, b"echo $((6 * 7)); exit 3\n")
        shown = b""
        while b"42" not in shown.replace(b"6 * 7", b""):
            shown += os.read(ours, 1024)
    os.close(ours)
    assert 3 == client.returncode
    assert " 0 out | up\n" == run(cluster, "job", "stateless", "logs", service.id).stdout
    service.delete(force=True)


def test_what_pods_use(cluster: Cluster, pool: str) -> None:
    """Measured by their agents because it is asked for: one is busy, the other rests."""
    script = '[ "$PELOTON_INSTANCE_ID" = 0 ] || exec sleep 600; while :; do :; done'
    job = cluster.submit(pool, instanceCount=2, defaultConfig=shell(script, cpu=0.5, memory=64))
    cluster.wait(lambda: cluster.counts(job) == {"RUNNING": 2}, "two pods that run")

    def uses() -> list[float]:
        found = json.loads(run(cluster, "-o", "json", "job", "use", job).stdout)["instances"]
        return [one.get("cpuUsed", 0.0) for one in found if one.get("measured")]

    cluster.wait(lambda: len(found := uses()) == 2 and found[0] > 0.05 > found[1], "what they use")
    assert 0 == run(cluster, "job", "stop", job, "--progress").exit_code
