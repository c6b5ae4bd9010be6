"""Rows of the processes that run with a database."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peloton.errors import ResourceExhausted
from peloton.model.diagnosis import ProcessRecord
from services.storage import processes
from services.storage.processes import KEPT_NS
from services.storage.storage import Storage

FIRST = ProcessRecord("h:1", "api+worker", "0.2.0", {"PELOTON_TEMPORAL_NAMESPACE": "prod"})
SECOND = ProcessRecord("h:2", "resmgr", "0.1.0", {})


def test_a_process_has_one_row_until_it_ends(storage: Storage) -> None:
    """A report replaces the one before, and a process that ends removes its own alone."""
    storage.processes.put(FIRST, 10)
    storage.processes.put(SECOND, 20)
    later = replace(FIRST, settings={"PELOTON_TEMPORAL_NAMESPACE": "other"})
    storage.processes.put(later, 30)

    assert [later, SECOND] == storage.processes.list_running(30)

    storage.processes.remove(FIRST.process_id, FIRST.role)

    assert [SECOND] == storage.processes.list_running(30)


def test_an_announced_process_replaces_none_of_another_role(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a database replaces and removes its own row alone, and has none beyond the bound."""
    web = ProcessRecord("h:3", "web", "0.2.0", {})
    storage.processes.put(FIRST, 10)
    storage.processes.announce(web, 10)
    storage.processes.announce(replace(web, version="0.3.0"), 20)
    storage.processes.announce(replace(web, process_id=FIRST.process_id), 20)
    storage.processes.remove(FIRST.process_id, "web")

    assert [replace(web, version="0.3.0"), FIRST] == storage.processes.list_running(20)

    monkeypatch.setattr(processes, "PROCESSES_MAX", 2)
    storage.processes.announce(web, 30)
    with pytest.raises(ResourceExhausted, match="2 processes have reported"):
        storage.processes.announce(replace(web, process_id="h:4"), 30)
    storage.processes.announce(replace(web, process_id="h:4"), 31 + KEPT_NS)
    assert ["h:4"] == [one.process_id for one in storage.processes.list_running(31 + KEPT_NS)]


def test_processes_that_are_gone_are_removed(storage: Storage) -> None:
    """A process that does not report is no longer listed after a while, and the next report of any process deletes
    its row."""
    storage.processes.put(FIRST, 10)

    assert [FIRST] == storage.processes.list_running(10 + KEPT_NS)
    assert [] == storage.processes.list_running(11 + KEPT_NS)

    storage.processes.put(SECOND, 11 + KEPT_NS)

    assert [SECOND] == storage.processes.list_running(10)
