"""The store of secrets, and the codec of payloads, that the settings of a process choose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peloton.errors import InvalidSettings
from peloton.extras import require_extra
from peloton.ports import SecretStore
from services.secrets.encrypted import EncryptedSecrets
from services.secrets.keyring import KeyringFile
from services.secrets.vault import VaultSecrets
from services.secrets.vault_client import KUBERNETES, TOKEN, VaultClient, VaultSettings
from services.setting_groups.secrets import SecretsSettings
from services.storage.jobs.plain_secrets import PLAIN
from services.temporal.payloads import CONVERTER

if TYPE_CHECKING:
    from temporalio.converter import DataConverter

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount/token"


def open_keyring(settings: SecretsSettings) -> KeyringFile | None:
    """Return the keyring of the settings, if they name one. Raises InvalidArgument."""
    path = settings.secrets_keyring_file
    if not path:
        if settings.temporal_encryption:
            raise InvalidSettings("PELOTON_TEMPORAL_ENCRYPTION=true needs PELOTON_SECRETS_KEYRING_FILE")
        return None
    require_extra("secure", "cryptography", "PELOTON_SECRETS_KEYRING_FILE")
    return KeyringFile(path)


def make_converter(settings: SecretsSettings, keyring: KeyringFile | None) -> DataConverter:
    """Return the converter of Temporal's payloads. With a keyring it decrypts whether or not it encrypts."""
    if keyring is None:
        return CONVERTER
    from services.secrets.payload_codec import make_codec_converter

    return make_codec_converter(keyring, encrypts=settings.temporal_encryption)


def make_store(settings: SecretsSettings, keyring: KeyringFile | None) -> SecretStore:
    """Return the store of new secrets, which also reveals those that another one of the settings has held so far.

    Raises InvalidArgument.
    """
    is_in_vault = settings.secrets_provider == "vault"
    if not settings.vault_address:
        if is_in_vault:
            raise InvalidSettings("PELOTON_SECRETS_PROVIDER=vault needs PELOTON_VAULT_ADDRESS")
        return EncryptedSecrets(keyring, PLAIN) if keyring is not None else PLAIN
    if is_in_vault:
        return _open_vault(settings, EncryptedSecrets(keyring, PLAIN) if keyring is not None else PLAIN)
    if keyring is None:
        raise InvalidSettings("PELOTON_VAULT_ADDRESS needs PELOTON_SECRETS_PROVIDER=vault, or a keyring to leave it")
    return EncryptedSecrets(keyring, _open_vault(settings, PLAIN))


def _open_vault(settings: SecretsSettings, others: SecretStore) -> VaultSecrets:
    credential = settings.vault_credential_file
    if not credential and settings.vault_auth == KUBERNETES:
        credential = SERVICE_ACCOUNT
    if not credential:
        raise InvalidSettings(f"PELOTON_VAULT_AUTH={settings.vault_auth} needs PELOTON_VAULT_CREDENTIAL_FILE")
    if settings.vault_auth != TOKEN and not settings.vault_role:
        raise InvalidSettings(f"PELOTON_VAULT_AUTH={settings.vault_auth} needs PELOTON_VAULT_ROLE")
    client = VaultClient(
        VaultSettings(
            address=settings.vault_address,
            namespace=settings.vault_namespace,
            mount=settings.vault_mount.strip("/"),
            auth=settings.vault_auth,
            auth_mount=settings.vault_auth_mount.strip("/"),
            role=settings.vault_role,
            credential_file=credential,
            ca_file=settings.vault_ca_file,
            timeout_s=settings.vault_timeout_s,
        )
    )
    return VaultSecrets(client, settings.vault_path.strip("/"), others)
