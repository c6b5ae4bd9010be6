"""A minimal collector of metrics and spans, for the histograms of roles with ``PELOTON_OTLP``."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as pb
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as pb_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_pb_grpc


@dataclass
class Histogram:
    count: int = 0
    total: float = 0.0
    buckets: list[int] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)

    def since(self, before: Histogram) -> Histogram:
        old = before.buckets or [0] * len(self.buckets)
        mine = [now - then for now, then in zip(self.buckets, old, strict=True)]
        return Histogram(self.count - before.count, self.total - before.total, mine, self.bounds)

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def below(self, share: float) -> float:
        """The least bound that this share of all values does not exceed; infinite beyond the last one."""
        seen = 0
        for count, bound in zip(self.buckets, [*self.bounds, float("inf")], strict=True):
            seen += count
            if seen >= share * self.count:
                return bound
        return 0.0


class Collector(pb_grpc.MetricsServiceServicer):
    def __init__(self) -> None:
        self.histograms: dict[str, Histogram] = {}

    def Export(self, request: pb.ExportMetricsServiceRequest, context: Any) -> pb.ExportMetricsServiceResponse:
        for scope in (scope for resource in request.resource_metrics for scope in resource.scope_metrics):
            for metric in scope.metrics:
                if not metric.histogram.data_points or metric.histogram.data_points[0].attributes:
                    continue
                point = metric.histogram.data_points[0]
                found = Histogram(point.count, point.sum, list(point.bucket_counts), list(point.explicit_bounds))
                self.histograms[metric.name] = found
        return pb.ExportMetricsServiceResponse()

    def histogram(self, name: str) -> Histogram:
        return self.histograms.get(name, Histogram())


class Traces(trace_pb_grpc.TraceServiceServicer):
    """Takes spans, and forgets them."""

    def Export(self, request: trace_pb.ExportTraceServiceRequest, context: Any) -> trace_pb.ExportTraceServiceResponse:
        return trace_pb.ExportTraceServiceResponse()


@contextmanager
def run_collector() -> Iterator[tuple[Collector, dict[str, str]]]:
    """A running collector, and the environment of processes that are to report to it every second."""
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(1, thread_name_prefix="collector"))
    pb_grpc.add_MetricsServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    trace_pb_grpc.add_TraceServiceServicer_to_server(Traces(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield (
            collector,
            {"PELOTON_OTLP": f"http://127.0.0.1:{port}", "OTEL_METRIC_EXPORT_INTERVAL": "1000"},
        )
    finally:
        server.stop(None).wait()
