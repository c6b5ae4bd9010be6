"""Address and credentials of Temporal, from Temporal's own client configuration."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from temporalio.service import TLSConfig

from peloton.errors import InvalidArgument
from peloton.lifecycle.worker_ramp import host_of
from services.lab.local.temporal_server import without_client_configuration
from services.temporal.connection import connect, connect_config

FILE = """
[profile.default]
address = "file.example.com:7233"
namespace = "of-the-file"

[profile.cloud]
address = "ours.a1b2c.tmprl.cloud:7233"
namespace = "ours.a1b2c"
api_key = "secret"
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "temporal.toml"
    path.write_text(FILE)
    return str(path)


def test_without_anything_it_is_on_this_machine() -> None:
    """The default address and namespace are a development server's."""
    config = connect_config(environment={"TEMPORAL_CONFIG_FILE": os.devnull})

    assert {"target_host": "localhost:7233", "namespace": "default"} == config


def test_our_settings_come_before_the_environment_and_that_before_the_file(file: str) -> None:
    """Address and namespace can come from three places."""
    environment = {"TEMPORAL_CONFIG_FILE": file}
    named = {**environment, "TEMPORAL_NAMESPACE": "of-the-environment"}
    found = [connect_config(environment=environment), connect_config(environment=named)]
    found.append(connect_config("ours:1", "of-the-settings", named))

    assert [
        ("file.example.com:7233", "of-the-file"),
        ("file.example.com:7233", "of-the-environment"),
        ("ours:1", "of-the-settings"),
    ] == [(config["target_host"], config["namespace"]) for config in found]


def test_a_profile_with_a_key_speaks_tls(file: str) -> None:
    """A profile with a key uses TLS, as Temporal Cloud requires; a variable that is set but empty counts as not set."""
    environment = {"TEMPORAL_CONFIG_FILE": file, "TEMPORAL_PROFILE": "cloud", "TEMPORAL_API_KEY": ""}
    config = connect_config(environment=environment)

    assert ("ours.a1b2c.tmprl.cloud:7233", "secret", True) == (config["target_host"], config["api_key"], config["tls"])


def test_certificates_and_headers_come_from_the_environment(tmp_path: Path) -> None:
    """Client certificate, key, authority, name of the server, and metadata of each call are read."""
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_text(name)
    config = connect_config(
        environment={
            "TEMPORAL_CONFIG_FILE": os.devnull,
            "TEMPORAL_TLS_SERVER_CA_CERT_PATH": str(tmp_path / "ca"),
            "TEMPORAL_TLS_CLIENT_CERT_PATH": str(tmp_path / "cert"),
            "TEMPORAL_TLS_CLIENT_KEY_PATH": str(tmp_path / "key"),
            "TEMPORAL_TLS_SERVER_NAME": "temporal.example.com",
            "TEMPORAL_GRPC_META_X_TENANT": "ours",
        }
    )

    assert TLSConfig(b"ca", "temporal.example.com", b"cert", b"key") == config["tls"]
    assert {"x-tenant": "ours"} == config["rpc_metadata"]


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        (
            {"TEMPORAL_CONFIG_FILE": "/nowhere/temporal.toml"},
            "TEMPORAL_CONFIG_FILE=/nowhere/temporal.toml: no such file",
        ),
        ({"TEMPORAL_PROFILE": "cluod"}, r"Temporal's client configuration .TEMPORAL_\*.: Profile 'cluod' not found"),
        ({"TEMPORAL_TLS_CLIENT_CERT_PATH": "/nowhere/cert.pem"}, "No such file or directory: '/nowhere/cert.pem'"),
    ],
)
def test_what_is_not_there_is_named(file: str, environment: dict[str, str], text: str) -> None:
    """A typing error results in a message, and not in a connection to another server."""
    with pytest.raises(InvalidArgument, match=text):
        connect_config(environment={"TEMPORAL_CONFIG_FILE": file, **environment})


def test_a_server_of_the_local_cluster_takes_no_credentials_of_another() -> None:
    """Variables for a secured cluster in a developer's shell do not apply to the development server."""
    shell = {
        "TEMPORAL_ADDRESS": "cloud:7233",
        "TEMPORAL_API_KEY": "secret",
        "TEMPORAL_PROFILE": "cloud",
        "PATH": "/bin",
    }
    changed = {
        name: value for name, value in (shell | without_client_configuration(shell)).items() if value is not None
    }

    assert {"PATH": "/bin", "TEMPORAL_CONFIG_FILE": os.devnull} == changed


async def test_no_two_clients_have_one_identity() -> None:
    """Identities begin with role and host, as the first process of a container has the same number after each
    restart.
    """
    config = connect_config(environment={"TEMPORAL_CONFIG_FILE": os.devnull})
    first, second = [(await connect(config, "worker")).identity for _ in range(2)]

    assert first != second
    assert f"worker@{socket.gethostname()}" == host_of(first) == host_of(second)
