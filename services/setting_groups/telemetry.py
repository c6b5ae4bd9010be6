"""Settings of logs, metrics, health and time series."""

from __future__ import annotations

from dataclasses import dataclass

from services.setting_rules import ALL, ENDPOINT, PORT_MAX, SERVERS, WORD, one_of, setting


@dataclass(frozen=True)
class TelemetrySettings:
    history_period_s: int = setting(
        60,
        "resmgr",
        "seconds between samples of the [time series](operations.md#time-series) of pools and clusters; they divide "
        "a minute; 0: none are recorded",
        low=0,
        high=60,
    )
    otlp: str = setting(
        "",
        ALL,
        "OTLP gRPC endpoint for metrics and traces, such as `http://collector:4317`, or `https://...` for "
        "[TLS](transport.md#otlp); empty: none are exported",
        form=ENDPOINT,
    )
    trace_ratio: float = setting(
        0.0,
        SERVERS,
        "share of the calls of clients that are [traced](observability.md#traces) and sent to `PELOTON_OTLP`; 0: none",
        low=0,
        high=1,
    )
    metrics_port: int = setting(
        0,
        ALL,
        "port at which Prometheus scrapes the [metrics](observability.md) of the process, `/metrics`; 0: none",
        low=0,
        high=PORT_MAX,
    )
    metrics_host: str = setting(
        "127.0.0.1", ALL, "address on which that port listens; beyond loopback by TLS, as all ports of roles", form=WORD
    )
    temporal_metrics_port: int = setting(
        0,
        SERVERS,
        "port on loopback at which Prometheus scrapes the metrics of Temporal's SDK, `/metrics`; 0: none",
        low=0,
        high=PORT_MAX,
    )
    health_file: str = setting(
        "",
        ALL,
        "file in which the process states its [health](operations.md#health) every two seconds; empty: none",
    )
    log_level: str = setting(
        "INFO", ALL, "DEBUG, INFO, WARNING or ERROR", form=one_of("DEBUG", "INFO", "WARNING", "ERROR")
    )
    log_format: str = setting(
        "text", ALL, "lines for people, or a JSON object per [line](observability.md#logs)", form=one_of("text", "json")
    )
