"""Secrets in Vault, against an emulation of its documented API; ``VAULT_ADDR`` and ``VAULT_TOKEN`` add a real one."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from peloton.errors import InvalidSettings, Unavailable
from peloton.model.ids import new_job_id
from peloton.model.secret import HeldSecret, Secret
from services.secrets.stores import make_store, open_keyring
from services.secrets.vault import VaultSecrets
from services.secrets.vault_client import VaultClient, VaultSettings
from services.settings import Settings
from services.storage.jobs.plain_secrets import PLAIN
from tests.doubles.vault import ROOT_TOKEN, FakeVault

SECRET = Secret("00000000-0000-4000-8000-000000000001", "/run/key", b"open sesame \x00\xff", 2)


@pytest.fixture
def vault() -> Iterator[FakeVault]:
    vault = FakeVault(namespace="team/a")
    yield vault
    vault.close()


def settings_of(vault: FakeVault, tmp_path: Path, credential: str = ROOT_TOKEN) -> VaultSettings:
    file = tmp_path / "credential"
    file.write_text(credential + "\n")
    return VaultSettings(
        address=vault.address,
        namespace=vault.namespace,
        mount="secret",
        auth="token",
        auth_mount="",
        role="",
        credential_file=str(file),
        ca_file="",
        timeout_s=5.0,
    )


def store_of(settings: VaultSettings) -> VaultSecrets:
    return VaultSecrets(VaultClient(settings), "peloton", PLAIN)


@pytest.fixture(params=["emulated", "real"])
def store(request: pytest.FixtureRequest, vault: FakeVault, tmp_path: Path) -> VaultSecrets:
    settings = settings_of(vault, tmp_path)
    if request.param == "real":
        if not (address := os.environ.get("VAULT_ADDR")):
            pytest.skip("VAULT_ADDR names no Vault")
        settings = replace(settings, address=address, namespace="")
        Path(settings.credential_file).write_text(os.environ["VAULT_TOKEN"])
    return store_of(settings)


def test_a_row_refers_to_a_value(store: VaultSecrets) -> None:
    """Each value has a path of its own below the job's; those of a deleted job are deleted, and only those."""
    job_id, other = new_job_id(), new_job_id()
    rows = [store.hold(job_id, SECRET), store.hold(job_id, SECRET), store.hold(other, SECRET)]

    assert [("vault", 2)] * 3 == [(row.holder, row.revision) for row in rows]
    assert [SECRET.data] * 2 == [store.reveal(job_id, row) for row in rows[:2]]
    assert 3 == len({row.data for row in rows})
    assert all(row.data.startswith(b"peloton/") for row in rows)
    with pytest.raises(Unavailable, match=f"refers to peloton/{other}/.*, which is not one of its job"):
        store.reveal(job_id, rows[2])

    store.forget_job(job_id)
    store.forget_job(job_id)

    with pytest.raises(Unavailable, match=f"{SECRET.secret_id} of job {job_id}: Vault at http.* has no value at"):
        store.reveal(job_id, rows[0])
    assert SECRET.data == store.reveal(other, rows[2])
    store.forget_job(other)


def test_values_without_rows_are_deleted_when_they_are_old(vault: FakeVault, tmp_path: Path) -> None:
    """A new value may be one of a request under way."""
    store, job_id = store_of(settings_of(vault, tmp_path)), new_job_id()
    vault.age = timedelta(hours=2)
    used, _ = store.hold(job_id, SECRET), store.hold(job_id, SECRET)
    vault.age = timedelta()
    store.hold(job_id, SECRET)

    assert ([1, 0], 2) == ([store.sweep(lambda _: {used.data}) for _ in range(2)], len(vault.values))
    assert SECRET.data == store.reveal(job_id, used)


@pytest.mark.parametrize("method", ["approle", "kubernetes"])
def test_a_sign_in_lasts_until_its_token_is_refused(vault: FakeVault, tmp_path: Path, method: str) -> None:
    """One sign-in serves many calls; a revoked token is replaced at once."""
    settings = replace(settings_of(vault, tmp_path, "s3cret"), auth=method, role="peloton")
    store, job_id = store_of(settings), new_job_id()
    rows = [store.hold(job_id, SECRET) for _ in range(3)]
    before = vault.logins
    vault.tokens.clear()

    assert (1, SECRET.data, 2) == (before, store.reveal(job_id, rows[0]), vault.logins)

    with pytest.raises(Unavailable, match=f"answered 400 .invalid role or secret ID. for auth/{method}/login"):
        store_of(replace(settings, role="other")).hold(job_id, SECRET)


def test_a_vault_that_is_down_or_sealed_is_unavailable(vault: FakeVault, tmp_path: Path) -> None:
    """The error names the Vault, never a value or a token."""
    settings, job_id = settings_of(vault, tmp_path), new_job_id()
    row = store_of(settings).hold(job_id, SECRET)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hung = f"http://user:pass@127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(Unavailable, match=r"Vault at http://127.0.0.1:\d+ does not answer: timed out"):
            store_of(replace(settings, address=hung, timeout_s=0.1)).hold(job_id, SECRET)
    vault.fault = 503
    with pytest.raises(Unavailable, match=r"Vault at \S+ answered 503 .Vault is sealed. for peloton/"):
        store_of(settings).reveal(job_id, row)
    vault.fault = 0
    vault.tokens = {"another"}
    with pytest.raises(Unavailable, match=r"answered 403 .permission denied. for "):
        store_of(settings).reveal(job_id, row)
    with pytest.raises(Unavailable, match=r"credential of Vault /dev/zero has more than 65,536 bytes"):
        store_of(replace(settings, credential_file="/dev/zero")).reveal(job_id, row)


def test_the_settings_choose_the_store(vault: FakeVault, tmp_path: Path) -> None:
    """Each store also reveals what the one before held."""
    made = settings_of(vault, tmp_path)
    settings = Settings(
        secrets_provider="vault",
        vault_address=made.address,
        vault_namespace=made.namespace,
        vault_credential_file=made.credential_file,
    )
    store, job_id = make_store(settings, None), new_job_id()
    row = store.hold(job_id, SECRET)

    assert ("vault", b"plain") == (store.holder, store.reveal(job_id, HeldSecret(SECRET.secret_id, 0, "", b"plain")))
    assert ("", False) == ((plain := make_store(Settings(), None)).holder, plain.is_remote(""))
    for wrong, fault in (
        (Settings(secrets_provider="vault"), "needs PELOTON_VAULT_ADDRESS"),
        (replace(settings, vault_credential_file=""), "AUTH=token needs PELOTON_VAULT_CREDENTIAL_FILE"),
        (replace(settings, vault_auth="approle"), "AUTH=approle needs PELOTON_VAULT_ROLE"),
        (replace(settings, secrets_provider="database"), "or a keyring to leave it"),
    ):
        with pytest.raises(InvalidSettings, match=fault):
            make_store(wrong, None)
    with pytest.raises(InvalidSettings, match="TEMPORAL_ENCRYPTION=true needs PELOTON_SECRETS_KEYRING_FILE"):
        open_keyring(Settings(temporal_encryption=True))

    from services.secrets.keyring import Keyring, write_keyring

    write_keyring(tmp_path / "ring", Keyring("", {}).add("a", is_active=True), is_new=True)
    leaving = replace(settings, secrets_provider="database", secrets_keyring_file=str(tmp_path / "ring"))
    back = make_store(leaving, open_keyring(leaving))
    assert ("key:a", True, SECRET.data) == (back.holder, back.is_remote("vault"), back.reveal(job_id, row))
