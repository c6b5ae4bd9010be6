"""Metrics go to a collector with TLS, and show it the certificate of the process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as pb
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as pb_grpc
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData

from services.settings import Settings, load
from services.tls.authority import LocalAuthority
from services.tls.exporter import ReloadingExporter, exporter_arguments
from services.tls.peer import identity_of
from tests.unit.tls.conftest import Transports


class Collector(pb_grpc.MetricsServiceServicer):
    def __init__(self) -> None:
        self.callers: list[str] = []

    def Export(self, request: pb.ExportMetricsServiceRequest, context: Any) -> pb.ExportMetricsServiceResponse:
        identity = identity_of(context)
        self.callers.append(identity.name if identity else "")
        return pb.ExportMetricsServiceResponse()


def settings_of(authority: LocalAuthority, otlp: str, role: str) -> Settings:
    issued = authority.issue_role(role, ["127.0.0.1"])
    return load(
        {
            "PELOTON_OTLP": otlp,
            "PELOTON_TLS_CA_FILE": str(authority.ca_file),
            "PELOTON_TLS_CERT_FILE": str(issued.cert),
            "PELOTON_TLS_KEY_FILE": str(issued.key),
        }
    )


def test_a_collector_sees_the_role(authority: LocalAuthority, transport_of: Transports) -> None:
    """An address with https is called by TLS with certificates of both sides."""
    collector, server = Collector(), grpc.server(ThreadPoolExecutor(1))
    add: Any = pb_grpc.add_MetricsServiceServicer_to_server
    add(collector, server)
    port = transport_of(authority.issue_role("api", ["127.0.0.1"])).bind(server, "127.0.0.1:0")
    server.start()
    settings = settings_of(authority, f"https://127.0.0.1:{port}", "worker")
    exporter = OTLPMetricExporter(endpoint=settings.otlp, **exporter_arguments(settings, {}))
    try:
        assert MetricExportResult.SUCCESS is exporter.export(MetricsData(resource_metrics=[]))
    finally:
        exporter.shutdown()
        server.stop(None).wait()

    assert ["spiffe://test/role/worker"] == collector.callers


@pytest.mark.parametrize("otlp", ["http://collector:4317", "collector:4317"])
def test_other_addresses_are_plain_text(authority: LocalAuthority, otlp: str) -> None:
    """The certificate of the process does not turn TLS on."""
    assert {"insecure": True} == exporter_arguments(settings_of(authority, otlp, "api"), {})


def test_variables_of_opentelemetry_come_first(authority: LocalAuthority) -> None:
    """A collector of another authority is configured as for any program with OpenTelemetry."""
    settings = settings_of(authority, "https://collector:4317", "api")

    assert {"insecure": False} == exporter_arguments(settings, {"OTEL_EXPORTER_OTLP_CERTIFICATE": "/ca.pem"})
    assert {"insecure": False} == exporter_arguments(load({"PELOTON_OTLP": "https://collector:4317"}), {})


def test_an_exporter_uses_a_new_certificate(authority: LocalAuthority, transport_of: Transports) -> None:
    """The next export after a change of the files comes with the new certificate."""
    collector, server = Collector(), grpc.server(ThreadPoolExecutor(1))
    add: Any = pb_grpc.add_MetricsServiceServicer_to_server
    add(collector, server)
    port = transport_of(authority.issue_role("api", ["127.0.0.1"])).bind(server, "127.0.0.1:0")
    server.start()
    settings = settings_of(authority, f"https://127.0.0.1:{port}", "worker")
    exporter = ReloadingExporter(OTLPMetricExporter, settings, {})
    try:
        assert MetricExportResult.SUCCESS is exporter.export(MetricsData(resource_metrics=[]))
        authority.issue("worker", "spiffe://test/role/hostmgr")
        assert MetricExportResult.SUCCESS is exporter.export(MetricsData(resource_metrics=[]))
        assert exporter._preferred_temporality is not None, "as the reader asks"
    finally:
        exporter.shutdown()
        server.stop(None).wait()

    assert ["spiffe://test/role/worker", "spiffe://test/role/hostmgr"] == collector.callers
