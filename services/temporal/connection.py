"""Connection of a process to Temporal: address, namespace, TLS, API key.

All of it is Temporal's own client configuration, from the variables ``TEMPORAL_*`` and its configuration file: a
secured cluster or Temporal Cloud needs no settings of Peloton, which may only set address and namespace.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from temporalio.client import (
    Client,
    Interceptor,
    OutboundInterceptor,
    QueryWorkflowInput,
    SignalWorkflowInput,
    StartWorkflowInput,
    StartWorkflowUpdateInput,
    WorkflowHandle,
    WorkflowUpdateHandle,
)
from temporalio.common import HeaderCodecBehavior
from temporalio.converter import DataConverter
from temporalio.envconfig import ClientConfigProfile, ClientConnectConfig
from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
    TelemetryFilter,
)
from temporalio.service import ConnectConfig, RPCError, RPCStatusCode, ServiceClient

from peloton.errors import InvalidArgument, InvalidSettings
from peloton.model.job import END_HEADER, JobEnd
from services.telemetry import state
from services.telemetry.logs import SDK_LOGGER
from services.telemetry.metrics import counter, histogram, timing
from services.telemetry.traces import WHAT as TRACES
from services.temporal.payloads import CONVERTER
from services.temporal.renewal import RenewableConnection

CAUSE: ContextVar[str] = ContextVar("cause", default="")
"""Header of a signal that holds its cause. Histories show it, encrypted where payloads are, and workflows of other
versions ignore it."""
END: ContextVar[JobEnd | None] = ContextVar("end", default=None)
"""Header of a signal with the end of a job, which workflows of other versions ignore as well: they read the rows."""
HEARTBEAT = timedelta(seconds=2)
"""Interval of worker heartbeats. They list the live workers, and show within 10 s that none is left."""
DEFAULT_ADDRESS, DEFAULT_NAMESPACE = "localhost:7233", "default"
_ANSWERS = {RPCStatusCode.NOT_FOUND, RPCStatusCode.ALREADY_EXISTS}
_DURATIONS, _ERRORS = histogram("peloton.temporal.duration"), counter("peloton.temporal.errors")
_SDK_LOGS = LoggingConfig(
    TelemetryFilter(core_level="WARN", other_level="ERROR"),
    LogForwardingConfig(logging.getLogger(SDK_LOGGER), append_target_to_name=False),
)
VARIABLES, CONFIG_FILE = "TEMPORAL_", "TEMPORAL_CONFIG_FILE"


def connect_config(
    address: str = "", namespace: str = "", environment: Mapping[str, str] = os.environ
) -> ClientConnectConfig:
    """Return the client configuration. Raises InvalidArgument for an invalid profile, file or value."""
    file = environment.get(CONFIG_FILE, "")
    if file and not Path(file).exists():
        raise InvalidArgument(f"{CONFIG_FILE}={file}: no such file")
    ours = {name: value for name, value in environment.items() if value or not name.startswith(VARIABLES)}
    try:
        config = ClientConfigProfile.load(override_env_vars=ours).to_client_connect_config()
    except (RuntimeError, OSError, ValueError) as error:
        raise InvalidArgument(f"Temporal's client configuration ({VARIABLES}*): {error}") from None
    config["target_host"] = address or config.get("target_host", DEFAULT_ADDRESS)
    config["namespace"] = namespace or config.get("namespace", DEFAULT_NAMESPACE)
    return config


@cache
def _runtime(metrics_address: str) -> Runtime:
    """Raises InvalidSettings when the address of the SDK's own metrics cannot be bound."""
    exported = PrometheusConfig(metrics_address, durations_as_seconds=True) if metrics_address else None
    try:
        telemetry = TelemetryConfig(metrics=exported, logging=_SDK_LOGS)
        return Runtime(telemetry=telemetry, worker_heartbeat_interval=HEARTBEAT)
    except (RuntimeError, ValueError) as error:
        raise InvalidSettings(f"metrics of Temporal's SDK: cannot listen on {metrics_address}: {error}") from error


async def connect(
    config: ClientConnectConfig,
    role: str = "",
    *,
    is_lazy: bool = True,
    metrics_address: str = "",
    converter: DataConverter = CONVERTER,
) -> Client:
    """Return a client whose connection can be renewed. A lazy one connects with its first call, so a process may start
    before Temporal does. ``role`` is the sender of a signal in histories, with the host, the process id (always 1 in a
    container) and a part that is unique to this client. ``metrics_address``: where Prometheus scrapes the SDK's own
    metrics; empty: nowhere.
    """
    identity = f"{role or 'peloton'}@{socket.gethostname()}/{os.getpid()}-{secrets.token_hex(4)}"
    connection = ConnectConfig(
        config["target_host"],
        config.get("api_key"),
        config.get("tls"),
        rpc_metadata=config.get("rpc_metadata", {}),
        lazy=is_lazy,
        identity=identity,
        runtime=_runtime(metrics_address),
    )
    return Client(
        RenewableConnection(await ServiceClient.connect(connection)),
        namespace=config["namespace"],
        data_converter=converter,
        header_codec_behavior=HeaderCodecBehavior.CODEC if converter.payload_codec else HeaderCodecBehavior.NO_CODEC,
        interceptors=[*_trace_workflows(), _Causes()],
    )


def _trace_workflows() -> list[Interceptor]:
    """Return the interceptor that continues traces in workflows and activities, by headers and never by events."""
    if not state.has(TRACES):
        return []
    from services.telemetry.workflow_traces import SampledTraces

    return [SampledTraces()]


class _Causes(Interceptor):
    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _WithCause(next)


class _WithCause(OutboundInterceptor):
    async def signal_workflow(self, input: SignalWorkflowInput) -> None:
        _add_cause(input)
        if end := END.get():
            input.headers = {**input.headers, END_HEADER: CONVERTER.payload_converter.to_payload(end)}
        with _measuring("signal"):
            await super().signal_workflow(input)

    async def start_workflow(self, input: StartWorkflowInput) -> WorkflowHandle[Any, Any]:
        _add_cause(input)
        with _measuring("start"):
            return await super().start_workflow(input)

    async def query_workflow(self, input: QueryWorkflowInput) -> Any:
        with _measuring("query"):
            return await super().query_workflow(input)

    async def start_workflow_update(self, input: StartWorkflowUpdateInput) -> WorkflowUpdateHandle[Any]:
        with _measuring("update"):
            return await super().start_workflow_update(input)


@contextmanager
def _measuring(call: str) -> Iterator[None]:
    """Measure a call; a workflow that does not exist, or exists already, is an answer and no error."""
    labels = {"call": call}
    try:
        with timing(_DURATIONS, labels):
            yield
    except RPCError as error:
        if error.status not in _ANSWERS:
            _ERRORS.add(1, labels)
        raise


def _add_cause(input: SignalWorkflowInput | StartWorkflowInput) -> None:
    if cause := CAUSE.get():
        input.headers = {**input.headers, "cause": CONVERTER.payload_converter.to_payload(cause)}
