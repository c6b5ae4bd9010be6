"""The pod of a node manager. When Peloton asks it to end, it leaves gracefully: the resource manager decommissions it,
and it ends when its containers have, at the latest when the notice is over."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

from settings import environment, java, port_of, site, write_configuration

CALL_MAX_S, JOIN_MAX_S = 70.0, 120.0


def call(host: str, first: int, verb: str, node: str) -> bool:
    url = f"http://{host}:{port_of(first, 'controller')}/{verb}/{node}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, b""), timeout=CALL_MAX_S):
            return True
    except OSError as error:
        print(f"{verb}: {error}", flush=True)
        return False


def address() -> str:
    """Return the address of this node. Hosts of `peloton up` share a machine, so each has a loopback address of its
    own: the resource manager excludes nodes by host."""
    host = os.environ.get("MESOS_CONTAINER_IP", "127.0.0.1")
    number = int(os.environ["PELOTON_INSTANCE_ID"])
    return f"127.0.{1 + number // 250}.{1 + number % 250}" if host.startswith("127.") else host


def main() -> int:
    given = json.loads(os.environ["YARN_EXAMPLE"])
    manager_host, first, jars, work = given["manager"], given["port"], given["jars"], given["work"]
    node, here, nm = address(), Path.cwd(), "yarn.nodemanager"
    ports = {name: os.environ[name] for name in ("NODE_PORT", "LOCALIZER_PORT", "WEB_PORT")}
    conf = here / "conf"
    write_configuration(
        conf,
        {
            **site(manager_host, first, jars, work),
            f"{nm}.bind-host": node,
            f"{nm}.address": f"{node}:{ports['NODE_PORT']}",
            f"{nm}.localizer.address": f"{node}:{ports['LOCALIZER_PORT']}",
            f"{nm}.webapp.address": f"{node}:{ports['WEB_PORT']}",
            f"{nm}.local-dirs": str(here / "local"),
            f"{nm}.log-dirs": str(here / "logs"),
            f"{nm}.resource.memory-mb": str(given["node_mib"]),
            f"{nm}.resource.cpu-vcores": str(given["node_cores"]),
            f"{nm}.vmem-check-enabled": "false",
            f"{nm}.pmem-check-enabled": "false",
            f"{nm}.disk-health-checker.enable": "false",
            f"{nm}.env-whitelist": "JAVA_HOME,HADOOP_CONF_DIR,PATH",
            f"{nm}.resourcemanager.connect.max-wait.ms": "600000",
        },
    )
    deadline_s = time.monotonic() + JOIN_MAX_S
    while not call(manager_host, first, "join", node):
        if time.monotonic() > deadline_s:
            return 1
        time.sleep(1)
    manager = subprocess.Popen(
        java(conf, jars, work, "org.apache.hadoop.yarn.server.nodemanager.NodeManager"), env=environment(conf)
    )

    def leave() -> None:
        print(f"{node} has notice", flush=True)
        if call(manager_host, first, "leave", node):
            with contextlib.suppress(subprocess.TimeoutExpired):
                manager.wait(given["notice_s"])  # the resource manager shuts it down when its containers have ended
        manager.terminate()

    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=leave).start())
    return 0 if manager.wait() in (0, 255) else manager.returncode


if __name__ == "__main__":
    sys.exit(main())
