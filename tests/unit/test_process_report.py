"""Report of a process, which the doctor compares with those of the others."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from peloton.model.diagnosis import ProcessRecord
from peloton.release import read_version
from services.processes import collect_settings, reporting
from services.secrets.keyring import Keyring, KeyringFile, write_keyring
from services.settings import Settings
from services.storage import migrate
from services.storage.storage import Storage


async def test_a_process_reports_until_it_ends(tmp_path: Path) -> None:
    """The report is there soon after the start, and is deleted at the end."""
    url = f"sqlite:///{tmp_path / 'peloton.db'}"
    migrate.upgrade(url)
    storage, found = Storage(url), list[ProcessRecord]()

    async with asyncio.timeout(60), reporting(storage.processes, ["api", "worker"], Settings(), None):
        while not found:
            await asyncio.sleep(0.01)
            found = storage.processes.list_running(time.time_ns())

    assert [("api+worker", read_version())] == [(one.role, one.version) for one in found]
    assert [] == storage.processes.list_running(time.time_ns())
    storage.close()


def test_a_report_has_ids_of_keys_and_nothing_secret(tmp_path: Path) -> None:
    """Credentials in an address and the bytes of keys are left out; settings of apis are reported by apis alone."""
    path = tmp_path / "keyring.json"
    write_keyring(path, Keyring("2026-a", {"2026-a": b"k" * 32}), is_new=True)
    settings = Settings(vault_address="https://user:pass@vault:8200/v?token=t#f", auth_oidc_issuer="https://issuer")
    keyring = KeyringFile(str(path))

    worker, api = (collect_settings([role], settings, keyring) for role in ("worker", "api"))

    assert ("https://vault:8200/v", "2026-a") == (
        worker["PELOTON_VAULT_ADDRESS"],
        worker["keys of PELOTON_SECRETS_KEYRING_FILE"],
    )
    assert {"PELOTON_AUTH_OIDC_ISSUER": "https://issuer", "PELOTON_AUTH_OIDC_AUDIENCE": ""}.items() <= api.items()
    assert "default" == worker["PELOTON_TEMPORAL_NAMESPACE"]
    assert not any("OIDC" in name for name in worker)
