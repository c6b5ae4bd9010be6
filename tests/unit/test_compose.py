"""docker-compose.yml, the Dockerfile and deploy/ fit together and fit the code. No engine is needed."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.serve import ROLE_NAMES
from peloton.errors import InvalidArgument
from services.settings import load

ROOT = Path(__file__).resolve().parents[2]
TOP_KEYS = {"name", "services", "volumes"}
SERVICE_KEYS = {
    *("image", "build", "command", "entrypoint", "environment", "ports", "volumes", "depends_on", "healthcheck"),
    *("restart", "init", "stop_grace_period", "hostname", "privileged"),
}
CHECK_KEYS = {"test", "interval", "timeout", "retries", "start_period", "start_interval"}
CONDITIONS = {"service_healthy", "service_completed_successfully"}
PARTS = {"temporal", "temporal-ui", "postgres", "zookeeper", "mesos-master", "otel-collector", "migrate"}
PINNED = re.compile(r"^[a-z0-9./-]+:v?\d+(\.\d+)+([.-][a-z0-9.]+)?$")
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+):-([^}]*)\}")


@cache
def compose() -> dict[str, Any]:
    """The file with its anchors merged and its variables at their defaults."""
    text = VARIABLE.sub(r"\2", (ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose()["services"]
    return found


def environment(name: str) -> dict[str, str]:
    return {key: str(value) for key, value in services()[name].get("environment", {}).items()}


def ours() -> list[str]:
    return [name for name, service in services().items() if service["image"].startswith("peloton:")]


def test_every_key_is_one_that_compose_knows() -> None:
    """No key of the file is misspelt or in the wrong place."""
    unknown = [key for key in compose() if key not in TOP_KEYS and not key.startswith("x-")]
    for name, service in services().items():
        unknown += [f"{name}.{key}" for key in service if key not in SERVICE_KEYS]
        unknown += [f"{name}.healthcheck.{key}" for key in service.get("healthcheck", {}) if key not in CHECK_KEYS]

    assert unknown == []


def test_compose_itself_accepts_the_file() -> None:
    """``docker compose config`` resolves the file, where that command is installed."""
    docker = shutil.which("docker")
    if not docker or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker compose is not installed")
    done = subprocess.run(
        [docker, "compose", "config", "--quiet"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_every_role_and_every_part_is_there() -> None:
    """The file has a service for each role, one for each other part, and some Mesos agents."""
    agents = {name for name in services() if name.startswith("mesos-agent-")}

    assert len(agents) >= 2
    assert {*ROLE_NAMES, *PARTS} == set(services()) - agents


def test_every_role_runs_itself() -> None:
    """The service of a role runs just that role, after the schema is up to date and Temporal responds; the service of
    the pages, which need the API alone, runs after the API.
    """
    commands = {role: services()[role]["command"] for role in ROLE_NAMES}
    conditions = {
        role: {name: how["condition"] for name, how in services()[role]["depends_on"].items()} for role in ROLE_NAMES
    }

    assert {role: [role] for role in ROLE_NAMES} == commands
    assert {"api": "service_healthy"} == conditions.pop("web")
    for role in conditions:
        assert conditions[role]["migrate"] == "service_completed_successfully"
        assert conditions[role]["temporal"] == "service_healthy"


@pytest.mark.parametrize("role", [*(role for role in ROLE_NAMES if role != "web"), "migrate"])
def test_the_settings_of_a_role_load(role: str) -> None:
    """The environment of each role is taken by Settings and leads to the other services, not to this machine."""
    try:
        settings = load(environment(role))
    except InvalidArgument as error:
        pytest.fail(error.message)

    assert settings.database.startswith("postgresql+psycopg://")
    assert "@postgres:5432/" in settings.database
    assert settings.temporal == "temporal:7233"
    assert settings.otlp.startswith("http://otel-collector:")


def test_the_pages_find_the_api() -> None:
    """The pages have the name of the API's service and its port."""
    assert f"api:{environment('api')['PELOTON_PORT']}" == load(environment("web")).api


def test_hostmgr_finds_mesos_through_zookeeper() -> None:
    """The host manager, the master and the agents name the same place in ZooKeeper."""
    agents = [name for name in services() if name.startswith("mesos-agent-")]
    places = {environment(name)["MESOS_MASTER"] for name in agents}

    assert places == {environment("mesos-master")["MESOS_ZK"], environment("hostmgr")["PELOTON_MESOS"]}


