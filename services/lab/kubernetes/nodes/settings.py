"""Settings of the emulated nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from services.lab.shared.hosts import HostSpec
from services.lab.shared.simulation.behaviour import TASK_VARIABLES
from services.lab.shared.simulation.outcomes import Simulation

PODS_MAX = 110


@dataclass(frozen=True)
class NodeSettings:
    data_dir: Path
    hosts: tuple[HostSpec, ...]
    simulate: bool = False
    """Pods are entries in a heap of timers, not processes."""
    simulation: Simulation = field(default_factory=Simulation)
    task_variables: str = TASK_VARIABLES
    image_download_s: float = 0.0
    pods_max: int = PODS_MAX
    """Pods that one node admits."""
    heartbeat_s: float = 10.0
    usage_interval_s: float = 1.0
    """Seconds between two measurements of processes, each of which kills containers above their memory limit."""
    restart_backoff_s: float = 10.0
    """Seconds before the second restart of a container, doubled for each later one."""
    pass_env: tuple[str, ...] = ()
