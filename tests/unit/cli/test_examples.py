"""The examples load, and the commands accept every command line in help, reference and tutorial."""

import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cli import admin_deploy, reference
from cli.main import peloton
from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v1alpha.job.stateless import stateless_pb2
from peloton.api.v1alpha.pod import pod_pb2
from peloton.api.yaml_config import load_message
from peloton.deployment.description import parse
from peloton.deployment.parts import parts_of
from services.lab.shared.hosts import load_hosts

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").rglob("*.yaml"))
POOLS = {
    "examples/tutorial/pool.yaml": "tutorial",
    "examples/maps.yaml": "maps",
    "examples/elastic-pools/team-a.yaml": "team-a",
    "examples/elastic-pools/team-b.yaml": "team-b",
    "examples/failover-capacity/services.yaml": "services",
    "examples/failover-capacity/batch.yaml": "batch",
    "examples/kubernetes/teams.yaml": "teams",
    "examples/kubernetes/team-a.yaml": "team-a",
    "examples/kubernetes/team-b.yaml": "team-b",
    "examples/udeploy/pool.yaml": "udeploy",
    "examples/yarn/pool.yaml": "yarn",
    "examples/pipeline/pool.yaml": "pipeline",
    "examples/futures/pool.yaml": "science",
    "examples/learning/pool.yaml": "learning",
    "examples/kubernetes-on-peloton/pool.yaml": "kubernetes",
}
ELASTIC_JOBS = {
    "examples/elastic-pools/report.yaml": "examples/elastic-pools/team-a.yaml",
    "examples/elastic-pools/sweep.yaml": "examples/elastic-pools/team-b.yaml",
    "examples/failover-capacity/index.yaml": "examples/failover-capacity/batch.yaml",
    "examples/kubernetes/report.yaml": "examples/kubernetes/team-a.yaml",
    "examples/kubernetes/sweep.yaml": "examples/kubernetes/team-b.yaml",
}
HOSTS = ["examples/hosts.yaml"]
SIMULATIONS = ["examples/simulation.yaml"]
SERVICES = ["examples/services/web.yaml", "examples/udeploy/web.yaml"]
FAILOVER = ["examples/failover-capacity/front.yaml", "examples/failover-capacity/front-failover.yaml"]
DATABASES = ["examples/database/database.yaml"]
DAEMONS = ["examples/daemon.yaml", "examples/spark/shuffle-service.yaml"]
DEPLOYMENTS = ["examples/peloton-on-peloton/west.yaml", "examples/peloton-on-peloton/virtual.yaml"]
OF_KUBECTL = ["examples/kubernetes/train-job.yaml"]
OF_FRAMEWORKS = ["examples/airflow/worker.yaml", "examples/ray/cluster.yaml"]
"""Files that frameworks read, or complete."""
JOBS = [
    path
    for path in EXAMPLES
    if path
    not in [
        *POOLS,
        *HOSTS,
        *SIMULATIONS,
        *SERVICES,
        *FAILOVER,
        *DATABASES,
        *DAEMONS,
        *DEPLOYMENTS,
        *OF_FRAMEWORKS,
        *OF_KUBECTL,
        *ELASTIC_JOBS,
    ]
]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()


@pytest.mark.parametrize(("path", "name"), POOLS.items())
def test_pools_load(path: str, name: str) -> None:
    """Each pool keeps its reservations below its limits."""
    pool = load_message(ROOT / path, respool_pb2.ResourcePoolConfig)
    assert (name, []) == (pool.name, [each.kind for each in pool.resources if each.reservation > each.limit])


@pytest.mark.parametrize("path", DEPLOYMENTS)
def test_deployments_load(path: str) -> None:
    """Each deployment keeps the rules, and runs the roles that a Peloton needs."""
    deployment = parse(admin_deploy.load(ROOT / path), "peloton")

    assert {"resmgr", "hostmgr", "api", "worker"} < {part.name for part in parts_of(deployment)}


