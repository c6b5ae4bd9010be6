"""Two teams on one cluster: each works in its pool by its roles and is kept out of the other one's, and the audit log
names who did what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import grpc
import pytest
from click.testing import CliRunner, Result

from cli.main import peloton
from peloton.api.v0.respool import respool_pb2
from peloton.client import NO_RETRIES, Client
from peloton.client.credentials import TOKEN_FILE
from tests.e2e.local import Cluster
from tests.e2e.people import ADMIN, People, cluster_of, register
from tests.e2e.service import Service

pytestmark = pytest.mark.xdist_group("two teams")
ROLES = {
    "rita": {"/maps": "reader"},
    "mia": {"/maps": "submitter"},
    "otto": {"/maps": "operator"},
    "adam": {"/ads": "submitter"},
}
JOB = """
name: {name}
instancecount: 1
sla: {{preemptible: true}}
defaultconfig:
  resource: {{cpulimit: 0.1, memlimitmb: 16, disklimitmb: 1}}
  command: {{shell: true, value: "echo hello from {name}; exec sleep 100000"}}
"""
POOL = """
resources:
- {kind: cpu, reservation: 0, limit: 1, share: 1}
- {kind: memory, reservation: 0, limit: 200, share: 1}
- {kind: disk, reservation: 0, limit: 200, share: 1}
"""
LACKS = "it needs role {role} on pool '{pool}'"


@dataclass
class Office:
    """A cluster, and the command line of each of its users."""

    cluster: Cluster
    people: People
    jobs: dict[str, str] = field(default_factory=dict)

    def run(self, user: str, *words: str) -> Result:
        variables = {"PELOTON_ADDRESS": self.cluster.local.addresses, TOKEN_FILE: str(self.people.file_of(user))}
        return CliRunner().invoke(peloton, words, prog_name="peloton", env=variables)

    def does(self, user: str, *words: str) -> str:
        """Run a command that succeeds; return its output."""
        done = self.run(user, *words)
        assert 0 == done.exit_code, (user, words, done.output)
        return done.stdout

    def refuses(self, user: str, *words: str) -> str:
        """Run a command that is refused by a rule; return the refusal, which names the user."""
        done = self.run(user, *words)
        assert (1, True) == (done.exit_code, f'user "{user}" may not call ' in done.stderr), (words, done.output)
        return done.stderr

    def write(self, name: str, content: str) -> str:
        path = self.people.folder / name
        path.write_text(content)
        return str(path)

    def names(self, user: str) -> set[str]:
        """Return the names of the jobs that a user finds."""
        answer = json.loads(self.does(user, "--json", "job", "list"))
        return {row["name"] for row in answer["results"]}


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    """Yield a cluster with the pools /maps/day and /ads, in each of which a job of its team runs."""
    people = register(tmp_path_factory.mktemp("teams"), ROLES)
    with cluster_of(people) as cluster:
        for pool in ("maps", "ads"):
            cluster.pool(pool, own_cpu=1)
        found = Office(cluster, people)
        found.does("otto", "respool", "create", "/maps/day", found.write("pool.yaml", POOL))
        for user, pool in (("mia", "/maps/day"), ("adam", "/ads")):
            config = found.write(f"{user}.yaml", JOB.format(name=f"job of {user}"))
            found.jobs[user] = found.does(user, "-o", "name", "job", "create", pool, config).strip()
        for job in found.jobs.values():
            cluster.wait(lambda job=job: cluster.counts(job) == {"RUNNING": 1}, "the jobs of both teams")
        yield found


def test_jobs_are_created_and_found_in_the_pools_of_a_team(office: Office) -> None:
    """A reader creates none, and a submitter of one team none in the pool of the other one."""
    config = office.write("other.yaml", JOB.format(name="other"))
    needed = LACKS.format(role="submitter", pool="/maps/day")
    for user in ("rita", "adam"):
        assert needed in office.refuses(user, "job", "create", "/maps/day", config)
    assert [{"job of mia"}, {"job of mia"}, {"job of adam"}] == [office.names(user) for user in ("rita", "mia", "adam")]
    assert {"job of mia", "job of adam"} == office.names(ADMIN)


def test_logs_and_commands_in_pods_are_for_the_team(office: Office) -> None:
    """A reader reads the log, and runs nothing."""
    job = office.jobs["mia"]
    for user in ("rita", "mia"):
        assert "hello from job of mia\n" == office.does(user, "task", "logs", job, "0")
    assert "from the pod\n" == office.does("mia", "task", "exec", job, "0", "echo", "from the pod")
    assert LACKS.format(role="submitter", pool="/maps/day") in office.refuses("rita", "task", "exec", job, "0", "ls")
    for words in (("task", "logs", job, "0"), ("task", "exec", job, "0", "ls"), ("job", "get", job)):
        assert "on pool '/maps/day', and the caller has submitter on /ads" in office.refuses("adam", *words)


def test_watches_show_the_services_of_the_team(office: Office) -> None:
    """The first answer of a watch has all services that the caller may read."""
    path = respool_pb2.ResourcePoolPath(value="/maps/day")
    found = office.cluster.client.respools.LookupResourcePoolID(respool_pb2.LookupRequest(path=path))
    service = Service(office.cluster, found.id.value, 1, name="service of maps").create()
    seen = {}
    for user in ("rita", "adam"):
        token = office.people.tokens[user]
        with Client(office.cluster.local.addresses, token=token, retry=NO_RETRIES) as client:
            watch = client.watch_jobs()
            seen[user] = [one.name for one in next(changes for changes in watch if changes.is_all).changed]
            if user == "adam":
                with pytest.raises(grpc.RpcError, match="PERMISSION_DENIED"):
                    next(client.watch_pods(service.id))
    assert {"rita": ["service of maps"], "adam": []} == seen


def test_jobs_of_another_team_run_on(office: Office) -> None:
    """An operator of the team stops them."""
    job = office.jobs["mia"]
    for user, role in (("adam", "reader"), ("rita", "submitter")):
        assert LACKS.format(role=role, pool="/maps/day") in office.refuses(user, "job", "stop", job)
    assert {"RUNNING": 1} == office.cluster.counts(job)
    config = office.write("short.yaml", JOB.format(name="to be stopped"))
    other = office.does("mia", "-o", "name", "job", "create", "/maps/day", config).strip()
    office.does("otto", "job", "stop", other)
    assert "KILLED" == office.cluster.finish(other)


def test_schedules_are_those_of_the_team(office: Office) -> None:
    """Another team neither finds nor starts nor deletes them."""
    config = office.write("nightly.yaml", JOB.format(name="nightly"))
    words = ("job", "schedule", "create", "nightly", "/maps/day", config, "--cron", "@yearly")
    assert LACKS.format(role="submitter", pool="/maps/day") in office.refuses("adam", *words)
    office.does("mia", *words)
    listing = ("-o", "name", "job", "schedule", "list")
    assert ["nightly\n", ""] == [office.does(user, *listing) for user in ("rita", "adam")]
    for verb in ("trigger", "delete"):
        assert "on pool '/maps/day'" in office.refuses("adam", "job", "schedule", verb, "nightly")
    office.does("mia", "job", "schedule", "delete", "nightly")


def test_pools_are_changed_by_operators_of_the_pool_above(office: Office) -> None:
    """A submitter changes none, and an operator of one team none of the other one."""
    config = office.write("night.yaml", POOL)
    assert LACKS.format(role="operator", pool="/maps") in office.refuses("mia", "respool", "create", "/maps/x", config)
    assert LACKS.format(role="operator", pool="/ads") in office.refuses("otto", "respool", "create", "/ads/x", config)
    office.does("otto", "respool", "create", "/maps/night", config)
    office.does("otto", "respool", "delete", "/maps/night")


@pytest.mark.parametrize(
    ("user", "words", "answer"),
    [
        ("rita", ("reader", "--pool", "/maps/day"), "yes: "),
        ("rita", ("JobManager/Create", "--pool", "/maps/day"), "no: "),
        ("mia", ("JobManager/Create", "--pool", "/maps/day"), "yes: "),
        ("mia", ("JobManager/Create", "--pool", "/ads"), "no: "),
        ("otto", ("operator", "--pool", "/maps"), "yes: "),
        ("otto", ("admin",), "no: "),
        (ADMIN, ("admin",), "yes: "),
    ],
)
def test_users_ask_what_they_may_do(office: Office, user: str, words: tuple[str, ...], answer: str) -> None:
    """The answer is that of the rule by which calls are decided."""
    assert office.run(user, "can-i", *words).stdout.startswith(answer)


def test_the_audit_log_names_who_did_what(office: Office) -> None:
    """Changes and refusals are there with user, method and object; hashes agree, and only administrators read it."""
    job = office.jobs["mia"]
    office.refuses("rita", "task", "exec", job, "0", "ls")
    office.does("mia", "task", "exec", job, "0", "true")
    for user in ("adam", "rita"):
        office.refuses(user, "job", "stop", job)
    office.does("mia", "job", "stop", job)
    expected = {
        ("adam", "Get", f"job {job}", "PERMISSION_DENIED"),
        ("rita", "Stop", f"job {job}", "PERMISSION_DENIED"),
        ("rita", "OpenTerminal", f"pod {job}-0", "PERMISSION_DENIED"),
        ("mia", "OpenTerminal", f"pod {job}-0", "OK"),
        ("mia", "Stop", f"job {job}", "OK"),
    }
    noted: set[tuple[str, str, str, str]] = set()

    def is_noted() -> bool:
        for line in office.does(ADMIN, "admin", "audit", "--export").splitlines():
            row = json.loads(line)
            noted.add((row["caller"], row["method"].rpartition("/")[2], row["object"], row["result"]))
        return expected <= noted

    office.cluster.wait(is_noted, "the calls in the audit log")
    assert {("otto", "CreateResourcePool", "OK"), ("mia", "Create", "OK"), ("adam", "Create", "OK")} <= {
        (caller, method, result) for caller, method, _, result in noted
    }
    verified = office.does(ADMIN, "admin", "audit", "--verify")
    assert verified.startswith("The audit log is whole"), verified
    for user in ("mia", "otto"):
        assert "it needs role admin on the cluster" in office.refuses(user, "admin", "audit")
