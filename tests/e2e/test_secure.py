"""A cluster of `peloton up --secure`: every hop between clients and roles asks for certificates of its authority."""

from __future__ import annotations

import shutil
import socket
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.api.channels import PlainChannels
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.client import HOSTMGR, NO_RETRIES, Client, Tls
from peloton.client.tls import channels_of, cluster_file
from services.lab.local.secure import TRUST_DOMAIN
from services.settings import load
from services.storage.storage import Storage
from services.tls.authority import LocalAuthority
from tests.e2e.local import Cluster, shell, temporary
from tests.e2e.test_client import Followed, service
from tests.waiting import timeout_s

PRIVATE = {
    "resmgr": "/peloton.private.resmgr.Admission/Enqueue",
    "hostmgr": "/peloton.private.hostmgr.Hosts/SumUpHosts",
    "api": "/peloton.private.reads.BulkReads/ListJobs",
}
TIMEOUT_S = 20.0
pytestmark = pytest.mark.xdist_group("secure")
MEMBERS = "-m peloton.client.gang --file - --format json --once"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("configurations")))
        settings = temporary(tmp_path_factory.mktemp("secure"), secure=True, web=True, bridge=True)
        with Cluster(settings) as cluster:
            yield cluster


def code_of(channels: PlainChannels, address: str, method: str) -> grpc.StatusCode:
    """Return the code of a call with an empty request."""
    channel = channels.open(address, [])
    call: Any = channel.unary_unary(method)
    try:
        call(b"", timeout=TIMEOUT_S)
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    finally:
        channel.close()
    return grpc.StatusCode.OK


def fetch(url: str, user: Tls, has_certificate: bool = True) -> int:
    context = ssl.create_default_context(cafile=user.ca_file)
    if has_certificate:
        context.load_cert_chain(user.cert_file, user.key_file)
    with urllib.request.urlopen(url, context=context, timeout=TIMEOUT_S) as answer:
        return int(answer.status)


def addresses_of_roles(cluster: Cluster) -> dict[str, str]:
    storage = Storage(cluster.local.database)
    try:
        found = {role: storage.leases.leader(role, 0.0) for role in ("resmgr", "hostmgr/local")}
    finally:
        storage.close()
    addresses = {role.partition("/")[0]: str(address) for role, address in found.items()}
    return {**addresses, "api": cluster.local.address}


def test_jobs_run_and_pods_call_the_api(cluster: Cluster) -> None:
    """A client without arguments finds the certificates of the cluster, and so do pods; logs are read."""
    pool_id = cluster.pool("secure")
    command = f"exec {sys.executable} {MEMBERS} --address {cluster.local.addresses}"
    job_id = cluster.submit(pool_id, instanceCount=1, defaultConfig=shell(command))

    assert "SUCCEEDED" == cluster.finish(job_id), cluster.log_of(job_id, file="stderr")
    assert '"instanceId": 0' in cluster.log_of(job_id)
    assert cluster_file(cluster.local.address).exists()


def test_no_other_client_is_served(cluster: Cluster, tmp_path: Path) -> None:
    """Plain text, no certificate, and those of another authority end at the handshake, on the ports of all roles."""
    assert cluster.local.tls is not None
    user = cluster.local.tls.user
    stranger = LocalAuthority(tmp_path, TRUST_DOMAIN).issue_role("worker", [])
    clients = {
        "plain text": PlainChannels(),
        "no certificate": channels_of(replace(user, cert_file="", key_file="")),
        "another authority's": channels_of(replace(user, cert_file=str(stranger.cert), key_file=str(stranger.key))),
        "another authority": channels_of(replace(user, ca_file=str(tmp_path / "ca.pem"))),
    }
    for role, address in addresses_of_roles(cluster).items():
        for name, channels in clients.items():
            assert grpc.StatusCode.UNAVAILABLE is code_of(channels, address, PRIVATE[role]), (role, name)
    for url in (f"{cluster.local.web_url}/settings.json", cluster.local.bridge_url.replace("/api", "/health")):
        assert 200 == fetch(url, user)
        with pytest.raises(OSError, match=r"(?i)certificate required|closed|reset|eof"):
            fetch(url, user, has_certificate=False)