@pytest.mark.parametrize("path", JOBS)
def test_jobs_load_and_fit_the_pool(path: str) -> None:
    """Each job has a command for every instance, and fits the pool of the tutorial as a whole."""
    pool = load_message(ROOT / "examples/tutorial/pool.yaml", respool_pb2.ResourcePoolConfig)
    job = load_message(ROOT / path, job_pb2.JobConfig)
    assert job.defaultConfig.command.value
    cpus = 0.0
    for instance in range(job.instanceCount):
        own = job.instanceConfig.get(instance)
        resource = own.resource if own and own.HasField("resource") else job.defaultConfig.resource
        cpus += resource.cpuLimit
    assert 0 < cpus <= next(each.limit for each in pool.resources if each.kind == "cpu")


@pytest.mark.parametrize("path", DAEMONS)
def test_daemons_leave_their_number_to_the_hosts(path: str) -> None:
    """The instance count is 0, and one instance requests less than one CPU."""
    job = load_message(ROOT / path, job_pb2.JobConfig)
    assert (job_pb2.DAEMON, 0, True) == (job.type, job.instanceCount, 0 < job.defaultConfig.resource.cpuLimit < 1)


def test_teams_on_kubernetes_lend_on_a_cluster_of_any_size() -> None:
    """The two pools' reservations add up to their parent's and to each one's limit: each may borrow the other's
    share."""
    teams, *both = (
        load_message(ROOT / f"examples/kubernetes/{name}.yaml", respool_pb2.ResourcePoolConfig)
        for name in ("teams", "team-a", "team-b")
    )
    for kind, above in ((each.kind, each) for each in teams.resources):
        promised = sum(each.reservation for team in both for each in team.resources if each.kind == kind)
        limits = {each.limit for team in both for each in team.resources if each.kind == kind}
        assert (promised, {promised}) == (above.limit, limits), kind


def test_a_service_keeps_its_pods_apart_and_healthy() -> None:
    """The service has a health check, an SLA, and at most one pod per host by a label of its own pods."""
    spec = load_message(ROOT / SERVICES[0], stateless_pb2.JobSpec)
    pod = spec.default_spec
    rule = pod.constraint.label_constraint
    assert (3, 1, True) == (
        spec.instance_count, spec.sla.maximum_unavailable_instances, pod.containers[0].liveness_check.enabled,
    )  # fmt: skip
    assert (pod_pb2.LabelConstraint.LABEL_CONSTRAINT_CONDITION_LESS_THAN, 1, [rule.label]) == (
        rule.condition, rule.requirement, list(pod.labels),
    )  # fmt: skip


@pytest.mark.parametrize("path", DATABASES)
def test_a_database_keeps_a_volume_in_its_sandbox_and_is_healthy(path: str) -> None:
    """One of its servers is restarted at a time."""
    spec = load_message(ROOT / path, stateless_pb2.JobSpec)
    pod = spec.default_spec
    assert (1, False, True) == (
        spec.sla.maximum_unavailable_instances, pod.volume.container_path.startswith("/"),
        pod.containers[0].liveness_check.enabled,
    )  # fmt: skip


def test_the_deployed_service_has_a_version_and_a_health_check() -> None:
    """The controller sets the version and relies on the health check; the service fits its pool."""
    spec = load_message(ROOT / SERVICES[1], stateless_pb2.JobSpec)
    pool = load_message(ROOT / "examples/udeploy/pool.yaml", respool_pb2.ResourcePoolConfig)
    (container,) = spec.default_spec.containers
    assert (["VERSION"], True) == ([each.name for each in container.environment], container.liveness_check.enabled)
    limit = next(each.limit for each in pool.resources if each.kind == "cpu")
    assert spec.instance_count * container.resource.cpu_limit <= limit


def test_the_service_in_the_words_of_v0_is_the_same() -> None:
    """The two files run the same command with the same health check."""
    old = load_message(ROOT / "examples/services/web-v0.yaml", job_pb2.JobConfig)
    new = load_message(ROOT / SERVICES[0], stateless_pb2.JobSpec)
    assert job_pb2.SERVICE == old.type
    assert (new.name, new.instance_count) == (old.name, old.instanceCount)
    container, config = new.default_spec.containers[0], old.defaultConfig
    assert (container.entrypoint.value, container.liveness_check.command_check.command) == (
        config.command.value, config.healthCheck.commandCheck.command,
    )  # fmt: skip


