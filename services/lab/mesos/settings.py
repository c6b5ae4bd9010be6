"""Settings of a minicluster in one frozen value; durations are seconds of protocol time."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from services.lab.shared.hosts import HostSpec, default_hosts
from services.lab.shared.simulation.behaviour import TASK_VARIABLES
from services.lab.shared.simulation.outcomes import Simulation

DEFAULT_ISOLATION = "cgroups/cpu,cgroups/mem,volume/secret"
"""Isolators of an agent that minicluster emulates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniclusterSettings:
    """Settings of a minicluster.

    `time_scale` is the number of protocol seconds per real second (processes always run in real time).
    """

    data_dir: Path
    port: int = 0
    host: str = "127.0.0.1"
    # Names by which clients may call, in addition to `host`, localhost and loopback addresses.
    allowed_hosts: tuple[str, ...] = ()
    # Bearer token of drills; empty: none is required.
    token: str = ""
    hosts: tuple[HostSpec, ...] = field(default_factory=default_hosts)
    simulate: bool = False
    # NAME_SECONDS and NAME_SHARE in the environment of a simulated task set its run time and usage.
    task_variables: str = TASK_VARIABLES
    # Run times, failures and downloads on simulated hosts; empty: as in commands and these settings.
    simulation: Simulation = field(default_factory=Simulation)
    # An agent that does not answer for this long is marked unreachable (Mesos: 5 pings of 15 s).
    agent_timeout_s: float = 75.0
    allocation_interval_s: float = 1.0
    update_retry_s: float = 10.0
    kill_grace_s: float = 3.0
    # From the acceptance of a launch to TASK_STARTING, the startup time of a Mesos executor.
    executor_start_s: float = 0.05
    # Waiting time of a task for an image that is not on its host.
    image_download_s: float = 0.0
    # A returning agent waits this long for its executors before it registers and is offered again.
    agent_recovery_s: float = 0.2
    # True: tasks run as CommandInfo.user / FrameworkInfo.user and an unknown user fails the task.
    switch_user: bool = False
    # Retention of sandboxes of ended runs (Mesos: --gc_delay), and the disk space for the latest of them.
    sandbox_retention_s: float = 7 * 24 * 3600.0
    sandbox_disk_mb: int = 10_000
    # Names of environment variables of minicluster passed to tasks, in addition to sandboxes.PASSED.
    pass_env: tuple[str, ...] = ()
    # Mesos: --enforce_container_disk_quota. Memory is limited where the isolation has cgroups/mem.
    enforce_disk_quota: bool = False
    # Mesos: --isolation, of each agent.
    isolation: str = DEFAULT_ISOLATION
    usage_interval_s: float = 1.0
    # Interval of slack estimates (Mesos: --oversubscribed_resources_interval=15secs); None: no estimator, as in Mesos
    # without one. Hosts with a fixed amount of revocable cpus keep it.
    slack_interval_s: float | None = None
    # Principal -> secret (Mesos: --credentials with --authenticate_http_*); empty: no authentication.
    credentials: Mapping[str, str] = field(default_factory=dict)
    # For master and agents; None: plain text.
    tls: ssl.SSLContext | None = None
    time_scale: float = 1.0
