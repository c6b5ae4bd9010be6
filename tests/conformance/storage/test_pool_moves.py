"""Migrations of pools that have child pools."""

from __future__ import annotations

import pytest

from peloton.api import convert
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.errors import Aborted
from peloton.model.ids import ROOT_POOL_ID, JobId, RespoolId, new_job_id
from peloton.model.migration import MigrationAct, MigrationSpec, MigrationState
from services.storage.storage import Storage
from tests.conformance.storage.builders import NOW, a_config, admit
from tests.conformance.storage.services import ALL_AT_ONCE, service_config, turn
from tests.conformance.storage.test_cluster_moves import A, B, job_of, launch, migrate, pod_hosts, run_to_the_end

ENG, MAPS, ROUTES, OTHER = (RespoolId(name) for name in ("eng", "maps", "routes", "other"))
TOP = (ENG, "/eng")


@pytest.fixture
def pools(storage: Storage) -> Storage:
    """Create /eng with /eng/maps and /eng/maps/routes under it, and /other."""
    for pool_id, above in ((ENG, ROOT_POOL_ID), (MAPS, ENG), (ROUTES, MAPS), (OTHER, ROOT_POOL_ID)):
        create(storage, pool_id, above)
    return storage


def create(storage: Storage, pool_id: RespoolId, above: RespoolId) -> None:
    storage.pools.put(
        pool_id, respool_pb2.ResourcePoolConfig(name=pool_id, parent=peloton_pb2.ResourcePoolID(value=above))
    )


def a_service(storage: Storage, pool: RespoolId) -> JobId:
    """Create a service with an instance in A."""
    job_id, config = new_job_id(), service_config(1)
    config.name, config.respoolID.value = "web", pool
    storage.updates.create_service(convert.new_job_record(job_id, config, NOW), config, b"", ALL_AT_ONCE, "", NOW)
    turn(storage, job_id, starts=False)
    admit(storage, job_id)
    launch(storage, job_id)
    turn(storage, job_id, starts=False)
    assert {A: 1} == pod_hosts(storage, job_id)
    return job_id


def bindings(storage: Storage, *pools: RespoolId) -> list[str]:
    found = []
    for pool in pools:
        config = a_config(1)
        config.respoolID.value = pool
        found.append(storage.migrations.binding(convert.new_job_record(new_job_id(), config, NOW)))
    return found


def test_a_pool_moves_with_all_below_it(pools: Storage) -> None:
    """The pool and its descendants move one after the other, and other pools stay. A new child pool has the binding of
    its parent."""
    jobs = [a_service(pools, pool) for pool in (ROUTES, MAPS, OTHER)]
    load = pools.migrations.load(None, TOP, MigrationSpec(B))
    assert (2, {A: 2}) == (load.service_count, load.leaves)

    migration = pools.migrations.request(None, TOP, MigrationSpec(B, services_at_once=1))
    names = [one.name for one in pools.migrations.services(migration.migration_id)]
    first = pools.migrations.advance(migration.migration_id)

    assert ["maps/routes/web", "maps/web"] == names
    assert ["maps/routes/web"] == [one.name for one in first.services]
    run_to_the_end(pools, migration, *jobs)
    assert [{B: 1}, {B: 1}, {A: 1}] == [pod_hosts(pools, job_id) for job_id in jobs]
    create(pools, RespoolId("new"), MAPS)
    create(pools, MAPS, ENG)  # changed, not new
    assert [B, B, B, B, ""] == bindings(pools, ENG, MAPS, ROUTES, RespoolId("new"), OTHER)
    assert B == pools.migrations.release(None, TOP)
    assert [""] * 4 == bindings(pools, ENG, MAPS, ROUTES, RespoolId("new"))


def test_a_rollback_leaves_each_pool_bound_as_before(pools: Storage) -> None:
    """A pool that had been moved to the target by itself stays there."""
    stays = a_service(pools, ROUTES)
    run_to_the_end(pools, pools.migrations.request(None, (ROUTES, "/eng/maps/routes"), MigrationSpec(B)), stays)
    returns = a_service(pools, MAPS)
    migration = pools.migrations.request(None, TOP, MigrationSpec(B))
    pools.migrations.advance(migration.migration_id)
    assert [B, B, B] == bindings(pools, ENG, MAPS, ROUTES)

    pools.migrations.steer(migration.migration_id, MigrationAct.ROLL_BACK)
    under_way = bindings(pools, ENG, MAPS, ROUTES)
    run_to_the_end(pools, migration, stays, returns)

    found = pools.migrations.get(migration.migration_id)
    assert found is not None
    assert (MigrationState.ROLLED_BACK, ["!b"] * 3) == (found.state, under_way)
    assert ["", "", B] == bindings(pools, ENG, MAPS, ROUTES)
    assert [{A: 1}] == [pod_hosts(pools, returns)]


def test_batch_pods_of_all_pools_leave(pools: Storage) -> None:
    """Batch pods leave when the request includes them."""
    jobs = []
    for pool in (MAPS, ROUTES, OTHER):
        config = a_config(1)
        config.respoolID.value = pool
        jobs.append(new_job_id())
        pools.jobs.create(convert.new_job_record(jobs[-1], config, NOW), config, NOW)
        pools.pods.create(jobs[-1], lambda _: None)
        admit(pools, jobs[-1])
        launch(pools, jobs[-1])
    migration = pools.migrations.request(None, TOP, MigrationSpec(B, evicts_batch=True))

    progress = pools.migrations.advance(migration.migration_id)
    run_to_the_end(pools, migration, *jobs)

    assert (2, {jobs[0], jobs[1]}) == (progress.batch_left_count, set(progress.to_wake))
    assert [{B: 1}, {B: 1}, {A: 1}] == [pod_hosts(pools, job_id) for job_id in jobs]


def test_migrations_of_pools_within_one_another_exclude_each_other(pools: Storage) -> None:
    """Migrations of nested pools exclude each other as the migrations of a pool and its jobs do. A pool is not released
    while a parent moves."""
    job_id = a_service(pools, ROUTES)
    below = (MAPS, "/eng/maps")
    first = pools.migrations.request(None, TOP, MigrationSpec(B))
    under_way = r"the migration of pool /eng to cluster b is under way \(MIGRATING\): wait for its end, or roll it back"

    with pytest.raises(Aborted, match=under_way):
        pools.migrations.request(None, below, MigrationSpec(B))
    with pytest.raises(Aborted, match=under_way):
        migrate(pools, job_id)
    with pytest.raises(Aborted, match=r"the migration of /eng to cluster b is under way \(MIGRATING\): roll it back"):
        pools.migrations.release(None, below)
    run_to_the_end(pools, first, job_id)
    pools.migrations.release(None, TOP)
    own = pools.migrations.request(job_of(pools, job_id), None, MigrationSpec(A))
    with pytest.raises(Aborted, match="the migration of job web to cluster a is under way"):
        pools.migrations.request(None, TOP, MigrationSpec(B))
    assert own.migration_id == pools.migrations.active()[0].migration_id
