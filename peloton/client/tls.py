"""TLS of clients: their files, from arguments, the environment, or the file of a cluster.

The file of a cluster is ``peloton/clusters/HOST_PORT.toml`` in the user's folder of configurations. It has the paths
that commands and programs need for the API at HOST:PORT, under the names of the fields of ``Tls``.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from peloton.api.channels import PlainChannels, TlsChannels
from peloton.api.tls_files import TlsPaths, read_pem_files
from peloton.errors import InvalidArgument
from peloton.files import read_file, write_private_file

PREFIX = "PELOTON_API_"
CLUSTER_FILE_BYTES_MAX = 64 << 10


@dataclass(frozen=True)
class Tls:
    """Paths of PEM files, which are read again when they change."""

    ca_file: str = ""  # of the authorities that sign certificates of servers; empty: gRPC's own list of public ones
    cert_file: str = ""  # of the client's certificate; empty: it shows none
    key_file: str = ""  # empty: the key is in ``cert_file``
    server_name: str = ""  # the name that the server's certificate must have; empty: that of the address


def find_tls(address: str, environment: Mapping[str, str] = os.environ) -> Tls | None:
    """Return the TLS for the API at an address, by the environment or the file of its cluster; None: plain text.

    Raises InvalidArgument for a file that cannot be read.
    """
    named = {field.name: environment.get(PREFIX + field.name.upper(), "") for field in fields(Tls)}
    if named["ca_file"] or named["cert_file"]:
        return Tls(**named)
    if not (environment.get("XDG_CONFIG_HOME") or environment.get("HOME")):
        return None
    path = cluster_file(address.partition(",")[0].strip(), environment)
    try:
        content = read_file(path, "file of a cluster", CLUSTER_FILE_BYTES_MAX)
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # or the home of another user
        return None
    except OSError as error:
        raise InvalidArgument(f"{path}: cannot be read: {error.strerror}") from None
    return _read_cluster(path, content)


def _read_cluster(path: Path, content: bytes) -> Tls:
    known = {field.name for field in fields(Tls)}
    try:
        given = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{path}: the file of a cluster is not TOML: {error}") from None
    return Tls(**{name: str(value) for name, value in given.items() if name in known})


def cluster_file(address: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the file of the cluster whose API is at an address."""
    folder = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME", "/"), ".config")
    name = "".join(letter if letter.isalnum() or letter in ".-" else "_" for letter in address)
    return Path(folder) / "peloton" / "clusters" / f"{name}.toml"


def write_cluster(address: str, tls: Tls) -> Path:
    """Write the file of a cluster, readable by the user alone, and return its path. Raises OSError."""
    path = cluster_file(address)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lines = [f"{field.name} = {_quote(value)}\n" for field in fields(Tls) if (value := getattr(tls, field.name))]
    write_private_file(path, "".join(lines).encode())
    return path


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def channels_of(tls: Tls | None) -> PlainChannels:
    """Return the maker of channels. Raises InvalidArgument naming a file that cannot be used."""
    if tls is None:
        return PlainChannels()
    return TlsChannels(read_pem_files(TlsPaths(tls.ca_file, tls.cert_file, tls.key_file)), tls.server_name)
