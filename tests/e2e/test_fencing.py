"""A leader that is frozen past its lease, amid launches, changes nothing when it wakes, and ends."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
import sqlalchemy as sa

from services.storage.storage import Storage
from tests.e2e.local import Cluster, shell, temporary
from tests.e2e.test_faults import list_launched_twice
from tests.nightly import NIGHTLY, nightly
from tests.postgres import Postgres, postgres
from tests.zookeeper import zookeeper

__all__ = ["postgres", "zookeeper"]  # fixtures
pytestmark = pytest.mark.xdist_group("fencing")
PODS = 120
ROUNDS = 4
ROLES = "api", "worker", "resmgr", "hostmgr"
MESOS, KUBERNETES, ZOOKEEPER, POSTGRES = "minicluster", "kubernetes", "elected by zookeeper", "postgresql"


@pytest.fixture(scope="module", params=[MESOS, nightly(KUBERNETES), nightly(ZOOKEEPER), nightly(POSTGRES)])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    environment = {"PELOTON_LEADER_TTL_S": "2"}
    if request.param == ZOOKEEPER:
        environment["PELOTON_ELECTION"] = "zookeeper"
        environment["PELOTON_ZOOKEEPER"] = f"zk://{request.getfixturevalue('zookeeper')}/peloton"
    settings = temporary(tmp_path_factory.mktemp("fencing"), simulate=8, environment=environment)
    if request.param == POSTGRES:  # processes freeze in the middle of transactions
        server: Postgres = request.getfixturevalue("postgres")
        settings = replace(settings, database=server.create_database())
    if request.param == KUBERNETES:
        settings = replace(settings, simulate=0, kubernetes=8, no_mesos=True)
    with Cluster(settings) as running:
        yield running


@pytest.mark.parametrize("role", [nightly("resmgr"), "hostmgr"])
def test_a_frozen_leader_changes_nothing(role: str, cluster: Cluster) -> None:
    """The database is the same before and after it wakes, while all others stand still; the job does not notice."""
    freeze_amid(cluster, role, cluster.pool(f"frozen-{role}"), 0.2)


@NIGHTLY
@pytest.mark.parametrize("role", ["resmgr", "hostmgr"])
def test_a_leader_may_freeze_at_any_moment(role: str, cluster: Cluster) -> None:
    """Admissions, launches, statuses and kills are under way at the moments of a seed."""
    pool, moments = cluster.pool(f"moments-{role}"), random.Random(role)
    for _ in range(ROUNDS):
        freeze_amid(cluster, role, pool, moments.uniform(0.0, 2.0))


def freeze_amid(cluster: Cluster, role: str, pool: str, after_s: float) -> None:
    """Freeze the leader amid a job until its standby leads, and look at what it does when it wakes."""
    job = cluster.submit(pool, instanceCount=PODS, defaultConfig=shell("sleep 0.5", cpu=0.5, memory=16))
    cluster.wait(lambda: cluster.counts(job).get("SUCCEEDED", 0) >= 1, "the first pods")
    time.sleep(after_s)
    name = next(name for name in cluster.local.parts if name.startswith(role))
    first, starts = cluster.local.part(name), cluster.local.part(name).starts
    storage = Storage(cluster.local.database)
    lease = next(row.role for row in storage.overview.leases() if row.role.startswith(role))
    before = storage.leases.leader(lease, 0)
    others = [part for part in cluster.local.parts.values() if part.name.startswith(ROLES) and part is not first]

    with cluster.standby(name) as second:
        with cluster.asleep(name):
            cluster.wait(lambda: storage.leases.leader(lease, time.time()) not in (None, "", before), "another leader")
            asleep = cluster.parts_asleep([*others, second])
            asleep.__enter__()
            end_leases(storage, time.time() + 600)  # else the next process of the role leads
            seen = dump(cluster)
        cluster.wait(lambda: first.starts > starts, "the end of the old leader")
        assert seen == dump(cluster)
        end_leases(storage, time.time() + 2)
        asleep.__exit__(None, None, None)
        assert cluster.finish(job) == "SUCCEEDED"
    storage.close()

    assert cluster.counts(job) == {"SUCCEEDED": PODS}
    assert list_launched_twice(cluster, job, PODS) == []


def end_leases(storage: Storage, expires_s: float) -> None:
    set_end = sa.text("UPDATE lease SET expires_s = :at WHERE owner <> ''")
    storage.db.write(lambda conn: conn.execute(set_end, {"at": expires_s}))


def dump(cluster: Cluster) -> dict[str, list[str]]:
    """Return the rows of all tables but ``process``, in which each process reports itself whether it leads or not."""
    storage = Storage(cluster.local.database)
    try:
        with storage.db.reading() as conn:
            tables = sorted({*sa.inspect(conn).get_table_names()} - {"process"})
            return {name: sorted(map(repr, conn.execute(sa.text(f'SELECT * FROM "{name}"')).all())) for name in tables}
    finally:
        storage.close()
