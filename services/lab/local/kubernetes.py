"""The emulated Kubernetes of a local cluster: its process, and the calls of `peloton local` to it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from peloton.errors import InvalidArgument, NotFound, Unavailable
from services.lab.kubernetes.kubeconfig import read_or_make_token
from services.lab.local.emulated import ask

CLUSTER = "kubernetes"
"""The name of the cluster and of its part, and the prefix of the names of its nodes."""
HOST_MANAGER = f"hostmgr-{CLUSTER}"
NODES = 3
"""The number of nodes whose pods are processes."""
PODS_MAX = 250
"""Limit of the pods of a simulated node, as in large clusters."""
VOLUMES = "/volumes"
"""The folder of volumes, below the folder of each emulated node."""
READY_TIMEOUT_S = 30.0
READY_POLL_S = 0.05


@dataclass(frozen=True)
class LocalKubernetes:
    folder: Path
    port: int
    simulate: int = 0
    """The number of simulated nodes; 0: three nodes with processes."""
    cert_file: Path | None = None
    """File of the certificate and its key; None: plain text."""
    ca_file: Path | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def node_count(self) -> int:
        return self.simulate or NODES

    def arguments(self, ports: range, image_download_s: float, variables: str, pass_env: tuple[str, ...]) -> list[str]:
        """Return the command line arguments. ``ports`` are for pods that are processes."""
        arguments = ["--port", str(self.port), "--data", str(self.folder), "--prefix", f"{CLUSTER}-"]
        arguments += ["--image-download", str(image_download_s)]
        if self.cert_file is not None:
            arguments += ["--tls-cert", str(self.cert_file), "--tls-ca", str(self.ca_file)]
        arguments += [argument for name in pass_env for argument in ("--pass-env", name)]
        if self.simulate:
            simulated = ["--simulate", str(self.simulate), "--max-pods", str(PODS_MAX)]
            return [*arguments, *simulated, "--task-variables", variables]
        return [*arguments, "--nodes", str(NODES), "--task-ports", f"{ports.start}-{ports.stop - 1}"]

    def environment(self) -> dict[str, str]:
        """Return the environment of its host manager."""
        return {
            "PELOTON_CLUSTER": CLUSTER,
            "PELOTON_KUBERNETES": str(self.kubeconfig),
            "PELOTON_PREFETCH_URL": "",
            "PELOTON_KUBERNETES_VOLUMES": VOLUMES,
        }

    async def wait_until_ready(self) -> None:
        """Wait until the server is ready, and its kubeconfig written. Raises Unavailable."""
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while not await asyncio.to_thread(self._is_ready):
            if time.monotonic() > deadline_s:
                raise Unavailable(f"the emulated Kubernetes at {self.address} is not ready after {READY_TIMEOUT_S:g} s")
            await asyncio.sleep(READY_POLL_S)

    def _is_ready(self) -> bool:
        try:
            self._ask("GET", "/readyz")
        except (Unavailable, InvalidArgument, NotFound):
            return False
        return True

    def nodes(self) -> list[dict[str, Any]]:
        """Return name, is_up and pods of each node."""
        found: list[dict[str, Any]] = self._ask("GET", "/emulation/nodes")["nodes"]
        return found

    def act_on_node(self, name: str, verb: str) -> None:
        """Stop or start a node: ``verb``."""
        if verb not in ("stop", "start"):
            raise InvalidArgument(f"{name} is a node of Kubernetes: it can be stopped and started")
        self._ask("POST", f"/emulation/nodes/{quote(name, safe='')}/{verb}")

    def _ask(self, method: str, path: str) -> Any:
        token = read_or_make_token(self.kubeconfig)
        return ask("the emulated Kubernetes", self.address, token, method, path, ca_file=self.ca_file)
