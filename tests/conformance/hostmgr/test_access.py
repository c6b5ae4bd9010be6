"""Authentication of a host manager at its Mesos master, and a master that refuses it or hangs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from peloton.api.mesos_access import MesosAccess, TlsFiles, read_access
from peloton.model.ids import Hostname
from services.hostmgr.driver import PodOnHost
from services.hostmgr.mesos import operator
from services.lab.shared.http.tls import tls_context
from tests.conformance.hostmgr.conftest import Make
from tests.conformance.hostmgr.emulated import TIMEOUT_S, Emulated
from tests.conformance.hostmgr.world import World, wait

CERTIFICATES = Path(__file__).parents[2] / "certificates"
CREDENTIALS = {"alice": "a secret", "bob": "b"}
ALICE = MesosAccess("alice", "a secret")


def make_tls_access(path: Path) -> MesosAccess:
    """Credentials of Alice with her own certificate. She trusts only the authority of the tests."""
    secret = path / "secret"
    secret.write_text("a secret\n")
    files = TlsFiles(ca=str(CERTIFICATES / "ca.pem"), cert=str(CERTIFICATES / "client.pem"))
    return read_access("alice", str(secret), True, files)


def test_credentials_and_tls_reach_master_and_agents(make: Make, tmp_path: Path) -> None:
    """The event stream, calls, the list of agents, files and statistics all require credentials and TLS here."""
    tls = tls_context(CERTIFICATES / "server.pem", CERTIFICATES / "ca.pem")
    world = make(simulate=False, credentials=CREDENTIALS, tls=tls, access=make_tls_access(tmp_path))
    job = world.running(2, command="echo hello; sleep 300")
    pod = world.pod(job)
    world.host(pod.host)

    sandbox = world.core.driver.sandbox(PodOnHost(pod.pod_id, pod.host, pod.agent_id))
    assert {"stdout", "stderr"} <= {Path(path).name for path in sandbox.paths}
    wait(lambda: world.core.driver.samples_of(Hostname(pod.host)), "what the pod uses")
    world.kill(job)
    world.wait_states(job, {"KILLED": 2})
    assert [] == world.given_up


@pytest.mark.parametrize(
    ("access", "text"),
    [
        (MesosAccess(), "without credentials (HTTP 401 401 Unauthorized.): set PELOTON_MESOS_PRINCIPAL and"),
        (MesosAccess("alice", "b"), "to principal 'alice' (HTTP 401 401 Unauthorized.): check PELOTON_MESOS_PRINCIPAL"),
        (MesosAccess("bob", "b"), "principal 'bob' (PELOTON_MESOS_PRINCIPAL) in role 'peloton' (PELOTON_MESOS_ROLE)"),
    ],
)
def test_a_master_that_denies_access_is_given_up(make: Make, access: MesosAccess, text: str) -> None:
    """An unreachable master, a wrong secret and another user's framework each give an error that names the master, the
    principal and the setting."""
    world = make(credentials=CREDENTIALS, access=ALICE)
    world.core.stop()
    world.settings["access"] = access

    world.lead()

    wait(lambda: world.given_up, "the end")
    assert f"Mesos master {world.link.address} " in world.given_up[0]
    assert text in world.given_up[0]


def test_a_process_that_mesos_denies_ends(tmp_path: Path, empty_database: Path) -> None:
    """The process ends with code 1 and prints the reason last, so that a supervisor and people see it."""
    cluster = Emulated(tmp_path / "minicluster", credentials=CREDENTIALS)
    shutil.copy(empty_database, tmp_path / "peloton.db")
    environment = {
        "PELOTON_MESOS": f"127.0.0.1:{cluster.cluster.port}",
        "PELOTON_DATABASE": f"sqlite:///{tmp_path / 'peloton.db'}",
    }
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cli.main", "serve", "hostmgr"],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    finally:
        cluster.close()

    assert 1 == done.returncode
    assert "denies access without credentials" in done.stderr.splitlines()[-1]


def test_a_changed_user_holds_for_pods_launched_from_then_on(make: Make) -> None:
    """Mesos never changes the user of a framework, so each pod names its own user."""
    world = make(simulate=False, switch_user=True)
    world.core.stop()
    world.settings["user"] = "nobody-of-that-name"

    world.lead()

    job = world.start()
    world.wait_states(job, {"FAILED": 1})
    assert "No such user 'nobody-of-that-name'" in world.pod(job).message


def test_a_master_that_hangs_with_its_agents_holds_nothing_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconciliation continues while the answer to GET_AGENTS is pending."""
    monkeypatch.setattr(operator, "LONG_TIMEOUT_S", 10 * TIMEOUT_S)
    world.running()
    world.core.stop()
    world.link.hold_call = "GET_AGENTS"
    before = len(world.link.calls)

    world.lead()

    assert world.link.held.wait(TIMEOUT_S)
    world.wait_calls("RECONCILE", after=before)
