"""Takes metrics at the port of the OpenTelemetry collector's receiver, and prints the name of each once."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import yaml
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as pb
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as pb_grpc


class Collector(pb_grpc.MetricsServiceServicer):
    def __init__(self) -> None:
        self._names: set[str] = set()

    def Export(self, request: pb.ExportMetricsServiceRequest, context: Any) -> pb.ExportMetricsServiceResponse:
        scopes = [scope for resource in request.resource_metrics for scope in resource.scope_metrics]
        names = {metric.name for scope in scopes for metric in scope.metrics} - self._names
        self._names |= names
        for name in sorted(names):
            print(name, flush=True)
        return pb.ExportMetricsServiceResponse()


def main(option: str) -> None:
    with open(option.removeprefix("--config=")) as file:
        endpoint = yaml.safe_load(file)["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    server = grpc.server(ThreadPoolExecutor(1))
    pb_grpc.add_MetricsServiceServicer_to_server(Collector(), server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(endpoint)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(sys.argv[1])
