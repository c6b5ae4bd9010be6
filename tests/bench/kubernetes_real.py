"""Pods on a real apiserver, whose status a fake kubelet patches: by Peloton's driver, and by kube-scheduler for
comparison.

Measured processes are started by ``python -m tests.bench.kubernetes_real PART KUBECONFIG``. Each writes a line to
stdout when it is ready, and begins with a line on stdin.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from peloton.api import convert
from peloton.api.v0.job.job_pb2 import JobConfig
from peloton.api.v0.task.task_pb2 import TaskConfig
from peloton.model.ids import PodId, new_job_id
from services.hostmgr.driver import Claim, HostLaunch, PodLaunch, PodTemplate
from services.hostmgr.kubernetes.apiserver.access import read_access
from services.hostmgr.kubernetes.apiserver.watch import Reflector
from services.hostmgr.kubernetes.apiserver.wire import Answer, ApiServer, Json, Request
from services.hostmgr.kubernetes.driver import KubernetesDriver
from services.hostmgr.kubernetes.pods.manifests import PodManifest
from services.hostmgr.kubernetes.settings import KubernetesSettings
from tests.bench.figures import Missing, cpu_s
from tests.conformance.driver.lab import END_STATES, RecordedEvents
from tests.kubernetes.client import login_of
from tests.kubernetes.control_plane import ControlPlane, is_built
from tests.kubernetes.fake_kubelet import FakeKubelets

PODS = 1_000
NODES = 50
PODS_PER_HOST = 20
"""Pods in one launch on a host."""
NAMESPACE = "bench"
SELECTOR = (("bench", "yes"),)
ALLOCATABLE = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "1Ti", "pods": "500"}
TIMEOUT_S = 300.0
ACKNOWLEDGE_EVERY_S = 0.02
PODS_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"


def kubernetes_real() -> dict[str, Any]:
    """The same pods twice, each time on an apiserver without pods."""
    if not is_built():
        raise Missing("no real Kubernetes is built: make kubernetes")
    with (
        tempfile.TemporaryDirectory(prefix="kubernetes-", ignore_cleanup_errors=True) as folder,
        ControlPlane(Path(folder), node_grace_s=40) as plane,
        part("kubelets", plane) as kubelets,
    ):
        ask(kubelets)
        peloton = measure_launches(plane, kubelets)
        delete_pods(plane)
        plane.start("kube-scheduler")
        with part("creator", plane) as creator:
            peer = run(plane, {"creator": creator, "fake_kubelet": kubelets}, "kube-scheduler")
    return {
        "pods": PODS,
        "nodes": NODES,
        "peloton": peloton,
        "kube_scheduler": peer,
        "cpu_ms_saved": round(peer["placing_cpu_ms"] - peloton["placing_cpu_ms"], 2),
    }


def measure_launches(plane: ControlPlane, kubelets: subprocess.Popen[str]) -> dict[str, Any]:
    """Measure Peloton's driver."""
    with part("driver", plane) as driver:
        return run(plane, {"driver": driver, "fake_kubelet": kubelets})


def run(
    plane: ControlPlane,
    parts: dict[str, subprocess.Popen[str]],
    *more: str,
    pods: int = PODS,
    max_s: float = TIMEOUT_S,
) -> dict[str, Any]:
    """Return pods a second, and milliseconds of each process for a pod. The first of the parts receives the start
    line.
    """
    pids = {name: process.pid for name, process in parts.items()}
    pids |= {name: plane.process_id(name) for name in ("etcd", "kube-apiserver", "kube-controller-manager", *more)}
    api = ApiServer(read_access(str(plane.kubeconfig)))
    lives = Lives(max_s)
    watch = Reflector(api, PODS_PATH, lives)
    watch.start()
    try:
        lives.wait(lambda: watch.is_current)
        before = {name: cpu_s(pid) for name, pid in pids.items()}
        began_s = time.monotonic()
        ask(next(iter(parts.values())))
        lives.wait(lambda: len(lives.ended) == pods)
        cpu_ms = {name: round((cpu_s(pid) - before[name]) / pods * 1000, 2) for name, pid in pids.items()}
    finally:
        watch.stop()
        api.close()
    placing = sum(used for name, used in cpu_ms.items() if name != "fake_kubelet")
    return {
        "on_nodes_per_second": round(pods / (max(lives.on_node.values()) - began_s), 1),
        "ended_per_second": round(pods / (max(lives.ended.values()) - began_s), 1),
        "cpu_ms": cpu_ms,
        "placing_cpu_ms": round(placing, 2),
    }


