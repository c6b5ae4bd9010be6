"""Logs: a stack trace is for what nobody expected."""

from __future__ import annotations

import logging
import sys

import pytest

from peloton.errors import Unavailable
from services.telemetry import without_expected_traces


def record_of(error: Exception) -> logging.LogRecord:
    try:
        raise error
    except Exception:
        return logging.LogRecord("test", logging.WARNING, "file", 1, "step %s failed", ("place",), sys.exc_info())


def test_an_expected_refusal_is_one_line() -> None:
    """Its text joins the message, and the trace goes."""
    record = record_of(Unavailable("no hostmgr leads at present"))

    assert without_expected_traces(record)
    assert ("step place failed: no hostmgr leads at present", None) == (record.getMessage(), record.exc_info)


@pytest.mark.parametrize("error", [ValueError("bug"), KeyError("x")])
def test_what_nobody_expected_keeps_its_trace(error: Exception) -> None:
    """Whoever mends it needs the lines."""
    record = record_of(error)

    assert without_expected_traces(record)
    assert record.exc_info is not None
