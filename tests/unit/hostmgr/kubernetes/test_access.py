"""TLS to an apiserver, and credentials that change."""

from __future__ import annotations

import ssl
import stat
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from peloton.errors import InvalidArgument
from services.hostmgr.kubernetes.apiserver.access import Access, read_access
from services.hostmgr.kubernetes.apiserver.credentials import TOKEN_CHECK_S, Plugin, TokenFile, written_credential
from services.hostmgr.kubernetes.apiserver.kubeconfig import ClusterEntry, ExecPlugin
from services.hostmgr.kubernetes.apiserver.wire import ApiServer, Request
from tests.unit.hostmgr.kubernetes.scripted import (
    CERTIFICATES,
    Asked,
    access_to,
    answer,
    run_scripted,
    write_kubeconfig,
)

V1 = "client.authentication.k8s.io/v1"
CA, CLIENT, SERVER = (CERTIFICATES / f"{name}.pem" for name in ("ca", "client", "server"))
IN_CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def data(path: Path) -> str:
    return b64encode(path.read_bytes()).decode()


def server_context(asks_client: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(SERVER)
    if asks_client:
        context.load_verify_locations(CA)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def ask(access: Access) -> int:
    api = ApiServer(access)
    try:
        return api.ask(Request("GET", "/readyz")).status
    finally:
        api.close()


def echo(asked: Asked) -> list[bytes]:
    return [answer(200, asked.headers.get("authorization", "").encode())]


# TLS.


@pytest.mark.parametrize("embedded", [False, True])
def test_both_sides_prove_who_they_are(embedded: bool, tmp_path: Path) -> None:
    """Client and server authenticate with certificate files, and with the same data embedded in the kubeconfig."""
    pairs = {"certificate-authority": CA, "client-certificate": CLIENT, "client-key": CLIENT}
    values = {f"{k}-data": data(v) for k, v in pairs.items()} if embedded else {k: str(v) for k, v in pairs.items()}
    user = {key: value for key, value in values.items() if key.startswith("client")}
    cluster = {key: value for key, value in values.items() if key not in user}

    with run_scripted(echo, server_context(asks_client=True)) as server:
        assert ask(access_to(f"https://{server.address}", tmp_path, user, **cluster)) == 200
        with pytest.raises(OSError):  # noqa: PT011 (its text is OpenSSL's)
            ask(access_to(f"https://{server.address}", tmp_path, **cluster))


def test_the_name_in_the_certificate_is_checked(tmp_path: Path) -> None:
    """The name is compared with the host, or with tls-server-name; insecure-skip-tls-verify checks nothing."""
    with run_scripted(echo, server_context()) as server:
        address = f"https://{server.address}"
        by_name = f"https://localhost:{server.address.rpartition(':')[2]}"
        ca: dict[str, Any] = {"certificate-authority": str(CA)}
        assert ask(access_to(by_name, tmp_path, **ca, **{"tls-server-name": "127.0.0.1"})) == 200
        assert ask(access_to(by_name, tmp_path, **{"insecure-skip-tls-verify": True})) == 200
        with pytest.raises(ssl.SSLCertVerificationError, match="localhost"):
            ask(access_to(by_name, tmp_path, **ca))
        with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
            ask(access_to(address, tmp_path))


def test_a_certificate_that_was_replaced_is_used(tmp_path: Path) -> None:
    """The next connection uses the new certificate, without a restart."""
    certificate = tmp_path / "client.pem"
    certificate.write_bytes(CLIENT.read_bytes())
    user = {"client-certificate": str(certificate), "client-key": str(certificate)}
    access = access_to("https://127.0.0.1:1", tmp_path, user, **{"certificate-authority": str(CA)})

    first = access.tls()
    assert first is access.tls()
    certificate.unlink()
    certificate.write_bytes(CLIENT.read_bytes() + b"\n")
    assert first is not access.tls()


@pytest.mark.parametrize(
    ("cluster", "user", "message"),
    [
        ({"certificate-authority": "none.pem"}, {}, "certificate-authority: .*none.pem: not the certificate"),
        ({"certificate-authority-data": "eA=="}, {}, "certificate-authority-data: not the certificate"),
        ({}, {"client-certificate": str(CA), "client-key": str(CA)}, "client-certificate, client-key: not a cert"),
        ({}, {"client-certificate": "no", "client-key": "no"}, "client-certificate, client-key: .*No such file"),
        ({}, {"tokenFile": "no"}, "tokenFile: .*No such file"),
        ({}, {"exec": {"apiVersion": V1, "command": "no-such-program", "installHint": "get  it"}},
         "exec.command: 'no-such-program' is no program that can be run; get it"),
    ],
)  # fmt: skip
def test_files_that_are_no_use_are_found_at_the_start(
    cluster: dict[str, Any], user: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """An unusable file is reported with its path and the field."""
    with pytest.raises(InvalidArgument, match=f"kubeconfig: {message}"):
        access_to("https://127.0.0.1:1", tmp_path, user, **cluster)


# Tokens.


def test_a_token_file_is_read_again(tmp_path: Path) -> None:
    """The file is read again after some seconds, and at once when the apiserver rejects its token."""
    now_s = 0.0
    path = tmp_path / "token"
    path.write_text("one\n")
    file = TokenFile(str(path), lambda: now_s)
    assert file.credential(renew=False).authorization == "Bearer one"
    path.write_text("two")
    assert file.credential(renew=False).authorization == "Bearer one"
    now_s += TOKEN_CHECK_S
    assert file.credential(renew=False).authorization == "Bearer two"
    path.write_text("three")
    assert file.credential(renew=True).authorization == "Bearer three"


def test_a_token_file_that_is_being_written_keeps_the_last_token(tmp_path: Path) -> None:
    """An empty file keeps the last token unless the apiserver rejects it; without a last token it is an error."""
    now_s = 0.0
    path = tmp_path / "token"
    path.write_text("one")
    file = TokenFile(str(path), lambda: now_s)
    file.credential(renew=False)
    path.write_text("")
    now_s += TOKEN_CHECK_S
    assert file.credential(renew=False).authorization == "Bearer one"
    with pytest.raises(OSError, match="token: empty"):
        file.credential(renew=True)
    with pytest.raises(OSError, match="token: empty"):
        TokenFile(str(path)).credential(renew=False)


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({}, ""),
        ({"token": "abc"}, "Bearer abc"),
        ({"username": "ada", "password": "x"}, "Basic YWRhOng="),
    ],
)
def test_what_the_user_is_known_by(user: dict[str, Any], expected: str, tmp_path: Path) -> None:
    """The user has no credential, a token, or a name with a password."""
    assert expected == access_to("http://127.0.0.1:1", tmp_path, user).authorization()