@pytest.mark.parametrize(("path", "pool_path"), ELASTIC_JOBS.items())
def test_elastic_jobs_want_more_than_the_reservation(path: str, pool_path: str) -> None:
    """Each of the two jobs requests more than its team's reservation; only the borrowing one is preemptible."""
    job = load_message(ROOT / path, job_pb2.JobConfig)
    pool = load_message(ROOT / pool_path, respool_pb2.ResourcePoolConfig)
    own = next(each.reservation for each in pool.resources if each.kind == "cpu")
    assert own < job.instanceCount * job.defaultConfig.resource.cpuLimit
    assert (pool.name in ("team-b", "batch")) == job.sla.preemptible


def test_the_failover_fills_the_reservation_of_services() -> None:
    """The two specs differ in their instance count only, and the larger one needs all that its pool has reserved."""
    usual, failover = (load_message(ROOT / path, stateless_pb2.JobSpec) for path in FAILOVER)
    pool = load_message(ROOT / "examples/failover-capacity/services.yaml", respool_pb2.ResourcePoolConfig)
    cores = next(each.reservation for each in pool.resources if each.kind == "cpu")
    assert (cores / 2, cores) == (usual.instance_count, failover.instance_count)
    failover.instance_count = usual.instance_count
    assert usual == failover


def test_the_larger_hello_only_grows() -> None:
    """The job for ``job update`` differs in its instance count only."""
    small, large = (
        load_message(ROOT / "examples/tutorial" / name, job_pb2.JobConfig) for name in ("hello.yaml", "hello-more.yaml")
    )
    assert (10, 15) == (small.instanceCount, large.instanceCount)
    large.instanceCount = small.instanceCount
    assert small == large


def test_hosts_load() -> None:
    """The minicluster reads the hosts of ``peloton up --hosts``."""
    assert ["small-0", "small-1", "large-0"] == [host.name for host in load_hosts(ROOT / HOSTS[0])]


def shell_blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    """Return the kind (the word after "shell") and the lines of each block that is run."""
    for kind, body in re.findall(r"^```shell *([a-z]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield kind, body.splitlines()


def help_lines() -> Iterator[str]:
    for _, command, _ in reference.iterate_commands(peloton, reference.context(peloton, "peloton")):
        lines = inspect.cleandoc(command.help or "").splitlines()  # Python before 3.13 keeps the indentation
        yield from (line.strip() for line in lines if line.startswith("  peloton "))


DOCUMENTED_LINES = [
    line
    for text in (
        TUTORIAL,
        (ROOT / "examples/elastic-pools/README.md").read_text(),
        (ROOT / "examples/failover-capacity/README.md").read_text(),
    )
    for _, lines in shell_blocks(text)
    for line in lines
    if line.startswith("peloton ")
]


def test_command_lines_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line has an existing command with valid arguments and options."""
    monkeypatch.chdir(ROOT)
    refused = {}
    for line in (*DOCUMENTED_LINES, *help_lines()):
        try:
            parse_line(line)
        except (click.ClickException, LookupError) as error:
            refused[line] = repr(error)

    assert {} == refused


def parse_line(line: str) -> None:
    """Parse a line as the command line does. Raises LookupError for an unknown command, ClickException for others."""
    words = shlex.split(re.split(r" [|>] ", line)[0])[1:]
    # Files of the reader's own.
    words = [re.sub(r"/tmp/oops\.yaml|\./password", "examples/gang.yaml", word) for word in words]
    command: click.Command = peloton
    while isinstance(command, click.Group) and not (
        command.invoke_without_command and (not words or words[0].startswith("-"))
    ):
        while words[0] == "--json":
            words.pop(0)
        found = command.get_command(click.Context(command), words.pop(0))
        if found is None:
            raise LookupError(f"no such command: {line}")
        command = found
    typed = ["0" if word == "INSTANCE" else word for word in words]
    parent = click.Context(peloton, **peloton.context_settings)  # commands keep the help option of their first context
    command.make_context(command.name, typed, parent=parent).close()


def test_the_tutorial_has_all_kinds_of_blocks() -> None:
    """The tutorial's runner supports exactly these kinds."""
    assert {"", "background", "fails"} == {kind for kind, _ in shell_blocks(TUTORIAL)}


def test_links_of_the_tutorial_lead_somewhere() -> None:
    """Each file that the tutorial links to exists."""
    links = re.findall(r"\]\(([^)]+)\)", TUTORIAL)
    assert [] == [link for link in links if not (ROOT / "docs" / link).exists()]
