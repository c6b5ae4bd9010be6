"""Settings of the secrets of jobs, and of the encryption of Temporal's payloads."""

from __future__ import annotations

from dataclasses import dataclass

from services.setting_rules import SERVERS, URL, WORD, one_of, setting


@dataclass(frozen=True)
class SecretsSettings:
    secrets_keyring_file: str = setting(
        "",
        f"{SERVERS} web",
        "file with the keys that encrypt the secrets of jobs in the database; empty: they are stored as they are. See "
        "[keyring](operations.md#the-keyring). Role `web` decrypts Temporal's payloads by it, for operators",
    )
    secrets_provider: str = setting(
        "database",
        SERVERS,
        "where the values of secrets are: `database`, or `vault`, to which rows then refer. See "
        "[Vault](operations.md#vault)",
        form=one_of("database", "vault"),
    )
    temporal_encryption: bool = setting(
        False, SERVERS, "whether the keyring encrypts the payloads of Temporal's histories; the same for all roles"
    )
    vault_address: str = setting("", SERVERS, "URL of Vault or OpenBao, such as `https://vault:8200`", form=URL)
    vault_namespace: str = setting("", SERVERS, "namespace of Vault Enterprise or OpenBao", form=WORD)
    vault_mount: str = setting("secret", SERVERS, "mount of the key-value secrets engine, version 2", form=WORD)
    vault_path: str = setting("peloton", SERVERS, "path below the mount, for this Peloton alone", form=WORD)
    vault_auth: str = setting(
        "token", SERVERS, "how roles sign in at Vault", form=one_of("token", "approle", "kubernetes")
    )
    vault_auth_mount: str = setting("", SERVERS, "mount of the sign-in; empty: the name of its method", form=WORD)
    vault_role: str = setting("", SERVERS, "role id of the AppRole, or the role of the Kubernetes sign-in", form=WORD)
    vault_credential_file: str = setting(
        "",
        SERVERS,
        "file with the token, with the secret id of the AppRole, or with the token of a service account; it is read "
        "again at each sign-in. Empty: the service account of the pod",
    )
    vault_ca_file: str = setting(
        "", SERVERS, "PEM file of the authorities whose certificates Vault may have; empty: those of this machine"
    )
    vault_timeout_s: float = setting(5.0, SERVERS, "seconds that Vault has for an answer", low=0.1, high=60)
