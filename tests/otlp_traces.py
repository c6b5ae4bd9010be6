"""A receiver of traces by OTLP, for roles with ``PELOTON_OTLP``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_pb_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as pb_grpc


class Ignored(metrics_pb_grpc.MetricsServiceServicer):
    """Metrics, which the same endpoint receives."""

    def Export(self, request: Any, context: Any) -> metrics_pb.ExportMetricsServiceResponse:
        return metrics_pb.ExportMetricsServiceResponse()


class Traces(pb_grpc.TraceServiceServicer):
    """The spans of each trace, with the service that each is of."""

    def __init__(self) -> None:
        self.spans: dict[str, list[tuple[str, Any]]] = defaultdict(list)
        self.address = ""

    def Export(self, request: pb.ExportTraceServiceRequest, context: Any) -> pb.ExportTraceServiceResponse:
        for resource in request.resource_spans:
            names = {one.key: one.value.string_value for one in resource.resource.attributes}
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                self.spans[span.trace_id.hex()].append((names["service.name"], span))
        return pb.ExportTraceServiceResponse()

    def hops(self, trace_id: str) -> set[tuple[str, str]]:
        """Return the services and the names of the spans of a trace."""
        return {(service, span.name) for service, span in list(self.spans[trace_id])}

    def orphans(self, trace_id: str) -> set[str]:
        """Return the parents that are no spans of the trace."""
        spans = [span for _, span in self.spans[trace_id]]
        return {span.parent_span_id.hex() for span in spans} - {span.span_id.hex() for span in spans}


@contextmanager
def receiving_traces() -> Iterator[Traces]:
    traces = Traces()
    server = grpc.server(ThreadPoolExecutor(2))
    add_traces: Any = pb_grpc.add_TraceServiceServicer_to_server
    add_metrics: Any = metrics_pb_grpc.add_MetricsServiceServicer_to_server
    add_traces(traces, server)
    add_metrics(Ignored(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    traces.address = f"http://127.0.0.1:{port}"
    server.start()
    try:
        yield traces
    finally:
        server.stop(None).wait()
