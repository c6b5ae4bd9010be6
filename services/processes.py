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
from services import temporal_connection
from services.secrets.keyring import KeyringFile
from services.settings import Settings
from services.storage.processes import Processes

log = logging.getLogger(__name__)

PERIOD_S = 30.0
LEAVE_S = 1.0
"""Seconds for the deletion of the row when the process ends."""
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
    process_id, version = f"{socket.gethostname()}:{os.getpid()}", read_version()
    while not stopping.is_set():
        try:
            shared = collect_settings(roles, settings, keyring)
            processes.put(ProcessRecord(process_id, "+".join(roles), version, shared), time.time_ns())
        except Exception as error:  # a process works without its report
            log.info("process not reported: %s", error)
        stopping.wait(PERIOD_S)
    try:
        processes.remove(process_id)
    except Exception as error:
        log.debug("report of the process not deleted: %s", error)


def collect_settings(roles: Sequence[str], settings: Settings, keyring: KeyringFile | None) -> dict[str, str]:
    """Return the values that must be equal in all processes, by the names of their settings. None of them is secret.

    Raises InvalidArgument for a keyring that was damaged.
    """
    values = _read_of_all(settings)
    values["keys of PELOTON_SECRETS_KEYRING_FILE"] = ", ".join(sorted(keyring.keyring.keys)) if keyring else ""
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


def _without_credentials(url: str) -> str:
    """Return the URL without a user, a password, a query and a fragment, which may be secret."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
