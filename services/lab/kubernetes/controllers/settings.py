"""Periods and timeouts of the controllers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ControllerSettings:
    """Settings of the controllers, with the defaults of the controller manager."""

    node_grace_s: float = 50.0
    """Seconds without a renewed lease after which a node is lost; 0: never."""
    node_period_s: float = 5.0
    """Seconds between two searches for lost nodes."""
    retry_s: float = 1.0
    """Seconds until Jobs and Deployments replace a pod that has failed."""