@dataclass
class Lives:
    """Times at which each pod was bound to its node, and ended."""

    max_s: float
    on_node: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)

    def on_replace(self, objects: Sequence[Json]) -> None:
        for pod in objects:
            self.on_change("ADDED", pod)

    def on_change(self, kind: str, object: Json) -> None:
        name, now_s = object["metadata"]["name"], time.monotonic()
        if object["spec"].get("nodeName"):
            self.on_node.setdefault(name, now_s)
        if object["status"].get("phase") in ("Succeeded", "Failed"):
            self.ended.setdefault(name, now_s)

    def on_lost(self, why: str) -> None:
        raise AssertionError(why)

    def wait(self, is_so: Callable[[], bool]) -> None:
        until_s = time.monotonic() + self.max_s
        while not is_so():
            assert time.monotonic() < until_s, f"{len(self.on_node)} on nodes, {len(self.ended)} ended"
            time.sleep(0.05)


def delete_pods(plane: ControlPlane) -> None:
    api = ApiServer(read_access(str(plane.kubeconfig)))
    until_s = time.monotonic() + TIMEOUT_S
    while api.ask(Request("GET", f"{PODS_PATH}?limit=1")).json()["items"]:
        assert time.monotonic() < until_s, "pods are not deleted"
        api.ask(Request("DELETE", f"{PODS_PATH}?gracePeriodSeconds=0"), timeout_s=70.0)
    api.close()


# Parts.


@contextmanager
def part(
    name: str, plane: ControlPlane, *arguments: str, module: str = "tests.bench.kubernetes_real"
) -> Iterator[subprocess.Popen[str]]:
    """Start a part and wait until it is ready."""
    argv = [sys.executable, "-m", module, name, str(plane.kubeconfig), *arguments]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n", f"{name} did not start"
        yield process
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()
    assert process.returncode == 0, f"{name} failed"


def ask(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("begin\n")
    process.stdin.flush()


def ready() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def templates(settings: KubernetesSettings) -> tuple[list[PodId], PodTemplate]:
    job = convert.new_job_record(new_job_id(), JobConfig(name="bench", instanceCount=PODS), 1)
    config = TaskConfig()
    config.command.shell = True
    config.command.value = "true"
    config.resource.cpuLimit, config.resource.memLimitMb = 0.01, 16
    return [PodId(job.job_id, instance, 1) for instance in range(PODS)], PodTemplate(job, "/bench", config)


def settings_of(kubeconfig: str) -> KubernetesSettings:
    return KubernetesSettings(
        kubeconfig, namespace=NAMESPACE, node_selector=SELECTOR, slack_period_s=0
    )  # no kubelets: nothing is measured


def kubelets(kubeconfig: str) -> None:
    names = [f"bench-{number}" for number in range(NODES)]
    with FakeKubelets(login_of(Path(kubeconfig)), names, allocatable=ALLOCATABLE, labels=dict(SELECTOR)):
        ready()
        sys.stdin.read()


def driver(kubeconfig: str) -> None:
    """Launch all pods on the offered resources, and acknowledge the statuses."""
    settings = settings_of(kubeconfig)
    pods, template = templates(settings)
    events, driver = RecordedEvents(), KubernetesDriver(settings)
    driver.start(events)
    wait(lambda: len(events.free_resources) == NODES)
    ready()
    waiting, reported, ended = list(reversed(pods)), 0, 0
    while ended < PODS:
        with events.changed:
            free_resources, events.free_resources = (
                (events.free_resources, {}) if waiting else ({}, events.free_resources)
            )
            reports, reported = events.reports[reported:], len(events.reports)
        launches = []
        for announced in free_resources.values():
            some = [PodLaunch(waiting.pop(), template, ()) for _ in range(min(PODS_PER_HOST, len(waiting)))]
            launches.append(HostLaunch(Claim(announced.hostname, announced.host_id, (announced.resources_id,)), some))
        if launches and (refused := driver.launch(launches)):
            raise AssertionError(refused[0])
        states = [(report.token, report.status) for report in reports]
        ended += sum(1 for _, status in states if status is not None and status.state in END_STATES)
        driver.acknowledge([token for token, _ in states if token])
        driver.run_periodic()
        time.sleep(ACKNOWLEDGE_EVERY_S)
    sys.stdin.read()
    driver.stop()


def creator(kubeconfig: str) -> None:
    """Create the same pods without a node: kube-scheduler binds them."""
    settings = settings_of(kubeconfig)
    pods, template = templates(settings)
    manifest = PodManifest(template, settings)
    api = ApiServer(read_access(kubeconfig))
    requests = []
    for pod_id in pods:
        body = orjson.loads(manifest.body(PodLaunch(pod_id, template, ()), ""))
        del body["spec"]["nodeName"], body["spec"]["schedulerName"]
        body["spec"]["nodeSelector"] = dict(SELECTOR)
        requests.append(Request("POST", PODS_PATH, orjson.dumps(body)))
    ready()
    refused = [one for one in api.ask_all(requests) if not isinstance(one, Answer) or not one.is_ok]
    assert not refused, refused[0]
    sys.stdin.read()
    api.close()


def wait(is_so: Callable[[], bool]) -> None:
    pause, until_s = threading.Event(), time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < until_s, "timed out"
        pause.wait(0.02)


if __name__ == "__main__":
    {"kubelets": kubelets, "driver": driver, "creator": creator}[sys.argv[1]](sys.argv[2])
