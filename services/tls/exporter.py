"""TLS of the exporters of metrics and traces."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import grpc

from peloton.api.tls_files import ReloadingFiles, TlsPaths
from services.settings import Settings

OTLP_CA_FILE = "OTEL_EXPORTER_OTLP_CERTIFICATE"


def exporter_arguments(settings: Settings, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the arguments of an OTLP exporter: TLS for an address with https.

    OpenTelemetry's own variables come first; else the files of the process, as they are now, prove both sides. Raises
    InvalidArgument naming a file.
    """
    if not settings.otlp.startswith("https://"):
        return {"insecure": True}
    if environment.get(OTLP_CA_FILE) or not settings.tls_cert_file:
        return {"insecure": False}
    paths = TlsPaths(settings.tls_ca_file, settings.tls_cert_file, settings.tls_key_file)
    pem = ReloadingFiles(paths).read()
    return {"insecure": False, "credentials": grpc.ssl_channel_credentials(pem.ca, pem.key, pem.cert)}
