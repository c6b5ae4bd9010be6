"""The pod of the resource manager: YARN's resource manager, and a controller that has node managers follow demand.

The controller reads the pending containers from the resource manager's REST API, and scales the service of the node
managers by the public API of Peloton. A node manager that is asked to end calls it: then the node goes to the exclude
file, and the resource manager decommissions it gracefully.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
from demand import Scale
from settings import environment, java, port_of, site, write_configuration

from peloton.api.v1alpha import peloton_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.client import Client
from peloton.errors import PelotonError

PERIOD_S = 2.0
CALL_MAX_S, ADMIN_MAX_S = 15.0, 60.0
NODES_MAX = 1_000


class Nodes:
    """The exclude file, and the commands that have the resource manager read it."""

    def __init__(self, path: Path, admin: list[str], variables: dict[str, str], notice_s: int) -> None:
        self.path, self.admin, self.variables, self.notice_s = path, admin, variables, notice_s
        self.lock = threading.Lock()
        self.path.touch()

    def leave(self, host: str) -> None:
        self.change(host, leaves=True)

    def join(self, host: str) -> None:
        self.change(host, leaves=False)

    def change(self, host: str, leaves: bool) -> None:
        with self.lock:
            hosts = set(self.path.read_text().split())
            if (host in hosts) == leaves or len(hosts) > NODES_MAX:
                return
            hosts ^= {host}
            self.path.write_text("".join(f"{one}\n" for one in sorted(hosts)))
            words = ["-refreshNodes", *(["-g", str(self.notice_s), "-server"] if leaves else [])]
            print(f"{host} {'leaves' if leaves else 'joins'}: rmadmin {' '.join(words)}", flush=True)
            subprocess.run([*self.admin, *words], env=self.variables, timeout=ADMIN_MAX_S, check=False)


def serve(nodes: Nodes, address: tuple[str, int]) -> None:
    """Answer POST /join/HOST and /leave/HOST of node managers."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            verb, _, host = self.path.strip("/").partition("/")
            acts = {"join": nodes.join, "leave": nodes.leave}
            if verb in acts:
                acts[verb](host)
            self.send_response(200 if verb in acts else 404)
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None: ...

    server = ThreadingHTTPServer(address, Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def count_of(client: Client, job_id: str) -> int:
    request = stateless_svc_pb2.GetJobRequest(job_id=peloton_pb2.JobID(value=job_id))
    return int(client.services.GetJob(request).job_info.spec.instance_count)


def metrics_of(host: str, first: int) -> dict[str, Any]:
    url = f"http://{host}:{port_of(first, 'web')}/ws/v1/cluster/metrics"
    with urllib.request.urlopen(url, timeout=CALL_MAX_S) as answer:
        found: dict[str, Any] = json.load(answer)["clusterMetrics"]
        return found


def main() -> int:
    given = json.loads(os.environ["YARN_EXAMPLE"])
    host = os.environ.get("MESOS_CONTAINER_IP", "127.0.0.1")
    first, jars, work = given["port"], given["jars"], given["work"]
    here = Path.cwd()
    conf, exclude = here / "conf", here / "state" / "exclude"
    rm = "yarn.resourcemanager"
    write_configuration(
        conf,
        {
            **site(host, first, jars, work),
            f"{rm}.nodes.exclude-path": str(exclude),
            f"{rm}.recovery.enabled": "true",
            f"{rm}.store.class": "org.apache.hadoop.yarn.server.resourcemanager.recovery.FileSystemRMStateStore",
            f"{rm}.fs.state-store.uri": f"file://{here}/state/rm",
            f"{rm}.work-preserving-recovery.scheduling-wait-ms": "2000",
            "yarn.nm.liveness-monitor.expiry-interval-ms": "120000",
        },
    )
    variables = environment(conf)
    admin = java(conf, jars, work, "org.apache.hadoop.yarn.client.cli.RMAdminCLI")
    serve(Nodes(exclude, admin, variables, given["notice_s"]), (host, port_of(first, "controller")))
    manager = subprocess.Popen(
        java(conf, jars, work, "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"), env=variables
    )
    signal.signal(signal.SIGTERM, lambda *_: manager.terminate())
    decision = Scale(given["least"], given["most"], given["node_mib"])
    with Client(given["peloton"], timeout_s=CALL_MAX_S) as client:
        while manager.poll() is None:
            time.sleep(PERIOD_S)
            try:
                present = count_of(client, given["nodes_job"])
                count = decision.wanted(metrics_of(host, first), present, time.monotonic())
                if count != present:
                    client.scale(given["nodes_job"], count)
                    print(f"node managers: {present} -> {count}", flush=True)
            except (OSError, grpc.RpcError, PelotonError) as error:
                print(f"not scaled: {type(error).__name__}", flush=True)
    return manager.returncode


if __name__ == "__main__":
    sys.exit(main())
