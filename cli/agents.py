"""The access of commands to the agents of Mesos, which serve files and sessions themselves."""

from __future__ import annotations

import http.client
import os
from collections.abc import Mapping
from functools import cache

from peloton.api.mesos_access import MesosAccess, TlsFiles, read_access

TIMEOUT_S = 20.0


@cache
def access() -> MesosAccess:
    """Return the access that the environment sets, by the host manager's names. Raises InvalidArgument."""
    return access_from(os.environ)


def access_from(environment: Mapping[str, str]) -> MesosAccess:
    def value(name: str) -> str:
        return environment.get(f"PELOTON_MESOS_{name}", "")

    files = TlsFiles(
        value("TLS_CA_FILE"), value("TLS_CERT_FILE"), value("TLS_KEY_FILE"), is_true(value("TLS_NAMES") or "true")
    )
    return read_access(value("PRINCIPAL"), value("SECRET_FILE"), is_true(value("TLS")), files)


def is_true(text: str) -> bool:
    return text.lower() in ("true", "1", "yes", "on")


def connect(host: str, port: str, timeout_s: float = TIMEOUT_S) -> http.client.HTTPConnection:
    return access().connection(host, int(port), timeout_s)