# Exec plugins.


def program(folder: Path, script: str) -> str:
    path = folder / "plugin"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def credential_json(token: str, expires: str = "") -> str:
    status = {"token": token, **({"expirationTimestamp": expires} if expires else {})}
    return orjson.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": status}).decode()


def test_a_plugin_runs_again_when_its_credentials_expire(tmp_path: Path) -> None:
    """The plugin runs again when its credentials expire or are rejected, at most once a second;
    else its answer is reused.
    """
    now_s = datetime(2030, 1, 1, tzinfo=UTC).timestamp()
    runs = tmp_path / "runs"
    script = f"echo run >> {runs}\necho '{credential_json('t-1', '2030-01-01T01:00:00Z')}'"
    plugin = Plugin(ExecPlugin(V1, program(tmp_path, script)), ClusterEntry("https://k"), lambda: now_s)

    def runs_after(seconds: float, renew: bool = False) -> int:
        nonlocal now_s
        now_s += seconds
        assert plugin.credential(renew).authorization == "Bearer t-1"
        return len(runs.read_text().split())

    assert runs_after(0) == 1
    assert runs_after(3000) == 1
    assert runs_after(10, renew=True) == 2
    assert runs_after(0.5, renew=True) == 2
    assert runs_after(595) == 3


def test_a_plugin_gets_its_environment_and_the_cluster(tmp_path: Path) -> None:
    """The cluster is in KUBERNETES_EXEC_INFO, as kubectl writes it; the plugin has no terminal."""
    seen = tmp_path / "seen"
    script = f'printf "%s %s %s" "$1" "$REGION" "$KUBERNETES_EXEC_INFO" > {seen}\necho \'{credential_json("t")}\''
    spec = ExecPlugin(V1, program(tmp_path, script), ("login",), (("REGION", "north"),), wants_cluster=True)

    Plugin(spec, ClusterEntry("https://k", ca_data=b"pem")).credential(renew=False)

    argument, region, question = seen.read_text().split(" ", 2)
    assert (argument, region) == ("login", "north")
    assert orjson.loads(question) == {
        "kind": "ExecCredential",
        "apiVersion": V1,
        "spec": {
            "interactive": False,
            "cluster": {
                "server": "https://k",
                "insecure-skip-tls-verify": False,
                "certificate-authority-data": "cGVt",
                "config": None,
            },
        },
    }


