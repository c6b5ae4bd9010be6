"""Logs as text and as JSON."""

from __future__ import annotations

import json
import logging
import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider

from peloton.errors import Unavailable
from services.lab.local.temporal_server import is_passing_error
from services.log_lines import LINE_CHARS_MAX
from services.telemetry.log_context import about
from services.telemetry.logs import FIELD_CHARS_MAX, JsonLines, lower_repeated, without_expected_traces


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


OWN = {"role": "api", "cluster": "a"}


def json_of(record: logging.LogRecord) -> dict[str, str]:
    text = JsonLines(OWN).format(record)
    assert "\n" not in text
    assert text.isascii()
    found: dict[str, str] = json.loads(text)
    return found


def test_a_json_line_has_its_fields() -> None:
    """Time, level, logger, message, and the fields of the process and of the context."""
    record = logging.makeLogRecord({"name": "x", "levelname": "INFO", "msg": "job %s", "args": ("j",), "created": 0.5})
    record.msecs = 500.0

    with about(job="j1"), about(pod="j1-0"):
        line = json_of(record)

    assert line == {
        "time": "1970-01-01T00:00:00.500Z",
        "level": "INFO",
        "logger": "x",
        "message": "job j",
        "job": "j1",
        "pod": "j1-0",
        **OWN,
    }


def test_a_json_line_names_its_trace() -> None:
    """A line within a span has the ids of trace and span; one outside has none."""
    tracer = TracerProvider().get_tracer("test")
    record = logging.makeLogRecord({"msg": "x"})

    with tracer.start_as_current_span("call") as span:
        line = json_of(record)

    context = span.get_span_context()
    assert (f"{context.trace_id:032x}", f"{context.span_id:016x}") == (line["trace_id"], line["span_id"])
    assert "trace_id" not in json_of(record)


def test_hostile_text_stays_one_bounded_json_line() -> None:
    """Line breaks and control characters are escaped, and long messages and fields are cut."""
    record = logging.makeLogRecord({"msg": 'a"}\n{"level": "ERROR\x1b[2J\u2028' + "x" * 1_000_000})

    with about(job="y" * 100_000):
        line = json_of(record)

    assert line["message"].startswith('a"}\n{"level"')
    assert len(line["message"]) < LINE_CHARS_MAX + 100
    assert len(line["job"]) < FIELD_CHARS_MAX + 100


def test_a_json_line_has_the_trace_of_an_error() -> None:
    """The stack of an unexpected error is in the line, bounded."""
    line = json_of(record_of(ValueError("bug")))

    assert "ValueError: bug" in line["trace"]


def test_an_error_that_is_repeated_is_a_warning() -> None:
    """An expected refusal, and what Temporal's SDK repeats by itself, asks no person to act; a bug does."""
    refusal, bug = record_of(Unavailable("storage is away")), record_of(ValueError("bug"))
    of_sdk = logging.makeLogRecord({"name": "temporalio.core", "levelno": logging.ERROR, "levelname": "ERROR"})
    refusal.levelno = bug.levelno = logging.ERROR

    for record in (refusal, bug):
        without_expected_traces(record)
    for record in (refusal, bug, of_sdk):
        lower_repeated(record)

    assert [logging.WARNING, logging.ERROR, logging.WARNING] == [one.levelno for one in (refusal, bug, of_sdk)]
    assert of_sdk.levelname == "WARNING"


@pytest.mark.parametrize(
    ("line", "passes"),
    [
        ('time=x level=ERROR msg="service failures" grpc_code=ResourceExhausted wf-id=a', True),
        ('time=x level=ERROR msg="service failures" error="context canceled"', True),
        ('time=x level=ERROR msg="Operation failed with internal error." error="disk is full"', False),
        ('time=x level=ERROR msg="service failures" grpc_code=DataLoss', False),
        ("context canceled", False),
    ],
)
def test_errors_of_calls_that_are_repeated_stay_in_the_file(line: str, passes: bool) -> None:
    """Errors of single calls of the local Temporal server are not shown to people; all others are."""
    assert passes == is_passing_error(line)