def test_private_calls_need_the_certificate_of_a_role(cluster: Cluster) -> None:
    """A user's certificate opens the api, and nothing behind it."""
    assert cluster.local.tls is not None
    user, denied = channels_of(cluster.local.tls.user), grpc.StatusCode.PERMISSION_DENIED
    addresses = addresses_of_roles(cluster)
    assert dict.fromkeys(PRIVATE, denied) == {
        role: code_of(user, addresses[role], method) for role, method in PRIVATE.items()
    }
    with (
        Client(cluster.local.address, overrides={HOSTMGR: addresses["hostmgr"]}, retry=NO_RETRIES) as client,
        pytest.raises(grpc.RpcError, match="is for roles"),
    ):
        client.hosts.QueryHosts(host_svc_pb2.QueryHostsRequest())
    role = load(cluster.local.tls.environment_of("worker"))
    worker = channels_of(Tls(role.tls_ca_file, role.tls_cert_file, role.tls_key_file))
    for name, method in PRIVATE.items():
        assert code_of(worker, addresses[name], method) not in (denied, grpc.StatusCode.UNAVAILABLE)


def test_certificates_are_replaced_while_a_watch_is_open(cluster: Cluster) -> None:
    """A new certificate of the api is shown to the next client, and a watch from before goes its way."""
    folder = cluster.local.data_dir / "tls"
    with Client(cluster.local.address) as client:
        cluster.pool("watched")
        job_id = client.submit("/watched", service("web", 1))
    followed = Followed(cluster.local.address, job_id)
    followed.start()
    assert followed.begun.wait(timeout_s(60))
    cluster.wait(lambda: len(followed.running) == 1, "a pod in the watch")
    before = shown_certificate(cluster)
    issued = LocalAuthority(folder, TRUST_DOMAIN).issue(
        "renewed", f"spiffe://{TRUST_DOMAIN}/role/api", ["127.0.0.1", "localhost"]
    )
    for new, old in ((issued.key, "api.key"), (issued.cert, "api.pem")):
        shutil.copy(new, folder / "part")
        (folder / "part").replace(folder / old)
    cluster.wait(lambda: shown_certificate(cluster) != before, "the new certificate")

    with Client(cluster.local.address) as client:
        client.stop(job_id)
    cluster.wait(lambda: not followed.running, "the end of the pod in the watch")
    assert 1 == followed.lists
    followed.client.close()


def shown_certificate(cluster: Cluster) -> bytes | None:
    assert cluster.local.tls is not None
    user = cluster.local.tls.user
    context = ssl.create_default_context(cafile=user.ca_file)
    context.load_cert_chain(user.cert_file, user.key_file)
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", cluster.local.port), timeout=TIMEOUT_S) as connection,
        context.wrap_socket(connection, server_hostname="localhost") as secured,
    ):
        return secured.getpeercert(binary_form=True)


def test_no_port_is_open_to_other_machines(cluster: Cluster) -> None:
    """Each process of the cluster listens on the loopback address alone."""
    wide: set[str] = set()
    for part in cluster.local.parts.values():
        assert part.process is not None
        wide |= {f"{part.name} {address}" for address in listening_addresses(part.process.pid)}
    assert wide
    assert {one for one in wide if not one.endswith(LOOPBACK)} == set()


LOOPBACK = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")
"""Loopback addresses as /proc has them: of IPv4, of IPv6, and of IPv4 in IPv6."""
LISTENS = "0A"


def listening_addresses(pid: int) -> set[str]:
    """Return the addresses on which a process listens."""
    links = {link.readlink().as_posix() for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    found = set()
    for table in ("tcp", "tcp6"):
        for row in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = row.split()
            if words[3] == LISTENS and f"socket:[{words[9]}]" in links:
                found.add(words[1].partition(":")[0])
    return found


def test_the_emulated_kubernetes_speaks_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubeconfig names the authority; plain text and a client without the token are refused."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "configurations"))
    settings = temporary(tmp_path / "secure", secure=True, no_mesos=True, kubernetes=0)
    with Cluster(settings) as cluster:
        job_id = cluster.submit(cluster.pool("secure"), instanceCount=1, defaultConfig=shell("echo hello"))
        assert "SUCCEEDED" == cluster.finish(job_id)
        kubernetes = cluster.local.kubernetes
        assert kubernetes is not None
        assert kubernetes.nodes(), "`peloton local` finds the nodes"
        assert cluster.local.tls is not None
        user = cluster.local.tls.user
        assert f"server: https://{kubernetes.address}" in kubernetes.kubeconfig.read_text()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            fetch(f"https://{kubernetes.address}/api/v1/pods", user)
        with pytest.raises(OSError, match=r"(?i)closed|reset|disconnected"):
            urllib.request.urlopen(f"http://{kubernetes.address}/api/v1/pods", timeout=TIMEOUT_S)
