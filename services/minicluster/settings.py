"""Every knob of a minicluster as one frozen value; durations are seconds of protocol time."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from services.minicluster.hosts import HostSpec, default_hosts
from services.minicluster.simulation.outcomes import Simulation

TASK_VARIABLES = "SIMULATE"


@dataclass(frozen=True, slots=True, kw_only=True)
class MiniclusterSettings:
    """`time_scale` is how many protocol seconds pass in one real second (processes always run in real time)."""

    data_dir: Path
    port: int = 0
    host: str = "127.0.0.1"
    # Names by which clients may call, beside the address that we listen on, localhost and loopback addresses.
    allowed_hosts: tuple[str, ...] = ()
    # Drills need it as bearer token; empty: they need none.
    token: str = ""
    hosts: tuple[HostSpec, ...] = field(default_factory=default_hosts)
    simulate: bool = False
    # NAME_SECONDS and NAME_SHARE in the environment of a simulated task say how long it runs and how much it uses.
    task_variables: str = TASK_VARIABLES
    # How things turn out on simulated hosts; empty: as commands and these settings say.
    simulation: Simulation = field(default_factory=Simulation)
    # An agent that does not answer for this long is marked unreachable (Mesos: 5 pings of 15 s).
    agent_timeout_s: float = 75.0
    allocation_interval_s: float = 1.0
    heartbeat_interval_s: float = 15.0
    update_retry_s: float = 10.0
    update_retry_max_s: float = 600.0
    # None: offers live until used, as in Mesos without --offer_timeout.
    offer_timeout_s: float | None = None
    kill_grace_s: float = 3.0
    # From the acceptance of a launch to TASK_STARTING, the time a Mesos executor needs to come up.
    executor_start_s: float = 0.05
    # A task whose image is not on its host waits so long for it. A host keeps so many images.
    image_download_s: float = 0.0
    images_max: int = 100
    # A returning agent waits this long for its executors before it registers and is offered again.
    agent_recovery_s: float = 0.2
    # True: a docker image is ignored and the command runs as a plain process.
    containers_as_processes: bool = True
    # True: tasks run as CommandInfo.user / FrameworkInfo.user and an unknown user fails the task.
    switch_user: bool = False
    # Sandboxes of runs that have ended stay so long (Mesos: --gc_delay), the latest of them on so much disk.
    sandbox_retention_s: float = 7 * 24 * 3600.0
    sandbox_disk_mb: int = 10_000
    # Names of variables of minicluster's environment that tasks get, beside sandboxes.PASSED.
    pass_env: tuple[str, ...] = ()
    # Mesos: --enforce_container_disk_quota. Memory is always limited.
    enforce_disk_quota: bool = False
    usage_interval_s: float = 1.0
    # Between estimates of slack (Mesos: --oversubscribed_resources_interval=15secs); None: no estimator, as in Mesos
    # without one. Hosts with a fixed amount of revocable cpus keep it.
    slack_interval_s: float | None = None
    # Principal -> secret; empty: no authentication. Mesos: --credentials with --authenticate_http_*.
    credentials: Mapping[str, str] = field(default_factory=dict)
    # Of master and agents; None: plain text.
    tls: ssl.SSLContext | None = None
    time_scale: float = 1.0
    seed: int = 0
    max_completed_frameworks: int = 50
    max_completed_tasks_per_framework: int = 1000
    max_unreachable_tasks_per_framework: int = 1000
    stream_buffer_bytes: int = 512 * 1024 * 1024
    request_body_bytes: int = 256 * 1024 * 1024
    offers_per_event: int = 5000
