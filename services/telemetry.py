"""Logs to stderr in one readable line each; metrics by OpenTelemetry to an OTLP endpoint, if one is set."""

from __future__ import annotations

import logging
import sys

from peloton.errors import ERRORS, PelotonError
from services.log_lines import printable
from services.settings import Settings

RECORD_LINES_MAX = 200


def configure(settings: Settings, role: str) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=settings.log_level,
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
        force=True,
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(without_expected_traces)
        handler.setFormatter(BoundedLines(handler.formatter))
    for noisy in ("alembic", "temporalio.worker"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    if settings.otlp:
        _export_metrics(settings.otlp, role)


class BoundedLines(logging.Formatter):
    """Formatter without long lines or control characters; a trace has a bounded number of lines."""

    def __init__(self, formatter: logging.Formatter | None) -> None:
        super().__init__()
        self._formatter = formatter or logging.Formatter()

    def format(self, record: logging.LogRecord) -> str:
        lines = self._formatter.format(record).split("\n")
        left_out = [f"... ({len(lines)} lines)"] if len(lines) > RECORD_LINES_MAX else []
        return "\n".join([*map(printable, lines[:RECORD_LINES_MAX]), *left_out])


def without_expected_traces(record: logging.LogRecord) -> bool:
    """Remove the stack trace of an expected error, whose message is complete. Keeps every record."""
    error = record.exc_info[1] if record.exc_info else None
    is_expected = isinstance(error, PelotonError) or getattr(error, "type", None) in ERRORS
    if is_expected:
        record.msg, record.args = f"{record.getMessage()}: {error}", ()
        record.exc_info = record.exc_text = None
    return True


def _export_metrics(endpoint: str, role: str) -> None:
    # Imported only if configured: the exporter costs a fraction of a second at start.
    from opentelemetry import metrics
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource

    reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=endpoint, insecure=True))
    resource = Resource.create({"service.name": f"peloton-{role}"})
    metrics.set_meter_provider(MeterProvider(metric_readers=[reader], resource=resource))
