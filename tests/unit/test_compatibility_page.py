"""Pages that list each method of the original agree with the declared services."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from peloton.api import service_names
from peloton.api.service_names import INTERNAL_HOST_SERVICE, SERVED, service_of
from services.api.private_calls import REFUSED
from services.aurorabridge.methods import METHODS
from services.aurorabridge.thrift import api

DOCS = Path(__file__).resolve().parents[2] / "docs"
OURS = (
    *(
        "ACCESS",
        "ADVICE",
        "AUDIT",
        "BULK",
        "EXPLAIN",
        "GANG",
        "HISTORY",
        "JOB_TABLE",
        "LOOKUP",
        "MAINTENANCE",
        "MIGRATION",
        "MOVER",
        "OVERVIEW",
    ),
    *("REBALANCE", "RETENTION", "SCHEDULE", "WORKER_VERSION"),
)
"""Services of this project alone, by their constants without ``_SERVICE``."""
SECTION = re.compile(r"^### .*?(?=^##|\Z)", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \| (.+) \|$", re.MULTILINE)


def sections() -> dict[str, tuple[list[str], dict[str, str]]]:
    """Return the first name of each service on the page -> all its names, and method -> what answers it."""
    found = {}
    for section in SECTION.findall((DOCS / "compatibility.md").read_text()):
        names = re.findall(r"`(peloton\.[\w.]+)`", section.partition("\n| ")[0])
        rows = [(name, what) for cell, what in ROW.findall(section) for name in re.findall(r"`(\w+)`", cell)]
        assert len(rows) == len(dict(rows)), names
        found[names[0]] = names, dict(rows)
    return found


def test_page_has_every_public_method() -> None:
    """Each method of a service of the original is in the table of its service, under all names of that service."""
    ours = {name for constant in OURS for name in getattr(service_names, f"{constant}_SERVICE")}
    expected = {name: sorted(method.name for method in service_of(name).methods) for name in SERVED if name not in ours}
    private = INTERNAL_HOST_SERVICE[0]
    del expected[private]
    listed = {name: sorted(rows) for names, rows in sections().values() for name in names}

    assert expected == {name: rows for name, rows in listed.items() if name not in REFUSED}


@pytest.mark.parametrize("service", REFUSED)
def test_page_has_every_private_call(service: str) -> None:
    """The page has the text of each refusal, and calls the other private method served."""
    _, rows = sections()[service]
    refused = {name: f"refused: {why}" for name, why in REFUSED[service].items()}
    served = {name: what for name, what in rows.items() if name not in refused}

    assert refused == {name: what for name, what in rows.items() if name in refused}
    assert (["DisableKillTasks"] if service == INTERNAL_HOST_SERVICE[0] else []) == list(served)
    assert all(what.startswith("served") for what in served.values())


def test_public_methods_are_served_or_added() -> None:
    """The first word of each row is one of the few that the page defines."""
    words = {what.split()[0].rstrip(";,:") for _, rows in sections().values() for what in rows.values()}
    assert {"served", "added", "refused"} == words


def test_page_of_the_bridge_has_every_method() -> None:
    """Each of the 27 methods of Aurora's API is in one row, and those that the bridge lacks are called refused."""
    text = (DOCS / "aurora-bridge.md").read_text().partition("## Methods")[2]
    rows = [(name, what) for cell, what in ROW.findall(text) for name in re.findall(r"`(\w+)`", cell)]
    declared = [*api.ReadOnlyScheduler.thrift_services, *api.AuroraSchedulerManager.thrift_services]

    assert (27, sorted(set(declared))) == (len(rows), sorted(name for name, _ in rows))
    assert sorted(METHODS) == sorted(name for name, what in rows if not what.startswith("refused"))
