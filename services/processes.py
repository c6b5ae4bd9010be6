"""Report of this process to the database, by which the doctor compares the processes of a control plane."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from peloton.model.diagnosis import ProcessRecord
from peloton.release import read_version
from services.secrets.keyring import KeyringFile
from services.settings import Settings
from services.storage.processes import Processes
from services.temporal import connection as temporal_connection

log = logging.getLogger(__name__)

PERIOD_S = 30.0
LEAVE_S = 1.0
"""Seconds for the deletion of the row when the process ends."""
CLIENTS = frozenset({"web", "aurorabridge"})
"""Roles without a database."""
VALUE_MAX = 2_000
"""Maximum length of a reported value in characters."""


@asynccontextmanager
async def reporting(
    processes: Processes, roles: Sequence[str], settings: Settings, keyring: KeyringFile | None
) -> AsyncIterator[None]:
    """Report regularly until the block ends; then delete the report, unless storage does not answer."""
    stopping = threading.Event()
    thread = threading.Thread(
        target=_report, args=(processes, roles, settings, keyring, stopping), name="report of the process", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        await asyncio.to_thread(thread.join, LEAVE_S)


def _report(
    processes: Processes,
    roles: Sequence[str],
    settings: Settings,
    keyring: KeyringFile | None,
    stopping: threading.Event,
) -> None:
    process_id, role, version = name_process(), "+".join(roles), read_version()
    while not stopping.is_set():
        try:
            shared = collect_settings(roles, settings, keyring)
            processes.put(ProcessRecord(process_id, role, version, shared), time.time_ns())
        except Exception as error:  # a process works without its report
            log.info("process not reported: %s", error)
        stopping.wait(PERIOD_S)
    try:
        processes.remove(process_id, role)
    except Exception as error:
        log.debug("report of the process not deleted: %s", error)


def name_process() -> str:
    """Return the id of this process among those of a control plane."""
    return f"{socket.gethostname()}:{os.getpid()}"


def collect_settings(roles: Sequence[str], settings: Settings, keyring: KeyringFile | None) -> dict[str, str]:
    """Return the values that must be equal in all processes, by the names of their settings. None of them is secret.

    Raises InvalidArgument for a keyring that was damaged.
    """
    values: dict[str, str] = {}
    if set(roles) - CLIENTS:
        values |= _read_of_all(settings)
        values["keys of PELOTON_SECRETS_KEYRING_FILE"] = ", ".join(sorted(keyring.keyring.keys)) if keyring else ""
    if "web" in roles:
        values |= _read_of_pages(settings)
    if "aurorabridge" in roles:
        values |= _read_of_bridges(settings)
    if "api" in roles:
        values |= _read_of_apis(settings)
    return {name: value[:VALUE_MAX] for name, value in values.items()}


def _read_of_all(settings: Settings) -> dict[str, str]:
    config = temporal_connection.connect_config(settings.temporal, settings.temporal_namespace)
    return {
        "PELOTON_TEMPORAL_NAMESPACE": config["namespace"],
        "PELOTON_TEMPORAL_ENCRYPTION": str(settings.temporal_encryption).lower(),
        "PELOTON_SECRETS_PROVIDER": settings.secrets_provider,
        "PELOTON_VAULT_ADDRESS": _without_credentials(settings.vault_address),
        "PELOTON_VAULT_MOUNT": settings.vault_mount.strip("/"),
        "PELOTON_VAULT_NAMESPACE": settings.vault_namespace,
    }


def _read_of_apis(settings: Settings) -> dict[str, str]:
    return {
        "PELOTON_AUTH_OIDC_ISSUER": _without_credentials(settings.auth_oidc_issuer),
        "PELOTON_AUTH_OIDC_AUDIENCE": settings.auth_oidc_audience,
    }


def _read_of_pages(settings: Settings) -> dict[str, str]:
    """Return what pages must have in common, and with apis where it is set: users may sign in with tokens alone."""
    values = {"PELOTON_WEB_SESSION_S": str(settings.web_session_s)}
    if settings.auth_oidc_issuer:
        values["PELOTON_AUTH_OIDC_ISSUER"] = _without_credentials(settings.auth_oidc_issuer)
        values["PELOTON_AUTH_OIDC_AUDIENCE"] = settings.auth_oidc_audience
    return values


def _read_of_bridges(settings: Settings) -> dict[str, str]:
    return {
        "PELOTON_AURORA_POOL": settings.aurora_pool,
        "PELOTON_AURORA_GPU_POOL": settings.aurora_gpu_pool,
        "PELOTON_AURORA_THERMOS": _without_credentials(settings.aurora_thermos),
        "PELOTON_AURORA_KAFKA_URL": _without_credentials(settings.aurora_kafka_url),
    }


def _without_credentials(url: str) -> str:
    """Return the URL without a user, a password, a query and a fragment, which may be secret."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
