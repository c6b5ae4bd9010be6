"""Secrets whose values are in Vault: a row has the path of its value, which is created once and never changed."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from peloton.errors import Unavailable
from peloton.model.ids import JobId
from peloton.model.secret import HeldSecret, Secret
from peloton.ports import SecretStore
from services.secrets.vault_client import VaultClient

VAULT = "vault"
"""Holder of rows whose data is a path."""
ORPHAN_S = 3_600.0
"""Age from which a value without a row is no part of a request under way."""


class VaultSecrets(SecretStore):
    """Values at PATH/JOB/RANDOM. ``others`` reveals rows of other holders."""

    holder = VAULT

    def __init__(self, client: VaultClient, path: str, others: SecretStore) -> None:
        self._client, self._path, self._others = client, path, others

    def is_remote(self, holder: str) -> bool:
        return holder == VAULT

    def hold(self, job_id: JobId, secret: Secret) -> HeldSecret:
        path = f"{self._folder(job_id)}/{uuid.uuid4()}"
        self._client.put(path, secret.data)
        return HeldSecret(secret.secret_id, secret.revision, VAULT, path.encode())

    def reveal(self, job_id: JobId, held: HeldSecret) -> bytes:
        if held.holder != VAULT:
            return self._others.reveal(job_id, held)
        path = held.data.decode(errors="replace")
        if not path.startswith(f"{self._folder(job_id)}/"):
            raise Unavailable(f"secret {held.secret_id} of job {job_id} refers to {path}, which is not one of its job")
        try:
            return self._client.get(path)
        except Unavailable as error:
            raise Unavailable(f"secret {held.secret_id} of job {job_id}: {error.message}") from None

    def forget_job(self, job_id: JobId) -> None:
        for name in self._client.list(self._folder(job_id)):
            self._client.delete(f"{self._folder(job_id)}/{name}")

    def sweep(self, references: Callable[[JobId], set[bytes]]) -> int:
        """Delete values to which no row refers, unless they are new; returns their number. Raises Unavailable."""
        deleted_count = 0
        for folder in self._client.list(self._path):
            job_id = JobId(folder.rstrip("/"))
            used = references(job_id)
            for name in self._client.list(self._folder(job_id)):
                path = f"{self._folder(job_id)}/{name}"
                if path.encode() not in used and self._client.age_s(path) > ORPHAN_S:
                    self._client.delete(path)
                    deleted_count += 1
        return deleted_count

    def _folder(self, job_id: JobId) -> str:
        return f"{self._path}/{uuid.UUID(job_id)}"
