"""The table of metrics and the code have the same instruments."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.telemetry import page
from services.telemetry.metrics import counter, histogram
from services.telemetry.table import LABELS, ROWS, SERIES_MAX, TABLE, Kind

SERVICES = Path(__file__).resolve().parents[3] / "services"
MAKERS = {"counter": Kind.COUNTER, "histogram": Kind.HISTOGRAM, "register_gauge": Kind.GAUGE}
CREATES = re.compile(r"\.create_(?:observable_)?(?:up_down_)?(?:counter|gauge|histogram)\(")


def list_made() -> Iterator[tuple[str, Kind]]:
    """Yield the instruments that the code makes, each with its kind."""
    for path in SERVICES.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if any(f"{maker}(" in text for maker in MAKERS) else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in MAKERS and node.args:
                name = node.args[0]
                if isinstance(name, ast.Constant) and str(name.value).startswith("peloton."):
                    yield str(name.value), MAKERS[node.func.id]


def test_the_code_records_each_row_and_nothing_else() -> None:
    """Each row is made by the code, as an instrument of its kind, and the code makes no other one."""
    assert {row.name: row.kind for row in ROWS} == dict(list_made())


def test_instruments_are_made_by_the_table_alone() -> None:
    """One module calls OpenTelemetry for instruments, so that none escapes the table."""
    makers = {path.name for path in SERVICES.rglob("*.py") if CREATES.search(path.read_text(encoding="utf-8"))}

    assert makers == {"metrics.py"}


def test_rows_have_known_labels_and_names_of_their_own() -> None:
    """Names are valid for Prometheus and unique, labels are in the table of labels, and all of those are used."""
    assert len(TABLE) == len({row.prometheus_name for row in ROWS}) == len(ROWS)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", row.prometheus_name) for row in ROWS)
    assert {label for row in ROWS for label in row.labels} == LABELS.keys()
    assert all(0 < row.series_max <= SERIES_MAX for row in ROWS)
    assert all(list(row.bounds) == sorted(set(row.bounds)) for row in ROWS)
    assert {row.kind is Kind.HISTOGRAM for row in ROWS if row.bounds} == {True}


def test_the_page_is_current() -> None:
    """docs/metrics.md is what the table makes."""
    assert page.page() == page.TARGET.read_text(encoding="utf-8")


def test_an_unknown_name_and_a_wrong_kind_are_refused() -> None:
    """An instrument that is not in the table, or not of this kind, cannot be made."""
    with pytest.raises(KeyError, match=r"peloton\.no\.such"):
        counter("peloton.no.such")
    with pytest.raises(KeyError, match="is a counter, not a histogram"):
        histogram("peloton.pool.admitted")
