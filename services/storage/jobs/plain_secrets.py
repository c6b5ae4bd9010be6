"""The store of secrets that keeps them in their rows as they are."""

from __future__ import annotations

from peloton.errors import Unavailable
from peloton.model.ids import JobId
from peloton.model.secret import HeldSecret, Secret
from peloton.ports import SecretStore


class PlainSecrets(SecretStore):
    holder = ""

    def is_remote(self, holder: str) -> bool:
        return False

    def hold(self, job_id: JobId, secret: Secret) -> HeldSecret:
        return HeldSecret(secret.secret_id, secret.revision, "", secret.data)

    def reveal(self, job_id: JobId, held: HeldSecret) -> bytes:
        if held.holder:
            raise Unavailable(
                f"secret {held.secret_id} of job {job_id} is held by {held.holder}, for which this process has no "
                f"settings: set PELOTON_SECRETS_KEYRING_FILE or PELOTON_SECRETS_PROVIDER as the other roles have it"
            )
        return held.data

    def forget_job(self, job_id: JobId) -> None:
        """Do nothing: rows are deleted with their job."""


PLAIN = PlainSecrets()
