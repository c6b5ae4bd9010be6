"""Runs minicluster for a Mesos master and the agents of docker-compose.yml, and announces it in ZooKeeper."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from kazoo.client import KazooClient

from tests.compose.file import read

HOSTS = Path("/tmp/hosts.yaml")
START_MAX_S = 120.0


def host(settings: Mapping[str, str]) -> dict[str, Any]:
    """Return a row of minicluster's file of hosts, for the variables of an agent."""
    resources = dict(part.split(":", 1) for part in settings["MESOS_RESOURCES"].split(";"))
    attributes = dict(part.split(":", 1) for part in settings["MESOS_ATTRIBUTES"].split(";"))
    amounts = {name: int(resources[name]) for name in ("cpus", "mem", "disk")}
    row = {"name": settings["MESOS_HOSTNAME"], **amounts, "attributes": attributes}
    return {**row, "revocable_cpus": revocable_cpus(settings)}


def revocable_cpus(settings: Mapping[str, str]) -> int:
    """Return the fixed amount of the estimator that the agent loads; 0 without one."""
    modules = [one for library in json.loads(settings["MESOS_MODULES"])["libraries"] for one in library["modules"]]
    names = {one["name"]: {pair["key"]: pair["value"] for pair in one["parameters"]} for one in modules}
    found = names.get(settings.get("MESOS_RESOURCE_ESTIMATOR", ""), {})
    amount = re.fullmatch(r"cpus:(\d+)", found.get("resources", "cpus:0"))
    assert amount is not None, found
    return int(amount[1])


def main() -> int:
    agents = [service.environment for name, service in read().items() if name.startswith("mesos-agent-")]
    HOSTS.write_text(yaml.safe_dump([host(settings) for settings in agents]))
    port, name = os.environ["MESOS_PORT"], os.environ["MESOS_HOSTNAME"]
    command = [sys.executable, "-m", "services.lab.mesos", "--port", port, "--host", "0.0.0.0"]
    command += ["--hosts", str(HOSTS), "--data", "/tmp/sandboxes", "--isolation", agents[0]["MESOS_ISOLATION"]]
    for known in (name, *(settings["MESOS_HOSTNAME"] for settings in agents)):
        command += ["--allow-host", known]
    with subprocess.Popen(command) as minicluster:
        await_health(f"http://localhost:{port}/health")
        announce(os.environ["MESOS_ZK"], name, int(port))
        return minicluster.wait()


def await_health(url: str) -> None:
    until_s = time.monotonic() + START_MAX_S
    while True:
        try:
            urllib.request.urlopen(url).close()
            return
        except OSError:
            if time.monotonic() > until_s:
                raise
            time.sleep(0.2)


def announce(place: str, name: str, port: int) -> None:
    """Create the node by which clients find the leading master; ZooKeeper removes it when this process has ended."""
    found = re.fullmatch(r"zk://([^/]+)(/.+)", place)
    assert found is not None, place
    client = KazooClient(found[1])
    client.start()
    address = {"hostname": name, "ip": socket.gethostbyname(name), "port": port}
    value = json.dumps({"address": address, "hostname": name, "port": port, "id": name}).encode()
    client.create(f"{found[2]}/json.info_", value, ephemeral=True, sequence=True, makepath=True)


if __name__ == "__main__":
    sys.exit(main())
