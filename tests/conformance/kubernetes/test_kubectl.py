"""kubectl, as people use it, against the emulated Kubernetes with nodes whose pods are processes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from services.lab.kubernetes.nodes.settings import NodeSettings
from services.lab.shared.hosts import HostSpec
from tests.unit.lab.kubernetes.cluster import PODS, Cluster

TIMEOUT_S = 180.0
KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl on the PATH")
Kubectl: TypeAlias = Callable[..., str]
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  nodeName: node-0
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: "busybox:1", command: [sh, -c, "echo hello; exec sleep 600"]}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: "busybox:1", command: [echo, done]}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: main, image: "busybox:1", command: [sh, -c, "exec sleep 600"]}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    hosts = tuple(HostSpec(name, cpus=4, mem=2048) for name in ("node-0", "node-1"))
    with Cluster(tmp_path, token="secret", nodes=NodeSettings(tmp_path, hosts)) as cluster:
        yield cluster


@pytest.fixture
def kubectl(cluster: Cluster, tmp_path: Path) -> Kubectl:
    """Run a command, whose first argument is its input; the answer is what it printed."""

    def run(*arguments: str, sent: str = "") -> str:
        done = subprocess.run(
            [KUBECTL or "", f"--cache-dir={tmp_path / 'cache'}", *arguments],
            input=sent,
            env={**os.environ, "KUBECONFIG": str(cluster.server.kubeconfig)},
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    return run


def wait_for_start(cluster: Cluster, kubectl: Kubectl) -> None:
    kubectl("create", "-f", "-", sent=POD)
    kubectl("wait", "--for=condition=Ready", "pod/web", f"--timeout={TIMEOUT_S:.0f}s")
    cluster.wait(f"{PODS}/web/log", lambda found: found.status == 200 and b"hello" in found.body)


def test_a_pod_is_made_read_and_deleted(cluster: Cluster, kubectl: Kubectl) -> None:
    """A pod is created, listed, described, read, labelled, applied twice and deleted."""
    wait_for_start(cluster, kubectl)

    row = kubectl("get", "pods", "-o", "wide", "--no-headers").split()
    assert row[:4] == ["web", "1/1", "Running", "0"]
    assert row[4] == "node-0"
    assert kubectl("logs", "web") == "hello\n"
    assert kubectl("exec", "web", "--", "echo", "hi") == "hi\n"
    assert "Node:         node-0/" in kubectl("describe", "pod", "web")
    assert kubectl("label", "pod", "web", "tier=1") == "pod/web labeled\n"
    assert kubectl("annotate", "pod", "web", "note=x") == "pod/web annotated\n"
    assert kubectl("get", "pods", "-l", "tier in (1, 2)", "-o", "name") == "pod/web\n"
    assert kubectl("apply", "-f", "-", sent=POD) == "pod/web configured\n"
    assert kubectl("apply", "-f", "-", sent=POD) == "pod/web unchanged\n"
    assert 'pod "web" deleted' in kubectl("delete", "pod", "web")
    assert cluster.get(f"{PODS}/web").status == 404


def test_a_watch_prints_each_change(cluster: Cluster, kubectl: Kubectl, tmp_path: Path) -> None:
    """A get -w prints until the pod has gone through its lifecycle."""
    wait_for_start(cluster, kubectl)
    command = [KUBECTL or "", f"--cache-dir={tmp_path / 'cache'}", "get", "pods", "-w", "--no-headers"]
    environment = {**os.environ, "KUBECONFIG": str(cluster.server.kubeconfig)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as watch:
        try:
            assert watch.stdout is not None
            assert watch.stdout.readline().split()[:3] == ["web", "1/1", "Running"]
            kubectl("delete", "pod", "web", "--wait=false")
            assert watch.stdout.readline().split()[:3] == ["web", "1/1", "Terminating"]
        finally:
            watch.kill()


def test_a_node_is_drained(cluster: Cluster, kubectl: Kubectl) -> None:
    """cordon shows, drain evicts what is there, uncordon takes both back; taints come and go."""
    wait_for_start(cluster, kubectl)

    assert kubectl("cordon", "node-0") == "node/node-0 cordoned\n"
    assert kubectl("get", "node", "node-0", "--no-headers").split()[1] == "Ready,SchedulingDisabled"
    assert "pod/web evicted" in kubectl("drain", "node-0", "--force", f"--timeout={TIMEOUT_S:.0f}s")
    assert kubectl("get", "pods", "-o", "name") == ""
    assert kubectl("uncordon", "node-0") == "node/node-0 uncordoned\n"
    assert kubectl("taint", "node", "node-0", "team=a:NoSchedule") == "node/node-0 tainted\n"
    assert "team=a:NoSchedule" in kubectl("describe", "node", "node-0")
    assert kubectl("taint", "node", "node-0", "team-") == "node/node-0 untainted\n"


def test_a_job_and_a_deployment(cluster: Cluster, kubectl: Kubectl) -> None:
    """A Job completes, and a Deployment is applied, scaled, rolled out and deleted with its pods."""
    busy_retry = f"--timeout={TIMEOUT_S:.0f}s"
    kubectl("create", "-f", "-", sent=JOB)
    kubectl("wait", "--for=condition=Complete", "job/once", busy_retry)
    assert kubectl("logs", "job/once") == "done\n"
    assert kubectl("get", "jobs", "--no-headers").split()[:3] == ["once", "Complete", "1/1"]

    assert kubectl("apply", "-f", "-", sent=DEPLOYMENT) == "deployment.apps/web created\n"
    kubectl("rollout", "status", "deployment/web", busy_retry)
    assert kubectl("apply", "-f", "-", sent=DEPLOYMENT.replace("600", "700")) == "deployment.apps/web configured\n"
    kubectl("rollout", "status", "deployment/web", busy_retry)
    assert kubectl("scale", "deployment/web", "--replicas=2") == "deployment.apps/web scaled\n"
    kubectl("wait", "--for=jsonpath={.status.readyReplicas}=2", "deployment/web", busy_retry)
    assert "sleep 700" in kubectl("describe", "deployment", "web")
    kubectl("delete", "deployment/web", "job/once")
    cluster.wait(PODS, lambda found: not found.json["items"])


def test_a_kind_that_is_not_served_is_named(kubectl: Kubectl) -> None:
    """apply reads schemas first, and would say that it cannot."""
    claim = POD.replace("kind: Pod", "kind: PersistentVolumeClaim")
    with pytest.raises(AssertionError, match='no matches for kind "PersistentVolumeClaim" in version "v1"'):
        kubectl("apply", "-f", "-", sent=claim)
