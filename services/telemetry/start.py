"""Start of logs and metrics in a process, by its settings. Exporters are imported only where they are configured."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from opentelemetry import metrics
from opentelemetry.metrics import Observation

from services.settings import Settings
from services.telemetry import state
from services.telemetry.logs import configure_logs
from services.telemetry.metrics import register_gauge
from services.telemetry.table import ROWS

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader

log = logging.getLogger(__name__)


def configure(settings: Settings, roles: Sequence[str]) -> None:
    """Raises InvalidSettings when the port of the metrics is taken."""
    own = {"role": "+".join(roles)}
    if "hostmgr" in roles:
        own["cluster"] = _cluster(settings)
    configure_logs(settings.log_level, settings.log_format, own)
    if settings.otlp or settings.metrics_port:
        _export_metrics(settings, own)


def _cluster(settings: Settings) -> str:
    return settings.cluster


def _export_metrics(settings: Settings, own: dict[str, str]) -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.metrics.view import View
    from opentelemetry.sdk.resources import Resource

    from services.telemetry import exposition, scrape

    readers: list[MetricReader] = []
    if settings.otlp:
        readers.append(_make_otlp_reader(settings))
    if settings.metrics_port:
        scraped = InMemoryMetricReader()
        readers.append(scraped)
        host, port = settings.metrics_host, settings.metrics_port
        scrape.serve(host, port, lambda: exposition.expose(scraped.get_metrics_data(), own))
        log.info("metrics at http://%s:%d%s", host, port, scrape.PATH)
    attributes = {"service.name": f"peloton-{own['role']}", **{f"peloton.{name}": text for name, text in own.items()}}
    views = [View(instrument_name=row.name, aggregation_cardinality_limit=row.series_max) for row in ROWS]
    state.turn_on("metrics")
    metrics.set_meter_provider(MeterProvider(metric_readers=readers, resource=Resource.create(attributes), views=views))
    started_s = time.time()
    register_gauge("peloton.process.started", lambda _: [Observation(started_s)])


def _make_otlp_reader(settings: Settings) -> MetricReader:
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    from services.tls.exporter import exporter_arguments

    return PeriodicExportingMetricReader(OTLPMetricExporter(endpoint=settings.otlp, **exporter_arguments(settings)))
