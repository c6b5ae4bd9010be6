"""Bad input through the command line: a clear line that names object, rule and numbers; exit code 1; nothing made."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner, Result

from cli.main import peloton
from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from services.servers.role_surface import AGENT_OPTION
from services.storage.storage import Storage
from tests.bench.figures import status_kib
from tests.e2e.local import Cluster
from tests.e2e.shared import THREE_HOSTS, Lend

pytestmark = pytest.mark.xdist_group("batch")

GOOD = """\
name: good
type: BATCH
instancecount: 2
sla: {preemptible: true}
defaultconfig:
  resource: {cpulimit: 0.1, memlimitmb: 8}
  command: {shell: true, value: "true"}
"""


@pytest.fixture(scope="module")
def cluster(lend: Lend) -> Iterator[Cluster]:
    with lend(THREE_HOSTS) as running:
        running.pool("small", cpu=2)
        yield running


BOMBS = 3
BOMB = bytes(40 * 2**20)
GROWTH_MAX_MIB = 50
"""The limit of a process's memory growth, while it refuses requests that would take more than twice as much."""


def run(cluster: Cluster, *arguments: str) -> Result:
    return CliRunner().invoke(peloton, ["--address", cluster.local.address, *arguments])


def jobs(cluster: Cluster) -> int:
    return len(cluster.client.jobs.GetActiveJobs(job_pb2.GetActiveJobsRequest()).ids)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("name: good", "name: good\nname: again"), ["job.yaml:2", "name"]),
        (("instancecount: 2", "instancecount: ["), ["job.yaml:"]),
        (("preemptible: true", "preemptible: false"), ["not preemptible", "/small", "reservation", "0.1"]),
        (("instancecount: 2", "instancecuont: 2"), ["job.yaml:3", "instancecuont", "instancecount"]),
        (("instancecount: 2", "instancecount: 100001"), ["100001", "100000"]),
        (("cpulimit: 0.1", "cpulimit: -1"), ["-1", "negative"]),
        (("cpulimit: 0.1", "cpulimit: 1000"), ["1000", "/small", "2"]),
        (
            ('value: "true"}', 'value: "true"}\n  ports: [{name: a, value: 80}, {name: b, value: 80}]'),
            ["80", "port"],
        ),
        (('command: {shell: true, value: "true"}', "killgraceperiodseconds: 1"), ["missing command", "0"]),
    ],
    ids=[
        "duplicate key",
        "malformed",
        "not preemptible",
        "unknown key",
        "too many",
        "negative",
        "above pool",
        "port clash",
        "no command",
    ],
)
def test_a_bad_job_file_is_refused(cluster: Cluster, tmp_path: Path, change: tuple[str, str], said: list[str]) -> None:
    """The answer names what is wrong; no job exists afterwards."""
    path = tmp_path / "job.yaml"
    path.write_text(GOOD.replace(*change))
    before = jobs(cluster)

    result = run(cluster, "job", "create", "/small", str(path))

    assert result.exit_code == 1, result.output
    assert [word for word in said if word not in result.output] == []
    assert jobs(cluster) == before


def test_an_unknown_pool_is_named(cluster: Cluster, tmp_path: Path) -> None:
    """`job create /nowhere` says that there is no such pool."""
    path = tmp_path / "job.yaml"
    path.write_text(GOOD)

    result = run(cluster, "job", "create", "/nowhere", str(path))

    assert result.exit_code == 1
    assert "/nowhere" in result.output


def test_a_job_id_is_used_once(cluster: Cluster, tmp_path: Path) -> None:
    """The second create with the same id is refused and names it; the first job is untouched."""
    path = tmp_path / "job.yaml"
    path.write_text(GOOD)
    job_id = "11111111-0000-4000-8000-000000000001"
    first = run(cluster, "job", "create", "/small", str(path), "--jobID", job_id)

    second = run(cluster, "job", "create", "/small", str(path), "--jobID", job_id)

    assert (first.exit_code, second.exit_code) == (0, 1), first.output + second.output
    assert f"Job {job_id} already exists" in second.output
    assert cluster.finish(job_id) == "SUCCEEDED"


def test_a_reservation_above_the_cluster_is_refused_and_a_limit_is_not(cluster: Cluster, tmp_path: Path) -> None:
    """The hosts cannot keep such a reservation: the answer has both numbers, and no pool is made. A limit above what
    they have is accepted with a warning."""
    path = tmp_path / "pool.yaml"
    path.write_text("name: vast\nresources:\n- {kind: cpu, reservation: 13, limit: 13, share: 1}\n")
    wide = tmp_path / "wide.yaml"
    wide.write_text("name: wide\nresources:\n- {kind: cpu, reservation: 0, limit: 13, share: 1}\n")

    result = run(cluster, "respool", "create", "/vast", str(path))
    accepted = run(cluster, "respool", "create", "/wide", str(wide))

    assert result.exit_code == 1
    assert "exceed parent `root` reservations 12" in result.output
    lookup = cluster.client.respools.LookupResourcePoolID(
        respool_pb2.LookupRequest(path=respool_pb2.ResourcePoolPath(value="/vast"))
    )
    assert lookup.error.HasField("notFound")
    assert accepted.exit_code == 0, accepted.output
    assert "Warning: resource cpu, limit 13 is more than 12" in accepted.output


def test_what_unpacks_to_much_takes_no_memory(cluster: Cluster) -> None:
    """Many small requests that unpack to 40 MiB each are refused by every server as they are, while others answer."""
    storage = Storage(cluster.local.database)
    now_s = time.time()
    targets = {
        "api": (cluster.local.address, "/peloton.api.job.JobManager/Create"),
        "resmgr": (storage.leases.leader("resmgr", now_s), "/peloton.api.respool.ResourceManager/CreateResourcePool"),
        "hostmgr": (
            storage.leases.leader("hostmgr/local", now_s),
            "/peloton.api.v0.host.svc.HostService/StartMaintenance",
        ),
    }
    storage.close()
    peaks = {}
    for role, (address, method) in targets.items():
        process = cluster.local.part(role).process
        assert process is not None
        assert address is not None
        before_kib = status_kib("VmRSS", process.pid)
        options = [("grpc.max_send_message_length", len(BOMB)), AGENT_OPTION]  # as a role, which every server answers
        with grpc.insecure_channel(address, options) as channel:
            call: Any = channel.unary_unary(method)
            bombs: list[Any] = [call.future(BOMB, 60, compression=grpc.Compression.Gzip) for _ in range(BOMBS)]
            assert cluster.capacity() == 12
            assert {bomb.code() for bomb in bombs} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        peaks[role] = (status_kib("VmHWM", process.pid) - before_kib) // 1024

    assert {role: mib for role, mib in peaks.items() if mib > GROWTH_MAX_MIB} == {}


def test_wrong_usage_ends_with_two(cluster: Cluster) -> None:
    """A missing argument is the user's, not the cluster's."""
    assert run(cluster, "job", "create").exit_code == 2


def test_a_cluster_that_is_not_there_is_named() -> None:
    """The address that was tried stands in the answer."""
    result = CliRunner().invoke(peloton, ["--address", "127.0.0.1:1", "host", "query"])

    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.output
