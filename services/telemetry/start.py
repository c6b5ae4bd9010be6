"""Start of logs and metrics in a process, by its settings. Exporters are imported only where they are configured."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from services.settings import Settings
from services.telemetry import state
from services.telemetry.logs import configure_logs
from services.telemetry.metrics import register_gauge
from services.telemetry.table import ROWS
from services.telemetry.traces import start_traces
from services.tls.settings import read_transport
from services.tls.transport import Transport

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
    _export_traces(settings, own, is_entrance="api" in roles)


def _cluster(settings: Settings) -> str:
    return settings.cluster


def _describe(own: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of the process, as OpenTelemetry names them."""
    return {"service.name": f"peloton-{own['role']}", **{f"peloton.{name}": text for name, text in own.items()}}


def _export_metrics(settings: Settings, own: dict[str, str]) -> None:
    from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
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
        transport = read_transport(settings)
        context = transport.http_context()
        scrape.serve(host, port, lambda: exposition.expose(scraped.get_metrics_data(), own), context)
        log.info("metrics at %s://%s:%d%s", transport.http_scheme, host, port, scrape.PATH)
    views = [View(instrument_name=row.name, aggregation_cardinality_limit=row.series_max) for row in ROWS]
    state.turn_on("metrics")
    provider = MeterProvider(
        metric_readers=readers,
        resource=Resource.create(_describe(own)),
        views=views,
        exemplar_filter=AlwaysOffExemplarFilter(),  # they cost half of a record
    )
    metrics.set_meter_provider(provider)
    started_s = time.time()
    register_gauge("peloton.process.started", lambda _: [Observation(started_s)])


def show_expiry(transport: Transport) -> None:
    """Export when the certificate of this process expires."""

    def read(_: CallbackOptions) -> list[Observation]:
        expires_s = transport.expires_at()
        return [] if expires_s is None else [Observation(expires_s)]

    register_gauge("peloton.tls.certificate_expiry", read)


def _export_traces(settings: Settings, own: dict[str, str], is_entrance: bool) -> None:
    if not (settings.otlp and settings.trace_ratio):
        return
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    from services.tls.exporter import ReloadingExporter

    exporter: Any = ReloadingExporter(OTLPSpanExporter, settings)
    start_traces(exporter, settings.trace_ratio, _describe(own), is_entrance)


def _make_otlp_reader(settings: Settings) -> MetricReader:
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    from services.tls.exporter import ReloadingExporter

    exporter: Any = ReloadingExporter(OTLPMetricExporter, settings)
    return PeriodicExportingMetricReader(exporter)
