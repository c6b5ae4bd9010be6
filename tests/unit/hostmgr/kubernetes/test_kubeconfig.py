"""The fields of a kubeconfig, and the reports of errors in it."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.errors import InvalidArgument
from services.hostmgr.kubernetes.apiserver.kubeconfig import (
    FILE_BYTES_MAX,
    ClusterEntry,
    ExecPlugin,
    UserEntry,
    parse_kubeconfig,
    read_kubeconfig,
)

FILE = "conf/kubeconfig"
Json = dict[str, Any]
PLUGIN = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "./bin/login",
    "args": ["--cluster", "1"],
    "env": [{"name": "REGION", "value": "north"}],
    "interactiveMode": "Never",
    "provideClusterInfo": True,
    "installHint": "install login",
}


def tree(cluster: Any = None, user: Any = None, **others: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "clusters": [{"name": "c", "cluster": cluster or {"server": "https://10.0.0.1:6443"}}],
        "users": [{"name": "u", "user": user or {}}],
        **others,
    }


def parse(value: Any, context: str = "") -> tuple[ClusterEntry, UserEntry]:
    return parse_kubeconfig(yaml.safe_dump(value).encode(), FILE, context)


def b64(data: bytes) -> str:
    return b64encode(data).decode()


def test_files_and_data_of_a_context() -> None:
    """Relative paths start at the folder of the kubeconfig; data is decoded."""
    cluster = {"server": "https://k:6443/c-1", "certificate-authority": "ca.crt", "tls-server-name": "kube"}
    user = {"client-certificate-data": b64(b"cert"), "client-key": "/keys/k.pem", "tokenFile": "../token"}

    assert (
        ClusterEntry("https://k:6443/c-1", "conf/ca.crt", server_name="kube"),
        UserEntry("u", token_file="conf/../token", certificate_data=b"cert", key_file="/keys/k.pem"),
    ) == parse(tree(cluster, user))


def test_another_context_may_be_chosen() -> None:
    """A context is chosen by name; without a user it is anonymous."""
    value = tree()
    value["contexts"].append({"name": "there", "context": {"cluster": "d"}})
    value["clusters"].append({"name": "d", "cluster": {"server": "http://127.0.0.1:1", "extensions": []}})

    assert (ClusterEntry("http://127.0.0.1:1"), UserEntry()) == parse(value, "there")


def test_an_exec_plugin() -> None:
    """A command with a slash is relative to the folder of the kubeconfig, one without is searched on the PATH."""
    expected = ExecPlugin(
        "client.authentication.k8s.io/v1",
        "conf/bin/login",
        ("--cluster", "1"),
        (("REGION", "north"),),
        "install login",
        wants_cluster=True,
    )
    assert expected == parse(tree(user={"exec": PLUGIN}))[1].plugin
    found = parse(tree(user={"exec": {**PLUGIN, "command": "login"}}))[1].plugin
    assert found is not None
    assert found.command == "login"


SERVER = {"server": "https://k"}
CLUSTER, USER = "clusters[c].cluster.", "users[u].user."
FAULTS: dict[str, tuple[Any, str]] = {
    "no mapping": ([1], "not a kubeconfig: want a mapping with clusters, users and contexts"),
    "another kind": (tree(kind="Pod"), "kind: want Config, not 'Pod'"),
    "no context": (
        tree(**{"current-context": ""}),
        "current-context: is missing: set it, or PELOTON_KUBERNETES_CONTEXT",
    ),
    "unknown context": (tree(**{"current-context": "x"}), "contexts: has no entry 'x', only: here"),
    "unknown user": (tree(users=None), "users: has no entry 'u', only: none"),
    "no list": (tree(clusters={}), "clusters: want a list"),
    "no cluster in it": (tree(clusters=[{"name": "c"}]), "clusters[0].cluster: is missing"),
    "no server": (tree({"tls-server-name": "x"}), f"{CLUSTER}server: is missing"),
    "no scheme": (tree({"server": "k:6443"}), f"{CLUSTER}server: want https://host:port, not 'k:6443'"),
    "port": (tree({"server": "https://k:x"}), f"{CLUSTER}server: 'https://k:x' is not an address: "),
    "secret in the address": (tree({"server": "https://a:b@k"}), f"{CLUSTER}server: want only scheme, host, port"),
    "proxy": (tree({**SERVER, "proxy-url": "http://p"}), f"{CLUSTER}proxy-url: proxies are not supported"),
    "both": (
        tree({**SERVER, "insecure-skip-tls-verify": True, "certificate-authority": "x"}),
        f"{CLUSTER}insecure-skip-tls-verify: excludes certificate-authority",
    ),
    "flag": (
        tree({**SERVER, "insecure-skip-tls-verify": "yes"}),
        f"{CLUSTER}insecure-skip-tls-verify: want true or false, not 'yes'",
    ),
    "base64": (tree({**SERVER, "certificate-authority-data": "*"}), f"{CLUSTER}certificate-authority-data: not base64"),
    "number": (tree(user={"token": 12345}), f"{USER}token: want text, not 12345; put it in quotes"),
    "two lines": (tree(user={"token": "a\nb"}), f"{USER}token: want printable ASCII without spaces"),
    "no key": (tree(user={"client-certificate": "x"}), f"{USER}client-certificate: goes together with client-key"),
    "impersonation": (tree(user={"as": "root"}), f"{USER}as: impersonation is not supported"),
    "provider": (tree(user={"auth-provider": {"name": "gcp"}}), f"{USER}auth-provider: was removed from Kubernetes"),
    "exec version": (
        tree(user={"exec": {**PLUGIN, "apiVersion": "client.authentication.k8s.io/v1alpha1"}}),
        f"{USER}exec.apiVersion: want client.authentication.k8s.io/v1 or",
    ),
    "interactive": (
        tree(user={"exec": {**PLUGIN, "interactiveMode": "Always"}}),
        f"{USER}exec.interactiveMode: is Always: a host manager has no terminal",
    ),
    "arguments": (tree(user={"exec": {**PLUGIN, "args": [1]}}), f"{USER}exec.args: want a list of texts, not 1 in it"),
    "environment": (tree(user={"exec": {**PLUGIN, "env": [{}]}}), f"{USER}exec.env[0].name: is missing"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_an_error_names_file_field_and_rule(case: str) -> None:
    """The error names file, field and rule, so that an operator finds the line."""
    value, message = FAULTS[case]

    with pytest.raises(InvalidArgument) as error:
        parse(value)

    assert error.value.message.startswith(f"{FILE}: {message}")


def test_a_file_that_cannot_be_read() -> None:
    """The error has the path and the message of the system."""
    with pytest.raises(InvalidArgument, match=r"^/no/kubeconfig: cannot be read: .*No such file"):
        read_kubeconfig("/no/kubeconfig")
    with pytest.raises(InvalidArgument, match="not a kubeconfig"):
        parse_kubeconfig(b" " * (FILE_BYTES_MAX + 1), FILE)


WORDS = st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=8)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None)
@given(data=st.data())
def test_anything_in_any_field_is_read_or_refused(data: st.DataObject) -> None:
    """Every value is parsed to an entry, or rejected with an InvalidArgument that names the file."""
    value = tree(
        {"server": "https://k", "certificate-authority": "a", "insecure-skip-tls-verify": False},
        {"token": "t", "client-key": "k", "client-certificate": "c", "exec": {**PLUGIN}, "as": None},
    )
    place: Any = orjson.loads(orjson.dumps(value))
    whole = place
    while isinstance(place, dict | list) and place:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if data.draw(st.booleans()) or not isinstance(place[key], dict | list):
            place[key] = data.draw(JUNK)
            break
        place = place[key]

    try:
        parse(whole)
        message = ""
    except InvalidArgument as error:
        message = error.message
    assert not message or message.startswith(f"{FILE}: ")


@settings(deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    """Bytes that are no kubeconfig are reported as such."""
    with pytest.raises(InvalidArgument, match=r"^conf/kubeconfig: "):
        parse_kubeconfig(content, FILE)


TEXTS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)


@settings(deadline=None)
@given(
    token=TEXTS,
    ca=st.binary(max_size=30),
    certificate=st.binary(min_size=1, max_size=30),
    name=TEXTS,
    port=st.integers(1, 65535),
)
def test_what_is_written_is_what_is_read(token: str, ca: bytes, certificate: bytes, name: str, port: int) -> None:
    """Every value is read back, from YAML and from JSON."""
    value = tree(
        {"server": f"https://k:{port}", "certificate-authority-data": b64(ca), "tls-server-name": name},
        {"token": token, "client-certificate-data": b64(certificate), "client-key-data": b64(certificate)},
    )
    expected = (
        ClusterEntry(f"https://k:{port}", ca_data=ca, server_name=name),
        UserEntry("u", token=token, certificate_data=certificate, key_data=certificate),
    )
    assert expected == parse(value)
    assert expected == parse_kubeconfig(orjson.dumps(value), FILE)
