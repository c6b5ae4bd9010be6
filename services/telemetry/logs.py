"""Logs to stderr: one readable line each, or one JSON object."""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Mapping

from peloton.errors import ERRORS, PelotonError
from peloton.model.text import cut
from services.log_lines import LINE_CHARS_MAX, printable
from services.telemetry.log_context import list_fields

RECORD_LINES_MAX = 200
FIELD_CHARS_MAX = 500
CONTINUED = "\n  "
"""The end of a line with the indentation of the next one: a message with line breaks looks like no other record."""
FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
SDK_LOGGER = "temporalio.core"
"""Logger of the part of Temporal's SDK that is not Python."""
REPEATING = (SDK_LOGGER, "opentelemetry.")
"""Beginnings of the names of loggers whose libraries repeat each call that they report as an error."""
QUIET = ("alembic", "temporalio.worker")
"""Loggers whose lines below WARNING are noise."""


def configure_logs(level: str, form: str, own: Mapping[str, str]) -> None:
    """Log to stderr. ``form``: text or json; ``own``: fields of every JSON line, such as the role."""
    logging.basicConfig(stream=sys.stderr, level=level, force=True)
    lines = logging.Formatter(FORMAT, "%H:%M:%S")
    for handler in logging.getLogger().handlers:
        handler.addFilter(without_expected_traces)
        handler.addFilter(lower_repeated)
        handler.setFormatter(JsonLines(own) if form == "json" else BoundedLines(lines))
    for noisy in QUIET:
        logging.getLogger(noisy).setLevel(logging.WARNING)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its failures reach callers as statuses


class BoundedLines(logging.Formatter):
    """Formatter without long lines or control characters; a trace has a bounded number of lines."""

    def __init__(self, formatter: logging.Formatter | None) -> None:
        super().__init__()
        self._formatter = formatter or logging.Formatter()

    def format(self, record: logging.LogRecord) -> str:
        return CONTINUED.join(bound_lines(self._formatter.format(record)))


class JsonLines(logging.Formatter):
    """Formatter of one JSON object per record, of bounded length, in ASCII."""

    def __init__(self, own: Mapping[str, str]) -> None:
        super().__init__()
        self._own = dict(own)

    def format(self, record: logging.LogRecord) -> str:
        whole_s, ms = int(record.created), int(record.msecs)
        line: dict[str, str] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole_s))}.{ms:03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": cut(record.getMessage(), LINE_CHARS_MAX),
            **self._own,
            **{name: cut(text, FIELD_CHARS_MAX) for name, text in list_fields().items()},
        }
        if record.exc_info:
            line["trace"] = "\n".join(bound_lines(self.formatException(record.exc_info)))
        return json.dumps(line)


def bound_lines(text: str) -> list[str]:
    """Return the lines of a record, printable, bounded in length and number."""
    lines = text.split("\n")
    left_out = [f"... ({len(lines)} lines)"] if len(lines) > RECORD_LINES_MAX else []
    return [*map(printable, lines[:RECORD_LINES_MAX]), *left_out]


def without_expected_traces(record: logging.LogRecord) -> bool:
    """Remove the stack trace of an expected error, whose message is complete, and lower its level to WARNING: the
    caller repeats the call. Keeps every record.
    """
    error = record.exc_info[1] if record.exc_info else None
    is_expected = isinstance(error, PelotonError) or getattr(error, "type", None) in ERRORS
    if is_expected:
        record.msg, record.args = f"{record.getMessage()}: {error}", ()
        record.exc_info = record.exc_text = None
        lower_to_warning(record)
    return True


def lower_repeated(record: logging.LogRecord) -> bool:
    """Lower the level of what libraries report as errors and repeat. Keeps every record."""
    if record.name.startswith(REPEATING):
        lower_to_warning(record)
    return True


def lower_to_warning(record: logging.LogRecord) -> None:
    if record.levelno > logging.WARNING:
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
