"""Checks of the store: each rule finds a planted fault, and a store after the life of jobs has none."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
import sqlalchemy as sa

from peloton.model.job import JobState
from services.storage import checks
from services.storage.checks import CHECKS, Checks, Finding
from services.storage.storage import Storage
from services.storage.tables import COUNTER, METADATA
from tests.conformance.storage import builders as world
from tests.conformance.storage.builders import NOW, S
from tests.conformance.storage.services import a_service

ID = "00000000-0000-4000-8000-000000000001"
SUCCEEDED, KILLED = 4, 6
JOB: dict[str, Any] = {"job_id": ID, "state": KILLED, "labels": "[]", "pod_counts": "{}"}
CONFIG: dict[str, Any] = {"job_id": ID, "version": 0}
FAULTS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "pod without job": [("pod", {})],
    "pod_event without job": [("pod_event", {})],
    "pod_containers without job": [("pod_containers", {})],
    "job_config without job": [("job_config", {})],
    "job_label without job": [("job_label", {})],
    "job_secret without job": [("job_secret", {})],
    "job_wake without job": [("job_wake", {})],
    "job_update without job": [("job_update", {})],
    "disruption without job": [("disruption", {})],
    "daemon_host without job": [("daemon_host", {})],
    "external_pod without job": [("external_pod", {})],
    "job_update_event without job_update": [("job_update_event", {})],
    "migration_service without migration": [("migration_service", {})],
    "migration_pool without migration": [("migration_pool", {})],
    "rebalance_move without rebalance": [("rebalance_move", {})],
    "job_config_override without job": [("job_config_override", {})],
    "pod_containers without pod": [("job", JOB), ("job_config", CONFIG), ("pod_containers", {})],
    "external_pod without pod": [("job", JOB), ("job_config", CONFIG), ("external_pod", {})],
    "job without pool": [("job", {**JOB, "state": 0, "respool_id": "gone"}), ("job_config", CONFIG)],
    "job without configuration": [("job", JOB)],
    "job without update": [("job", {**JOB, "update_id": ID}), ("job_config", CONFIG)],
    "job with other pod counts": [("job", {**JOB, "pod_counts": '{"9": 2}'}), ("job_config", CONFIG)],
    "cluster_binding without object": [("cluster_binding", {"object_id": ID})],
    "respool without parent": [("respool", {"respool_id": "leaf", "spec": '{"parent_id": "gone"}'})],
    "host_in_pool without host pool": [("host_in_pool", {"pool": "gone"})],
    "volume without host and job": [("volume", {})],
    "volume of a deleted job": [("volume", {"host": "host1"})],
    "lease of the future": [("lease", {"expires_s": 9e10})],
    "host_event beyond its counter": [("host_event", {"seq": 10**9})],
    "status_log beyond its counter": [("status_log", {"seq": 10**9})],
    "watch_log beyond its counter": [("watch_log", {"seq": 10**9})],
}


def plant(storage: Storage, table: str, given: dict[str, Any]) -> None:
    """Insert a row whose other columns are empty."""
    of_type: dict[type[Any], Any] = {str: "", int: 0, bool: False, float: 0.0, bytes: b""}
    columns = METADATA.tables[table].columns
    row = {one.name: ID if isinstance(one.type, sa.Uuid) else of_type[one.type.python_type] for one in columns}
    storage.db.write(lambda conn: conn.execute(METADATA.tables[table].insert().values(**{**row, **given})))


def find_all(storage: Storage) -> dict[str, Finding]:
    return {finding.check.name: finding for finding in Checks(storage.db).findings()}


def test_each_rule_has_a_fault() -> None:
    """A new rule is tested here."""
    assert [check.name for check in CHECKS] == list(FAULTS)


@pytest.mark.parametrize("name", FAULTS)
def test_a_rule_finds_its_fault(storage: Storage, name: str) -> None:
    """The finding has the number of rows and the id of the first one."""
    for table, given in FAULTS[name]:
        plant(storage, table, given)

    finding = find_all(storage)[name]

    check = finding.check
    last = FAULTS[name][-1][1] if check.table == FAULTS[name][-1][0] else FAULTS[name][0][1]
    shown = finding.first_ids[0].split("/")
    assert (1, 1, len(check.id.split())) == (finding.count, len(finding.first_ids), len(shown))
    assert all(
        str(last[column]) == text for column, text in zip(check.id.split(), shown, strict=True) if column in last
    )


def test_rows_are_checked_in_bounded_parts(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every part counts, and the first ids are few."""
    monkeypatch.setattr(checks, "CHECK_ROWS", 3)
    ids = [str(uuid.UUID(int=number)) for number in range(10)]
    for job_id in ids:
        plant(storage, "job_wake", {"job_id": job_id})

    finding = find_all(storage)["job_wake without job"]

    assert (10, tuple(ids[: checks.IDS_SHOWN])) == (finding.count, finding.first_ids)


def test_a_sound_store_breaks_no_rule(storage: Storage) -> None:
    """A running, an ended and a deleted job and a service leave rows that obey all rules, except that these jobs of
    tests are in a pool that no test created. Checks write nothing."""
    plant(storage, "respool", {"respool_id": "pool", "spec": '{"parent_id": "root"}'})
    world.a_running_job(storage, 2)
    a_service(storage, 2)
    for is_deleted in (False, True):
        ended = world.a_running_job(storage, 2)
        world.report(storage, ended, [0, 1], S)
        assert JobState.SUCCEEDED is world.settle_all(storage, ended, NOW).state
        if is_deleted:
            storage.jobs.delete(ended)

    before = storage.db.read(lambda conn: conn.execute(sa.select(COUNTER)).all())
    assert {} == find_all(storage)
    assert before == storage.db.read(lambda conn: conn.execute(sa.select(COUNTER)).all())
