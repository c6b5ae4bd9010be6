"""The store of secrets that encrypts their rows by the keyring."""

from __future__ import annotations

from uuid import UUID

from peloton.errors import InvalidArgument, Unavailable
from peloton.model.ids import JobId
from peloton.model.secret import HeldSecret, Secret
from peloton.ports import SecretStore
from services.secrets.keyring import KeyringFile

KEY = "key:"
"""Beginning of the holder of an encrypted row; the id of the key follows."""


class EncryptedSecrets(SecretStore):
    """Rows that the keyring encrypts, each bound to its job and id. ``others`` reveals rows of other
    holders."""

    def __init__(self, keyring: KeyringFile, others: SecretStore) -> None:
        self._keyring, self._others = keyring, others

    def is_remote(self, holder: str) -> bool:
        return not holder.startswith(KEY) and self._others.is_remote(holder)

    @property
    def holder(self) -> str:
        return KEY + self._keyring.keyring.active

    def hold(self, job_id: JobId, secret: Secret) -> HeldSecret:
        key_id, data = self._keyring.keyring.encrypt(secret.data, _bound_to(job_id, secret.secret_id))
        return HeldSecret(secret.secret_id, secret.revision, KEY + key_id, data)

    def reveal(self, job_id: JobId, held: HeldSecret) -> bytes:
        if not held.holder.startswith(KEY):
            return self._others.reveal(job_id, held)
        key_id = held.holder.removeprefix(KEY)
        try:
            return self._keyring.holding(key_id).decrypt(key_id, held.data, _bound_to(job_id, held.secret_id))
        except (Unavailable, InvalidArgument) as error:
            raise Unavailable(f"secret {held.secret_id} of job {job_id}: {error.message}") from None

    def forget_job(self, job_id: JobId) -> None:
        """Do nothing: rows are deleted with their job."""


def _bound_to(job_id: JobId, secret_id: str) -> bytes:
    return f"secret {UUID(secret_id)} of job {UUID(job_id)}".encode()
