"""The times of the controllers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ControllerSettings:
    """The defaults are those of the controller manager."""

    node_grace_s: float = 50.0
    """A node whose lease is not renewed for so long is lost; 0: no node ever is."""
    node_period_s: float = 5.0
    """Between two searches for lost nodes."""
    quarantine_s: float = 40.0
    """How long a node is missing until its pods are collected."""
    collect_period_s: float = 20.0
    """Between two searches for pods to collect."""
