"""Rotation of the secrets of jobs: all are moved to the store in the settings, encrypted with its newest key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from peloton.errors import Aborted, InvalidArgument
from services.secrets.encrypted import KEY
from services.secrets.stores import make_store, open_keyring
from services.secrets.vault import VaultSecrets
from services.settings import load
from services.storage import schema_version
from services.storage.jobs.config_values import ConfigValues
from services.storage.storage import Storage

LEFT_MAX = 10
"""Jobs with values left in their configurations that are named."""


@dataclass(frozen=True)
class Rotation:
    """Counts of a rotation. ``holders`` has the secrets by holder after it, ``unused`` the keys without any."""

    job_count: int
    secret_count: int
    holder: str
    holders: dict[str, int]
    unused: tuple[str, ...]
    deleted_count: int  # values in Vault without a row
    encrypts_payloads: bool
    taken_count: int  # values that were in configurations
    left: tuple[str, ...]  # why values are left in configurations, of LEFT_MAX jobs
    left_count: int


def rotate_secrets(config: str, on_progress: Callable[[int, int], None]) -> Rotation:
    """Rotate the secrets of the database that the settings name, while roles run; an interrupted rotation continues.

    ``on_progress`` receives the numbers of jobs and secrets so far. Raises Unavailable and InvalidArgument.
    """
    settings = load(config=config)
    url = settings.require_database()
    schema_version.check(url)
    keyring = open_keyring(settings)
    store = make_store(settings, keyring)
    storage = Storage(url, pool_size=1, secrets=store)
    job_count = secret_count = 0
    try:
        taken_count, left, left_count = _take_values_out(ConfigValues(storage.db, store))
        for job_id in storage.secrets.jobs_held_elsewhere():
            secret_count += storage.secrets.hold_again(job_id)
            job_count += 1
            on_progress(job_count, secret_count)
        deleted_count = store.sweep(storage.secrets.references) if isinstance(store, VaultSecrets) else 0
        holders = storage.secrets.count_holders()
    finally:
        storage.close()
    unused: list[str] = []
    if keyring is not None:
        keys = keyring.keyring
        unused = sorted(key for key in keys.keys if KEY + key not in holders and key != keys.active)
    return Rotation(
        job_count,
        secret_count,
        store.holder,
        holders=holders,
        unused=tuple(unused),
        deleted_count=deleted_count,
        encrypts_payloads=settings.temporal_encryption,
        taken_count=taken_count,
        left=tuple(left),
        left_count=left_count,
    )


def _take_values_out(values: ConfigValues) -> tuple[int, list[str], int]:
    """Make values in configurations secrets of their jobs; return their number, why others are left, of LEFT_MAX jobs,
    and the number of these jobs."""
    count, left, left_count = 0, list[str](), 0
    for job_id in values.jobs_with_values():
        try:
            count += values.take_out(job_id)
        except (InvalidArgument, Aborted) as error:
            left_count += 1
            if len(left) < LEFT_MAX:
                left.append(str(error))
    return count, left, left_count
