"""Kueue on a real apiserver, compared with Peloton: a scheduling gate holds each pod until its queue has quota for it,
and kube-scheduler then binds it.

Its controller manager is built from its Go module and set up by its manifests, with all its webhooks and the
certificates that it creates. The benchmark does what a cluster would do outside one: Kueue's service leads to this
machine, and its certificates are written to their usual path.
"""

from __future__ import annotations

import base64
import http.client
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import yaml

from services.hostmgr.kubernetes.apiserver.access import read_access
from services.hostmgr.kubernetes.apiserver.wire import Answer, ApiServer, Request
from services.lab.local.ports import PortReservations
from tests.bench import kueue_build
from tests.bench.figures import Missing
from tests.bench.kubernetes_bind import bound, pod
from tests.bench.kubernetes_real import (
    NAMESPACE,
    NODES,
    PODS,
    PODS_PATH,
    TIMEOUT_S,
    ask,
    delete_pods,
    measure_launches,
    part,
    ready,
    run,
)
from tests.kubernetes.client import Client, Json, Login
from tests.kubernetes.control_plane import ControlPlane, die_with_parent, is_built
from tests.waiting import Condition

SYSTEM = "kueue-system"
SERVICE, SECRET = "kueue-webhook-service", "kueue-webhook-server-cert"
QUEUE = "bench"
API = "/apis/kueue.x-k8s.io/v1beta2"
CREATE = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "MutatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
}
CONVERTED = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")
"""Resources whose versions Kueue converts by a webhook."""
QUOTA = {"cpu": "3200", "memory": "12800Gi"}
"""Quota of all resources of the nodes."""
GATED_TIMEOUT_S = 1_800.0


def kueue(count: int = PODS) -> dict[str, Any]:
    """The same pods three times, each time on an apiserver without pods: bound by Peloton as pods of others,
    launched by its driver, and admitted by Kueue and bound by kube-scheduler."""
    if not is_built():
        raise Missing("no real Kubernetes is built: make kubernetes")
    program = kueue_build.program()
    with (
        tempfile.TemporaryDirectory(prefix="kubernetes-", ignore_cleanup_errors=True) as folder,
        ControlPlane(Path(folder), node_grace_s=40) as plane,
        part("kubelets", plane) as kubelets,
    ):
        ask(kubelets)
        peloton_bind = bound(plane, kubelets, Path(folder), count)
        peloton = measure_launches(plane, kubelets)
        delete_pods(plane)
        plane.start("kube-scheduler")
        with (
            manager(plane, Path(folder) / "kueue", program) as process,
            part("creator", plane, str(count), module="tests.bench.kueue") as creator,
        ):
            parts = {"creator": creator, "kueue": process, "fake_kubelet": kubelets}
            peer = run(plane, parts, "kube-scheduler", pods=count, max_s=GATED_TIMEOUT_S)
            check_workloads(plane, count)
    return {
        "pods": count,
        "nodes": NODES,
        "version": kueue_build.version(),
        "peloton": peloton,
        "peloton_bind": peloton_bind,
        "kueue": peer,
        "cpu_ms_saved": round(peer["placing_cpu_ms"] - peloton["placing_cpu_ms"], 2),
        "cpu_ms_saved_bind": round(peer["placing_cpu_ms"] - peloton_bind["placing_cpu_ms"], 2),
    }


# Kueue.


@contextmanager
def manager(plane: ControlPlane, folder: Path, program: Path) -> Iterator[subprocess.Popen[str]]:
    """Start its controller manager, with a queue whose quota fits all pods."""
    shipped = kueue_build.manifests()
    ports = PortReservations()
    webhooks, health = ports.take_any(2)
    certificates, settings, log = folder / "certificates", folder / "kueue.yaml", folder / "kueue.log"
    certificates.mkdir(parents=True)
    settings.write_text(yaml.safe_dump(configuration(shipped, webhooks, health, certificates)), encoding="utf-8")
    argv: list[str | Path] = [program, "--config", settings, "--kubeconfig", plane.kubeconfig]
    with Client(plane.login) as client, log.open("w") as output:
        for path, body in [*system(), *manifests(shipped, webhooks)]:
            create(client, path, body)
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=die_with_parent,
        )
        try:
            secret = f"/api/v1/namespaces/{SYSTEM}/secrets/{SECRET}"
            await_it(process, log, lambda: bool(client.ask("GET", secret).json().get("data")))
            for name, value in client.ask("GET", secret).json()["data"].items():
                (certificates / name).write_bytes(base64.b64decode(value))
            await_it(process, log, lambda: is_ready(health))
            for path, body in queue():
                await_it(process, log, lambda path=path, body=body: is_created(client, path, body))
            await_it(process, log, lambda: is_open(client))
            yield process
        finally:
            process.kill()
            process.wait()
            ports.close()


def await_it(process: subprocess.Popen[str], log: Path, is_so: Condition) -> None:
    until_s = time.monotonic() + TIMEOUT_S
    while not is_so():
        is_late = time.monotonic() > until_s
        if is_late or process.poll() is not None:
            last = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise AssertionError(f"Kueue {'is not ready' if is_late else 'ended'}:\n{last}")
        time.sleep(0.1)


