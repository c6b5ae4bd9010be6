"""A Vault that does not answer: jobs with secrets wait and say why, and nothing else does."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner

from cli.main import peloton
from peloton.api.v0.peloton_pb2 import Secret
from tests.doubles.vault import ROOT_TOKEN, FakeVault
from tests.e2e.local import Cluster, shell, temporary
from tests.e2e.shared import Forked
from tests.nightly import NIGHTLY

pytestmark = [NIGHTLY, pytest.mark.xdist_group("vault")]
SEALED = 503


@pytest.fixture
def vault() -> Iterator[FakeVault]:
    vault = FakeVault()
    yield vault
    vault.close()


@pytest.fixture
def cluster(tmp_path: Path, vault: FakeVault) -> Iterator[Cluster]:
    (tmp_path / "token").write_text(ROOT_TOKEN)
    environment = {
        "PELOTON_SECRETS_PROVIDER": "vault",
        "PELOTON_VAULT_ADDRESS": vault.address,
        "PELOTON_VAULT_CREDENTIAL_FILE": str(tmp_path / "token"),
    }
    with Forked(temporary(tmp_path / "data", environment=environment, simulate=2)) as running:
        yield running


def secret(data: bytes) -> Secret:
    return Secret(path="/run/key", value=Secret.Value(data=b64encode(data)))


def test_jobs_with_secrets_wait_for_vault(cluster: Cluster, vault: FakeVault) -> None:
    """A creation is refused, a launch is tried again, `job why` has Vault's answer, and other jobs run meanwhile."""
    pool, pod = cluster.pool("p"), shell("true")
    first = cluster.submit(pool, secrets=[secret(b"a")], instanceCount=1, defaultConfig=pod)
    assert "SUCCEEDED" == cluster.finish(first)
    cluster.stop_part("hostmgr")
    waiting = cluster.submit(pool, secrets=[secret(b"b")], instanceCount=2, defaultConfig=pod)
    vault.fault = SEALED
    cluster.start_part("hostmgr")

    with pytest.raises(grpc.RpcError) as refused:
        cluster.submit(pool, secrets=[secret(b"c")], instanceCount=1, defaultConfig=pod)
    assert grpc.StatusCode.UNAVAILABLE == refused.value.code()
    assert "Vault is sealed" in str(refused.value)
    cluster.wait(lambda: "Vault is sealed" in why(cluster, waiting), "the reason")
    assert "SUCCEEDED" == cluster.finish(cluster.submit(pool, instanceCount=1, defaultConfig=pod))
    vault.fault = 0
    assert "SUCCEEDED" == cluster.finish(waiting)
    assert {0: 1, 1: 1} == cluster.run_ids(waiting)


def why(cluster: Cluster, job: str) -> str:
    return CliRunner().invoke(peloton, ["-a", cluster.local.address, "job", "why", job]).output