def test_whom_a_service_waits_for_exists_and_can_be_waited_for() -> None:
    """Every depends_on names a service; a service that must be healthy has a health check, one that must complete is
    not restarted.
    """
    for name, service in services().items():
        for other, how in service.get("depends_on", {}).items():
            assert other in services(), f"{name} waits for {other}"
            assert how["condition"] in CONDITIONS
            if how["condition"] == "service_healthy":
                assert services()[other]["healthcheck"]["test"], f"{other} has no health check, {name} waits for it"
            else:
                assert services()[other]["restart"] in ("no", "on-failure")


def test_every_role_has_a_health_check_of_its_own_process() -> None:
    """Each role is checked by the script that reads what its process says, and ends it when it hangs."""
    script = "/opt/peloton/deploy/healthcheck.py"
    checks = {role: services()[role]["healthcheck"]["test"] for role in ROLE_NAMES}

    assert {role: ["CMD", "python", script, "restart"] for role in ROLE_NAMES} == checks


def test_every_image_is_pinned() -> None:
    """Each image has a version, and Peloton's has the version of the package."""
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert version is not None

    assert [s["image"] for s in services().values() if not PINNED.match(s["image"])] == []
    assert {services()[name]["image"] for name in ours()} == {f"peloton:{version[1]}"}


def test_ports_are_distinct_and_for_this_machine() -> None:
    """No two services publish one port, and all published ports are on the loopback address."""
    published = [port for service in services().values() for port in service.get("ports", [])]
    numbers = [port.split(":")[1] for port in published]

    assert [port for port in published if not port.startswith("127.0.0.1:")] == []
    assert sorted(set(numbers)) == sorted(numbers)


def test_volumes_are_declared_and_files_exist() -> None:
    """Each mounted file is in the repository, and each named volume is declared and used."""
    mounts = [mount.split(":")[0] for service in services().values() for mount in service.get("volumes", [])]
    named = {mount for mount in mounts if not mount.startswith(".")}

    assert named == set(compose()["volumes"])
    assert [mount for mount in mounts if mount.startswith(".") and not (ROOT / mount).is_file()] == []


def test_mounted_configurations_are_yaml() -> None:
    """The configuration files in deploy/ parse, and the collector listens where the roles send to."""
    collector = yaml.safe_load((ROOT / "deploy/otel-collector.yaml").read_text(encoding="utf-8"))
    temporal = yaml.safe_load((ROOT / "deploy/temporal.yaml").read_text(encoding="utf-8"))
    port = load(environment("api")).otlp.rpartition(":")[2]

    assert collector["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"] == f"0.0.0.0:{port}"
    assert all(set(value[0]) == {"value"} for value in temporal.values())


def dockerfile() -> list[list[str]]:
    """Instructions in words, continuation lines joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return [line.split() for line in text.splitlines() if line and not line.startswith("#")]


def test_what_the_dockerfile_copies_exists_and_is_sent() -> None:
    """Every source of a COPY is in the repository, and .dockerignore does not exclude it."""
    copies = [words[1:-1] for words in dockerfile() if words[0] == "COPY" and not words[1].startswith("--from")]
    sources = {source for words in copies for source in words}
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}

    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert {source.split("/")[0] for source in sources} == sent


def test_the_image_has_the_extras_of_production() -> None:
    """The image has the pages and the driver of PostgreSQL, and no Temporal server."""
    [install] = [words for words in dockerfile() if words[0] == "RUN" and "install" in words]

    assert install[-1] == "'.[web,postgres]'"


def test_the_image_holds_all_packages_and_runs_serve() -> None:
    """The build stage has each package of the wheel, the base is pinned, and the entry point runs the roles."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    packages = re.search(r"^packages = (\[.*\])$", text, re.MULTILINE)
    assert packages is not None
    copied = {source for words in dockerfile() if words[0] == "COPY" for source in words[1:-1]}
    bases = [words[1] for words in dockerfile() if words[0] == "FROM"]
    last = shlex.split((ROOT / "deploy/entrypoint.sh").read_text(encoding="utf-8").strip().splitlines()[-1])

    assert {*ast.literal_eval(packages[1]), "examples", "third_party"} - copied == set()
    assert bases == ["python:3.12-slim", "python:3.12-slim"]
    assert last == ["exec", "peloton", "serve", "$@"]
