"""Logs have a stack trace for unexpected errors only."""

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
    """A refusal's text joins the message, and the trace is removed."""
    record = record_of(Unavailable("no hostmgr leads at present"))

    assert without_expected_traces(record)
    assert ("step place failed: no hostmgr leads at present", None) == (record.getMessage(), record.exc_info)


@pytest.mark.parametrize("error", [ValueError("bug"), KeyError("x")])
def test_an_unexpected_error_keeps_its_trace(error: Exception) -> None:
    """A trace of an unexpected error is kept, with the lines for a fix."""
    record = record_of(error)

    assert without_expected_traces(record)
    assert record.exc_info is not None
