"""A kubeconfig: the cluster and the user of one of its contexts."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Never
from urllib.parse import urlsplit

import yaml

from peloton.errors import InvalidArgument
from peloton.files import read_file

FILE_BYTES_MAX = 1 << 20
EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")


@dataclass(frozen=True)
class ClusterEntry:
    server: str  # https://host:port, with an optional prefix of all paths
    ca_file: str = ""
    ca_data: bytes = b""
    checks_certificate: bool = True
    server_name: str = ""  # in its certificate; empty: the host


@dataclass(frozen=True)
class ExecPlugin:
    """A program that writes credentials."""

    api_version: str
    command: str  # looked up on the PATH when it has no slash
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    install_hint: str = ""
    wants_cluster: bool = False  # it gets the entry of the cluster


@dataclass(frozen=True)
class UserEntry:
    """A user; anonymous without credentials. Data takes precedence over files, a token file over a token."""

    name: str = ""
    token: str = field(default="", repr=False)
    token_file: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    certificate_file: str = ""
    certificate_data: bytes = b""
    key_file: str = ""
    key_data: bytes = field(default=b"", repr=False)
    plugin: ExecPlugin | None = None


class Section:
    """A mapping of the file, read field by field. Every method raises InvalidArgument naming file, field and rule."""

    def __init__(self, value: Mapping[Any, Any], file: str, place: str = "") -> None:
        self._value = value
        self._file = file
        self._place = place

    def refuse(self, key: str, rule: str) -> Never:
        raise InvalidArgument(f"{self._file}: {self._place}{key}: {rule}")

    def has(self, key: str) -> bool:
        """Return whether the field has a value: null, an empty text or an empty list is none."""
        return self._value.get(key) not in (None, "", [], {}, False)

    def text(self, key: str) -> str:
        value = self._value.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            self.refuse(key, f"want text, not {value!r}; put it in quotes")
        return value

    def require(self, key: str) -> str:
        return self.text(key) or self.refuse(key, "is missing")

    def flag(self, key: str) -> bool:
        value = self._value.get(key)
        if value not in (None, True, False):
            self.refuse(key, f"want true or false, not {value!r}")
        return bool(value)

    def data(self, key: str) -> bytes:
        try:
            return b64decode(self.text(key), validate=True)
        except (binascii.Error, ValueError) as error:
            self.refuse(key, f"not base64: {error}")

    def path(self, key: str) -> str:
        """Return a path; relative paths start at the folder of the file."""
        name = self.text(key)
        return str(Path(self._file).parent / name) if name else ""

    def section(self, key: str) -> Section:
        value = self._value.get(key)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            self.refuse(key, "want a mapping")
        return Section(value, self._file, f"{self._place}{key}.")

    def list(self, key: str) -> list[Any]:
        value = self._value.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            self.refuse(key, "want a list")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        for item in self.list(key):
            if not isinstance(item, str):
                self.refuse(key, f"want a list of texts, not {item!r} in it; put it in quotes")
        return tuple(self.list(key))

    def pairs(self, key: str) -> tuple[tuple[str, str], ...]:
        rows = [self.row(key, index) for index in range(len(self.list(key)))]
        return tuple((row.require("name"), row.text("value")) for row in rows)

    def row(self, key: str, index: int) -> Section:
        value = self.list(key)[index]
        if not isinstance(value, dict):
            self.refuse(f"{key}[{index}]", "want a mapping")
        return Section(value, self._file, f"{self._place}{key}[{index}].")

    def find_named(self, key: str, name: str, kind: str) -> Section:
        """Return the ``kind`` section of the first entry with this name."""
        names = []
        for index in range(len(self.list(key))):
            row = self.row(key, index)
            if row.text("name") == name:
                if not isinstance(row._value.get(kind), dict):
                    row.refuse(kind, "is missing")
                return Section(row._value[kind], self._file, f"{key}[{name}].{kind}.")
            names.append(row.text("name"))
        self.refuse(key, f"has no entry {name!r}, only: {', '.join(sorted(names)) or 'none'}")


def read_kubeconfig(path: str, context: str = "") -> tuple[ClusterEntry, UserEntry]:
    """Return cluster and user of a context, by default of the current context. Raises InvalidArgument."""
    try:
        content = read_file(path, "kubeconfig", FILE_BYTES_MAX)
    except OSError as error:
        raise InvalidArgument(f"{path}: cannot be read: {error}") from None
    return parse_kubeconfig(content, path, context)


def parse_kubeconfig(content: bytes, path: str, context: str = "") -> tuple[ClusterEntry, UserEntry]:
    """Parse a kubeconfig. Raises InvalidArgument."""
    if len(content) > FILE_BYTES_MAX:
        raise InvalidArgument(f"{path}: larger than {FILE_BYTES_MAX} bytes: not a kubeconfig")
    try:
        tree = yaml.safe_load(content)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(tree, dict):
        raise InvalidArgument(f"{path}: not a kubeconfig: want a mapping with clusters, users and contexts")
    whole = Section(tree, path)
    if tree.get("kind", "Config") != "Config":
        whole.refuse("kind", f"want Config, not {tree['kind']!r}")
    name = context or whole.text("current-context")
    if not name:
        whole.refuse("current-context", "is missing: set it, or PELOTON_KUBERNETES_CONTEXT")
    chosen = whole.find_named("contexts", name, "context")
    cluster = _cluster(whole.find_named("clusters", chosen.require("cluster"), "cluster"))
    user = chosen.text("user")
    return cluster, _user(user, whole.find_named("users", user, "user")) if user else UserEntry()


def _cluster(fields: Section) -> ClusterEntry:
    server = fields.require("server")
    if fault := fault_of_address(server):
        fields.refuse("server", fault)
    if fields.has("proxy-url"):
        fields.refuse("proxy-url", "proxies are not supported: connect to the apiserver directly")
    ca_file, ca_data = fields.path("certificate-authority"), fields.data("certificate-authority-data")
    is_unchecked = fields.flag("insecure-skip-tls-verify")
    if is_unchecked and (ca_file or ca_data):
        fields.refuse("insecure-skip-tls-verify", "excludes certificate-authority and certificate-authority-data")
    return ClusterEntry(server, ca_file, ca_data, not is_unchecked, fields.text("tls-server-name"))


def fault_of_address(server: str) -> str:
    """Return why this cannot be the address of an apiserver; empty if it can."""
    try:
        url = urlsplit(server)
        port = url.port
    except ValueError as error:
        return f"{server!r} is not an address: {error}"
    if url.scheme not in ("http", "https") or not url.hostname or port == 0:
        return f"want https://host:port, not {server!r}"
    if url.username is not None or url.query or url.fragment or not server.isascii() or not server.isprintable():
        return f"want only scheme, host, port and path, not {server!r}"
    return f"no spaces in {server!r}" if " " in server else ""


def _user(name: str, fields: Section) -> UserEntry:
    for key in _IMPERSONATION:
        if fields.has(key):
            fields.refuse(key, "impersonation is not supported: take the credentials of that user")
    if fields.has("auth-provider"):
        fields.refuse("auth-provider", "was removed from Kubernetes: use an exec plugin")
    entry = UserEntry(
        name,
        fields.text("token"),
        fields.path("tokenFile"),
        fields.text("username"),
        password=fields.text("password"),
        certificate_file=fields.path("client-certificate"),
        certificate_data=fields.data("client-certificate-data"),
        key_file=fields.path("client-key"),
        key_data=fields.data("client-key-data"),
        plugin=_plugin(fields.section("exec")) if fields.has("exec") else None,
    )
    if not entry.token.isascii() or not entry.token.isprintable() or " " in entry.token:
        fields.refuse("token", "want printable ASCII without spaces")
    if bool(entry.certificate_file or entry.certificate_data) != bool(entry.key_file or entry.key_data):
        fields.refuse("client-certificate", "goes together with client-key: set both or none")
    return entry


def _plugin(fields: Section) -> ExecPlugin:
    version = fields.require("apiVersion")
    if version not in EXEC_VERSIONS:
        fields.refuse("apiVersion", f"want {' or '.join(EXEC_VERSIONS)}, not {version!r}")
    mode = fields.text("interactiveMode") or "IfAvailable"
    if mode == "Always":
        fields.refuse("interactiveMode", "is Always: a host manager has no terminal; want Never or IfAvailable")
    if mode not in ("Never", "IfAvailable"):
        fields.refuse("interactiveMode", f"want Never or IfAvailable, not {mode!r}")
    command = fields.require("command")
    return ExecPlugin(
        version,
        fields.path("command") if "/" in command else command,
        fields.texts("args"),
        fields.pairs("env"),
        fields.text("installHint"),
        fields.flag("provideClusterInfo"),
    )
