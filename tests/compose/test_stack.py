"""The services of docker-compose.yml come up, run a job, and come back after a crash."""

from __future__ import annotations

import subprocess

import pytest

from cli.serve import ROLE_NAMES
from tests.compose.engine import ENDED, STARTED, Engine
from tests.compose.file import COMPLETED, HEALTHY
from tests.compose.images import NOT_RUN
from tests.nightly import NIGHTLY

pytestmark = [NIGHTLY, pytest.mark.xdist_group("compose"), pytest.mark.timeout(3600)]
JOB = "/tutorial examples/tutorial/hello.yaml --watch"
ONE_SHOT = ("migrate", "temporal-schema", "temporal-namespace")


def shell(stack: Engine, command: str) -> str:
    """Run a command line in the container of the API, where the page of operations runs ``peloton``, and return what it
    prints. The examples are there; a container that was started again has lost its files in /tmp.
    """
    try:
        return stack.exec("api", "sh", "-euc", f"cd /tmp; test -d examples || peloton examples; {command}")
    except subprocess.CalledProcessError as error:
        pytest.fail(f"{command}: {error.output}\n{stack.report()}")


@pytest.fixture(scope="session")
def pool(stack: Engine) -> str:
    return shell(stack, "peloton respool create /tutorial examples/tutorial/pool.yaml")


def test_services_start_after_their_dependencies(stack: Engine) -> None:
    """A service starts when those that it depends on are healthy or complete, and each with a check becomes healthy."""
    for name, one in stack.containers.items():
        began = stack.events.index((name, STARTED))
        for other, condition in one.service.depends_on.items():
            assert stack.events.index((stack.aliases.get(other, other), condition)) < began, (name, other)
        assert (one.service.check is None) or (name, HEALTHY) in stack.events
    absent = {one.repository for name, one in stack.services.items() if name not in stack.containers}

    assert [name for name in ONE_SHOT if (name, COMPLETED) not in stack.events] == []
    assert absent - {"avhost/mesos-mini"} == {*NOT_RUN}


@pytest.mark.usefixtures("pool")
def test_a_job_runs_to_its_end(stack: Engine) -> None:
    """The job of the tutorial succeeds by the API in its container, and its workflow is in the Temporal server."""
    shown = shell(stack, f"peloton job create {JOB}")
    hosts = shell(stack, "peloton host query")
    count = stack.run("temporal-namespace", "temporal", "workflow", "count", "--query", "PelotonPool = '/tutorial'")

    assert "SUCCEEDED 10/10" in shown
    assert [name for name in stack.aliases if name not in hosts] == []
    assert int(count.split()[-1]) >= 1


@pytest.mark.usefixtures("pool")
def test_agents_offer_revocable_cpus(stack: Engine) -> None:
    """A revocable job runs on the fixed amount of the agents' estimator."""
    assert "SUCCEEDED 2/2" in shell(stack, "peloton job create /tutorial examples/revocable.yaml --watch")


@pytest.mark.usefixtures("pool")
def test_killed_roles_are_started_again(stack: Engine) -> None:
    """The engine starts each role whose process died; it becomes healthy, and a job runs."""
    before = len(stack.events)
    for role in ROLE_NAMES:
        stack.kill(role)
    stack.wait(
        lambda: all((role, HEALTHY) in stack.events[before:] for role in ROLE_NAMES), "all roles are healthy again"
    )
    for role in ROLE_NAMES:
        seen = [what for name, what in stack.events[before:] if name == role]

        assert [ENDED, STARTED] == seen[:2]
        assert seen[-1] == HEALTHY
    assert "SUCCEEDED 10/10" in shell(stack, f"peloton job create {JOB}")


@pytest.mark.parametrize("name", ONE_SHOT)
def test_jobs_may_run_again(name: str, stack: Engine) -> None:
    """A second ``docker compose up`` runs the jobs again, which then find their work done."""
    stack.run(name)


def test_the_pages_are_served(stack: Engine) -> None:
    """The role web serves the pages at the address that the file publishes on this machine."""
    assert "<html" in stack.exec("web", "curl", "-fsS", "http://localhost:5398/").lower()


FIND_BRIDGE = """
import http.client, json
from kazoo.client import KazooClient
client = KazooClient("zookeeper:2181")
client.start(60)
members = [name for name in client.get_children("/aurora/scheduler") if name.startswith("member_")]
found = json.loads(client.get(f"/aurora/scheduler/{members[0]}")[0])["additionalEndpoints"]["http"]
connection = http.client.HTTPConnection(found["host"], found["port"])
headers = {"Rpc-Procedure": "ReadOnlyScheduler::getQuota", "Rpc-Encoding": "thrift"}
connection.request("POST", "/api", bytes(1), headers)
print(connection.getresponse().read().decode())
client.stop()
"""


def test_the_bridge_is_found_in_zookeeper(stack: Engine) -> None:
    """A client in another container reads the member of the bridge and calls it at the address that it names."""
    assert "rpc is unimplemented" in stack.exec("api", "python", "-c", FIND_BRIDGE)


def test_metrics_of_the_leaders_reach_the_collector(stack: Engine) -> None:
    """Each role finds the collector of the file."""
    log = stack.containers["otel-collector"].log
    stack.wait(lambda: "peloton.hosts" in log.read_text(), "metrics of hosts reach the collector")
