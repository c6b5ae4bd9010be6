"""Settings of an emulated Kubernetes."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from services.lab.kubernetes.controllers.settings import ControllerSettings
from services.lab.kubernetes.nodes.settings import NodeSettings
from services.lab.kubernetes.store import EVENTS_MAX
from services.lab.kubernetes.watches import BOOKMARK_S


@dataclass(frozen=True)
class EmulatedKubernetesSettings:
    data_dir: Path
    """Folder of the kubeconfig and the journal of the store."""
    port: int = 0
    host: str = "127.0.0.1"
    token: str = ""
    """Bearer token of the only user."""
    allowed_hosts: tuple[str, ...] = ()
    events_max: int = EVENTS_MAX
    bookmark_s: float = BOOKMARK_S
    tls: ssl.SSLContext | None = None
    """None: plain text, and a client without a token is served, as kubectl sends none without TLS."""
    ca_file: Path | None = None
    """Authority of the certificate, which the kubeconfig names."""
    nodes: NodeSettings | None = None
    """Settings of the emulated nodes; None when another program runs the pods."""
    controllers: ControllerSettings = field(default_factory=ControllerSettings)
