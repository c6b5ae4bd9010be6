"""TLS of the exporters of metrics and traces."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import grpc

from peloton.api.tls_files import Pem, PemFiles, TlsPaths, read_pem_files
from services.settings import Settings

OTLP_CA_FILE = "OTEL_EXPORTER_OTLP_CERTIFICATE"


class ReloadingExporter:
    """An exporter that is made again when the TLS files have changed; otherwise it does what the one inside does."""

    def __init__(
        self, make: Callable[..., Any], settings: Settings, environment: Mapping[str, str] = os.environ
    ) -> None:
        """``make``: the class of the exporter. Raises InvalidArgument naming a file."""
        self._make, self._endpoint = make, settings.otlp
        self._files = _files_of(settings, environment)
        self._generation = self._files.generation if self._files is not None else 0
        self._inner = make(endpoint=settings.otlp, **exporter_arguments(settings, environment))

    def export(self, *arguments: Any, **named: Any) -> Any:
        """Export, by a new connection when the files have changed since the last one was made."""
        if self._files is not None:
            pem = self._files.get()
            if self._generation != self._files.generation:
                self._generation = self._files.generation
                before, self._inner = self._inner, self._make(endpoint=self._endpoint, **_arguments_of(pem))
                before.shutdown()
        return self._inner.export(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def exporter_arguments(settings: Settings, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the arguments of an OTLP exporter: TLS for an address with https.

    OpenTelemetry's own variables come first; else the files of the process, as they are now, prove both sides. Raises
    InvalidArgument naming a file.
    """
    files = _files_of(settings, environment)
    return _arguments_of(files.get()) if files is not None else {"insecure": not _speaks_tls(settings)}


def _arguments_of(pem: Pem) -> dict[str, Any]:
    return {"insecure": False, "credentials": grpc.ssl_channel_credentials(pem.ca, pem.key, pem.cert)}


def _speaks_tls(settings: Settings) -> bool:
    return settings.otlp.startswith("https://")


def _files_of(settings: Settings, environment: Mapping[str, str]) -> PemFiles | None:
    """Return the files of the process, if an exporter uses them. Raises InvalidArgument naming a file."""
    if not _speaks_tls(settings) or environment.get(OTLP_CA_FILE) or not settings.tls_cert_file:
        return None
    return read_pem_files(TlsPaths(settings.tls_ca_file, settings.tls_cert_file, settings.tls_key_file))
