"""Runs the emulated Kubernetes as a separate process."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from services.lab.local.ports import PortReservations
from services.lab.shared.processes import die_with_parent
from tests.kubernetes.client import Client, Login, login_of

START_TIMEOUT_S = 180.0


class EmulatedKubernetes:
    def __init__(self, folder: Path, nodes: int = 0) -> None:
        """Emulate ``nodes`` nodes that run pods. With 0, tests create nodes themselves, on which pods do not run."""
        self._folder, self._nodes = folder, nodes
        self._ports = PortReservations()
        [self._port] = self._ports.take_any(1)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> EmulatedKubernetes:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            self.kill()
        self._ports.close()

    @property
    def login(self) -> Login:
        return login_of(self._folder / "kubeconfig")

    def kill(self) -> None:
        assert self._process is not None, "the emulated Kubernetes is not running"
        self._process.kill()
        self._process.wait()
        self._process = None

    def start(self) -> None:
        command = [sys.executable, "-m", "services.lab.kubernetes", "--port", str(self._port)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--data", str(self._folder), "--nodes", str(self._nodes)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        until_s = time.monotonic() + START_TIMEOUT_S
        while not self._is_ready():
            log_text = (self._folder / "log").read_text(encoding="utf-8")
            assert self._process.poll() is None, log_text
            assert time.monotonic() < until_s, log_text
            time.sleep(0.05)

    def _is_ready(self) -> bool:
        try:
            with Client(self.login) as client:
                return client.ask("GET", "/readyz").status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
