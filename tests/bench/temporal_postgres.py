"""Temporal with its workflows in PostgreSQL, as a site of some size runs it.

The server is built once from its Go modules, into the virtual environment; Temporal's own tool makes the schema.
Visibility, for which Peloton never waits, stays in SQLite: in PostgreSQL it needs an extension that ours here lacks.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import yaml
from sqlalchemy import make_url

from peloton.errors import Unavailable
from services.lab.local.cluster import LocalSettings
from services.lab.local.temporal_server import temporal_binary
from tests.bench.churn import run_churn
from tests.bench.figures import Missing, cpu_s
from tests.ports import free_ports
from tests.postgres import Postgres, running_postgres
from tests.waiting import Condition
from workflows.attributes import SEARCH_ATTRIBUTES

VERSION = "1.32.0"
MODULE = "go.temporal.io/server/cmd"
PROGRAMS = Path(sys.prefix) / f"temporal-server-{VERSION}"
RATES = Path(__file__).parents[2] / "deploy" / "temporal.yaml"
PLUGIN = "postgres12_pgx"  # supports sockets, too
SERVICES = ("frontend", "history", "matching", "worker")
SHARDS = 4
ATTRIBUTES = [attribute.name for attribute in SEARCH_ATTRIBUTES]
STEPS = (
    ("operator", "namespace", "create", "--namespace", "default"),
    *(("operator", "search-attribute", "create", "--type", "Keyword", "--name", name) for name in ATTRIBUTES),
    ("workflow", "count", "--query", " AND ".join(f"{name} = 'none'" for name in ATTRIBUTES)),
)
"""Setup commands, each repeated until the server's services have seen the previous one."""
TIMEOUT_S = 120.0


def churn_temporal_postgres(jobs: int = 300, pods: int = 10, clients: int = 20, hosts: int = 100) -> dict[str, Any]:
    """Case ``churn`` with one PostgreSQL for Peloton and for Temporal, after a run with the server of `peloton up`."""
    build()
    embedded = run_churn(LocalSettings(port=0, simulate=hosts), jobs, pods, clients)
    with running_postgres() as postgres, temporal_on(postgres) as temporal:
        settings = LocalSettings(port=0, simulate=hosts, database=postgres.create_database(), temporal=temporal.address)
        found = run_churn(settings, jobs, pods, clients)
        return {
            **found,
            "temporal_cpu_seconds": cpu_s(temporal.process.pid),
            "executions_in_postgres": temporal.executions(),
            "jobs_per_second_embedded": embedded["jobs_per_second"],
            "ratio_to_embedded": round(found["jobs_per_second"] / embedded["jobs_per_second"], 2),
        }


@dataclass(frozen=True)
class Temporal:
    address: str
    process: subprocess.Popen[bytes]
    store: str  # URL

    def executions(self) -> int:
        """Return the number of workflows in PostgreSQL."""
        with psycopg.connect(self.store) as connection:
            (count,) = connection.execute("select count(*) from executions").fetchone() or (0,)
            return int(count)


def wait_for(server: subprocess.Popen[bytes], is_so: Condition) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not is_so():
        if server.poll() is not None or time.monotonic() > deadline_s:
            raise Unavailable("Temporal's server does not come up on PostgreSQL")
        time.sleep(0.2)


def build() -> None:
    """Build the server once for a virtual environment, in some minutes. Raises Missing without Go."""
    if all((PROGRAMS / name).exists() for name in ("server", "sql")):
        return
    if shutil.which("go") is None:
        raise Missing("Temporal's server is built with Go, and there is no `go` here")
    packages = [f"{MODULE}/{name}@v{VERSION}" for name in ("server", "tools/sql")]
    subprocess.run(["go", "install", *packages], env={**os.environ, "GOBIN": str(PROGRAMS)}, check=True)


@contextmanager
def temporal_on(postgres: Postgres) -> Iterator[Temporal]:
    """Run a server of one process until the block ends."""
    store = postgres.create_database()
    schema(postgres, store, "setup-schema", "-v", "0.0")
    schema(postgres, store, "update-schema", "--schema-name", "postgresql/v12/temporal")
    ports = free_ports(2 * len(SERVICES))
    settings = postgres.folder / "temporal.yaml"
    settings.write_text(yaml.safe_dump(configuration(postgres, store, ports)))
    address = f"127.0.0.1:{ports[0]}"
    with subprocess.Popen([PROGRAMS / "server", "--config-file", settings, "--allow-no-auth", "start"]) as server:
        try:
            for arguments in STEPS:
                wait_for(server, lambda arguments=arguments: temporal(address, *arguments))
            yield Temporal(address, server, store)
        finally:
            server.terminate()


def temporal(address: str, *arguments: str) -> bool:
    """Return whether a command of Temporal's own command line succeeded."""
    command = [temporal_binary(), *arguments, "--address", address]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def database_of(store: str) -> str:
    return make_url(store).database or ""


def schema(postgres: Postgres, store: str, *arguments: str) -> None:
    """Create the schema by Temporal's tool."""
    command = [
        str(PROGRAMS / "sql"),
        "--plugin",
        PLUGIN,
        "--user",
        "postgres",
        "--endpoint",
        "localhost",
        "--port",
        "5432",
    ]
    command += ["--connect-attributes", f"host={postgres.folder}", "--database", database_of(store), *arguments]
    subprocess.run(command, check=True, capture_output=True)


def configuration(postgres: Postgres, store: str, ports: list[int]) -> dict[str, Any]:
    """Return the configuration. ``ports``: two for each service, the frontend's first."""
    frontend = f"127.0.0.1:{ports[0]}"
    services = {
        name: {"rpc": {"grpcPort": ports[2 * i], "membershipPort": ports[2 * i + 1], "bindOnLocalHost": True}}
        for i, name in enumerate(SERVICES)
    }
    return {
        "log": {"outputFile": str(postgres.folder / "temporal.log"), "level": "error"},
        "persistence": {
            "defaultStore": "default",
            "visibilityStore": "visibility",
            "numHistoryShards": SHARDS,
            "datastores": {
                "default": {"sql": {
                    "pluginName": PLUGIN, "databaseName": database_of(store), "user": "postgres",
                    "connectProtocol": "tcp", "connectAddr": "localhost:5432",
                    "connectAttributes": {"host": str(postgres.folder)},
                    "maxConns": 20, "maxIdleConns": 20, "maxConnLifetime": "1h",
                }},
                "visibility": {"sql": {
                    "pluginName": "sqlite", "databaseName": str(postgres.folder / "visibility.db"),
                    "connectAddr": "localhost", "connectProtocol": "tcp",
                    "connectAttributes": {"mode": "rwc", "setup": "true"},
                    "maxConns": 1, "maxIdleConns": 1, "maxConnLifetime": "1h",
                }},
            },
        },
        "global": {"membership": {"maxJoinDuration": "30s", "broadcastAddress": "127.0.0.1"}},
        "services": services,
        "clusterMetadata": {
            "failoverVersionIncrement": 10,
            "masterClusterName": "active",
            "currentClusterName": "active",
            "clusterInformation": {
                "active": {
                    "enabled": True, "initialFailoverVersion": 1, "rpcName": "frontend", "rpcAddress": frontend,
                }
            },
        },
        "dcRedirectionPolicy": {"policy": "noop"},
        "publicClient": {"hostPort": frontend},
        "dynamicConfigClient": {"filepath": str(RATES), "pollInterval": "10s"},
    }  # fmt: skip