def configuration(shipped: Path, webhooks: int, health: int, certificates: Path) -> Json:
    """Return the shipped configuration, for plain pods, and without its limit of requests a second, as kube-scheduler
    here has none.
    """
    found: Json = yaml.safe_load((shipped / "manager" / "controller_manager_config.yaml").read_text(encoding="utf-8"))
    return found | {
        "namespace": SYSTEM,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": webhooks, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": 100_000, "burst": 100_000},
        "internalCertManagement": {"enable": True, "webhookServiceName": SERVICE, "webhookSecretName": SECRET},
        "integrations": {"frameworks": ["pod"]},
        "featureGates": {"VisibilityOnDemand": False},  # an apiserver of its own on a fixed port
    }


def system() -> Iterator[tuple[str, Json]]:
    """Yield the objects of its namespace; its service leads to this machine."""
    for namespace in (SYSTEM, NAMESPACE):
        yield "/api/v1/namespaces", {"metadata": {"name": namespace}}
    home = f"/api/v1/namespaces/{SYSTEM}"
    yield f"{home}/secrets", {"metadata": {"name": SECRET}}
    spec = {"type": "ExternalName", "externalName": "localhost"}
    yield f"{home}/services", {"metadata": {"name": SERVICE}, "spec": spec}


def manifests(shipped: Path, port: int) -> Iterator[tuple[str, Json]]:
    """Yield its resources and its webhooks, with the additions of its overlays for kustomize."""
    service = {"name": SERVICE, "namespace": SYSTEM, "port": port}
    for file in sorted((shipped / "crd" / "bases").glob("*.yaml")):
        body = yaml.safe_load(file.read_text(encoding="utf-8"))
        if body["spec"]["names"]["plural"] in CONVERTED:
            webhook = {"clientConfig": {"service": service | {"path": "/convert"}}, "conversionReviewVersions": ["v1"]}
            body["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
        yield CREATE[body["kind"]], body
    others = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", SYSTEM]}
    for body in yaml.safe_load_all((shipped / "webhook" / "manifests.yaml").read_text(encoding="utf-8")):
        body["metadata"]["name"] = f"kueue-{body['metadata']['name']}"
        for webhook in body["webhooks"]:
            webhook["clientConfig"]["service"] |= service
            if webhook["name"][1:] in ("pod.kb.io", "deployment.kb.io", "statefulset.kb.io"):
                webhook["namespaceSelector"] = {"matchExpressions": [others]}
        yield CREATE[body["kind"]], body


def queue() -> Iterator[tuple[str, Json]]:
    resources = [{"name": name, "nominalQuota": quota} for name, quota in QUOTA.items()]
    group = {"coveredResources": list(QUOTA), "flavors": [{"name": "default", "resources": resources}]}
    yield f"{API}/resourceflavors", make_object("ResourceFlavor", "default", {})
    yield (
        f"{API}/clusterqueues",
        make_object("ClusterQueue", QUEUE, {"namespaceSelector": {}, "resourceGroups": [group]}),
    )
    yield f"{API}/namespaces/{NAMESPACE}/localqueues", make_object("LocalQueue", QUEUE, {"clusterQueue": QUEUE})


def make_object(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}


def check_workloads(plane: ControlPlane, count: int) -> None:
    """Check that every pod went by way of the queue."""
    with Client(plane.login) as client:
        found = client.ask("GET", f"{API}/namespaces/{NAMESPACE}/workloads").json()["items"]
    assert len(found) == count, f"{len(found)} workloads for {count} pods"


def is_open(client: Client) -> bool:
    found = client.ask("GET", f"{API}/namespaces/{NAMESPACE}/localqueues/{QUEUE}").json()
    conditions = found.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Active" and condition["status"] == "True" for condition in conditions)


def is_ready(port: int) -> bool:
    with Client(Login(f"http://127.0.0.1:{port}")) as client:
        try:
            return client.ask("GET", "/readyz").status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False


def is_created(client: Client, path: str, body: Json) -> bool:
    """Return whether the object was created, which fails until its webhooks answer."""
    return client.ask("POST", path, body).status == http.client.CREATED


def create(client: Client, path: str, body: Json) -> None:
    reply = client.ask("POST", path, body)
    assert reply.status in (http.client.CREATED, http.client.CONFLICT), reply.body


# Parts.


def creator(kubeconfig: str, count: str) -> None:
    """Create plain pods of the queue: its webhook gates them."""
    api = ApiServer(read_access(kubeconfig))
    requests = []
    for number in range(int(count)):
        body = pod(number, "default-scheduler")
        body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": QUEUE}
        requests.append(Request("POST", PODS_PATH, orjson.dumps(body)))
    ready()
    refused = [one for one in api.ask_all(requests) if not isinstance(one, Answer) or not one.is_ok]
    assert not refused, refused[0]
    sys.stdin.read()
    api.close()


if __name__ == "__main__":
    {"creator": creator}[sys.argv[1]](*sys.argv[2:])
