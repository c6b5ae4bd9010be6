"""External pods on a real apiserver: bound by Peloton's host manager, gated and bound by kube-scheduler, and without
Peloton for comparison.

The pods have one owner, and are created as fast as possible. In the process of the host manager a loop replaces the
workflows and the resource manager: its CPU counts, too.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from services.hostmgr.kubernetes.apiserver.access import read_access
from services.hostmgr.kubernetes.apiserver.wire import Answer, ApiServer, Request
from services.hostmgr.kubernetes.external.gate import GATE
from services.roles.hostmgr import SWITCH_S
from services.runtime import GARBAGE
from tests.bench.figures import Missing
from tests.bench.kubernetes_real import (
    NAMESPACE,
    NODES,
    PODS,
    PODS_PATH,
    SELECTOR,
    ask,
    part,
    ready,
    run,
    wait,
)
from tests.kubernetes.client import login_of
from tests.kubernetes.control_plane import ControlPlane, is_built
from tests.kubernetes.external_world import ExternalWorld

MODULE = "tests.bench.kubernetes_bind"
TURN_S = 0.1
"""Seconds between the turns of the loop, which places the pods that came meanwhile together."""
OWNER = "bench"


def bind(count: int = PODS) -> dict[str, Any]:
    """The same pods three times, each time on an apiserver without pods."""
    if not is_built():
        raise Missing("no real Kubernetes is built: make kubernetes")
    with (
        tempfile.TemporaryDirectory(prefix="kubernetes-", ignore_cleanup_errors=True) as folder,
        ControlPlane(Path(folder), node_grace_s=40) as plane,
        part("kubelets", plane) as kubelets,
    ):
        ask(kubelets)
        peloton = bound(plane, kubelets, Path(folder), count)
        plane.start("kube-scheduler")
        gated = bound(plane, kubelets, Path(folder) / "gated", count, "gate", "kube-scheduler")
        with part("creator", plane, "default-scheduler", str(count), module=MODULE) as creator:
            parts = {"creator": creator, "fake_kubelet": kubelets}
            peer = run(plane, parts, "kube-scheduler", pods=count)
    return {
        "pods": count,
        "nodes": NODES,
        "peloton": peloton,
        "gated": gated,
        "kube_scheduler": peer,
        "cpu_ms_saved": round(peer["placing_cpu_ms"] - peloton["placing_cpu_ms"], 2),
    }


def bound(
    plane: ControlPlane,
    kubelets: subprocess.Popen[str],
    folder: Path,
    count: int,
    way: str = "peloton",
    *more: str,
) -> dict[str, Any]:
    """Measure Peloton's host manager, which deletes the pods in the end."""
    folder.mkdir(exist_ok=True)
    with (
        part("host-manager", plane, str(folder), module=MODULE) as host_manager,
        part("creator", plane, way, str(count), module=MODULE) as creator,
    ):
        ask(host_manager)
        parts = {"creator": creator, "host_manager": host_manager, "fake_kubelet": kubelets}
        return run(plane, parts, *more, pods=count)


# Parts.


def host_manager(kubeconfig: str, folder: str) -> None:
    """Run the host manager, and delete the pods at its end."""
    gc.freeze()  # as ``peloton serve`` does
    gc.set_threshold(*GARBAGE)
    sys.setswitchinterval(SWITCH_S)
    path = Path(kubeconfig)
    world = ExternalWorld(path, login_of(path), Path(folder), namespace=NAMESPACE, node_selector=SELECTOR)
    wait(lambda: world.driver.is_connected and len(world.core.cache.hosts()) == NODES)
    ready()
    ending = threading.Thread(target=sys.stdin.read)
    ending.start()
    while ending.is_alive():
        ending.join(TURN_S)
        world.turn()
    world.close()


def creator(kubeconfig: str, scheduler: str, count: str) -> None:
    api = ApiServer(read_access(kubeconfig))
    owner = owner_of_all(api)
    requests = []
    for number in range(int(count)):
        body = pod(number, scheduler)
        body["metadata"] |= {"labels": {"peloton.io/pool": "dev"}, "ownerReferences": [owner]}
        requests.append(Request("POST", PODS_PATH, orjson.dumps(body)))
    ready()
    refused = [one for one in api.ask_all(requests) if not isinstance(one, Answer) or not one.is_ok]
    assert not refused, refused[0]
    sys.stdin.read()
    api.close()


def owner_of_all(api: ApiServer) -> dict[str, Any]:
    """Return an existing owner: pods of a missing one are collected."""
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    answer = api.ask(Request("GET", f"{path}/{OWNER}"))
    if not answer.is_ok:
        answer = api.ask(Request("POST", path, orjson.dumps({"metadata": {"name": OWNER}})))
    uid = answer.json()["metadata"]["uid"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": OWNER, "uid": uid, "controller": True}


def pod(number: int, scheduler: str) -> dict[str, Any]:
    """Return a pod of this scheduler; ``gate``: of kube-scheduler, with Peloton's gate."""
    gates = {"schedulingGates": [{"name": GATE}]} if scheduler == "gate" else {}
    requests = {"cpu": "10m", "memory": "16Mi"}
    container = {"name": "main", "image": "busybox", "command": ["true"], "resources": {"requests": requests}}
    return {
        "metadata": {"name": f"{OWNER}-{number}"},
        "spec": {
            "schedulerName": "default-scheduler" if gates else scheduler,
            **gates,
            "restartPolicy": "Never",
            "nodeSelector": dict(SELECTOR),
            "containers": [container],
        },
    }


if __name__ == "__main__":
    parts: dict[str, Callable[..., None]] = {"host-manager": host_manager, "creator": creator}
    parts[sys.argv[1]](*sys.argv[2:])