def test_a_plugin_that_fails_says_why(tmp_path: Path) -> None:
    """The error has the exit code of the plugin and the end of its stderr."""
    plugin = Plugin(ExecPlugin(V1, program(tmp_path, "echo log in first >&2; exit 7")), ClusterEntry("https://k"))

    with pytest.raises(OSError, match=r"exec plugin .*/plugin: exit code 7: log in first"):
        plugin.credential(renew=False)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (b"secret", "its output is not JSON"),
        (b"[]", "its output is not of kind ExecCredential"),
        (b'{"kind":"ExecCredential","apiVersion":"v2"}', f"its output is not of apiVersion {V1}"),
        (b'{"kind":"ExecCredential","apiVersion":"%s"}' % V1.encode(), "status is missing in its output"),
        (b'{"kind":"ExecCredential","apiVersion":"%s","status":{"token":1}}' % V1.encode(), "status.token in its out"),
        (b'{"kind":"ExecCredential","apiVersion":"%s","status":{}}' % V1.encode(), "neither status.token nor"),
        (credential_json("a b").encode(), "status.token: not a token"),
        (credential_json("a", "soon").encode(), "status.expirationTimestamp in its output is not a time"),
    ],
)
def test_output_of_a_plugin_that_is_no_credential(output: bytes, message: str) -> None:
    """The error says what is wrong with the output and shows no part of it."""
    with pytest.raises(ValueError, match=message) as error:
        written_credential(output, V1)
    assert "secret" not in str(error.value)


def test_a_certificate_of_a_plugin_is_used(tmp_path: Path) -> None:
    """The certificate replaces that of the user."""
    pem = CLIENT.read_text()
    certificate, key = pem[: pem.index("-----BEGIN PRIV")], pem[pem.index("-----BEGIN PRIV") :]
    status = {"clientCertificateData": certificate, "clientKeyData": key}
    output = tmp_path / "output"
    output.write_bytes(orjson.dumps({"kind": "ExecCredential", "apiVersion": V1, "status": status}))
    user = {"exec": {"apiVersion": V1, "command": program(tmp_path, f"cat {output}")}}

    with run_scripted(echo, server_context(asks_client=True)) as server:
        address = f"https://{server.address}"
        assert ask(access_to(address, tmp_path, user, **{"certificate-authority": str(CA)})) == 200


# In a pod of the cluster.


def test_in_a_pod_the_service_account_is_used(tmp_path: Path) -> None:
    """The service account has a token and an authority; the address is in the environment."""
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_bytes(CA.read_bytes())

    access = read_access("in-cluster", "", IN_CLUSTER, str(tmp_path))
    assert ("https://10.96.0.1:443", "Bearer t") == (access.server, access.authorization())
    six = read_access("in-cluster", "", {**IN_CLUSTER, "KUBERNETES_SERVICE_HOST": "fd00::1"}, str(tmp_path))
    assert ("https://[fd00::1]:443", "fd00::1") == (six.server, six.host)


def test_what_is_missing_in_a_pod_is_named(tmp_path: Path) -> None:
    """The error names the environment, the token, or the context, which has no meaning there."""
    with pytest.raises(InvalidArgument, match="KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set"):
        read_access("in-cluster", "", {})
    with pytest.raises(InvalidArgument, match=r"in-cluster: tokenFile: .*No such file"):
        read_access("in-cluster", "", IN_CLUSTER, str(tmp_path))
    with pytest.raises(InvalidArgument, match="PELOTON_KUBERNETES_CONTEXT='x'"):
        read_access("in-cluster", "x", IN_CLUSTER)


def test_the_path_of_a_server_is_before_all_others(tmp_path: Path) -> None:
    """The path of the server's URL is a prefix of all requests: several clusters may share one address."""
    seen: list[str] = []

    def serve(asked: Asked) -> list[bytes]:
        seen.append(asked.path)
        return [answer(200)]

    with run_scripted(serve) as server:
        path = write_kubeconfig(tmp_path, {"server": f"http://{server.address}/k8s/clusters/c-1/"})
        assert ask(read_access(str(path))) == 200
    assert seen == ["/k8s/clusters/c-1/readyz"]
