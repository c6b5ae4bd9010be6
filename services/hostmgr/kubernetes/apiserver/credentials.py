"""Sources of credentials for an apiserver: fixed ones, token files that rotate, and programs that write them."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import orjson

from peloton.errors import InvalidArgument
from peloton.files import read_file
from services.hostmgr.kubernetes.apiserver.kubeconfig import ClusterEntry, ExecPlugin, UserEntry

log = logging.getLogger(__name__)

TOKEN_CHECK_S = 10.0
"""Seconds for which the content of a token file is cached."""
EXPIRY_MARGIN_S = 10.0
"""Seconds before the expiry of a plugin's credentials at which they are renewed."""
PLUGIN_TIMEOUT_S = 30.0
RENEWAL_PAUSE_S = 1.0
"""Seconds between two runs of a plugin: rejected tokens do not cause an endless loop of runs."""
ERROR_CHARACTERS_MAX = 500


@dataclass(frozen=True)
class Credential:
    authorization: str = field(default="", repr=False)  # value of the header; empty: none
    certificate: bytes = field(default=b"", repr=False)  # PEM with its key; empty: none
    expires_s: float = float("inf")  # by the wall clock


class Source(Protocol):
    def credential(self, renew: bool) -> Credential:
        """Return the credential. ``renew``: the apiserver has rejected the last one. Raises OSError."""
        ...


class Fixed:
    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    def credential(self, renew: bool) -> Credential:
        return self._credential


class TokenFile:
    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._current = Credential()
        self._read_s = float("-inf")

    def credential(self, renew: bool) -> Credential:
        with self._lock:
            now_s = self._clock()
            if renew or now_s - self._read_s >= TOKEN_CHECK_S:
                try:
                    self._current = Credential(bearer(self._content(), self._path))
                except OSError as error:
                    if renew or not self._current.authorization:
                        raise
                    log.warning("token file not read, using the last token: %s", error)
                self._read_s = now_s
            return self._current

    def _content(self) -> str:
        try:
            return read_file(self._path, "token").decode("ascii").strip()
        except UnicodeDecodeError:
            raise OSError(f"{self._path}: not a token: want ASCII") from None
        except InvalidArgument as error:
            raise OSError(error.message) from None


class Plugin:
    """A plugin that runs once, and again when its credentials expire or are rejected; on one thread at a time."""

    def __init__(
        self,
        plugin: ExecPlugin,
        cluster: ClusterEntry,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._plugin = plugin
        self._spec = {"interactive": False, **({"cluster": _describe(cluster)} if plugin.wants_cluster else {})}
        self._clock = clock
        self._lock = threading.Lock()
        self._current: Credential | None = None
        self._ran_s = float("-inf")

    @property
    def fault(self) -> str:
        """Return why the plugin cannot run; empty if it can be found."""
        if shutil.which(self._plugin.command):
            return ""
        hint = f"; {' '.join(self._plugin.install_hint.split())}" if self._plugin.install_hint else ""
        return f"exec.command: {self._plugin.command!r} is no program that can be run{hint}"

    def credential(self, renew: bool) -> Credential:
        with self._lock:
            now_s = self._clock()
            is_over = self._current is None or now_s >= self._current.expires_s - EXPIRY_MARGIN_S
            if is_over or (renew and now_s - self._ran_s >= RENEWAL_PAUSE_S):
                self._current = self._run()
                self._ran_s = self._clock()
            assert self._current is not None
            return self._current

    def _run(self) -> Credential:
        name = f"exec plugin {self._plugin.command}"
        question = {"kind": "ExecCredential", "apiVersion": self._plugin.api_version, "spec": self._spec}
        environment = {**os.environ, **dict(self._plugin.environment)}
        environment["KUBERNETES_EXEC_INFO"] = orjson.dumps(question).decode()
        try:
            done = subprocess.run(
                [self._plugin.command, *self._plugin.arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PLUGIN_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise OSError(f"{name}: no answer within {PLUGIN_TIMEOUT_S:g} s") from None
        except ValueError as error:
            raise OSError(f"{name}: cannot be run: {error}") from None
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()[-ERROR_CHARACTERS_MAX:]
            raise OSError(f"{name}: exit code {done.returncode}: {said or 'it wrote nothing to stderr'}")
        try:
            return written_credential(done.stdout, self._plugin.api_version)
        except ValueError as error:
            raise OSError(f"{name}: {error}") from None


def written_credential(output: bytes, api_version: str) -> Credential:
    """Return the credential of an ExecCredential. Raises ValueError without any part of the output, which may be
    secret."""
    try:
        answer = orjson.loads(output)
    except ValueError:
        raise ValueError("its output is not JSON") from None
    if not isinstance(answer, dict) or answer.get("kind") != "ExecCredential":
        raise ValueError("its output is not of kind ExecCredential")
    if answer.get("apiVersion") != api_version:
        raise ValueError(f"its output is not of apiVersion {api_version}")
    status = answer.get("status")
    if not isinstance(status, dict):
        raise ValueError("status is missing in its output")
    texts = {}
    for key in ("token", "clientCertificateData", "clientKeyData", "expirationTimestamp"):
        texts[key] = status.get(key) or ""
        if not isinstance(texts[key], str):
            raise ValueError(f"status.{key} in its output is not text")
    token, certificate, key_data, expires = texts.values()
    if bool(certificate) != bool(key_data):
        raise ValueError("status.clientCertificateData and status.clientKeyData in its output go together")
    if not token and not certificate:
        raise ValueError("neither status.token nor status.clientCertificateData in its output")
    try:
        authorization = bearer(token, "status.token") if token else ""
        expires_s = datetime.fromisoformat(expires).timestamp() if expires else float("inf")
    except OSError as error:
        raise ValueError(str(error)) from None
    except ValueError:
        raise ValueError("status.expirationTimestamp in its output is not a time") from None
    return Credential(authorization, f"{certificate}\n{key_data}".encode() if certificate else b"", expires_s)


def bearer(token: str, where: str) -> str:
    """Return the header value of a token. Raises OSError: a file may be incomplete while it is written."""
    if not token:
        raise OSError(f"{where}: empty, want a token")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise OSError(f"{where}: not a token: want printable ASCII without spaces")
    return f"Bearer {token}"


def source_of(user: UserEntry, cluster: ClusterEntry) -> Source:
    if user.plugin is not None:
        return Plugin(user.plugin, cluster)
    if user.token_file:
        return TokenFile(user.token_file)
    if user.token:
        return Fixed(Credential(f"Bearer {user.token}"))
    if user.username:
        return Fixed(Credential("Basic " + b64encode(f"{user.username}:{user.password}".encode()).decode()))
    return Fixed(Credential())


def _describe(cluster: ClusterEntry) -> dict[str, Any]:
    authority = cluster.ca_data
    if not authority and cluster.ca_file:
        authority = read_file(cluster.ca_file, "certificate-authority")
    return {
        "server": cluster.server,
        "insecure-skip-tls-verify": not cluster.checks_certificate,
        **({"tls-server-name": cluster.server_name} if cluster.server_name else {}),
        **({"certificate-authority-data": b64encode(authority).decode()} if authority else {}),
        "config": None,
    }
