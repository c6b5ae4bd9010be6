"""The table of lifecycles: ids, and what is started for a stored object."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from peloton.model import ids
from services.wakers.lifecycles import LIFECYCLES, StoredLifecycle
from workflows import daemon, gang, job, maintenance, migration, rebalance, scheduled_job, update

JOB = "6d1d5f5e-7d2a-4c6c-9f4e-0a7d3c1b2e01"


@pytest.mark.parametrize(
    ("key", "workflow_id"),
    [
        (JOB, ids.job_workflow_id(JOB)),
        (f"{JOB}/3", ids.gang_workflow_id(JOB, 3)),
        (JOB, ids.update_workflow_id(JOB)),
        (JOB, ids.daemon_workflow_id(JOB)),
        ("east/host1", ids.maintenance_workflow_id("east", "host1")),
        ("m1", ids.migration_workflow_id("m1")),
        ("east", ids.rebalance_workflow_id("east")),
        ("nightly", ids.schedule_workflow_id("nightly")),
    ],
)
def test_an_id_is_the_kind_and_a_key(key: str, workflow_id: str) -> None:
    """Wakers find the row of an id that Temporal lists, and name the workflow as its parent and its worker do."""
    kind = workflow_id.partition("/")[0]

    assert (workflow_id, f"{kind}/{key}") == (LIFECYCLES[kind].workflow_id(key), workflow_id)


def test_each_workflow_has_a_row() -> None:
    """Workers serve the workflows of the table."""
    modules = (daemon, gang, job, maintenance, migration, rebalance, scheduled_job, update)
    defined = {
        value
        for module in modules
        for value in vars(module).values()
        if hasattr(value, "__temporal_workflow_definition") and value.__module__ == module.__name__
    }

    assert defined == {row.workflow for row in LIFECYCLES.values()}


def storage_with(**rows: Any) -> Any:
    """Storage that has one object of each owner, whatever its key."""
    return SimpleNamespace(**{owner: SimpleNamespace(get=lambda *_, row=row: row) for owner, row in rows.items()})


@pytest.mark.parametrize(
    ("kind", "owner", "active", "ended"),
    [
        ("job", "jobs", {"is_active": True, "update_id": ""}, {"is_active": False, "update_id": ""}),
        ("job", "jobs", {"is_active": False, "update_id": "u1"}, {"is_active": False, "update_id": ""}),
        ("update", "jobs", {"update_id": "u1"}, {"update_id": ""}),
        ("maintenance", "maintenance", {"is_over": False}, {"is_over": True}),
        ("migration", "migrations", {"is_active": True}, {"is_active": False}),
        ("rebalance", "rebalances", {"is_active": True}, {"is_active": False}),
    ],
)
def test_an_ended_object_needs_no_workflow(
    kind: str, owner: str, active: dict[str, Any], ended: dict[str, Any]
) -> None:
    """An ended service needs one while it has an update."""
    row = LIFECYCLES[kind]
    assert isinstance(row, StoredLifecycle)
    found = [row.get(storage_with(**{owner: SimpleNamespace(**fields)}), "east/host1") for fields in (active, ended)]

    assert [True, False] == [row.needs_workflow(one) for one in found]
